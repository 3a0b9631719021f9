"""Networks of which each token takes a few, and the losses of their router."""

from __future__ import annotations

from typing import Any, Unpack

import jax
import jax.numpy as jnp

from exburn import activations, initializers
from exburn.core import forward_context
from exburn.core.annotations import Identifier
from exburn.core.checks import check_count, check_flag, check_number
from exburn.core.registry import register_builtin
from exburn.errors import ArgumentError, ShapeError
from exburn.initializers import VarianceScaling
from exburn.layers.contract.divided_experts import divide_tokens
from exburn.layers.contract.routed_experts import route_experts
from exburn.module.layer import Layer
from exburn.module.layer_options import LayerOptions

__all__ = ["MixtureOfExperts", "RouterLosses"]


@register_builtin
class MixtureOfExperts(Layer):
    """Gated networks, of which a router gives each token the ``top_k`` likeliest.

    ``Σ share_e · (activation(x gate_e) * x up_e) down_e`` over the experts ``e`` of a
    token, whose shares are those of ``softmax(x router)``. No token is dropped, however
    many choose the same expert; each is computed by itself.

    The experts' weights are quantized with the model. They have adapters (LoRA) where
    ``add_lora(filter=…)`` names the layer.

    Args:
        experts: Number of networks.
        top_k: How many of them a token takes.
        units: Number of features inside of a network.
        activation: Of the gate.
        normalize: Whether a token's shares are divided by their sum, which is the
            softmax over the chosen ones alone; else over all.
        kernel_initializer: Initializer of all weights; if None, uniform by the inputs
            and outputs of one expert.
        return_router_logits: Whether to return ``x router``, too, for
            :class:`RouterLosses`.

    Shape:
        x: [batch, time, width] → the same; and [batch, time, experts] in float32 with
        ``return_router_logits``

    Raises:
        ArgumentError: A size is no integer >= 1, or there are fewer experts than
            ``top_k``.
        ShapeError: The input has other axes than those.

    Example:
        >>> import numpy as np
        >>> layer = MixtureOfExperts(experts=8, top_k=2, units=16)
        >>> layer(np.ones((2, 6, 4), "float32")).shape
        (2, 6, 4)

    Source: Shazeer et al., *Outrageously Large Neural Networks*, 2017; Jiang et al.,
    *Mixtral of Experts*, 2024.
    """

    kept_as = {"activation": activations.get}
    activation: Any

    def __init__(
        self,
        experts: int,
        top_k: int,
        units: int,
        activation: Identifier = "silu",
        *,
        normalize: bool = True,
        kernel_initializer: Identifier = None,
        return_router_logits: bool = False,
        **kwargs: Unpack[LayerOptions],
    ):
        super().__init__(**kwargs)
        op = "MixtureOfExperts"
        self.experts = check_count(op, "experts", experts)
        self.top_k = check_count(op, "top_k", top_k)
        self.units = check_count(op, "units", units)
        if top_k > experts:
            raise ArgumentError(
                op, f"top_k <= experts, received {top_k} of {experts} experts"
            )
        self.activation = activation
        self.normalize = check_flag(op, "normalize", normalize)
        self.kernel_initializer = initializers.get(kernel_initializer)
        self.return_router_logits = check_flag(
            op, "return_router_logits", return_router_logits
        )
        self.supports_masking = True

    def build(self, input_shape):
        if len(input_shape) != 3 or not isinstance(input_shape[-1], int):
            raise ShapeError(
                self.name,
                f"an input [batch, time, width] is needed, received {input_shape}",
            )
        width, own = input_shape[-1], self.kernel_initializer
        one = VarianceScaling(1.0, "fan_avg", "uniform", None, (-2,), (-1,))
        start = one if own is None else own
        into = (self.experts, width, self.units)
        self.router = self.add_weight((width, self.experts), start, name="router")
        self.gate = self.add_weight(into, start, name="gate")
        self.up = self.add_weight(into, start, name="up")
        out = (self.experts, self.units, width)
        self.down = self.add_weight(out, start, name="down")

    def call(self, inputs):
        x, router = self.cast(inputs), self.cast(self.router)
        wide = jnp.promote_types(x.dtype, jnp.float32)
        logits = jnp.matmul(x, router, preferred_element_type=wide)
        shares, chosen = jax.lax.top_k(jax.nn.softmax(logits), self.top_k)
        if self.normalize:
            shares = shares / shares.sum(-1, keepdims=True)
        weights = self.cast(self.gate), self.cast(self.up), self.cast(self.down)
        division = divide_tokens(x, (self.gate, self.up, self.down))
        y = route_experts(
            x, chosen, shares, weights, self.activation, division=division
        )
        return (y, logits) if self.return_router_logits else y


