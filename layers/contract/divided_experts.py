"""Experts and tokens that devices divide: each computes its experts for its tokens.

Devices that share a part of the batch have its tokens already, and add up what their
experts give. Where the axis of the experts divides the batch, too, tokens are gathered
along it before, and sums divided again after. Per device and way that moves the tokens
of the other ``parts - 1`` devices once; to send each token to its experts alone, an
exchange of all with all, would move ``top_k`` copies of the device's own: more, unless
there are more devices than a token has experts, and blocks of unlike sizes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jax.sharding import Mesh, PartitionSpec

from exburn.runtime.sharding.current import (
    active,
    feature_division,
    row_division,
    sequence_division,
)
from exburn.runtime.sharding.layouts import axis_names

Axes = tuple[str, ...]


class Division(NamedTuple):
    """The devices that divide tokens ``[batch, time, …]`` and experts.

    Attributes:
        mesh: The mesh.
        rows: Its axes that divide the batch.
        positions: Those that divide time.
        experts: Those that divide the experts.
    """

    mesh: Mesh
    rows: Axes = ()
    positions: Axes = ()
    experts: Axes = ()

    @property
    def parts(self) -> int:
        """Devices that divide the experts."""
        return self.size(self.experts)

    def size(self, names: Iterable[str]) -> int:
        """Devices along some axes."""
        return math.prod(self.mesh.shape[name] for name in names)

    def exchanges(self) -> list[tuple[int, Axes]]:
        """Axes of tokens that devices with other experts gather, and of the mesh."""
        both = [
            (number, tuple(name for name in names if name in self.experts))
            for number, names in enumerate((self.rows, self.positions))
        ]
        return [(number, names) for number, names in both if names]

    def token_count(self, tokens: int) -> int:
        """Tokens that each device computes, of so many."""
        shared = self.size(name for _, names in self.exchanges() for name in names)
        return tokens * shared // self.size((*self.rows, *self.positions))


def divide_tokens(x: Any, weights: Iterable[Any]) -> Division | None:
    """How the distribution in force divides tokens, and experts.

    Args:
        x: ``[batch, time, width]``; what does not divide evenly is whole.
        weights: ``[experts, …]``, those of one layer; divided where all of them are, by
            their first axis alone.

    Returns:
        ``None`` on one device, where it divides none of these, and where a user has put
        arrays on devices.
    """
    distribution = active()
    divisions = row_division, sequence_division, feature_division
    if distribution is None or all(one() is None for one in divisions):
        return None
    division = Division(distribution.mesh)
    batch, positions = distribution.batch_axes, ()
    if distribution.sequence_parts > 1:
        positions = (distribution.sequence_axis,)
    division = division._replace(
        rows=batch if x.shape[0] % division.size(batch) == 0 else (),
        positions=positions if x.shape[1] % division.size(positions) == 0 else (),
        experts=_expert_axes(distribution, weights),
    )
    return division if any(division[1:]) else None


def _expert_axes(distribution: Any, weights: Iterable[Any]) -> Axes:
    specs, count = set(), 1
    for weight in weights:
        path = getattr(weight, "path", None)
        if path is None:  # computed from others, as of few bits
            return ()
        shape = tuple(weight.shape)
        specs.add(tuple(distribution.compute_spec(path, shape)))
        count = shape[0]
    first, *rest = specs.pop() or (None,)
    if specs or any(axis is not None for axis in rest):
        return ()
    names = tuple(axis_names((first,)))
    parts = math.prod(distribution.mesh.shape[name] for name in names)
    return () if count % parts else names  # the layout's check names it


def over_devices(
    route: Callable[..., jax.Array], division: Division
) -> Callable[..., jax.Array]:
    """``route``, of which each device computes its own experts, for tokens that it has.

    Args:
        route: Called with ``x``, ``choices``, ``shares`` and weights of some experts; a
            choice that is none of their numbers has no part in the sum.
        division: The devices.
    """
    exchanges, experts = division.exchanges(), division.experts
    tokens = {*division.rows, *division.positions}
    shared = tuple(name for name in experts if name not in tokens)

    def run(x: Any, choices: Any, shares: Any, *weights: Any) -> Any:
        here = weights[0].shape[0]
        for axis, names in exchanges:
            x, choices, shares = (
                lax.all_gather(v, names, axis=axis, tiled=True)
                for v in (x, choices, shares)
            )
        if experts:
            own = choices - lax.axis_index(experts) * here
            is_here = (own >= 0) & (own < here)
            choices = jnp.where(is_here, own, here)
            shares = jnp.where(is_here, shares, 0)
        y = route(x, choices, shares, *weights)
        if shared:
            y = lax.psum(y, shared)
        for axis, names in exchanges:
            y = lax.psum_scatter(y, names, scatter_dimension=axis, tiled=True)
        return y

    of_token = PartitionSpec(division.rows or None, division.positions or None)
    of_expert = PartitionSpec(experts or None)
    return jax.shard_map(
        run,
        mesh=division.mesh,
        in_specs=(of_token, of_token, of_token, of_expert, of_expert, of_expert),
        out_specs=of_token,
        check_vma=False,
    )
