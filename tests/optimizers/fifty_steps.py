"""Fifty steps beside Keras' optimizer."""

from tests.golden import keras

from exburn import optimizers


def check_fifty_steps(name, options, trajectories):
    special = name in ("Adafactor", "Muon")
    names = ("kernel", "bias", "conv", "embedding") if special else ("kernel", "bias")
    ours = trajectories.ours(getattr(optimizers, name)(**options), names)
    peer = lambda: getattr(keras.optimizers, name)(**options)  # noqa: E731
    theirs = trajectories.keras(peer, names)
    # Lamb and Muon divide by norms, 50 times over.
    tolerance = 1e-4 if name in ("Lamb", "Muon", "ScheduleFreeAdamW") else 3e-5
    trajectories.assert_close(ours, theirs, tolerance, tolerance)


def check_epsilon_is_where_keras_has_it(name, trajectories, monkeypatch):
    small = {k: 1e-6 * v for k, v in trajectories.grads.items()}
    monkeypatch.setattr(trajectories, "grads", small)
    ours = trajectories.ours(getattr(optimizers, name)())
    theirs = trajectories.keras(lambda: getattr(keras.optimizers, name)())
    moved = abs(ours["kernel"][-1] - trajectories.params["kernel"]).max()
    assert moved > 1e-4
    trajectories.assert_close(ours, theirs, 1e-6, 1e-6)
