"""The cost of few bits, after training and with training for them, and in files.

    python benchmarks/quantize_aware.py [--data digits] [--epochs 6] [--tune 2]

A convnet is trained on Fashion-MNIST (or scikit-learn's digits), and then for some
more epochs at a tenth of the rate: once as it is, which is quantized afterwards, and
once for each kind of few bits by ``quantize_aware``. Of each the accuracy on the test
set is printed; of those in integers also that of the ONNX file in onnxruntime and of
the LiteRT file in its interpreter, and of how many images they tell another class than
the model.
Needs ``pip install 'exburn[onnx,litert]'``.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

import numpy as np
from int8_files import load
from process import write

import exburn
from exburn import layers

ROWS = 100  # of a file's batch


def make(shape):
    """Three convolutions with normalization, a global mean, and a product."""

    def block(filters: int, strides: int) -> list:
        return [
            layers.Conv2D(filters, 3, strides=strides, padding="same", use_bias=False),
            layers.BatchNormalization(momentum=0.9),
            layers.ReLU(),
        ]

    model = exburn.Sequential(
        [
            exburn.Input(shape, name="image"),
            *block(16, 2),
            *block(32, 2),
            *block(32, 1),
            layers.GlobalAveragePooling2D(),
            layers.Dense(10, activation="softmax", name="kind"),
        ]
    )
    compile_for(model, 3e-3)
    return model


def compile_for(model, rate: float):
    model.compile(exburn.optimizers.Adam(rate), "cross_entropy", metrics=["accuracy"])
    return model


def by_onnxruntime(path: Path, x):
    from onnxruntime import InferenceSession

    session: Any = InferenceSession(str(path), providers=["CPUExecutionProvider"])
    (name,) = (spec.name for spec in session.get_inputs())
    return np.concatenate(
        [session.run(None, {name: part})[0] for part in np.split(x, len(x) // ROWS)]
    )


def by_litert(path: Path, x):
    from ai_edge_litert.interpreter import Interpreter

    run = Interpreter(model_path=str(path)).get_signature_runner("serving_default")
    return np.concatenate(
        [run(image=part)["kind"] for part in np.split(x, len(x) // ROWS)]
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", default="fashion_mnist")
    parser.add_argument("--folder", help="where Fashion-MNIST's files are")
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--tune", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", help="a file for the results")
    options = parser.parse_args()
    exburn.set_random_seed(options.seed)
    (x, y), (x_test, y_test) = load(options.data, options.folder)
    rows = len(x_test) // ROWS * ROWS
    x_test, y_test = x_test[:rows], y_test[:rows]
    batch = min(256, len(x) // 20)
    results: dict[str, Any] = {"rows": rows}

    def share(outputs) -> float:
        return round(100 * float((outputs.argmax(-1) == y_test).mean()), 2)

    def tell(name: str, model, files: bool = False) -> None:
        outputs = model.predict(x_test, batch_size=500, verbose=0)
        shares = {"model": share(outputs)}
        with tempfile.TemporaryDirectory() as folder:
            for suffix, run in (("onnx", by_onnxruntime), ("tflite", by_litert)):
                if not files:
                    continue
                path = Path(folder, f"model.{suffix}")
                sizes = {"batch_sizes": ROWS} if suffix == "tflite" else {}
                report = model.export(path, samples=x[:ROWS], **sizes)
                answers = run(path, x_test)
                apart = int((answers.argmax(-1) != outputs.argmax(-1)).sum())
                shares[suffix] = share(answers)
                shares |= {f"{suffix} apart": apart, f"{suffix} bytes": report.bytes}
        results[name] = shares
        print(f"{name:>34}: {shares}", flush=True)

    def tune(model):
        rate = 3e-4
        start = time.perf_counter()
        compile_for(model, rate).fit(
            x, y, batch_size=batch, epochs=options.tune, verbose=0
        )
        seconds = (time.perf_counter() - start) / options.tune
        print(f"{seconds:>36.1f} s an epoch")
        return model

    base = make(x.shape[1:])
    base.fit(x, y, batch_size=batch, epochs=options.epochs, verbose=2)
    exact = tune(base.clone())
    tell("float32", exact)
    for method in ("minmax", "percentile", "mse"):
        small = exact.quantize("int8", calibration=x[:512], method=method)
        tell(f"int8 after training, {method}", small, files=method == "mse")
    tell("int8 trained", tune(exburn.quantize_aware(base, "int8")).quantize(), True)
    for size in (64, -1):
        tell(
            f"int4 weights, {size}, after training",
            exact.quantize("int4", block_size=size),
        )
        aware = tune(exburn.quantize_aware(base, "int4", block_size=size))
        tell(f"int4 weights, {size}, trained", aware.quantize())
    static = exburn.quantize_aware(
        exact, "int4", activations=True, calibration=x[:512], method="mse"
    )
    tell("int4 and int8, after training", static.quantize())
    aware = tune(exburn.quantize_aware(base, "int4", activations=True))
    tell("int4 and int8, trained", aware.quantize(), True)
    tell("float8 trained", tune(exburn.quantize_aware(base, "float8")).quantize())
    if options.json:
        write(Path(options.json), results)


if __name__ == "__main__":
    main()
