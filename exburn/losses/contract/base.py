"""The contract of a loss: `Loss`, and `FunctionLoss` for any function."""

from __future__ import annotations

import copy
import dataclasses
import functools
import inspect
import types
from collections.abc import Callable
from typing import Any, ClassVar

import jax
import jax.numpy as jnp

from exburn.core import registry
from exburn.core.catalogue_class import CatalogueClass
from exburn.core.forward_context import carried_mask
from exburn.core.methods import overridable
from exburn.core.precision import standardize_dtype
from exburn.errors import ArgumentError, ShapeError, locate
from exburn.errors.boundary import api_boundary
from exburn.losses.contract.reduction import (
    blank_out,
    reduce_values,
    standardize_reduction,
)
from exburn.losses.contract.shapes import (
    as_arrays,
    as_float,
    check_same,
    class_labels,
    rank_for,
    stand_ins,
    unsqueeze_to,
)
from exburn.runtime.kernels.cross_entropy import (
    gives_gradient,
    reduced_cross_entropy,
    row_factors,
)
from exburn.runtime.kernels.head_loss import (
    Head,
    RowChunks,
    ScoredRows,
    head_cross_entropy,
)


class Loss(CatalogueClass):
    """Base class of all losses: override :meth:`call`, and get reductions, weights
    and masks.

    Args:
        name: Name in logs; by default the class name in snake case.
        reduction: ``"sum_over_batch_size"`` or ``"mean"`` (sum over the number of
            values), ``"sum"``, ``"mean_with_sample_weight"`` (sum over the sum of the
            weights), ``"none"`` or ``None``.
        dtype: Dtype of the computation; never below float32.

    Attributes:
        per_sample: Whether ``call`` returns one value (or more) per row. ``False`` for
            a loss that returns a scalar, ``None`` while that is not known.
        masks_rows: Whether ``row_mask`` is honoured. False once ``call`` has returned
            a scalar: padded rows cannot be taken out of it.

    Raises:
        ArgumentError: Unknown ``reduction``.

    Example:
        >>> class Cubed(Loss):
        ...     def call(self, y_true, y_pred):
        ...         return jnp.mean(jnp.abs(y_true - y_pred) ** 3, axis=-1)
        >>> loss = Cubed()
        >>> float(loss(jnp.zeros((2, 2)), jnp.array([[1.0, 1.0], [2.0, 2.0]])))
        4.5
        >>> loss.name
        'cubed'
    """

    per_sample: bool | None = None
    masks_rows: bool = True
    casts_targets: ClassVar[bool] = True  # false: integer labels arrive as they are
    casts_predictions: ClassVar[bool] = True  # false: the formula does so itself
    fill: ClassVar[float] = 0.5  # in masked predictions: legal as probability or logit
    label_smoothing: Any = 0.0
    _mask: Any = None  # of predictions, where a user's ``__call__`` takes none

    def __init__(
        self,
        name: str | None = None,
        reduction: str | None = "sum_over_batch_size",
        dtype: Any = None,
    ):
        self.name = name or registry.snake_case(type(self).__name__)
        self.reduction = standardize_reduction(reduction)
        dtype = getattr(dtype, "compute_dtype", dtype)
        self._dtype = None if dtype is None else standardize_dtype(dtype)

    @property
    def dtype(self) -> str:
        """Name of the dtype that the loss computes in."""
        return jnp.promote_types(self._dtype or jnp.float32, jnp.float32).name

    @overridable
    def call(self, y_true: Any, y_pred: Any) -> jax.Array:
        """Unreduced values: the leading axis is the batch. To be overridden."""
        raise NotImplementedError(f"{type(self).__name__} must override call().")

    def ignored(self, y_true: jax.Array, y_pred: jax.Array) -> jax.Array | None:
        """Entries of the values that the targets themselves rule out, or ``None``."""
        return None

    def check_shapes(self, y_true: Any, y_pred: Any) -> None:
        """Raises ``ShapeError`` or ``TargetError`` for anything that would broadcast.

        Args:
            y_true: Anything with ``shape`` (and ``dtype``); sizes may be symbolic.
            y_pred: The same for the predictions.
        """

    def check_targets(self, y_true: Any, y_pred: Any) -> None:
        """Raises ``TargetError`` for target values that the loss is not defined on.

        Args:
            y_true: The real targets, on the host.
            y_pred: Anything with the predictions' ``shape``.
        """

    @overridable
    def __call__(
        self,
        y_true: Any,
        y_pred: Any,
        sample_weight: Any = None,
        mask: Any = None,
        row_mask: Any = None,
    ) -> jax.Array:
        """The reduced loss.

        Args:
            y_true: Targets.
            y_pred: Predictions.
            sample_weight: ``[batch]`` or ``[batch, …]`` weights.
            mask: ``[batch, …]`` booleans; false entries are left out of the mean. By
                default the one that came with the predictions, if any. As in Keras a
                loss of one value a row weighs it by how many of its entries are true,
                and a scalar knows nothing of them.
            row_mask: ``[batch]``; rows that are false are padding, and count as absent.
        """
        mask = self._mask if mask is None else mask
        mask = carried_mask(y_pred) if mask is None else mask
        y_true, y_pred = self._convert(y_true, y_pred)
        reduce = functools.partial(
            self._reduce, y_true, y_pred, sample_weight, mask, row_mask
        )
        labels = self._kernel_labels(y_true, y_pred)
        if labels is not None:
            return reduced_cross_entropy(y_pred, labels, reduce)
        apart = self._keeps_apart(mask, y_true, y_pred)
        for valid in _booleans(mask if apart else None, row_mask):
            y_true = blank_out(y_true, valid, 0)
            y_pred = blank_out(y_pred, valid, self.fill)
        values = jnp.asarray(self.call(y_true, y_pred))
        self._note_rank(values)
        if values.ndim == 0:
            return reduce_values(values, self.reduction, sample_weight)
        return reduce(values if apart else _for_each_entry(self.name, values, mask))

    def of_head(
        self,
        head: Head,
        y_true: Any,
        y_pred: Any,
        sample_weight: Any,
        mask: Any,
        row_mask: Any,
        *,
        skips: bool,
        plan: RowChunks,
    ) -> tuple[jax.Array, ScoredRows]:
        """The reduced loss of a head's scores, which are not made.

        Args:
            head: The product whose scores ``y_pred`` are, of which only the shape is
                read. A class that allows it has ``takes_head``.
            y_true, y_pred, sample_weight, mask, row_mask: As of ``__call__``.
            skips: Whether nothing is asked of rows that count nothing.
            plan: What is asked of each row beside its loss.
        """
        labels = class_labels(self.name, y_true, y_pred)
        reduce = functools.partial(
            self._reduce, y_true, y_pred, sample_weight, mask, row_mask
        )
        factors, live = row_factors(reduce, labels.shape), None
        some = mask is not None or row_mask is not None
        some |= self.ignored(y_true, y_pred) is not None
        if skips and (some or sample_weight is not None):
            live = factors != 0
            plan = dataclasses.replace(plan, sorts=True)
        elif some:
            for valid in _booleans(mask, row_mask):
                valid = unsqueeze_to(self.name, "mask", valid, labels)
                live = valid if live is None else live & valid
            if live is not None:
                live = jnp.broadcast_to(live, labels.shape)
        scored, carrier = head_cross_entropy(
            head, labels, factors, live, smoothing=self.label_smoothing, plan=plan
        )
        return reduce(scored.losses) + carrier, scored

    def total_weight(
        self,
        y_true: Any,
        y_pred: Any,
        sample_weight: Any = None,
        mask: Any = None,
        row_mask: Any = None,
    ) -> jax.Array:
        """The sum of the weights of the values, their number where nothing weighs them.

        The reduction ``mean_with_sample_weight`` divides by it.

        Args: as of ``__call__``.

        Example:
            >>> loss = FunctionLoss(lambda t, p: jnp.abs(t - p).mean(-1))
            >>> y = jnp.zeros((3, 2))
            >>> float(loss.total_weight(y, y, sample_weight=jnp.array([1.0, 0.0, 0.5])))
            1.5
        """
        y_true, y_pred = self._convert(y_true, y_pred)
        values = jax.eval_shape(self.call, y_true, y_pred)
        ones = jnp.ones(values.shape, jnp.float32)
        if not self._keeps_apart(mask, y_true, y_pred):
            ones = _for_each_entry(self.name, ones, mask)
        total = copy_with(self, reduction="sum")
        return total._reduce(y_true, y_pred, sample_weight, mask, row_mask, ones)

    def _keeps_apart(self, mask: Any, y_true: Any, y_pred: Any) -> bool:
        """Whether the loss has a value for each entry of the mask."""
        if mask is None or jnp.ndim(mask) < 2:
            return True
        try:
            value_shape = jax.eval_shape(self.call, y_true, y_pred).shape
        except _LOOKS_AT_VALUES:  # operation by operation it may
            value_shape = jnp.shape(self.call(y_true, y_pred))
        return (
            len(value_shape) >= jnp.ndim(mask)
            and value_shape[1:2] == jnp.shape(mask)[1:2]
        )

    def row_factors(
        self, y_true: Any, y_pred: Any, sample_weight: Any, mask: Any, row_mask: Any
    ) -> jax.Array | None:
        """The weights of the values in the loss, if a kernel computes its gradient."""
        y_true, y_pred = self._convert(y_true, y_pred)
        labels = self._kernel_labels(y_true, y_pred)
        if labels is None:
            return None
        reduce = functools.partial(
            self._reduce, y_true, y_pred, sample_weight, mask, row_mask
        )
        return row_factors(reduce, labels.shape)

    def _kernel_labels(self, y_true: Any, y_pred: Any) -> jax.Array | None:
        """The labels, if the loss is their cross-entropy, which a kernel computes."""
        # Not by inheritance: a subclass may compute something else.
        may = vars(type(self)).get("takes_spare_classes")
        if may is None or not may(self, y_true, y_pred) or not gives_gradient(y_pred):
            return None
        if self.reduction in (None, "none"):
            return None
        return class_labels(self.name, y_true, y_pred)

    def _reduce(
        self, y_true, y_pred, sample_weight, mask, row_mask, values
    ) -> jax.Array:
        row_masks = _booleans(mask, row_mask)
        masks = [unsqueeze_to(self.name, "mask", m, values) for m in row_masks]
        ignored = self.ignored(y_true, y_pred)
        if ignored is not None:
            masks.append(~ignored)
        valid = None
        for m in masks:
            valid = m if valid is None else valid & m
        return reduce_values(values, self.reduction, sample_weight, valid, op=self.name)

    def _note_rank(self, values: jax.Array) -> None:
        if self.per_sample is None:
            self.per_sample = self.masks_rows = values.ndim > 0

    def _convert(self, y_true: Any, y_pred: Any) -> tuple[Any, Any]:
        def cast(x: Any) -> jax.Array:
            return as_float(x, self._dtype)

        keep = cast if self.casts_targets else jnp.asarray
        take = cast if self.casts_predictions or self._dtype else jnp.asarray
        y_pred, y_true = as_arrays(y_pred, take), as_arrays(y_true, keep)
        if isinstance(y_true, jax.Array) and isinstance(y_pred, jax.Array):
            return self._align(y_true, y_pred)
        return y_true, y_pred

    def _align(
        self, y_true: jax.Array, y_pred: jax.Array
    ) -> tuple[jax.Array, jax.Array]:
        return rank_for(self.call, self, y_true, y_pred)

    def get_config(self) -> dict[str, Any]:
        """The constructor's arguments, JSON-able."""
        config = {"name": self.name, "reduction": self.reduction}
        if self._dtype is not None:
            config["dtype"] = self._dtype
        return config

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Loss:
        """The inverse of :meth:`get_config`."""
        return cls(**config)

    def __repr__(self) -> str:
        options = ", ".join(f"{k}={v!r}" for k, v in self.get_config().items())
        return f"{type(self).__name__}({options})"


