"""The network of decoders of text, whose options are data.

A family of models is a set of options (`exburn.applications.families`): where blocks
normalize, how attention sees positions, what its scores are, which network follows.

Example:
    >>> options = DecoderOptions(
    ...     vocabulary_size=10, layers=1, width=8, heads=2, mlp_width=16
    ... )
    >>> inputs, outputs = decoder_network(options)
    >>> outputs.shape[-1], options.head_size
    (10, 4)
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Mapping
from typing import Any

from exburn import activations
from exburn.applications.transformer import start
from exburn.core.checks import check_choice, check_count
from exburn.errors import ArgumentError
from exburn.layers import (
    Add,
    Dense,
    Dropout,
    GroupedQueryAttention,
    Input,
    MixtureOfExperts,
    Multiply,
    Rescaling,
    ReversibleEmbedding,
    RMSNormalization,
    RotaryEmbedding,
    RouterLosses,
)

_OP = "Decoder"


@dataclasses.dataclass(frozen=True, kw_only=True)
class DecoderOptions:
    """Options of the network; ``Decoder`` says what they mean.

    Raises:
        ArgumentError: A value is out of range, or two do not fit together.
    """

    vocabulary_size: int
    layers: int
    width: int
    heads: int
    mlp_width: int
    key_value_heads: Any = None  # as many as heads
    head_size: Any = None  # width / heads
    activation: Any = "silu"
    epsilon: float = 1e-6
    norms: str = "before"
    unit_offset: bool = False
    scale_embeddings: bool = False
    tie_embeddings: bool = False
    logit_soft_cap: float | None = None
    attention_bias: bool = False
    output_bias: bool | None = None  # as attention_bias
    mlp_bias: bool = False
    query_key_norm: str | None = None
    query_pre_attn_scalar: int | None = None  # the size of a head
    attention_soft_cap: float | None = None
    sliding_window: int | None = None
    window_layers: Any = None  # all
    rope_base: float = 10000.0
    rope_scaling: Mapping[str, Any] | None = None
    partial_rotary_factor: float = 1.0
    window_rope: Mapping[str, Any] | None = None  # as in the other layers
    rope_layers: Any = None  # all
    experts: int | None = None
    experts_per_token: int = 2
    expert_width: int | None = None  # mlp_width
    normalize_experts: bool = True
    expert_layers: Any = None  # all, if there are experts
    shared_expert_width: int | None = None
    router_loss: float = 0.0
    attention_dropout: float = 0.0
    dropout: float = 0.0

    def __post_init__(self):
        for name in ("vocabulary_size", "layers", "width", "heads", "mlp_width"):
            check_count(_OP, name, getattr(self, name))
        groups, size = self.key_value_heads, self.head_size
        groups = self.heads if groups is None else groups
        if size is None and self.width % self.heads:
            raise ArgumentError(
                _OP,
                "width must be a multiple of heads where no head_size is given, "
                f"received {self.width} and {self.heads}",
            )
        size = self.width // self.heads if size is None else size
        for name, value in (("key_value_heads", groups), ("head_size", size)):
            object.__setattr__(self, name, check_count(_OP, name, value))
        if self.heads % groups:
            raise ArgumentError(
                _OP,
                "heads must be a multiple of key_value_heads, received "
                f"{self.heads} and {groups}",
            )
        check_choice(_OP, "norms", self.norms, ("before", "after", "both"))
        if self.query_key_norm is not None:
            names = ("head", "heads")
            check_choice(_OP, "query_key_norm", self.query_key_norm, names)
        for name in ("window_layers", "rope_layers", "expert_layers"):
            value = getattr(self, name)
            if value is None:
                continue
            if len(value) != self.layers:
                raise ArgumentError(
                    _OP,
                    f"{name} must have an entry for each of {self.layers} layers, "
                    f"received {len(value)}",
                )
            object.__setattr__(self, name, tuple(map(bool, value)))

    def has_experts(self, layer: int) -> bool:
        """Whether the network of a layer is a mixture of experts."""
        if self.experts is None:
            return False
        return self.expert_layers is None or bool(self.expert_layers[layer])

    def window_of(self, layer: int) -> int | None:
        """The window of a layer, or ``None``."""
        windowed = self.window_layers is None or self.window_layers[layer]
        return self.sliding_window if windowed else None

    def rotary_of(self, layer: int) -> RotaryEmbedding | None:
        """What turns the heads of a layer, or ``None``."""
        if self.rope_layers is not None and not self.rope_layers[layer]:
            return None
        rope = {
            "rope_base": self.rope_base,
            "rope_scaling": self.rope_scaling,
            "partial_rotary_factor": self.partial_rotary_factor,
        }
        if self.window_rope is not None and self.window_of(layer) is not None:
            rope |= self.window_rope
        return RotaryEmbedding(
            rope["rope_base"],
            scaling=rope["rope_scaling"],
            partial_rotary_factor=rope["partial_rotary_factor"],
        )


def decoder_network(options: DecoderOptions) -> tuple[Any, Any]:
    """The symbols that the network begins and ends with."""
    inputs = Input((None,), dtype="int32", name="tokens")
    embedding = ReversibleEmbedding(
        options.vocabulary_size,
        options.width,
        tie_weights=options.tie_embeddings,
        embeddings_initializer=start(),
        logit_soft_cap=options.logit_soft_cap,
        name="token_embedding",
    )
    x = embedding(inputs)
    if options.scale_embeddings:
        x = Rescaling(math.sqrt(options.width), name="embedding_scale")(x)
    routers: list[Any] = []
    for number in range(options.layers):
        x = _part(x, f"block_{number}_attention", options, _attention, number)
        mlp: Any = _gated_mlp
        if options.has_experts(number):
            mlp = functools.partial(_experts, routers=routers)
        x = _part(x, f"block_{number}_mlp", options, mlp, number)
    if routers and options.router_loss:
        losses = RouterLosses(options.experts_per_token, options.router_loss)
        x = losses([x, *routers])
    x = _norm(options, "norm")(x)
    return inputs, embedding(x, reverse=True)


def _part(x: Any, name: str, options: DecoderOptions, inner: Any, number: int) -> Any:
    """Attention or a network, between its normalizations and beside a shortcut."""
    h = x if options.norms == "after" else _norm(options, f"{name}_norm")(x)
    h = inner(h, number, options)
    if options.norms != "before":
        h = _norm(options, f"{name}_after_norm")(h)
    if options.dropout:
        h = Dropout(options.dropout, name=f"{name}_dropout")(h)
    return Add(name=f"{name}_add")([x, h])


def _norm(options: DecoderOptions, name: str | None = None, axis: Any = -1) -> Any:
    return RMSNormalization(
        axis, options.epsilon, unit_offset=options.unit_offset, name=name
    )


def _attention(x: Any, number: int, options: DecoderOptions) -> Any:
    norms, scalar = {}, options.query_pre_attn_scalar
    if options.query_key_norm is not None:
        axis = -1 if options.query_key_norm == "head" else (-2, -1)
        parts = ("query_norm", "key_norm")
        norms = {part: _norm(options, part, axis) for part in parts}
    return GroupedQueryAttention(
        options.head_size,
        options.heads,
        options.key_value_heads,
        use_bias=options.attention_bias,
        use_output_bias=options.output_bias,
        dropout=options.attention_dropout,
        sliding_window=options.window_of(number),
        kernel_initializer=start(),
        rotary=options.rotary_of(number),
        scale=None if scalar is None else scalar**-0.5,
        logit_soft_cap=options.attention_soft_cap,
        name=f"block_{number}_attention",
        **norms,
    )(x, x, use_causal_mask=True)


def _experts(
    x: Any, number: int, options: DecoderOptions, *, routers: list[Any]
) -> Any:
    """A mixture of experts, and one for all tokens where there is a shared one.

    Args:
        routers: Takes the logits of the router.
    """
    block = f"block_{number}"
    experts = MixtureOfExperts(
        options.experts or 1,
        options.experts_per_token,
        options.expert_width or options.mlp_width,
        activations.get(options.activation),
        normalize=options.normalize_experts,
        kernel_initializer=start(),
        return_router_logits=True,
        name=f"{block}_experts",
    )
    h, logits = experts(x)
    routers.append(logits)
    if options.shared_expert_width is None:
        return h
    shared = _gated_layers(x, f"{block}_shared", options.shared_expert_width, options)
    share = {"use_bias": False, "kernel_initializer": start()}
    gate = Dense(1, "sigmoid", name=f"{block}_shared_expert_gate", **share)(x)
    shared = Multiply(name=f"{block}_shared_expert")([shared, gate])
    return Add(name=f"{block}_experts_add")([h, shared])


def _gated_mlp(x: Any, number: int, options: DecoderOptions) -> Any:
    return _gated_layers(x, f"block_{number}", options.mlp_width, options)


def _gated_layers(x: Any, name: str, width: int, options: DecoderOptions) -> Any:
    """``(activation(x W_gate) * x W_up) W_down``

    Source: Shazeer, *GLU Variants Improve Transformer*, 2020.
    """
    activation = activations.get(options.activation)
    further = {"use_bias": options.mlp_bias, "kernel_initializer": start()}
    gate = Dense(width, activation, name=f"{name}_gate", **further)(x)
    up = Dense(width, name=f"{name}_up", **further)(x)
    h = Multiply(name=f"{name}_gated")([gate, up])
    return Dense(options.width, name=f"{name}_down", **further)(h)
