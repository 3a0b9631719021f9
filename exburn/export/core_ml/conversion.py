"""Converts StableHLO to Core ML packages, and computes what is in them: a script.

`exburn.export.converter` runs it in a process of its own, with the folder of a job as
its argument. ``job.json`` holds one of these:

``file``
    The portable artifact of StableHLO that becomes ``model.mlpackage``, with the names
    of ``inputs`` and ``outputs``, the ``precision``, and texts that the package holds
    by key (``about``); then computed as below.
``package``
    A package to be computed by NumPy: ``batch_0.npz`` becomes ``outputs_0.npz``.
``pieces``
    Programs to be converted and computed each by itself, whatever becomes of the
    others.

``result.json`` holds the stage that was reached, and an error or what was found.
"""

from __future__ import annotations

import collections
import json
import os
import pathlib
import sys
import traceback
from typing import Any


def main(folder: pathlib.Path) -> None:
    job = json.loads((folder / "job.json").read_text())
    sys.path.extend(p for p in job["path"] if p not in sys.path)
    sys.path.append(str(pathlib.Path(__file__).parent))  # where `evaluation` is
    modules: dict[str, Any] = sys.modules
    for other in ("sklearn", "tensorflow", "torch", "xgboost"):
        modules.setdefault(other, None)  # coremltools would load them, for seconds
    report: dict[str, Any] = {}

    def enter(stage: str) -> None:
        report["stage"] = stage
        (folder / "result.json").write_text(json.dumps(report))

    try:
        if "pieces" in job:
            enter("trying its operations")
            try_each(folder, job["pieces"])
        elif "package" in job:
            enter("computing the package")
            compute(folder, job["package"], job["batches"])
        else:
            enter("converting")
            model, report["operators"] = convert(folder / job["file"], job["precision"])
            enter("writing the package")
            write(model, job, str(folder / "model.mlpackage"))
            enter("computing the package")
            compute(folder, str(folder / "model.mlpackage"), job["batches"])
        report["done"] = True
    except BaseException as error:
        report["error"] = f"{type(error).__name__}: {error}"
        traceback.print_exc()
        raise
    finally:
        (folder / "result.json").write_text(json.dumps(report))


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


def try_each(folder: pathlib.Path, pieces: list[dict]) -> None:
    """Converts and computes each piece in a process of its own, one after another."""
    import coremltools  # noqa: F401 - loaded once, before the forks
    import evaluation  # noqa: F401
    import stablehlo_coreml  # noqa: F401

    for piece in pieces:
        child = os.fork()
        if not child:
            os._exit(try_one(folder, piece))
        _, status = os.waitpid(child, 0)
        if os.WIFSIGNALED(status):
            cause = f"the converter died of signal {os.WTERMSIG(status)}"
            (folder / f"{piece['name']}.json").write_text(json.dumps(cause))


def try_one(folder: pathlib.Path, piece: dict) -> int:
    """Writes a piece's outputs, or why there are none."""
    import numpy as np
    from evaluation import evaluate

    name = piece["name"]
    package = str(folder / f"{name}.mlpackage")
    try:
        model, _ = convert(folder / f"{name}.stablehlo", "float32")
        write(model, piece, package)
        for draw in range(2):
            inputs = dict(np.load(folder / f"{name}.in_{draw}.npz"))
            outputs: dict[str, Any] = evaluate(package, inputs)
            np.savez(folder / f"{name}.out_{draw}.npz", **outputs)
        return 0
    except BaseException as error:
        text = f"{type(error).__name__}: {error}"
        (folder / f"{name}.json").write_text(json.dumps(" ".join(text.split())))
        return 1


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]))
