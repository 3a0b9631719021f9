"""Tests of ``tests.isolation``."""

from types import SimpleNamespace

import pytest
from tests import isolation

import exburn
from exburn import config


def test_what_a_test_has_set_is_put_back(request):
    assert request.config.pluginmanager.is_registered(isolation)  # for examples, too
    item = SimpleNamespace(stash=pytest.Stash())
    before = isolation._settings()
    isolation.pytest_runtest_setup(item)
    config.enable_flash_attention()
    config.set_floatx("bfloat16")
    config.disable_traceback_filtering()
    exburn.distribution.set_distribution(exburn.distribution.DataParallel())
    assert all(a != b for a, b in zip(isolation._settings(), before, strict=True))
    isolation.pytest_runtest_teardown(item)
    assert isolation._settings() == before
