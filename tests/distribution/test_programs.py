"""What is compiled for several devices: what they send each other, and hold."""

import re
from collections import Counter

import jax
import numpy as np
import pytest
from tests.distribution.devices import COUNT, on_devices
from tests.distribution.models import compiled, data

import exburn
from exburn import layers
from exburn.distribution import FSDP, ZeRO
from exburn.training.feed.chunking import single_chunk
from exburn.training.program import _apart_from_totals

WIDTH = 512


def wide():
    hidden = [layers.Dense(WIDTH, "relu") for _ in range(4)]
    return exburn.Sequential([exburn.Input((WIDTH,)), *hidden, layers.Dense(4)])


def trained(mesh):
    """The state of a model after an epoch, and the program of one step of 64 rows."""
    model = compiled(wide, mesh)
    x, y = np.ones((64, WIDTH), np.float32), np.zeros(64, np.int32)
    model.fit(x, y, batch_size=64, verbose=0)
    preparer = model._training_session.preparer
    state, chunk = preparer.initial_state(), single_chunk((x, y, None), 64, exact=False)
    args = _apart_from_totals((state, *chunk.arguments))
    args, _ = preparer.holder.placement.bind(args, 2)
    return state, preparer.programs.train._call.lower(*args).compile()


def collectives(program):
    names = "all-reduce|all-gather|reduce-scatter|all-to-all|collective-permute"
    return Counter(re.findall(rf" ({names})(?:-start)?\(", program.as_text()))


def bytes_of(state, device=None):
    leaves = jax.tree.leaves((state.params, state.opt_state))
    if device is None:
        return sum(leaf.nbytes for leaf in leaves)
    return sum(leaf.addressable_shards[device].data.nbytes for leaf in leaves)


@on_devices
def test_data_parallel_sums_gradients_and_sends_no_data():
    state, program = trained("data")
    found = collectives(program)
    assert set(found) == {"all-reduce"}
    analysis = program.memory_analysis()
    assert analysis.alias_size_in_bytes >= bytes_of(state)  # consumed, not copied
    assert all(leaf.sharding.is_fully_replicated for leaf in jax.tree.leaves(state))
    inputs = program.input_shardings[0]
    assert inputs[2][0].spec[1] == "data"  # the batch comes divided


@on_devices
@pytest.mark.parametrize("kind", [FSDP, ZeRO])
def test_bytes_a_device(kind):
    mesh = kind() if kind is FSDP else kind(3)
    state, program = trained(mesh)
    most = bytes_of(state) / COUNT * 1.05
    assert all(bytes_of(state, device) <= most for device in range(COUNT))
    # Five kernels forward; backward again, but for the first, whose input needs none.
    assert collectives(program)["all-gather"] >= 5 + 4
    assert program.memory_analysis().alias_size_in_bytes >= bytes_of(state, 0)


@on_devices
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_no_gathered_weight_is_kept_for_the_pass_backward(dtype):
    model = wide()
    model.dtype_policy = "float32" if dtype == "float32" else "mixed_bfloat16"
    model.compile("adam", "cross_entropy", mesh="fsdp")
    x, y = np.ones((64, WIDTH), np.float32), np.zeros(64, np.int32)
    model.fit(x, y, batch_size=64, verbose=0)
    preparer = model._training_session.preparer
    state, steps = preparer.initial_state(), preparer.programs.steps
    loss = preparer.holder.placement.gathering(steps.loss)

    def residuals(params):
        return jax.vjp(lambda p: loss(p, state, (x, y, None), None)[0], params)[1]

    with steps.tracing("train"):
        jaxpr = jax.make_jaxpr(residuals)(state.params).jaxpr
    made = [v.aval for v in jaxpr.outvars if v not in jaxpr.invars]
    assert made and not [v for v in made if v.shape == (WIDTH, WIDTH)]


@on_devices
@pytest.mark.parametrize("stage", [1, 2])
def test_stages_of_zero_keep_weights_whole(stage):
    state, _ = trained(ZeRO(stage))
    assert all(w.sharding.is_fully_replicated for w in state.params.values())
    weights = sum(w.nbytes for w in state.params.values())
    slots = bytes_of(state, 0) - weights
    assert slots <= (bytes_of(state) - weights) / COUNT * 1.05


@on_devices
def test_data_stay_where_they_are_through_the_epochs():
    """Held data are whole on every device; only the numbers of rows are divided."""
    model = compiled("mlp", "data")
    x, y, _ = data("mlp")
    model.fit(x, y, batch_size=64, epochs=2, verbose=0, resident=True)
    preparer = model._training_session.preparer
    place = preparer.holder.placement
    held = place.send_whole((x, y, None))
    index = np.zeros((2, 64), np.int32)
    args = _apart_from_totals((preparer.initial_state(), held, index, None))
    args, _ = place.bind(args, 2)
    program = preparer.programs.train._call.lower(*args).compile()
    assert set(collectives(program)) == {"all-reduce"}


def recommender(words, width=16):
    words_of = exburn.Input((8,), dtype="int32")
    found = layers.Flatten()(layers.Embedding(words, width)(words_of))
    return exburn.Model(words_of, layers.Dense(4)(found))


@on_devices
@pytest.mark.parametrize("words", [20, 5000])
def test_devices_send_rows_and_not_a_gradient_as_large_as_the_table(words):
    x, y = np.arange(64 * 8).reshape(64, 8) % words, np.arange(64) % 4
    losses = {}
    for mesh in (None, "data"):
        model = compiled(lambda: recommender(words), mesh)
        losses[mesh] = model.fit(x, y, batch_size=64, epochs=3, verbose=0).history
    np.testing.assert_allclose(losses["data"]["loss"], losses[None]["loss"], rtol=1e-5)
    preparer = model._training_session.preparer
    chunk = single_chunk((x, y, None), 64, exact=False)
    args = _apart_from_totals((preparer.initial_state(), *chunk.arguments))
    args, _ = preparer.holder.placement.bind(args, 2)
    program = preparer.programs.train._call.lower(*args).compile()
    sums = re.findall(r"= (.*?) all-reduce(?:-start)?\(", program.as_text())
    assert any(f"[{words},16]" in kinds for kinds in sums) is (words == 20)


@on_devices
def test_a_device_beside_others_is_one_device():
    """Nothing is divided unless it is asked for."""
    model = compiled("mlp")
    x, y, _ = data("mlp")
    model.fit(x, y, verbose=0)
    assert {len(w.value.sharding.device_set) for w in model.weights} == {1}
