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

from exburn.applications.decoder import (
    INITIALIZER,
    Decoder,
    check_config,
    check_heads,
    check_sizes,
    check_weights,
    tokens,
)
from exburn.core.registry import register_builtin
from exburn.errors import ArgumentError
from exburn.layers import (
    Add,
    Dense,
    GroupedQueryAttention,
    Multiply,
    ReversibleEmbedding,
    RMSNormalization,
    RotaryEmbedding,
)
from exburn.weights import Rules, rules, split_heads, transpose

__all__ = ["Llama"]

_BODY = [
    (r"embed_tokens.weight", "token_embedding/embeddings"),
    (
        r"layers.(\d+).self_attn.q_proj.weight",
        "block_{1}_attention/query/kernel",
        transpose >> split_heads,
    ),
    (
        r"layers.(\d+).self_attn.k_proj.weight",
        "block_{1}_attention/key/kernel",
        transpose >> split_heads,
    ),
    (
        r"layers.(\d+).self_attn.v_proj.weight",
        "block_{1}_attention/value/kernel",
        transpose >> split_heads,
    ),
    (
        r"layers.(\d+).self_attn.o_proj.weight",
        "block_{1}_attention/attention_output/kernel",
        transpose >> split_heads(axis=0),
    ),
    (r"layers.(\d+).mlp.(gate|up|down)_proj.weight", "block_{1}_{2}/kernel", transpose),
    (r"layers.(\d+).input_layernorm.weight", "block_{1}_attention_norm/scale"),
    (r"layers.(\d+).post_attention_layernorm.weight", "block_{1}_mlp_norm/scale"),
    (r"norm.weight", "norm/scale"),
    (r"layers\.\d+\.self_attn\.rotary_emb\.inv_freq", None),
]
_HEAD = [(r"lm_head.weight", "token_embedding/reverse_embeddings", transpose)]
_TIED = [(r"lm_head\.weight", None)]


@register_builtin
class Llama(Decoder):
    """A decoder in the style of Llama; by default Llama 2 of 7 billion parameters.

    Token numbers in, scores of the next token out, as of :class:`GPT2`. There is no
    number of positions: how long a text may be is a matter of the training.

    Args:
        vocabulary_size: Number of tokens.
        layers: Number of blocks.
        width: Number of features.
        heads: Number of heads of queries, which divide them.
        key_value_heads: Number of heads of keys and values, which divides that; as many
            if None.
        mlp_width: Number of features in a block's network.
        rope_base: Base of the angles of positions.
        sliding_window: A token sees only those less than this many steps away.
        epsilon: Of the normalizations.
        tie_embeddings: Whether the scores come from the table of the embeddings.
        weights: A file with weights; ``None`` for random ones.
        name: Name of the model.
        dtype: Precision policy.

    Shape:
        x: [batch, time] of integers → [batch, time, vocabulary_size]

    Raises:
        ArgumentError: A size is no integer >= 1, or they do not divide each other.
        MissingFileError: There is no such file.

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
        weights: Any = None,
        name: str | None = "llama",
        dtype: Any = None,
    ):
        op = "Llama"
        groups = heads if key_value_heads is None else key_value_heads
        sizes = {"vocabulary_size": vocabulary_size, "layers": layers, "width": width}
        sizes |= {"heads": heads, "key_value_heads": groups}
        check_sizes(op, **sizes, mlp_width=mlp_width)
        head_size = check_heads(op, width, heads, groups)
        check_weights(op, weights)
        inputs = tokens()
        embedding = ReversibleEmbedding(
            vocabulary_size,
            width,
            tie_weights=tie_embeddings,
            embeddings_initializer=INITIALIZER,
            name="token_embedding",
        )
        x = embedding(inputs)
        for number in range(layers):
            block = f"block_{number}"
            h = RMSNormalization(epsilon=epsilon, name=f"{block}_attention_norm")(x)
            h = GroupedQueryAttention(
                head_size,
                heads,
                groups,
                use_bias=False,
                sliding_window=sliding_window,
                kernel_initializer=INITIALIZER,
                rotary=RotaryEmbedding(max_wavelength=rope_base),
                name=f"{block}_attention",
            )(h, h, use_causal_mask=True)
            x = Add(name=f"{block}_attention_add")([x, h])
            h = RMSNormalization(epsilon=epsilon, name=f"{block}_mlp_norm")(x)
            x = Add(name=f"{block}_mlp_add")([x, _gated(h, block, mlp_width)])
        x = RMSNormalization(epsilon=epsilon, name="norm")(x)
        self._make(inputs, embedding(x, reverse=True), name, weights, dtype)
        self.ties = bool(tie_embeddings)

    @classmethod
    def arguments_of(cls, config: Mapping[str, Any]) -> dict[str, Any]:
        """The constructor's arguments that a ``config.json`` describes.

        Args:
            config: The content of the file, of Hugging Face's ``transformers``.

        Raises:
            ArgumentError: It describes what the network does not compute.

        Example:
            >>> config = {"hidden_size": 8, "num_attention_heads": 2}
            >>> Llama.arguments_of(config)["width"]
            8
        """
        op = "Llama"
        wanted = {
            "hidden_act": "silu",
            "attention_bias": False,
            "mlp_bias": False,
            "rope_scaling": None,
        }
        check_config(op, config, wanted)
        width = config.get("hidden_size", 4096)
        heads = config.get("num_attention_heads", 32)
        if config.get("head_dim") not in (None, width // heads):
            raise ArgumentError(
                op,
                f"head_dim must be {width // heads}, the features of each head, the "
                f"file has {config['head_dim']}",
            )
        rope = config.get("rope_parameters") or {}  # where newer files have the base
        check_config(op, rope, {"rope_type": "default"})
        base = config.get("rope_theta", 10000.0)
        return {
            "vocabulary_size": config.get("vocab_size", 32000),
            "layers": config.get("num_hidden_layers", 32),
            "width": width,
            "heads": heads,
            "key_value_heads": config.get("num_key_value_heads"),
            "mlp_width": config.get("intermediate_size", 11008),
            "rope_base": rope.get("rope_theta", base),
            "sliding_window": config.get("sliding_window"),
            "epsilon": config.get("rms_norm_eps", 1e-6),
            "tie_embeddings": config.get("tie_word_embeddings", False),
        }

    def weight_rules(self, style: str = "transformers") -> Rules:
        """Which tensor of a file of Hugging Face's is which weight."""
        head = _TIED if self.ties else _HEAD
        return rules(_BODY, prefix="model.", write_prefix=True) + rules(head)


def _gated(x: Any, block: str, mlp_width: int) -> Any:
    """``(silu(x W_gate) * x W_up) W_down``, without biases.

    Source: Shazeer, *GLU Variants Improve Transformer*, 2020.
    """
    options = {"use_bias": False, "kernel_initializer": INITIALIZER}
    gate = Dense(mlp_width, "silu", name=f"{block}_gate", **options)(x)
    up = Dense(mlp_width, name=f"{block}_up", **options)(x)
    h = Multiply(name=f"{block}_gated")([gate, up])
    return Dense(x.shape[-1], name=f"{block}_down", **options)(h)
