"""Tests of ``exburn.distillation.distiller``."""

import jax.numpy as jnp
import numpy as np
import pytest
from tests.distillation.students import BOTH, STUDENT, TEACHER, X, Y
from tests.golden import keras

import exburn
from exburn.errors import ArgumentError, DataError, ShapeError

pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation")  # Keras'


def stack(api, first, last, dropout=0.0):
    layers = api.layers
    model = api.Sequential(
        [
            api.Input((4,)),
            layers.Dense(8, "relu", name=first),
            layers.Dropout(dropout),
            layers.Dense(3, name=last),
        ]
    )
    rng = np.random.default_rng(len(first) + len(last))
    model.set_weights([rng.normal(size=w.shape).astype("f") for w in model.weights])
    return model


def distiller(api, losses, student=None, **options):
    teacher = stack(api, "hidden", "out")
    return api.distillation.Distiller(
        teacher, student or stack(api, "h", "o"), losses, **options
    )


def compiled(api, losses, **options):
    model = distiller(api, losses, **options)
    loss = api.losses.SparseCategoricalCrossentropy(from_logits=True)
    sgd = api.optimizers.SGD(0.1, momentum=0.0)
    model.compile(sgd, loss=loss, metrics=["accuracy"])
    return model


class Largest(exburn.distillation.DistillationLoss):
    def compute_loss(self, teacher_outputs, student_outputs, **kwargs):
        return jnp.abs(teacher_outputs - student_outputs).max()


@BOTH
def test_losses_of_several_outputs(api):
    kind = api.distillation.FeatureDistillation
    teacher = {"a": jnp.array(TEACHER), "b": jnp.array(TEACHER)}
    student = {"a": jnp.array(STUDENT), "b": jnp.array(STUDENT)}
    loss = kind({"a": "mse", "b": None})
    alone = kind("mse").compute_loss(teacher["a"], student["a"])
    np.testing.assert_allclose(loss.compute_loss(teacher, student), alone, rtol=1e-6)
    loss.validate_outputs(teacher, student)
    for wrong in ({"a": teacher["a"]}, [teacher["a"], teacher["b"]]):
        with pytest.raises((ValueError, AttributeError)):  # a mistake of Keras'
            loss.validate_outputs(wrong, wrong)
    with pytest.raises(ValueError):
        loss.validate_outputs(teacher, [student["a"], student["b"]])


@pytest.mark.parametrize("accumulate", [False, True])
def test_training_is_that_of_keras(accumulate, golden):
    def train(api):
        d = api.distillation
        losses = [
            d.LogitsDistillation(2.0, api.losses.KLDivergence()),
            d.FeatureDistillation("mse", "hidden", "h"),
        ]
        model = compiled(
            api,
            losses,
            distillation_loss_weights=[1.0, 0.5],
            student_loss_weight=0.0 if accumulate else 0.3,
        )
        history = model.fit(X, Y, batch_size=8, epochs=2, shuffle=False, verbose=0)
        assert not model.teacher.trainable and not model.teacher.trainable_weights
        results = model.evaluate(X, Y, batch_size=8, verbose=0, return_dict=True)
        arrays = [model.predict(X[:3], verbose=0), *model.student.get_weights()]
        return history.history, results, arrays

    *logs, arrays = train(exburn)
    *their_logs, their_arrays = golden(lambda: train(keras))
    for mine, theirs in zip(logs, their_logs, strict=True):
        assert mine.keys() == theirs.keys()
        for key, value in mine.items():
            np.testing.assert_allclose(value, theirs[key], rtol=1e-4, err_msg=key)
    for mine, theirs in zip(arrays, their_arrays, strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-3, atol=1e-4)


def test_features_come_from_the_pass_that_made_the_outputs():
    """A student with dropout is not run twice, with other masks (Keras does so)."""
    calls = []

    class Counted(exburn.layers.Dense):
        def call(self, x):
            calls.append(1)
            return super().call(x)

    student = exburn.Sequential(
        [
            exburn.Input((4,)),
            Counted(8, name="h"),
            exburn.layers.Dropout(0.5),
            exburn.layers.Dense(3),
        ]
    )
    loss = exburn.distillation.FeatureDistillation("mse", "hidden", "h")
    model = compiled(exburn, loss, student=student, student_loss_weight=0.0)
    model.fit(X, Y, batch_size=37, verbose=0)
    before = len(calls)
    float(model.compute_loss(X, Y))
    assert len(calls) == before + 1


def test_models_of_subclasses_are_compared_by_their_layers():
    class Net(exburn.Model):
        def __init__(self):
            super().__init__()
            self.first = exburn.layers.Dense(8)
            self.last = exburn.layers.Dense(3)

        def call(self, x):
            return self.last(self.first(x))

    loss = exburn.distillation.FeatureDistillation("mse", "hidden", "first")
    model = compiled(exburn, loss, student=Net())
    history = model.fit(X, Y, epochs=3, verbose=0).history["distillation_loss"]
    assert history[-1] < history[0]


