"""Cold start: from the first import to the end of the first steps, beside Keras.

    python benchmarks/cold_start.py [--work convnet,mlp50] [--rounds 3] [--json F]

Every measurement is a process of its own, the peers in turn; medians are printed. The
clock runs from before ``import exburn`` (or ``keras``), over building, compile and data
transfer, to the end of a ``fit`` of ``--steps`` steps with a metric, and with
validation data of as many rows where ``--validation`` is given. ExBurn runs twice: with
an empty folder for compiled programs, and again with what the first process left
there. Keras has no such folder by default; ``--peers …,keras-cached`` gives it JAX's.
``hand-written`` and ``hand-written-second`` are the convnet in JAX and optax, with
JAX's folder: what a start takes that nothing but JAX has a part in.
Each library is imported once before: its files are in memory, and their bytecode is on
disk, as that of an installed package is.

With ``--json`` what is there already is not measured again.
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
import numpy as np
import workloads
from process import environment_of, options, read, result_of, write

PEERS = ("exburn", "exburn-second", "keras", "hand-written", "hand-written-second")
WORK = ("convnet", "mlp50", "transformer12", "resnet50")
PARTS = ("import", "build", "fit", "trace", "lower", "compile", "processor")
WIDTHS = [64 + 3 * i for i in range(50)]
TOKENS, VOCABULARY, WIDTH, HEADS = 64, 256, 256, 8
IMAGE = (64, 64, 3)
BATCH = {"convnet": 128, "mlp50": 128, "transformer12": 8, "resnet50": 4}


def data(work: str, rows: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    if work == "convnet":
        return workloads.data("cnn", rows)
    if work == "transformer12":
        text = rng.integers(0, VOCABULARY, (rows, TOKENS + 1)).astype(np.int32)
        return text[:, :-1].copy(), text[:, 1:].copy()
    shape = (32,) if work == "mlp50" else IMAGE
    x = rng.standard_normal((rows, *shape), dtype=np.float32)
    return x, rng.integers(0, 10, rows).astype(np.int32)


def build(work: str, k: Any) -> Any:
    """The model in the vocabulary that Keras and ExBurn share."""
    layers = k.layers
    if work == "convnet":
        return workloads.keras_like("cnn", k, layers, None)
    if work == "mlp50":
        hidden = (layers.Dense(width, activation="relu") for width in WIDTHS)
        return k.Sequential([k.Input((32,)), *hidden, layers.Dense(10)])
    if work == "transformer12":
        return transformer(k, layers)
    return resnet50(k, layers)


def transformer(k: Any, layers: Any) -> Any:
    tokens = k.Input((TOKENS,), dtype="int32")
    h = layers.Embedding(VOCABULARY, WIDTH)(tokens)
    for _ in range(12):
        z = layers.LayerNormalization(epsilon=1e-5)(h)
        attend = layers.MultiHeadAttention(HEADS, WIDTH // HEADS)
        h = layers.Add()([h, attend(z, z, use_causal_mask=True)])
        z = layers.LayerNormalization(epsilon=1e-5)(h)
        z = layers.Dense(4 * WIDTH, activation="gelu")(z)
        h = layers.Add()([h, layers.Dense(WIDTH)(z)])
    return k.Model(tokens, layers.Dense(VOCABULARY)(h))


def resnet50(k: Any, layers: Any) -> Any:
    """ResNet-50 (He et al., Deep Residual Learning, 2015) for ten classes."""
    x = k.Input(IMAGE)

    def convolved(h, filters, size=1, stride=1):
        h = layers.Conv2D(filters, size, stride, padding="same")(h)
        return layers.BatchNormalization()(h)

    h = layers.ReLU()(convolved(x, 64, 7, 2))
    h = layers.MaxPooling2D(3, 2, padding="same")(h)
    for filters, blocks in ((64, 3), (128, 4), (256, 6), (512, 3)):
        for block in range(blocks):
            stride = 2 if block == 0 and filters > 64 else 1
            skip = h if block else convolved(h, 4 * filters, 1, stride)
            z = layers.ReLU()(convolved(h, filters, 1, stride))
            z = layers.ReLU()(convolved(z, filters, 3))
            h = layers.ReLU()(layers.Add()([skip, convolved(z, 4 * filters)]))
    return k.Model(x, layers.Dense(10)(layers.GlobalAveragePooling2D()(h)))


def child(work: str, peer: str, steps: int, validation: bool) -> dict[str, Any]:
    x, y = data(work, BATCH[work] * steps)
    if peer.startswith("hand-written"):
        return by_hand(x, y, BATCH[work])
    times = [time.perf_counter()]
    if peer.startswith("exburn"):
        import exburn as library
    else:
        os.environ["KERAS_BACKEND"] = "jax"
        import keras as library
    k: Any = library
    times.append(time.perf_counter())
    phases = watch_compiler()
    model = build(work, k)
    loss = k.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer="adam", loss=loss, metrics=["accuracy"])
    times.append(time.perf_counter())
    extra = {"validation_data": (x, y)} if validation else {}
    history = model.fit(x, y, batch_size=BATCH[work], epochs=1, verbose=0, **extra)
    assert np.isfinite(history.history["loss"]).all()
    times.append(time.perf_counter())
    return measured(times, int(model.count_params()), phases)


def by_hand(x: np.ndarray, y: np.ndarray, batch: int) -> dict[str, Any]:
    """The convnet as a JAX user writes it: one compiled call a step."""
    times = [time.perf_counter()]
    import jax
    import jax.numpy as jnp
    import optax

    times.append(time.perf_counter())
    phases = watch_compiler()
    params, forward = workloads.hand_written("cnn")
    optimizer = optax.adam(1e-3)
    state = optimizer.init(params)
    times.append(time.perf_counter())

    def loss_of(params, x, y):
        scores = forward(params, x)
        losses = optax.softmax_cross_entropy_with_integer_labels(scores, y)
        return losses.mean(), jnp.mean(scores.argmax(-1) == y)

    @functools.partial(jax.jit, donate_argnums=(0, 1))
    def step(params, state, x, y):
        (loss, hits), slopes = jax.value_and_grad(loss_of, has_aux=True)(params, x, y)
        updates, state = optimizer.update(slopes, state)
        return optax.apply_updates(params, updates), state, (loss, hits)

    for start in range(0, len(x), batch):
        rows = slice(start, start + batch)
        params, state, logs = step(params, state, x[rows], y[rows])
    assert np.isfinite(jax.device_get(logs)).all()
    times.append(time.perf_counter())
    return measured(times, sum(p.size for p in jax.tree.leaves(params)), phases)


def measured(times: list[float], parameters: int, phases: dict) -> dict[str, Any]:
    """The result: times are before and after import, after building, at the end."""
    spans = [b - a for a, b in zip(times, times[1:], strict=False)]
    return {
        "seconds": times[-1] - times[0],
        "processor": time.process_time(),
        "parameters": parameters,
        **dict(zip(("import", "build", "fit"), spans, strict=True)),
        **phases,
    }


def watch_compiler() -> dict[str, float]:
    """Seconds that JAX spends on tracing, lowering and compiling from now on."""
    import jax.monitoring

    events = {
        "jaxpr_trace_duration": "trace",
        "jaxpr_to_mlir_module_duration": "lower",
        "backend_compile_duration": "compile",
    }
    seconds = dict.fromkeys(events.values(), 0.0)

    def note(event: str, duration_secs: float, **_) -> None:
        if (phase := events.get(event.rsplit("/", 1)[-1])) is not None:
            seconds[phase] += duration_secs

    jax.monitoring.register_event_duration_secs_listener(note)
    return seconds


def import_once(peers: list[str]) -> None:
    """So that no process that is measured compiles Python or waits for a disk."""
    env = environment_of(PYTHONDONTWRITEBYTECODE="", KERAS_BACKEND="jax")
    for library in sorted({peer.split("-")[0] for peer in peers} - {"hand"}):
        # With what `import exburn` leaves to the first use.
        subprocess.run([sys.executable, "-c", f"from {library} import *"], env=env)


def measure(work: str, peer: str, args: argparse.Namespace, folder: str) -> Any:
    """One process; the folder is emptied before, but for a second one."""
    env = {"EXBURN_COMPILATION_CACHE": folder}
    if not peer.startswith("exburn"):
        env = {"JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0.02"}
    if peer == "keras-cached" or peer.startswith("hand"):
        env["JAX_COMPILATION_CACHE_DIR"] = folder
    if not peer.endswith("-second"):
        shutil.rmtree(folder, ignore_errors=True)
    words = ["--steps", str(args.steps)]
    words += ["--validation"] if args.validation else []
    if peer == "keras-cached":
        result_of(__file__, work, peer, *words, env=env)
    return result_of(__file__, work, peer, *words, env=env)


def main() -> None:
    parser = options(__doc__, PEERS, WORK)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=2)
    parser.add_argument("--validation", action="store_true")
    args = parser.parse_args()
    if args.child:
        work, peer = args.child
        print("RESULT " + json.dumps(child(work, peer, args.steps, args.validation)))
        return
    results: dict[str, dict[str, list]] = read(args.json)
    import_once(args.peers.split(","))
    with tempfile.TemporaryDirectory() as home:
        for work in args.work.split(","):
            runs = results.setdefault(work, {})
            for turn in range(args.rounds):
                for peer in args.peers.split(","):
                    if peer.startswith("hand") and work != "convnet":
                        continue
                    if len(runs.setdefault(peer, [])) > turn:
                        continue
                    out = measure(work, peer, args, f"{home}/{work}")
                    runs[peer] += [out] if out else []
                    if args.json:
                        write(args.json, results)
            show(work, runs)


def show(work: str, runs: dict[str, list]) -> None:
    median = {
        peer: statistics.median(run["seconds"] for run in starts)
        for peer, starts in runs.items()
        if starts
    }
    for peer, seconds in median.items():
        parts = ", ".join(
            f"{part} {statistics.median(run[part] for run in runs[peer]):.2f}"
            for part in PARTS
        )
        line = f"{work:14} {peer:14} {seconds:6.2f} s ({parts})"
        base = peer.removesuffix("-second")
        base = "keras" if base == peer else base
        if base in median and peer != base:
            line += f"  {seconds / median[base]:.2f} × {base}"
        print(line, flush=True)


if __name__ == "__main__":
    main()
