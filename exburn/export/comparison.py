"""A written file run beside its model, and how far roundings let the two differ."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from exburn.core.symbolic_shapes import describe, evaluate_size, symbols_of
from exburn.errors import ArgumentError, DataError, ExportError
from exburn.export.open_sizes import OF_SHAPES, solve_sizes
from exburn.export.operations import (
    Known,
    Operations,
    ProgramStep,
    ValueSlot,
    outputs_of,
    run,
)
from exburn.export.program import ExportedProgram

Run = Callable[[list[np.ndarray]], list[np.ndarray]]
_ROWS = (1, 3)
# Other open sizes, such as the steps of a sequence, in the two runs: the first that the
# model takes. Each further symbol has one more, and two more: sizes that are unlike.
_SIZES = ((6, 9), (24, 33), (96, 120), (224, 256))
_CROPPED = 3  # rows of samples whose open sizes are cut off


class FileComparison(NamedTuple):
    """What came out of running a file beside its model.

    Attributes:
        error: The greatest error.
        rows: The rows in words.
        notes: What else is to be told of it.
    """

    error: float
    rows: str
    notes: tuple[str, ...] = ()


def compare(
    program: ExportedProgram,
    run: Run,
    rtol: float,
    *,
    at_once: bool = False,
    typical: bool = False,
) -> FileComparison:
    """Runs a file and its model on the same rows.

    An output's error is the greatest difference of an entry, as a part of the greatest
    entry. Integers and booleans must be equal. Both hold but for what follows from a
    float half way between two integers: see `rounding`.

    Args:
        program: The program.
        run: From the inputs to the outputs of the file.
        rtol: The greatest error that is taken.
        at_once: Whether one run with several rows will do: those of a file that knows
            its sizes are cut into batches in any case.
        typical: Whether the error is the root of the mean square of the differences:
            in int8 a single entry says little.

    Raises:
        ExportError: The error is greater.
        DataError, ArgumentError: The samples do not fit the model.
    """
    batches = trials(program)[-1 if at_once else 0 :]
    worst, counts, notes = 0.0, [], {}
    for inputs, references in batches:
        try:
            outputs = run(inputs)
        except Exception as error:  # whatever a runtime raises
            raise ExportError(
                "export",
                "the file that was written does not run",
                {"cause": f"{type(error).__name__}: {error}"},
                hint="Please report it: this is a fault of the export.",
            ) from error
        outputs = list(map(np.asarray, outputs))
        error, remarks = _check(program, inputs, references, outputs, rtol, typical)
        worst, notes = max(worst, error), notes | remarks
        counts.append(len(inputs[0]) if inputs and np.ndim(inputs[0]) else 1)
    rows = " and ".join(str(n) for n in dict.fromkeys(counts))
    text = f"{rows} row{'' if rows == '1' else 's'}"
    return FileComparison(worst, text, tuple(notes.values()))


def _check(
    program: ExportedProgram, inputs, references, outputs, rtol: float, typical: bool
) -> tuple[float, dict[str, str]]:
    """The greatest error of a file's outputs, and what is to be told of some.

    Raises:
        ExportError: An output is none that the model gives.
    """
    worst, notes = 0.0, {}
    allowed: list[Reach] | None = None
    triples = list(zip(program.output_names, references, outputs, strict=True))
    for place, (name, want, got) in enumerate(triples):
        facts = {
            "output": name,
            "received": ", ".join(map(describe, inputs)),
            "model": describe(want),
            "file": describe(got),
        }
        if got.shape != want.shape:
            raise _difference("another shape", facts)
        error = difference(want, got, typical)
        if not error <= rtol:
            if allowed is None and not typical:
                allowed = reaches(program, inputs)
            text = describe_difference(want, got, rtol)
            if not allowed or not _within(want, got, allowed[place], rtol):
                facts["error"] = f"{error:.2e} (rtol is {rtol:.0e}): {text}"
                raise _difference("other values", facts)
            notes[name] = (
                f"output {name}: {text}: floats half way between two integers are "
                "rounded to either"
            )
            if want.dtype.kind in "iu":
                error /= float(np.abs(want.astype(np.float64)).max()) or 1.0
        worst = max(worst, error)
    return worst, notes


def _within(want: np.ndarray, got: np.ndarray, reach: Reach, rtol: float) -> bool:
    """Whether an output is what a rounding to the other side may have made of it."""
    if not reach.widest:
        return False
    if want.dtype.kind in "iu":
        return bool(((got >= reach.low) & (got <= reach.high)).all())
    finite = want[np.isfinite(want)]
    scale = float(np.abs(finite).max(initial=0.0)) or 1.0
    # Each rounding by itself: together they may differ by more than all one way.
    return difference(want, got) <= rtol + 2 * reach.widest / scale


def _difference(what: str, facts: dict[str, Any]) -> ExportError:
    return ExportError(
        "export",
        f"the file gives {what} than the model, and was not kept",
        facts,
        hint="Values that are exact on your own data: samples=x[:8]. Or rtol=1e-3.",
    )


def difference(want: np.ndarray, got: np.ndarray, typical: bool = False) -> float:
    """The greatest difference as a part of the greatest entry; infinite for others.

    Of integers and booleans it is the greatest difference itself: no tolerance is as
    large. NaN and infinities must be where the model has them. ``typical`` asks for the
    root of the mean square instead of the greatest.
    """
    if want.dtype.kind in "biu":
        return float(_apart(want, got).max(initial=0.0))
    want, got = _real_pair(want, got)
    finite = np.isfinite(want)
    if not np.array_equal(want[~finite], got[~finite], equal_nan=True):
        return np.inf
    if not np.isfinite(got[finite]).all():
        return np.inf
    if not finite.any():
        return 0.0
    scale, apart = np.abs(want[finite]).max(), np.abs((want - got)[finite])
    error = np.sqrt(np.mean(apart**2)) if typical else apart.max()
    return float(error) / (scale or 1.0)


def describe_difference(want: np.ndarray, got: np.ndarray, rtol: float) -> str:
    """By how much, and in how many entries, two outputs of one shape differ.

    Example:
        >>> describe_difference(np.array([1, 2, 3]), np.array([1, 4, 2]), 1e-4)
        '2 of 3 integers differ, by up to 2'
        >>> describe_difference(np.array([1.0, np.nan]), np.array([1.5, 1.0]), 1e-4)
        '1 of 2 numbers differs by up to 0.5; 1 is NaN or infinite in one alone'
    """
    kind = {"b": "booleans", "i": "integers", "u": "integers"}.get(want.dtype.kind)
    if kind:
        apart = _apart(want, got)
        count, limit = int((apart > 0).sum()), apart.max(initial=0.0)
        text = f"{count:,} of {want.size:,} {kind} differ{'s' if count == 1 else ''}"
        return text if kind == "booleans" else f"{text}, by up to {limit:,.0f}"
    want, got = _real_pair(want, got)
    both = np.isfinite(want) & np.isfinite(got)
    scale = np.abs(want[np.isfinite(want)]).max(initial=0.0) or 1.0
    apart = np.abs(want - got, where=both, out=np.zeros(want.shape))
    parts = []
    if count := int((apart > rtol * scale).sum()):
        verb = "differs" if count == 1 else "differ"
        parts.append(
            f"{count:,} of {want.size:,} numbers {verb} by up to {apart.max():.2g}"
        )
    alike = (want == got) | (np.isnan(want) & np.isnan(got))
    if odd := int((~both & ~alike).sum()):
        verb = "is" if odd == 1 else "are"
        parts.append(f"{odd:,} {verb} NaN or infinite in one alone")
    return "; ".join(parts)


def _apart(want: np.ndarray, got: np.ndarray) -> np.ndarray:
    """The differences of integers or booleans, as floats that hold them."""
    apart = np.abs(want.astype(np.float64) - got.astype(np.float64))
    return np.where(want == got, 0.0, np.maximum(apart, 1.0))


def _real_pair(want: np.ndarray, got: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Floats of 64 bits; of complex numbers their parts."""
    if want.dtype.kind == "c":
        want, got = (np.stack([np.real(v), np.imag(v)]) for v in (want, got))
    return want.astype(np.float64), got.astype(np.float64)


