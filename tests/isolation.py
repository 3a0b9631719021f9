"""How tests and examples leave no trace in those that run after them.

Workers take them in an order that differs from run to run.
"""

import pytest

SETTINGS = pytest.StashKey[tuple]()


@pytest.hookimpl(tryfirst=True)  # before what may skip the test
def pytest_runtest_setup(item):
    from exburn import set_random_seed

    item.stash[SETTINGS] = _settings()
    # What a test trains ends alike in every run, whatever ran before it.
    set_random_seed(0)


@pytest.hookimpl(trylast=True)  # after the ends of fixtures
def pytest_runtest_teardown(item):
    from exburn import config
    from exburn.distribution import set_distribution

    chosen, policy, filtered, distribution = item.stash[SETTINGS]
    config._settings.update(chosen)
    config.set_dtype_policy(policy)
    set_distribution(distribution)
    switch = config.enable_traceback_filtering
    (switch if filtered else config.disable_traceback_filtering)()


def _settings():
    """The settings of the process that programs may change."""
    from exburn import config
    from exburn.distribution import distribution

    filtered = config.is_traceback_filtering_enabled()
    return dict(config._settings), config.dtype_policy(), filtered, distribution()
