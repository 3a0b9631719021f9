"""Options that ``compile`` and ``fit`` share, by the reference system's formulas."""

import inspect
import math

import numpy as np
import pytest
from tests.models.rules import CLOSE, OURS, RULES, STEPS

import exburn
from exburn import optimizers
from exburn.errors import ExBurnError
from exburn.optimizers import schedules


def test_the_option_nesterov_brings_the_momentum_of_the_reference():
    x, y = np.ones((8, 2), np.float32), np.ones((8, 1), np.float32)
    found = []
    for where in ("optimizer", "compile", "fit"):
        model = exburn.Sequential([exburn.Input((2,)), exburn.layers.Dense(1)])
        given = "sgd"
        if where == "optimizer":
            given = optimizers.SGD(momentum=0.9, nesterov=True)
        options = {"nesterov": True if where == "compile" else None}
        model.compile(given, "mse", seed=0, **options)
        options = {"nesterov": True if where == "fit" else None}
        model.fit(x, y, batch_size=2, verbose=0, **options)
        found.append(model.get_weights()[0])
        assert model.optimizer.momentum == (0.0 if where == "fit" else 0.9)
    np.testing.assert_array_equal(found[0], found[1])
    np.testing.assert_array_equal(found[0], found[2])
    before, (x, y) = model.get_weights()[1], (x[:2], y[:2])
    residual = 2 * (model.predict(x, verbose=0) - y).mean()
    model.fit(x, y, verbose=0)  # the option ended: a plain step
    np.testing.assert_allclose(model.get_weights()[1], before - 0.01 * residual, 1e-5)


def softmax_step(w, b, x, y):
    """Loss and gradients of a linear classifier, float64."""
    z = x @ w + b
    z = z - z.max(1, keepdims=True)
    p = np.exp(z) / np.exp(z).sum(1, keepdims=True)
    loss = -np.log(p[np.arange(len(y)), y]).mean()
    d = (p - np.eye(p.shape[1])[y]) / len(y)
    return loss, x.T @ d, d.sum(0)


def clipped(grads, norm, value):
    total = math.sqrt(sum((g**2).sum() for g in grads))
    grads = [g * min(1.0, norm / (total + 1e-8)) for g in grads]
    return [np.clip(g, -value, value) for g in grads]


@pytest.mark.parametrize(
    ("name", "where"),
    [("adam", "compile"), ("sgd", "fit"), ("nesterov", "fit"), ("rmsprop", "compile")],
)
def test_order_of_a_step(name, where):
    """accumulate → clip by norm → clip by value → add weight decay → optimizer."""
    rng = np.random.default_rng(1)
    group, size = 2, 8
    x = rng.normal(size=(STEPS * group * size, 6)).astype(np.float32)
    y = rng.integers(0, 3, len(x))
    model = exburn.Sequential([exburn.Input((6,)), exburn.layers.Dense(3)])
    options = {
        "clip_norm": 0.3,
        "clip_value": 0.08,
        "weight_decay": 0.02,
        "accumulate_gradients": group,
        "lr_schedule": ("exponential", 0.01, 0.5),
    }
    chosen = OURS[name](learning_rate=0.01)
    if name == "nesterov":
        chosen, options["nesterov"] = "sgd", True
    model.compile(
        chosen, "cross_entropy", seed=0, **(options if where == "compile" else {})
    )
    w, b = (v.astype(np.float64) for v in model.get_weights())
    history = model.fit(
        x,
        y,
        batch_size=size,
        epochs=2,
        shuffle=False,
        verbose=0,
        **(options if where == "fit" else {}),
    )
    rules = [RULES[name](), RULES[name]()]
    logs, bites = [], 0
    for epoch in range(2):
        lr, epoch_losses = 0.01 * 0.5**epoch, []
        for at in range(0, len(x), group * size):
            sums = [np.zeros_like(w), np.zeros_like(b)]
            for k in range(group):
                rows = slice(at + k * size, at + (k + 1) * size)
                loss, *grads = softmax_step(w, b, x[rows].astype(np.float64), y[rows])
                epoch_losses.append(loss)
                sums = [s + g / group for s, g in zip(sums, grads, strict=True)]
            limited = clipped(sums, 0.3, 0.08)
            bites += any(
                abs(a - s).max() > 1e-3 for a, s in zip(limited, sums, strict=True)
            )
            params = [w, b]
            w, b = (
                rule(p, g + 0.02 * p, lr)
                for rule, p, g in zip(rules, params, limited, strict=True)
            )
        logs.append(np.mean(epoch_losses))
    assert bites > STEPS  # the limits matter in most of the steps
    for found, wanted in zip(model.get_weights(), (w, b), strict=True):
        # optax' bias correction loses digits.
        np.testing.assert_allclose(found, wanted, rtol=5e-6, atol=5e-6)
    np.testing.assert_allclose(history.history["loss"], logs, **CLOSE)


