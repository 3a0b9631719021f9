"""Models and data that weights are chosen on."""

import numpy as np

import exburn
from exburn import layers


def config_on(model, images, kind="GPTQConfig", **options):
    structure = {
        "pre_block_layers": model.layers[:1],
        "sequential_blocks": model.layers[1:],
    }
    options = {
        "num_samples": 256,
        "sequence_length": 64,
        "group_size": 32,
        "quantization_layer_structure": structure,
    } | options
    return getattr(exburn.quantizers, kind)(images[0], None, **options)


def kernels(model):
    return [np.asarray(layer.kernel) for layer in model.layers[1:]]


def nearest(model, small):
    """Kernels that are rounded to the nearest number on grids of the same kind."""
    schemes = [layer.kernel.scheme for layer in small.layers[1:]]
    return [
        np.asarray(scheme.decode(*scheme.encode(kernel)))
        for scheme, kernel in zip(schemes, kernels(model), strict=True)
    ]


def errors_on(x, model, *others):
    """Mean squares of what other kernels change of the model's outputs."""
    hidden, head = (np.asarray(layer.bias) for layer in model.layers[1:])

    def run(first, second):
        return np.maximum(x / 16 @ first + hidden, 0) @ second + head

    exact = run(*kernels(model))
    return [np.square(run(*other) - exact).mean() for other in others]


def embedded():
    layer = layers.Embedding(9, 8)
    return exburn.Sequential([exburn.Input((5,)), layer, layers.Dense(16)])


def config(model, data=([1, 2, 3],), tokenizer=None, **options):
    structure = {
        "pre_block_layers": model.layers[:1],
        "sequential_blocks": model.layers[1:],
    }
    options = {
        "sequence_length": 5,
        "num_samples": 2,
        "group_size": -1,
        "quantization_layer_structure": structure,
    } | options
    return exburn.quantizers.GPTQConfig(data, tokenizer, **options)


def in_blocks(blocks, before=()):
    return {
        "quantization_layer_structure": {
            "pre_block_layers": list(before),
            "sequential_blocks": blocks,
        }
    }
