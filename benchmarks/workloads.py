"""The workloads of the benchmarks: data, and the same model for every peer.

Every peer trains the same architecture with Adam (1e-3), the same loss, batch size and
number of samples, shuffles every epoch, and counts accuracy.
"""

from __future__ import annotations

import dataclasses

import numpy as np


@dataclasses.dataclass(frozen=True)
class Workload:
    name: str
    samples: int
    batch: int
    cpu_samples: int  # fewer, so that a run on two cores ends


WORKLOADS = {
    w.name: w
    for w in (
        Workload("mlp", 60_000, 32, 20_000),
        Workload("cnn", 60_000, 128, 2_048),
        Workload("transformer", 16_384, 32, 512),
        Workload("lstm", 16_384, 64, 1_024),
    )
}
TOKENS, VOCABULARY, WIDTH, HEADS, BLOCKS = 64, 65, 128, 4, 2
STEPS, FEATURES, UNITS = 64, 16, 64


def data(work: str, samples: int) -> tuple[np.ndarray, np.ndarray]:
    """Random inputs and labels; throughput does not depend on their values."""
    rng = np.random.default_rng(0)
    if work == "mlp":
        x = rng.standard_normal((samples, 784), dtype=np.float32)
    elif work == "cnn":
        x = rng.standard_normal((samples, 28, 28, 1), dtype=np.float32)
    elif work == "lstm":
        x = rng.standard_normal((samples, STEPS, FEATURES), dtype=np.float32)
    else:
        text = rng.integers(0, VOCABULARY, (samples, TOKENS + 1)).astype(np.int32)
        return text[:, :-1].copy(), text[:, 1:].copy()
    return x, rng.integers(0, 10, samples).astype(np.int32)


def keras_like(work: str, k, layers, tokens_of):
    """The model in the vocabulary that Keras and ExBurn share.

    Args:
        work: Name of the workload.
        k: ``keras`` or ``exburn``.
        layers: Its ``layers``.
        tokens_of: A layer that turns tokens into their positions.
    """
    if work == "mlp":
        return k.Sequential(
            [
                k.Input((784,)),
                layers.Dense(256, activation="relu"),
                layers.Dense(128, activation="relu"),
                layers.Dense(10),
            ]
        )
    if work == "cnn":  # Keras' "Simple MNIST convnet", without its dropout
        return k.Sequential(
            [
                k.Input((28, 28, 1)),
                layers.Conv2D(32, 3, activation="relu"),
                layers.MaxPooling2D(),
                layers.Conv2D(64, 3, activation="relu"),
                layers.MaxPooling2D(),
                layers.Flatten(),
                layers.Dense(10),
            ]
        )
    if work == "lstm":
        return k.Sequential(
            [k.Input((STEPS, FEATURES)), layers.LSTM(UNITS), layers.Dense(10)]
        )
    tokens = k.Input((TOKENS,), dtype="int32")
    h = layers.Embedding(VOCABULARY, WIDTH)(tokens)
    h = layers.Add()([h, layers.Embedding(TOKENS, WIDTH)(tokens_of(tokens))])
    for _ in range(BLOCKS):
        z = layers.LayerNormalization(epsilon=1e-6)(h)
        attended = layers.MultiHeadAttention(HEADS, WIDTH // HEADS)(
            z, z, use_causal_mask=True
        )
        h = layers.Add()([h, attended])
        z = layers.LayerNormalization(epsilon=1e-6)(h)
        z = layers.Dense(4 * WIDTH, activation="gelu")(z)
        h = layers.Add()([h, layers.Dense(WIDTH)(z)])
    h = layers.LayerNormalization(epsilon=1e-6)(h)
    return k.Model(tokens, layers.Dense(VOCABULARY)(h))