def trials(program: ExportedProgram) -> list[tuple[list, list]]:
    """Inputs of each run, and what the model makes of them.

    Raises:
        DataError, ArgumentError: The samples do not fit the model, or there are none,
            and it does not take drawn ones.
    """
    if program.trials is None:
        program.trials = _batches(program)
    return program.trials


def _batches(program: ExportedProgram) -> list[tuple[list, list]]:
    if (inputs := sample_inputs(program)) is not None:
        return _of_samples(program, inputs)
    return draw_trials(program, _ROWS if program.is_dynamic else _ROWS[:1])


def draw_trials(
    program: ExportedProgram, rows: Sequence[int]
) -> list[tuple[list, list]]:
    """Drawn inputs of runs, and what the model makes of them.

    Open sizes differ from run to run, and from each other. If there are several, there
    is one run more in which they are all alike: a model may do another thing then.

    Args:
        rows: Those of each run.

    Raises:
        ArgumentError: The model does not take them.
    """
    names = open_symbols(program)
    failure: Exception | None = None
    for sizes in _SIZES if names else _SIZES[:1]:
        runs = [
            (count, {name: size + step * n for n, name in enumerate(names)})
            for count, size, step in zip(rows, sizes, (1, 2), strict=False)
        ]
        if len(names) > 1:
            runs.append((rows[-1], dict.fromkeys(names, sizes[0])))
        try:
            draws = [
                draw_inputs(program, count, open_sizes) for count, open_sizes in runs
            ]
            return [(inputs, program.reference(inputs)) for inputs in draws]
        except Exception as error:  # a size that the model cannot take
            failure = error
    raise ArgumentError(
        "export",
        "the model does not take the inputs that were drawn to run the file on",
        {"cause": str(failure).partition("\n")[0]},
        hint="Pass some of yours: model.export(path, samples=x[:8]).",
    ) from failure


