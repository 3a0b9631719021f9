"""Values that leave a compiled program while it runs."""

import jax.numpy as jnp
import numpy as np
import pytest

from exburn import Serving
from exburn.errors import ArgumentError, DeadlineExceededError
from exburn.serving import emit


def countdown(x):
    for _ in range(3):
        x = emit("step", x - 1)
        emit("unheard", x)
    emit("total", jnp.sum(x))
    return {"end": x}


def test_hooks_stream_out_of_a_running_program():
    options = {"batch_size": 3, "batch_timeout": "50 ms", "example": np.zeros((1, 1))}
    with Serving(countdown, hooks=["step", "total"], **options) as serving:
        streams = [serving.events(np.full((2, 1), v)) for v in (10.0, 20.0)]
        streams.append(serving.events(np.full((1, 1), 30.0)))
        events = [list(stream) for stream in streams]
        for value, rows, seen in zip((10, 20, 30), (2, 2, 1), events, strict=True):
            assert [name for name, _ in seen] == ["step"] * 3 + ["total", "batch"]
            steps = [v[:, 0].tolist() for name, v in seen if name == "step"]
            assert steps == [[value - i] * rows for i in (1, 2, 3)]
            assert seen[-1][1]["end"].tolist() == [[value - 3]] * rows
        assert serving(np.full((1, 1), 5.0))["end"].item() == 2  # nobody listens
        with pytest.raises(ArgumentError, match="at most 3"):
            serving.events(np.zeros((4, 1)))
    with Serving(countdown, **options) as serving:
        with pytest.raises(ArgumentError, match="without hooks"):
            serving.events(np.zeros((1, 1)))
    assert emit("step", 3) == 3  # outside of a serving it does nothing


def test_events_hold_their_deadline(gate):
    def hooked(x):
        return emit("out", gate(x))

    options = {"batch_size": 2, "batch_timeout": 0.0, "example": gate.row(0)}
    with Serving(hooked, hooks="out", **options) as serving:
        gate.block(serving)
        events = serving.events(gate.row(1.0), timeout=0.05)
        with pytest.raises(DeadlineExceededError):
            list(events)
        gate.open.set()
        assert [name for name, _ in serving.events(gate.row(1.0))] == ["out", "batch"]
