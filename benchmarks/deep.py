"""Deep models of equal blocks: how long they take to start, and a step.

    python benchmarks/deep.py [--kinds transformer] [--blocks 2,8,32] [--widths 64,256]
        [--batches 8] [--peers exburn,loops] [--rounds 1] [--json F]

Every measurement is a process of its own; its row is printed as it comes. A start is
the time from the first layer to the end of the first epoch, with an empty folder for
compiled programs; a step is that of the fastest of some further epochs. Both by the
clock and by the processor's time, which is what a busy machine leaves to compare.

Peers: ``exburn``: block by block; ``loops``: after `config.enable_block_loops`;
``scan``: JAX and optax by hand, one ``lax.scan`` over stacked parameters (transformers
only); ``keras``.
Kinds: ``transformer`` (normalization before attention and dense layers), ``post``
(behind them), ``mlp`` (residual dense layers on tables), ``dropout`` (the same with
dropout), ``convolution`` (residual, with batch normalization).
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
import numpy as np
from process import options, result_of, write

PEERS = ("exburn", "loops", "scan", "keras")
KINDS = ("transformer", "post", "mlp", "dropout", "convolution")
TOKENS, VOCABULARY, HEADS, IMAGE = 32, 256, 4, 16
STEPS, EPOCHS = 16, 2


def data(kind: str, width: int, rows: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    if kind in ("transformer", "post"):
        text = rng.integers(0, VOCABULARY, (rows, TOKENS + 1)).astype(np.int32)
        return text[:, :-1].copy(), text[:, 1:].copy()
    shape = (IMAGE, IMAGE, width) if kind == "convolution" else (width,)
    x = rng.standard_normal((rows, *shape), dtype=np.float32)
    return x, rng.integers(0, VOCABULARY, rows).astype(np.int32)


def block(kind: str, layers: Any, h: Any, width: int) -> Any:
    """Builds a block in the vocabulary that Keras and ExBurn share."""

    def normalize(v):
        return layers.LayerNormalization(epsilon=1e-5)(v)

    def attend(v):
        attention = layers.MultiHeadAttention(HEADS, width // HEADS)
        return attention(v, v, use_causal_mask=True)

    def feed(v):
        return layers.Dense(width)(layers.Dense(4 * width, activation="gelu")(v))

    if kind == "transformer":
        h = layers.Add()([h, attend(normalize(h))])
        return layers.Add()([h, feed(normalize(h))])
    if kind == "post":
        h = normalize(layers.Add()([h, attend(h)]))
        return normalize(layers.Add()([h, feed(h)]))
    if kind == "convolution":
        z = layers.Conv2D(width, 3, padding="same")(h)
        z = layers.ReLU()(layers.BatchNormalization()(z))
        return layers.Add()([h, layers.Conv2D(width, 3, padding="same")(z)])
    z = layers.Dense(width, activation="relu")(normalize(h))
    if kind == "dropout":
        z = layers.Dropout(0.1)(z)
    return layers.Add()([h, layers.Dense(width)(z)])


def build(kind: str, k: Any, blocks: int, width: int) -> Any:
    layers = k.layers
    if kind in ("transformer", "post"):
        inputs = k.Input((TOKENS,), dtype="int32")
        h = layers.Embedding(VOCABULARY, width)(inputs)
    else:
        shape = (IMAGE, IMAGE, width) if kind == "convolution" else (width,)
        inputs = h = k.Input(shape)
    for _ in range(blocks):
        h = block(kind, layers, h, width)
    if kind == "convolution":
        h = layers.GlobalAveragePooling2D()(h)
    return k.Model(inputs, layers.Dense(VOCABULARY)(h))


def child(
    kind: str, blocks: int, width: int, batch: int, peer: str
) -> dict[str, float]:
    x, y = data(kind, width, STEPS * batch)
    if peer == "scan":
        fit = by_hand(x, y, blocks, width, batch)
        return measured(time.perf_counter(), time.process_time(), fit)
    if peer == "keras":
        os.environ["KERAS_BACKEND"] = "jax"
        import keras as k
    else:
        import exburn as k

        if peer == "loops":
            k.config.enable_block_loops()
    library: Any = k
    clock, processor = time.perf_counter(), time.process_time()
    model = build(kind, library, blocks, width)
    loss = library.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer="adam", loss=loss)

    def fit(epochs: int) -> None:
        logs = model.fit(x, y, batch_size=batch, epochs=epochs, verbose=0).history
        assert np.isfinite(logs["loss"]).all()

    return measured(clock, processor, fit)


def measured(clock: float, processor: float, fit: Any) -> dict[str, float]:
    """Seconds of the start, since these times, and of a step."""
    fit(1)
    result = {
        "start": time.perf_counter() - clock,
        "start_processor": time.process_time() - processor,
    }
    spans = []
    begun = time.perf_counter()
    while len(spans) < 3 or (len(spans) < 20 and time.perf_counter() - begun < 15):
        clock, processor = time.perf_counter(), time.process_time()
        fit(EPOCHS)
        spans.append((time.perf_counter() - clock, time.process_time() - processor))
    for name, column in zip(
        ("step", "step_processor"), zip(*spans, strict=True), strict=True
    ):
        result[name] = min(column) / (EPOCHS * STEPS)
    return result


def by_hand(x: Any, y: Any, blocks: int, width: int, batch: int) -> Any:
    """A transformer as a JAX user writes it: a scan over steps, one over blocks."""
    import jax
    import jax.numpy as jnp
    import optax

    draw = np.random.default_rng(0).standard_normal

    def weight(*shape: int) -> Any:
        return jnp.asarray(draw(shape) / np.sqrt(shape[-2]), "float32")

    deep = {
        "attend": weight(blocks, width, 3 * width),
        "join": weight(blocks, width, width),
        "widen": weight(blocks, width, 4 * width),
        "narrow": weight(blocks, 4 * width, width),
        "scales": jnp.ones((blocks, 2, width)),
        "shifts": jnp.zeros((blocks, 2, width)),
    }
    params = {"deep": deep, "table": weight(VOCABULARY, width)}
    params["head"] = weight(width, VOCABULARY)
    optimizer = optax.adam(1e-3)

    def normalize(v: Any, scale: Any, shift: Any) -> Any:
        v = v - v.mean(-1, keepdims=True)
        return (
            v * jax.lax.rsqrt(jnp.square(v).mean(-1, keepdims=True) + 1e-5) * scale
            + shift
        )

    def turn(h: Any, w: Any) -> tuple[Any, None]:
        z = normalize(h, w["scales"][0], w["shifts"][0]) @ w["attend"]
        parts = jnp.split(z.reshape(*z.shape[:2], HEADS, -1), 3, -1)
        attended = jax.nn.dot_product_attention(*parts, is_causal=True)
        h = h + attended.reshape(h.shape) @ w["join"]
        z = normalize(h, w["scales"][1], w["shifts"][1])
        return h + jax.nn.gelu(z @ w["widen"], approximate=False) @ w["narrow"], None

    def loss(params: Any, x: Any, y: Any) -> Any:
        h, _ = jax.lax.scan(turn, params["table"][x], params["deep"])
        scores = h @ params["head"]
        return optax.softmax_cross_entropy_with_integer_labels(scores, y).mean()

    def step(carry: Any, rows: Any) -> tuple[Any, Any]:
        params, state = carry
        value, slopes = jax.value_and_grad(loss)(params, *rows)
        updates, state = optimizer.update(slopes, state, params)
        return (optax.apply_updates(params, updates), state), value

    epoch = jax.jit(
        lambda carry, rows: jax.lax.scan(step, carry, rows), donate_argnums=0
    )
    batches = tuple(v.reshape(-1, batch, *v.shape[1:]) for v in (x, y))
    carry = [(params, optimizer.init(params))]

    def fit(epochs: int) -> None:
        for _ in range(epochs):
            carry[0], values = epoch(carry[0], batches)
            assert np.isfinite(np.asarray(values)).all()

    return fit


def show(cell: tuple, peer: str, result: dict[str, float]) -> None:
    kind, blocks, width, batch = cell
    numbers = "  ".join(
        f"{name} {result[name] * scale:8.2f} {unit}"
        for name, scale, unit in (
            ("start", 1, "s"),
            ("start_processor", 1, "s"),
            ("step", 1000, "ms"),
            ("step_processor", 1000, "ms"),
        )
    )
    print(
        f"{kind:12} {blocks:3} x {width:4}, {batch:4}  {peer:9} {numbers}", flush=True
    )


def numbers(text: str) -> list[int]:
    return [int(word) for word in text.split(",")]


def main() -> None:
    parser = options(__doc__, PEERS[:2])
    parser.add_argument("--kinds", default="transformer")
    parser.add_argument("--blocks", type=numbers, default=[2, 8, 32])
    parser.add_argument("--widths", type=numbers, default=[64])
    parser.add_argument("--batches", type=numbers, default=[8])
    parser.add_argument("--rounds", type=int, default=1)
    args: argparse.Namespace = parser.parse_args()
    if args.child:
        work, peer = args.child
        kind, *sizes = work.split("-")
        blocks, width, batch = map(int, sizes)
        print("RESULT " + json.dumps(child(kind, blocks, width, batch, peer)))
        return
    rows: list[dict[str, Any]] = []
    cells = itertools.product(
        args.kinds.split(","), args.blocks, args.widths, args.batches
    )
    for cell in cells:
        for peer in args.rounds * args.peers.split(","):
            if peer == "scan" and cell[0] != "transformer":
                continue
            with tempfile.TemporaryDirectory() as folder:
                env = {"EXBURN_COMPILATION_CACHE": folder}
                result = result_of(__file__, "-".join(map(str, cell)), peer, env=env)
            if result:
                show(cell, peer, result)
                rows.append({"cell": cell, "peer": peer, **result})
                if args.json:
                    write(args.json, rows)


if __name__ == "__main__":
    main()
