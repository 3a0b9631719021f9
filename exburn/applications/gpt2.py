"""GPT-2: a decoder with learned positions and normalization in front of each part.

Source: Radford et al., *Language Models are Unsupervised Multitask Learners*, 2019.

Example:
    >>> model = GPT2(vocabulary_size=50, layers=2, width=16, heads=2, positions=32)
    >>> model.output_shape
    (None, None, 50)
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from exburn import activations
from exburn.applications.config_tables import (
    ACTIVATION,
    TRANSFORMER,
    activation_name,
    class_of,
)
from exburn.applications.decoder import TokenScorer, check_heads, check_sizes, tokens
from exburn.applications.generation_files import GENERATION_NAMES, generation_of
from exburn.applications.transformer import start
from exburn.core.registry import register_builtin
from exburn.layers import (
    Add,
    Dense,
    Dropout,
    LayerNormalization,
    MultiHeadAttention,
    PositionEmbedding,
    ReversibleEmbedding,
)
from exburn.weights import Rules, rules, split, split_heads
from exburn.weights.entries import Field, nullable, real, whole
from exburn.weights.sizes import Size

__all__ = ["GPT2"]

_OP = "GPT2.from_pretrained"
_PARTS = [f"block_{{1}}_attention/{part}/" for part in ("query", "key", "value")]
_BODY = [
    (r"wte.weight", "token_embedding/embeddings"),
    (r"wpe.weight", "position_embedding/embeddings"),
    (r"h.(\d+).ln_1.weight", "block_{1}_attention_norm/gamma"),
    (r"h.(\d+).ln_1.bias", "block_{1}_attention_norm/beta"),
    (
        r"h.(\d+).attn.c_attn.weight",
        tuple(f"{part}kernel" for part in _PARTS),
        split >> split_heads,
    ),
    (
        r"h.(\d+).attn.c_attn.bias",
        tuple(f"{part}bias" for part in _PARTS),
        split >> split_heads,
    ),
    (
        r"h.(\d+).attn.c_proj.weight",
        "block_{1}_attention/attention_output/kernel",
        split_heads(axis=0),
    ),
    (r"h.(\d+).attn.c_proj.bias", "block_{1}_attention/attention_output/bias"),
    (r"h.(\d+).ln_2.weight", "block_{1}_mlp_norm/gamma"),
    (r"h.(\d+).ln_2.bias", "block_{1}_mlp_norm/beta"),
    (r"h.(\d+).mlp.c_fc.weight", "block_{1}_mlp_in/kernel"),
    (r"h.(\d+).mlp.c_fc.bias", "block_{1}_mlp_in/bias"),
    (r"h.(\d+).mlp.c_proj.weight", "block_{1}_mlp_out/kernel"),
    (r"h.(\d+).mlp.c_proj.bias", "block_{1}_mlp_out/bias"),
    (r"ln_f.weight", "norm/gamma"),
    (r"ln_f.bias", "norm/beta"),
    (r"h\.\d+\.attn\.(masked_)?bias", None),  # the causal mask
]
_TIED = [(r"lm_head\.weight", None)]  # the table of the tokens


@register_builtin
class GPT2(TokenScorer):
    """The GPT-2 network; by default the one of 124 million parameters.

    Token numbers in, scores of the next token out: ``fit`` trains it on sequences and
    the same one token later, with ``SparseCategoricalCrossentropy(from_logits=True)``,
    and ``generate`` writes.

    Args:
        mlp_width: Number of features between a block's dense layers; 4 × ``width`` if
            None.
        embedding_dropout: Share of the features of the embedding that is; as
            ``dropout`` if None.

    Example:
        >>> GPT2(10, layers=1, width=24, heads=3).count_params()
        32088

    Source: Radford et al., *Language Models are Unsupervised Multitask Learners*, 2019.
    """

    def __init__(
        self,
        vocabulary_size: int = 50257,
        layers: int = 12,
        width: int = 768,
        heads: int = 12,
        mlp_width: int | None = None,
        positions: int = 1024,
        dropout: float = 0.1,
        epsilon: float = 1e-5,
        embedding_dropout: float | None = None,
        attention_dropout: float = 0.0,
        activation: Any = "gelu_tanh",
        generation: Any = None,
        weights: Any = None,
        name: str | None = "gpt2",
        dtype: Any = None,
    ):
        op = "GPT2"
        sizes = {"vocabulary_size": vocabulary_size, "layers": layers, "width": width}
        check_sizes(op, **sizes, heads=heads, positions=positions)
        check_heads(op, width, heads, heads)
        if mlp_width is not None:
            check_sizes(op, mlp_width=mlp_width)
        inputs = tokens()
        embedding = ReversibleEmbedding(
            vocabulary_size,
            width,
            embeddings_initializer=start(),
            name="token_embedding",
        )
        x = embedding(inputs)
        places = PositionEmbedding(
            positions, initializer=start(), name="position_embedding"
        )(x)
        x = Add(name="embedding")([x, places])
        rate = dropout if embedding_dropout is None else embedding_dropout
        x = Dropout(rate, name="embedding_dropout")(x)
        block = _Block(
            heads,
            4 * width if mlp_width is None else mlp_width,
            dropout,
            attention_dropout,
            activations.get(activation),
            epsilon,
        )
        for number in range(layers):
            x = block(x, f"block_{number}")
        x = LayerNormalization(epsilon=epsilon, name="norm")(x)
        self._make(inputs, embedding(x, reverse=True), name, weights, dtype)
        self._set_generation(generation)
        self._fill(weights)

    # ------------------------------------------------------------------ folders
    @classmethod
    def is_mine(cls, config: Mapping[str, Any]) -> bool:
        return config.get("model_type") == "gpt2"

    @classmethod
    def arguments_of(
        cls, config: Mapping[str, Any], files: Mapping[str, Mapping[str, Any]]
    ) -> dict[str, Any]:
        own = {n: v for n, v in config.items() if n not in GENERATION_NAMES}
        arguments = _CONFIG.read(own, _OP)
        del arguments["kind"]
        arguments["generation"] = generation_of(config, files, _OP)
        if arguments["embedding_dropout"] == arguments["dropout"]:
            arguments["embedding_dropout"] = None
        return arguments

    @classmethod
    def sizes_of(cls, arguments: Mapping[str, Any]) -> Mapping[str, Size]:
        width = arguments["width"]
        inner = arguments["mlp_width"] or 4 * width
        tokens, places = r"(^|\.)wte\.weight$", r"(^|\.)wpe\.weight$"
        return {
            "vocabulary_size": Size(
                "vocab_size", arguments["vocabulary_size"], tokens, 0
            ),
            "width": Size("n_embd", width, tokens, 1),
            "positions": Size("n_positions", arguments["positions"], places, 0),
            "layers": Size("n_layer", arguments["layers"], r"(?:^|\.)h\.(\d+)\."),
            "mlp_width": Size("n_inner", inner, r"\.mlp\.c_fc\.weight$", 1),
        }

    @property
    def shared_table(self) -> tuple[str, str] | None:
        return r"lm_head\.weight", "token_embedding/embeddings"

    def config_for(self, style: str) -> dict[str, Any]:
        own = self.get_config()
        rate = own["embedding_dropout"]
        return {
            "activation_function": activation_name(own["activation"], tanh="gelu_new"),
            "architectures": ["GPT2LMHeadModel"],
            "attn_pdrop": own["attention_dropout"],
            "embd_pdrop": own["dropout"] if rate is None else rate,
            "layer_norm_epsilon": own["epsilon"],
            "model_type": "gpt2",
            "n_embd": own["width"],
            "n_head": own["heads"],
            "n_inner": own["mlp_width"],
            "n_layer": own["layers"],
            "n_positions": own["positions"],
            "resid_pdrop": own["dropout"],
            "tie_word_embeddings": True,
            "vocab_size": own["vocabulary_size"],
        }

    def weight_rules(self, style: str) -> Rules:
        body = rules(_BODY, prefix="transformer.", write_prefix=True)
        return body + rules(_TIED)


@dataclasses.dataclass(frozen=True)
class _Block:
    """Attention and a network, each behind a normalization and beside a shortcut."""

    heads: int
    mlp_width: int
    dropout: float
    attention_dropout: float
    activation: Any
    epsilon: float

    def __call__(self, x: Any, name: str) -> Any:
        width = x.shape[-1]
        h = self._norm(f"{name}_attention_norm")(x)
        h = MultiHeadAttention(
            self.heads,
            width // self.heads,
            dropout=self.attention_dropout,
            kernel_initializer=start(),
            name=f"{name}_attention",
        )(h, h, use_causal_mask=True)
        h = Dropout(self.dropout, name=f"{name}_attention_dropout")(h)
        x = Add(name=f"{name}_attention_add")([x, h])
        h = self._norm(f"{name}_mlp_norm")(x)
        h = self._dense(self.mlp_width, f"{name}_mlp_in", self.activation)(h)
        h = self._dense(width, f"{name}_mlp_out")(h)
        h = Dropout(self.dropout, name=f"{name}_mlp_dropout")(h)
        return Add(name=f"{name}_mlp_add")([x, h])

    def _norm(self, name: str) -> LayerNormalization:
        return LayerNormalization(epsilon=self.epsilon, name=name)

    def _dense(self, units: int, name: str, activation: Any = None) -> Dense:
        return Dense(units, activation, kernel_initializer=start(), name=name)


_CONFIG = TRANSFORMER.derive(
    [
        Field("activation_function", "activation", ACTIVATION, "gelu_tanh"),
        Field("architectures", "kind", class_of("GPT2LMHeadModel", "GPT2Model")),
        Field("attn_pdrop", "attention_dropout", real(0, 1), 0.1),
        Field("embd_pdrop", "embedding_dropout", real(0, 1), 0.1),
        Field("layer_norm_epsilon", "epsilon", real(0, above=True), 1e-5),
        Field("n_embd", "width", whole(), 768),
        Field("n_head", "heads", whole(), 12),
        Field("n_inner", "mlp_width", nullable(whole())),
        Field("n_layer", "layers", whole(), 12),
        Field("n_positions", "positions", whole(), 1024),
        Field("resid_pdrop", "dropout", real(0, 1), 0.1),
        Field("vocab_size", "vocabulary_size", whole(), 50257),
    ],
    only={
        "scale_attn_by_inverse_layer_idx": (False,),
        "scale_attn_weights": (True,),
        "tie_word_embeddings": (True,),
    },
    # Of the head of another class, and the order of computing in half precision.
    harmless="""
        id2label label2id n_ctx num_labels predict_special_tokens
        reorder_and_upcast_attn summary_activation summary_first_dropout
        summary_proj_to_labels summary_type summary_use_proj
    """.split(),
)
