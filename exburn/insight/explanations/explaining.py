"""``model.explain(x)``: the share of each entry of the inputs in a prediction."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from exburn.core.checks import check_choice, check_count, check_number
from exburn.errors import ArgumentError, DataError, warn
from exburn.insight.explanations.explanation import Explanation
from exburn.insight.explanations.inputs import (
    NamedInputs,
    leaf_name,
    read_baseline,
    read_inputs,
)
from exburn.insight.explanations.methods import (
    METHODS,
    orders_of,
    patches_of,
    quadrature,
)
from exburn.insight.explanations.scores import (
    CallSurvey,
    Scorer,
    cut_probabilities,
    survey,
)
from exburn.insight.requirements import choose_output
from exburn.models.arguments import part_names
from exburn.models.hooks import path_of_layer
from exburn.models.inferring import require_predictor
from exburn.models.network import Network
from exburn.models.preparing import fixed_batch_size, on_device
from exburn.training.program import Programs

_OP = "explain"
_GAP = 1e-3  # of a difference of scores: more is warned of
_OPTIONS: Mapping[str, tuple[str, ...]] = {
    "saliency": (),
    "smooth_gradient": ("samples", "noise", "seed"),
    "integrated_gradients": ("baseline", "steps"),
    "gradcam": ("layer",),
    "occlusion": ("baseline", "patch", "stride"),
    "shapley": ("baseline", "patch", "samples", "seed"),
}
_COVERING = ("occlusion", "shapley")  # methods that need no gradient


def explain(
    self: Network,
    x: Any,
    method: str = "integrated_gradients",
    target: Any = None,
    *,
    output: int | str | None = None,
    baseline: Any = None,
    steps: int | None = None,
    samples: int | None = None,
    noise: float | None = None,
    layer: Any = None,
    patch: Any = None,
    stride: Any = None,
    seed: int | None = None,
    batch_size: int = 32,
) -> Explanation:
    """Tells which entries of each row its prediction rests on.

    The scores that are explained are what goes into the model's last softmax or
    sigmoid; of a model that ends in neither, its outputs. Where integers are looked up
    in an ``Embedding``, the rows of its table are explained, one number a token.

    Args:
        x: Inputs, as for ``predict``: arrays, several by name, or a table.
        method: ``"saliency"``, the size of the gradient; ``"smooth_gradient"``, its
            mean over inputs with noise; ``"integrated_gradients"``, along the way from
            a baseline; ``"gradcam"``, where a convolution speaks for the target;
            ``"occlusion"``, what the score loses when a patch is covered;
            ``"shapley"``, what it gains when one is uncovered, as a mean over orders.
        target: The class whose score is explained, or one for each row; a tuple of
            places where outputs have more axes. The class with the largest score by
            default.
        output: The name or number of an output, of a model with several.
        baseline: Of integrated gradients, occlusion and Shapley values: a number, or an
            array like a row or like ``x``, in a dict by input where there are several;
            0 by default.
            For tokens it is a number, in place of their rows of the table.
        steps: Of integrated gradients; 50 by default.
        samples, noise, seed: Of the smooth gradient: 50 inputs, whose noise has a
            deviation of 0.15 of the row's range, from seed 0. Of Shapley values 50
            orders, or all where there are no more.
        layer: Of Grad-CAM: a name, a path or a layer; the last convolution by default.
        patch, stride: Of occlusion, the former of Shapley values, too: entries along
            the axes of space, and how far apart patches begin. By default an eighth of
            an image, a column of a table or a step of a sequence, side by side.
        batch_size: Rows of a step.

    Returns:
        ``.values``, ``.outputs``, ``.plot()``, ``.save(path)``; printed, it is a table.

    Raises:
        UnknownNameError: The model has no such layer or output.
        ArgumentError: An option is out of range, or not of the method.
        DataError, ShapeError: The data do not fit the model, hold NaN, or are integers
            that no ``Embedding`` looks up.

    Example:
        >>> import numpy as np
        >>> import exburn
        >>> dense = exburn.layers.Dense(1, kernel_initializer="ones")
        >>> model = exburn.Sequential([exburn.Input((2,)), dense])
        >>> found = model.explain(np.array([[3.0, -1.0]]))
        >>> found.values.round(3).tolist()
        [[3.0, -1.0]]
    """
    method = check_choice(_OP, "method", method, _OPTIONS)
    options = {"baseline": baseline, "steps": steps, "samples": samples}
    options |= {"noise": noise, "layer": layer, "patch": patch, "stride": stride}
    options = {k: v for k, v in (options | {"seed": seed}).items() if v is not None}
    if strange := [name for name in options if name not in _OPTIONS[method]]:
        own = ", ".join(_OPTIONS[method]) or "no options of its own"
        raise ArgumentError(_OP, f"{strange[0]} is not of {method!r}, which has {own}")
    width = check_count(_OP, "batch_size", batch_size)
    extras = _numbers(method, options)
    inputs = read_inputs(self, x)
    run = _prepare(self, inputs, method, options, output, width)
    if target is not None or len(run.score_shape) > 1:
        _targets(target, (inputs.rows, *run.score_shape))  # before any compile
    if baseline is not None:  # the rows of tables are not there yet
        arrays = {
            str(number): value
            for number, value in enumerate(inputs.leaves)
            if number not in run.scorer.tables
        }
        read_baseline(baseline, inputs, arrays)
    if method in _COVERING:
        extras["patches"] = patches = _patches(run, options)
    if method == "shapley":
        samples, seed = _draws(options)
        extras["orders"] = orders_of(sum(map(len, patches.values())), samples, seed)
    with on_device(self):
        scores, outputs, rows = run.look()
        scores = scores.reshape(inputs.rows, *run.score_shape)
        targets = _targets(target, scores.shape, scores)
        features = {str(i): v for i, v in enumerate(inputs.leaves)} | rows
        if "baseline" in _OPTIONS[method]:
            base = read_baseline(options.get("baseline", 0.0), inputs, features)
            extras["baseline"] = base
        values, more = run.attribute(features, targets, extras)
    picked = np.take_along_axis(scores.reshape(len(scores), -1), targets[:, None], 1)
    return Explanation(
        method=method,
        arrays={
            inputs.names[int(number)]: _by_token(value, method, number in rows)
            for number, value in values.items()
        },
        inputs={
            name: value.astype(np.int64) if str(number) in rows else value
            for number, (name, value) in enumerate(
                zip(inputs.names, inputs.leaves, strict=True)
            )
        },
        outputs=outputs,
        scores=picked[:, 0],
        targets=targets,
        scored=run.kind,
        columns=inputs.columns,
        layer=run.scorer.layer,
        gaps=_gaps(values, picked[:, 0], more, options.get("steps", 50)),
    )


@dataclasses.dataclass(frozen=True)
class _Run:
    """A method, and a model's programs for it.

    Attributes:
        width: Rows of a step.
        kind: What the scores go into; see ``Scorer.kind``.
        score_shape: Of the scores of a row.
        layer_shape: Of the outputs of the layer of Grad-CAM, for a step.
        channels_first: Whether channels stand before the axes of space.
    """

    programs: Programs
    inputs: NamedInputs
    method: str
    scorer: Scorer
    width: int
    kind: str
    score_shape: tuple[int, ...]
    layer_shape: tuple[int, ...]
    channels_first: bool

    def _chunks(self, *trees: Any) -> Iterator[tuple[int, Any]]:
        """Rows of trees of arrays, a step's at a time; the last repeats its last."""
        count = self.inputs.rows
        for start in range(0, count, self.width):
            end = min(start + self.width, count)
            rows = np.minimum(np.arange(start, start + self.width), end - 1)
            yield end - start, jax.tree.map(lambda v, rows=rows: v[rows], trees)

    def _collect(self, program: Callable, chunks: Iterable[tuple[int, Any]]) -> Any:
        groups, parts = self.programs.split.read(), []
        for count, args in chunks:
            part = jax.device_get(program(groups, *args))
            parts.append(jax.tree.map(lambda v, count=count: v[:count], part))
        return jax.tree.map(lambda *arrays: np.concatenate(arrays), *parts)

    def look(self) -> tuple[np.ndarray, np.ndarray, dict[str, np.ndarray]]:
        """Scores and outputs of all rows, and what tables return for them."""
        scorer = self.scorer

        def look(groups: Any, x: Any) -> Any:
            scores, parts = scorer(groups, x, {})
            output = jax.tree.leaves(parts["outputs"])[scorer.output]
            return scores, output, parts["rows"]

        program = self.programs.further(f"explain {scorer.name}", lambda: look)
        return self._collect(program, self._chunks(self.inputs.x))

    def attribute(
        self, features: dict[str, Any], targets: np.ndarray, extras: dict[str, Any]
    ) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
        """Shares of each feature in the score of each row, and arrays beside them."""
        make, scorer = METHODS[self.method], self.scorer
        by_row: dict[str, Any] = {"rows": np.arange(self.inputs.rows)}
        if "baseline" in extras:
            by_row["baseline"] = extras.pop("baseline")
        if self.method == "gradcam":
            features, extras = {}, {"shift": np.zeros(self.layer_shape, np.float32)}
        run = self.programs.further(
            f"explain {self.method} {scorer.name}", lambda: make(scorer)
        )

        def program(groups: Any, x: Any, features: Any, targets: Any, rows: Any) -> Any:
            return run(groups, x, features, targets, {**extras, **rows})

        trees = self.inputs.x, features, targets.astype(np.int32), by_row
        return self._collect(program, self._chunks(*trees))