# What JAX raises where a function needs the numbers of what it traces.
_LOOKS_AT_VALUES = (
    jax.errors.ConcretizationTypeError,
    jax.errors.TracerArrayConversionError,
)


def _for_each_entry(op: str, values: jax.Array, mask: Any) -> jax.Array:
    """Values of whole rows, ``[batch]`` or ``[batch, 1]``, for each entry of a mask."""
    shape = jnp.shape(mask)
    fits = all(n in (1, m) for n, m in zip(values.shape, shape, strict=False))
    if values.ndim > len(shape) or not fits:
        raise ShapeError(
            op,
            "a loss behind a mask has a value for each entry of the mask, or for each "
            "row",
            {"mask": shape, "values": values.shape},
            hint="Reduce over the last axes: jnp.mean(values, axis=-1).",
        )
    rest = (1,) * (len(shape) - values.ndim)
    return jnp.broadcast_to(values.reshape(values.shape + rest), shape)


def _booleans(*masks: Any) -> list[jax.Array]:
    return [jnp.asarray(m).astype(bool) for m in masks if m is not None]


def with_default(function: Any, name: str, value: Any) -> Any:
    """A copy of a function in which a parameter has another default."""
    optional = [
        p.replace(default=value) if p.name == name else p
        for p in inspect.signature(function).parameters.values()
        if p.default is not p.empty
    ]
    copy = types.FunctionType(
        function.__code__,
        function.__globals__,
        argdefs=tuple(p.default for p in optional if p.kind is not p.KEYWORD_ONLY),
        closure=function.__closure__,
    )
    copy.__kwdefaults__ = {
        p.name: p.default for p in optional if p.kind is p.KEYWORD_ONLY
    }
    functools.update_wrapper(copy, function)
    del copy.__wrapped__  # by which `inspect` would find the other defaults
    return copy


