"""What turns the arrays of a file into those of a model, and back.

Each is an object that is used as it is, or called for its options: ``transpose``,
``transpose(2, 3, 1, 0)``. ``a >> b`` does both, ``a`` nearer to the file. What is for
one array is done to each of several.
"""

from __future__ import annotations

import abc
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from exburn.errors import ArgumentError, ShapeError
from exburn.errors.boundary import api_boundary

Shape = tuple[int, ...]
Shapes = tuple[Shape, ...]
Arrays = tuple[np.ndarray, ...]


class Transform(abc.ABC):
    """A change of arrays that has a way back.

    ``wanted`` are the shapes of the model's weights, which some of them look at: so
    ``split_heads`` needs no number of heads.

    Example:
        >>> change = transpose >> split_heads
        >>> (kernel,) = change.load((np.zeros((6, 4)),), ((4, 2, 3),))
        >>> kernel.shape, change.save((kernel,))[0].shape
        ((4, 2, 3), (6, 4))
    """

    @abc.abstractmethod
    def shapes(self, shapes: Shapes, wanted: Shapes) -> Shapes:
        """The shapes that arrays of these shapes in a file become.

        Raises:
            ShapeError: They cannot be changed so.
        """

    @abc.abstractmethod
    def load(self, arrays: Arrays, wanted: Shapes) -> Arrays:
        """Arrays of a file as the model has them; ``shapes`` has allowed theirs."""

    @abc.abstractmethod
    def save(self, arrays: Arrays, sources: int = 1) -> Arrays:
        """Arrays of the model as the file has them, which are ``sources`` many."""

    def __rshift__(self, after: Any) -> Transform:
        if not isinstance(after, Transform):
            return NotImplemented
        return _Chain(self, after)


class _Chain(Transform):
    def __init__(self, *steps: Transform):
        self._steps = steps

    def shapes(self, shapes, wanted):
        for step in self._steps:
            shapes = step.shapes(shapes, wanted)
        return shapes

    def load(self, arrays, wanted):
        for step in self._steps:
            arrays = step.load(arrays, wanted)
        return arrays

    def save(self, arrays, sources=1):
        for step in reversed(self._steps):
            arrays = step.save(arrays, sources)
        return arrays

    def __repr__(self) -> str:
        return " >> ".join(map(repr, self._steps))


class _Each(Transform):
    """Changes every array by itself."""

    def shapes(self, shapes, wanted):
        return tuple(
            self.shape(shape, _at(wanted, number))
            for number, shape in enumerate(shapes)
        )

    def load(self, arrays, wanted):
        return tuple(
            self.load_one(array, _at(wanted, number))
            for number, array in enumerate(arrays)
        )

    def save(self, arrays, sources=1):
        return tuple(map(self.save_one, arrays))

    @abc.abstractmethod
    def shape(self, shape: Shape, target: Shape) -> Shape: ...

    @abc.abstractmethod
    def load_one(self, array: np.ndarray, target: Shape) -> np.ndarray: ...

    @abc.abstractmethod
    def save_one(self, array: np.ndarray) -> np.ndarray: ...


def _at(targets: Shapes, number: int) -> Shape:
    """The shape wanted of an array; where there are fewer weights, that of the last."""
    return targets[min(number, len(targets) - 1)] if targets else ()


class _Identity(_Each):
    def shape(self, shape, target):
        return shape

    def load_one(self, array, target):
        return array

    def save_one(self, array):
        return array

    def __repr__(self) -> str:
        return "identity"


class _Transpose(_Each):
    """Reorders the axes.

    Args:
        *axes: Axis ``axes[i]`` of the file becomes axis ``i``; without them the order
            is turned round.

    Raises:
        ArgumentError: They are no order of 0, 1, ….

    Example:
        >>> (kernel,) = transpose.load((np.ones((2, 3)),), ((3, 2),))
        >>> kernel.shape
        (3, 2)
    """

    def __init__(self, *axes: int):
        self._axes = axes

    def __call__(self, *axes: int) -> Transform:
        """Another order: axis ``axes[i]`` of the file becomes axis ``i``."""
        if sorted(axes) != list(range(len(axes))) or not axes:
            raise ArgumentError(
                "transpose", f"axes must be an order of 0, 1, …, received {axes}"
            )
        return _Transpose(*axes)

    def shape(self, shape, target):
        axes = self._axes or tuple(reversed(range(len(shape))))
        if len(axes) != len(shape):
            raise ShapeError(
                "transpose", f"an array of {len(axes)} axes is needed, received {shape}"
            )
        return tuple(shape[axis] for axis in axes)

    def load_one(self, array, target):
        return array.transpose(self._axes or None)

    def save_one(self, array):
        return array.transpose(np.argsort(self._axes) if self._axes else None)

    def __repr__(self) -> str:
        return f"transpose({', '.join(map(str, self._axes))})"


