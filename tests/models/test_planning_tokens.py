"""``model.plan(batch_tokens=…)``: what a step of packed documents takes."""

import jax
import numpy as np
import pytest

import exburn
from exburn import layers
from exburn.applications import GPT2, Llama, from_pretrained
from exburn.data.packed import PackedTokens
from exburn.errors import NotBuiltError
from exburn.models import without_weights
from exburn.module.traversal import iter_weights
from exburn.training.feed.chunking import single_chunk
from exburn.training.program import _apart_from_totals

SIZES = dict(layers=2, width=64, heads=4, key_value_heads=2, mlp_width=128)
TOKENS, LENGTH = 128, 32


def make(kind, optimizer=None, **sizes):
    model = Llama(96, **SIZES | sizes, dtype="bfloat16")
    if kind == "qlora":
        model = model.quantize("nf4", filters=["block_*"])
    if "lora" in kind:
        model.add_lora(4, filter=["block_*"])
    model.compile(optimizer or exburn.optimizers.AdamW(1e-3))
    return model


def plan_of(model, **options):
    options = {"largest": False, "length": LENGTH} | options
    return model.plan(batch_tokens=TOKENS, **options)


@pytest.mark.parametrize("kind", ["full", "lora", "qlora"])
def test_a_plan_without_weights_is_that_with_them(kind):
    with without_weights():
        model = make(kind)
        planned = dict(plan_of(model))
        for _, weight, _ in iter_weights(model):
            assert isinstance(weight.get_raw_value(), jax.ShapeDtypeStruct)
    real = dict(plan_of(make(kind)))
    for plan in (planned, real):
        plan.pop("available_bytes")
    assert planned == real


@pytest.mark.parametrize("kind", ["full", "lora", "qlora"])
def test_the_parts_of_the_state_are_what_is_there(kind):
    model = make(kind)
    plan = plan_of(model)
    rows = TOKENS // LENGTH
    numbers = np.ones((rows, LENGTH), np.int32)
    x, weights = PackedTokens(numbers, numbers), np.ones((rows, LENGTH), np.float32)
    model.fit(x, numbers, sample_weight=weights, batch_size=rows, verbose=0)
    trained = {w.path for w in model.trainable_weights}
    sizes = {True: 0, False: 0}
    for path, weight, _ in iter_weights(model):
        sizes[path in trained] += weight.get_raw_value().nbytes
    assert (plan.trained_bytes, plan.frozen_bytes) == (sizes[True], sizes[False])
    state = model._training_state()["opt_state"]
    assert plan.slots_bytes == sum(np.asarray(v).nbytes for v in jax.tree.leaves(state))
    parts = plan.trained_bytes + plan.frozen_bytes + plan.slots_bytes
    assert 0 <= plan.state_bytes - parts < 64  # the step, the seed and totals


@pytest.mark.parametrize("kind", ["full", "qlora"])
def test_the_peak_is_that_of_the_program_that_trains(kind):
    with without_weights():
        plan = plan_of(make(kind))
    model, rows = make(kind), TOKENS // LENGTH
    numbers = np.ones((rows, LENGTH), np.int32)
    data = PackedTokens(numbers, numbers), numbers, np.ones((rows, LENGTH), np.float32)
    model.fit(*data[:2], sample_weight=data[2], batch_size=rows, verbose=0)
    preparer = model._training_session.preparer
    chunk = single_chunk(data, rows, exact=False)
    args = _apart_from_totals((preparer.initial_state(), *chunk.arguments))
    args, _ = preparer.holder.placement.bind(args, 2)
    analysis = preparer.programs.train._call.lower(*args).compile().memory_analysis()
    own = analysis.output_size_in_bytes - analysis.alias_size_in_bytes
    used = analysis.argument_size_in_bytes + analysis.temp_size_in_bytes + own
    assert plan.peak_bytes == pytest.approx(used, rel=0.05)


def test_slots_in_8_bits_are_planned():
    sizes = {"width": 128, "mlp_width": 512}
    with without_weights():
        plans = [
            plan_of(make("full", exburn.optimizers.AdamW(1e-3, state_bits=b), **sizes))
            for b in (32, 8)
        ]
    moments = [plan.slots_bytes - plan.trained_bytes for plan in plans]
    assert moments[1] < 0.27 * moments[0]  # beside what rounding 16 bits takes off


def test_the_cache_is_that_of_keys_and_values():
    with without_weights():
        plan = plan_of(make("full"))
    rows, heads, size, blocks, of_each = TOKENS // LENGTH, 2, 16, 2, 2
    heads_kept = 2 * blocks * rows * LENGTH * heads
    assert plan.cache_bytes == heads_kept * size * of_each
    with without_weights():
        plan = plan_of(make("full"), cache_dtype="int8")
    assert plan.cache_bytes == heads_kept * (size + 4)


def test_speed_is_told_by_a_rate_alone():
    with without_weights():
        model = make("lora")
        assert plan_of(model).tokens_per_second is None  # of a processor
        plan = plan_of(model, rate=1e9)
    assert plan.tokens_per_second == pytest.approx(TOKENS * 1e9 / plan.flops)
    text = str(plan)
    assert "128 tokens" in text and "weights, trained" in text


def test_the_largest_batch_is_looked_for():
    with without_weights():
        plan = plan_of(make("lora"), largest=True)
    assert plan.largest_batch > 4


def test_a_folder_is_planned_before_its_tensors_are_read(tmp_path):
    Llama(96, **SIZES).save_pretrained(tmp_path)
    with without_weights():
        model = from_pretrained(tmp_path)
        model.compile(exburn.optimizers.AdamW(1e-3))
        plan = plan_of(model)
    real = from_pretrained(tmp_path)
    real.compile(exburn.optimizers.AdamW(1e-3))
    assert plan.peak_bytes == plan_of(real).peak_bytes
    with pytest.raises(NotBuiltError, match="were not read"):
        model.get_weights()


def test_without_a_loss_to_train_it_is_a_plan_of_predict():
    with without_weights():
        plan = plan_of(Llama(96, **SIZES))
    assert plan.program == "predict" and plan.frozen_bytes == plan.state_bytes


def small():
    return GPT2(9, layers=1, width=8, heads=2, positions=8)


def dense():
    return exburn.Sequential([exburn.Input((4,)), layers.Dense(2)])


BAD_ARGUMENTS = [
    (lambda: small().plan(length=4), "batch_tokens, too"),
    (lambda: small().plan(batch_tokens=4, length=8), "at least a row"),
    (lambda: small().plan(8, np.ones((1, 8)), batch_tokens=16), "leave out x"),
    (lambda: small().plan(batch_tokens=1), "batch_tokens"),
]
