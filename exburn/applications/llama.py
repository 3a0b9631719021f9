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
from pathlib import Path
from typing import Any

from exburn.applications.decoder import (
    Decoder,
    check_config,
    check_heads,
    check_sizes,
    tokens,
)
from exburn.applications.transformer import start
from exburn.core.registry import register_builtin
from exburn.layers import (
    Add,
    Dense,
    GroupedQueryAttention,
    Multiply,
    ReversibleEmbedding,
    RMSNormalization,
    RotaryEmbedding,
)
from exburn.saving.pretrained_folder import setting
from exburn.weights import Rules, rules, split_heads, transpose

__all__ = ["Llama"]

_OP = "Llama.from_pretrained"
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
        weights: A file, a folder, or the name of a repository on a hub, whose sizes are
            these; ``None`` for random ones. ``from_pretrained`` takes the sizes from
            the folder.
        name: Name of the model.
        dtype: Precision policy.

    Shape:
        x: [batch, time] of integers → [batch, time, vocabulary_size]

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
        inputs = tokens()
        embedding = ReversibleEmbedding(
            vocabulary_size,
            width,
            tie_weights=tie_embeddings,
            embeddings_initializer=start(),
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
                kernel_initializer=start(),
                rotary=RotaryEmbedding(max_wavelength=rope_base),
                name=f"{block}_attention",
            )(h, h, use_causal_mask=True)
            x = Add(name=f"{block}_attention_add")([x, h])
            h = RMSNormalization(epsilon=epsilon, name=f"{block}_mlp_norm")(x)
            x = Add(name=f"{block}_mlp_add")([x, _gated(h, block, mlp_width)])
        x = RMSNormalization(epsilon=epsilon, name="norm")(x)
        self._make(inputs, embedding(x, reverse=True), name, weights, dtype)
        self.ties = bool(tie_embeddings)
        self._fill(weights)

    # ------------------------------------------------------------------ folders
    @classmethod
    def is_mine(cls, config: Mapping[str, Any]) -> bool:
        return config.get("model_type") in ("llama", "mistral")

    @classmethod
    def arguments_of(cls, config: Mapping[str, Any], folder: Path) -> dict[str, Any]:
        def get(key: str, kind: type, default: Any) -> Any:
            return setting(config, key, kind, default, _OP)

        wanted = {
            "hidden_act": "silu",
            "attention_bias": False,
            "mlp_bias": False,
            "rope_scaling": None,
        }
        check_config(_OP, config, wanted)
        width = get("hidden_size", int, 4096)
        heads = get("num_attention_heads", int, 32)
        size = width // max(heads, 1)
        if config.get("head_dim") is not None:
            check_config(_OP, config, {"head_dim": size})
        rope = config.get("rope_parameters") or {}  # where newer files have the base
        check_config(_OP, rope, {"rope_type": "default"})
        base = get("rope_theta", float, 10000.0)
        window = config.get("sliding_window")
        groups = config.get("num_key_value_heads") or heads
        return {
            "vocabulary_size": get("vocab_size", int, 32000),
            "layers": get("num_hidden_layers", int, 32),
            "width": width,
            "heads": heads,
            "key_value_heads": get("num_key_value_heads", int, groups),
            "mlp_width": get("intermediate_size", int, 11008),
            "rope_base": setting(rope, "rope_theta", float, base, _OP),
            "sliding_window": window and get("sliding_window", int, window),
            "epsilon": get("rms_norm_eps", float, 1e-6),
            "tie_embeddings": get("tie_word_embeddings", bool, False),
        }

    def config_for(self, style: str) -> dict[str, Any]:
        made = self.get_config()
        window = made["sliding_window"]
        kind = "llama" if window is None else "mistral"
        return {
            "architectures": [f"{kind.title()}ForCausalLM"],
            "hidden_act": "silu",
            "hidden_size": made["width"],
            "intermediate_size": made["mlp_width"],
            "model_type": kind,
            "num_attention_heads": made["heads"],
            "num_hidden_layers": made["layers"],
            "num_key_value_heads": made["key_value_heads"] or made["heads"],
            "rms_norm_eps": made["epsilon"],
            "rope_theta": made["rope_base"],
            "tie_word_embeddings": made["tie_embeddings"],
            "vocab_size": made["vocabulary_size"],
        } | ({} if window is None else {"sliding_window": window})

    def weight_rules(self, style: str) -> Rules:
        head = _TIED if self.ties else _HEAD
        return rules(_BODY, prefix="model.", write_prefix=True) + rules(head)


def _gated(x: Any, block: str, mlp_width: int) -> Any:
    """``(silu(x W_gate) * x W_up) W_down``, without biases.

    Source: Shazeer, *GLU Variants Improve Transformer*, 2020.
    """
    options = {"use_bias": False, "kernel_initializer": start()}
    gate = Dense(mlp_width, "silu", name=f"{block}_gate", **options)(x)
    up = Dense(mlp_width, name=f"{block}_up", **options)(x)
    h = Multiply(name=f"{block}_gated")([gate, up])
    return Dense(x.shape[-1], name=f"{block}_down", **options)(h)
