"""Models and data on two devices, in a process that has two."""

import os
import subprocess
import sys

import jax
import numpy as np
import pytest

import exburn
from exburn.training.program import Program

RNG = np.random.default_rng(0)
X = RNG.normal(size=(20, 4)).astype(np.float32)
Y = X.sum(-1, keepdims=True)


@pytest.mark.parametrize("bound", ["model", "data", "weight"])
def test_arrays_bound_to_a_device_make_one_program(bound):
    made = exburn.Sequential([exburn.Input((4,)), exburn.layers.Dense(1)])
    made.compile("adam", "mse", seed=0)
    x, y, device = X, Y, jax.devices()[0]
    if bound == "model":
        made.to_device(device)
    elif bound == "data":
        x, y = jax.device_put((X, Y), device)
    else:
        made.layers[0].kernel.assign(jax.device_put(np.ones((4, 1)), device))
    programs = []
    original = Program.__call__

    def call(self, *args, **kwargs):
        programs.append(self._call)
        return original(self, *args, **kwargs)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Program, "__call__", call)
        made.fit(x, y, epochs=3, verbose=0)
        made.optimizer.learning_rate = 0.1
        made.fit(x, y, epochs=2, verbose=0)
        rates = exburn.callbacks.LearningRateScheduler(lambda epoch, rate: rate / 2)
        made.fit(x, y, epochs=3, verbose=0, callbacks=[rates])
    (train,) = {id(p): p for p in programs}.values()
    assert train._cache_size() == 1


PROGRAM = """
import jax, numpy as np, exburn
from exburn import errors, layers

x, y = np.ones((16, 4), np.float32), np.zeros(16, int)

model = exburn.Sequential([exburn.Input((4,)), layers.Dense(3)])
model.compile("adam", "cross_entropy", device="cpu:1")
model.fit(x, y, verbose=0)
where = lambda: {d.id for w in model.weights for d in w.get_value().devices()}
assert where() == {1}, where()
leaves = jax.tree.leaves(model._training_session.holder.opt_state)
assert {d.id for v in leaves for d in v.devices()} == {1}
assert exburn.forward(model, x).devices() == {jax.devices()[1]}
exburn.to_device(model, "cpu:0")
model.fit(x, y, verbose=0)
assert where() == {0}, where()
assert exburn.configure("cpu:1") and exburn.compute.buffer([1]).device.id == 1
exburn.configure()
assert exburn.compute.buffer([1]).device.id == 0
model = exburn.Sequential([layers.Dense(3)])  # built by fit
model.compile("sgd", "cross_entropy", device=jax.devices()[1])
model.fit(x, y, verbose=0)
assert where() == {1}, where()

x0, x1 = (jax.device_put(x, device) for device in jax.devices())
y0, y1 = (jax.device_put(y, device) for device in jax.devices())
a, b = exburn.Input((4,)), exburn.Input((4,))
both = exburn.Model([a, b], layers.Dense(3)(layers.Add()([a, b])))
model = exburn.Sequential([exburn.Input((4,)), layers.Dense(3)])
for made in (both, model):
    made.compile("sgd", "cross_entropy")
own = exburn.Sequential([exburn.Input((4,)), layers.Dense(3)])
own.to_device("cpu:1")
cases = [
    (lambda: model.fit(x0, y1, verbose=0), "  x: cpu:0\\n  y: cpu:1\\n"),
    (lambda: model.fit(x0, y0, sample_weight=y1, verbose=0),
        "  y: cpu:0\\n  sample_weight: cpu:1\\n"),
    (lambda: model.train_on_batch(x1, y0), "  x: cpu:1\\n  y: cpu:0\\n"),
    (lambda: both.predict_on_batch([x0, x1]), "  x[0]: cpu:0\\n  x[1]: cpu:1\\n"),
    (lambda: both([x0, x1]), "model: ", "  inputs[0]: cpu:0\\n  inputs[1]: cpu:1\\n"),
    (lambda: layers.Add()([x0, x1]), "add: the arrays of one call must lie on one"),
    (lambda: own(x0), "  inputs: cpu:0\\n  weights: cpu:1\\n"),
    (lambda: model.fit(x1, y1, validation_data=(x0, y0), resident=True, verbose=0),
        "  validation_data: cpu:0\\n  weights: cpu:1\\n"),
    # After that run the model is where its data were.
    (lambda: model.fit(x0, y0, resident=True, verbose=0), "  weights: cpu:1\\n"),
]
for call, *said in cases:
    try:
        call()
    except errors.ArgumentError as error:
        assert all(text in str(error) for text in said), error
        assert "device_put" in str(error)
    else:
        raise AssertionError(said)
model.fit(x1, y1, verbose=0)  # it has kept its weights
# What is sent in batches is joined on the way.
assert model.predict(x0, verbose=0).shape == (16, 3)
model.evaluate(x0, y1, verbose=0)
print("ok")
"""


def test_two_devices():
    flags = os.environ.get("XLA_FLAGS", "")
    flags += " --xla_force_host_platform_device_count=2"
    done = subprocess.run(
        [sys.executable, "-W", "error", "-P", "-c", PROGRAM],
        env={**os.environ, "XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu"},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.stdout.strip() == "ok", done.stderr[-2000:]
