"""GPT-2: a decoder with learned positions and normalization in front of each part.

Source: Radford et al., *Language Models are Unsupervised Multitask Learners*, 2019.

Example:
    >>> model = GPT2(vocabulary_size=50, layers=2, width=16, heads=2, positions=32)
    >>> model.output_shape
    (None, None, 50)
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from exburn import ops
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
    Dropout,
    LayerNormalization,
    MultiHeadAttention,
    PositionEmbedding,
    ReversibleEmbedding,
)
from exburn.saving.pretrained_folder import setting
from exburn.weights import Rules, rules, split, split_heads

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
class GPT2(Decoder):
    """The GPT-2 network; by default the one of 124 million parameters.

    Token numbers in, scores of the next token out: ``fit`` trains it on sequences and
    the same one token later, with ``SparseCategoricalCrossentropy(from_logits=True)``,
    and ``generate`` writes.

    Args:
        vocabulary_size: Number of tokens.
        layers: Number of blocks.
        width: Number of features.
        heads: Number of heads, which divide them.
        mlp_width: Number of features between a block's dense layers; 4 × ``width`` if
            None.
        positions: Number of tokens that a text may have.
        dropout: Share of features that is dropped in training.
        epsilon: Of the normalizations.
        weights: A file, a folder, or the name of a repository on a hub, whose sizes are
            these; ``None`` for random ones. ``from_pretrained`` takes the sizes from
            the folder.
        name: Name of the model.
        dtype: Precision policy.

    Shape:
        x: [batch, time] of integers → [batch, time, vocabulary_size]

    Raises:
        ArgumentError: A size is no integer >= 1, or the heads do not divide the width.
        FileFormatError: The weights are of another model.
        MissingFileError: There is no such file or folder.

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
        x = Dropout(dropout, name="embedding_dropout")(x)
        mlp_width = 4 * width if mlp_width is None else mlp_width
        for number in range(layers):
            x = _block(x, f"block_{number}", heads, mlp_width, dropout, epsilon)
        x = LayerNormalization(epsilon=epsilon, name="norm")(x)
        self._make(inputs, embedding(x, reverse=True), name, weights, dtype)
        self._fill(weights)

    # ------------------------------------------------------------------ folders
    @classmethod
    def is_mine(cls, config: Mapping[str, Any]) -> bool:
        return config.get("model_type") == "gpt2"

    @classmethod
    def arguments_of(cls, config: Mapping[str, Any], folder: Path) -> dict[str, Any]:
        def get(key: str, kind: type, default: Any) -> Any:
            return setting(config, key, kind, default, _OP)

        wanted = {
            "activation_function": "gelu_new",
            "scale_attn_weights": True,
            "scale_attn_by_inverse_layer_idx": False,
            "add_cross_attention": False,
            "tie_word_embeddings": True,
        }
        check_config(_OP, config, wanted)
        inner = config.get("n_inner")
        return {
            "vocabulary_size": get("vocab_size", int, 50257),
            "layers": get("n_layer", int, 12),
            "width": get("n_embd", int, 768),
            "heads": get("n_head", int, 12),
            "mlp_width": None if inner is None else get("n_inner", int, inner),
            "positions": get("n_positions", int, 1024),
            "dropout": get("resid_pdrop", float, 0.1),
            "epsilon": get("layer_norm_epsilon", float, 1e-5),
        }

    def config_for(self, style: str) -> dict[str, Any]:
        made = self.get_config()
        return {
            "activation_function": "gelu_new",
            "architectures": ["GPT2LMHeadModel"],
            "layer_norm_epsilon": made["epsilon"],
            "model_type": "gpt2",
            "n_embd": made["width"],
            "n_head": made["heads"],
            "n_inner": made["mlp_width"],
            "n_layer": made["layers"],
            "n_positions": made["positions"],
            "resid_pdrop": made["dropout"],
            "tie_word_embeddings": True,
            "vocab_size": made["vocabulary_size"],
        }

    def weight_rules(self, style: str) -> Rules:
        body = rules(_BODY, prefix="transformer.", write_prefix=True)
        return body + rules(_TIED)


def _block(
    x: Any, name: str, heads: int, mlp_width: int, dropout: float, epsilon: float
) -> Any:
    width = x.shape[-1]
    h = LayerNormalization(epsilon=epsilon, name=f"{name}_attention_norm")(x)
    h = MultiHeadAttention(
        heads,
        width // heads,
        kernel_initializer=start(),
        name=f"{name}_attention",
    )(h, h, use_causal_mask=True)
    h = Dropout(dropout, name=f"{name}_attention_dropout")(h)
    x = Add(name=f"{name}_attention_add")([x, h])
    h = LayerNormalization(epsilon=epsilon, name=f"{name}_mlp_norm")(x)
    h = Dense(mlp_width, kernel_initializer=start(), name=f"{name}_mlp_in")(h)
    h = ops.gelu(h, approximate=True)
    h = Dense(width, kernel_initializer=start(), name=f"{name}_mlp_out")(h)
    h = Dropout(dropout, name=f"{name}_mlp_dropout")(h)
    return Add(name=f"{name}_mlp_add")([x, h])