def _numbers(method: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Arrays that a method takes beside the rows, of the numbers among its options."""
    if method == "smooth_gradient":
        samples, seed = _draws(options)
        noise = check_number(_OP, "noise", options.get("noise", 0.15))
        keys = jax.random.split(jax.random.key(seed), samples)
        return {"keys": keys, "noise": np.float32(noise)}
    if method == "integrated_gradients":
        steps = check_count(_OP, "steps", options.get("steps", 50))
        return dict(zip(("nodes", "weights"), quadrature(steps), strict=True))
    return {}


def _draws(options: Mapping[str, Any]) -> tuple[int, int]:
    """How many samples are drawn, and the seed."""
    samples = check_count(_OP, "samples", options.get("samples", 50))
    return samples, check_count(_OP, "seed", options.get("seed", 0), 0)


def _prepare(
    model: Network,
    inputs: NamedInputs,
    method: str,
    options: Mapping[str, Any],
    output: Any,
    width: int,
) -> _Run:
    """The programs of a method, with all that can be wrong before they compile."""
    programs = require_predictor(model).preparer.programs
    width = fixed_batch_size(model) or min(width, inputs.rows)
    step = jax.tree.map(lambda v: v[:1].repeat(width, 0), inputs.x)
    notes, code = survey(programs.split, step)
    output_names = part_names(model)[1]
    names = [leaf_name(path, output_names) for path in notes.outputs]
    number = choose_output(names, output, _OP)
    first = any(
        getattr(call.layer, "data_format", "") == "channels_first"
        for call in notes.convolutions
    )
    layer, shape, tables = "", (), ()
    if method == "gradcam":
        layer, shape = _layer(model, notes, options.get("layer"))
    else:
        tables = _tables(inputs, notes, method)
    scorer = Scorer(programs.split, number, tables, layer, 1 if first else -1)
    variable, kind = code.outvars[number], cut_probabilities(code, number)[1]
    if not jnp.issubdtype(variable.aval.dtype, jnp.floating):
        raise ArgumentError(_OP, f"the output is of {variable.aval.dtype}, not floats")
    scores = tuple(variable.aval.shape[1:]) or (1,)
    return _Run(programs, inputs, method, scorer, width, kind, scores, shape, first)


def _layer(
    model: Network, notes: CallSurvey, layer: Any
) -> tuple[str, tuple[int, ...]]:
    """The path of the layer of Grad-CAM, and the shape of what it returns."""
    if layer is None:
        if not notes.convolutions:
            raise ArgumentError(
                _OP,
                "the model has no convolution for 'gradcam'",
                hint='Name a layer with axes of space, layer="…", or use another '
                'method: method="integrated_gradients".',
            )
        path = notes.convolutions[-1].path
    else:
        path = path_of_layer(model, layer)
    calls = [call for call in notes.calls if call.path == path]
    if len(calls) != 1:
        where = "inside a loop, or not at all" if not calls else f"{len(calls)} times"
        raise ArgumentError(
            _OP, f"the layer {path!r} must be called once, and is called {where}"
        )
    if calls[0].shape is None or not 3 <= len(calls[0].shape) <= 5:
        spatial = [c.path for c in notes.calls if c.shape and len(c.shape) >= 3]
        raise ArgumentError(
            _OP,
            f"'gradcam' needs a layer whose outputs have axes of space; those of "
            f"{path!r} have the shape {calls[0].shape}",
            {"layers that have": ", ".join(spatial[-6:]) or "none"},
        )
    return path, calls[0].shape


def _tables(inputs: NamedInputs, notes: CallSurvey, method: str) -> tuple[int, ...]:
    """Numbers of the inputs that an ``Embedding`` looks up; others are floats."""
    for number, name in enumerate(inputs.names):
        paths = notes.lookups.get(number, [])
        if len(paths) > 1:
            raise DataError(
                _OP,
                f"the input {name!r} is looked up by several layers, so that no one "
                "array stands for it",
                {"layers": ", ".join(paths)},
            )
        if not paths and not inputs.floats[number] and method not in _COVERING:
            raise DataError(
                _OP,
                f"the input {name!r} holds {inputs.leaves[number].dtype}, which have "
                "no gradients, and no Embedding looks it up",
                hint='Numbers that are measured: x.astype("float32"). Categories: '
                'look them up in an Embedding, or use method="occlusion".',
            )
    return tuple(sorted(notes.lookups))


def _patches(run: _Run, options: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """Which entries of each input each patch covers."""
    patches = {}
    for number, value in enumerate(run.inputs.leaves):
        shape = value.shape[1:]
        if number in run.scorer.tables:
            shape = (*shape, 1)
        if not shape:
            shape = (1,)
        axes = tuple(range(len(shape)))
        if len(shape) > 1:
            axes = axes[1:] if run.channels_first else axes[:-1]
        image = len(axes) > 1
        usual = tuple(max(shape[axis] // 8, 1) if image else 1 for axis in axes)
        size = _sizes("patch", options.get("patch"), usual)
        stride = _sizes("stride", options.get("stride"), size)
        for axis, entries, step in zip(axes, size, stride, strict=True):
            if entries > shape[axis] or step > entries:
                raise ArgumentError(
                    _OP,
                    "a patch is no larger than the input, and a stride no larger than "
                    "the patch",
                    {"input": shape, "patch": size, "stride": stride},
                )
        patches[str(number)] = patches_of(shape, axes, size, stride)
    return patches


def _sizes(name: str, value: Any, usual: tuple[int, ...]) -> tuple[int, ...]:
    """A size for each axis, given as one number for all or as a tuple."""
    if value is None:
        return usual
    sizes = tuple(value) if isinstance(value, tuple | list) else (value,) * len(usual)
    if len(sizes) != len(usual):
        raise ArgumentError(
            _OP, f"{name} must be a number, or {len(usual)} of them, received {value!r}"
        )
    return tuple(check_count(_OP, name, size) for size in sizes)


def _targets(target: Any, shape: tuple[int, ...], scores: Any = None) -> np.ndarray:
    """The number of the entry of each row's flattened scores that is explained.

    Args:
        shape: Of the scores of all rows.
        scores: The scores, by which the largest is chosen.
    """
    rows, *places = shape
    if target is None and len(places) == 1:
        return np.zeros(rows, np.int64) if scores is None else scores.argmax(-1)
    if target is None:
        raise ArgumentError(
            _OP,
            f"a row's scores have the shape {tuple(places)}, of which one is explained",
            hint="target=(position, class) names it.",
        )
    parts = [*target] if isinstance(target, tuple) else [target]
    if len(parts) != len(places):
        raise ArgumentError(
            _OP,
            f"target must name a place of scores of the shape {tuple(places)}",
            {"received": repr(target)},
        )
    columns = []
    for part, size in zip(parts, places, strict=True):
        column = np.asarray(part)
        if column.dtype.kind not in "iu" or column.shape not in ((), (rows,)):
            raise ArgumentError(
                _OP,
                "target must be a whole number, or one for each of the "
                f"{rows} rows, received {part!r}",
            )
        if ((column < 0) | (column >= size)).any():
            odd = column[(column < 0) | (column >= size)].flat[0]
            raise ArgumentError(
                _OP, f"target must be from 0 to {size - 1}, received {odd}"
            )
        columns.append(np.broadcast_to(column, rows))
    return np.asarray(np.ravel_multi_index(tuple(columns), tuple(places)))


def _by_token(value: np.ndarray, method: str, is_table: bool) -> np.ndarray:
    """Values of tokens, one number each, from those of their rows of the table."""
    if not is_table:
        return value
    if method in ("saliency", "smooth_gradient"):
        return np.linalg.norm(value, axis=-1)
    return value.mean(-1) if method in _COVERING else value.sum(-1)


def _gaps(
    values: Mapping[str, np.ndarray],
    scores: np.ndarray,
    more: Mapping[str, Any],
    steps: int,
) -> np.ndarray | None:
    """How far the values of each row are from its difference of scores, as a share.

    The difference is that of the row and its baseline. Where it is tiny beside the
    values it counts as a thousandth of these, so that rounding alone is no gap.
    """
    if "baseline_scores" not in more:
        return None
    flat = [v.reshape(len(scores), -1).astype(np.float64) for v in values.values()]
    sums = sum(v.sum(-1) for v in flat)
    sizes = sum(np.abs(v).sum(-1) for v in flat)
    difference = scores - more["baseline_scores"]
    scale = np.maximum(np.maximum(np.abs(difference), 1e-3 * sizes), 1e-12)
    gaps = np.abs(sums - difference) / scale
    if (worst := gaps.max()) > _GAP:
        warn(
            f"integrated gradients miss the difference of scores by up to {worst:.1e} "
            f"of it, in row {gaps.argmax()}: more than {_GAP:g}\n"
            f"  → Take more steps: explain(…, steps={4 * steps}). Where the model "
            "computes in 16 bits, that is the rounding: explain it in float32."
        )
    return gaps
