"""Decoders of text: one network, whose options are those of a family."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

from exburn.applications.decoder_network import DecoderOptions, decoder_network
from exburn.applications.families import FAMILIES, Family
from exburn.applications.generation_files import (
    GENERATION,
    GENERATION_NAMES,
    generation_entries,
    generation_of,
)
from exburn.applications.text_model import TextModel
from exburn.core import registry
from exburn.core.batch_independence import is_foreign
from exburn.core.checks import check_count
from exburn.core.registry import register_builtin
from exburn.errors import ArgumentError, unknown_name
from exburn.layers import Input
from exburn.losses import SparseCategoricalCrossentropy
from exburn.module.variable import Static
from exburn.text.defaults import GenerationDefaults
from exburn.weights import Rules
from exburn.weights.sizes import Size


class TokenScorer(TextModel):
    """Base of models that are given tokens and score the next one.

    Subclasses have ``generation`` among the arguments of their constructor, and pass it
    to ``_set_generation``.

    Args:
        generation: What ``generate`` does where a call says nothing: a mapping of
            ``end_tokens``, ``do_sample``, ``temperature``, ``top_k``, ``top_p``,
            ``min_p``, ``repetition_penalty``, ``max_new_tokens`` and ``max_length``;
            folders tell it.

    Shape:
        x: [batch, time] of integers → [batch, time, vocabulary_size]
    """

    further = (GENERATION,)

    def _set_generation(self, defaults: Any) -> None:
        """Takes what ``generate`` does where a call says nothing.

        Raises:
            ArgumentError: A value is out of range, or a name unknown.
        """
        self._generation = Static(GenerationDefaults.of(defaults))

    def default_loss(self) -> SparseCategoricalCrossentropy:
        """The loss that ``compile`` takes without ``loss=``: of the next tokens."""
        return SparseCategoricalCrossentropy(from_logits=True)

    @property
    def generation(self) -> GenerationDefaults:
        """What ``generate`` does where a call says nothing."""
        return self._generation.value

    def further_files(self, style: str) -> dict[str, dict[str, Any]]:
        entries = generation_entries(self.generation)
        return {GENERATION: entries} if entries else {}


@register_builtin
class Decoder(TokenScorer):
    """A decoder of one of the families that folders of ``transformers`` hold.

    ``exburn.applications.from_pretrained(folder)`` makes it of a folder. Without one,
    the family says which options there are by default, and others are given by name.

    Args:
        family: ``"gemma"``, ``"gemma2"``, ``"gemma3_text"``, ``"llama"``,
            ``"mistral"``, ``"mixtral"``, ``"olmo2"``, ``"phi3"``, ``"qwen2"``,
            ``"qwen2_moe"``, ``"qwen3"``, ``"qwen3_moe"`` or ``"smollm3"``: what
            ``config.json`` calls its ``model_type``.
        **options: Others than the family's.

            - ``vocabulary_size``, ``layers``, ``width``, ``heads``, ``mlp_width``:
              sizes.
            - ``key_value_heads``: heads of keys and values; ``head_size``: features of
              a head.
            - ``activation``: of the gate of a block's network; ``epsilon``: of the
              normalizations.
            - ``norms``: ``"before"`` attention and network, ``"after"`` them, or
              ``"both"``; ``unit_offset``: as of ``RMSNormalization``.
            - ``query_key_norm``: ``"head"`` normalizes each head of queries and keys,
              ``"heads"`` all of them together.
            - ``tie_embeddings``: whether the scores come from the table of the
              embeddings; ``scale_embeddings``: whether these are multiplied by
              √width; ``logit_soft_cap``: bound of the scores.
            - ``attention_bias``, ``output_bias``, ``mlp_bias``: which products add a
              bias: those of query, key and value, of attention's output, the others.
            - ``query_pre_attn_scalar``: attention divides its scores by the square root
              of it; ``attention_soft_cap``: their bound.
            - ``sliding_window``: a token sees only those less than this many steps
              away, in the layers of ``window_layers``.
            - ``rope_base``, ``rope_scaling``, ``partial_rotary_factor``: of
              ``RotaryEmbedding``, in the layers of ``rope_layers``; ``window_rope``:
              a mapping of these three for layers with a window.
            - ``experts``: number of networks in the layers of ``expert_layers``, of
              which a token takes ``experts_per_token``; ``expert_width``: features
              inside of one; ``normalize_experts``: as of ``MixtureOfExperts``;
              ``shared_expert_width``: features inside of one more, for all tokens;
              ``router_loss``: factor of the loss that balances them in training.
            - ``attention_dropout``, ``dropout``: shares that are dropped in training.

    Raises:
        ArgumentError: There is no such family or option, a value is out of range, or
            two do not fit together.

    Example:
        >>> sizes = {"vocabulary_size": 10, "layers": 1, "width": 8, "heads": 2}
        >>> sizes |= {"key_value_heads": 1, "head_size": 4, "mlp_width": 16}
        >>> Decoder("qwen3", **sizes).output_shape
        (None, None, 10)
    """

    _options: Any = None

    def __init__(
        self,
        family: str = "llama",
        *,
        generation: Any = None,
        weights: Any = None,
        name: str | None = None,
        dtype: Any = None,
        **options: Any,
    ):
        if family not in FAMILIES:
            raise unknown_name("family", family, FAMILIES, op="Decoder")
        complete = FAMILIES[family].complete(options)
        self._make_network(family, complete, generation, weights, name or family, dtype)

    def _make_network(
        self,
        family: str,
        options: DecoderOptions,
        generation: Any,
        weights: Any,
        name: str | None,
        dtype: Any,
    ) -> None:
        """The end of the constructor, once all options are known."""
        inputs, outputs = decoder_network(options)
        self._make(inputs, outputs, name, weights, dtype)
        self._options = Static((family, options))
        self._set_generation(generation)
        self._fill(weights)

    @property
    def family(self) -> Family:
        """What is known of the folders of its kind."""
        return FAMILIES[self._options.value[0]]

    @property
    def options(self) -> DecoderOptions:
        """All options of the network."""
        return self._options.value[1]

    @property
    def context_length(self) -> int | None:
        """Tokens that a text may have by the folder that the model comes from."""
        origin = self._origin
        return origin and origin.value.config.get("max_position_embeddings")

    def get_config(self) -> dict[str, Any]:
        config = super().get_config()
        config.pop("trainable", None)  # no option; what is frozen is told elsewhere
        if "family" in config:  # all, whatever the family's are by default
            with registry.leaving_functions():
                config |= registry.serialize(vars(self.options))
        return config

    @classmethod
    def from_config(cls, config: dict[str, Any], custom_objects: Any = None) -> Self:
        if is_foreign(cls) or "input_layers" in config:
            return super().from_config(config, custom_objects)
        with registry.custom_objects(custom_objects):  # also what is None or False
            return cls(**{key: registry.deserialize(config[key]) for key in config})

    # ------------------------------------------------------------------ folders
    @classmethod
    def is_mine(cls, config: Mapping[str, Any]) -> bool:
        kind = config.get("model_type")
        return kind in FAMILIES and kind not in ("llama", "mistral")  # `Llama`'s

    @classmethod
    def arguments_of(
        cls, config: Mapping[str, Any], files: Mapping[str, Mapping[str, Any]]
    ) -> dict[str, Any]:
        op, kind = f"{cls.__name__}.from_pretrained", config["model_type"]
        own = {n: v for n, v in config.items() if n not in GENERATION_NAMES}
        return {
            "family": kind,
            **FAMILIES[kind].read(own, op),
            "generation": generation_of(config, files, op),
        }

    @classmethod
    def sizes_of(cls, arguments: Mapping[str, Any]) -> Mapping[str, Size]:
        size, tokens = arguments["head_size"], r"(^|\.)embed_tokens\.weight$"
        places = {
            "vocabulary_size": ("vocab_size", tokens, 0),
            "width": ("hidden_size", tokens, 1),
            "heads": (
                "num_attention_heads, of head_dim each",
                *(r"\.o_proj\.weight$", 1, size),
            ),
            "key_value_heads": (
                "num_key_value_heads, of head_dim each",
                *(r"\.k_proj\.weight$", 0, size),
            ),
            "layers": ("num_hidden_layers", r"(?:^|\.)layers\.(\d+)\."),
            "mlp_width": ("intermediate_size", r"\.mlp\.down_proj\.weight$", 1),
        }
        sizes = {
            name: Size(entry, arguments[name], *place)
            for name, (entry, *place) in places.items()
        }
        if (experts := arguments.get("experts")) is not None:
            inner = arguments.get("expert_width") or arguments["mlp_width"]
            each, one = inner * arguments["width"], r"\.experts\.(\d+)\."
            sizes["experts"] = Size("number of experts", experts, one, each=each)
            down = one + r"(?:down_proj|w2)\.weight$"
            sizes["expert_width"] = Size("width of an expert", inner, down, 1)
        return sizes

    @property
    def shared_table(self) -> tuple[str, str] | None:
        if not self.options.tie_embeddings:
            return None
        return r"lm_head\.weight", "token_embedding/embeddings"

    def config_for(self, style: str) -> dict[str, Any]:
        config = self.family.config(self.options)
        if self._origin is None:  # else tokens of another vocabulary would count
            ends = self.generation.end_tokens
            config |= dict.fromkeys(["bos_token_id", "pad_token_id"])
            config["eos_token_id"] = None if ends is None else list(ends)
        return config

    def weight_rules(self, style: str) -> Rules:
        return self.family.weight_rules(self.options)


def check_sizes(op: str, **sizes: Any) -> None:
    """Raises unless each is an integer of at least 1.

    Raises:
        ArgumentError: One is not.

    Example:
        >>> check_sizes("GPT2", layers=2, heads=4)
    """
    for name, value in sizes.items():
        check_count(op, name, value)


def check_heads(op: str, width: int, heads: int, key_value_heads: int) -> int:
    """The size of a head.

    Raises:
        ArgumentError: The numbers do not divide each other.

    Example:
        >>> check_heads("GPT2", 12, 4, 2)
        3
    """
    if width % heads:
        raise ArgumentError(
            op, f"width must be a multiple of heads, received {width} and {heads}"
        )
    if heads % key_value_heads:
        raise ArgumentError(
            op,
            "heads must be a multiple of key_value_heads, received "
            f"{heads} and {key_value_heads}",
        )
    return width // heads


def tokens() -> Any:
    """The input: token numbers, of any length."""
    return Input((None,), dtype="int32", name="tokens")
