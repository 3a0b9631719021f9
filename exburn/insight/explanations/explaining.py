"""``model.explain(x)``: the share of each entry of the inputs in a prediction."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import jax
import numpy as np

from exburn.core.checks import check_choice, check_count, check_number
from exburn.errors import ArgumentError, warn
from exburn.insight.explanations.attribution import (
    COVERING,
    AttributionRun,
    make_patches,
    prepare_run,
)
from exburn.insight.explanations.explanation import Explanation
from exburn.insight.explanations.inputs import (
    read_baseline,
    read_inputs,
)
from exburn.insight.explanations.methods import orders_of, quadrature
from exburn.models.network import Network
from exburn.models.preparing import on_device
from exburn.text.showing import token_texts

_OP = "explain"
_GAP = 1e-3  # of a difference of scores, to which integrated gradients are complete
_STEPS, _PIECES = 50, 32  # of the way, and the most parts, each with so many
_OPTIONS: Mapping[str, tuple[str, ...]] = {
    "saliency": (),
    "smooth_gradient": ("samples", "noise", "seed"),
    "integrated_gradients": ("baseline", "steps"),
    "gradcam": ("layer",),
    "occlusion": ("baseline", "patch", "stride"),
    "shapley": ("baseline", "patch", "samples", "seed"),
    "attention": ("position",),
}


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
    position: int | None = None,
    vocabulary: Any = None,
    seed: int | None = None,
    batch_size: int = 32,
) -> Explanation:
    """Tells which entries of each row its prediction rests on.

    The scores that are explained are what goes into the model's last softmax or
    sigmoid; of a model that ends in neither, its outputs. Where integers are looked up
    in an ``Embedding``, the rows of its table are explained, one number a token.

    Args:
        x: Inputs, as for ``predict``: arrays, several by name, a table, or a loader.
        method: ``"saliency"``, the size of the gradient; ``"smooth_gradient"``, its
            mean over inputs with noise; ``"integrated_gradients"``, along the way from
            a baseline; ``"gradcam"``, where a convolution speaks for the target;
            ``"occlusion"``, what the score loses when a patch is covered;
            ``"shapley"``, what it gains when one is uncovered, as a mean over orders;
            ``"attention"``, from where it flows through all attention layers.
        target: The class whose score is explained, or one for each row; a tuple of
            places where outputs have more axes. The class with the largest score by
            default.
        output: The name or number of an output, of a model with several.
        baseline: Of integrated gradients, occlusion and Shapley values: a number, or an
            array like a row or like ``x``, in a dict by input where there are several;
            0 by default.
            For tokens it is a number, in place of their rows of the table.
        steps: Of integrated gradients; by default 50, and twice as many as often as
            need be, up to 1,600, for rows that are not complete to 0.001.
        samples, noise, seed: Of the smooth gradient: 50 inputs, whose noise has a
            deviation of 0.15 of the row's range, from seed 0. Of Shapley values 50
            orders, or all where there are no more.
        layer: Of Grad-CAM: a name, a path or a layer; the last convolution by default.
        patch, stride: Of occlusion, the former of Shapley values, too: entries along
            the axes of space, and how far apart patches begin. By default an eighth of
            an image, a column of a table or a step of a sequence, side by side.
        position: Of attention, the position to which it flows: 0 is a class token's. By
            default that of the target, of scores with positions, else all, as a mean.
        vocabulary: The words of tokens, by their number, of an input ``[rows, tokens]``
            that an ``Embedding`` looks up, or that has integers; a model's tokenizer
            tells them by default.
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
    options |= {"position": position, "seed": seed}
    options = _own_options(method, options)
    width = check_count(_OP, "batch_size", batch_size)
    extras, words = _numbers(method, options), _words(self, vocabulary)
    inputs = read_inputs(self, x)
    run = prepare_run(self, inputs, method, options, output, width)
    tokens = _token_inputs(run, vocabulary)
    if target is not None or len(run.score_shape) > 1:
        _targets(target, (inputs.rows, *run.score_shape))  # before any compile
    if baseline is not None:  # the rows of tables are not there yet
        arrays = {
            str(number): value
            for number, value in enumerate(inputs.leaves)
            if number not in run.scorer.tables
        }
        read_baseline(baseline, inputs, arrays)
    if method in COVERING:
        extras["patches"] = patches = make_patches(run, options)
    if method == "shapley":
        samples, seed = _draws(options)
        extras["orders"] = orders_of(sum(map(len, patches.values())), samples, seed)
    with on_device(self):
        scores, outputs, rows = run.look()
        scores = scores.reshape(inputs.rows, *run.score_shape)
        targets = _targets(target, scores.shape, scores)
        picked = scores.reshape(len(scores), -1)[np.arange(len(scores)), targets]
        features = {str(i): v for i, v in enumerate(inputs.leaves)} | rows
        if "baseline" in _OPTIONS[method]:
            base = read_baseline(options.get("baseline", 0.0), inputs, features)
            extras["baseline"] = base
        if method == "attention":
            extras["positions"] = run.positions(position, targets)
        if method == "integrated_gradients":
            values, gaps = _integrate(run, features, targets, extras, picked, steps)
        else:
            (values, _), gaps = run.attribute(features, targets, extras), None
    arrays = {
        inputs.names[int(number)]: _by_token(value, method, number in rows)
        for number, value in values.items()
    }
    named = zip(inputs.names, inputs.leaves, strict=True)
    return Explanation(
        method=method,
        arrays=arrays,
        inputs={
            name: value.astype(np.int64) if str(number) in rows else value
            for number, (name, value) in enumerate(named)
        },
        outputs=outputs,
        scores=picked,
        targets=targets,
        scored=run.kind,
        columns=inputs.columns,
        layer=run.scorer.layer,
        gaps=gaps,
        texts={} if words is None else _texts(tokens, arrays, words),
    )


