"""Private training whose rows devices divide, beside one device."""

import numpy as np
import pytest
from tests.distribution.devices import on_devices

import exburn
from exburn import layers, optimizers
from exburn.errors import ArgumentError
from exburn.training.privacy import clipping

pytest.importorskip("dp_accounting")


def trained(mesh, norms="auto", bytes_of_turn=None):
    """The weights of ten steps with noise; their rows in turns, where bytes are few."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(60, 4)).astype(np.float32)
    y = rng.integers(0, 3, 60)
    body = [exburn.Input((4,)), layers.Dense(9, "tanh"), layers.Dropout(0.2)]
    model = exburn.Sequential([*body, layers.Dense(3)])
    privacy = exburn.Privacy(noise=0.5, delta=1e-4, clip=0.4, norms=norms)
    model.compile(
        optimizers.SGD(1.0), "cross_entropy", seed=1, privacy=privacy, mesh=mesh
    )
    before = clipping._BYTES
    clipping._BYTES = before if bytes_of_turn is None else bytes_of_turn
    try:
        history = model.fit(x, y, batch_size=12, epochs=2, verbose=0)
    finally:
        clipping._BYTES = before
    return model.get_weights(), history.history["loss"], model.privacy


@on_devices
@pytest.mark.parametrize(("norms", "turn"), [("ghost", 400), ("rows", None)])
def test_steps_and_noise_are_those_of_one_device(norms, turn):
    alone, losses, spent = trained(None, norms)
    weights, seen, other = trained("data", norms, turn)
    assert other == spent and spent.steps == 10
    np.testing.assert_allclose(seen, losses, rtol=1e-4)
    for one, own in zip(weights, alone, strict=True):
        np.testing.assert_allclose(one, own, atol=1e-5)


@on_devices
def test_a_mesh_that_divides_weights_is_refused():
    with pytest.raises(ArgumentError, match="a mesh that divides more than rows"):
        trained("fsdp")
