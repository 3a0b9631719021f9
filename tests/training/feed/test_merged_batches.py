"""Evaluation and prediction compute several batches as one, and nobody sees it."""

import jax.numpy as jnp
import numpy as np
import pytest

import exburn
from exburn import callbacks, layers, losses, metrics
from exburn.runtime.cost_model import Cost
from exburn.training.feed.plan import choose_merged_batches

ROWS, BATCH = 301, 4  # 76 batches, of which the last is short


def arrays():
    rng = np.random.default_rng(0)
    return rng.standard_normal((ROWS, 6), dtype=np.float32), rng.integers(0, 3, ROWS)


TRACED: list = []  # numbers of rows


def noted(x):
    TRACED.append(x.shape[0])
    return x


def classifier(*further, join="auto", **compiled):
    """A classifier that notes its rows."""
    TRACED.clear()
    head = [layers.Dense(8, activation="relu"), layers.Lambda(noted)]
    head += [*further, layers.Dense(3)]
    model = exburn.Sequential([exburn.Input((6,)), *head])
    options = {"loss": "cross_entropy", "metrics": ["accuracy"]} | compiled
    model.compile("sgd", **options, seed=1, join_batches=join)
    return model


@pytest.mark.parametrize("join", ["auto", 2, 5, 100])
def test_the_same_comes_out(join):
    x, y = arrays()
    weight = np.linspace(0, 2, ROWS, dtype=np.float32)
    found = []
    for many in (1, join):
        model = classifier(join=many)
        values = model.evaluate(x, y, BATCH, sample_weight=weight, verbose=0)
        found.append((values, model.predict(x, BATCH, verbose=0)))
        most = {"auto": 8, 100: 76}.get(many, many)
        assert BATCH * most in TRACED
    (values, outputs), (joint, together) = found
    np.testing.assert_allclose(joint, values, rtol=1e-5)
    np.testing.assert_allclose(together, outputs, rtol=1e-5, atol=1e-6)


def test_validation_too_and_the_plan_says_so():
    x, y = arrays()
    found = {}
    for many in (1, "auto", 8):
        model = classifier(join=many)
        given = {"validation_data": (x, y), "batch_size": BATCH, "verbose": 0}
        history = model.fit(x, y, epochs=2, shuffle=False, **given).history
        found[many] = [history["val_loss"], history["val_accuracy"]]
        told = {d.choice: d for d in model.explain_plan()}["validation batches at once"]
        assert told.taken == {1: "1", "auto": "8", 8: "8"}[many]
        assert ("given" in told.reason) == (many != "auto")
        assert told.switch == "compile(join_batches=n)"
    np.testing.assert_allclose(found["auto"], found[1], rtol=1e-5)
    np.testing.assert_allclose(found[8], found[1], rtol=1e-5)
    model.fit(x, y, verbose=0)
    assert "validation batches at once" not in {d.choice for d in model.explain_plan()}


class Counting(metrics.Metric):
    """How often it was updated."""

    def __init__(self, name="counting"):
        super().__init__(name=name)
        self.calls = self.add_variable((), "zeros", name="calls")

    def update_state(self, y_true, y_pred, sample_weight=None):
        self.calls.assign_add(1.0)

    def result(self):
        return self.calls


class OwnLoss(exburn.Sequential):
    """With a loss that is no mean of its rows."""

    def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None):
        return jnp.max(y_pred)


class PerBatch(callbacks.Callback):
    def __init__(self):
        super().__init__()
        self.ends: list = []

    def on_test_batch_end(self, batch, logs=None):
        self.ends.append(batch)

    def on_predict_batch_end(self, batch, logs=None):
        self.ends.append(batch)


def told_to_train(layer):
    """A model in which a layer is always training."""
    x = exburn.Input((6,))
    return exburn.Model(x, layers.Dense(3)(layer(layers.Dense(8)(x), training=True)))


def sequence():
    tokens = exburn.Input((6,), dtype="int32")
    h = layers.Embedding(9, 4, mask_zero=True)(tokens)
    return exburn.Model(tokens, layers.Dense(3)(h))


def plain(kind=exburn.Sequential, *further):
    return kind([exburn.Input((6,)), layers.Dense(8), *further, layers.Dense(3)])


class Few(exburn.Model):
    """Does not take many rows."""

    def __init__(self):
        super().__init__()
        self.head = layers.Dense(3)

    def call(self, x):
        if x.shape[0] in (16, 32):
            raise ValueError("too many rows")
        return self.head(x)


SPARSE = losses.SparseCategoricalCrossentropy
SEEN = {
    "random": (lambda: told_to_train(layers.Dropout(0.5)), {}),
    "statistics": (lambda: told_to_train(layers.BatchNormalization()), {}),
    "sum": (plain, {"loss": SPARSE(from_logits=True, reduction="sum")}),
    "by weights": (
        plain,
        {"loss": SPARSE(from_logits=True, reduction="mean_with_sample_weight")},
    ),
    "ignored": (plain, {"loss": SPARSE(from_logits=True, ignore_class=1)}),
    "scalar": (plain, {"loss": lambda y, p: jnp.max(p)}),
    "pairs": (plain, {"loss": losses.Circle()}),
    "regularized": (
        lambda: plain(exburn.Sequential, layers.ActivityRegularization(0.1)),
        {},
    ),
    "metric": (plain, {"metrics": [Counting()]}),
    "own loss": (lambda: plain(OwnLoss), {}),
    "eager": (plain, {"run_eagerly": True}),
    "chunks": (plain, {"steps_per_execution": 3}),
    "mixing": (
        lambda: plain(exburn.Sequential, layers.Lambda(lambda x: x - x.mean(axis=0))),
        {},
    ),
    "few rows": (Few, {}),
}


