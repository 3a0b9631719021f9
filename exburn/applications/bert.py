"""An encoder of texts, whose positions see those on both sides.

Source: Devlin et al., *BERT: Pre-training of Deep Bidirectional Transformers for
Language Understanding*, 2019.

Example:
    >>> model = BERT(vocabulary_size=100, layers=2, width=16, heads=2, mlp_width=32)
    >>> model.output_shape
    (None, None, 16)
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from exburn import activations
from exburn.applications.config_tables import (
    ACTIVATION,
    ENCODER,
    activation_name,
    class_of,
    label_arguments,
    label_entries,
)
from exburn.applications.pretrained import rank_classes
from exburn.applications.text_model import TextModel
from exburn.applications.torch_rules import attention_output, dense, heads, norm
from exburn.applications.transformer import (
    TextEmbedding,
    TokenPooling,
    TransformerBlock,
    start,
)
from exburn.core.checks import check_choice, check_count
from exburn.core.registry import register_builtin
from exburn.errors import ArgumentError
from exburn.layers import Dense, Dropout, Input, LayerNormalization
from exburn.weights import Rules, rules
from exburn.weights.entries import Field, nullable, real, whole
from exburn.weights.sizes import Size

__all__ = ["BERT"]

_POOLING = ("first", "mean", "pooler")
_OP = "BERT.from_pretrained"
_CLASSIFIER = "BertForSequenceClassification"
_LAYER = r"encoder.layer.(\d+)"
_BODY = [
    (r"embeddings.word_embeddings.weight", "embedding/tokens/embeddings"),
    (r"embeddings.position_embeddings.weight", "embedding/position_table"),
    (r"embeddings.token_type_embeddings.weight", "embedding/type_table"),
    *norm("embeddings.LayerNorm", "embedding_norm"),
    *heads(rf"{_LAYER}.attention.self.(query|key|value)", "block_{1}/attention/{2}"),
    *attention_output(
        rf"{_LAYER}.attention.output.dense", "block_{1}/attention/attention_output"
    ),
    *norm(rf"{_LAYER}.attention.output.LayerNorm", "block_{1}/attention_norm"),
    *dense(rf"{_LAYER}.intermediate.dense", "block_{1}/mlp_in"),
    *dense(rf"{_LAYER}.output.dense", "block_{1}/mlp_out"),
    *norm(rf"{_LAYER}.output.LayerNorm", "block_{1}/mlp_norm"),
    # The normalizations of files from before 2019.
    (r"embeddings.LayerNorm.(gamma|beta)", "embedding_norm/{1}"),
    (
        rf"{_LAYER}.attention.output.LayerNorm.(gamma|beta)",
        "block_{1}/attention_norm/{2}",
    ),
    (rf"{_LAYER}.output.LayerNorm.(gamma|beta)", "block_{1}/mlp_norm/{2}"),
    (r"embeddings.position_ids", None),
]
_POOLER = dense("pooler.dense", "pooler")
_TOP = [
    *dense("classifier", "predictions"),
    (r"cls\..*", None),  # of pretraining
]


@register_builtin
class BERT(TextModel):
    """The BERT network: its vectors of tokens, one of a text, or scores of classes.

    Its inputs are a dict, as tokenizers give it: ``input_ids``; ``attention_mask``, 0
    for padding, and ``token_type_ids``, the part of the text, which may be ``None``.

    Args:
        mlp_width: Number of features between a block's dense layers.
        types: Number of parts that a text may have.
        pooling: ``"first"`` or ``"mean"`` for one vector of a text, ``"pooler"`` for
            the first one after a dense layer with tanh; ``None`` for all of them. With
            ``classes`` it is ``"pooler"`` if None.
        classes: Number of classes of a text; ``None`` for no classifier.
        classifier_activation: Activation of the classifier; ``None`` for logits.
        labels: Names of the classes, which ``config.json`` has.
        top_dropout: Share of features that is dropped before the classifier; as
            ``dropout`` if None.

    Shape:
        input_ids: [batch, tokens] → [batch, tokens, width], [batch, width] with
        ``pooling``, [batch, classes] with ``classes``

    Example:
        >>> import numpy as np
        >>> sizes = {"vocabulary_size": 50, "layers": 1, "width": 8, "heads": 2}
        >>> model = BERT(**sizes, mlp_width=16, pooling="mean")
        >>> ids = np.array([[1, 2, 3, 0]])
        >>> x = {"input_ids": ids, "attention_mask": ids != 0}
        >>> model(x).shape
        (1, 8)

    Source: Devlin et al., *BERT*, 2019.
    """

    fresh = ("predictions/", "pooler/")

    def __init__(
        self,
        vocabulary_size: int = 30522,
        layers: int = 12,
        width: int = 768,
        heads: int = 12,
        mlp_width: int = 3072,
        positions: int = 512,
        types: int = 2,
        dropout: float = 0.1,
        attention_dropout: float = 0.1,
        activation: Any = "gelu",
        epsilon: float = 1e-12,
        pooling: str | None = None,
        classes: int | None = None,
        classifier_activation: Any = None,
        labels: Any = None,
        top_dropout: float | None = None,
        weights: Any = None,
        name: str | None = "bert",
        dtype: Any = None,
    ):
        op = "BERT"
        if pooling is not None:
            check_choice(op, "pooling", pooling, _POOLING)
        if classes is not None:
            check_count(op, "classes", classes)
            if labels is not None and len(labels) != classes:
                raise ArgumentError(
                    op, f"{len(labels)} labels do not name {classes} classes"
                )
        ids = Input((None,), dtype="int32", name="input_ids")
        mask = Input((None,), dtype="int32", name="attention_mask", optional=True)
        parts = Input((None,), dtype="int32", name="token_type_ids", optional=True)
        embedding = TextEmbedding(
            vocabulary_size, width, positions, types, name="embedding"
        )
        x = embedding(ids, parts)
        x = LayerNormalization(epsilon=epsilon, name="embedding_norm")(x)
        x = Dropout(dropout, name="embedding_dropout")(x)
        for number in range(check_count(op, "layers", layers)):
            block = TransformerBlock(
                width,
                heads,
                mlp_width,
                dropout=dropout,
                attention_dropout=attention_dropout,
                activation=activation,
                epsilon=epsilon,
                name=f"block_{number}",
            )
            x = block(x, mask)
        chosen = pooling or (None if classes is None else "pooler")
        if chosen is not None:
            kind = "mean" if chosen == "mean" else "first"
            x = TokenPooling(kind, name="pooling")(x, mask)
        if chosen == "pooler":
            x = Dense(width, "tanh", kernel_initializer=start(), name="pooler")(x)
        if classes is not None:
            rate = dropout if top_dropout is None else top_dropout
            x = Dropout(rate, name="top_dropout")(x)
            x = Dense(
                classes,
                activations.get(classifier_activation),
                kernel_initializer=start(),
                name="predictions",
            )(x)
        inputs = {"input_ids": ids, "attention_mask": mask, "token_type_ids": parts}
        self._make(inputs, x, name, weights, dtype)
        self.has_top, self.pools = classes is not None, chosen == "pooler"
        self._labels = None if labels is None else tuple(map(str, labels))
        self.positions, self.types = positions, types
        self._fill(weights)

    # ------------------------------------------------------------------ texts
    def preprocess(
        self, texts: Any, *, truncate: bool = False
    ) -> dict[str, np.ndarray]:
        """Texts as the model takes them, filled up to the longest.

        Args:
            texts: A text, or a list of them.
            truncate: Whether texts are cut that have more tokens than there are
                positions, or than the tokenizer's folder allows.

        Returns:
            ``input_ids``, ``attention_mask`` and ``token_type_ids``, each
            [texts, tokens].

        Raises:
            ArgumentError: The model has no tokenizer, or a text is too long.
            MissingDependencyError: ``tokenizers`` is not installed.
        """
        op = f"{type(self).__name__}.preprocess"
        if self.tokenizer is None:
            raise ArgumentError(
                op,
                "the model has no tokenizer",
                hint="model.tokenizer = exburn.text.Tokenizer.load('tokenizer.json')",
            )
        several = isinstance(texts, Iterable) and not isinstance(texts, str | bytes)
        lines = list(texts) if several else [texts]
        limit = self.tokenizer.settings.max_length
        most = min(self.positions, self.positions if limit is None else limit)
        rows = self.tokenizer.batch(lines, max_length=most if truncate else None)
        longest, parts = (
            rows["input_ids"].shape[1],
            rows["token_type_ids"].max(initial=0),
        )
        if longest > most:
            raise ArgumentError(
                op,
                f"a text has {longest} tokens, of {most} that there may be",
                hint="truncate=True cuts it.",
            )
        if parts >= self.types:
            raise ArgumentError(
                op,
                f"the tokenizer numbers parts of a text up to {parts}, of {self.types} "
                "that the model knows",
            )
        return rows

    @property
    def labels(self) -> tuple[str, ...] | None:
        """Names of the classes, if the folder or the user has told them."""
        return self._labels

    def decode(self, predictions: Any, top: int = 5) -> list[list[tuple]]:
        """The likeliest classes of each text, the best first.

        Args:
            predictions: What a model with ``classes`` predicted.
            top: How many classes are told of each text.

        Shape:
            predictions: [batch, classes]

        Returns:
            For each text a list of (identifier, name, score).

        Raises:
            ShapeError: They have another shape.

        Example:
            >>> model = BERT(9, 1, 8, 2, 8, classes=2, labels=["no", "yes"])
            >>> model.decode([[0.25, 0.75]], top=1)
            [[('1', 'yes', 0.75)]]
        """
        names = self._labels or [f"LABEL_{n}" for n in range(self.output_shape[-1])]
        return rank_classes(f"{type(self).__name__}.decode", predictions, names, top)

    # ------------------------------------------------------------------ folders
    @classmethod
    def is_mine(cls, config: Mapping[str, Any]) -> bool:
        return config.get("model_type") == "bert"

    @classmethod
    def arguments_of(
        cls, config: Mapping[str, Any], files: Mapping[str, Mapping[str, Any]]
    ) -> dict[str, Any]:
        arguments = _CONFIG.read(config, _OP)
        top = label_arguments(arguments, _OP)
        if arguments.pop("kind") == _CLASSIFIER:
            return arguments | top
        del arguments["top_dropout"]
        return arguments

    @classmethod
    def sizes_of(cls, arguments: Mapping[str, Any]) -> Mapping[str, Size]:
        width = arguments["width"]
        tokens = r"(^|\.)word_embeddings\.weight$"
        sizes = {
            "vocabulary_size": Size(
                "vocab_size", arguments["vocabulary_size"], tokens, 0
            ),
            "width": Size("hidden_size", width, tokens, 1),
            "layers": Size(
                "num_hidden_layers", arguments["layers"], r"(?:^|\.)layer\.(\d+)\."
            ),
            "mlp_width": Size(
                "intermediate_size",
                arguments["mlp_width"],
                r"\.intermediate\.dense\.weight$",
                0,
            ),
            "positions": Size(
                "max_position_embeddings",
                arguments["positions"],
                r"(^|\.)position_embeddings\.weight$",
                0,
            ),
            "types": Size(
                "type_vocab_size",
                arguments["types"],
                r"(^|\.)token_type_embeddings\.weight$",
                0,
            ),
        }
        if "classes" in arguments:
            sizes["classes"] = Size(
                "num_labels",
                arguments["classes"],
                r"^classifier\.weight$",
                0,
                each=width,
            )
        return sizes

    def config_for(self, style: str) -> dict[str, Any]:
        own = self.get_config()
        config = {
            "architectures": [_CLASSIFIER if self.has_top else "BertModel"],
            "attention_probs_dropout_prob": own["attention_dropout"],
            "hidden_act": activation_name(own["activation"]),
            "hidden_dropout_prob": own["dropout"],
            "hidden_size": own["width"],
            "intermediate_size": own["mlp_width"],
            "layer_norm_eps": own["epsilon"],
            "max_position_embeddings": own["positions"],
            "model_type": "bert",
            "num_attention_heads": own["heads"],
            "num_hidden_layers": own["layers"],
            "type_vocab_size": own["types"],
            "vocab_size": own["vocabulary_size"],
        }
        if not self.has_top:
            return config
        if own["top_dropout"] is not None:
            config["classifier_dropout"] = own["top_dropout"]
        return config | label_entries(self._labels, own["classes"])

    def weight_rules(self, style: str) -> Rules:
        pooler = _POOLER if self.pools else [(r"pooler\..*", None)]
        top = _TOP if self.has_top else [(r"classifier\..*", None), *_TOP[2:]]
        body = rules([*_BODY, *pooler], prefix="bert.", write_prefix=self.has_top)
        return body + rules(top)


# What has another head than a classifier of texts is read without it.
_CONFIG = ENCODER.derive(
    [
        Field(
            "architectures",
            "kind",
            class_of(
                _CLASSIFIER,
                "BertModel",
                "BertForPreTraining",
                "BertForMaskedLM",
                "BertForNextSentencePrediction",
            ),
        ),
        Field("attention_probs_dropout_prob", "attention_dropout", real(0, 1), 0.1),
        Field("classifier_dropout", "top_dropout", nullable(real(0, 1))),
        Field("hidden_act", "activation", ACTIVATION, "gelu"),
        Field("hidden_dropout_prob", "dropout", real(0, 1), 0.1),
        Field("hidden_size", "width", whole(), 768),
        Field("intermediate_size", "mlp_width", whole(), 3072),
        Field("layer_norm_eps", "epsilon", real(0, above=True), 1e-12),
        Field("max_position_embeddings", "positions", whole(), 512),
        Field("num_attention_heads", "heads", whole(), 12),
        Field("num_hidden_layers", "layers", whole(), 12),
        Field("type_vocab_size", "types", whole(), 2),
        Field("vocab_size", "vocabulary_size", whole(), 30522),
    ],
    only={"is_decoder": (False,), "position_embedding_type": ("absolute",)},
    # Of heads of other classes, and of the first BERT's own code.
    harmless="""
        directionality pooler_fc_size pooler_num_attention_heads pooler_num_fc_layers
        pooler_size_per_head pooler_type tie_word_embeddings
    """.split(),
)
