"""The host's memory is what all limits of the process leave."""

import pytest

from exburn.runtime import host_memory


@pytest.mark.parametrize(
    ("limits", "free", "quarter"),
    [
        ([(30, 100)], 30, True),
        ([(25, 100)], 25, False),
        ([(90, 100), (2, 10)], 2, False),  # a container on a large machine
        ([(90, 100), (5, 10)], 5, True),
    ],
)
def test_the_narrowest_limit_decides(monkeypatch, limits, free, quarter):
    monkeypatch.setattr(host_memory, "_limits", lambda: iter(limits))
    assert host_memory.free_host_bytes() == free
    assert host_memory.has_quarter_free() is quarter


def test_an_address_space_that_is_bounded_counts(monkeypatch):
    resource = pytest.importorskip("resource")
    most = 1 << 45
    monkeypatch.setattr(resource, "getrlimit", lambda kind: (most, most))
    limits = list(host_memory._limits())
    assert any(whole == most and 0 < free < most for free, whole in limits)
    assert all(0 <= free <= whole for free, whole in limits)
