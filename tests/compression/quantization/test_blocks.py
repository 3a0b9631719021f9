"""The layers that data goes through one after the other."""

import numpy as np
import pytest
from tests.compression.quantization.calibrated import config, embedded, in_blocks

import exburn
from exburn import errors, layers
from exburn.compression.quantization.weight import QuantizedWeight
from exburn.module.selection import layer_paths


class Block(layers.Layer):
    """Attention and two projections, as in a transformer."""

    def __init__(self, **options):
        super().__init__(**options)
        self.attention = layers.MultiHeadAttention(2, 16)
        self.wide = layers.Dense(48, activation="gelu")
        self.narrow = layers.EinsumDense("abc,cd->abd", (None, 32), bias_axes="d")

    def build(self, shape):
        self.attention.build(shape, shape)
        self.wide.build(shape)
        self.narrow.build((*shape[:-1], 48))

    def call(self, x):
        x = x + self.attention(x, x)
        return x + self.narrow(self.wide(x)), x  # the first is what the next one gets


class Transformer(exburn.Model):
    """Blocks behind an embedding, which it names itself."""

    def __init__(self, **options):
        super().__init__(**options)
        self.embedding = layers.Embedding(17, 32)
        self.blocks = [Block(name="first"), Block(name="second")]
        self.scores = layers.Dense(17)

    def call(self, tokens):
        x = self.embedding(tokens)
        for block in self.blocks:
            x, _ = block(x)
        return self.scores(x)

    def get_quantization_layer_structure(self, mode=None):
        assert mode == "gptq"
        return {"pre_block_layers": [self.embedding], "sequential_blocks": self.blocks}


def test_a_transformer_tells_its_blocks(images, tmp_path, rng):
    model = Transformer()
    model(images[0][:2])
    model.set_weights(
        [
            w + 0.1 * rng.standard_normal(w.shape).astype("float32")
            for w in model.get_weights()
        ]
    )
    config = exburn.quantizers.GPTQConfig(
        images[0], None, num_samples=64, sequence_length=64, weight_bits=3
    )
    small = model.quantize(config=config)
    packed = {
        path: layer.kernel
        for path, layer in layer_paths(small).items()
        if isinstance(getattr(layer, "kernel", None), QuantizedWeight)
    }
    assert len(packed) == 12  # query, key, value, output and two projections, twice
    plain, parts = model.clone(), layer_paths(model)
    for path, kernel in packed.items():
        encoded = kernel.scheme.encode(parts[path].kernel.get_value())
        layer = layer_paths(plain)[path]
        decoded = np.asarray(kernel.scheme.decode(*encoded))
        layer.set_weights([decoded, np.asarray(parts[path].bias)])
    x = images[2][:64]
    exact = np.asarray(model(x))
    chosen, nearby = (
        np.square(np.asarray(m(x)) - exact).mean() for m in (small, plain)
    )
    assert chosen < 0.5 * nearby
    small.save(tmp_path / "small.exburn")
    loaded = exburn.saving.load_model(
        tmp_path / "small.exburn",
        custom_objects={"Transformer": Transformer, "Block": Block},
    )
    np.testing.assert_array_equal(
        loaded.predict(x, verbose=0), small.predict(x, verbose=0)
    )
    assert small.layers[-1].quantization_mode is None  # in no block


def test_blocks_and_weights_that_do_not_fit(monkeypatch):
    monkeypatch.setattr("exburn.models.quantizing.twin", None)
    model = embedded()
    only = config(model, **in_blocks(model.layers[1:]))  # 5 numbers, not 8
    with pytest.raises(errors.ShapeError):
        model.quantize(config=only)
    failing = config(model, **in_blocks(model.layers[1:], [lambda x: x @ np.ones(3)]))
    with pytest.raises(errors.DataError, match="one after the other"):
        model.quantize(config=failing)
    for data in ([[1, 2, 9]], [[-1, 2, 3]]):
        with pytest.raises(errors.DataError, match="rows for tokens from 0 to 8"):
            model.quantize(config=config(model, data))
    nothing = config(model, **in_blocks(model.layers[:1]))
    with pytest.raises(errors.ArgumentError, match="no layer can be quantized"):
        model.quantize(config=nothing)
    with pytest.raises(errors.ArgumentError, match="contradict"):
        model.quantize("awq", config=config(model))
    with pytest.raises(errors.ArgumentError, match="on data"):
        model.quantize("gptq")
    with pytest.raises(errors.ArgumentError, match="said twice"):
        model.quantize(config=config(model), block_size=32)
    with pytest.raises(errors.ArgumentError, match=r"model\.quantize"):
        model.layers[1].quantize(config=config(model))
    model.layers[1].kernel.set_value(np.full((8, 16), np.nan, "float32"))
    with pytest.raises(errors.ArgumentError, match="NaN"):
        model.quantize(config=config(model))
