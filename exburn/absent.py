"""Names of Keras that ExBurn does not have, and what to write instead."""

from __future__ import annotations

__all__ = ["missing"]

_INSTEAD = {
    "exburn": {
        "applications": "there are no pretrained models; weights of Keras' files are "
        "read by model.load_weights into the same architecture",
        "distillation": "a model with the teacher inside that overrides compute_loss",
        "distribution": "training runs on one device: model.compile(device='gpu:1'), "
        "with exburn.device('gpu:1'):",
        "export": "model.export(path) writes a StableHLO program",
        "legacy": "there is nothing of Keras 2",
        "visualization": "exburn.utils.plot_model draws models, matplotlib images",
    },
    "exburn.dtype_policies": {
        "DTypePolicyMap": "give each layer its dtype=, or model.set_precision a rule",
        "QuantizedDTypePolicy": "model.quantize(mode)",
        "QuantizedFloat8DTypePolicy": "model.quantize('float8')",
        "Int4DTypePolicy": "model.quantize('int4')",
        "GPTQDTypePolicy": "model.quantize('int4')",
        "AWQDTypePolicy": "model.quantize('int4')",
    },
    "exburn.layers": {
        "TorchModuleWrapper": "rewrite the module as a Layer",
        "TFSMLayer": "there is no TensorFlow; exburn.predict runs ONNX and StableHLO",
        "MelSpectrogram": "exburn.ops.stft, and a matrix product with the filter bank",
        "STFTSpectrogram": "exburn.ops.stft, or Conv1D with initializers.STFT",
    },
    "exburn.optimizers": {"legacy": "there is nothing of Keras 2"},
    "exburn.quantizers": {
        **dict.fromkeys(
            (
                "QuantizationConfig",
                "Int8QuantizationConfig",
                "Int4QuantizationConfig",
                "Float8QuantizationConfig",
            ),
            "model.quantize(mode, block_size=…) takes the settings themselves",
        ),
        "GPTQConfig": "model.quantize('int4', …) needs no data",
        "AWQConfig": "model.quantize('int4', …) needs no data",
    },
    "exburn.saving": {
        "KerasFileEditor": "safetensors.safe_open(path, 'numpy') reads model files",
    },
    "exburn.utils": {
        "Config": "types.SimpleNamespace, or a dataclass",
        "FeatureSpace": "exburn.layers.StringLookup, Discretization, CategoryEncoding, "
        "HashedCrossing and Normalization, called on the columns",
        "legacy": "there is nothing of Keras 2",
    },
}


def missing(module: str, name: str) -> AttributeError:
    """The error for a name that a module does not have; it knows Keras' names.

    Example:
        >>> print(missing("exburn.layers", "TorchModuleWrapper"))
        module 'exburn.layers' has no attribute 'TorchModuleWrapper'
          → rewrite the module as a Layer
    """
    text = f"module {module!r} has no attribute {name!r}"
    if (instead := _INSTEAD.get(module, {}).get(name)) is not None:
        text += f"\n  → {instead}"
    return AttributeError(text, name=name)
