"""Converts StableHLO to Core ML packages, and computes what is in them.

`exburn.export.job` runs it in a process of its own. A job has one of these:

``file``
    The portable artifact of StableHLO that becomes ``model.mlpackage``, with the names
    of ``inputs`` and ``outputs``, the ``precision``, and texts that the package holds
    by key (``about``); then computed as below.
``package``
    A package to be computed by NumPy: ``batch_0.npz`` becomes ``outputs_0.npz``."""

from __future__ import annotations

import collections
import functools
import pathlib
import sys
from collections.abc import Callable
from typing import Any


def run(job: dict, folder: pathlib.Path, enter: Callable[[str], None]) -> dict:
    """Does a job; reports how often each operator occurs in a new package."""
    _leave_out_frameworks()
    report, package = {}, job.get("package")
    if package is None:
        enter("converting")
        model, report["operators"] = convert(folder / job["file"], job["precision"])
        enter("writing the package")
        package = str(folder / "model.mlpackage")
        write(model, job, package)
    enter("computing the package")
    compute(folder, package, job["batches"])
    return report


def load_packages() -> None:
    """Loads what converts and computes pieces."""
    _leave_out_frameworks()
    import coremltools  # noqa: F401
    import evaluation  # noqa: F401
    import stablehlo_coreml  # noqa: F401


def load(program: pathlib.Path, piece: dict, target: pathlib.Path) -> Callable:
    """Converts a piece; what computes its outputs."""
    from evaluation import evaluate

    package = str(target.with_suffix(".mlpackage"))
    model, _ = convert(program, "float32")
    write(model, piece, package)
    return functools.partial(evaluate, package)


def _leave_out_frameworks() -> None:
    """Hides what coremltools would load, for seconds."""
    modules: dict[str, Any] = sys.modules
    for name in ("sklearn", "tensorflow", "torch", "xgboost"):
        modules.setdefault(name, None)


def read(path: pathlib.Path) -> Any:
    """The module of a portable artifact, in a context with StableHLO's dialects."""
    from jaxlib.mlir import ir
    from jaxlib.mlir.dialects import chlo, stablehlo

    context = ir.Context()
    chlo.register_dialect(context)
    stablehlo.register_dialect(context)
    return stablehlo.deserialize_portable_artifact(context, path.read_bytes())


def convert(path: pathlib.Path, precision: str) -> tuple[Any, dict[str, int]]:
    """The model of a program, and how often each operator occurs in it."""
    import coremltools
    import stablehlo_coreml

    target = coremltools.target.iOS18
    module = read(path)
    with module.context:
        program = stablehlo_coreml.convert(module, minimum_deployment_target=target)
    model = coremltools.convert(
        program,
        source="milinternal",
        convert_to="mlprogram",
        minimum_deployment_target=target,
        compute_precision=getattr(coremltools.precision, precision.upper()),
        pass_pipeline=stablehlo_coreml.build_pass_pipeline(),
        skip_model_load=True,
    )
    return model, operators(model)


def write(model: Any, job: dict, path: str) -> None:
    """Gives inputs and outputs their names, and writes the package."""
    import coremltools

    spec = model.get_spec()
    names: dict[str, str] = {}
    for kind, labels in (("input", job["inputs"]), ("output", job["outputs"])):
        features = [each.name for each in getattr(spec.description, kind)]
        if len(features) != len(labels):
            raise ValueError(
                f"{len(labels)} {kind}s became {len(features)}: {features}"
            )
        names |= dict(zip(features, labels, strict=True))
    rename(spec, names)
    spec.description.metadata.userDefined.update(job.get("about", {}))
    renamed = coremltools.models.MLModel(
        spec, weights_dir=model.weights_dir, skip_model_load=True
    )
    renamed.save(path)


def rename(spec: Any, names: dict[str, str]) -> None:
    """Renames values, wherever they are used; one that has a new name makes room."""
    (function,) = spec.mlProgram.functions.values()
    blocks = list(function.block_specializations.values())
    values: set[str] = {each.name for each in function.inputs}
    for block in blocks:  # grows by the blocks of loops and branches
        values |= {each.name for each in block.inputs}
        for operation in block.operations:
            values |= {each.name for each in operation.outputs}
            blocks += operation.blocks
    for name in (values & set(names.values())) - set(names):
        names[name] = next(n for i in range(99) if (n := f"{name}_{i}") not in values)
    for features in (spec.description.input, spec.description.output, function.inputs):
        for each in features:
            each.name = names.get(each.name, each.name)
    for block in blocks:
        for each in block.inputs:
            each.name = names.get(each.name, each.name)
        block.outputs[:] = [names.get(name, name) for name in block.outputs]
        for operation in block.operations:
            for each in operation.outputs:
                each.name = names.get(each.name, each.name)
            for argument in operation.inputs.values():
                for each in argument.arguments:
                    if each.WhichOneof("binding") == "name":
                        each.name = names.get(each.name, each.name)


def compute(folder: pathlib.Path, package: str, count: int) -> None:
    """Outputs of each batch, by the operators' definitions."""
    import numpy as np
    from evaluation import evaluate

    for number in range(count):
        inputs = dict(np.load(folder / f"batch_{number}.npz"))
        outputs: dict[str, Any] = evaluate(package, inputs)
        np.savez(folder / f"outputs_{number}.npz", **outputs)


def operators(model: Any) -> dict[str, int]:
    """How often each operator occurs in a model, constants apart."""
    counts: collections.Counter[str] = collections.Counter()

    def count(block: Any) -> None:
        for operation in block.operations:
            if operation.type != "const":
                counts[operation.type] += 1
            for inner in operation.blocks:
                count(inner)

    for function in model.get_spec().mlProgram.functions.values():
        for block in function.block_specializations.values():
            count(block)
    return dict(counts.most_common())
