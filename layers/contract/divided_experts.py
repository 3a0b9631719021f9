"""Experts that devices divide: each has some, and computes these for all tokens.

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

from exburn.runtime.sharding.current import active
from exburn.runtime.sharding.layouts import axis_names


class Division(NamedTuple):
    """The devices that divide experts.

    Attributes:
        mesh: The mesh.
        batch: Its axes that divide the batch.
        axes: Those that divide the experts.
    """

    mesh: Mesh
    batch: tuple[str, ...]
    axes: tuple[str, ...]

    @property
    def parts(self) -> int:
        """Devices that divide the experts."""
        return math.prod(self.mesh.shape[name] for name in self.axes)

    def rows(self, count: int) -> tuple[str, ...]:
        """The axes that divide a batch of so many rows: none if not evenly."""
        parts = math.prod(self.mesh.shape[name] for name in self.batch)
        return () if count % parts else self.batch

    def gathered_parts(self, count: int) -> int:
        """Devices whose tokens, of a batch of so many rows, come together."""
        shared = set(self.axes) & set(self.rows(count))
        return math.prod(self.mesh.shape[name] for name in shared)


def expert_division(weights: Iterable[Any]) -> Division | None:
    """How the distribution in force divides weights ``[experts, …]`` by their experts.

    Args:
        weights: Those of one layer.

    Returns:
        ``None`` where it does not, or divides them in another way.
    """
    distribution = active()
    if distribution is None:
        return None
    specs = set()
    for weight in weights:
        path = getattr(weight, "path", None)
        if path is None:
            return None
        specs.add(tuple(distribution.compute_spec(path, tuple(weight.shape))))
    first, *rest = specs.pop() or (None,)
    if specs or first is None or any(axis is not None for axis in rest):
        return None
    axes = tuple(axis_names(PartitionSpec(first)))
    division = Division(distribution.mesh, distribution.batch_axes, axes)
    return None if division.parts == 1 else division


def over_devices(
    route: Callable[..., jax.Array], division: Division, count: int
) -> Callable[..., jax.Array]:
    """``route``, of which each device computes its own experts.

    Args:
        route: Called with ``x``, ``choices``, ``shares`` and weights of some experts; a
            choice that is none of their numbers has no part in the sum.
        division: The devices.
        count: Rows of the batch.
    """
    mesh, _, axes = division
    batch = division.rows(count)
    gathered = tuple(name for name in axes if name in batch)
    shared = tuple(name for name in axes if name not in batch)

    def run(x: Any, choices: Any, shares: Any, *weights: Any) -> Any:
        here = weights[0].shape[0]
        if gathered:
            x, choices, shares = (
                lax.all_gather(v, gathered, tiled=True) for v in (x, choices, shares)
            )
        own = choices - lax.axis_index(axes) * here
        is_here = (own >= 0) & (own < here)
        shares = jnp.where(is_here, shares, 0)
        y = route(x, jnp.where(is_here, own, here), shares, *weights)
        if shared:
            y = lax.psum(y, shared)
        return lax.psum_scatter(y, gathered, tiled=True) if gathered else y

    rows, part = PartitionSpec(batch or None), PartitionSpec(axes)
    return jax.shard_map(
        run,
        mesh=mesh,
        in_specs=(rows, rows, rows, part, part, part),
        out_specs=rows,
        check_vma=False,
    )
