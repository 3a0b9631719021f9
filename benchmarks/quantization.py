"""Prediction with weights in fewer bits, beside float32 and Keras' quantize.

    python benchmarks/quantization.py [--size small|large] [--json out.json]
    python benchmarks/quantization.py --size large --kernels   # on a GPU

``small`` trains four models on scikit-learn's digits (seconds on two cores) and
measures test accuracy; ``large`` takes models of 268 M (``mlp``) and 124 M parameters
(``gpt``) with random weights, and measures how often the largest output is the same as
with float32. A model's schemes are timed in turn, round after round, in one process:

- latency: one row (one sequence), with everything on the device: milliseconds a call
- throughput: rows (sequences) a second in large batches, on the device
- call: milliseconds of ``predict_on_batch`` on one row, from and to host memory

``int8@bfloat16`` is ``quantize("int8", compute_dtype="bfloat16")``. Keras 3 (on JAX)
runs the ``mlp`` with the same weights in a process of its own, where it is installed.
The JSON file is written after every model. ``--seconds`` ends a run early.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import exburn
from exburn import layers
from exburn.compression.quantization.scheme import Scheme
from exburn.compression.quantization.weight import QuantizedWeight
from exburn.module.variable import Parameter
from exburn.training.module import SplitModule

SMALL = ["float16", "bfloat16", "int8", "int8_dynamic", "int4", "float8"]
LARGE = [
    "float16",
    "bfloat16",
    "int8@bfloat16",
    "int8_dynamic@bfloat16",
    "int4@bfloat16",
    "float8@bfloat16",
]
KERAS = ["int8", "int4"]
WORKS = {"small": ["mlp", "cnn", "lstm", "transformer"], "large": ["mlp", "gpt"]}
BATCH = {"small": 256, "large": {"mlp": 4096, "gpt": 32}}
WIDTH, DEPTH, INPUTS = 8192, 4, 8192  # of the large mlp
GPT = {"vocabulary": 50_304, "width": 768, "heads": 12, "blocks": 12, "tokens": 256}


# ------------------------------------------------------------------------- models
def mlp(k: Any, size: str) -> Any:
    if size == "large":
        hidden = [k.layers.Dense(WIDTH, activation="relu") for _ in range(DEPTH)]
        return k.Sequential([k.Input((INPUTS,)), *hidden, k.layers.Dense(16)])
    hidden = [k.layers.Dense(n, activation="relu") for n in (512, 512)]
    return k.Sequential([k.Input((64,)), *hidden, k.layers.Dense(10)])


def cnn() -> Any:
    return exburn.Sequential(
        [
            layers.Input((64,)),
            layers.Reshape((8, 8, 1)),
            layers.Conv2D(32, 3, padding="same", activation="relu"),
            layers.Conv2D(64, 3, strides=2, activation="relu"),
            layers.Flatten(),
            layers.Dense(256, "relu"),
            layers.Dense(10),
        ]
    )


def lstm() -> Any:
    return exburn.Sequential(
        [
            layers.Input((64,)),
            layers.Reshape((8, 8)),
            layers.LSTM(128),
            layers.Dense(10),
        ]
    )


def transformer() -> Any:
    x = layers.Input((64,))
    h = layers.Dense(96)(layers.Reshape((8, 8))(x))
    for _ in range(2):
        y = layers.LayerNormalization()(h)
        h = layers.Add()([h, layers.MultiHeadAttention(4, 24)(y, y)])
        y = layers.Dense(192, "gelu")(layers.LayerNormalization()(h))
        h = layers.Add()([h, layers.Dense(96)(y)])
    h = layers.Flatten()(layers.LayerNormalization()(h))
    return exburn.Model(x, layers.Dense(10)(h))


def gpt() -> Any:
    """GPT-2's smallest size, with scores of the token after the last."""
    tokens = layers.Input((GPT["tokens"],), dtype="int32")
    table = layers.ReversibleEmbedding(GPT["vocabulary"], GPT["width"])
    h, width = table(tokens), GPT["width"]
    for _ in range(GPT["blocks"]):
        y = layers.LayerNormalization()(h)
        attention = layers.MultiHeadAttention(
            GPT["heads"], width // GPT["heads"], rotary=layers.RotaryEmbedding()
        )
        h = layers.Add()([h, attention(y, y, use_causal_mask=True)])
        y = layers.Dense(4 * width, "gelu")(layers.LayerNormalization()(h))
        h = layers.Add()([h, layers.Dense(width)(y)])
    last = layers.LayerNormalization()(h)[:, -1]
    return exburn.Model(tokens, table(last, reverse=True))


