"""Shape contracts between targets and predictions: checked, never broadcast."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from exburn.core.batch_independence import is_foreign, mixes_rows
from exburn.errors import ShapeError, TargetError

# Losses and metrics of one-hot targets, and those of labels that take their place.
_OF_LABELS = {
    "categorical_focal_crossentropy": "sparse_categorical_focal_crossentropy",
    "categorical_accuracy": "sparse_categorical_accuracy",
    "top_k_categorical_accuracy": "sparse_top_k_categorical_accuracy",
}
_ONE_HOT = {labels: one_hot for one_hot, labels in _OF_LABELS.items()}
_TOO_MANY_AXES = (
    "For one target a row, put a Flatten or a global pooling before the last layer."
)


def as_float(x: Any, dtype: Any = None) -> jax.Array:
    """The array in ``dtype``, or its own dtype, but never below float32.

    Example:
        >>> as_float(jnp.ones(2, "bfloat16")).dtype, as_float([1, 2]).dtype
        (dtype('float32'), dtype('float32'))
    """
    x = jnp.asarray(x)
    return x.astype(jnp.promote_types(dtype or x.dtype, jnp.float32))


def is_array_like(x: Any) -> bool:
    """Nested lists of numbers are one array; other containers are several outputs."""
    while isinstance(x, list | tuple):
        if not x:
            return True
        x = x[0]
        if hasattr(x, "shape") and x.shape != ():
            return False
    return not isinstance(x, dict)


def as_arrays(tree: Any, convert: Any = jnp.asarray) -> Any:
    """A tree of JAX arrays; nested lists of numbers become one array.

    Example:
        >>> as_arrays([[1, 2], [3, 4]]).shape
        (2, 2)
        >>> len(as_arrays([jnp.ones(2), jnp.ones(3)]))
        2
    """
    return jax.tree.map(convert, tree, is_leaf=is_array_like)


def _fits(a: tuple, b: tuple) -> bool:
    """Whether two shapes may be equal; symbolic and unknown sizes fit anything."""
    return len(a) == len(b) and all(
        m == n or not (isinstance(m, int) and isinstance(n, int))
        for m, n in zip(a, b, strict=True)
    )


def _describe(y_true: Any, y_pred: Any) -> dict[str, str]:
    def text(spec: Any) -> str:
        sizes = ", ".join("batch" if n is None else str(n) for n in spec.shape)
        return f"{getattr(spec, 'dtype', '')}[{sizes}]"

    return {"y_true": text(y_true), "y_pred": text(y_pred)}


def check_same(op: str, y_true: Any, y_pred: Any) -> None:
    """Targets must have the predictions' shape; ``(N,)`` and ``(N, 1)`` agree.

    Example:
        >>> import numpy as np
        >>> check_same("mse", np.ones(4), np.ones((4, 1)))
        >>> check_same("mse", np.ones((4, 3)), np.ones((4, 1)))
        Traceback (most recent call last):
        ...
        exburn.errors.ShapeError: mse: targets must have the shape of the predictions
          y_true: float64[4, 3]
          y_pred: float64[4, 1]
          → Give the last layer as many units as the targets have columns.
    """
    t, p = tuple(y_true.shape), tuple(y_pred.shape)
    if _fits(t, p) or _fits((*t, 1), p) or _fits(t, (*p, 1)):
        return
    if len(t) == len(p) and _fits(t[:-1], p[:-1]):
        hint = "Give the last layer as many units as the targets have columns."
    elif _fits(t, p[:-1]):
        hint = (
            "Class labels are for the loss 'sparse_categorical_crossentropy' and the "
            "metric 'accuracy'; or one-hot them: utils.to_categorical(y)."
        )
    elif len(p) > max(len(t), 2) and _fits(t[:1], p[:1]):
        hint = _TOO_MANY_AXES
    else:
        hint = "Reshape the targets, or the model's output (Flatten, Reshape)."
    reason = "targets must have the shape of the predictions"
    raise ShapeError(op, reason, _describe(y_true, y_pred), hint=hint)


def check_labels(op: str, y_true: Any, y_pred: Any, axis: int = -1) -> None:
    """Targets must be class labels: the predictions' shape without the class axis."""
    t, p = tuple(y_true.shape), tuple(y_pred.shape)
    details = _describe(y_true, y_pred)
    axis, rest = _class_axis(op, p, axis, details)
    if axis == 0 and len(p) > 1 and not _fits(t, p[:-1]):
        reason = "the batch is along axis 0: it holds no classes"
        raise ShapeError(op, reason, details, hint="axis=-1, the last one, or axis=1.")
    if _fits(t, rest):
        return
    if len(t) == len(p):
        if not (isinstance(t[axis], int) and t[axis] != 1):
            if _fits(t[:axis] + t[axis + 1 :], rest):
                return
        elif _fits(t, p):
            raise TargetError(
                op,
                "targets must be integer class labels, and these look one-hot",
                details,
                hint=f"Use {_ONE_HOT.get(op, 'categorical_crossentropy')!r}, or "
                "y_true.argmax(-1).",
            )
    reason = "targets must hold one class label for each row of predictions"
    hint = f"Expected shape {_text(rest)}."
    if len(t) < len(rest) and _fits(t[:1], rest[:1]):
        hint += f" {_TOO_MANY_AXES}"
    raise ShapeError(op, reason, details, hint=hint)


