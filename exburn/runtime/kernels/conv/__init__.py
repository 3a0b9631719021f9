"""Convolutions in forms for one kind of hardware: `dispatch` chooses among them.

- `cpu`: sums of matrix products, where XLA's own is slow on a CPU.
- `cpu_depthwise`: depthwise ones on a CPU, with gradients of their own in ``fit``.
- `gpu`: forms and gradients where cuDNN's are slow.
- `shifted_sum`: windows as shifted arrays, which all of them are made of.

The plain form of all is ``jax.lax.conv_general_dilated``, in `dispatch.convolve`. Each
module has its gain.
"""
