"""Small convolutional models: ExBurn's convolutions and XLA's.

    python benchmarks/convolutions.py [--only mobilenet,resnext] [--rounds 4]
    python benchmarks/convolutions.py --samples 4096 --batch 128  # on a GPU
    … --policy mixed_bfloat16

Each model exists three times in this process: with ExBurn's forms, with those of XLA
alone (``config.disable_convolution_forms()``), and of Keras. They run in turn, epochs
of 128 samples and predictions of them; printed are the least times and their ratios to
those of ExBurn: above 1, ExBurn is faster.
"""

from __future__ import annotations

import argparse
import os
import time
from typing import Any

os.environ["KERAS_BACKEND"] = "jax"
os.environ.setdefault("EXBURN_COMPILATION_CACHE", "off")

import keras
import numpy as np

import exburn


def normalized(layers: Any, layer: Any, h: Any) -> Any:
    return layers.ReLU()(layers.BatchNormalization()(layer(h)))


def classified(k: Any, x: Any, h: Any) -> Any:
    h = k.layers.GlobalAveragePooling2D()(h)
    return k.Model(x, k.layers.Dense(10, activation="softmax")(h))


def resnet(k: Any) -> Any:
    """Bottlenecks (He et al., Deep Residual Learning, 2015)."""
    layers, x = k.layers, k.Input((32, 32, 3))
    h = layers.Conv2D(64, 3, padding="same")(x)
    for filters, stride in ((64, 1), (128, 2), (256, 2)):
        for step in (stride, 1):
            wide = layers.Conv2D(2 * filters, 1, step)
            skip = layers.BatchNormalization()(wide(h)) if step is stride else h
            z = normalized(layers, layers.Conv2D(filters // 2, 1, step), h)
            same = layers.Conv2D(filters // 2, 3, padding="same")
            z = layers.Conv2D(2 * filters, 1)(normalized(layers, same, z))
            h = layers.ReLU()(layers.Add()([skip, layers.BatchNormalization()(z)]))
    return classified(k, x, h)


def mobilenet(k: Any) -> Any:
    """Depthwise and pointwise in turn (Howard et al., MobileNets, 2017)."""
    layers, x = k.layers, k.Input((32, 32, 3))
    h = normalized(layers, layers.Conv2D(32, 3, 2, padding="same"), x)
    for filters, stride in ((64, 1), (128, 2), (128, 1), (256, 2), (256, 1)):
        depthwise = layers.DepthwiseConv2D(3, stride, padding="same")
        h = normalized(layers, depthwise, h)
        h = normalized(layers, layers.Conv2D(filters, 1), h)
    return classified(k, x, h)


def convnext(k: Any) -> Any:
    """Depthwise 7 × 7 windows (Liu et al., A ConvNet for the 2020s, 2022)."""
    layers, x = k.layers, k.Input((32, 32, 3))
    h = layers.Conv2D(48, 2, 2)(x)
    for _ in range(3):
        z = layers.DepthwiseConv2D(7, padding="same")(h)
        z = layers.Dense(192, activation="gelu")(layers.LayerNormalization()(z))
        h = layers.Add()([h, layers.Dense(48)(z)])
    return classified(k, x, h)


def resnext(k: Any) -> Any:
    """Windows in eight groups (Xie et al., Aggregated Residual …, 2017)."""
    layers, x = k.layers, k.Input((16, 16, 3))
    h = layers.Conv2D(64, 3, padding="same")(x)
    for _ in range(2):
        z = layers.Conv2D(64, 1, activation="relu")(h)
        grouped = layers.Conv2D(64, 3, padding="same", groups=8, activation="relu")
        h = layers.Add()([h, layers.Conv2D(64, 1)(grouped(z))])
    return classified(k, x, h)


def autoencoder(k: Any) -> Any:
    layers, x = k.layers, k.Input((32, 32, 3))
    h = x
    for filters in (32, 64):
        h = layers.Conv2D(filters, 3, 2, padding="same", activation="relu")(h)
    grow = layers.Conv2DTranspose
    h = grow(32, 3, 2, padding="same", activation="relu")(h)
    return k.Model(x, grow(3, 3, 2, padding="same", activation="sigmoid")(h))


def volumes(k: Any) -> Any:
    layers, x = k.layers, k.Input((16, 16, 16, 1))
    h = x
    for filters in (8, 16, 32):
        h = layers.Conv3D(filters, 3, padding="same", activation="relu")(h)
        h = layers.MaxPooling3D(2)(h)
    return k.Model(x, layers.Dense(10, activation="softmax")(layers.Flatten()(h)))


def wavenet(k: Any) -> Any:
    """Causal windows with holes (van den Oord et al., WaveNet, 2016)."""
    layers, x = k.layers, k.Input((512, 4))
    h, skips = layers.Conv1D(64, 1)(x), []
    for rate in (1, 2, 4, 8, 16, 32, 64, 128):
        tanh, sigmoid = (
            layers.Conv1D(
                64, 2, dilation_rate=rate, padding="causal", activation=activation
            )(h)
            for activation in ("tanh", "sigmoid")
        )
        z = layers.Conv1D(64, 1)(layers.Multiply()([tanh, sigmoid]))
        skips.append(z)
        h = layers.Add()([h, z])
    return k.Model(x, layers.Conv1D(4, 1)(layers.ReLU()(layers.Add()(skips))))


def atrous(k: Any) -> Any:
    """Images with holes (Chen et al., DeepLab, 2016)."""
    layers, x = k.layers, k.Input((32, 32, 3))
    h = layers.Conv2D(64, 3, padding="same", activation="relu")(x)
    parts = [
        layers.Conv2D(64, 3, dilation_rate=rate, padding="same", activation="relu")(h)
        for rate in (2, 4, 8)
    ]
    return k.Model(x, layers.Conv2D(3, 1)(layers.Concatenate()(parts)))


def conformer(k: Any) -> Any:
    """Sequences, by channel (Gulati et al., Conformer, 2020)."""
    layers, x = k.layers, k.Input((256, 16))
    h = layers.Conv1D(128, 1)(x)
    for _ in range(3):
        z = layers.LayerNormalization()(h)
        z = layers.DepthwiseConv1D(15, padding="same", activation="silu")(z)
        h = layers.Add()([h, layers.Conv1D(128, 1)(z)])
    return k.Model(x, layers.Conv1D(16, 1)(h))


_PLAIN = resnet, mobilenet, convnext, resnext, autoencoder, volumes
_ALL = *_PLAIN, wavenet, atrous, conformer
MODELS = {f.__name__: f for f in _ALL}


class Peer:
    """A model that was trained and asked once, so that it is compiled."""

    def __init__(self, make: Any, library: Any, samples: int, batch: int):
        self.model, self.batch = make(library), batch
        rng = np.random.default_rng(0)
        self.x = rng.random((samples, *self.model.input_shape[1:]), dtype=np.float32)
        images = len(self.model.output_shape) > 2
        self.y = self.x if images else rng.integers(0, 10, samples)
        loss = "mse" if images else "sparse_categorical_crossentropy"
        self.model.compile("adam", loss)
        start = time.perf_counter()
        self.fit()
        self.first = time.perf_counter() - start
        self.predict()
        self.times: dict[str, list[float]] = {"fit": [], "predict": []}

    def fit(self) -> None:
        self.model.fit(self.x, self.y, batch_size=self.batch, verbose=0)

    def predict(self) -> None:
        self.model.predict(self.x, batch_size=self.batch, verbose=0)

    def run(self) -> None:
        for name, times in self.times.items():
            start = time.perf_counter()
            getattr(self, name)()
            times.append(time.perf_counter() - start)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--only", default=",".join(MODELS))
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--samples", type=int, default=128)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument(
        "--policy", default="float32", help="of dtypes, in both libraries"
    )
    args = parser.parse_args()
    for library in (exburn, keras):
        library.config.set_dtype_policy(args.policy)
    size = args.samples, args.batch
    for name in args.only.split(","):
        peers = {"exburn": Peer(MODELS[name], exburn, *size)}
        exburn.config.disable_convolution_forms()
        peers["xla"] = Peer(MODELS[name], exburn, *size)
        exburn.config.enable_convolution_forms()
        peers["keras"] = Peer(MODELS[name], keras, *size)
        for _ in range(args.rounds):
            for peer in peers.values():
                peer.run()
        for label, peer in peers.items():
            line = f"{name:12} {label:8} first fit {peer.first:6.2f} s"
            for what, times in peer.times.items():
                least, ours = min(times), min(peers["exburn"].times[what])
                line += f"   {what} {least:7.3f} s {least / ours:6.2f} ×"
            print(line, flush=True)


if __name__ == "__main__":
    main()
