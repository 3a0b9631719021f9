"""Names of Keras that ExBurn does not have, and what to write instead."""

from __future__ import annotations

_INSTEAD = {
    "exburn.layers": {
        "TorchModuleWrapper": "rewrite the module as a Layer",
        "TFSMLayer": "there is no TensorFlow; exburn.predict runs ONNX and StableHLO",
    },
    "exburn.optimizers": {
        "legacy": "write exburn.optimizers.Adam …; Keras 3 refuses to make those, too"
    },
}


def missing(module: str, name: str) -> AttributeError:
    """The error for a name that a module does not have; it knows Keras' names.

    Args:
        module: The module, ``"exburn.layers"``.
        name: The name that it does not have.

    Example:
        >>> print(missing("exburn.layers", "TorchModuleWrapper"))
        module 'exburn.layers' has no attribute 'TorchModuleWrapper'
          → rewrite the module as a Layer
    """
    text = f"module {module!r} has no attribute {name!r}"
    if (instead := _INSTEAD.get(module, {}).get(name)) is not None:
        text += f"\n  → {instead}"
    return AttributeError(text, name=name)
