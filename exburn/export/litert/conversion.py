"""Converts StableHLO to LiteRT files, quantizes and runs them.

`exburn.export.job` runs it in a process of its own, which needs neither ExBurn nor
JAX. A job has one of these:

``programs``
    Portable artifacts of StableHLO (``file``, ``signature``, ``rows``, names of
    ``inputs`` and ``outputs``), to be the signatures of one ``model.tflite``; with
    ``quantize``, ``samples.npz`` calibrates it. ``about`` are texts that it holds, by
    the keys of its metadata.
``runs``
    A ``model``, and batches for its signatures: ``batch_0.npz`` becomes
    ``outputs_0.npz``."""

from __future__ import annotations

import pathlib
from collections.abc import Callable, Sequence
from typing import Any

# What they compute in is a graph of its own, which the quantizer does not calibrate.
WITH_BODIES = {"STABLEHLO_REDUCE_WINDOW"}


def run(job: dict, folder: pathlib.Path, enter: Callable[[str], None]) -> None:
    """Does a job."""
    if "runs" in job:
        enter("running the file")
        run_batches(folder, job["model"], job["runs"])
        return
    enter("converting")
    artifacts = [(folder / p["file"]).read_bytes() for p in job["programs"]]
    data = convert(artifacts, job["programs"], job["integers"])
    if job["quantize"]:
        enter("quantizing")
        data = quantize(data, job, folder / "samples.npz")
    for key, text in job["about"].items():
        data = add_text(data, key, text)
    (folder / "model.tflite").write_bytes(data)


def load_packages() -> None:
    """Loads what converts and runs pieces."""
    import ai_edge_litert.interpreter  # noqa: F401
    import litert_converter.mlir._mlir_libs  # noqa: F401


def load(program: pathlib.Path, piece: dict, target: pathlib.Path) -> Callable:
    """Converts a piece; what computes its outputs."""
    from ai_edge_litert.interpreter import Interpreter

    content = convert([program.read_bytes()], [{"signature": "main", **piece}])
    runner = Interpreter(model_content=content).get_signature_runner("main")
    return lambda inputs: runner(**inputs)


def convert(
    artifacts: Sequence[bytes], programs: Sequence[dict], integers: bool = False
) -> bytes:
    """One file with a signature for each program.

    Args:
        programs: What is said of each.
        integers: Whether the programs say what is rounded how (composites of the name
            ``quant.fake_quant``): then operators between such places take integers.
    """
    from litert_converter.mlir import ir, passmanager
    from litert_converter.mlir._mlir_libs import converter_api_ext as api
    from litert_converter.mlir.dialects import stablehlo

    context = ir.Context()
    api.prepare_mlir_context(context)
    with context:
        modules = []
        for number, (data, program) in enumerate(zip(artifacts, programs, strict=True)):
            module = stablehlo.deserialize_portable_artifact(context, data)
            api.set_signature(
                module.operation,
                signature_name=program["signature"],
                input_names=program["inputs"],
                output_names=program["outputs"],
            )
            if number:  # the public functions of one module need names of their own
                rename_main(module, f"main_{number}", ir)
            modules.append(module)
        merged = api.merge_modules(modules) if len(modules) > 1 else modules[0]
        config = api.ConvertToTFLConfig()
        config.model_origin_framework = "JAX"
        # Masks of attention hold infinities, and shall go on doing so.
        config.canonicalizing_inf_as_min_max_float = False
        if integers:
            config.qdq_conversion_mode, config.strict_qdq_mode = "STATIC", True
        api.run_convert_to_tfl_passes(merged, passmanager.PassManager(), config)
        return api.export_flatbuffer_to_bytes(merged.operation)


def rename_main(module: Any, name: str, ir: Any) -> None:
    for operation in module.body.operations:
        attributes = operation.operation.attributes
        if "sym_name" not in attributes:
            continue
        if ir.StringAttr(attributes["sym_name"]).value == "main":
            attributes["sym_name"] = ir.StringAttr.get(name)