def check_one_hot(op: str, y_true: Any, y_pred: Any, axis: int = -1) -> None:
    """Targets must be distributions over the classes, shaped as the predictions."""
    t, p = tuple(y_true.shape), tuple(y_pred.shape)
    details = _describe(y_true, y_pred)
    axis, rest = _class_axis(op, p, axis, details)
    if _fits(t, p):
        return
    squeezed = len(t) == len(p) and t[axis] == 1 and t[:axis] + t[axis + 1 :]
    if _fits(t, rest) or (squeezed is not False and _fits(squeezed, rest)):
        raise TargetError(
            op,
            "targets must be one-hot, and these look like class labels",
            details,
            hint=f"Use {_OF_LABELS.get(op, 'sparse_categorical_crossentropy')!r}, or "
            "utils.to_categorical(y).",
        )
    reason = "targets must have the shape of the predictions"
    hint = f"Expected shape {_text(p)}."
    if len(t) == len(p) and _fits(t[:axis] + t[axis + 1 :], rest):
        hint = (
            f"The targets have {t[axis]} classes, the predictions {p[axis]}: give the "
            "last layer a unit for each class."
        )
    elif len(p) > max(len(t), 2) and _fits(t[:1], p[:1]):
        hint += f" {_TOO_MANY_AXES}"
    raise ShapeError(op, reason, details, hint=hint)


def _class_axis(
    op: str, shape: tuple, axis: int, details: dict[str, Any]
) -> tuple[int, tuple]:
    """The axis of the classes, counted from 0, and the shape without it."""
    if not shape or not -len(shape) <= axis < len(shape):
        raise ShapeError(op, f"predictions have no class axis {axis}", details)
    if shape[axis] == 1:
        raise ShapeError(
            op,
            "predictions hold one class only, so the loss would always be 0",
            details,
            hint="Use 'binary_crossentropy', or a last layer with one unit per class.",
        )
    axis %= len(shape)
    return axis, shape[:axis] + shape[axis + 1 :]


def _text(shape: tuple) -> str:
    return "(" + ", ".join("batch" if n is None else str(n) for n in shape) + ")"


