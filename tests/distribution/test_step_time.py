"""The model of a step's time: by formula, and by what XLA compiles."""

import pytest
from tests.distribution.devices import on_devices

import exburn
from exburn import layers
from exburn.distribution import step_time as times
from exburn.distribution.step_time import Collective, Link, StepTime
from exburn.errors import ArgumentError

LINK = Link(1e9, hop=1e-6, start=1e-5)


@pytest.mark.parametrize(
    "kind, parts",
    [("all-reduce", 2), ("all-gather", 1), ("reduce-scatter", 1), ("all-to-all", 1)],
)
@pytest.mark.parametrize("devices", [1, 2, 8, 1000])
def test_a_ring(kind, parts, devices):
    one = Collective(kind, 8_000_000, devices)
    assert one.traffic == parts * (devices - 1) / devices * 8_000_000
    assert one.hops == parts * (devices - 1)
    if devices == 1:
        assert one.seconds(LINK) == 0
    else:
        latency = 1e-5 + one.hops * 1e-6
        assert one.seconds(LINK) == pytest.approx(one.traffic / 1e9 + latency)


def test_a_shift():
    one = Collective("collective-permute", 1000, 4)
    assert (one.traffic, one.hops) == (1000, 1)


def test_layouts():
    (data,) = times.data_parallel(1000, 4)
    assert data == Collective("all-reduce", 1000, 4)
    sharded = times.fsdp([600, 400], 4)
    assert sum(one.traffic for one in sharded) == 3 * 1000 * 3 / 4
    assert [one.kind for one in sharded].count("reduce-scatter") == 2
    pairs = times.tensor_parallel(1000, pairs=2, devices=4)
    assert len(pairs) == 4 and pairs[0].traffic == 1500
    # Gathering and summing into parts is as much as summing (Rajbhandari et al., §7).
    two = [Collective(k, 1000, 4).traffic for k in ("all-gather", "reduce-scatter")]
    assert sum(two) == data.traffic


@pytest.mark.parametrize("covered", [0.0, 0.25, 1.0])
@pytest.mark.parametrize("compute, send", [(0.03, 0.02), (0.01, 0.5)])
def test_the_parts_add_up(covered, compute, send):
    time = StepTime(compute, 0.75 * send, 0.25 * send, covered)
    assert time.communication == pytest.approx(send)
    hidden = covered * min(compute, send)
    assert time.seconds == pytest.approx(compute + send - hidden)
    assert time.best == max(compute, time.communication) <= time.seconds + 1e-12
    assert time.efficiency == pytest.approx(compute / time.seconds)


def test_an_estimate():
    sent = [Collective("all-reduce", 1_000_000, 2), Collective("all-gather", 1000, 2)]
    time = times.estimate(5e12, 1e14, sent, LINK, covered=0.5)
    assert time.compute == 0.05 and time.covered == 0.5
    assert time.bandwidth == pytest.approx((1_000_000 + 500) / 1e9)
    assert time.latency == pytest.approx(2 * 1e-5 + 3 * 1e-6)
    assert times.estimate(0, 1.0, []).efficiency == 1


def test_links():
    assert times.get_link("nvlink").bandwidth > times.get_link("pcie").bandwidth
    assert times.get_link(2e9) == Link(2e9) and times.get_link(LINK) is LINK
    for wrong in ("nvlinks", None, True):
        with pytest.raises(ArgumentError, match="link must be a Link"):
            times.get_link(wrong)
    with pytest.raises(ArgumentError, match="bandwidth"):
        Link(0)
    for wrong in ({"rate": 0}, {"flops": -1}, {"covered": 1.5}):
        with pytest.raises(ArgumentError, match=next(iter(wrong))):
            times.estimate(**{"flops": 1, "rate": 1, "collectives": []} | wrong)


@pytest.mark.parametrize(
    "line, found",
    [
        (
            "%r = f32[8,4]{1,0} all-reduce(%x), replica_groups={{0,1},{2,3}}, to_apply",
            ("all-reduce", 128, 2),
        ),
        (
            "%r = (f32[4]{0}, bf16[2,3]{1,0}) all-reduce(%x, %y), "
            "replica_groups=[2,4]<=[8]",
            ("all-reduce", 28, 4),
        ),
        (
            "%r = (f32[2]{0}, f32[16]{0}) all-gather-start(%x), "
            "replica_groups=[1,8]<=[8], dimensions={0}",
            ("all-gather", 64, 8),
        ),
        (
            "%r = f32[2]{0} reduce-scatter(%x), replica_groups=mesh['a'=2,'b'=4] {'b'}",
            ("reduce-scatter", 32, 4),
        ),
        (
            "%r = s8[16]{0} all-to-all(%x), replica_groups=mesh['a'=8] {'a':(2)4}",
            ("all-to-all", 16, 4),
        ),
        (
            "%r = f32[2]{0} collective-permute(%x), source_target_pairs={{0,1},{1,0}}",
            ("collective-permute", 8, 2),
        ),
    ],
)
def test_programs_are_read(line, found):
    assert list(times.read_collectives(line)) == [Collective(*found)]
    assert not list(times.read_collectives("%r = f32[2]{0} add(%all-reduce.1, %x)"))


@on_devices
def test_what_xla_sends_is_what_the_formula_says():
    wide = [layers.Dense(256, "relu", use_bias=False) for _ in range(3)]
    model = exburn.Sequential([exburn.Input((256,)), *wide])
    model.compile("sgd", "mse")
    weights = 3 * 256 * 256 * 4
    data = model.plan(64, largest=False, mesh="data")
    sent = sum(one.traffic for one in data.collectives)
    (formula,) = times.data_parallel(weights, 8)
    assert formula.traffic <= sent < formula.traffic + 64
    sharded = model.plan(64, largest=False, mesh="fsdp")
    gathered = [c for c in sharded.collectives if c.kind == "all-gather"]
    # XLA may keep what the pass forward has gathered for that backward.
    assert 1 <= sum(c.traffic for c in gathered) / (weights * 7 / 8) <= 2