def open_symbols(program: ExportedProgram) -> list[str]:
    """The symbols of a program's open sizes, rows aside, in the inputs' order."""
    specs = jax.tree.leaves(program.specs)
    names = [name for spec in specs for n in spec.shape for name in symbols_of(n)]
    return [name for name in dict.fromkeys(names) if name != "batch"]


def draw_inputs(
    program: ExportedProgram, rows: int, sizes: dict[str, int]
) -> list[np.ndarray]:
    """Random inputs: numbers about zero, and integers that tables have rows for.

    Args:
        sizes: The values of its other symbols.
    """
    random, numbers = np.random.default_rng(0), {"batch": rows, **sizes}
    values = []
    for spec in jax.tree.leaves(program.specs):
        shape = [evaluate_size(n, numbers) for n in spec.shape]
        dtype = jnp.dtype(spec.dtype)
        if dtype.kind == "b":
            value = random.integers(0, 2, shape).astype(bool)
        elif dtype.kind in "iu":
            pixels = dtype == np.uint8 and program.id_bound is None
            bound = 256 if pixels else min(program.id_bound or 2, 100)
            value = random.integers(0, max(bound, 1), shape).astype(dtype)
        else:
            value = random.standard_normal(shape).astype(dtype)
        values.append(value)
    return values


def sample_inputs(program: ExportedProgram) -> list[np.ndarray] | None:
    """The program's samples as a list of arrays; ``None`` if it has none.

    Raises:
        DataError: They are not the model's inputs.
    """
    if program.samples is None:
        return None
    encode = getattr(program.model, "encode_inputs", None)
    samples = program.samples if encode is None else encode(program.samples)
    specs, leaves = jax.tree.leaves(program.specs), jax.tree.leaves(samples)
    arrays = [np.asarray(leaf) for leaf in leaves]
    fits = len(arrays) == len(specs) and all(
        len(array.shape) == len(spec.shape) and array.size
        for spec, array in zip(specs, arrays, strict=True)
    )
    fits = fits and all(
        not isinstance(want, int) or want == got
        for spec, array in zip(specs, arrays, strict=True)
        for want, got in list(zip(spec.shape, array.shape, strict=True))[1:]
    )
    if not fits:
        expectation = ", ".join(map(describe, specs))
        raise DataError(
            "export",
            f"samples must be the model's inputs, {expectation}",
            {"received": ", ".join(map(describe, arrays)) or "nothing"},
        )
    shapes = [spec.shape[1:] for spec in specs]
    solve_sizes("export", shapes, [array.shape[1:] for array in arrays])
    return [a.astype(spec.dtype) for spec, a in zip(specs, arrays, strict=True)]


def _of_samples(
    program: ExportedProgram, inputs: list[np.ndarray]
) -> list[tuple[list, list]]:
    fixed = jax.tree.leaves(program.specs)[0].shape[0]
    if isinstance(fixed, int):
        if min(len(array) for array in inputs) < fixed:
            raise DataError(
                "export",
                f"at least {fixed} rows are needed to run the file",
                {"received": ", ".join(map(describe, inputs))},
            )
        parts = [[array[:fixed] for array in inputs]]
    else:
        parts = [[array[:1] for array in inputs]]
        if len(inputs[0]) > 1:
            parts.append(inputs)
    runs = [(part, program.reference(part)) for part in parts]
    cropped = _crop(program, parts[-1])
    if cropped is not None:
        with contextlib.suppress(*OF_SHAPES):  # the model may need the whole size
            runs.insert(-1, (cropped, program.reference(cropped)))
    return runs