def make(work: str, size: str) -> Any:
    if work == "mlp":
        return mlp(exburn, size)
    return {"cnn": cnn, "lstm": lstm, "transformer": transformer, "gpt": gpt}[work]()


def digits() -> tuple:
    from sklearn.datasets import load_digits

    data: Any = load_digits()
    x = (data.data / 16).astype(np.float32)
    order = np.random.default_rng(0).permutation(len(x))
    train, test = np.split(order, [1200])
    return (x[train], data.target[train]), (x[test], data.target[test])


def large_inputs(work: str) -> np.ndarray:
    rng = np.random.default_rng(0)
    rows = BATCH["large"][work]
    if work == "gpt":
        return rng.integers(0, GPT["vocabulary"], (rows, GPT["tokens"])).astype("int32")
    return rng.standard_normal((rows, INPUTS), dtype=np.float32)


# ------------------------------------------------------------------------- measuring
def variant(model: Any, scheme: str) -> Any:
    dtype, _, compute = scheme.partition("@")
    if dtype == "float32":
        return model
    return model.quantize(dtype, compute_dtype=compute or None)


def forward(model: Any, batch: Any) -> Callable[[], Any]:
    """A compiled call of the model on a batch on the device."""
    split = SplitModule(model)
    arrays = split.read()
    run = jax.jit(lambda arrays, x: split.forward(arrays, x, training=False)[0])
    compiled = run.lower(arrays, batch).compile()
    return lambda: compiled(arrays, batch)


def timed(call: Callable[[], Any], seconds: float) -> float:
    """Seconds of one call, from calls that follow each other without waiting."""
    start = time.perf_counter()
    jax.block_until_ready(call())
    once = max(time.perf_counter() - start, 1e-6)
    times = max(3, min(1000, int(seconds / once)))
    start = time.perf_counter()
    for _ in range(times):
        out = call()
    jax.block_until_ready(out)
    return (time.perf_counter() - start) / times


def nbytes(model: Any) -> int:
    return sum(w.get_raw_value().nbytes for w in model.weights)


def saved_bytes(model: Any) -> int:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "weights.safetensors")
        model.save_weights(path)
        return path.stat().st_size


def measure(work: str, size: str, schemes: list[str], rounds: int) -> dict[str, Any]:
    model, slice_ = make(work, size), 0.2 if size == "large" else 0.05
    if size == "small":
        train, (x, y) = digits()
        optimizer = exburn.optimizers.Adam(2e-3)
        model.compile(optimizer, "cross_entropy", seed=0)
        model.fit(*train, batch_size=64, epochs=15, verbose=0)
        big = x[:256]
    else:
        x, y = large_inputs(work), None
        big = x
    entries: dict[str, dict[str, Any]] = {}
    calls: dict[str, dict[str, Any]] = {}
    exact = None
    for scheme in ["float32", *schemes]:
        start = time.perf_counter()
        small = variant(model, scheme)
        quantized = time.perf_counter() - start
        outputs = np.asarray(small.predict(x, batch_size=len(big), verbose=0))
        outputs = outputs.astype(np.float32)
        exact = outputs if exact is None else exact
        entry: dict[str, Any] = {
            "bytes": nbytes(small),
            "quantize_seconds": quantized,
            "same_answer": float((outputs.argmax(-1) == exact.argmax(-1)).mean()),
            "output_error": float(np.abs(outputs - exact).mean() / exact.std()),
        }
        if y is not None:
            entry["accuracy"] = float((outputs.argmax(-1) == y).mean())
            entry["file_bytes"] = saved_bytes(small)
        entries[scheme] = entry
        calls[scheme] = {
            "latency": forward(small, jnp.asarray(big[:1])),
            "throughput": forward(small, jnp.asarray(big)),
            "call": lambda small=small: small.predict_on_batch(big[:1]),
        }
        print(f"  {work}: {scheme} ready", flush=True)
    times: dict[tuple, list[float]] = {}
    for _ in range(rounds):
        for scheme, kinds in calls.items():
            for kind, call in kinds.items():
                times.setdefault((scheme, kind), []).append(timed(call, slice_))
    for (scheme, kind), values in times.items():
        middle = statistics.median(values)
        if kind == "throughput":
            entries[scheme][kind] = len(big) / middle
        else:
            entries[scheme][f"{kind}_ms"] = 1e3 * middle
    for entry in entries.values():
        entry["bytes_ratio"] = entry["bytes"] / entries["float32"]["bytes"]
        entry["speedup"] = entry["throughput"] / entries["float32"]["throughput"]
        entry["latency_speedup"] = (
            entries["float32"]["latency_ms"] / entry["latency_ms"]
        )
    parameters = model.count_params()
    return {"parameters": parameters, "batch": len(big), "schemes": entries}


