"""The arrays of a model and its optimizer, by the names they have in a file."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from exburn.errors import ArgumentError
from exburn.module.traversal import iter_modules, iter_weights
from exburn.saving.header import STORED_AS

OPTIMIZER = "/optimizer/"


def variables(model: Any) -> Iterator[tuple[str, Any]]:
    """Every array of the model by its path; streams of keys as their key data."""
    paths: set[str] = set()
    for path, variable in all_variables(model):
        if path in paths:
            raise ArgumentError("save", f"two weights have the path {path!r}")
        paths.add(path)
        value = variable.get_raw_value()
        if jnp.issubdtype(value.dtype, jax.dtypes.prng_key):
            value = jax.random.key_data(value)
        yield path, value


def all_variables(model: Any) -> Iterator[tuple[str, nnx.Variable]]:
    """Every variable of the model by its path, streams of keys among them."""
    yield from ((path, weight) for path, weight, _ in iter_weights(model))
    for path, module in iter_modules(model):
        for key, value in vars(module).items():
            if isinstance(value, nnx.RngState):
                yield f"{path}/{key}" if path else key, value


def optimizer_leaves(opt_state: Any) -> dict[str, Any]:
    """The parts of an optimizer's state by name."""
    leaves = jax.tree_util.tree_leaves_with_path(opt_state)
    by_name = {
        OPTIMIZER + jax.tree_util.keystr(path, simple=True, separator="/"): leaf
        for path, leaf in leaves
    }
    if len(by_name) != len(leaves):
        raise ArgumentError(
            "save",
            "parts of the optimizer's state have the same name",
            hint="Save without it: include_optimizer=False.",
        )
    return {k: v if hasattr(v, "dtype") else np.asarray(v) for k, v in by_name.items()}


def stored_spec(spec: Any) -> tuple[tuple[int, ...], np.dtype]:
    """Shape and dtype that a value has in a file."""
    if jnp.issubdtype(spec.dtype, jax.dtypes.prng_key):
        spec = jax.eval_shape(jax.random.key_data, spec)
    dtype = np.dtype(spec.dtype)
    return tuple(spec.shape), STORED_AS.get(dtype, dtype)


def put(array: np.ndarray, dtype: Any) -> jax.Array:
    """The array on the device."""
    return jax.device_put(array.astype(dtype, copy=False))


def fill(variable: nnx.Variable, array: np.ndarray) -> None:
    """Gives a variable its value of a file."""
    spec = variable.get_raw_value()
    if jnp.issubdtype(spec.dtype, jax.dtypes.prng_key):
        key = jax.random.wrap_key_data(
            jax.device_put(array), impl=jax.random.key_impl(spec)
        )
        variable.set_raw_value(key)
        return
    variable.set_raw_value(put(array, spec.dtype))
