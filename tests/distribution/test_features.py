"""What else a model can do on one device, it does on several, with the same numbers."""

import copy

import jax
import numpy as np
import pytest
from tests.distribution.devices import on_devices
from tests.distribution.models import assert_close, compiled, data

import exburn
from exburn import callbacks, layers, optimizers
from exburn.distribution import FSDP, DataParallel, ZeRO, set_distribution

MESHES = {
    "data": lambda: "data",
    "fsdp": lambda: FSDP(min_size=1),
    "zero": lambda: ZeRO(1, min_size=1),
}
X, Y, _ = data("mlp")


def losses(model, *args, **options):
    options = {"batch_size": 60, "epochs": 2, "verbose": 0} | options
    history = model.fit(*(args or (X, Y)), **options).history
    return {name: values for name, values in history.items() if "loss" in name}


def one_batch_at_a_time(mesh):
    model, found = compiled("mlp", mesh), []
    for start in (0, 31, 62):
        rows = slice(start, start + 31)
        found.append(model.train_on_batch(X[rows], Y[rows]))
    found.append(model.test_on_batch(X[:13], Y[:13]))
    return found, model.predict_on_batch(X[:13])


class Batches(exburn.utils.PyDataset):
    def __len__(self):
        return 3

    def __getitem__(self, index):
        rows = slice(index * 60, (index + 1) * 60)
        return X[rows], Y[rows]


def a_loader(mesh):
    model = compiled("mlp", mesh)
    found = losses(model, Batches(), batch_size=None, validation_data=Batches())
    return found, model.predict(Batches(), verbose=0)


def a_generator(mesh):
    def batches():
        while True:
            yield from (Batches()[i] for i in range(3))

    model = compiled("mlp", mesh)
    return losses(model, batches(), batch_size=None, steps_per_epoch=3)


def accumulated_gradients(mesh):
    return losses(compiled("mlp", mesh, accumulate_gradients=3), batch_size=20)


def averaged_weights(mesh):
    model = compiled("mlp", mesh, optimizers.Adam(use_ema=True, ema_momentum=0.9))
    return losses(model), model.predict(X, verbose=0)


def in_halves(dtype):
    hidden = layers.Dense(64, "relu", dtype=dtype)
    return exburn.Sequential(
        [exburn.Input((20,)), hidden, layers.Dense(4, dtype="float32")]
    )


def bfloat16(mesh):
    model = compiled(lambda: in_halves("mixed_bfloat16"), mesh)
    return losses(model)


def float16(mesh):
    model = compiled(lambda: in_halves("mixed_float16"), mesh)
    losses(model)
    return model.optimizer.loss_scale


def adapters(mesh):
    model = compiled("mlp", mesh)
    losses(model, epochs=1)
    model.add_lora(4)
    model.compile("adam", "cross_entropy", mesh=mesh)
    return losses(model), model.predict(X, verbose=0)


def quantized(mesh):
    model = compiled("mlp", mesh)
    losses(model, epochs=1)
    small = model.quantize("int8")
    assert small._training_session.distribution is model._training_session.distribution
    return small.predict(X, verbose=0)


class OwnStep(exburn.Sequential):
    def train_step(self, state, data):
        x, y, _ = exburn.utils.unpack_x_y_sample_weight(data)
        trained, others, slots, metrics = state

        def loss_of(trained, others):
            outputs, others = self.stateless_call(trained, others, x, training=True)
            return self.compute_loss(y=y, y_pred=outputs), others

        grad = jax.value_and_grad(loss_of, has_aux=True)
        (loss, others), grads = grad(trained, others)
        trained, slots = self.optimizer.stateless_apply(slots, grads, trained)
        return {"loss": loss}, (trained, others, slots, metrics)


def an_own_step(mesh):
    def make():
        hidden = layers.Dense(64, "relu")
        return OwnStep([exburn.Input((20,)), hidden, layers.Dense(4)])

    return losses(compiled(make, mesh))


def operation_by_operation(mesh):
    return losses(compiled("mlp", mesh, run_eagerly=True), X[:32], Y[:32], epochs=1)


