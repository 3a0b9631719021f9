import threading
import time

import numpy as np
import pytest
from tests.serving.http.conftest import FAST

from exburn import Serving
from exburn.errors import ArgumentError
from exburn.serving.http.failures import RequestFailure
from exburn.serving.http.registry import Registry
from exburn.serving.options import ServingOptions

OPTIONS = {**FAST, "batch_timeout": 0, "example": np.zeros((1, 3), np.float32)}


def times(factor):
    return lambda x: factor * x


@pytest.fixture
def registry():
    registry = Registry(ServingOptions(**OPTIONS))
    yield registry
    registry.close(5)


def answer(registry, *names):
    return float(registry.get(*names).serving.run(np.ones((1, 3)))[0, 0])


def test_the_version_that_was_loaded_last_is_the_default(registry):
    registry.load("m", times(1), "1")
    registry.load("m", times(2), "2")
    assert registry.versions("m") == ["1", "2"]
    assert [answer(registry, "m", v) for v in ("1", "2", None)] == [1, 2, 2]
    registry.load("m", times(3), "1")
    assert registry.versions("m") == ["2", "1"]
    assert answer(registry, "m") == 3
    registry.unload("m", "1")
    assert answer(registry, "m") == 2
    registry.unload("m")
    assert registry.names() == [] and list(registry) == []
    for names in (("m",), ("m", "2"), ("n",)):
        with pytest.raises(RequestFailure) as caught:
            registry.get(*names)
        assert caught.value.status == 404
    with pytest.raises(ArgumentError, match="there is no model m"):
        registry.unload("m")


def test_one_that_is_replaced_answers_what_it_has(registry):
    before = registry.load("m", times(1))
    gate, entered = threading.Event(), threading.Event()
    take = before.serving._batcher.take

    def wait(**options):
        entered.set()
        gate.wait(10)
        return take(**options)

    before.serving._batcher.take = wait
    # Taken by the call that waits already: it is dispatched, and the next one waits.
    futures = [before.serving.submit(np.ones((1, 3)))]
    assert entered.wait(10)
    futures.append(before.serving.submit(np.ones((1, 3))))
    thread = threading.Thread(target=registry.load, args=("m", times(2)))
    thread.start()
    while registry.get("m") is before:
        time.sleep(0.001)
    assert answer(registry, "m") == 2
    assert not any(future.done() for future in futures)
    gate.set()
    assert [float(future.result(10)[0, 0]) for future in futures] == [1, 1]
    thread.join()
    assert before.serving.closed


def test_servings_of_others_stay_open(registry):
    with Serving(times(1), **OPTIONS) as serving:
        registry.load("m", serving)
        registry.load("m", serving)
        assert answer(registry, "m") == 1
        registry.load("m", times(2))
        assert not serving.closed


@pytest.mark.parametrize(
    "name", ["", "a/b", "..", ".a", "a b", "ä", "a" * 101, 7, None]
)
def test_names_can_stand_in_a_url(registry, name):
    for names in ((name, "1"), ("m", name)):
        with pytest.raises(ArgumentError, match="must be of letters"):
            registry.load(names[0], times(1), names[1])


def test_a_closed_registry_takes_no_models(registry):
    entry = registry.load("m", times(1))
    registry.close(5)
    assert entry.serving.closed
    with pytest.raises(ArgumentError, match="the server is closed"):
        registry.load("m", times(1))
