"""Layers inside the functions of ``tf.data``, whose tensors have no values yet.

``dataset.map(layer)`` calls a layer once, with the tensors of a graph. The call becomes
a node of that graph, ``tf.numpy_function``, which TensorFlow runs for each element. It
wants the dtypes and shapes of the results before: two trials tell them.
"""

from __future__ import annotations

import contextvars
import functools
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import numpy as np

from exburn.core import random_keys
from exburn.errors import ArgumentError, DTypeError, ExBurnError

#: Texts and numbers of the trials, and the sizes that stand for unknown ones.
_TRIALS = (("", 0, 2), ("two words", 1, 3))


def maps_datasets(call: Callable) -> Callable:
    """Decorator: a method that may be called on the tensors of a TensorFlow graph."""

    @functools.wraps(call)
    def run(self: Any, *args: Any, **kwargs: Any) -> Any:
        if has_graph_tensor((args, kwargs)):
            return as_node(self, functools.partial(call, self), args, kwargs)
        return call(self, *args, **kwargs)

    return run


def has_graph_tensor(tree: Any) -> bool:
    """Tells whether (nested) arguments hold a tensor of a TensorFlow graph."""
    tensorflow = sys.modules.get("tensorflow")
    if tensorflow is None:
        return False
    # A program that TensorFlow is only named in has none of its functions.
    symbolic = getattr(tensorflow, "is_symbolic_tensor", None)
    return symbolic is not None and any(map(symbolic, jax.tree.leaves(tree)))


def as_node(layer: Any, call: Callable, args: tuple, kwargs: dict) -> Any:
    """A call as one node of the graph that its tensors are in.

    Args:
        layer: Whose call it is; trials are made with words of its vocabulary, if it has
            one and takes no others.
    """
    tensorflow: Any = sys.modules["tensorflow"]
    leaves, treedef = jax.tree.flatten((args, kwargs))
    places = [i for i, v in enumerate(leaves) if tensorflow.is_symbolic_tensor(v)]
    tensors = [leaves[i] for i in places]

    def run(arrays: Sequence[np.ndarray]) -> tuple[list[np.ndarray], Any]:
        values = list(leaves)
        for i, array in zip(places, arrays, strict=True):
            values[i] = _as_text(array)
        args, kwargs = jax.tree.unflatten(treedef, values)
        results, structure = jax.tree.flatten(call(*args, **kwargs))
        return [_as_bytes(np.asarray(result)) for result in results], structure

    specs, structure = _specs_of(layer, run, tensors)
    around = contextvars.copy_context()  # of TensorFlow's threads, where it is run

    def compute(*arrays: np.ndarray) -> list[np.ndarray]:
        return around.copy().run(run, arrays)[0]

    dtypes = [tensorflow.as_dtype(dtype) for dtype, _ in specs]
    nodes = tensorflow.numpy_function(compute, tensors, dtypes)
    for node, (_, shape) in zip(nodes, specs, strict=True):
        node.set_shape(shape)
    return jax.tree.unflatten(structure, nodes)


def _specs_of(layer: Any, run: Callable, tensors: Sequence[Any]) -> tuple[list, Any]:
    """Dtype and shape of each result, and the structure that they are in.

    What differs between two trials, of other sizes and values, is unknown.
    """
    trials, failed = [], None
    for text, number, size in _trials(layer):
        if failed is None and len(trials) == len(_TRIALS):
            break
        arrays = [_stand_in(tensor, text, number, size) for tensor in tensors]
        try:
            with random_keys.key_scope(jax.random.key(0)):  # of the trials alone
                trials.append(run(arrays))
        except (ExBurnError, TypeError, ValueError) as error:
            failed = failed or error  # a value that the layer does not know
    if not trials:
        assert failed is not None
        raise failed
    (first, structure), (second, other) = trials[0], trials[-1]
    if structure != other or [a.ndim for a in first] != [b.ndim for b in second]:
        raise ArgumentError(
            "map",
            "inside tf.data a layer must give the same structure for all values",
            {"one": structure, "other": other},
        )
    pairs = zip(first, second, strict=True)
    return [
        (
            np.dtype(object) if a.dtype.kind in "OSU" else a.dtype,
            [m if m == n else None for m, n in zip(a.shape, b.shape, strict=True)],
        )
        for a, b in pairs
    ], structure


def _trials(layer: Any) -> Iterator[tuple[str, int, int]]:
    """Texts, numbers and sizes to try, those of the vocabulary behind the others."""
    yield from _TRIALS
    vocabulary = getattr(layer, "get_vocabulary", None)
    if vocabulary is not None and (words := vocabulary()):
        for _, _, size in _TRIALS:
            number = words[-1] if isinstance(words[-1], int) else 0
            yield str(words[-1]), number, size


def _stand_in(tensor: Any, text: str, number: int, size: int) -> np.ndarray:
    """An array of a tensor's dtype and shape."""
    shape = getattr(tensor, "shape", None)
    if not hasattr(tensor.dtype, "as_numpy_dtype") or hasattr(tensor, "to_tensor"):
        raise DTypeError(
            "map",
            f"dense tensors are needed, received {type(tensor).__name__}",
            hint="Make one of it in the function: x.to_tensor().",
        )
    if shape is None or shape.rank is None:
        raise ArgumentError(
            "map",
            "inside tf.data a layer needs to know how many axes a tensor has",
            hint="Say so: x.set_shape([None, 4]), or tf.ensure_shape(x, [None, 4]).",
        )
    sizes = [size if d is None else d for d in shape.as_list()]
    dtype = np.dtype(tensor.dtype.as_numpy_dtype)
    return np.full(sizes, text.encode() if dtype.kind == "O" else number, dtype)


def _as_text(array: Any) -> Any:
    """TensorFlow's bytes as strings; other arrays as they are."""
    if isinstance(array, bytes):
        return array.decode()
    array = np.asarray(array)
    if array.dtype.kind not in "OS":
        return array
    texts = [v.decode() if isinstance(v, bytes) else v for v in array.ravel().tolist()]
    return np.array(texts, dtype=str).reshape(array.shape)


def _as_bytes(array: np.ndarray) -> np.ndarray:
    """Strings as TensorFlow takes them; other arrays as they are."""
    if array.dtype.kind not in "OU":
        return array
    octets = [v.encode() if isinstance(v, str) else v for v in array.ravel().tolist()]
    result = np.empty(array.shape, object)
    result.ravel()[:] = octets
    return result
