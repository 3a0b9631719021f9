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

from exburn import activations
from exburn.applications.config_tables import (
    ACTIVATION,
    TRANSFORMER,
    activation_name,
    class_of,
)
from exburn.applications.decoder import Decoder, check_heads, check_sizes, tokens
from exburn.applications.generation_files import GENERATION_NAMES, generation_of
from exburn.applications.transformer import start
from exburn.core.registry import register_builtin
from exburn.errors import FileFormatError
from exburn.layers import (
    Add,
    Dense,
    GroupedQueryAttention,
    Multiply,
    ReversibleEmbedding,
    RMSNormalization,
    RotaryEmbedding,
)
from exburn.saving.pretrained_folder import CONFIG
from exburn.weights import Rules, rules, split_heads, transpose
from exburn.weights.entries import (
    Field,
    Kind,
    Table,
    choice,
    flag,
    nullable,
    real,
    section,
    whole,
)
from exburn.weights.sizes import Size

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
                dropout=attention_dropout,
                sliding_window=sliding_window,
                kernel_initializer=start(),
                rotary=RotaryEmbedding(rope_base, rope_factor),
                name=f"{block}_attention",
            )(h, h, use_causal_mask=True)
            x = Add(name=f"{block}_attention_add")([x, h])
            h = RMSNormalization(epsilon=epsilon, name=f"{block}_mlp_norm")(x)
            h = _gated_mlp(h, block, mlp_width, activations.get(activation))
            x = Add(name=f"{block}_mlp_add")([x, h])
        x = RMSNormalization(epsilon=epsilon, name="norm")(x)
        self._make(inputs, embedding(x, reverse=True), name, weights, dtype)
        self.ties = bool(tie_embeddings)
        self._set_generation(generation)
        self._fill(weights)

    # ------------------------------------------------------------------ folders
    @classmethod
    def is_mine(cls, config: Mapping[str, Any]) -> bool:
        return config.get("model_type") in ("llama", "mistral")

    @classmethod
    def arguments_of(
        cls, config: Mapping[str, Any], files: Mapping[str, Mapping[str, Any]]
    ) -> dict[str, Any]:
        own = {n: v for n, v in config.items() if n not in GENERATION_NAMES}
        values = _CONFIGS[config["model_type"]].read(own, _OP)
        size, groups = values.pop("head_size"), values.pop("key_value_heads")
        if size is not None and size * values["heads"] != values["width"]:
            raise FileFormatError(
                _OP,
                "'head_dim' in config.json must be hidden_size / num_attention_heads, "
                f"the file has {size}",
            )
        older, newer = values.pop("rope_scaling"), values.pop("rope_parameters")
        rope = older or newer or {}
        if rope.get("kind") == "linear" and rope["factor"] is None:
            raise FileFormatError(_OP, "linear scaling of positions needs a 'factor'")
        return {
            **{name: values[name] for name in values if name not in ("kind", "base")},
            "key_value_heads": values["heads"] if groups is None else groups,
            "rope_base": rope.get("base") or values["base"],
            "rope_factor": rope["factor"] if rope.get("kind") == "linear" else 1.0,
            "generation": generation_of(config, files, _OP),
        }

    @classmethod
    def sizes_of(cls, arguments: Mapping[str, Any]) -> Mapping[str, Size]:
        width, groups = arguments["width"], arguments["key_value_heads"]
        size = max(width // arguments["heads"], 1)
        tokens = r"(^|\.)embed_tokens\.weight$"
        return {
            "vocabulary_size": Size(
                "vocab_size", arguments["vocabulary_size"], tokens, 0
            ),
            "width": Size("hidden_size", width, tokens, 1),
            "key_value_heads": Size(
                "num_key_value_heads, of hidden_size / num_attention_heads each",
                *(groups, r"\.k_proj\.weight$", 0, size),
            ),
            "layers": Size(
                "num_hidden_layers", arguments["layers"], r"(?:^|\.)layers\.(\d+)\."
            ),
            "mlp_width": Size(
                "intermediate_size", arguments["mlp_width"], r"\.up_proj\.weight$", 0
            ),
        }

    @property
    def tied(self) -> tuple[str, str] | None:
        if not self.ties:
            return None
        return r"lm_head\.weight", "token_embedding/embeddings"

    def config_for(self, style: str) -> dict[str, Any]:
        own, origin = self.get_config(), self._origin
        window, factor = own["sliding_window"], own["rope_factor"]
        source = {} if origin is None else origin.value.config
        mistral = window is not None or source.get("model_type") == "mistral"
        kind = "mistral" if mistral else "llama"
        config = {
            "architectures": [f"{kind.title()}ForCausalLM"],
            "attention_dropout": own["attention_dropout"],
            "hidden_act": activation_name(own["activation"]),
            "hidden_size": own["width"],
            "intermediate_size": own["mlp_width"],
            "model_type": kind,
            "num_attention_heads": own["heads"],
            "num_hidden_layers": own["layers"],
            "num_key_value_heads": own["key_value_heads"] or own["heads"],
            "rms_norm_eps": own["epsilon"],
            "rope_theta": own["rope_base"],
            "tie_word_embeddings": own["tie_embeddings"],
            "vocab_size": own["vocabulary_size"],
        }
        if mistral:
            config["sliding_window"] = window
        if factor != 1:
            config["rope_scaling"] = {"rope_type": "linear", "factor": factor}
        return config

    def weight_rules(self, style: str) -> Rules:
        head = _TIED if self.ties else _HEAD
        return rules(_BODY, prefix="model.", write_prefix=True) + rules(head)


def _gated_mlp(x: Any, block: str, mlp_width: int, activation: Any) -> Any:
    """``(activation(x W_gate) * x W_up) W_down``, without biases.

    Source: Shazeer, *GLU Variants Improve Transformer*, 2020.
    """
    options = {"use_bias": False, "kernel_initializer": start()}
    gate = Dense(mlp_width, activation, name=f"{block}_gate", **options)(x)
    up = Dense(mlp_width, name=f"{block}_up", **options)(x)
    h = Multiply(name=f"{block}_gated")([gate, up])
    return Dense(x.shape[-1], name=f"{block}_down", **options)(h)


_ROPE = Table(
    CONFIG,
    [
        Field("factor", "factor", nullable(real(0, above=True))),
        Field("rope_theta", "base", nullable(real(0, above=True))),
        Field("rope_type", "kind", choice(["default", "linear"])),
        Field("type", "older_kind", choice(["default", "linear"])),
    ],
    only={"partial_rotary_factor": (1.0,)},
    harmless=["original_max_position_embeddings"],
)


def _rope(path: str) -> Kind:
    """The scaling of positions, under either of its names."""
    table = section(_ROPE.at(path), _OP)

    def read(value: Any) -> dict[str, Any]:
        values = table(value)
        older = values.pop("older_kind")
        return values | {"kind": values["kind"] or older or "default"}

    return nullable(read)


_LLAMA = TRANSFORMER.derive(
    [
        Field("architectures", "kind", class_of("LlamaForCausalLM", "LlamaModel")),
        Field("attention_dropout", "attention_dropout", real(0, 1), 0.0),
        Field("head_dim", "head_size", nullable(whole())),
        Field("hidden_act", "activation", ACTIVATION, "silu"),
        Field("hidden_size", "width", whole(), 4096),
        Field("intermediate_size", "mlp_width", whole(), 11008),
        Field("num_attention_heads", "heads", whole(), 32),
        Field("num_hidden_layers", "layers", whole(), 32),
        Field("num_key_value_heads", "key_value_heads", nullable(whole())),
        Field("rms_norm_eps", "epsilon", real(0, above=True), 1e-6),
        Field("rope_parameters", "rope_parameters", _rope("rope_parameters")),
        Field("rope_scaling", "rope_scaling", _rope("rope_scaling")),
        Field("rope_theta", "base", real(0, above=True), 10000.0),
        Field("tie_word_embeddings", "tie_embeddings", flag, False),
        Field("vocab_size", "vocabulary_size", whole(), 32000),
    ],
    only={
        "attention_bias": (False,),
        "mlp_bias": (False,),
        "rope_interleaved": (False,),
    },
    # How long the texts of the training were, and how products are computed in parts.
    harmless="""
        _flash_attn_2_enabled is_llama_config max_position_embeddings
        max_sequence_length pretraining_tp
    """.split(),
)
_WINDOW = whole(1, 2**31 - 1)  # positions have 32 bits
_CONFIGS = {
    "llama": _LLAMA,
    "mistral": _LLAMA.derive(
        [
            Field(
                "architectures", "kind", class_of("MistralForCausalLM", "MistralModel")
            ),
            Field("sliding_window", "sliding_window", nullable(_WINDOW), 4096),
        ],
        defaults={"intermediate_size": 14336, "num_key_value_heads": 8},
    ),
}
