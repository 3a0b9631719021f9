"""Methods of explanation as programs of a model, with all that is checked before."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from exburn.core.checks import check_count
from exburn.errors import ArgumentError, DataError
from exburn.insight.explanations.inputs import OP, NamedInputs, leaf_name
from exburn.insight.explanations.methods import METHODS, patches_of
from exburn.insight.explanations.scores import (
    CallSurvey,
    Scorer,
    cut_probabilities,
    survey,
)
from exburn.insight.progress import PatientBar
from exburn.insight.requirements import choose_output
from exburn.models.arguments import part_names
from exburn.models.hooks import path_of_layer
from exburn.models.inferring import require_predictor
from exburn.models.network import Network
from exburn.models.preparing import fixed_batch_size
from exburn.training.program import Programs

COVERING = ("occlusion", "shapley")  # methods that need no gradient
BY_ROW = ("baseline", "positions")  # of what a method takes, an entry for each row


@dataclasses.dataclass(frozen=True)
class AttributionRun:
    """A method, and a model's programs for it.

    Attributes:
        width: Rows of a step.
        kind: What the scores go into; see ``Scorer.kind``.
        score_shape: Of the scores of a row.
        layer_shape: Of the outputs of the layer of Grad-CAM, for a step.
        channels_first: Whether channels stand before the axes of space.
        places: Positions of attention layers.
    """

    programs: Programs
    inputs: NamedInputs
    method: str
    scorer: Scorer
    width: int
    kind: str
    score_shape: tuple[int, ...]
    layer_shape: tuple[int, ...] = ()
    channels_first: bool = False
    places: int = 0

    def _collect(self, program: Callable, rows: np.ndarray, *trees: Any) -> Any:
        """What a program returns for these rows of trees of arrays, step by step."""
        groups, parts = self.programs.split.read(), []
        bar = PatientBar(len(rows), "row")
        for start in range(0, len(rows), self.width):
            end = min(start + self.width, len(rows))
            # A step that is not full repeats its last row.
            places = np.minimum(np.arange(start, start + self.width), end - 1)
            args = jax.tree.map(lambda v, some=rows[places]: v[some], trees)
            part = jax.device_get(program(groups, *args))
            parts.append(jax.tree.map(lambda v, count=end - start: v[:count], part))
            bar.update(end)
        return jax.tree.map(lambda *arrays: np.concatenate(arrays), *parts)

    def look(self) -> tuple[np.ndarray, np.ndarray, dict[str, np.ndarray]]:
        """Scores and outputs of all rows, and what tables return for them."""
        scorer = self.scorer

        def look(groups: Any, x: Any) -> Any:
            scores, parts = scorer(groups, x, {})
            output = jax.tree.leaves(parts["outputs"])[scorer.output]
            return scores, output, parts["rows"]

        program = self.programs.further(f"explain {scorer.name}", lambda: look)
        return self._collect(program, np.arange(self.inputs.rows), self.inputs.x)

    def attribute(
        self,
        features: dict[str, Any],
        targets: np.ndarray,
        extras: Mapping[str, Any],
        rows: np.ndarray | None = None,
    ) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
        """Shares of each feature in the score of each row, and arrays beside them.

        Args:
            rows: Numbers of the rows that are meant; all by default.
        """
        make, scorer = METHODS[self.method], self.scorer
        by_row: dict[str, Any] = {"rows": np.arange(self.inputs.rows)}
        by_row |= {name: extras[name] for name in BY_ROW if name in extras}
        extras = {n: value for n, value in extras.items() if n not in BY_ROW}
        if self.method in ("gradcam", "attention"):
            features = {}
        if self.method == "gradcam":
            extras = {"shift": np.zeros(self.layer_shape, np.float32)}
        run = self.programs.further(
            f"explain {self.method} {scorer.name}", lambda: make(scorer)
        )

        def program(groups: Any, x: Any, features: Any, targets: Any, rows: Any) -> Any:
            return run(groups, x, features, targets, {**extras, **rows})

        trees = self.inputs.x, features, targets.astype(np.int32), by_row
        some = by_row["rows"] if rows is None else rows
        values, more = self._collect(program, some, *trees)
        return (self._over_input(values) if self.places else values), more

    def positions(self, position: int | None, targets: np.ndarray) -> np.ndarray:
        """Of each row the positions to which attention flows, ``[rows, places]``."""
        count, (first, *others) = self.inputs.rows, self.score_shape
        if position is None and others and first == self.places:
            places = targets // int(np.prod(others))
        elif position is None:
            return np.full((count, self.places), 1 / self.places, np.float32)
        else:
            places = np.full(count, position)
        return np.eye(self.places, dtype=np.float32)[places]

    def _over_input(self, values: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """The flow from places of the input that these are of; of an image in a grid.

        Of images the first place that is beside the grid is a class token's.
        """
        (flow,) = values.values()
        inputs, tables = self.inputs, self.scorer.tables
        long = [
            n for n, v in enumerate(inputs.leaves) if v.shape[1:2] == flow.shape[1:]
        ]
        number = (*tables, *long, 0)[0]
        if inputs.leaves[number].ndim == 4:
            side = math.isqrt(self.places)
            if side**2 in (self.places, self.places - 1):
                flow = flow[:, -(side**2) :].reshape(-1, side, side)
        return {str(number): flow}


def prepare_run(
    model: Network,
    inputs: NamedInputs,
    method: str,
    options: Mapping[str, Any],
    output: Any,
    width: int,
) -> AttributionRun:
    """The programs of a method, with all that can be wrong before they compile."""
    programs = require_predictor(model).preparer.programs
    width = fixed_batch_size(model) or min(width, inputs.rows)
    if width > 1 and require_predictor(model).preparer.passes.mixes_rows("predict"):
        raise ArgumentError(
            OP,
            "the model computes with the rows of a batch together, so that the score "
            "of a row is not its own",
            hint="explain(…, batch_size=1) explains each row as a batch of one.",
        )
    step = jax.tree.map(lambda v: v[:1].repeat(width, 0), inputs.x)
    notes, code = survey(programs.split, step, attends=method == "attention")
    output_names = part_names(model)[1]
    names = [leaf_name(path, output_names) for path in notes.outputs]
    number = choose_output(names, output, OP)
    first = any(
        getattr(call.layer, "data_format", "") == "channels_first"
        for call in notes.convolutions
    )
    layer, shape, tables, places = "", (), (), 0
    if method == "gradcam":
        layer, shape = _layer(model, notes, options.get("layer"))
    else:
        tables = _tables(inputs, notes, method)
    if method == "attention":
        places = _places_of_attention(notes, options.get("position"))
    channels = 1 if first else -1
    scorer = Scorer(programs.split, number, tables, layer, channels, places > 0)
    variable, kind = code.outvars[number], cut_probabilities(code, number)[1]
    if not jnp.issubdtype(variable.aval.dtype, jnp.floating):
        raise ArgumentError(OP, f"the output is of {variable.aval.dtype}, not floats")
    scores = tuple(variable.aval.shape[1:]) or (1,)
    shapes: dict[str, Any] = {"layer_shape": shape, "places": places}
    run = AttributionRun(programs, inputs, method, scorer, width, kind, scores)
    return dataclasses.replace(run, channels_first=first, **shapes)


def _layer(
    model: Network, notes: CallSurvey, layer: Any
) -> tuple[str, tuple[int, ...]]:
    """The path of the layer of Grad-CAM, and the shape of what it returns."""
    if layer is None:
        if not notes.convolutions:
            raise ArgumentError(
                OP,
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
            OP, f"the layer {path!r} must be called once, and is called {where}"
        )
    if calls[0].shape is None or not 3 <= len(calls[0].shape) <= 5:
        spatial = [c.path for c in notes.calls if c.shape and len(c.shape) >= 3]
        raise ArgumentError(
            OP,
            f"'gradcam' needs a layer whose outputs have axes of space; those of "
            f"{path!r} have the shape {calls[0].shape}",
            {"layers that have": ", ".join(spatial[-6:]) or "none"},
        )
    return path, calls[0].shape


def _places_of_attention(notes: CallSurvey, position: Any) -> int:
    """How many positions the attention layers have, all of them the same."""
    shapes = notes.attention
    if not shapes:
        raise ArgumentError(
            OP,
            "the model has no attention layer for 'attention'",
            hint="Use another method: method='integrated_gradients'.",
        )
    for path, shape in shapes.items():
        if len(shape) != 3 or shape[1] != shape[2] or {shape} != {*shapes.values()}:
            raise ArgumentError(
                OP,
                "'attention' follows layers that attend to their own positions, all of "
                f"them to the same ones; {path!r} has weights {shape}",
                {"layers": ", ".join(shapes)},
            )
    places = next(iter(shapes.values()))[1]
    if position is not None and check_count(OP, "position", position, 0) >= places:
        raise ArgumentError(OP, f"position must be below {places}, received {position}")
    return places


def _tables(inputs: NamedInputs, notes: CallSurvey, method: str) -> tuple[int, ...]:
    """Numbers of the inputs that an ``Embedding`` looks up; others are floats."""
    no_gradient = (*COVERING, "attention")
    for number, name in enumerate(inputs.names):
        paths = notes.lookups.get(number, [])
        if len(paths) > 1:
            raise DataError(
                OP,
                f"the input {name!r} is looked up by several layers, so that no one "
                "array stands for it",
                {"layers": ", ".join(paths)},
            )
        if not paths and not inputs.floats[number] and method not in no_gradient:
            raise DataError(
                OP,
                f"the input {name!r} holds {inputs.leaves[number].dtype}, which have "
                "no gradients, and no Embedding looks it up",
                hint='Numbers that are measured: x.astype("float32"). Categories: '
                'look them up in an Embedding, or use method="occlusion".',
            )
    return tuple(sorted(notes.lookups))


def make_patches(
    run: AttributionRun, options: Mapping[str, Any]
) -> dict[str, np.ndarray]:
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
                    OP,
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
            OP, f"{name} must be a number, or {len(usual)} of them, received {value!r}"
        )
    return tuple(check_count(OP, name, size) for size in sizes)
