"""A family of decoders: what its folders say, and which tensors its weights are."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from typing import Any

from exburn.applications.config_tables import (
    ACTIVATION,
    TRANSFORMER,
    activation_name,
    class_of,
)
from exburn.applications.decoder_network import DecoderOptions
from exburn.applications.rope_entries import ROPE, rope_arguments, rope_config
from exburn.core.checks import check_count
from exburn.errors import FileFormatError, unknown_name
from exburn.saving.pretrained_folder import CONFIG
from exburn.weights import Rules, rules, split_heads, transpose
from exburn.weights.entries import (
    Field,
    Table,
    choice,
    flag,
    list_of,
    nullable,
    real,
    whole,
)

Values = dict[str, Any]


@dataclasses.dataclass(frozen=True)
class Family:
    """A family, as data.

    Attributes:
        model_type: What ``config.json`` calls it.
        title: What the names of its classes in ``transformers`` begin with.
        table: The entries that ``config.json`` may have; their arguments are options
            of ``DecoderOptions``, or what ``resolve`` makes options of.
        options: Options that are the same in all of its models.
        rules: Which tensors of a file are which weights: rules, or a function of
            the options that makes them.
        rope_base: The base of the angles where a file says none.
        resolve: Changes what the table has read, given the operation named in errors.
        entries: What ``config.json`` says beside the table's entries.
    """

    model_type: str
    title: str
    table: Table
    options: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    rules: Sequence[Any] | Callable[[DecoderOptions], Sequence[Any]] = ()
    rope_base: float = 10000.0
    resolve: Callable[[Values, str], None] = lambda values, op: None
    entries: Callable[[DecoderOptions], Values] = lambda options: {}

    def read(self, config: Mapping[str, Any], op: str) -> dict[str, Any]:
        """The options that a file describes.

        Raises:
            FileFormatError: It describes what the family does not have.
        """
        kind = f"{self.title}ForCausalLM", f"{self.title}Model"
        table = self.table.derive([Field("architectures", "_", class_of(*kind))])
        values = table.read(config, op)
        del values["_"]
        self.resolve(values, op)
        if ROPE[0].argument in values:  # else `resolve` has read them
            values |= rope_arguments(values, op, base=self.rope_base)
        if values["head_size"] is None:
            values["head_size"] = values["width"] // values["heads"] or 1
        if values["key_value_heads"] is None:
            values["key_value_heads"] = values["heads"]
        return {**self.options, **values}

    def complete(self, options: Mapping[str, Any]) -> DecoderOptions:
        """The options, and those of a file that says nothing else.

        Raises:
            ArgumentError: One is out of range, or there is no such option.
        """
        op, names = "Decoder", [field.name for field in fields(DecoderOptions)]
        for name in options:
            if name not in names:
                raise unknown_name("option", name, names, op=op)
        layers = check_count(op, "layers", options.get("layers", 1))
        config = {"num_hidden_layers": layers} if "layers" in options else {}
        values = self.read(config, op)
        for field in self.table.entries.values():
            if field.default is None and field.argument in (
                "head_size",
                "key_value_heads",
            ):
                del values[field.argument]  # follows the width and the heads
        return DecoderOptions(**values | dict(options))

    def config(self, options: DecoderOptions) -> dict[str, Any]:
        """What ``config.json`` says of a model."""
        config = rope_config(
            options.rope_base, options.rope_scaling, options.partial_rotary_factor
        )
        rope = {field.key for field in ROPE}
        for key, field in self.table.entries.items():
            if hasattr(options, field.argument) and key not in rope:
                config[key] = _json(field.argument, getattr(options, field.argument))
        config |= {
            "architectures": [f"{self.title}ForCausalLM"],
            "model_type": self.model_type,
        }
        return config | self.entries(options)

    def weight_rules(self, options: DecoderOptions) -> Rules:
        """Which tensor of a file is which weight."""
        body = self.rules(options) if callable(self.rules) else self.rules
        head = _TIED if options.tie_embeddings else _HEAD
        return rules(body, prefix="model.", write_prefix=True) + rules(head)


def _json(option: str, value: Any) -> Any:
    if option == "activation":
        return activation_name(value)
    return list(value) if isinstance(value, tuple) else value


# ---------------------------------------------------------------------- weights
_HEAD = [(r"lm_head.weight", "token_embedding/reverse_embeddings", transpose)]
_TIED = [(r"lm_head\.weight", None)]
_LAYER, _BLOCK = r"layers.(\d+).", "block_{1}_"
ENDS = [
    (r"embed_tokens.weight", "token_embedding/embeddings"),
    (r"norm.weight", "norm/scale"),
    (r"layers\.\d+\.self_attn\.rotary_emb\.inv_freq", None),
]
OUTPUT = [
    (
        _LAYER + r"self_attn.o_proj.weight",
        _BLOCK + "attention/attention_output/kernel",
        transpose >> split_heads(axis=0),
    ),
    (_LAYER + r"self_attn.o_proj.bias", _BLOCK + "attention/attention_output/bias"),
]
ATTENTION = [
    *(
        (
            f"{_LAYER}self_attn.{part[0]}_proj.{kind}",
            f"{_BLOCK}attention/{part}/{weight}",
            change,
        )
        for part in ("query", "key", "value")
        for kind, weight, change in (
            ("weight", "kernel", transpose >> split_heads),
            ("bias", "bias", split_heads),
        )
    ),
    *OUTPUT,
]
QUERY_KEY_NORM = [
    (_LAYER + r"self_attn.q_norm.weight", _BLOCK + "attention/query_norm/scale"),
    (_LAYER + r"self_attn.k_norm.weight", _BLOCK + "attention/key_norm/scale"),
]
MLP = [
    (_LAYER + r"mlp.(gate|up|down)_proj.weight", _BLOCK + "{2}/kernel", transpose),
    (_LAYER + r"mlp.(gate|up|down)_proj.bias", _BLOCK + "{2}/bias"),
]
NORMS_BEFORE = [
    (_LAYER + r"input_layernorm.weight", _BLOCK + "attention_norm/scale"),
    (_LAYER + r"post_attention_layernorm.weight", _BLOCK + "mlp_norm/scale"),
]
NORMS_AFTER = [
    (
        _LAYER + r"post_attention_layernorm.weight",
        _BLOCK + "attention_after_norm/scale",
    ),
    (_LAYER + r"post_feedforward_layernorm.weight", _BLOCK + "mlp_after_norm/scale"),
]
NORMS_BOTH = [
    (_LAYER + r"input_layernorm.weight", _BLOCK + "attention_norm/scale"),
    (_LAYER + r"pre_feedforward_layernorm.weight", _BLOCK + "mlp_norm/scale"),
    *NORMS_AFTER,
]
LLAMA = [*ENDS, *ATTENTION, *MLP, *NORMS_BEFORE]

# ---------------------------------------------------------------------- entries
WINDOW = nullable(whole(1, 2**31 - 1))  # positions have 32 bits
ATTENTION_BIAS = Field("attention_bias", "attention_bias", flag, False)
MLP_BIAS = Field("mlp_bias", "mlp_bias", flag, False)

DECODER = TRANSFORMER.derive(
    [
        *ROPE,
        Field("attention_dropout", "attention_dropout", real(0, 1), 0.0),
        Field("head_dim", "head_size", nullable(whole())),
        Field("hidden_act", "activation", ACTIVATION, "silu"),
        Field("hidden_size", "width", whole(), 4096),
        Field("intermediate_size", "mlp_width", whole(), 11008),
        Field("num_attention_heads", "heads", whole(), 32),
        Field("num_hidden_layers", "layers", whole(1, 2**16), 32),
        Field("num_key_value_heads", "key_value_heads", nullable(whole())),
        Field("rms_norm_eps", "epsilon", real(0, above=True), 1e-6),
        Field("tie_word_embeddings", "tie_embeddings", flag, False),
        Field("vocab_size", "vocabulary_size", whole(), 32000),
    ],
    # Of the head of another class; how products are computed in parts, and how long the
    # texts of the training were.
    harmless="""
        _flash_attn_2_enabled id2label label2id max_sequence_length num_labels
        pretraining_tp
    """.split(),
)


def layer_types(value: Any) -> tuple[bool, ...]:
    """Which layers have a window, by their kinds' names."""
    kinds = {"full_attention": False, "sliding_attention": True}
    return list_of(choice(kinds))(value)


