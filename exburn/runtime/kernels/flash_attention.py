"""cuDNN's flash attention, which never holds the matrix of weights."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from exburn.config import is_flash_attention_enabled
from exburn.errors import ArgumentError
from exburn.runtime import portable
from exburn.runtime.kernels.position_mask import position_mask
from exburn.runtime.sharding.current import sequence_division


def why_not_cudnn(query, key, value, mask, in_ring: bool = False) -> str | None:
    """Why cuDNN's flash attention cannot run, or None if it can.

    Args:
        in_ring: Whether each device runs it for its positions, in `ring_attention`.
    """
    if portable.current() is not None:
        return "the program is traced to run elsewhere"
    if jax.default_backend() != "gpu":
        return f"JAX runs on {jax.default_backend()}"
    if sequence_division() is not None and not in_ring:
        return "devices divide the positions"
    kinds = {jnp.dtype(v.dtype).name for v in (query, key, value)}
    if len(kinds) > 1 or not kinds <= {"bfloat16", "float16"}:
        return f"it computes in bfloat16 or float16, not {', '.join(sorted(kinds))}"
    sizes = (*query.shape, *key.shape)
    if not all(isinstance(d, int) for d in sizes):
        return "sizes are not known"
    capability = getattr(jax.local_devices()[0], "compute_capability", None)
    if capability is None or float(capability) < 8:
        return "it needs an NVIDIA GPU of the Ampere generation or a newer one"
    size, largest = query.shape[-1], 256 if float(capability) >= 9 else 128
    if value.shape[-1] != size:
        return "keys and values differ in size"
    if size % 8 or size > largest:
        return f"the size of a head, {size}, is no multiple of 8 up to {largest}"
    if query.shape[1] < 2 or key.shape[1] < 2:
        return "there is one position only"
    if mask is not None and (query.shape[1] % 2 or key.shape[1] % 2):
        return "with a mask, lengths must be even"
    return None


def takes_cudnn(
    op: str, asked: bool | None, query, key, value, mask, in_ring: bool = False
) -> bool:
    """Whether cuDNN's kernel is to run.

    Args:
        op: Who asks, for messages.
        asked: True: it runs, or that is an error. False: it does not. None: it runs
            where it can, unless ``config.disable_flash_attention()``.
        query: ``[batch, targets, heads, size]``.
        key: ``[batch, sources, key heads, size]``.
        value: ``[batch, sources, key heads, size]``.
        mask: A mask or bias of the scores, or None.
        in_ring: As of `why_not_cudnn`.

    Raises:
        ArgumentError: It is asked for and cannot run.
    """
    if (is_flash_attention_enabled() if asked is None else asked) is False:
        return False
    reason = why_not_cudnn(query, key, value, mask, in_ring)
    if reason and asked:
        raise ArgumentError(op, f"flash attention cannot run: {reason}")
    return reason is None


def flash_attention(
    query, key, value, *, bias=None, mask=None, causal=False, window=None, scale=None
):
    """Attention of heads by cuDNN's kernel, which :func:`why_not_cudnn` allows.

    Args:
        query: ``[batch, targets, heads, size]``.
        key: ``[batch, sources, key heads, size]``; heads are a multiple of key heads.
        value: ``[batch, sources, key heads, size]``.
        bias: Added to the scores; broadcasts to ``[batch, heads, targets, sources]``.
        mask: Booleans that broadcast to ``[batch, heads, targets, sources]``.
        causal: Whether a position sees none after it.
        window: Whether a position sees only those less than this many steps away.
        scale: Factor of the scores; ``1 / sqrt(size)`` by default.

    Returns:
        ``[batch, targets, heads, size]``
    """
    targets, sources = query.shape[1], key.shape[1]
    read = None
    if window is not None and not causal:
        seen = position_mask(targets, sources, causal=False, window=window)
        mask, window = seen if mask is None else mask & seen, None
    if mask is not None:  # its bias has the full size in the last two axes
        mask = jnp.broadcast_to(mask, (*mask.shape[:2], targets, sources))
        mask, read = _without_blind_rows(mask, causal, window)
    if bias is not None:
        bias = jnp.broadcast_to(bias, (*bias.shape[:2], targets, sources))
    out = jax.nn.dot_product_attention(
        query,
        key,
        value,
        bias=bias,
        mask=mask,
        scale=scale,
        is_causal=causal,
        local_window_size=None if window is None else (window - 1, 0),
        implementation="cudnn",
    )
    if read is None:
        return out
    mean = jnp.repeat(
        value.mean(axis=1, keepdims=True), out.shape[2] // value.shape[2], 2
    )
    return jnp.where(read, out, mean)


def _without_blind_rows(mask, causal: bool, window: int | None):
    """The mask with rows that see nothing made to see, and which rows saw something.

    cuDNN's gradient is wrong, by more than a factor of ten, where a row sees nothing.
    """
    near = position_mask(*mask.shape[-2:], causal=causal, window=window)
    seen = (mask if near is None else mask & near).any(axis=-1, keepdims=True)
    return mask | ~seen, seen.swapaxes(1, 2)
