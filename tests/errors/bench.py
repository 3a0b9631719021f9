"""Models to give bad inputs to, and the promises that every refusal keeps."""

import dataclasses
import time
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import pytest

import exburn
from exburn import layers
from exburn.errors import (
    ArgumentError,
    CallbackError,
    DTypeError,
    ExBurnError,
    UnknownNameError,
)

SECONDS = 0.1
LINES = 12
_compiled: list[str] = []


def _note_compiles(event: str, seconds: float, **details: Any) -> None:
    name = str(details.get("fun_name"))
    copying = name == "jit(stage)"  # an array to the device
    if event == "/jax/core/compile/backend_compile_duration" and not copying:
        _compiled.append(name)


jax.monitoring.register_event_duration_secs_listener(_note_compiles)


# ---------------------------------------------------------------------- models
def features(*shape):
    """Standard normal float32 values, the same each time."""
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32)


def spoiled(array, value, at=(3, 1)):
    """A copy with one other value."""
    array = np.array(array)
    array[at[: array.ndim]] = value
    return array


X = features(12, 8)
LABELS = (np.arange(12) % 3).astype(np.int32)


def classifier(loss="cross_entropy", metrics=("accuracy",), **settings):
    """8 features, 3 logits."""
    model = exburn.Sequential([exburn.Input((8,)), layers.Dense(3)])
    model.compile("sgd", loss, metrics=list(metrics), **settings)
    return model


def untrained():
    """The same, not compiled."""
    return exburn.Sequential([exburn.Input((8,)), layers.Dense(3)])


def regressor(**settings):
    """8 features, 3 values."""
    return classifier("mse", metrics=(), **settings)


def detector():
    """8 features, one probability."""
    out = layers.Dense(1, activation="sigmoid")
    model = exburn.Sequential([exburn.Input((8,)), out])
    model.compile("sgd", "binary_crossentropy", metrics=["accuracy"])
    return model


def reader():
    """5 ids below 10, 3 logits."""
    start = exburn.Input((5,), dtype="int32")
    stack = [layers.Embedding(10, 4), layers.Flatten(), layers.Dense(3)]
    model = exburn.Sequential([start, *stack])
    model.compile("sgd", "cross_entropy")
    return model


def pair(loss=None, **settings):
    """Inputs ``left`` (8) and ``right`` (2); outputs ``kind`` (3) and ``size`` (1)."""
    left, right = exburn.Input((8,), name="left"), exburn.Input((2,), name="right")
    joined = layers.Concatenate()([left, right])
    kind = layers.Dense(3, name="kind")(joined)
    size = layers.Dense(1, name="size")(joined)
    inputs = {"left": left, "right": right}
    model = exburn.Model(inputs, {"kind": kind, "size": size})
    model.compile("sgd", loss or {"kind": "cross_entropy", "size": "mse"}, **settings)
    return model


FITTING = {
    "regressor": (X, features(12, 3)),
    "detector": (X, np.arange(12) % 2),
    "reader": (np.arange(60, dtype=np.int32).reshape(12, 5) % 10, LABELS),
    "pair": (
        {"left": X, "right": features(12, 2)},
        {"kind": LABELS, "size": features(12, 1)},
    ),
}


# ---------------------------------------------------------------------- cases
@dataclasses.dataclass
class Bench:
    """A model and data that fit it; a case spoils something."""

    model: Any
    x: Any
    y: Any


@dataclasses.dataclass
class Case:
    act: Callable[[Bench], Any]
    error: type[ExBurnError]
    says: tuple[str, ...]
    make: Callable[[], Any]


class Cases(list[Case]):
    """Collects cases: ``@bad(ShapeError, "received …")`` above a function."""

    def __call__(self, error, *says, make=classifier):
        def collect(act):
            self.append(Case(act, error, says, make))
            return act

        return collect


def check_refused(case: Case) -> None:
    """A typed error, a good text, at once, before any compile; the model lives on."""
    seconds = []
    for _ in range(3):
        model = case.make()
        x, y = FITTING.get(case.make.__name__, (X, LABELS))
        before = model.get_weights() if model.built else None
        del _compiled[:]
        start = time.process_time()  # a busy machine is no fault of ours
        with pytest.raises(ExBurnError) as caught:
            case.act(Bench(model, x, y))
        seconds.append(time.process_time() - start)
        if seconds[-1] < SECONDS:
            break
    error = caught.value
    assert type(error) is case.error, repr(error)
    check_text(error, case.says)
    assert model.trace_counts == {} and not _compiled
    assert min(seconds) < SECONDS, seconds
    after = model.predict(x, verbose=0)
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(after))
    if before is not None:
        for old, new in zip(before, model.get_weights(), strict=True):
            np.testing.assert_array_equal(old, new)


def check_text(error: ExBurnError, says: tuple[str, ...]) -> None:
    """What must hold, what was received, and what to do next, in twelve lines."""
    text = str(error)
    assert not hasattr(error, "__notes__"), error.__notes__  # would stand below
    assert len(text.splitlines()) <= LINES, text
    assert text.startswith(f"{error.op}: {error.reason}"), text
    for words in says:
        assert words in text, f"{words!r} is not in:\n{text}"
    if isinstance(error, ArgumentError | DTypeError | CallbackError):
        assert error.hint or error.details or "received" in error.reason, text
    elif not isinstance(error, UnknownNameError):
        assert error.hint, f"no hint in:\n{text}"
