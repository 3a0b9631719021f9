"""Tests of ``exburn.optimizers.contract.eight_bits``."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tests.distribution.devices import on_devices

import exburn
from exburn import callbacks, layers, losses, optimizers
from exburn.distribution import FSDP
from exburn.errors import ArgumentError
from exburn.models.model import Model
from exburn.optimizers.contract.eight_bits import (
    EightBitSlot,
    dynamic_map,
    pack_slot,
    unpack_slot,
)

WITH_SLOTS = {
    "adam": lambda bits: optimizers.Adam(0.01, amsgrad=True, state_bits=bits),
    "adamw": lambda bits: optimizers.AdamW(0.01, state_bits=bits),
    "lamb": lambda bits: optimizers.Lamb(0.01, state_bits=bits),
    "lion": lambda bits: optimizers.Lion(0.001, state_bits=bits),
    "rmsprop": lambda bits: optimizers.RMSprop(0.01, momentum=0.5, state_bits=bits),
    "sgd": lambda bits: optimizers.SGD(0.02, momentum=0.9, state_bits=bits),
}
PARAMS = {"w": (64, 256), "odd": (70, 71), "bias": (256,)}


def values(shape, seed=0):
    rng = np.random.default_rng(seed)
    spread = np.exp(rng.normal(size=shape))
    return (rng.normal(size=shape) * spread).astype(np.float32)


def nearest_sizes(shape, signed):
    """A slot's values and those it unpacks to, as parts of their block's largest."""
    wide = values(shape) if signed else values(shape) ** 2
    back = np.asarray(unpack_slot(pack_slot(jnp.asarray(wide), signed), signed))
    fill = -wide.size % 256
    rows, got = (
        np.pad(v.reshape(-1), (0, fill)).reshape(-1, 256) for v in (wide, back)
    )
    largest = np.abs(rows).max(1, keepdims=True)
    return rows / largest, got / largest


@pytest.mark.parametrize("signed", [True, False])
@pytest.mark.parametrize("shape", [(4, 512), (70, 71), (300,), (2, 3, 256)])
def test_values_are_kept_as_nearly_as_their_power_of_ten_allows(shape, signed):
    wide, got = nearest_sizes(shape, signed)
    size = np.abs(wide)
    for decade in range(-6, 0):
        there = (size >= 10.0**decade) & (size < 10.0 ** (decade + 1))
        bins = 2 ** (decade + 7 - signed)
        half = 0.45 / bins * 10.0 ** (decade + 1)
        assert np.all(np.abs(got - wide)[there] <= half * 1.001 + 1e-9)
    assert np.allclose(got[size == 1], wide[size == 1], rtol=1e-6)
    assert np.all(got[size == 0] == 0)


@pytest.mark.parametrize("signed", [True, False])
def test_each_number_of_the_map_has_its_own_code(signed):
    numbers = dynamic_map(signed)
    assert numbers.size == 256 and np.all(np.diff(numbers) > 0)
    slot = pack_slot(jnp.asarray(numbers), signed)
    assert np.array_equal(slot.codes, np.arange(256))


def test_a_second_moment_never_becomes_zero_beside_a_larger_one():
    slot = pack_slot(jnp.array([1.0, 1e-12, 0.0]), signed=False)
    back = np.asarray(unpack_slot(slot, signed=False))
    assert back[1] > 0 and back[2] == 0


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_what_is_no_finite_number_is_not_hidden(bad):
    slot = pack_slot(jnp.array([1.0, bad, 0.5]), signed=True)
    assert not np.isfinite(np.asarray(unpack_slot(slot, signed=True))).all()


@pytest.mark.parametrize("make", WITH_SLOTS.values(), ids=WITH_SLOTS)
def test_slots_of_large_parameters_take_a_quarter_of_the_bytes(make):
    params = {name: values(shape) for name, shape in PARAMS.items()}
    sizes = {}
    for bits in (32, 8):
        state = make(bits).init(params)["inner"]
        leaves = jax.tree_util.tree_leaves_with_path(state)
        sizes[bits] = {n: 0 for n in PARAMS}
        for path, leaf in leaves:
            for name in PARAMS:
                if any(getattr(key, "key", None) == name for key in path):
                    sizes[bits][name] += leaf.nbytes
    assert sizes[32]["bias"] == sizes[8]["bias"] > 0
    for name in ("w", "odd"):
        assert sizes[8][name] <= 0.26 * sizes[32][name]


@pytest.mark.parametrize("make", WITH_SLOTS.values(), ids=WITH_SLOTS)
def test_updates_are_nearly_those_of_float32(make):
    params = {name: values(shape) for name, shape in PARAMS.items()}
    ends = {}
    for bits in (32, 8):
        optimizer, now = make(bits), params
        state, update = optimizer.init(params), jax.jit(optimizer.update)
        for step in range(3):
            grads = {n: values(s, step + 1) for n, s in PARAMS.items()}
            now, state = update(grads, state, now)
        ends[bits] = {n: np.asarray(now[n]) - params[n] for n in params}
    assert np.array_equal(ends[8]["bias"], ends[32]["bias"])
    for name in ("w", "odd"):
        ours, full = ends[8][name].reshape(-1), ends[32][name].reshape(-1)
        cosine = ours @ full / np.linalg.norm(ours) / np.linalg.norm(full)
        assert 0.98 < cosine and not np.array_equal(ours, full)


BAD_ARGUMENTS = [
    (lambda: optimizers.Adam(state_bits=4), "32 or 8"),
    (lambda: optimizers.Adam(state_bits=True), "32 or 8"),
    (lambda: optimizers.Adagrad(state_bits=8), "names no eight_bit_slots"),
    (lambda: optimizers.Muon(state_bits=8), "names no eight_bit_slots"),
    (lambda: optimizers.RMSprop(centered=True, state_bits=8), "centered=True"),
]


def test_a_class_with_another_rule_must_name_its_slots():
    class Other(optimizers.Adam):
        def transformation(self, learning_rate, count):
            return super().transformation(learning_rate, count)

    with pytest.raises(ArgumentError, match="names no eight_bit_slots"):
        Other(state_bits=8)


def make_model(optimizer, **options):
    x = layers.Input((16,))
    outputs = layers.Dense(1)(layers.Dense(512, "tanh")(layers.Dense(64)(x)))
    model = Model(x, outputs)
    model.compile(optimizer, losses.MeanSquaredError(), seed=3, **options)
    return model


def make_data(rows=64):
    rng = np.random.default_rng(1)
    x = rng.normal(size=(rows, 16)).astype(np.float32)
    return x, np.tanh(x.sum(1, keepdims=True))


def weights_of(model):
    return {weight.path: np.asarray(weight.value) for weight in model.weights}


def check_equal(ours, theirs):
    assert ours.keys() == theirs.keys()
    for name in ours:
        assert np.array_equal(ours[name], theirs[name]), name


def test_a_saved_model_goes_on_to_the_same_bytes(tmp_path):
    x, y = make_data()
    model = make_model(optimizers.AdamW(0.01, state_bits=8))
    model.fit(x, y, epochs=1, batch_size=16, verbose=0)
    model.save(tmp_path / "model.exburn")
    again = exburn.saving.load_model(tmp_path / "model.exburn")
    assert again.optimizer.state_bits == 8
    for each in (model, again):
        each.fit(x, y, epochs=1, batch_size=16, verbose=0, shuffle=False)
    check_equal(weights_of(model), weights_of(again))
    slots = [v for v in again.optimizer.variables if v.path.endswith("codes")]
    assert {np.asarray(v.value).dtype for v in slots} == {np.dtype(np.uint8)}


def test_a_resumed_run_ends_with_the_bytes_of_one_that_was_not(tmp_path):
    x, y = make_data()
    whole, first, second = (
        make_model(optimizers.AdamW(0.01, state_bits=8)) for _ in range(3)
    )
    options = {"batch_size": 16, "verbose": 0}
    whole.fit(x, y, epochs=2, **options)
    saving = [callbacks.StateCheckpoint(tmp_path)]
    first.fit(x, y, epochs=1, callbacks=saving, **options)
    second.fit(x, y, epochs=2, resume=tmp_path, **options)
    check_equal(weights_of(second), weights_of(whole))
    other = make_model(optimizers.AdamW(0.01))
    with pytest.raises(exburn.errors.ExBurnError, match="state_bits"):
        other.fit(x, y, epochs=2, resume=tmp_path, **options)


def test_accumulated_gradients_and_scaled_losses_keep_8_bits():
    x, y = make_data()
    inner = optimizers.Adam(0.01, state_bits=8, gradient_accumulation_steps=2)
    model = make_model(optimizers.LossScaleOptimizer(inner))
    before = model.evaluate(x, y, verbose=0)
    model.fit(x, y, epochs=3, batch_size=16, verbose=0)
    assert model.evaluate(x, y, verbose=0) < before
    dtypes = {
        v.path.rpartition("/")[2]: np.asarray(v.value).dtype
        for v in model.optimizer.variables
    }
    assert dtypes["codes"] == np.uint8 and dtypes["scales"] == np.float32


@pytest.mark.parametrize("layout", ["data", "fsdp"])
@on_devices
def test_a_mesh_keeps_codes_divided_as_their_weights(layout):
    x, y = make_data()
    distribution = FSDP(min_size=1) if layout == "fsdp" else "data"
    ends = []
    for mesh in (None, distribution):
        model = make_model(optimizers.AdamW(0.01, state_bits=8), mesh=mesh)
        model.fit(x, y, epochs=2, batch_size=16, verbose=0, shuffle=False)
        ends.append(weights_of(model))
    for name in ends[0]:
        np.testing.assert_allclose(ends[1][name], ends[0][name], atol=2e-4)
    codes = [v.value for v in model.optimizer.variables if v.path.endswith("codes")]
    parts = 8 if layout == "fsdp" else 1
    assert len(codes) == 2
    assert all(c.addressable_shards[0].data.size == c.size // parts for c in codes)


@pytest.mark.parametrize("bits", [(32, 8), (8, 32)])
def test_slots_follow_when_their_bits_are_changed(bits):
    params = {name: values(shape) for name, shape in PARAMS.items()}
    optimizer = optimizers.AdamW(0.01, state_bits=bits[0])
    state = optimizer.init(params)
    grads = {n: values(s, 1) for n, s in PARAMS.items()}
    params, state = jax.jit(optimizer.update)(grads, state, params)
    optimizer.state_bits = bits[1]
    new = optimizer.refit(state, optimizer.init(params), params)
    assert optimizer.fits(new, params) and "newcomers" not in new
    before, after = state["inner"]["w"]["m"], new["inner"]["w"]["m"]
    if bits[1] == 8:
        after = unpack_slot(after, signed=True)
    else:
        before = unpack_slot(before, signed=True)
    largest = np.abs(np.asarray(before)).max()
    np.testing.assert_allclose(after, before, atol=0.04 * largest)
    assert np.asarray(after).any() and int(new["rate"]["count"]) == 1


def test_bits_are_changed_between_two_fits():
    x, y = make_data()
    model = make_model(optimizers.AdamW(0.01))
    model.fit(x, y, epochs=1, batch_size=16, verbose=0)
    model.optimizer.state_bits = 8
    model.fit(x, y, epochs=1, batch_size=16, verbose=0)
    state = model._training_state()["opt_state"]
    assert "newcomers" not in state and int(state["rate"]["count"]) == 8
    assert any(v.path.endswith("codes") for v in model.optimizer.variables)


def test_parameters_that_join_later_get_slots_of_8_bits():
    x, y = make_data()
    model = make_model(optimizers.Adam(0.01, state_bits=8))
    model.layers[2].trainable = False
    model.fit(x, y, epochs=1, batch_size=16, verbose=0)
    model.layers[2].trainable = True
    model.fit(x, y, epochs=1, batch_size=16, verbose=0)
    state = model._training_state()["opt_state"]["inner"]
    slots = jax.tree.leaves(state, is_leaf=lambda node: isinstance(node, EightBitSlot))
    assert sum(isinstance(slot, EightBitSlot) for slot in slots) == 2