def name_constructor(cls: Any) -> None:
    """Gives a class of a formula, if it has no constructor of its own, its base's with
    another default name: ``_default_name``, or the formula's.
    """
    if "formula" in vars(cls) and "__init__" not in vars(cls):
        name = vars(cls).get("_default_name", cls.formula.__name__)
        constructor = with_default(inspect.unwrap(cls.__init__), "name", name)
        cls.__init__ = api_boundary(constructor)


class FormulaLoss(Loss):
    """A loss that is a function of this package: the class holds its options.

    Subclasses name the function and its options. ``elementwise`` formulas compare
    targets and predictions of one shape; the others know a class axis.

    Args:
        axis: Axis of the classes.
        from_logits: Whether ``y_pred`` are logits.
        label_smoothing: Share of the uniform distribution mixed into the targets.

    Shape:
        both: [batch, …, d] → scalar

    Raises:
        ShapeError: The shapes of targets and predictions differ.
    """

    per_sample = True
    formula: ClassVar[Callable[..., jax.Array]]
    _default_name: ClassVar[str]
    options: ClassVar[tuple[str, ...]] = ()
    elementwise: ClassVar[bool] = True

    def __init__(
        self,
        reduction: str | None = "sum_over_batch_size",
        name: str | None = None,
        dtype: Any = None,
    ):
        super().__init__(name=name, reduction=reduction, dtype=dtype)

    def ignored(self, y_true: jax.Array, y_pred: jax.Array) -> jax.Array | None:
        """Entries whose label is the loss' ``ignore_class``; ``None`` without one."""
        label, axis = getattr(self, "ignore_class", None), getattr(self, "axis", -1)
        if label is None:
            return None
        return class_labels(self.name, y_true, y_pred, axis) == label

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        name_constructor(cls)

    @property
    def fn(self) -> Callable[..., jax.Array]:
        """The function."""
        return self.formula

    def check_shapes(self, y_true: Any, y_pred: Any) -> None:
        check_same(self.name, y_true, y_pred)

    def _align(
        self, y_true: jax.Array, y_pred: jax.Array
    ) -> tuple[jax.Array, jax.Array]:
        return y_true, y_pred  # left to the formula, which checks them first

    def call(self, y_true: jax.Array, y_pred: jax.Array) -> jax.Array:
        self.check_shapes(y_true, y_pred)
        if self.elementwise and y_pred.ndim == 1:
            y_pred = y_pred[:, None]  # [batch] → [batch, 1]: one value per sample
        return self.formula(y_true, y_pred, **self._options())

    def _options(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.options}

    def get_config(self) -> dict[str, Any]:
        return {**self._options(), **super().get_config()}


