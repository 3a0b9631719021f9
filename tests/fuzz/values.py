"""What specifications are made of: values that print as the source that makes them."""

from __future__ import annotations

import dataclasses
from typing import Any

import ml_dtypes
import numpy as np

__all__ = ["Array", "Call", "Name", "array", "fill", "flat", "pick", "weights"]


def array(seed: int, shape: tuple, dtype: str = "float32", low=-2, high=2):
    """Random numbers from ``low`` to ``high``; integers leave ``high`` out.

    Example:
        >>> array(0, (3,), "int8", 0, 5).tolist()
        [4, 3, 2]
    """
    rng = np.random.default_rng(seed)
    if dtype == "bool":
        return rng.integers(0, 2, shape).astype(bool)
    if "int" in dtype:
        return rng.integers(int(low), max(int(high), int(low) + 1), shape).astype(dtype)
    values = rng.uniform(low, high, shape)
    return values.astype(ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype)


@dataclasses.dataclass(frozen=True)
class Array:
    """An array, as the numbers it is drawn by."""

    seed: int
    shape: tuple
    dtype: str = "float32"
    low: float = -2
    high: float = 2
    after: str = ""  # what is done to it: ".T", " @ …"

    def __repr__(self) -> str:
        parts = [repr(self.seed), repr(self.shape)]
        if (self.dtype, self.low, self.high) != ("float32", -2, 2):
            parts.append(repr(self.dtype))
        if (self.low, self.high) != (-2, 2):
            parts += [repr(self.low), repr(self.high)]
        return f"array({', '.join(parts)}){self.after}"


@dataclasses.dataclass(frozen=True)
class Name:
    """A piece of source."""

    text: str

    def __repr__(self) -> str:
        return self.text


@dataclasses.dataclass(frozen=True)
class Call:
    """A call of something of Keras' names, ``keras.layers.Dense(4, name="a")``."""

    name: str
    args: list = dataclasses.field(default_factory=list)
    options: dict[str, Any] = dataclasses.field(default_factory=dict)

    def __repr__(self) -> str:
        parts = [repr(a) for a in self.args]
        parts += [f"{k}={v!r}" for k, v in self.options.items()]
        return f"keras.{self.name}({', '.join(parts)})"


def pick(rng: np.random.Generator, *choices: Any) -> Any:
    """One of the choices, as a value of Python's.

    Example:
        >>> pick(np.random.default_rng(0), "a", None, (1, 2))
        (1, 2)
    """
    return choices[int(rng.integers(len(choices)))]


def fill(model: Any, seed: int) -> Any:
    """Gives a built model weights that depend on layers' names and weights' order."""
    for layer in sorted(model.layers, key=lambda layer: layer.name):
        values = []
        for weight in layer.weights:
            rng = np.random.default_rng([seed, len(values), *layer.name.encode()])
            shape = tuple(weight.shape)
            if "var" in weight.name or "gamma" in weight.name or weight.name == "scale":
                value = rng.uniform(0.5, 1.5, shape)
            else:
                fan = np.prod(shape[:-1]) if len(shape) > 1 else 4
                value = rng.uniform(-1, 1, shape) / np.sqrt(max(fan, 1))
            values.append(value.astype("float32"))
        if values:
            layer.set_weights(values)
    return model


def weights(model: Any) -> dict[str, list]:
    """A model's weights by layer."""
    return {
        layer.name: [np.asarray(w) for w in layer.get_weights()]
        for layer in model.layers
    }


def flat(value: Any, path: str = "result") -> dict[str, Any]:
    """Every number, array or text of a result by its place."""
    if isinstance(value, dict):
        items = [(f"{path}[{k!r}]", v) for k, v in value.items()]
    elif isinstance(value, list | tuple) and not hasattr(value, "dtype"):
        items = [(f"{path}[{i}]", v) for i, v in enumerate(value)]
    else:
        return {path: value}
    return {k: v for p, item in items for k, v in flat(item, p).items()}
