"""Methods of attribution, as pure functions of a chunk of rows.

Each takes ``(scorer, options)`` and returns a function of ``(groups, x, features,
targets, extras)``: what the rows' scores owe to each entry of the features.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from exburn.insight.explanations.scores import Scorer

_NODES = 128  # of a part of the way

Arrays = dict[str, Any]


def pick(scores: Any, targets: Any) -> Any:
    """The score of each row's target: the number of an entry of the flattened row."""
    flat = scores.reshape(scores.shape[0], -1)
    return jnp.take_along_axis(flat, targets[:, None], 1)[:, 0]


def _gradients(
    scorer: Scorer, groups: Any, x: Any, features: Arrays, targets: Any
) -> tuple[Any, Arrays]:
    """The score of each row, and its gradient by the row's features."""

    def total(features: Arrays) -> tuple[Any, Any]:
        scores = pick(scorer(groups, x, features)[0], targets)
        return scores.sum(), scores  # rows do not depend on each other

    (_, scores), gradients = jax.value_and_grad(total, has_aux=True)(features)
    return scores, gradients


def saliency(scorer: Scorer) -> Callable:
    """The size of the gradient of the score.

    Source: K. Simonyan et al., "Deep Inside Convolutional Networks", 2014.
    """

    def run(groups, x, features, targets, extras):
        gradients = _gradients(scorer, groups, x, features, targets)[1]
        return {name: jnp.abs(value) for name, value in gradients.items()}, {}

    return run


def smooth_gradient(scorer: Scorer) -> Callable:
    """The mean of the gradient over inputs with noise.

    Source: D. Smilkov et al., "SmoothGrad: removing noise by adding noise", 2017.
    """

    def run(groups, x, features, targets, extras):
        keys, share, rows = extras["keys"], extras["noise"], extras["rows"]

        def noisy(key: Any, place: int, value: Any) -> Any:
            axes = tuple(range(1, value.ndim))
            spread = value.max(axes, keepdims=True) - value.min(axes, keepdims=True)
            key = jax.random.fold_in(key, place)
            draw = jax.vmap(
                lambda row: jax.random.normal(
                    jax.random.fold_in(key, row), value.shape[1:], value.dtype
                )
            )
            return value + share.astype(value.dtype) * spread * draw(rows)

        def add(sums, key):
            moved = {n: noisy(key, int(n), v) for n, v in features.items()}
            gradients = _gradients(scorer, groups, x, moved, targets)[1]
            return jax.tree.map(jnp.add, sums, gradients), None

        zeros = jax.tree.map(jnp.zeros_like, features)
        sums = jax.lax.scan(add, zeros, keys)[0]
        return {name: value / len(keys) for name, value in sums.items()}, {}

    return run


def integrated_gradients(scorer: Scorer) -> Callable:
    """The gradient along the way from a baseline, times the way.

    Source: M. Sundararajan et al., "Axiomatic Attribution for Deep Networks", 2017.
    """

    def run(groups, x, features, targets, extras):
        base = extras["baseline"]
        way = jax.tree.map(jnp.subtract, features, base)

        def add(sums, node):
            share, weight = node
            between = jax.tree.map(
                lambda b, w: b + share.astype(w.dtype) * w, base, way
            )
            gradients = _gradients(scorer, groups, x, between, targets)[1]
            step = jax.tree.map(
                lambda s, g: s + weight.astype(g.dtype) * g, sums, gradients
            )
            return step, None

        zeros = jax.tree.map(jnp.zeros_like, features)
        nodes = extras["nodes"], extras["weights"]
        means = jax.lax.scan(add, zeros, nodes)[0]
        start = pick(scorer(groups, x, base)[0], targets)
        return jax.tree.map(jnp.multiply, means, way), {"baseline_scores": start}

    return run