class _SplitHeads(_Each):
    """Makes two axes, heads and their features, of one that holds both.

    Args:
        heads: How many; as many as the weight has by default.
        axis: The axis that is split.

    Example:
        >>> (kernel,) = split_heads.load((np.ones((4, 6)),), ((4, 2, 3),))
        >>> kernel.shape
        (4, 2, 3)
    """

    def __init__(self, heads: int | None = None, axis: int = -1):
        self._heads, self._axis = heads, axis

    def __call__(self, heads: int | None = None, *, axis: int = -1) -> Transform:
        """Of another axis, or with a number of heads other than the weight's own."""
        return _SplitHeads(heads, axis)

    def _place(self, rank: int) -> int:
        return self._axis + rank if self._axis < 0 else self._axis

    def shape(self, shape, target):
        place, heads = self._place(len(shape)), self._heads
        if heads is None and 0 <= place < len(target):
            heads = target[place]
        if not (0 <= place < len(shape)) or not heads or shape[place] % heads:
            raise ShapeError(
                "split_heads", f"{shape} has no axis of {heads} equal heads"
            )
        return (*shape[:place], heads, shape[place] // heads, *shape[place + 1 :])

    def load_one(self, array, target):
        return array.reshape(self.shape(array.shape, target))

    def save_one(self, array):
        place = self._place(array.ndim - 1)
        size = array.shape[place] * array.shape[place + 1]
        return array.reshape(*array.shape[:place], size, *array.shape[place + 2 :])

    def __repr__(self) -> str:
        return f"split_heads(axis={self._axis})"


class _Reshape(_Each):
    """Reads the array, row by row, in the shape of the weight.

    Args:
        *shape: The shape in the file, which saving needs; one size may be -1.

    Example:
        >>> (kernel,) = reshape(6).load((np.arange(6),), ((2, 3),))
        >>> kernel.tolist()
        [[0, 1, 2], [3, 4, 5]]
    """

    def __init__(self, *shape: int):
        self._shape = shape

    def __call__(self, *shape: int) -> Transform:
        """With the shape in the file, which saving needs; one size may be -1."""
        return _Reshape(*shape)

    def shape(self, shape, target):
        if math.prod(shape) != math.prod(target):
            raise ShapeError("reshape", f"{shape} cannot be read as {target}")
        return target

    def load_one(self, array, target):
        return array.reshape(target)

    def save_one(self, array):
        return array.reshape(self._shape) if self._shape else array

    def __repr__(self) -> str:
        return f"reshape({', '.join(map(str, self._shape))})"


class _Permute(_Each):
    """Reorders equal blocks along an axis, such as the gates of a recurrent layer."""

    def __init__(self, order: Sequence[int], axis: int):
        self._order, self._axis = tuple(order), axis

    def shape(self, shape, target):
        rank, many = len(shape), len(self._order)
        if not -rank <= self._axis < rank or shape[self._axis] % many:
            raise ShapeError("permute", f"{shape} has no axis of {many} equal blocks")
        return shape

    def _take(self, array: np.ndarray, order: Sequence[int]) -> np.ndarray:
        blocks = np.split(array, len(order), self._axis)
        return np.concatenate([blocks[number] for number in order], self._axis)

    def load_one(self, array, target):
        return self._take(array, self._order)

    def save_one(self, array):
        return self._take(array, [int(n) for n in np.argsort(self._order)])

    def __repr__(self) -> str:
        return f"permute({self._order}, axis={self._axis})"


class _Split(Transform):
    """Cuts one array into those of several weights.

    Args:
        axis: The axis that is cut.
        sizes: Sizes of the parts; equal ones by default.

    Example:
        >>> q, k = split(0).load((np.arange(4),), ((2,), (2,)))
        >>> q.tolist(), k.tolist()
        ([0, 1], [2, 3])
    """

    def __init__(self, axis: int, sizes: Sequence[int] | None):
        self._axis, self._sizes = axis, sizes

    def __call__(
        self, axis: int = -1, *, sizes: Sequence[int] | None = None
    ) -> Transform:
        """Along another axis, or into parts of these sizes: else they are equal."""
        return _Split(axis, sizes)

    def _cuts(self, shape: Shape, many: int) -> list[int]:
        rank = len(shape)
        length = shape[self._axis] if -rank <= self._axis < rank else 0
        sizes = self._sizes or [length // max(many, 1)] * many
        if not length or len(sizes) != many or sum(sizes) != length:
            raise ShapeError("split", f"{shape} cannot be cut into {many} parts")
        return [int(cut) for cut in np.cumsum(sizes)[:-1]]

    def shapes(self, shapes, wanted):
        (shape,) = _one("split", shapes)
        cuts = [0, *self._cuts(shape, len(wanted)), shape[self._axis]]
        axis = self._axis % len(shape)
        return tuple(
            (*shape[:axis], stop - start, *shape[axis + 1 :])
            for start, stop in zip(cuts, cuts[1:], strict=False)
        )

    def load(self, arrays, wanted):
        cuts = self._cuts(arrays[0].shape, len(wanted))
        return tuple(np.split(arrays[0], cuts, self._axis))

    def save(self, arrays, sources=1):
        return (np.concatenate(arrays, self._axis),)

    def __repr__(self) -> str:
        return f"split(axis={self._axis})"


def _one(op: str, values: tuple) -> tuple:
    if len(values) != 1:
        raise ShapeError(op, f"it is for one tensor of a file, not {len(values)}")
    return values


class _Concat(Transform):
    """Puts several arrays of equal shapes together in one weight.

    Args:
        axis: The axis that grows.

    Example:
        >>> (both,) = concat(0).load((np.array([1]), np.array([2])), ((2,),))
        >>> both.tolist()
        [1, 2]
    """

    def __init__(self, axis: int):
        self._axis = axis

    def __call__(self, axis: int = -1) -> Transform:
        """Along another axis."""
        return _Concat(axis)

    def shapes(self, shapes, wanted):
        first, rank = shapes[0], len(shapes[0])
        if any(shape != first for shape in shapes) or not -rank <= self._axis < rank:
            raise ShapeError("concat", f"these shapes cannot be joined: {shapes}")
        axis = self._axis % rank
        return ((*first[:axis], first[axis] * len(shapes), *first[axis + 1 :]),)

    def load(self, arrays, wanted):
        return (np.concatenate(arrays, self._axis),)

    def save(self, arrays, sources=1):
        return tuple(np.split(arrays[0], sources, self._axis))

    def __repr__(self) -> str:
        return f"concat(axis={self._axis})"


class _Stack(Transform):
    """Puts several arrays together along an axis that they do not have.

    Args:
        axis: Where the new axis is.

    Example:
        >>> (both,) = stack.load((np.array([1, 2]), np.array([3, 4])), ((2, 2),))
        >>> both.tolist()
        [[1, 2], [3, 4]]
    """

    def __init__(self, axis: int):
        self._axis = axis

    def __call__(self, axis: int = 0) -> Transform:
        """Along another axis."""
        return _Stack(axis)

    def shapes(self, shapes, wanted):
        first, rank = shapes[0], len(shapes[0]) + 1
        if any(shape != first for shape in shapes) or not -rank <= self._axis < rank:
            raise ShapeError("stack", f"these shapes cannot be stacked: {shapes}")
        axis = self._axis % rank
        return ((*first[:axis], len(shapes), *first[axis:]),)

    def load(self, arrays, wanted):
        return (np.stack(arrays, self._axis),)

    def save(self, arrays, sources=1):
        return tuple(np.moveaxis(arrays[0], self._axis, 0))

    def __repr__(self) -> str:
        return f"stack(axis={self._axis})"


class _Add(Transform):
    """Makes one weight of the sum of several: the two biases of PyTorch's LSTM.

    The way back gives the first all of it, and the others zeros.
    """

    def shapes(self, shapes, wanted):
        if any(shape != shapes[0] for shape in shapes):
            raise ShapeError("add", f"these shapes cannot be added: {shapes}")
        return (shapes[0],)

    def load(self, arrays, wanted):
        total = arrays[0]
        for array in arrays[1:]:
            total = total + array
        return (total,)

    def save(self, arrays, sources=1):
        rest = [np.zeros_like(arrays[0]) for _ in range(sources - 1)]
        return (arrays[0], *rest)

    def __repr__(self) -> str:
        return "add"


@api_boundary
def permute(order: Sequence[int], axis: int = -1) -> Transform:
    """Reorders equal blocks along an axis, such as the gates of a recurrent layer.

    Args:
        order: Block ``order[i]`` of the file becomes block ``i``.
        axis: The axis that they lie along.

    Raises:
        ArgumentError: It is no order of 0, 1, ….

    Example:
        >>> gates = permute((1, 0, 2), axis=0)  # PyTorch's GRU has r, z, n
        >>> gates.load((np.array([10, 20, 30]),), ((3,),))[0].tolist()
        [20, 10, 30]
    """
    if sorted(order) != list(range(len(order))) or not order:
        raise ArgumentError(
            "permute", f"order must be one of 0, 1, …, received {order}"
        )
    return _Permute(order, axis)


identity: Transform = _Identity()
transpose = _Transpose()
split_heads = _SplitHeads()
reshape = _Reshape()
split = _Split(-1, None)
concat = _Concat(-1)
stack = _Stack(0)
add: Transform = _Add()