def _crop(
    program: ExportedProgram, inputs: list[np.ndarray]
) -> list[np.ndarray] | None:
    """The first rows of samples, cut off to other and unlike open sizes.

    ``None`` if no size can be less.
    """
    names, specs = open_symbols(program), jax.tree.leaves(program.specs)
    shapes = [spec.shape[1:] for spec in specs]
    sizes = solve_sizes("export", shapes, [array.shape[1:] for array in inputs])
    less = {name: max(1, sizes[name] - 1 - n) for n, name in enumerate(names)}
    if all(less[name] == sizes[name] for name in names):
        return None
    rows = slice(None) if program.rows is not None else slice(_CROPPED)
    return [
        array[(rows, *(slice(evaluate_size(n, less)) for n in shape))]
        for array, shape in zip(inputs, shapes, strict=True)
    ]


# What the floats of a tensor differ by in two runtimes, as a part of the greatest.
_LAST_BITS = 1e-5
_FUNCTIONS = {"round", "floor", "ceil"}
_OF_INTEGERS = _FUNCTIONS | {  # what of integers gives integers
    *("abs", "add", "broadcast_in_dim", "clamp", "concatenate", "convert_element_type"),
    *("copy", "dynamic_slice", "gather", "max", "min", "mul", "neg", "pad", "reshape"),
    *("rev", "select_n", "slice", "squeeze", "sub", "transpose"),
}


class Reach(NamedTuple):
    """What an output may be.

    Attributes:
        low, high: The least and the greatest value of each entry.
    """

    low: np.ndarray
    high: np.ndarray

    @property
    def widest(self) -> float:
        """The greatest difference of the two."""
        if not self.low.size:
            return 0.0
        apart = self.high.astype(np.float64) - self.low.astype(np.float64)
        return float(np.max(apart, initial=0.0, where=np.isfinite(apart)))


def reaches(program: ExportedProgram, inputs: list[np.ndarray]) -> list[Reach] | None:
    """What each output may be for inputs; ``None`` if nothing is rounded.

    Runtimes add in different orders, so a float differs in its last bits, and where it
    is half way between two integers it is rounded to another one: a pixel of an image
    that is resized as ``uint8``. What follows from it is no fault of a file. So the
    program is computed with the floats before each rounding a little greater, and a
    little less.

    Args:
        inputs: Its inputs, in its order.
    """
    specs = [jax.ShapeDtypeStruct(v.shape, v.dtype) for v in inputs]
    exact = program.with_specs(jax.tree.structure(program.specs).unflatten(specs))
    operations = exact.operations
    steps = _rounding_steps(operations, len(exact.weights))
    if not steps:
        return None
    weights = jax.tree.leaves(exact.groups)

    def compute(sign: Any, weights: Any, inputs: Any) -> list[Any]:
        def move(step: ProgramStep, values: Any) -> Any:
            if id(step) not in steps:
                return NotImplemented
            value, *others = values
            size = jnp.abs(value).max(initial=0, where=jnp.isfinite(value))
            values = [value + sign * _LAST_BITS * size, *others]
            return step.primitive.bind(*values, **step.params)

        rules = dict.fromkeys((*_FUNCTIONS, "convert_element_type"), move)
        arguments = [*weights, *inputs, jax.random.key(0)]
        places = map(id, operations.inputs)
        values = run(operations.steps, dict(zip(places, arguments, strict=True)), rules)
        return outputs_of(operations, values)

    with jax.default_matmul_precision("highest"):
        run_moved = jax.jit(compute)
        results = [run_moved(np.float32(s), weights, inputs) for s in (-1, 0, 1)]
    columns = [
        np.stack(list(map(np.asarray, column))) for column in zip(*results, strict=True)
    ]
    return [Reach(column.min(0), column.max(0)) for column in columns]


def _rounding_steps(operations: Operations, weights: int) -> set[int]:
    """The ids of the operations that make integers of fractions that inputs tell."""
    dependent = {id(slot) for slot in operations.inputs[weights:-1]}
    whole: set[int] = set()  # slots of floats that hold integers
    steps = set()
    for step in operations.steps:
        exact = all(_is_whole(slot, whole) for slot in step.inputs)
        if step.name in _FUNCTIONS or exact and step.name in _OF_INTEGERS:
            whole |= {id(slot) for slot in step.outputs}
        if not any(id(slot) in dependent for slot in step.inputs):
            continue
        dependent |= {id(slot) for slot in step.outputs}
        to_integer = step.name == "convert_element_type" and jnp.issubdtype(
            step.outputs[0].aval.dtype, jnp.integer
        )
        if not exact and (step.name in _FUNCTIONS or to_integer):
            steps.add(id(step))
    return steps


def _is_whole(slot: ValueSlot, whole: set[int]) -> bool:
    """Whether a slot holds integers in every runtime."""
    if not jnp.issubdtype(slot.aval.dtype, jnp.floating):
        return True
    if isinstance(slot, Known):
        return bool((np.asarray(slot.value) == np.round(slot.value)).all())
    return id(slot) in whole
