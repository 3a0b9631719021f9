"""A model's weights in files, and its summary on the screen."""

from __future__ import annotations

from typing import Any

from exburn.building import materialize
from exburn.errors import NotBuiltError

__all__ = ["Keeping"]


class Keeping:
    """The part of a model that is written down; mixed into ``Model``."""

    built: bool

    def save_weights(self, filepath: Any, overwrite: bool = True) -> None:
        """Writes the weights to one safetensors file, atomically.

        Raises:
            NotBuiltError: The model has no weights yet.
            ArgumentError: The file exists and ``overwrite`` is false.
        """
        from exburn.saving import save_weights

        self._require_built("save_weights")
        save_weights(self, filepath, overwrite=overwrite)

    def load_weights(self, filepath: Any, skip_mismatch: bool = False) -> None:
        """Reads the weights that ``save_weights`` wrote; all or nothing.

        Raises:
            FileFormatError: The file is damaged or of another model.
        """
        from exburn.saving import load_weights

        self._require_built("load_weights")
        load_weights(self, filepath, skip_mismatch=skip_mismatch)

    def _require_built(self, op: str) -> None:
        if not self.built:
            raise NotBuiltError(
                op,
                "the model has no weights before it is built",
                hint="Give it an Input(shape), or call it on data first.",
            )
        materialize(self)

    def summary(
        self,
        line_length: int | None = None,
        positions: Any = None,
        print_fn: Any = None,
        expand_nested: bool = False,
        show_trainable: bool = False,
        layer_range: Any = None,
    ) -> None:
        """Prints the layers, their shapes and parameters, and the totals."""
        from exburn.summary import summary

        summary(
            self,
            line_length=line_length,
            positions=positions,
            print_fn=print_fn,
            expand_nested=expand_nested,
            show_trainable=show_trainable,
            layer_range=layer_range,
        )
