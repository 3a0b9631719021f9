"""Tests of ``exburn.callbacks.watch``."""

import numpy as np
import pytest

import exburn
from exburn import layers
from exburn.callbacks import Every, Watch
from exburn.errors import CallbackError, UnknownNameError

RNG = np.random.default_rng(0)
X = RNG.normal(size=(36, 6)).astype(np.float32)
Y = (X[:, 0] > 0).astype(int)


def make(*, bias="zeros", scale=1.0):
    kernel = exburn.initializers.RandomNormal(stddev=0.3 * scale, seed=1)
    blocks = [
        exburn.Sequential(
            [
                layers.Dense(
                    8,
                    name="dense",
                    bias_initializer=bias if n == 1 else "zeros",
                    kernel_initializer=kernel if n == 1 else "he_normal",
                ),
                layers.ReLU(name="relu"),
            ],
            name=f"block{n}",
        )
        for n in range(3)
    ]
    model = exburn.Sequential(
        [exburn.Input((6,)), *blocks, layers.Dense(2, name="out")]
    )
    model.compile("sgd", "cross_entropy", seed=0)
    return model


def fit(model, **options):
    watch = Watch(
        **{"activations": ["block*/relu"], "every": 2, "verbose": 0} | options
    )
    model.fit(X, Y, batch_size=8, verbose=0, shuffle=False, callbacks=[watch])
    return watch


def test_a_healthy_model_has_no_findings_and_the_numbers_are_right():
    model = make()
    before = model.trace_counts.copy()
    watch = fit(model, every=Every(steps=5))
    assert watch.findings == [] and before == {}
    (entry,) = watch.history
    assert entry["step"] == 5
    # The last batch has 4 rows: by hand, at the weights after it.
    rows, w = X[32:], model.get_weights()
    hidden = np.maximum(rows @ w[0] + w[1], 0)
    seen = entry["activations/block0/relu"]
    assert seen["norm"] == pytest.approx(np.sqrt((hidden**2).mean()), rel=1e-5)
    assert seen["dead"] == pytest.approx((hidden == 0).all(0).mean())
    for n in (1, 2):
        hidden = np.maximum(hidden @ w[2 * n] + w[2 * n + 1], 0)
    logits = hidden @ w[6] + w[7]
    p = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
    slope = hidden.T @ (p - np.eye(2)[Y[32:]]) / 4
    norm = entry["gradients/out/kernel"]["norm"]
    assert norm == pytest.approx(np.linalg.norm(slope), rel=1e-4)
    assert len(entry) == 1 + 3 + 8


def test_it_names_a_planted_dead_relu(capsys):
    watch = fit(make(bias=exburn.initializers.Constant(-1e4)), verbose=1)
    dead = [finding.name for finding in watch.findings if finding.kind == "dead"]
    assert dead[0] == "activations/block1/relu"
    assert "activations/block0/relu" not in dead
    said = capsys.readouterr().out
    assert "Step 2: block1/relu is dead: 100 % of its units put out 0" in said
    assert said.count("block1/relu is dead") == 1
    stuck = {f.name for f in watch.findings if f.kind == "no gradient"}
    assert "gradients/block0/dense/kernel" in stuck


@pytest.mark.filterwarnings("ignore::exburn.errors.NonFiniteLossWarning")
def test_it_names_a_planted_exploding_layer_and_nan():
    watch = fit(make(scale=1e6), every=1, gradients=False)
    first = next(f for f in watch.findings if f.kind == "exploding")
    assert first.name == "activations/block1/relu" and first.step == 1
    assert "times that of block0/relu" in first.text
    by_gradient = fit(make(scale=1e6), activations=())
    assert {f.kind for f in by_gradient.findings} & {"exploding", "nan"}
    broken = make()
    broken.compile("sgd", lambda y, p: (p * np.nan).sum(-1))
    assert "nan" in {f.kind for f in fit(broken).findings}


def test_nothing_is_compiled_without_it_or_between():
    model = make()
    model.fit(X, Y, batch_size=8, verbose=0)
    assert set(model.trace_counts) == {"train"}
    fit(model, every=100)
    assert set(model.trace_counts) == {"train"}
    fit(model, statistics=("dead",))
    assert sum("watch" in name for name in model.trace_counts) == 1


def test_what_it_refuses():
    with pytest.raises(CallbackError, match="statistics are among norm, dead, nan"):
        Watch(statistics=["mean"])
    with pytest.raises(CallbackError, match="nothing to look at"):
        Watch(gradients=False)
    with pytest.raises(CallbackError, match="within epochs"):
        Watch(every="epoch")
    with pytest.raises(UnknownNameError):
        fit(make(), activations=["blok*"])
