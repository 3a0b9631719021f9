"""Tests of ``exburn.distillation.soft_targets``, and of students that it trains."""

import jax.numpy as jnp
import numpy as np
import pytest

import exburn
from exburn import layers
from exburn.distillation import FeatureDistillation, SoftTargets
from exburn.distillation.soft_targets import soft_divergence
from exburn.errors import (
    ArgumentError,
    ExBurnError,
    NotBuiltError,
    ShapeError,
    UnknownNameError,
)
from exburn.models.output_kinds import OutputKind

RNG = np.random.default_rng(0)
X = RNG.normal(size=(24, 6)).astype("float32")
Y = RNG.integers(0, 3, 24)


def stack(width, last=None, units=3, name="hidden"):
    return exburn.Sequential(
        [
            exburn.Input((6,)),
            layers.Dense(width, "relu", name=name),
            layers.Dense(units, activation=last, name="out"),
        ]
    )


def compiled(model, loss="cross_entropy", **options):
    model.compile(exburn.optimizers.SGD(0.1), loss, metrics=["accuracy"], **options)
    return model


def projected(teacher_layer, student_layer):
    return FeatureDistillation("mse", teacher_layer, student_layer, project=True)


def softmax(z):
    e = np.exp(z - z.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def divergence(p, q):
    return (p * np.log(p / q)).sum(-1)


LOGITS, OTHERS = RNG.normal(size=(2, 5, 4)).astype("float32") * 2
KINDS = {
    "softmax": lambda z: softmax(z),
    "sigmoid": lambda z: 1 / (1 + np.exp(-z)),
}


@pytest.mark.parametrize("family", ["softmax", "sigmoid"])
@pytest.mark.parametrize("teacher, student", [(1, 1), (0, 1), (1, 0), (0, 0)])
def test_probabilities_are_compared_by_their_logits(family, teacher, student):
    make = KINDS[family]
    kinds = [
        OutputKind(family, bool(logits), (None, 4)) for logits in (teacher, student)
    ]
    given = [LOGITS if teacher else make(LOGITS), OTHERS if student else make(OTHERS)]
    p, q = make(LOGITS / 3), make(OTHERS / 3)
    expected = divergence(p, q)
    if family == "sigmoid":
        expected = (p * np.log(p / q) + (1 - p) * np.log((1 - p) / (1 - q))).mean(-1)
    found = soft_divergence(*map(jnp.asarray, given), 3.0, *kinds)
    np.testing.assert_allclose(found, 9 * expected.mean(), rtol=2e-3)
    mask = jnp.array([True, False, True, False, False])
    found = soft_divergence(*map(jnp.asarray, given), 3.0, *kinds, mask)
    np.testing.assert_allclose(found, 9 * expected[[0, 2]].mean(), rtol=2e-3)


def test_values_are_compared_as_they_are():
    kind = OutputKind("values", False, (None, 4))
    found = soft_divergence(jnp.array(LOGITS), jnp.array(OTHERS), 3.0, kind, kind)
    np.testing.assert_allclose(found, np.square(LOGITS - OTHERS).mean(), rtol=1e-5)
    ruled_out = jnp.array([[0.0, -jnp.inf]]), jnp.array([[0.0, -jnp.inf]])
    kind = OutputKind("softmax", True, (None, 2))
    assert float(soft_divergence(*ruled_out, 2.0, kind, kind)) == 0.0


def test_a_student_is_trained_by_the_formula_and_stands_alone(tmp_path):
    teacher, student = stack(8), compiled(stack(4))
    before = teacher.get_weights()
    distiller = exburn.Distiller(
        teacher,
        student,
        [SoftTargets(2.0), projected("hidden", "hidden")],
        [1.0, 0.5],
        student_loss_weight=0.3,
    )
    (projection,) = [w.numpy() for w in distiller.projections[1].weights]
    features = [m.capture(X, ["hidden"])["hidden"] for m in (teacher, student)]
    zt, zs = (m.predict(X, verbose=0) for m in (teacher, student))
    own = -np.log(softmax(zs))[np.arange(24), Y].mean()
    soft = 4 * divergence(softmax(zt / 2), softmax(zs / 2)).mean()
    hint = np.square(features[0] - features[1] @ projection).mean()
    expected = 0.3 * own + 0.7 * (soft + 0.5 * hint)
    logs = distiller.evaluate(X, Y, verbose=0, return_dict=True)
    np.testing.assert_allclose(logs["loss"], expected, rtol=1e-5)

    # Resumed from a file in the middle, as without a break; the teacher stays.
    distiller.fit(X, Y, batch_size=8, verbose=0)
    distiller.save(tmp_path / "distiller.exburn")
    other = exburn.load_model(tmp_path / "distiller.exburn")
    assert type(other) is exburn.Distiller
    assert [loss.get_config() for loss in other.distillation_losses] == [
        loss.get_config() for loss in distiller.distillation_losses
    ]
    for one in (distiller, other):
        one.fit(X, Y, batch_size=8, epochs=2, initial_epoch=1, verbose=0)
    for mine, theirs in zip(distiller.get_weights(), other.get_weights(), strict=True):
        np.testing.assert_array_equal(mine, theirs)
    for weight, old in zip(teacher.weights, before, strict=True):
        np.testing.assert_array_equal(weight.numpy(), old)
    assert (projection != distiller.projections[1].weights[0].numpy()).any()
    assert len(student.weights) == 4
    np.testing.assert_array_equal(
        student.predict(X, verbose=0), distiller.predict(X, verbose=0)
    )
    student.save(tmp_path / "student.exburn")
    alone = exburn.load_model(tmp_path / "student.exburn")
    assert alone.evaluate(X, Y, verbose=0) == student.evaluate(X, Y, verbose=0)


@pytest.mark.parametrize("loss, last, units", [("mse", None, 2), ("bce", "sigmoid", 1)])
def test_an_unbuilt_student_is_built_and_compiled_as_the_teacher(loss, last, units):
    teacher = stack(8, last, units)
    student = exburn.Sequential([layers.Dense(units, activation=last)])
    distiller = exburn.Distiller(
        teacher, student, SoftTargets(), student_loss_weight=0.0
    )
    distiller.compile("adam", loss)
    y = RNG.integers(0, 2, (24, units)).astype("float32")
    history = distiller.fit(X, y, epochs=4, verbose=0).history["loss"]
    assert history[-1] < history[0]
    assert student.compiled and student.optimizer is not distiller.optimizer


@exburn.register
class SmallNet(exburn.Model):
    def __init__(self, units=4, **kwargs):
        super().__init__(**kwargs)
        self.units = units
        self.first, self.last = layers.Dense(units, "relu"), layers.Dense(3)

    def call(self, x):
        return self.last(self.first(x))

    def get_config(self):
        return {"units": self.units}


def test_models_of_classes_of_ones_own_go_into_files(tmp_path):
    teacher, student = SmallNet(8), SmallNet()
    teacher(X)
    losses = [SoftTargets(), projected("first", "first")]
    distiller = exburn.Distiller(teacher, compiled(student), losses)
    distiller.save(tmp_path / "distiller.exburn")
    other = exburn.load_model(tmp_path / "distiller.exburn")
    expected = distiller.evaluate(X, Y, verbose=0, return_dict=True)
    assert other.evaluate(X, Y, verbose=0, return_dict=True) == expected


def test_losses_and_targets_may_go_by_the_names_of_outputs():
    def two(width):
        x = exburn.Input((6,), name="row")
        h = layers.Dense(width, "relu")(x)
        outputs = [layers.Dense(3, name="kind")(h), layers.Dense(1, name="size")(h)]
        return exburn.Model(x, outputs)

    teacher, student = two(8), two(4)
    student.compile("adam", loss={"kind": "cross_entropy", "size": "mse"})
    distiller = exburn.Distiller(
        teacher, student, SoftTargets(2.0), student_loss_weight=0.0
    )
    targets = {"kind": Y, "size": X[:, :1]}
    logs = distiller.evaluate({"row": X}, targets, verbose=0, return_dict=True)
    (kt, st), (ks, ss) = (m.predict(X, verbose=0) for m in (teacher, student))
    expected = 4 * divergence(softmax(kt / 2), softmax(ks / 2)).mean()
    expected += np.square(st - ss).mean()
    np.testing.assert_allclose(logs["distillation_loss"], expected, rtol=1e-4)


def test_models_that_do_not_fit():
    teacher, student = stack(8), stack(4)
    with pytest.raises(ShapeError, match="one shape"):
        exburn.Distiller(teacher, stack(4, units=5), SoftTargets())
    with pytest.raises(NotBuiltError):
        exburn.Distiller(exburn.Sequential([layers.Dense(3)]), student, SoftTargets())
    word = exburn.Input((1,), dtype="string")
    lookup = layers.StringLookup(vocabulary=["a", "b"], output_mode="one_hot")
    reader = exburn.Model(word, layers.Dense(3)(lookup(word)))
    with pytest.raises(ArgumentError, match="strings"):
        exburn.Distiller(reader, reader.clone(), SoftTargets())
    with pytest.raises(ArgumentError, match="is the teacher"):
        exburn.Distiller(student, student, SoftTargets())
    with pytest.raises(ArgumentError, match="teacher must be a model"):
        exburn.Distiller("teacher", student, SoftTargets())
    with pytest.raises(ArgumentError, match="temperature"):
        SoftTargets(0)
    with pytest.raises(ArgumentError, match="project"):
        FeatureDistillation("mse", "hidden", "hidden", project="yes")
    with pytest.raises((UnknownNameError, ArgumentError), match="nothing"):
        exburn.Distiller(teacher, student, projected("nothing", "hidden"))
    distiller = exburn.Distiller(stack(8, "sigmoid"), student, SoftTargets())
    with pytest.raises(ArgumentError, match="different things"):
        distiller.compile("adam", "cross_entropy")
    with pytest.raises(ArgumentError, match="loss of its own"):
        distiller.compile("adam")


def test_features_that_cannot_be_compared():
    def sequence(steps):
        return exburn.Sequential(
            [
                exburn.Input((steps, 2)),
                layers.LSTM(4, name="lstm"),
                layers.Dense(3, name="out"),
            ]
        )

    image = exburn.Sequential(
        [exburn.Input((4, 2)), layers.Dense(5, name="wide"), layers.Flatten()]
    )
    image.add(layers.Dense(3))
    with pytest.raises(ShapeError, match="last axis"):
        exburn.Distiller(image, sequence(4), projected("wide", "lstm"))
    with pytest.raises(ExBurnError, match="open|one array"):
        cells = projected("lstm/cell", "lstm/cell")
        distiller = exburn.Distiller(sequence(4), sequence(4), cells)
        distiller.compile("adam", "cross_entropy")
        distiller.fit(np.zeros((8, 4, 2)), np.zeros(8, int), verbose=0)