@pytest.mark.parametrize("case", SEEN)
def test_what_would_be_seen_is_not_joined(case):
    make, compiled = SEEN[case]
    x, y = (array[:300] for array in arrays())
    weight = np.linspace(0, 2, 300, dtype=np.float32)
    found = []
    for join in (1, "auto"):
        exburn.set_random_seed(0)
        model = make()
        options = {"loss": SPARSE(from_logits=True)} | compiled
        model.compile("sgd", **options, seed=1, join_batches=join)
        given = {"verbose": 0, "return_dict": True, "sample_weight": weight}
        values = model.evaluate(x, y, BATCH, **given)
        found.append((values, model.predict(x, BATCH, verbose=0)))
    (values, outputs), (others, predicted) = found
    assert others == values
    np.testing.assert_allclose(predicted, outputs, rtol=1e-5, atol=1e-6)


def test_masked_losses_are_means_of_each_batch():
    tokens = np.random.default_rng(0).integers(0, 9, (300, 6)).astype("int32")
    found = []
    for join in (1, 4):
        exburn.set_random_seed(0)
        model = sequence()
        model.compile("sgd", "cross_entropy", seed=1, join_batches=join)
        found.append(model.evaluate(tokens, tokens % 3, BATCH, verbose=0))
    assert found[0] == found[1]


def test_a_model_of_so_many_rows_stays_one():
    given = exburn.Input(batch_shape=(BATCH, 6))
    model = exburn.Model(given, layers.Dense(3)(given))
    model.compile("sgd", "cross_entropy", join_batches=4)
    x, y = (array[:300] for array in arrays())
    assert model.predict(x, BATCH, verbose=0).shape == (300, 3)
    assert np.isfinite(model.evaluate(x, y, BATCH, verbose=0))


def test_callbacks_of_batches_see_each():
    x, y = arrays()
    model = classifier(join=4)
    for call in (
        lambda c: model.evaluate(x, y, BATCH, callbacks=[c], verbose=0),
        lambda c: model.predict(x, BATCH, callbacks=[c], verbose=0),
    ):
        seen = PerBatch()
        call(seen)
        assert seen.ends == [*range(76)]


@pytest.mark.parametrize("call", ["evaluate", "predict"])
def test_functions_of_the_host_see_each_batch(call):
    x, y = arrays()
    model, seen = classifier(join=4), []
    with model.on_output(model.layers[0], lambda value: seen.append(len(value))):
        given = (x, y) if call == "evaluate" else (x,)
        getattr(model, call)(*given, batch_size=BATCH, verbose=0)
        exburn.compute.synchronize()
    assert len(seen) >= 76
    assert max(seen) == BATCH


def test_steps_are_batches():
    x, y = arrays()
    model = classifier(join=4)
    part = model.evaluate(x, y, BATCH, steps=10, verbose=0)
    np.testing.assert_allclose(part, model.evaluate(x[:40], y[:40], 40, verbose=0))


class Steps(callbacks.Callback):
    def __init__(self):
        super().__init__()
        self.steps: list = []

    def on_test_chunk_end(self, step, logs=None):
        self.steps.append(step)

    def on_predict_chunk_end(self, step, logs=None):
        self.steps.append(step)


@pytest.mark.parametrize("join", [1, 4, "auto"])
def test_progress_counts_batches(join):
    x, y = arrays()
    model = classifier(join=join)
    for use in ("evaluate", "predict"):
        seen = Steps()
        given = (x, y) if use == "evaluate" else (x,)
        getattr(model, use)(*given, batch_size=BATCH, callbacks=[seen], verbose=0)
        assert seen.steps[-1] == 76


def test_large_steps_and_short_data_stay_as_they_are():
    small, large = Cost(elements=1e3), Cost(elements=1e9)
    for platform in ("cpu", "gpu"):
        assert (
            choose_merged_batches(small, 63, platform)
            == choose_merged_batches(large, 10_000, platform)
            == 1
        )
        assert choose_merged_batches(small, 10_000, platform) == 16
    assert (
        choose_merged_batches(Cost(elements=5e7), 512, "gpu") == 4
    )  # a transformer, 32 × 64 tokens
    assert choose_merged_batches(Cost(elements=5e7), 512, "cpu") == 1


def test_it_is_kept_and_checked():
    model = classifier(join=3)
    assert model.get_compile_config()["join_batches"] == 3
    with pytest.raises(exburn.errors.ArgumentError, match="join_batches"):
        model.compile("sgd", "mse", join_batches=0)