def quadrature(steps: int) -> tuple[np.ndarray, np.ndarray]:
    """Nodes and weights of Gauss and Legendre for the interval from 0 to 1.

    Many stand in parts of the interval with at most 128 each: to find more at once
    takes minutes.

    Example:
        >>> nodes, weights = quadrature(3)
        >>> round(float((weights * nodes**2).sum()), 6)
        0.333333
    """
    parts, nodes, weights = -(-steps // _NODES), [], []
    for part in range(parts):
        count = (steps + part) // parts
        places, shares = np.polynomial.legendre.leggauss(count)
        nodes.append((part + (places + 1) / 2) / parts)
        weights.append(shares / 2 / parts)
    joined = np.stack([np.concatenate(nodes), np.concatenate(weights)])
    places, shares = joined.astype(np.float32)
    return places, shares


def occlusion(scorer: Scorer) -> Callable:
    """The fall of the score when a patch is covered, shared over its entries.

    Source: M. Zeiler, R. Fergus, "Visualizing and Understanding Convolutional
    Networks", 2014.
    """

    def run(groups, x, features, targets, extras):
        whole = pick(scorer(groups, x, features)[0], targets)
        shares = {}
        for name, patches in extras["patches"].items():
            value, base = features[name], extras["baseline"][name]

            def cover(sums, patch, name=name, value=value, base=base):
                covered = {**features, name: jnp.where(patch, base, value)}
                fall = whole - pick(scorer(groups, x, covered)[0], targets)
                fall = fall.reshape(-1, *(1,) * (value.ndim - 1))
                return sums + fall * patch, None

            zeros = jnp.zeros(value.shape, whole.dtype)
            sums = jax.lax.scan(cover, zeros, patches)[0]
            shares[name] = sums / jnp.maximum(patches.sum(0), 1)
        return shares, {}

    return run


def shapley(scorer: Scorer) -> Callable:
    """The gain of the score when a patch is uncovered, as a mean over orders.

    Source: E. Strumbelj, I. Kononenko, "An Efficient Explanation of Individual
    Classifications using Game Theory", 2010.
    """

    def run(groups, x, features, targets, extras):
        base, patches = extras["baseline"], extras["patches"]
        ends = np.cumsum([len(covers) for covers in patches.values()])
        players = dict(zip(patches, np.split(np.arange(ends[-1]), ends), strict=False))

        def score(present: Any) -> Any:
            mixed = {}
            for name, covers in patches.items():
                some = present[players[name]].reshape(-1, *(1,) * (covers.ndim - 1))
                seen = (some & covers).any(0)
                mixed[name] = jnp.where(seen, features[name], base[name])
            return pick(scorer(groups, x, mixed)[0], targets)

        nobody = jnp.zeros(ends[-1], bool)
        low = score(nobody)

        def walk(sums, order):
            def join(state, player):
                present = state[0].at[player].set(True)
                after = score(present)
                return (present, after), after - state[1]

            gains = jax.lax.scan(join, (nobody, low), order)[1]
            return sums.at[order].add(gains), None

        zeros = jnp.zeros((ends[-1], *low.shape), low.dtype)
        means = jax.lax.scan(walk, zeros, extras["orders"])[0] / len(extras["orders"])
        shares = {}
        for name, covers in patches.items():
            share = jnp.tensordot(means[players[name]].T, covers.astype(low.dtype), 1)
            shares[name] = jnp.broadcast_to(share, features[name].shape)
        return shares, {}

    return run


def orders_of(players: int, samples: int, seed: int) -> np.ndarray:
    """Orders in which players join: all, where there are no more, else random ones.

    Of random ones every second is the reverse of the one before.

    Example:
        >>> orders_of(2, 50, 0).tolist()
        [[0, 1], [1, 0]]
        >>> orders_of(9, 4, 0).shape
        (4, 9)
    """
    if players <= 20 and math.factorial(players) <= samples:
        return np.array([*itertools.permutations(range(players))], np.int32)
    rng = np.random.default_rng(seed)
    orders = [rng.permutation(players) for _ in range((samples + 1) // 2)]
    pairs = [order[::step] for order in orders for step in (1, -1)]
    return np.array(pairs[:samples], np.int32)


def patches_of(
    shape: tuple[int, ...], axes: tuple[int, ...], patch: tuple, stride: tuple
) -> np.ndarray:
    """Masks of the entries of a row that each patch covers: booleans, [patches, …].

    Args:
        shape: Of a row.
        axes: Those that patches are moved along; they cover the others whole, which
            have one entry in the result.
        patch, stride: Entries along each of these axes.

    Example:
        >>> patches_of((3, 2), (0,), (2,), (1,)).astype(int)[..., 0].tolist()
        [[1, 1, 0], [0, 1, 1]]
    """
    starts = [
        range(0, max(shape[axis] - size, 0) + step, step)
        for axis, size, step in zip(axes, patch, stride, strict=True)
    ]
    counts = [len(r) for r in starts]
    shape = tuple(size if axis in axes else 1 for axis, size in enumerate(shape))
    masks = np.zeros((int(np.prod(counts)), *shape), bool)
    for number, place in enumerate(np.ndindex(*counts)):
        region: list[Any] = [slice(None)] * len(shape)
        for axis, size, at, begin in zip(axes, patch, place, starts, strict=True):
            region[axis] = slice(begin[at], begin[at] + size)
        masks[(number, *region)] = True
    return masks


def gradcam(scorer: Scorer) -> Callable:
    """The places where a layer's channels that speak for the target are active.

    Source: R. Selvaraju et al., "Grad-CAM", 2017.
    """

    def run(groups, x, features, targets, extras):
        def total(shift):
            scores, parts = scorer(groups, x, features, shift)
            return pick(scores, targets).sum(), parts["layer"]

        moved = jax.grad(total, has_aux=True)(extras["shift"])
        gradients, active = (jnp.moveaxis(v, scorer.channels, -1) for v in moved)
        axes = tuple(range(1, active.ndim - 1))
        weights = gradients.mean(axes, keepdims=True)
        heat = jax.nn.relu((weights * active).sum(-1))
        return {"0": heat}, {}

    return run


def attention(scorer: Scorer) -> Callable:
    """The flow of attention from the input's positions through all layers.

    Source: S. Abnar, W. Zuidema, "Quantifying Attention Flow in Transformers", 2020.
    """

    def run(groups, x, features, targets, extras):
        weights = scorer(groups, x, {})[1]["attention"]
        flow = rollout(weights)
        return {"0": jnp.einsum("nt,nts->ns", extras["positions"], flow)}, {}

    return run


def rollout(weights: Any) -> Any:
    """The product of attention weights, each beside a shortcut: ``[rows, to, from]``.

    Args:
        weights: Of each layer, the first one first: ``[rows, to, from]``, adding up to
            1 along the last axis.

    Example:
        >>> last = jnp.array([[[0.0, 1.0], [1.0, 0.0]]])
        >>> rollout([last, last])[0].tolist()
        [[0.5, 0.5], [0.5, 0.5]]
    """
    flow = jnp.eye(weights[0].shape[-1])[None]
    for layer in weights:
        flow = (flow + layer @ flow) / 2
    return flow


METHODS: Mapping[str, Callable[[Scorer], Callable]] = {
    "saliency": saliency,
    "smooth_gradient": smooth_gradient,
    "integrated_gradients": integrated_gradients,
    "gradcam": gradcam,
    "occlusion": occlusion,
    "shapley": shapley,
    "attention": attention,
}