_PREDICTION_NAMES = {"logits", "outputs", "predictions", "preds", "y_pred", "input"}
_TARGET_NAMES = {"labels", "targets", "target", "y_true", "label"}


class FunctionLoss(Loss):
    """Any function ``fn(y_true, y_pred)`` as a loss.

    The function may return one value per row (or more), or a scalar. A function whose
    parameters are named the other way round, as in optax (``predictions, targets``),
    is called the other way round.

    Args:
        fn: The function, on JAX arrays.
        name: By default the function's name.
        **kwargs: Passed on to the function.

    Raises:
        ArgumentError: ``fn`` is not callable.

    Example:
        >>> loss = FunctionLoss(lambda t, p: jnp.abs(t - p).max(-1), name="worst")
        >>> float(loss(jnp.zeros((1, 2)), jnp.array([[1.0, 3.0]])))
        3.0
    """

    casts_targets: ClassVar[bool] = False  # optax' functions want integer labels

    def __init__(
        self,
        fn: Callable[..., Any],
        reduction: str | None = "sum_over_batch_size",
        name: str | None = None,
        dtype: Any = None,
        **kwargs: Any,
    ):
        if not callable(fn):
            raise ArgumentError(
                "FunctionLoss", "fn must be a function of (y_true, y_pred)", {"fn": fn}
            )
        name = name or function_name(fn)
        super().__init__(name=name, reduction=reduction, dtype=dtype)
        self.fn = fn
        self.kwargs = kwargs
        self._swapped = takes_predictions_first(fn)

    def call(self, y_true: Any, y_pred: Any) -> jax.Array:
        first, second = (y_pred, y_true) if self._swapped else (y_true, y_pred)
        return self.fn(first, second, **self.kwargs)

    def check_shapes(self, y_true: Any, y_pred: Any) -> None:
        """Finds out whether the function returns one value per row or a scalar."""

        def values(t: Any, p: Any) -> jax.Array:
            out = self.call(*self._convert(t, p))
            if out is None:
                raise ShapeError(
                    self.name,
                    "a loss function must return one value per row, or a scalar, "
                    "received None",
                    hint="Let the function end with `return`.",
                )
            return jnp.asarray(out)

        specs, certain = stand_ins(y_true, y_pred)
        batch = jax.tree.leaves(specs[1])[0].shape[0]
        try:
            out = jax.eval_shape(values, *specs)
        except Exception as error:
            if certain:
                locate(error, f"in loss {self.name!r}")
                raise
            return  # the made-up sizes may be to blame: the real trace will tell
        if out.ndim and out.shape[0] != batch:
            raise ShapeError(
                self.name,
                "a loss function must return one value per row, or a scalar",
                {"batch": batch, "returned": out.shape},
                hint="Reduce over the last axes only: jnp.mean(values, axis=-1).",
            )
        self._note_rank(out)

    def get_config(self) -> dict[str, Any]:
        config = {"fn": function_config(self.fn), **super().get_config()}
        return {**config, **{k: registry.serialize(v) for k, v in self.kwargs.items()}}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> FunctionLoss:
        return cls(**{key: registry.deserialize(v) for key, v in config.items()})