class Changes(callbacks.Callback):
    def on_epoch_end(self, epoch, logs=None):
        weights = self.model.get_weights()
        self.model.set_weights([1.01 * w for w in weights])
        self.model.optimizer.learning_rate = 0.001 * (epoch + 1)


def hooks_that_change(mesh):
    model = compiled("mlp", mesh)
    plateau = callbacks.ReduceLROnPlateau(patience=1)
    found = losses(model, callbacks=[Changes(), plateau], validation_split=0.2)
    return found, model._training_session.preparer.program_cache.trace_counts["train"]


def other_optimizers(mesh):
    names = "sgd adafactor muon lamb".split()
    return [losses(compiled("mlp", mesh, name), epochs=1) for name in names]


def classes_and_views(mesh):
    model = compiled("mlp", mesh)
    weights = {0: 1.0, 1: 2.0, 2: 1.0, 3: 0.5}
    found = losses(model, class_weight=weights)
    copied = model.clone()
    assert copied._training_session.distribution is model._training_session.distribution
    outputs = model.capture(X[:8]), model(X[:5]), copied.predict(X, verbose=0)
    return found, outputs, copied.get_weights(), copy.deepcopy(model).get_weights()


WAYS = [
    one_batch_at_a_time,
    a_loader,
    a_generator,
    accumulated_gradients,
    averaged_weights,
    bfloat16,
    float16,
    adapters,
    quantized,
    an_own_step,
    operation_by_operation,
    hooks_that_change,
    other_optimizers,
    classes_and_views,
]


@pytest.mark.parametrize(
    ("way", "mesh"),
    [
        pytest.param(
            way.__name__,
            mesh,
            id=f"{way.__name__} {mesh}",
        )
        for way in WAYS
        for mesh in MESHES
    ],
)
@on_devices
def test_the_same_numbers(way, mesh):
    found, wanted = globals()[way](MESHES[mesh]()), globals()[way](None)
    assert_close(found, wanted, 1e-2 if way == "bfloat16" else 1e-5)


@on_devices
@pytest.mark.parametrize("mesh", ["fsdp"])
def test_files_know_nothing_of_the_mesh(tmp_path, mesh):
    model = compiled("mlp", MESHES[mesh]())
    losses(model, epochs=1)
    wanted = model.predict(X, verbose=0)
    for name in ("m.exburn", "m.keras"):
        model.save(tmp_path / name)
        read = exburn.models.load_model(tmp_path / name)
        assert {len(w.value.sharding.device_set) for w in read.weights} == {1}
        assert_close(read.predict(X, verbose=0), wanted, 1e-6)
    assert_close(losses(read), losses(model))


@on_devices
def test_a_run_goes_on_on_another_mesh(tmp_path):
    wanted = losses(compiled("mlp", "data"), epochs=4)["loss"]
    saver = callbacks.ModelCheckpoint(tmp_path / "run")
    losses(compiled("mlp", FSDP(min_size=1)), callbacks=[saver])
    for mesh in ({"data": 2}, None, ZeRO(1, min_size=1)):
        model = compiled("mlp", mesh)
        saver = callbacks.ModelCheckpoint(tmp_path / "run", save_freq=10**6)
        found = losses(model, epochs=4, callbacks=[saver], resume=tmp_path / "run")
        assert_close(found["loss"][-2:], wanted[2:])


@on_devices
def test_the_distribution_of_all_models():
    wanted = losses(compiled("mlp"))
    set_distribution(DataParallel())
    model = compiled("mlp")
    assert_close(losses(model), wanted)
    assert {len(w.value.sharding.device_set) for w in model.weights} == {8}
    set_distribution(None)
    assert np.isfinite(losses(model, epochs=1)["loss"]).all()
    assert {len(w.value.sharding.device_set) for w in model.weights} == {1}


@on_devices
def test_a_model_goes_back_to_one_device():
    def run(mesh):
        model = compiled("mlp", mesh)
        losses(model)
        model.compile(model.optimizer, "cross_entropy")
        found = losses(model)
        return found, {len(w.value.sharding.device_set) for w in model.weights}

    found, places = run("fsdp")
    assert_close(found, run(None)[0])
    assert places == {1}