def test_one_may_train_without_targets_and_with_weights():
    kl = exburn.distillation.LogitsDistillation()
    model = compiled(exburn, kl)
    history = model.fit(X, batch_size=37, epochs=2, verbose=0).history
    assert history["student_loss"] == [0.0, 0.0]
    weights = np.zeros(37, "float32")
    weights[:5] = 1.0
    few, some = compiled(exburn, kl), compiled(exburn, kl)
    first = few.evaluate(X[:5], Y[:5], batch_size=5, verbose=0, return_dict=True)
    second = some.evaluate(
        X, Y, batch_size=37, sample_weight=weights, verbose=0, return_dict=True
    )
    np.testing.assert_allclose(
        second["student_loss"] * 37 / 5, first["student_loss"], rtol=1e-5
    )


def test_files_and_copies(tmp_path):
    d = exburn.distillation
    losses = [d.LogitsDistillation(2.0), d.FeatureDistillation("mae", "hidden", "h")]
    model = compiled(exburn, [*losses, Largest()], student_loss_weight=0.25)
    model.fit(X, Y, verbose=0)
    model.save(tmp_path / "distiller.exburn")
    known = {"Largest": Largest}
    loaded = exburn.models.load_model(tmp_path / "distiller.exburn", known)
    expected = model.evaluate(X, Y, verbose=0, return_dict=True)
    assert loaded.evaluate(X, Y, verbose=0, return_dict=True) == expected
    assert loaded.student_loss_weight == 0.25
    assert [type(loss) for loss in loaded.distillation_losses] == [
        *map(type, losses),
        Largest,
    ]
    kinds = [loss.get_config() for loss in loaded.distillation_losses[:2]]
    assert kinds == [loss.get_config() for loss in losses]
    history = loaded.fit(X, Y, verbose=0)  # compiled, as it was
    np.testing.assert_array_equal(
        history.history["loss"], model.fit(X, Y, verbose=0).history["loss"]
    )


@BOTH
@pytest.mark.parametrize(
    "options",
    [
        {"student_loss_weight": 1.5},
        {"student_loss_weight": "0.5"},
        {"distillation_loss_weights": [1.0]},
    ],
)
def test_weights_that_cannot_be(api, options):
    losses = [api.distillation.LogitsDistillation()] * 2
    with pytest.raises(ValueError):
        distiller(api, losses, **options)


@BOTH
def test_models_that_do_not_fit(api):
    d = api.distillation
    with pytest.raises(ValueError):
        distiller(api, d.FeatureDistillation("mse", "nothing", "h"))
    with pytest.raises(ValueError):
        wide = api.Sequential([api.Input((4,)), api.layers.Dense(5)])
        distiller(api, d.LogitsDistillation(), student=wide)
    with pytest.raises(ValueError):
        distiller(api, None)
    with pytest.raises(ValueError):
        d.Distiller("teacher", stack(api, "h", "o"), d.LogitsDistillation())
    with pytest.raises(ValueError):
        distiller(api, d.LogitsDistillation()).compile("adam")


def test_errors_say_what_to_do():
    d = exburn.distillation
    with pytest.raises(ArgumentError, match="compute_loss"):
        d.DistillationLoss().compute_loss(1, 2)

    class Rows(d.DistillationLoss):
        def compute_loss(self, teacher_outputs, student_outputs, **kwargs):
            return jnp.abs(teacher_outputs - student_outputs).max(-1)

    with pytest.raises(ShapeError, match="one number"):
        compiled(exburn, Rows()).fit(X, Y, verbose=0)
    with pytest.raises(DataError, match="each output"):
        compiled(exburn, d.LogitsDistillation(loss=["mse", "mse"])).fit(X, Y, verbose=0)


@pytest.mark.parametrize("first", ["student", "distiller"])
def test_the_optimizers_state_goes_with_the_student(first):
    """To the distiller, and back: whoever trains goes on with the moments."""
    student = stack(exburn, "h", "o")
    x, y = np.resize(X, (24, 4)).astype("f"), np.resize(Y, 24)
    options = {"loss": "cross_entropy", "metrics": ["accuracy"]}
    if first == "student":
        student.compile("adam", **options)
        student.fit(x, y, epochs=2, verbose=0)
    model = exburn.Distiller(
        stack(exburn, "hidden", "out"), student, exburn.distillation.SoftTargets()
    )
    if first == "distiller":
        model.compile("adam", **options)
    before = int(student.optimizer.iterations)
    model.fit(x, y, epochs=3, verbose=0)
    after = int(student.optimizer.iterations)
    assert after - before == 3 and model.optimizer.iterations == after
    mine, its = (
        m._training_session.holder.opt_state["inner"] for m in (student, model)
    )
    for path, slots in mine.items():
        for name, slot in slots.items():
            np.testing.assert_array_equal(slot, its[f"student/{path}"][name])
    aware = exburn.quantize_aware(student, "int8")
    for one, updates in (
        (student, 1),
        (model, 2),
        (model, 3),
        (student, 4),
        (aware, 1),
    ):
        one.fit(x, y, epochs=1, verbose=0)
        assert one.optimizer.iterations == after + updates


def test_a_distiller_that_is_compiled_otherwise_keeps_to_itself():
    student = stack(exburn, "h", "o")
    student.compile("sgd", loss="cross_entropy")
    model = exburn.Distiller(
        stack(exburn, "hidden", "out"), student, exburn.distillation.SoftTargets()
    )
    model.compile("adam", loss="cross_entropy")
    model.fit(X, Y, epochs=1, verbose=0)
    assert student.optimizer.iterations == 0