LAYER_TYPES = Field("layer_types", "window_layers", nullable(layer_types))


def settle_windows(values: Values, op: str, has_window: Callable[[int], bool]) -> None:
    """Says which layers have a window, and none where none of them has.

    Args:
        values: What a table with ``LAYER_TYPES`` made of a file.
        op: The operation named in errors.
        has_window: Whether a layer has one, where the file does not say it.

    Raises:
        FileFormatError: The entries do not fit together.
    """
    layers, window = values["window_layers"], values["sliding_window"]
    if layers is None:
        layers = tuple(has_window(number) for number in range(values["layers"]))
    if len(layers) != values["layers"]:
        raise FileFormatError(
            op,
            f"'layer_types' in {CONFIG} must have {values['layers']} entries, one for "
            f"each layer, the file has {len(layers)}",
        )
    if any(layers) and window is None:
        raise FileFormatError(
            op,
            f"{CONFIG} has layers of 'sliding_attention', and 'sliding_window' does "
            "not say how wide the window is, or is not used",
        )
    values["sliding_window"] = window if any(layers) else None
    values["window_layers"] = layers if any(layers) and not all(layers) else None


def window_entries(options: DecoderOptions) -> Values:
    """``layer_types`` and ``sliding_window`` of a model."""
    kinds = [
        "full_attention" if options.window_of(n) is None else "sliding_attention"
        for n in range(options.layers)
    ]
    return {"layer_types": kinds, "sliding_window": options.sliding_window}