def same_rank(y_true: jax.Array, y_pred: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Brings ``(N,)`` and ``(N, 1)`` to one rank, as Keras does, and nothing else."""
    difference = y_true.ndim - y_pred.ndim
    if difference == 1 and y_true.shape[-1] == 1:
        return _level(y_true, y_pred)
    if difference == -1 and y_pred.shape[-1] == 1:
        y_pred, y_true = _level(y_pred, y_true)
    return y_true, y_pred


def rank_for(
    function: Callable, owner: Any, y_true: jax.Array, y_pred: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """Both of one rank, or as they are, as in Keras, if a user's function expects so.

    Args:
        owner: Whose it is: a function, or an object of the user's class or of ours.
    """
    aligned = same_rank(y_true, y_pred)
    changed = aligned[0] is not y_true or aligned[1] is not y_pred
    if changed and is_foreign(owner) and mixes_rows(function, *aligned):
        return y_true, y_pred  # else each row would be compared with each
    return aligned


def _level(longer: jax.Array, shorter: jax.Array) -> tuple[jax.Array, jax.Array]:
    if shorter.ndim == 1:
        return longer, shorter[:, None]  # [batch] → [batch, 1]
    return longer[..., 0], shorter


def pair_dtypes(op: str, y_true: Any, y_pred: Any) -> tuple[jax.Array, jax.Array]:
    """Targets and predictions as floats of one dtype and, once checked, one shape."""
    y_pred = as_float(y_pred)
    y_true = jnp.asarray(y_true).astype(y_pred.dtype)
    check_same(op, y_true, y_pred)
    return same_rank(y_true, y_pred)


def class_labels(op: str, y_true: Any, y_pred: Any, axis: int = -1) -> jax.Array:
    """Checked labels as int32, without a class axis of size one."""
    y_true = jnp.asarray(y_true)
    check_labels(op, y_true, y_pred, axis)
    if y_true.ndim == y_pred.ndim:
        y_true = jnp.squeeze(y_true, axis)
    return y_true.astype(jnp.int32)


def unsqueeze_to(op: str, what: str, x: jax.Array, like: jax.Array) -> jax.Array:
    """A weight or mask with trailing axes of size one, to fit ``like`` from the left.

    ``[batch]`` means rows, whatever the rank of ``like``; NumPy would align it with
    the last axis.

    Example:
        >>> unsqueeze_to("mse", "mask", jnp.ones(2), jnp.ones((2, 5))).shape
        (2, 1)
    """
    original = x
    if x.ndim == like.ndim + 1 and x.shape[-1] == 1:
        x = x[..., 0]
    if x.ndim > 0 and x.ndim < like.ndim:
        x = x.reshape(x.shape + (1,) * (like.ndim - x.ndim))
    pairs = zip(x.shape, like.shape, strict=False)
    if x.ndim > like.ndim or not all(_fits((m,), (n,)) for m, n in pairs if m != 1):
        raise ShapeError(
            op,
            f"{what} must have the shape of the values, or of their leading axes",
            {what: original.shape, "values": like.shape},
        )
    return x


def stand_ins(*specs: Any) -> tuple[tuple[Any, ...], bool]:
    """Specs with every size known, for a trial trace, and whether only batch sizes
    had to be made up.

    Example:
        >>> spec = jax.ShapeDtypeStruct((3, 2), jnp.float32)
        >>> stand_ins(spec)[1]
        True
    """
    leaves = jax.tree.leaves(specs, is_leaf=lambda x: hasattr(x, "shape"))
    sizes = [leaf.shape[0] for leaf in leaves if leaf.shape]
    rows = next((n for n in sizes if isinstance(n, int)), 7)
    certain = all(isinstance(n, int) for leaf in leaves for n in leaf.shape[1:])

    def concrete(spec: Any) -> jax.ShapeDtypeStruct:
        shape = [n if isinstance(n, int) else rows for n in spec.shape]
        dtype = getattr(spec, "dtype", None) or np.float32
        # The dtype that JAX will hold it in, found without a warning about int64.
        return jax.ShapeDtypeStruct(shape, jax.dtypes.canonicalize_dtype(dtype))

    arrays = jax.tree.map(concrete, specs, is_leaf=lambda x: hasattr(x, "shape"))
    return arrays, certain
