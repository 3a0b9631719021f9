"""Kernels and forms for one kind of hardware, each with the plain form it replaces.

A module's docstring says what it computes, what it replaces, where it runs, and what
that gained, on which device. Kernels of Triton, on NVIDIA GPUs:

- `one_pass_norm`: layer normalization that reads each sample once.
- `row_softmax`: softmax of rows.
- `biased_gelu`: GELU of a product and its bias, with its derivative.
- `short_attention`: attention of short rows out of their joint product.
- `qkv_projection`: query, key and value by one product, their gradients joined.
- `cross_entropy_gpu`: long rows of scores, read for loss, accuracy and gradient.
- `paged_attention`: attention of one token of each text over pages.
- `recurrent_loop`: a recurrent layer's loop over time.

Forms in XLA's own operations:

- `layer_norm`: normalized samples, with a backward pass that reads little.
- `softmax`: softmax, with a derivative made of its values.
- `attention_softmax`: softmax of attention's scores, in the form that suits.
- `gelu`: GELU, with a derivative that is computed once.
- `cross_entropy`: long rows of scores for losses and accuracy, and spare classes.
- `head_loss`: the cross-entropy of a head's scores, a few rows of them at a time.
- `padded_matmul`: ``x @ kernel + bias``, with columns filled up to whole tiles.
- `int8_matmul`: products of int8, with terms filled up to a multiple of four.
- `max_pool`: maxima of windows, whose gradient goes to the first of equals.
- `dropout_mask`: which entries dropout keeps, by a hash.
- `conv/`: convolutions: `dispatch` chooses, `cpu`, `cpu_depthwise` and `gpu` are the
  forms, `shifted_sum` is what they share.

Two modules decide for the others: `dispatch`, whether kernels of Triton run at all, and
on which of the rows that several devices divide; `memory_bound`, whether an array is so
large that reading less is worth more kernels.

The rule for a new one. A module has (1) the kernel; (2) the plain form beside it, which
runs wherever the kernel does not, and gives derivatives of its derivatives; (3) the
condition as a function of its own (``fits``), which is false for symbolic sizes and,
for Triton, where `dispatch.runs_kernels` is: it asks for the size of a `device_part`,
and the kernel is called through `by_rows`; (4) the measured gain with number and
device in its docstring, or "not measured on its own"; (5) a test that compares values,
gradients and gradients of gradients with the plain form, interpreted on a CPU
(``tests/layers/test_gpu_kernels.py``). One that gains nothing any more is deleted.
"""
