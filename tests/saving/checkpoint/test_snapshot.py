"""Copies of arrays that the next program is going to overwrite."""

import jax
import jax.numpy as jnp
import numpy as np

from exburn.saving.checkpoint.snapshot import Snapshot, _on_host


def test_copies_are_of_their_own_and_their_memory_is_used_again():
    snapshot, host = Snapshot(), np.ones(2)
    first = snapshot.take({"w": jnp.arange(3.0), "n": host, "step": 4})
    assert first["n"] is host and first["step"] == 4
    kept = np.array(first["w"])
    second = snapshot.take({"w": jnp.arange(3.0) + 1})
    np.testing.assert_array_equal(kept, [0, 1, 2])
    np.testing.assert_array_equal(second["w"], [1, 2, 3])
    if _on_host(jnp.ones(1)):
        assert second["w"] is first["w"]  # the same memory, valid until the next call
    assert snapshot.take({"w": jnp.ones(5)})["w"].shape == (5,)


def test_a_program_may_consume_what_was_copied():
    array = jnp.arange(4.0)
    copy = Snapshot().take({"w": array})["w"]
    consumed = jax.jit(lambda x: x * 0, donate_argnums=0)(array)
    np.testing.assert_array_equal(copy, np.arange(4.0))
    assert consumed.sum() == 0