def quantize(data: bytes, job: dict, samples: pathlib.Path) -> bytes:
    """The file with weights in int8, and with all arithmetic if the job says so.

    Inputs and outputs stay float: an application need not know the scales.
    """
    import numpy as np
    from litert_quantizer import (
        algorithm_manager,
        calibrator,
        qtyping,
        quantizer,
        recipe,
        recipe_manager,
    )
    from litert_quantizer.utils import qsv_utils

    loops = [name for name in operators(data) if name in WITH_BODIES]
    if loops and job["quantize"] == "int8":
        raise ValueError(f"the quantizer has no integers for {', '.join(loops)}")
    work = quantizer.Quantizer(data)
    if job["quantize"] == "int8_weights":
        work.load_quantization_recipe(recipe.dynamic_wi8_afp32())
        result = work.quantize(enable_progress_report=False)
        return bytes(result.quantized_model or b"")
    work.load_quantization_recipe(recipe.static_wi8_ai8())
    for name in ("INPUT", "OUTPUT", "SOFTMAX"):  # 256 probabilities are few
        kind = qtyping.TFLOperationName[name]
        keep = algorithm_manager.AlgorithmName.NO_QUANTIZE
        work.update_quantization_recipe(".*", kind, algorithm_key=keep)
    arrays = dict(np.load(samples))
    sample_batches = {p["signature"]: batches(p, arrays) for p in job["programs"]}
    recipes = recipe_manager.RecipeManager()
    recipes.load_quantization_recipe(work.get_quantization_recipe())
    # By default it averages the ends of all samples, and so cuts off what most exceed.
    calibration = calibrator.Calibrator(data, qsv_update_func=qsv_utils.min_max_update)
    calibration.calibrate(sample_batches, recipes)
    if not (ranges := calibration.get_model_qsvs()):
        names = ", ".join(operators(data)) or "none"
        raise ValueError(f"none of its operators has a form in integers: {names}")
    result = work.quantize(ranges, enable_progress_report=False)
    return bytes(result.quantized_model or b"")


def operators(data: bytes) -> list[str]:
    """Names of the operators of a file."""
    from ai_edge_litert import schema_py_generated as schema

    kinds = vars(schema.BuiltinOperator).items()
    names = {code: name for name, code in kinds if isinstance(code, int)}
    model = schema.ModelT.InitFromPackedBuf(data, 0)
    codes = {
        model.operatorCodes[operation.opcodeIndex].builtinCode
        for graph in model.subgraphs
        for operation in graph.operators or []
    }
    return sorted(names.get(code, str(code)) for code in codes)


def add_text(data: bytes, key: str, text: str) -> bytes:
    """The file with a text under a key of its metadata."""
    import flatbuffers
    import numpy as np
    from ai_edge_litert import schema_py_generated as schema

    model = schema.ModelT.InitFromPackedBuf(data, 0)
    buffer, entry = schema.BufferT(), schema.MetadataT()
    buffer.data = np.frombuffer(text.encode(), np.uint8)
    entry.name, entry.buffer = key, len(model.buffers)
    model.buffers = [*model.buffers, buffer]
    model.metadata = [*(model.metadata or []), entry]
    builder = flatbuffers.Builder(len(data) + (1 << 16))
    builder.Finish(model.Pack(builder), b"TFL3")
    return bytes(builder.Output())


def batches(program: dict, arrays: dict) -> list[dict]:
    """Samples in batches of as many rows as a program takes, none left out."""
    import numpy as np

    rows, names = program["rows"], program["inputs"]
    count = len(arrays[names[0]])
    starts = range(0, count, rows)
    chosen = [np.arange(start, start + rows) % count for start in starts]
    return [{name: arrays[name][rows] for name in names} for rows in chosen]


def run_batches(folder: pathlib.Path, model: str, runs: list[dict]) -> None:
    """Outputs of each batch."""
    import numpy as np
    from ai_edge_litert.interpreter import Interpreter

    interpreter = Interpreter(model_path=model)
    for number, about in enumerate(runs):
        runner = interpreter.get_signature_runner(about["signature"])
        outputs = runner(**dict(np.load(folder / f"batch_{number}.npz")))
        np.savez(folder / f"outputs_{number}.npz", **outputs)
