"""What an exception of JAX is about."""

import jax
import jax.numpy as jnp
import pytest

from exburn.runtime.failures import is_exhausted, misses_arrays


@pytest.mark.parametrize(
    ("error", "exhausted"),
    [
        (MemoryError("std::bad_alloc"), True),
        (MemoryError("Unable to allocate 1 TiB"), False),
        (jax.errors.JaxRuntimeError("NOT_FOUND: … RESOURCE_EXHAUSTED: Out of …"), True),
        (jax.errors.JaxRuntimeError("INTERNAL: something else"), False),
        (RuntimeError("Out of memory"), False),
    ],
)
def test_a_full_device_is_told_from_a_full_host(error, exhausted):
    assert is_exhausted(error) is exhausted


def test_arrays_that_were_consumed_are_recognized_by_what_jax_says():
    gone = jnp.arange(3.0)
    gone.delete()
    for use in (lambda: gone + 1, lambda: int(gone[0]), lambda: jax.jit(jnp.sin)(gone)):
        with pytest.raises((RuntimeError, ValueError)) as caught:
            use()
        assert misses_arrays(caught.value)
    assert not misses_arrays(RuntimeError("INTERNAL: something else"))