def hand_written(work: str):
    """Parameters and a pure ``forward(params, x)``: what a JAX user writes."""
    import jax
    import jax.numpy as jnp

    rng = np.random.default_rng(0)

    def dense(n_in, *out):
        scale = np.sqrt(6 / (n_in + np.prod(out)))
        kernel = rng.uniform(-scale, scale, (n_in, *out)).astype(np.float32)
        return {"w": jnp.asarray(kernel), "b": jnp.zeros(out)}

    if work == "mlp":
        params = [dense(784, 256), dense(256, 128), dense(128, 10)]

        def forward(p, x):
            for layer in p[:-1]:
                x = jax.nn.relu(x @ layer["w"] + layer["b"])
            return x @ p[-1]["w"] + p[-1]["b"]

        return params, forward
    if work == "cnn":
        kernel = lambda *s: jnp.asarray(rng.normal(0, 0.1, s).astype(np.float32))  # noqa: E731
        params = {
            "k1": kernel(3, 3, 1, 32),
            "b1": jnp.zeros(32),
            "k2": kernel(3, 3, 32, 64),
            "b2": jnp.zeros(64),
            "out": dense(1600, 10),
        }

        def conv(x, k, b):
            numbers = ("NHWC", "HWIO", "NHWC")
            x = jax.lax.conv_general_dilated(
                x, k, (1, 1), "VALID", dimension_numbers=numbers
            )
            x = jax.nn.relu(x + b)
            window = (1, 2, 2, 1)
            return jax.lax.reduce_window(
                x, -jnp.inf, jax.lax.max, window, window, "VALID"
            )

        def forward(p, x):
            x = conv(conv(x, p["k1"], p["b1"]), p["k2"], p["b2"])
            return x.reshape(len(x), -1) @ p["out"]["w"] + p["out"]["b"]

        return params, forward
    if work == "lstm":
        params = {
            "in": dense(FEATURES, 4 * UNITS),
            "rec": dense(UNITS, 4 * UNITS)["w"],
            "out": dense(UNITS, 10),
        }

        def forward(p, x):
            gates = jnp.swapaxes(x @ p["in"]["w"] + p["in"]["b"], 0, 1)

            def step(carry, z):
                h, c = carry
                i, f, g, o = jnp.split(z + h @ p["rec"], 4, axis=-1)
                c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
                return (jax.nn.sigmoid(o) * jnp.tanh(c), c), None

            zero = jnp.zeros((x.shape[0], UNITS))
            (h, _), _ = jax.lax.scan(step, (zero, zero), gates)
            return h @ p["out"]["w"] + p["out"]["b"]

        return params, forward
    size = WIDTH // HEADS
    block = lambda: {  # noqa: E731
        "n1": jnp.ones(WIDTH),
        "n2": jnp.ones(WIDTH),
        "q": dense(WIDTH, HEADS, size),
        "k": dense(WIDTH, HEADS, size),
        "v": dense(WIDTH, HEADS, size),
        "o": dense(WIDTH, WIDTH),
        "f1": dense(WIDTH, 4 * WIDTH),
        "f2": dense(4 * WIDTH, WIDTH),
    }
    params = {
        "tokens": jnp.asarray(rng.normal(0, 0.02, (VOCABULARY, WIDTH)), jnp.float32),
        "places": jnp.asarray(rng.normal(0, 0.02, (TOKENS, WIDTH)), jnp.float32),
        "blocks": [block() for _ in range(BLOCKS)],
        "n": jnp.ones(WIDTH),
        "out": dense(WIDTH, VOCABULARY),
    }

    def norm(x, scale):
        mean = x.mean(-1, keepdims=True)
        var = jnp.square(x - mean).mean(-1, keepdims=True)
        return (x - mean) * jax.lax.rsqrt(var + 1e-6) * scale

    def forward(p, x):
        h = p["tokens"][x] + p["places"][None]
        for b in p["blocks"]:
            z = norm(h, b["n1"])
            q, k, v = (
                jnp.einsum("btd,dhk->bthk", z, b[name]["w"]) + b[name]["b"]
                for name in "qkv"
            )
            a = jax.nn.dot_product_attention(q, k, v, is_causal=True)
            h = h + a.reshape(h.shape) @ b["o"]["w"] + b["o"]["b"]
            z = jax.nn.gelu(norm(h, b["n2"]) @ b["f1"]["w"] + b["f1"]["b"])
            h = h + z @ b["f2"]["w"] + b["f2"]["b"]
        return norm(h, p["n"]) @ p["out"]["w"] + p["out"]["b"]

    return params, forward
