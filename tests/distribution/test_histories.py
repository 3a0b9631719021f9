"""Training on several devices is training on one: the same numbers come out."""

import numpy as np
import pytest
from tests.distribution.devices import on_devices
from tests.distribution.models import compiled, data

from exburn import distribution, optimizers

MESHES = {
    "2 data": {"data": 2},
    "8 data": "data",
    "8 fsdp": distribution.FSDP,
    "2 x 4 fsdp": {"data": 2, "fsdp": 4},
    "2 x 4 tensor": {"data": 2, "model": 4},
}


def run(name, batch_size, mesh=None):
    layout = None
    if mesh == "2 x 4 tensor" and name == "mlp":  # whose layers make no pair
        layout = {"dense/kernel": (None, "model"), "dense/bias": ("model",)}
    elif mesh == "2 x 4 tensor":
        layout = distribution.tensor_parallel(compiled(name))
    mesh = MESHES.get(mesh)
    if mesh is distribution.FSDP:
        mesh = distribution.FSDP(min_size=1)
    sgd = optimizers.SGD(0.05 if batch_size > 1 else 0.002, momentum=0.9)
    model = compiled(name, mesh, sgd, layout=layout)
    x, y, weights = data(name)
    history = model.fit(
        x,
        y,
        batch_size,
        epochs=5,
        verbose=0,
        sample_weight=weights,
        validation_data=(x[:101], y[:101]),
    ).history
    scores = model.evaluate(x, y, batch_size, verbose=0)
    outputs = model.predict(x, batch_size, verbose=0)
    traces = dict(model._training_session.preparer.program_cache.trace_counts)
    return history, scores, outputs, traces


CASES = [
    case
    for name in ("mlp", "convnet", "transformer")
    for mesh in MESHES
    for batch in (1, 60, 64, 101)
    if not (name == "convnet" and "tensor" in mesh)
    for case in [(name, mesh, batch)]
]


@pytest.mark.parametrize(("name", "mesh", "batch"), CASES)
@on_devices
def test_the_history_of_one_device(name, mesh, batch):
    history, scores, outputs, traces = run(name, batch, mesh)
    wanted, their_scores, their_outputs, their_traces = run(name, batch)
    for key in wanted:
        np.testing.assert_allclose(history[key], wanted[key], rtol=1e-5, err_msg=key)
    np.testing.assert_allclose(scores, their_scores, rtol=1e-5)
    np.testing.assert_allclose(outputs, their_outputs, rtol=1e-4, atol=1e-5)
    assert traces["train"] == their_traces["train"] == 1


@on_devices
def test_rows_of_no_batch_of_the_devices():
    """With a data set of fewer rows than devices."""
    x, y, _ = data("mlp", rows=3)
    found = compiled("mlp", "data").fit(x, y, epochs=2, verbose=0).history
    wanted = compiled("mlp").fit(x, y, epochs=2, verbose=0).history
    np.testing.assert_allclose(found["loss"], wanted["loss"], rtol=1e-5)
