"""The options of a serving, its buckets and its statistics."""

import datetime
import inspect

import jax.numpy as jnp
import numpy as np
import pytest

import exburn
from exburn import Serving, layers
from exburn.errors import (
    ArgumentError,
    DataError,
    DTypeError,
    NotBuiltError,
    UnknownNameError,
)
from exburn.serving.options import ServingOptions, change_options, names_of


def test_the_options_are_the_constructor_s_with_the_same_defaults():
    parameters = inspect.signature(Serving).parameters
    names = [*parameters][1:]
    assert names == names_of(ServingOptions)
    defaults = {name: parameters[name].default for name in names}
    assert ServingOptions(**defaults) == ServingOptions()


def test_checked_options_are_taken_again():
    options = ServingOptions(batch_size=4, batch_timeout="20 s", hooks="a")
    assert ServingOptions(**vars(options)) == options
    wider = change_options(options, {"batch_size": 8}, "f")
    assert (wider.batch_timeout, wider.buckets) == (20.0, (1, 2, 4, 8))
    with pytest.raises(AttributeError):
        options.batch_size = 3


@pytest.mark.parametrize(
    ("padding", "buckets"),
    [(True, (1, 2, 4, 6)), (False, (1, 2, 3, 4, 5, 6)), ([6, 3], (3, 6))],
)
def test_padding_to_buckets(padding, buckets):
    options = {"batch_size": 6, "batch_timeout": 0.0, "padding": padding}
    x = np.ones((3, 1), np.float32)
    with Serving(jnp.square, example=x, **options) as serving:
        assert serving(x).tolist() == x.tolist()
        assert serving.buckets == buckets
        size = min(n for n in buckets if n >= 3)
        bucket = serving.statistics().buckets[size]
        assert (bucket.batches, bucket.rows, bucket.fill) == (1, 3, 3 / size)


WRONG = {
    "batch_size": ({"batch_size": 0}, ArgumentError, "batch_size"),
    "milliseconds as a number": ({"batch_timeout": 50}, ArgumentError, '"50 ms"'),
    "negative": ({"batch_timeout": -1}, ArgumentError, "duration"),
    "no function": ({"preprocessing": 3}, ArgumentError, "function"),
    "unit": ({"batch_timeout": "50 parsecs"}, ArgumentError, "duration"),
    "partitions": ({"partitions": 99}, ArgumentError, "needs a device"),
    "no partition": ({"partitions": 0}, ArgumentError, "partitions"),
    "no devices": ({"partitions": ["gpu"]}, ArgumentError, "jax devices"),
    "padding": ({"batch_size": 8, "padding": [4]}, ArgumentError, "largest"),
    "max_queue": ({"max_queue": 0}, ArgumentError, "max_queue"),
    "both": ({"example": 1, "batch_keys": {}}, ArgumentError, "batch_keys"),
    "weights": ({"weights": {}}, ArgumentError, "has its own"),
    "hooks": ({"hooks": ["a"]}, UnknownNameError, "hook"),
}


@pytest.mark.parametrize("name", WRONG)
def test_options_are_checked(mlp, name):
    options, error, text = WRONG[name]
    with pytest.raises(error, match=text):
        Serving(mlp, **options)


def test_what_cannot_be_served():
    with pytest.raises(DTypeError, match="a model"):
        Serving(3)
    with pytest.raises(NotBuiltError, match="example"):
        Serving(exburn.Sequential([layers.Dense(2)]))
    with pytest.raises(DataError, match="one row for each"):
        Serving(jnp.sum, example=np.ones((2, 2)))
    with Serving(
        exburn.Sequential([layers.Dense(2)]), batch_size=1, example=np.ones((1, 3))
    ) as serving:
        assert serving(np.ones((2, 3))).shape == (2, 2)


def test_times_have_units():
    options = {"batch_size": 1, "example": np.ones((1, 1))}
    for value in ("20 ms", 0.02, datetime.timedelta(milliseconds=20), "0.02s"):
        with Serving(jnp.square, batch_timeout=value, **options) as serving:
            assert serving.status()["batch_timeout"] == 0.02


def test_options_change_in_another_serving(mlp, rows):
    x = rows(3)
    with Serving(mlp, batch_size=2, padding=[2]) as serving:
        with serving.with_options(batch_size=4, padding=[4]) as other:
            assert (serving.buckets, other.buckets) == ((2,), (4,))
            np.testing.assert_allclose(other(x), serving(x), rtol=2e-5, atol=2e-6)
        assert other.closed and not serving.closed
        with pytest.raises(UnknownNameError, match="batch_size"):
            serving.with_options(batchsize=4)