@register_builtin
class RouterLosses(Layer):
    """Adds losses of routers to the loss in training, and returns its first input.

    ``load_balancing · E · Σ_e f_e p_e``, where ``f_e`` are the choices of expert ``e``
    per token and ``p_e`` its mean probability, over the tokens of all routers; and
    ``z · mean(logsumexp(logits)²)``. Masked tokens do not count.

    Args:
        top_k: How many experts a token takes.
        load_balancing: Factor of the first loss, which is least where all experts have
            as many tokens.
        z: Factor of the second one, which keeps logits small.

    Call arguments:
        inputs: A list of any array, which is returned, and of the logits of routers.

    Shape:
        [x, [batch, time, experts], …] → x

    Raises:
        ArgumentError: A factor is negative, or ``top_k`` no integer >= 1.
        ShapeError: There are no logits, or they have unlike numbers of experts.

    Example:
        >>> import numpy as np
        >>> x = np.ones((1, 3, 4), "float32")
        >>> experts = MixtureOfExperts(4, 2, 8, return_router_logits=True)
        >>> RouterLosses(2, load_balancing=0.01)([*experts(x)]).shape
        (1, 3, 4)

    Source: Fedus et al., *Switch Transformers*, 2021; Zoph et al., *ST-MoE*, 2022.
    """

    def __init__(
        self,
        top_k: int,
        load_balancing: float = 0.001,
        z: float = 0.0,
        **kwargs: Unpack[LayerOptions],
    ):
        super().__init__(**kwargs)
        self.top_k = check_count("RouterLosses", "top_k", top_k)
        self.load_balancing = check_number(
            "RouterLosses", "load_balancing", load_balancing
        )
        self.z = check_number("RouterLosses", "z", z)
        self.supports_masking = True

    def build(self, input_shape):
        logits = list(input_shape)[1:]
        sizes = {shape[-1] for shape in logits if isinstance(shape, tuple | list)}
        if len(sizes) != 1 or len(logits[0]) != 3:
            raise ShapeError(
                self.name,
                "inputs must be an array and logits [batch, time, experts] of routers, "
                f"received shapes {input_shape}",
            )

    def call(self, inputs, training=False):
        x, *logits = inputs
        if training:
            counts = _token_weights(x, logits[0])
            self.add_loss(self._loss([v.astype(jnp.float32) for v in logits], counts))
        return x

    def compute_mask(self, inputs, previous_mask=None):
        return previous_mask[0] if isinstance(previous_mask, list) else previous_mask

    def _loss(self, logits: list[Any], counts: Any) -> Any:
        """The loss; ``counts``, ``[batch, time]``, is 0 for tokens without account."""
        experts = logits[0].shape[-1]
        chosen, share, square = jnp.zeros(experts), jnp.zeros(experts), jnp.zeros(())
        for one in logits:
            numbers = jax.lax.top_k(one, self.top_k)[1]
            hits = jax.nn.one_hot(numbers, experts).sum(-2)  # [batch, time, experts]
            chosen += jnp.einsum("bte,bt->e", hits, counts)
            share += jnp.einsum("bte,bt->e", jax.nn.softmax(one), counts)
            square += (jax.nn.logsumexp(one, axis=-1) ** 2 * counts).sum()
        tokens = jnp.maximum(len(logits) * counts.sum(), 1)
        balance = experts * (chosen / tokens * (share / tokens)).sum()
        return self.load_balancing * balance + self.z * square / tokens


def _token_weights(x: Any, logits: Any) -> Any:
    """``[batch, time]``: 1 for tokens, 0 for what fills rows and batches up."""
    counts = jnp.ones(logits.shape[:2], jnp.float32)
    ctx = forward_context.current()
    if ctx is None:
        return counts
    if ctx.row_mask is not None:
        counts *= ctx.row_mask[:, None]
    if ctx.segments is not None:  # 0 is what fills a packed row up
        counts *= ctx.segments.numbers > 0
    mask = ctx.mask_of(x)
    return counts if mask is None else counts * mask