# ------------------------------------------------------------------------- Keras
def keras_child(size: str, mode: str, weights: str, rounds: int) -> dict[str, Any]:
    os.environ["KERAS_BACKEND"] = "jax"
    import keras

    model = mlp(keras, size)
    with np.load(weights) as file:
        model.set_weights([file[name] for name in file.files])
    if mode != "float32":
        model.quantize(mode)
    x = digits()[1][0] if size == "small" else large_inputs("mlp")
    y = digits()[1][1] if size == "small" else None
    big = x[:256] if size == "small" else x
    call = lambda: model.predict_on_batch(big[:1])  # noqa: E731
    many = lambda: model.predict_on_batch(big)  # noqa: E731
    outputs = model.predict(x, batch_size=len(big), verbose=0)
    entry = {
        "bytes": sum(int(np.asarray(v.value).nbytes) for v in model.variables),
        "call_ms": 1e3 * statistics.median(timed(call, 0.1) for _ in range(rounds)),
        "batch_call_ms": 1e3
        * statistics.median(timed(many, 0.1) for _ in range(rounds)),
        "answers": outputs.argmax(-1).tolist(),
    }
    if y is not None:
        entry["accuracy"] = float((outputs.argmax(-1) == y).mean())
    return entry


def keras_peer(size: str, rounds: int) -> dict[str, Any]:
    """Keras' float32 and quantized mlp with ExBurn's trained weights."""
    model = make("mlp", size)
    if size == "small":
        train, _ = digits()
        model.compile(exburn.optimizers.Adam(2e-3), "cross_entropy", seed=0)
        model.fit(*train, batch_size=64, epochs=15, verbose=0)
    results: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder, "weights.npz"))
        np.savez(path, *model.get_weights())
        del model
        for mode in ["float32", *KERAS]:
            child = ["--child", mode, path, "--size", size, "--rounds", str(rounds)]
            done = subprocess.run(
                [sys.executable, __file__, *child], capture_output=True, text=True
            )
            lines = [s for s in done.stdout.splitlines() if s.startswith("RESULT ")]
            if not lines:
                results[mode] = {"error": done.stderr.strip().splitlines()[-1:]}
                continue
            results[mode] = json.loads(lines[-1].removeprefix("RESULT "))
    exact = results["float32"].get("answers")
    for entry in results.values():
        answers = entry.pop("answers", None)
        if answers is not None and exact is not None:
            same = np.mean(np.array(answers) == np.array(exact))
            entry["same_answer"] = float(same)
    return results


# ------------------------------------------------------------------------- kernels
def kernels(width: int, rounds: int) -> dict[str, Any]:
    """Products of one weight: as a matrix product, and by sums (used for one row)."""
    rng = np.random.default_rng(0)
    weight = rng.standard_normal((width, width), dtype=np.float32)
    half = jnp.asarray(weight, jnp.bfloat16)
    calls: dict[str, Callable[[], Any]] = {}
    for rows in (1, 8, 128, 2048):
        x = jnp.asarray(rng.standard_normal((rows, width)), jnp.bfloat16)
        product = jax.jit(jnp.matmul)
        calls[f"bfloat16 {rows}"] = lambda x=x, product=product: product(x, half)
        for dtype, block in (("int8", None), ("int4", 64), ("float8", None)):
            scheme = Scheme(dtype, (width, width), (0,), block)
            small = QuantizedWeight(Parameter(weight), scheme)
            arrays = small.values.get_value(), small.scale.get_value()
            forms: dict[str, Callable] = {"product": _as_product}
            if rows == 1:
                forms["sums"] = lambda w, x, v, s: w._vector(x, v, s)
            for form, function in forms.items():
                run = jax.jit(lambda x, v, s, w=small, f=function: f(w, x, v, s))
                calls[f"{dtype} {rows} {form}"] = lambda run=run, x=x, a=arrays: run(
                    x, *a
                )
    times: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(rounds):
        for name, call in calls.items():
            times[name].append(timed(call, 0.05))
    return {name: 1e6 * statistics.median(t) for name, t in times.items()}