def function_name(fn: Callable[..., Any]) -> str:
    """A function's own name; for a partial, that of what it wraps."""
    fn = getattr(fn, "func", fn)
    return getattr(fn, "__name__", None) or registry.snake_case(type(fn).__name__)


def function_config(fn: Callable[..., Any]) -> dict[str, Any]:
    """How a configuration refers to a function: by name."""
    name = registry.registered_name(fn) or getattr(fn, "__name__", "<lambda>")
    if "<" in name:
        raise ArgumentError(
            "get_config",
            "a function without a name cannot be described",
            {"function": fn},
            hint="Use `def`, and pass it as custom_objects when loading.",
        )
    return registry.describe_function(name)


def takes_predictions_first(fn: Callable[..., Any]) -> bool:
    """Whether the parameters' names say that predictions come before targets.

    Example:
        >>> takes_predictions_first(lambda predictions, targets: 0)
        True
        >>> takes_predictions_first(lambda y_true, y_pred: 0)
        False
    """
    try:
        names = list(inspect.signature(fn).parameters)[:2]
    except (TypeError, ValueError):  # builtins without a signature
        return False
    return (
        len(names) == 2 and names[0] in _PREDICTION_NAMES and names[1] in _TARGET_NAMES
    )


def copy_with(loss: Any, **attributes: Any) -> Any:
    """A copy of the loss with other attributes."""
    other = copy.copy(loss)
    for name, value in attributes.items():
        setattr(other, name, value)
    return other
