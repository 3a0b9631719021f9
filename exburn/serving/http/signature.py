"""Names, datatypes and shapes of what a served model takes and returns."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np

from exburn.errors import ArgumentError, unknown_name
from exburn.serving.computation import Computation
from exburn.serving.http.endpoint import Endpoint
from exburn.serving.http.images import Images, begins_with_rescaling
from exburn.serving.http.tensor import BYTES, Tensor, datatype_of
from exburn.serving.server import Serving


class Signature:
    """The inputs and outputs of a model in requests and answers.

    Args:
        serving: What answers; ``None``: nothing is taken.

    Attributes:
        images: Of the inputs that may come as image files, how these are read.

    Raises:
        ArgumentError: The batch keys have inputs of different names, or what is said of
            the inputs does not fit the model, or is missing.
    """

    def __init__(self, serving: Serving | None, endpoint: Endpoint):
        self.inputs: Mapping[str, Tensor] = {}
        self.outputs: Mapping[str, Tensor] = {}
        self.images: Mapping[str, Images] = {}
        if serving is None:
            return
        self._read_model(serving._computation)
        if serving._options.preprocessing is not None and endpoint.inputs is None:
            raise ArgumentError(
                "Server",
                "what a preprocessing takes cannot be seen in the model",
                hint='Endpoint(serving, inputs={"text": ("BYTES", (-1,))})',
            )
        if endpoint.inputs is not None:
            self.inputs = {
                name: Tensor(name, datatype, tuple(shape))
                for name, (datatype, shape) in endpoint.inputs.items()
            }
            self._named = True
        if endpoint.outputs is not None:
            self.outputs = {
                name: Tensor(name, datatype, tuple(shape))
                for name, (datatype, shape) in endpoint.outputs.items()
            }
        self.images = self._find_images(serving._computation.model, endpoint.images)

    def _find_images(self, model: Any, choice: Any) -> dict[str, Images]:
        """The inputs that may be image files: those that are named, or that fit."""
        if choice is False:
            return {}
        if isinstance(choice, Mapping):
            for name, images in choice.items():
                if name not in self.inputs:
                    raise unknown_name("input", name, self.inputs, op="Endpoint")
                images.check(name, self.inputs[name].shape)
            return dict(choice)
        by_name = {}
        for index, (name, tensor) in enumerate(self.inputs.items()):
            images = choice or Images()
            takes_images = choice is not None or begins_with_rescaling(model, index)
            if takes_images and tensor.datatype != BYTES and len(tensor.shape) == 4:
                if choice is None and (tensor.shape[3] not in (1, 3, 4)):
                    continue
                images.check(name, tensor.shape)
                by_name[name] = images
        if choice is not None and not by_name:
            raise ArgumentError("Endpoint", "the model has no input that is an image")
        return by_name

    def _read_model(self, computation: Computation) -> None:
        graph: Any = getattr(computation.model, "graph", None)
        host = getattr(computation.model, "host_graph", None)
        self._named = graph is not None
        if host is not None:  # the inputs of the model, not of its program
            tensors = [
                Tensor(name, datatype_of(np.dtype(object)), _sizes(spec.shape))
                if str(spec.dtype) == "string"
                else Tensor(name, datatype_of(np.dtype(spec.dtype)), _sizes(spec.shape))
                for name, spec in zip(graph.input_names, graph.inputs, strict=True)
            ]
        else:
            names = None if graph is None else graph.input_names
            tensors = _merge(
                [
                    _tensors(inputs.pack(inputs.specs(1)), names, "x")
                    for inputs in computation.inputs.values()
                ]
            )
            self._treedef = jax.tree.structure(
                next(iter(computation.inputs.values())).pack([0] * len(tensors))
            )
        self.inputs = {t.name: t for t in tensors}
        names = None if graph is None else graph.output_names
        tensors = _merge(
            [_tensors(specs, names, "y") for specs in computation.outputs.values()]
        )
        self.outputs = {t.name: t for t in tensors}

    def answer_bytes(self, rows: int) -> int:
        """Bytes that an answer to some rows takes at least, as far as sizes are known.

        Example:
            >>> Signature(None, Endpoint(stream=print)).answer_bytes(7)
            0
        """
        sizes = (
            math.prod(max(n, 1) for n in tensor.shape[1:]) * tensor.dtype.itemsize
            for tensor in self.outputs.values()
        )
        return rows * sum(sizes)

    def pack(self, arrays: Mapping[str, np.ndarray]) -> Any:
        """The request that a serving takes, from the arrays by name."""
        if len(self.inputs) == 1 and (self._named or self._is_single):
            return next(iter(arrays.values()))
        if self._named:
            return arrays
        return jax.tree.unflatten(self._treedef, [arrays[n] for n in self.inputs])

    @property
    def _is_single(self) -> bool:
        return self._treedef == jax.tree.structure(0)

    def describe_inputs(self) -> list[dict[str, Any]]:
        """The inputs, as the protocol tells them; images have a content type."""
        return [
            tensor.describe()
            | ({"parameters": {"content_type": "image"}} if n in self.images else {})
            for n, tensor in self.inputs.items()
        ]

    def unpack(self, answer: Any) -> dict[str, np.ndarray]:
        """The arrays of an answer by name.

        Postprocessing may return others than the model: these are named by their place.
        """
        if type(answer) is np.ndarray and len(self.outputs) == 1:
            return {next(iter(self.outputs)): answer}
        leaves = jax.tree.leaves(answer)
        if len(leaves) == len(self.outputs):
            return dict(zip(self.outputs, map(np.asarray, leaves), strict=True))
        named = zip(_names(answer, None, "y"), leaves, strict=True)
        return {name: np.asarray(leaf) for name, leaf in named}


def _tensors(specs: Any, names: Sequence[str] | None, single: str) -> list[Tensor]:
    leaves = jax.tree.leaves(specs)
    return [
        Tensor(name, datatype_of(np.dtype(leaf.dtype)), (-1, *leaf.shape[1:]))
        for name, leaf in zip(_names(specs, names, single), leaves, strict=True)
    ]


def _names(tree: Any, names: Sequence[str] | None, single: str) -> list[str]:
    """A name for each leaf: by its keys, or by its place.

    A model's own names, unless its outputs are a dict.
    """
    paths = [path for path, _ in jax.tree_util.tree_leaves_with_path(tree)]
    keyed = any(isinstance(k, jax.tree_util.DictKey) for path in paths for k in path)
    if names is not None and not keyed and len(names) == len(paths):
        return list(names)
    plain = ["_".join(str(_key(key)) for key in path) for path in paths]
    return [
        single if not n else f"{single}_{n}" if n[0].isdigit() else n for n in plain
    ]


def _key(key: Any) -> Any:
    for name in ("key", "idx", "name"):
        if hasattr(key, name):
            return getattr(key, name)
    return key


def _merge(kinds: Sequence[Sequence[Tensor]]) -> list[Tensor]:
    """The tensors of all batch keys: sizes that differ between them are open."""
    first = kinds[0]
    for other in kinds[1:]:
        same = [(t.name, t.datatype) for t in other]
        if same != [(t.name, t.datatype) for t in first]:
            raise ArgumentError(
                "Server",
                "the inputs of all batch keys must have the same names and types",
                {"one": [t.name for t in first], "another": [t.name for t in other]},
                hint="Serve it as two models.",
            )
    merged = []
    for each in zip(*kinds, strict=True):
        shapes = [tensor.shape for tensor in each]
        longest = max(map(len, shapes))
        sizes = [
            size if all(len(s) == longest and s[i] == size for s in shapes) else -1
            for i, size in enumerate(next(s for s in shapes if len(s) == longest))
        ]
        merged.append(dataclasses.replace(each[0], shape=tuple(sizes)))
    return merged


def _sizes(shape: Sequence[Any]) -> tuple[int, ...]:
    return tuple(size if isinstance(size, int) else -1 for size in shape)