def _as_product(weight: QuantizedWeight, x: Any, values: Any, scale: Any) -> Any:
    """What ``weight.multiply`` computes for many rows."""
    axes = (((1,), (1,)), ((), ()))
    if weight.scheme.dtype == "int4":
        matrix = weight.scheme.decode_rows({"values": values, "scale": scale}, x.dtype)
        return jax.lax.dot_general(x, matrix, axes)
    wide = {"preferred_element_type": jnp.float32}
    y = jax.lax.dot_general(x, values.astype(x.dtype), axes, **wide)
    return (y * scale.astype(jnp.float32)).astype(x.dtype)


# ------------------------------------------------------------------------- the run
def show(work: str, result: dict[str, Any]) -> None:
    print(f"\n{work}: {result['parameters']:,} parameters, batch {result['batch']}")
    header = "scheme bytes ratio accuracy same latency speed-up rows/s speed-up call"
    print(
        "{:22}{:>14}{:>7}{:>10}{:>8}{:>11}{:>9}{:>13}{:>9}{:>9}".format(*header.split())
    )
    for scheme, e in result["schemes"].items():
        score = e.get("accuracy")
        print(
            f"{scheme:22}{e['bytes']:>14,}{e['bytes_ratio']:>7.3f}"
            f"{'' if score is None else f'{100 * score:.2f} %':>10}"
            f"{100 * e['same_answer']:>6.1f} %{e['latency_ms']:>8.3f} ms"
            f"{e['latency_speedup']:>7.2f} x{e['throughput']:>13,.0f}"
            f"{e['speedup']:>7.2f} x{e['call_ms']:>6.2f} ms",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--size", choices=["small", "large"], default="small")
    parser.add_argument("--work", help="of mlp, cnn, lstm, transformer, gpt")
    parser.add_argument("--schemes", help="with commas between; all by default")
    parser.add_argument("--peers", default="exburn,keras")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--kernels", action="store_true")
    parser.add_argument("--seconds", type=float, default=220)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--child", nargs=2, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child:
        mode, weights = args.child
        answers = keras_child(args.size, mode, weights, args.rounds)
        print("RESULT", json.dumps(answers))
        return
    start = time.perf_counter()
    peers = args.peers.split(",")
    schemes = args.schemes.split(",") if args.schemes else None
    schemes = schemes or (LARGE if args.size == "large" else SMALL)
    device = jax.devices()[0]
    report: dict[str, Any] = {
        "device": f"{device.platform} {device.device_kind}",
        "versions": {
            "python": platform.python_version(),
            "jax": jax.__version__,
            "exburn": exburn.__version__,
        },
        "size": args.size,
        "works": {},
    }

    def save() -> None:
        report["seconds"] = round(time.perf_counter() - start, 1)
        if args.json:
            args.json.write_text(json.dumps(report, indent=1) + "\n")

    def late(what: str) -> bool:
        over = time.perf_counter() - start > args.seconds
        if over:
            print(f"left out for want of time: {what}", flush=True)
        return over

    if args.kernels:
        width = WIDTH if args.size == "large" else 1024
        report["kernels_us"] = {"width": width, **kernels(width, args.rounds)}
        for name, value in report["kernels_us"].items():
            print(f"{name:24}{value:>12,.1f}")
        save()
    works = args.work.split(",") if args.work else WORKS[args.size]
    for work in works if "exburn" in peers else []:
        if late(work):
            continue
        result = measure(work, args.size, schemes, args.rounds)
        report["works"][work] = result
        show(work, result)
        save()
    has_keras = importlib.util.find_spec("keras") is not None
    if "keras" in peers and has_keras and "mlp" in works and not late("keras"):
        report["keras"] = {"mlp": keras_peer(args.size, args.rounds)}
        print("\nKeras' mlp:", json.dumps(report["keras"]["mlp"], indent=1))
        save()


if __name__ == "__main__":
    main()