def _own_options(method: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """The options that are given, all of which are the method's."""
    options = {name: value for name, value in options.items() if value is not None}
    if strange := [name for name in options if name not in _OPTIONS[method]]:
        own = ", ".join(_OPTIONS[method]) or "no options of its own"
        raise ArgumentError(_OP, f"{strange[0]} is not of {method!r}, which has {own}")
    return options


def _integrate(
    run: AttributionRun,
    features: dict[str, Any],
    targets: np.ndarray,
    extras: dict[str, Any],
    scores: np.ndarray,
    steps: int | None,
) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Integrated gradients, and how far each row's are from complete.

    Where nobody has said how many steps are taken, the way of a row that is not
    complete is cut into twice as many parts, again and again, with the nodes of the
    whole way in each.
    """
    values, more = run.attribute(features, targets, extras)
    differences = scores - more["baseline_scores"]
    gaps, pieces = _gaps(values, differences), 1
    while steps is None and (gaps > _GAP).any() and pieces < _PIECES:
        pieces, rows = 2 * pieces, np.flatnonzero(gaps > _GAP)
        sums = {name: np.zeros_like(value[rows]) for name, value in values.items()}
        for piece in range(pieces):
            nodes, weights = (extras["nodes"] + piece) / pieces, extras["weights"]
            part = {**extras, "nodes": np.float32(nodes), "weights": weights / pieces}
            for name, value in run.attribute(features, targets, part, rows)[0].items():
                sums[name] += value
        for name, value in sums.items():
            values[name][rows] = value
        gaps[rows] = _gaps(sums, differences[rows])
    if (worst := gaps.max()) > _GAP:
        taken = _STEPS * pieces if steps is None else steps
        warn(
            f"integrated gradients miss the difference of scores by up to {worst:.1e} "
            f"of it, in row {gaps.argmax()}: more than {_GAP:g}\n"
            f"  → Take more steps: explain(…, steps={4 * taken}). Where the model "
            "computes in 16 bits, that is the rounding: explain it in float32."
        )
    return values, gaps


def _gaps(values: Mapping[str, np.ndarray], differences: np.ndarray) -> np.ndarray:
    """How far the values of each row are from its difference of scores, as a share.

    The difference is that of the row and its baseline. Where it is tiny beside the
    values it counts as a thousandth of these, so that rounding alone is no gap.
    """
    flat = [v.reshape(len(v), -1).astype(np.float64) for v in values.values()]
    sums = sum(v.sum(-1) for v in flat)
    sizes = sum(np.abs(v).sum(-1) for v in flat)
    scale = np.maximum(np.maximum(np.abs(differences), 1e-3 * sizes), 1e-12)
    return np.abs(sums - differences) / scale


def _token_inputs(run: AttributionRun, vocabulary: Any) -> dict[str, np.ndarray]:
    """The inputs ``[rows, tokens]``, by name, whose tokens a method gives values."""
    tokens, inputs = {}, run.inputs
    named = zip(inputs.names, inputs.leaves, strict=True)
    for number, (name, value) in enumerate(named):
        looked_up = number in run.scorer.tables or value.dtype.kind in "iu"
        if value.ndim == 2 and looked_up and run.method != "gradcam":
            tokens[name] = value.astype(np.int64)
    if vocabulary is not None and not tokens:
        raise ArgumentError(
            _OP,
            f"vocabulary is of values of tokens, and {run.method!r} gives no input any",
            {"inputs": ", ".join(inputs.names)},
        )
    return tokens


def _texts(
    tokens: Mapping[str, np.ndarray], arrays: Mapping[str, np.ndarray], words: Any
) -> dict[str, list[list[str]]]:
    """The texts of the tokens of each input that has one value for each of them."""
    return {
        name: [words(row) for row in tokens[name]]
        for name, value in arrays.items()
        if name in tokens and value.shape == tokens[name].shape
    }


def _words(model: Network, vocabulary: Any) -> Callable[[np.ndarray], list[str]] | None:
    """What tells the texts of a row of tokens; ``None`` where nothing does."""
    if vocabulary is None:
        tokenizer = model.tokenizer
        return None if tokenizer is None else lambda row: token_texts(row, tokenizer)
    if not isinstance(vocabulary, list | tuple) or not all(
        isinstance(word, str) for word in vocabulary
    ):
        raise ArgumentError(
            _OP,
            "vocabulary must be a list of words, that of number 0 first",
            {"received": type(vocabulary)},
            hint="vocabulary=vectorization.get_vocabulary()",
        )
    words = [*map(str, vocabulary)]

    def texts(row: np.ndarray) -> list[str]:
        own = [words[n] if n < len(words) else f"[{n}]" for n in row.tolist()]
        return [f" {word}" if at and word else word for at, word in enumerate(own)]

    return texts


def _numbers(method: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Arrays that a method takes beside the rows, of the numbers among its options."""
    if method == "smooth_gradient":
        samples, seed = _draws(options)
        noise = check_number(_OP, "noise", options.get("noise", 0.15))
        keys = jax.random.split(jax.random.key(seed), samples)
        return {"keys": keys, "noise": np.float32(noise)}
    if method == "integrated_gradients":
        steps = check_count(_OP, "steps", options.get("steps", _STEPS))
        return dict(zip(("nodes", "weights"), quadrature(steps), strict=True))
    return {}


def _draws(options: Mapping[str, Any]) -> tuple[int, int]:
    """How many samples are drawn, and the seed."""
    samples = check_count(_OP, "samples", options.get("samples", 50))
    return samples, check_count(_OP, "seed", options.get("seed", 0), 0)


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
    if not is_table or method == "attention":
        return value
    if method in ("saliency", "smooth_gradient"):
        return np.linalg.norm(value, axis=-1)
    return value.mean(-1) if method in COVERING else value.sum(-1)
