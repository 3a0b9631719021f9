"""Decoders in the style of Llama: rotary positions, RMS norms, gated networks.

Heads of queries may share those of keys and values, which makes the cache smaller.
Llama 1 to 3, Mistral and their like differ in sizes alone.

Source: Touvron et al., *LLaMA: Open and Efficient Foundation Language Models*, 2023.

Example:
    >>> model = Llama(50, layers=2, width=16, heads=4, key_value_heads=2, mlp_width=32)
    >>> model.output_shape
    (None, None, 50)
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from exburn.applications.decoder import Decoder
from exburn.applications.families import FAMILIES
from exburn.core.registry import register_builtin
from exburn.errors import ArgumentError

__all__ = ["Llama"]


@register_builtin
class Llama(Decoder):
    """A decoder in the style of Llama; by default Llama 2 of 7 billion parameters.

    Token numbers in, scores of the next token out, as of :class:`GPT2`. There is no
    number of positions: how long a text may be is a matter of the training.

    Args:
        heads: Number of heads of queries, which divide them.
        key_value_heads: Number of heads of keys and values, which divides that; as many
            if None.
        mlp_width: Number of features in a block's network.
        rope_base: Base of the angles of positions.
        sliding_window: A token sees only those less than this many steps away.
        tie_embeddings: Whether the scores come from the table of the embeddings.
        rope_factor: Positions are divided by it, for longer texts.
        attention_dropout: Share of the weights of attention that is dropped in
            training.
        activation: Of the gate of a block's network.
        **options: Further ones of :class:`Decoder`, such as ``head_size``,
            ``attention_bias`` and ``rope_scaling``.

    Raises:
        ArgumentError: A size is no integer >= 1, or they do not divide each other.
        FileFormatError: The weights are of another model.
        MissingFileError: There is no such file or folder.

    Example:
        >>> Llama(10, layers=1, width=8, heads=2, mlp_width=16).count_params()
        824

    Source: Touvron et al., *Llama 2: Open Foundation and Fine-Tuned Chat Models*, 2023.
    """

    def __init__(
        self,
        vocabulary_size: int = 32000,
        layers: int = 32,
        width: int = 4096,
        heads: int = 32,
        key_value_heads: int | None = None,
        mlp_width: int = 11008,
        rope_base: float = 10000.0,
        sliding_window: int | None = None,
        epsilon: float = 1e-5,
        tie_embeddings: bool = False,
        rope_factor: float = 1.0,
        attention_dropout: float = 0.0,
        activation: Any = "silu",
        generation: Any = None,
        weights: Any = None,
        name: str | None = "llama",
        dtype: Any = None,
        **options: Any,
    ):
        if rope_factor != 1:
            if options.get("rope_scaling") is not None:
                raise ArgumentError(
                    "Llama", "rope_factor and rope_scaling name two scalings"
                )
            scaling = {"rope_type": "linear", "factor": rope_factor}
            options = {**options, "rope_scaling": scaling}
        complete = FAMILIES["llama"].complete(
            {
                "vocabulary_size": vocabulary_size,
                "layers": layers,
                "width": width,
                "heads": heads,
                "key_value_heads": key_value_heads,
                "mlp_width": mlp_width,
                "rope_base": rope_base,
                "sliding_window": sliding_window,
                "epsilon": epsilon,
                "tie_embeddings": tie_embeddings,
                "attention_dropout": attention_dropout,
                "activation": activation,
                **options,
            }
        )
        self._make_network("llama", complete, generation, weights, name, dtype)

    @property
    def family(self) -> Any:
        source = {} if self._origin is None else self._origin.value.config
        window = self.options.sliding_window
        mistral = window is not None or source.get("model_type") == "mistral"
        return FAMILIES["mistral" if mistral else "llama"]

    # ------------------------------------------------------------------ folders
    @classmethod
    def is_mine(cls, config: Mapping[str, Any]) -> bool:
        return config.get("model_type") in ("llama", "mistral")

    @classmethod
    def arguments_of(
        cls, config: Mapping[str, Any], files: Mapping[str, Mapping[str, Any]]
    ) -> dict[str, Any]:
        arguments = super().arguments_of(config, files)
        del arguments["family"]
        scaling = arguments["rope_scaling"] or {}
        if scaling.get("rope_type") == "linear":
            arguments |= {"rope_scaling": None, "rope_factor": scaling["factor"]}
        return {"rope_factor": 1.0, "sliding_window": None, **arguments}