def test_options_of_fit_end_with_it():
    x, y = np.ones((8, 2), np.float32), np.ones((8, 1), np.float32)
    model = exburn.Sequential([exburn.Input((2,)), exburn.layers.Dense(1)])
    model.compile("sgd", "mse", seed=0, clip_norm=5.0)
    before = {k: v for k, v in model.optimizer.get_config().items()}
    options = {"clip_norm": 0.1, "nesterov": True, "accumulate_gradients": 2}
    for _ in range(2):
        model.fit(x, y, batch_size=4, verbose=0, **options)
        assert model.optimizer.get_config() == before
        model.fit(x, y, batch_size=4, verbose=0)
    assert model.trace_counts["train"] == 2  # one program with, one without them


def test_the_learning_rate_holds_again_after_a_fit_with_another():
    x, y = np.ones((8, 2), np.float32), np.ones((8, 1), np.float32)
    for other in (
        {"lr_schedule": ("step", 0.1, 2, 0.5)},
        {"learning_rate": 0.1},
        {"lr_schedule": schedules.serialize(schedules.get(("step", 0.1, 2, 0.5)))},
    ):
        model = exburn.Sequential([exburn.Input((2,)), exburn.layers.Dense(1)])
        model.compile(optimizers.SGD(0.02, momentum=0.0), "mse", seed=0)
        start = model.get_weights()
        model.fit(x, y, verbose=0, **other)
        fast = model.get_weights()
        assert model.optimizer.learning_rate == pytest.approx(0.02)
        model.set_weights(start)
        model.fit(x, y, verbose=0)
        for a, b, c in zip(start, fast, model.get_weights(), strict=True):
            np.testing.assert_allclose(b - a, 5 * (c - a), rtol=1e-4)
        if "learning_rate" in other:  # a number is no part of the program
            model.fit(x, y, verbose=0, learning_rate=0.5)
            assert model.trace_counts["train"] == 1


@pytest.mark.parametrize(
    ("name", "bad"),
    [
        ("lr_schedule", ("step", 0.1)),
        ("weight_decay", -1.0),
        ("clip_norm", 0.0),
        ("clip_value", math.nan),
        ("accumulate_gradients", 0),
        ("nesterov", True),  # of "adam"
        ("warmup", (1, 2)),
    ],
)
def test_compile_and_fit_share_their_options(name, bad):
    model = exburn.Sequential([exburn.Input((2,)), exburn.layers.Dense(1)])
    both = [inspect.signature(f).parameters[name] for f in (model.compile, model.fit)]
    assert both[0].default is both[1].default is None
    assert both[0].annotation == both[1].annotation
    with pytest.raises(ExBurnError) as compiled:
        model.compile("adam", "mse", **{name: bad})
    model.compile("adam", "mse")
    with pytest.raises(ExBurnError) as fitted:
        model.fit(np.ones((2, 2)), np.ones((2, 1)), verbose=0, **{name: bad})
    assert fitted.value.reason == compiled.value.reason
    assert model.trace_counts == {}
