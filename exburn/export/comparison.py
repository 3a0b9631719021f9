"""A written file run beside its model."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from exburn.core.symbolic_shapes import describe
from exburn.errors import ArgumentError, DataError, ExportError
from exburn.export.program import Program

Run = Callable[[list[np.ndarray]], list[np.ndarray]]
_ROWS = (1, 3)
# Other open sizes, such as the steps of a sequence, in the two runs: the first that the
# model takes.
_SIZES = ((6, 9), (24, 33), (96, 120), (224, 256))


def compare(program: Program, run: Run, samples: Any, rtol: float) -> tuple[float, str]:
    """Runs a file and its model on the same rows.

    An output's error is the greatest difference of an entry, as a part of the greatest
    entry. Integers and booleans must be equal.

    Args:
        program: The program.
        run: From the inputs to the outputs of the file.
        samples: Inputs of the model; some are drawn if ``None``.
        rtol: The greatest error that is taken.

    Returns:
        The greatest error, and the rows in words.

    Raises:
        ExportError: The error is greater.
        DataError, ArgumentError: The samples do not fit the model.
    """
    batches = _batches(program, samples)
    worst, counts = 0.0, []
    for inputs, wanted in batches:
        try:
            found = run(inputs)
        except Exception as error:  # whatever a runtime raises
            raise ExportError(
                "export",
                "the file that was written does not run",
                {"cause": f"{type(error).__name__}: {error}"},
                hint="Please report it: this is a fault of the export.",
            ) from error
        worst = max(worst, _check(program, inputs, wanted, found, rtol))
        counts.append(len(inputs[0]) if inputs and np.ndim(inputs[0]) else 1)
    rows = " and ".join(str(n) for n in dict.fromkeys(counts))
    return worst, f"{rows} row{'' if rows == '1' else 's'}"


def _check(program: Program, inputs, wanted, found, rtol: float) -> float:
    worst = 0.0
    for name, want, got in zip(program.output_names, wanted, found, strict=True):
        got = np.asarray(got)
        facts = {
            "output": name,
            "received": ", ".join(map(describe, inputs)),
            "model": describe(want),
            "file": describe(got),
        }
        if got.shape != want.shape:
            raise _difference("another shape", facts)
        error = _difference_of(want, got)
        if not error <= rtol:
            facts["error"] = f"{error:.2e} (rtol is {rtol:.0e})"
            raise _difference("other values", facts)
        worst = max(worst, error)
    return worst


def _difference(what: str, facts: dict[str, Any]) -> ExportError:
    return ExportError(
        "export",
        f"the file gives {what} than the model, and was not kept",
        facts,
        hint="Values that are exact on your own data: samples=x[:8]. Or rtol=1e-3.",
    )


def _difference_of(want: np.ndarray, got: np.ndarray) -> float:
    """The greatest difference as a part of the greatest entry; infinite for others.

    NaN and infinities must be where the model has them.
    """
    if want.dtype.kind in "biu":
        return 0.0 if np.array_equal(want, got) else np.inf
    want, got = want.astype(np.float64), got.astype(np.float64)
    finite = np.isfinite(want)
    if not np.array_equal(want[~finite], got[~finite], equal_nan=True):
        return np.inf
    if not np.isfinite(got[finite]).all():
        return np.inf
    if not finite.any():
        return 0.0
    scale = np.abs(want[finite]).max()
    return float(np.abs(want - got, where=finite, out=np.zeros_like(want)).max()) / (
        scale or 1.0
    )


def _batches(program: Program, samples: Any) -> list[tuple[list, list]]:
    """Inputs of each run, and what the model makes of them."""
    if samples is not None:
        return _of_samples(program, samples)
    if not program.is_dynamic:
        inputs = _draw(program, 1, {})
        return [(inputs, program.reference(inputs))]
    names = _open_sizes(program) - {"batch"}
    failure: Exception | None = None
    for sizes in _SIZES:
        runs = []
        try:
            for rows, size in zip(_ROWS, sizes, strict=True):
                inputs = _draw(program, rows, dict.fromkeys(names, size))
                runs.append((inputs, program.reference(inputs)))
            return runs
        except Exception as error:  # a size that the model cannot take
            failure = error
        if not names:
            break
    raise ArgumentError(
        "export",
        "the model does not take the inputs that were drawn to run the file on",
        {"cause": str(failure).partition("\n")[0]},
        hint="Pass some of yours: model.export(path, samples=x[:8]).",
    ) from failure


def _open_sizes(program: Program) -> set[str]:
    specs = jax.tree.leaves(program.specs)
    return {str(n) for spec in specs for n in spec.shape if not isinstance(n, int)}


def _draw(program: Program, rows: int, sizes: dict[str, int]) -> list[np.ndarray]:
    """Random inputs: numbers about zero, and integers that tables have rows for."""
    random, numbers = np.random.default_rng(0), {"batch": rows, **sizes}
    drawn = []
    for spec in jax.tree.leaves(program.specs):
        shape = [n if isinstance(n, int) else numbers[str(n)] for n in spec.shape]
        dtype = jnp.dtype(spec.dtype)
        if dtype.kind == "b":
            value = random.integers(0, 2, shape).astype(bool)
        elif dtype.kind in "iu":
            bound = min(program.id_bound or 2, 100)
            value = random.integers(0, max(bound, 1), shape).astype(dtype)
        else:
            value = random.standard_normal(shape).astype(dtype)
        drawn.append(value)
    return drawn


def _of_samples(program: Program, samples: Any) -> list[tuple[list, list]]:
    model: Any = program.model
    encode = getattr(model, "encode_inputs", None)
    given = samples if encode is None else encode(samples)
    specs, leaves = jax.tree.leaves(program.specs), jax.tree.leaves(given)
    arrays = [np.asarray(leaf) for leaf in leaves]
    wanted = ", ".join(map(describe, specs))
    if len(arrays) != len(specs):
        raise DataError(
            "export",
            f"samples must be the model's inputs, {wanted}",
            {"received": ", ".join(map(describe, arrays)) or "nothing"},
        )
    inputs = []
    for spec, array in zip(specs, arrays, strict=True):
        sizes = zip(spec.shape, array.shape, strict=False)
        fits = array.ndim == len(spec.shape) and all(
            not isinstance(want, int) or want == got for want, got in list(sizes)[1:]
        )
        if not fits or not len(array):
            raise DataError(
                "export",
                f"samples must be the model's inputs, {wanted}",
                {"received": ", ".join(map(describe, arrays))},
            )
        inputs.append(array.astype(spec.dtype))
    fixed = specs[0].shape[0]
    if isinstance(fixed, int):
        short = min(len(array) for array in inputs) < fixed
        if short:
            raise DataError(
                "export",
                f"at least {fixed} rows are needed to run the file",
                {"received": ", ".join(map(describe, arrays))},
            )
        parts = [[array[:fixed] for array in inputs]]
    else:
        parts = [[array[:1] for array in inputs]]
        if len(inputs[0]) > 1:
            parts.append(inputs)
    return [(part, program.reference(part)) for part in parts]
