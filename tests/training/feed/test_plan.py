"""The plan: how many steps one compiled chunk holds."""

import jax.numpy as jnp
import numpy as np
import pytest
from tests.distribution.devices import on_devices

import exburn
from exburn.runtime.cost_model import Cost
from exburn.training.feed.plan import (
    balance_length,
    choose_length,
    choose_unroll,
    chunk_steps,
)

HEAVY = Cost(flops=2e9, equations=200)  # 60 ms a step on a CPU


@pytest.mark.parametrize(
    ("cost", "platform", "low", "high"),
    [
        (HEAVY, "cpu", 8, 16),  # a call's temporary memory is shared by several steps
        (Cost(flops=4e10, equations=200), "cpu", 1, 1),  # more than a second each
        (Cost(flops=2e7, equations=12), "cpu", 50, 500),
        (Cost(flops=2e9, equations=200, convolutions=1), "cpu", 1, 1),
        (HEAVY, "gpu", 100, 2048),
    ],
)
def test_length_of_a_chunk(cost, platform, low, high):
    assert low <= chunk_steps(cost, platform, 1 << 20, resident=True) <= high


@pytest.mark.parametrize("platform", ["cpu", "gpu"])
def test_an_evaluation_takes_a_third_of_the_time(platform):
    cost = Cost(flops=4e11 if platform == "gpu" else 4e8)
    trained, judged = (chunk_steps(cost, platform, 1, True, on) for on in (True, False))
    assert judged == pytest.approx(3 * trained, rel=0.1)


@pytest.mark.parametrize("platform", ["cpu", "gpu"])
def test_predictions_leave_the_device_in_small_parts(platform):
    cost = Cost(flops=1e6, outputs=1 << 20)
    steps = [chunk_steps(cost, platform, 1, True, False, to) for to in (False, True)]
    assert steps[0] > 100
    assert steps[1] == 32
    assert chunk_steps(cost.times(64), platform, 1, True, False, fetched=True) == 1


def test_streamed_chunks_stay_small():
    assert chunk_steps(HEAVY, "cpu", 64 << 20, resident=False) == 2
    assert chunk_steps(HEAVY, "cpu", 1 << 30, resident=False) == 1


@pytest.mark.parametrize("most", [1, 8, 64])
def test_few_empty_steps(most):
    for steps in (*range(1, 60), 1871, 1875):
        length = balance_length(steps, most)
        assert most // 4 < length <= 2 * most or length == steps
        assert -steps % length <= (2 if steps > most else 0), (steps, length)


@pytest.mark.parametrize(("most", "empty"), [(1, 0), (5, 0.01), (222, 0.02)])
def test_data_of_many_sizes_share_few_lengths_with_few_empty_steps(most, empty):
    sizes = range(most, 5_000, 7)
    lengths = [choose_length(steps, most) for steps in sizes]
    assert all(1 <= k <= most for k in lengths)
    assert len(set(lengths)) <= 24
    taken = [
        -(-steps // k) * k / steps for steps, k in zip(sizes, lengths, strict=True)
    ]
    assert sum(taken) / len(taken) - 1 <= empty
    assert max(taken) < 1.2


@pytest.mark.parametrize(
    ("cost", "platform", "turns"),
    [
        (Cost(flops=1.5e7, kernels=12), "gpu", 4),
        (Cost(flops=4e9, kernels=12), "gpu", 4),
        (Cost(flops=1.6e8, kernels=19, convolutions=2), "gpu", 4),
        (Cost(flops=6.2e8, kernels=19, convolutions=2), "gpu", 1),
        (Cost(flops=1.5e7, kernels=100), "gpu", 1),
        (Cost(flops=1.5e7, kernels=12), "cpu", 1),
        # A tenth of the step updates tables of 4 million elements.
        (Cost(flops=6e7, equations=117, kernels=40, tables=4_160_000), "gpu", 4),
        (Cost(flops=6e7, equations=117, kernels=40, tables=320_000), "gpu", 1),
        (Cost(flops=1e13, equations=117, kernels=40, tables=38_000_000), "gpu", 1),
        (Cost(flops=6e7, equations=900, kernels=400, tables=10**8), "gpu", 1),
    ],
)
def test_short_steps_on_an_accelerator_are_unrolled(cost, platform, turns):
    assert choose_unroll(cost, platform) == turns
    assert choose_unroll(cost, platform, training=False) == (
        turns if cost.tables == 0 else 1
    )


@pytest.mark.parametrize(
    "rows, exact, said",
    [
        (16, False, "a batch of 16 rows is 8 parts of 2"),
        (12, False, "12 rows is filled up to 16 with masked ones, 8 parts of 2"),
        (16, True, "8 parts of 2; each device runs all of the last 4"),
        (12, True, "8 devices cannot divide 12 rows evenly: each runs them all"),
    ],
)
@on_devices
def test_what_several_devices_do_is_told(rows, exact, said):
    model = exburn.Sequential([exburn.Input((3,)), exburn.layers.Dense(1)])
    loss = (lambda y, p: jnp.mean((y - p) ** 2)) if exact else "mse"
    model.compile("sgd", loss, mesh="data")
    model.fit(np.ones((36, 3)), np.ones((36, 1)), rows, verbose=0)
    decision = next(d for d in model.explain_plan() if d.choice == "devices")
    assert decision.taken == "8: DataParallel(DeviceMesh(data=8))"
    assert said in decision.reason
    model.compile("sgd", loss)
    model.fit(np.ones((36, 3)), np.ones((36, 1)), rows, verbose=0)
    assert "devices" not in {d.choice for d in model.explain_plan()}
