"""The time to build large models, weights and all, beside Keras.

    python benchmarks/building.py [--work gpt,resnet50] [--rounds 3] [--json F]

Every measurement is a process of its own, the peers in turn; medians are printed. A
small model is built before the clock starts, so that imports do not count (what they
take: ``cold_start.py``). The clock runs until every weight is on the device.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
import numpy as np
from process import options, read, result_of, write

PEERS = ("exburn", "keras")
WORK = (
    *("gpt", "bert", "resnet50", "resnet152", "efficientnet", "unet"),
    *("dense200", "graph1000", "subclassed"),
)


def encoder(
    k: Any, h: Any, blocks: int, width: int, heads: int, causal: bool, first: bool
) -> Any:
    """Blocks of attention and two products, normalized before or after them."""
    layers = k.layers
    for _ in range(blocks):
        z = layers.LayerNormalization(epsilon=1e-5)(h) if first else h
        attend = layers.MultiHeadAttention(heads, width // heads)
        h = layers.Add()([h, attend(z, z, use_causal_mask=causal)])
        h = h if first else layers.LayerNormalization(epsilon=1e-12)(h)
        z = layers.LayerNormalization(epsilon=1e-5)(h) if first else h
        z = layers.Dense(4 * width, activation="gelu")(z)
        h = layers.Add()([h, layers.Dense(width)(z)])
        h = h if first else layers.LayerNormalization(epsilon=1e-12)(h)
    return h


def gpt(k: Any) -> Any:
    tokens = k.Input((512,), dtype="int32")
    h = k.layers.Embedding(32_000, 1024)(tokens)
    h = encoder(k, h, blocks=24, width=1024, heads=16, causal=True, first=True)
    return k.Model(tokens, k.layers.Dense(32_000)(k.layers.LayerNormalization()(h)))


def bert(k: Any) -> Any:
    tokens = k.Input((512,), dtype="int32")
    segments = k.Input((512,), dtype="int32")
    words = k.layers.Embedding(30_522, 768)(tokens)
    h = k.layers.Add()([words, k.layers.Embedding(2, 768)(segments)])
    h = k.layers.Dropout(0.1)(k.layers.LayerNormalization(epsilon=1e-12)(h))
    h = encoder(k, h, blocks=12, width=768, heads=12, causal=False, first=False)
    return k.Model([tokens, segments], k.layers.Dense(768, activation="tanh")(h))


def convolved(k: Any, h: Any, filters: int, size: int = 1, stride: int = 1) -> Any:
    h = k.layers.Conv2D(filters, size, stride, padding="same", use_bias=False)(h)
    return k.layers.BatchNormalization()(h)


def resnet(k: Any, depths: tuple[int, ...]) -> Any:
    """He et al., Deep Residual Learning, 2015."""
    layers = k.layers
    x = k.Input((224, 224, 3))
    h = layers.ReLU()(convolved(k, x, 64, 7, 2))
    h = layers.MaxPooling2D(3, 2, padding="same")(h)
    for stage, blocks in enumerate(depths):
        filters = 64 << stage
        for block in range(blocks):
            stride = 2 if block == 0 and stage else 1
            skip = h if block else convolved(k, h, 4 * filters, 1, stride)
            z = layers.ReLU()(convolved(k, h, filters, 1, stride))
            z = layers.ReLU()(convolved(k, z, filters, 3))
            h = layers.ReLU()(layers.Add()([skip, convolved(k, z, 4 * filters)]))
    return k.Model(x, layers.Dense(1000)(layers.GlobalAveragePooling2D()(h)))


def efficientnet(k: Any) -> Any:
    """EfficientNet-B3's blocks (Tan & Le, 2019), without its scaling of pixels."""
    layers = k.layers
    x = k.Input((300, 300, 3))
    h = layers.Activation("silu")(convolved(k, x, 40, 3, 2))
    stages = ((24, 2, 3, 1, 1), (32, 3, 3, 2, 6), (48, 3, 5, 2, 6), (96, 5, 3, 2, 6))
    stages += ((136, 5, 5, 1, 6), (232, 6, 5, 2, 6), (384, 2, 3, 1, 6))
    for filters, blocks, size, stride, factor in stages:
        for block in range(blocks):
            width = h.shape[-1]
            z = h
            if factor > 1:
                z = layers.Activation("silu")(convolved(k, z, factor * width))
            step = stride if block == 0 else 1
            depthwise = layers.DepthwiseConv2D(
                size, step, padding="same", use_bias=False
            )
            z = layers.Activation("silu")(layers.BatchNormalization()(depthwise(z)))
            s = layers.GlobalAveragePooling2D(keepdims=True)(z)
            s = layers.Conv2D(max(1, width // 4), 1, activation="silu")(s)
            s = layers.Conv2D(z.shape[-1], 1, activation="sigmoid")(s)
            z = convolved(k, layers.Multiply()([z, s]), filters)
            h = layers.Add()([h, z]) if block else z
    h = layers.GlobalAveragePooling2D()(convolved(k, h, 1536))
    return k.Model(x, layers.Dense(1000)(layers.Dropout(0.3)(h)))


def unet(k: Any) -> Any:
    layers = k.layers
    x = k.Input((256, 256, 3))

    def twice(h: Any, filters: int) -> Any:
        for _ in range(2):
            h = layers.ReLU()(convolved(k, h, filters, 3))
        return h

    h, skips = x, []
    for filters in (64, 128, 256, 512):
        skips.append(twice(h, filters))
        h = layers.MaxPooling2D(2)(skips[-1])
    h = twice(h, 1024)
    for filters in (512, 256, 128, 64):
        h = layers.Conv2DTranspose(filters, 2, 2)(h)
        h = twice(layers.Concatenate()([skips.pop(), h]), filters)
    return k.Model(x, layers.Conv2D(21, 1)(h))


def dense200(k: Any) -> Any:
    hidden = [k.layers.Dense(512, activation="relu") for _ in range(200)]
    return k.Sequential([k.Input((512,)), *hidden, k.layers.Dense(10)])


def graph1000(k: Any) -> Any:
    """A thousand small layers: branches that are added, with strings of functions."""
    layers = k.layers
    x = k.Input((16,))
    h = x
    for _ in range(250):
        z = layers.Dense(16)(h)
        z = layers.Activation("relu")(layers.LayerNormalization()(z))
        h = layers.Add()([h, z])
    return k.Model(x, layers.Dense(1)(h))


def subclassed(k: Any) -> Any:
    """Blocks that are layers of a user's, in a model of a user's."""
    layers = k.layers

    class Block(layers.Layer):
        def __init__(self, width: int, **options: Any):
            super().__init__(**options)
            self.norm = layers.LayerNormalization()
            self.up = layers.Dense(4 * width, activation="gelu")
            self.down = layers.Dense(width)
            self.drop = layers.Dropout(0.1)

        def build(self, shape: Any) -> None:
            self.norm.build(shape)
            self.up.build(shape)
            self.down.build((*shape[:-1], 4 * shape[-1]))
            self.drop.build(shape)

        def call(self, x: Any, training: bool | None = None) -> Any:
            h = self.down(self.up(self.norm(x)))
            return x + self.drop(h, training=training)

    class Network(k.Model):
        def __init__(self):
            super().__init__()
            self.first = layers.Dense(512)
            self.blocks = [Block(512) for _ in range(24)]
            self.head = layers.Dense(10)

        def call(self, x: Any, training: bool | None = None) -> Any:
            h = self.first(x)
            for block in self.blocks:
                h = block(h, training=training)
            return self.head(h)

    model = Network()
    model(np.zeros((2, 64), np.float32))
    return model


MODELS = {
    "gpt": gpt,
    "bert": bert,
    "resnet50": lambda k: resnet(k, (3, 4, 6, 3)),
    "resnet152": lambda k: resnet(k, (3, 8, 36, 3)),
    "efficientnet": efficientnet,
    "unet": unet,
    "dense200": dense200,
    "graph1000": graph1000,
    "subclassed": subclassed,
}


def child(work: str, peer: str) -> dict[str, float]:
    if peer == "keras":
        os.environ["KERAS_BACKEND"] = "jax"
        import keras as library
    else:
        import exburn as library
    import jax

    k: Any = library
    x = k.Input((2,))
    assert k.Model(x, k.layers.Dense(3)(x)).count_params() == 9
    start, processor = time.perf_counter(), time.process_time()
    model = MODELS[work](k)
    jax.block_until_ready([weight.value for weight in model.weights])
    seconds = time.perf_counter() - start
    processor = time.process_time() - processor
    parameters = int(model.count_params())
    return {"seconds": seconds, "processor": processor, "parameters": parameters}


def main() -> None:
    parser = options(__doc__, PEERS, WORK)
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    if args.child:
        print("RESULT " + json.dumps(child(*args.child)))
        return
    results: dict[str, dict[str, list]] = read(args.json)
    for work in args.work.split(","):
        runs = results.setdefault(work, {})
        for _ in range(args.rounds):
            for peer in args.peers.split(","):
                if len(runs.setdefault(peer, [])) < args.rounds:
                    run = result_of(__file__, work, peer)
                    runs[peer] += [run] if run else []
            if args.json:
                write(args.json, results)
        print_row(work, runs)


def print_row(work: str, runs: dict[str, list]) -> None:
    """Medians by the clock and by processor time, and their ratio to Keras'."""
    cells = []
    for peer, measured in runs.items():
        if measured:
            clock, processor = (
                statistics.median(run[part] for run in measured)
                for part in ("seconds", "processor")
            )
            size = measured[0]["parameters"] / 1e6
            cells.append(f"{peer} {clock:.2f} s ({processor:.2f}; {size:.1f} M)")
    print(f"{work:13}", "  ".join(cells), flush=True)


if __name__ == "__main__":
    main()
