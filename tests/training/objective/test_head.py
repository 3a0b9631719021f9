"""``fit`` and ``evaluate`` of models with many classes, without all their scores."""

import jax
import numpy as np
import pytest
from tests.distribution.devices import on_devices

import exburn
from exburn import config, layers, metrics
from exburn.losses import SparseCategoricalCrossentropy
from exburn.runtime.kernels import head_loss
from exburn.text import Document, PackedDocuments

WORDS, ROWS, TIME = 1_030, 8, 5
RNG = np.random.default_rng(0)
X, Y = (RNG.integers(1, WORDS, (ROWS, TIME)) for _ in range(2))
W = (RNG.random((ROWS, TIME)) > 0.5).astype(np.float32)
LOGITS = {"from_logits": True}


class Spy:
    """Counts the traces of the form without scores."""

    def __init__(self, monkeypatch):
        self.plans, real = [], head_loss._in_chunks

        def count(static, *args):
            self.plans.append(static[0])
            return real(static, *args)

        monkeypatch.setattr(head_loss, "_in_chunks", count)


@pytest.fixture
def spy(monkeypatch):
    small(monkeypatch)
    return Spy(monkeypatch)


def small(monkeypatch):
    """Lets it run for few scores, in several chunks."""
    monkeypatch.setattr(head_loss, "SCORES", {"cpu": 1, "gpu": 1})
    monkeypatch.setattr(head_loss, "CHUNK", {"cpu": 1, "gpu": 1})
    monkeypatch.setattr(head_loss, "ROWS", (8, 8))


def network(head="dense", *, cap=None, dtype=None, end=None, **settings):
    exburn.utils.set_random_seed(1)
    tokens = exburn.Input((TIME,), dtype="int32")
    table = layers.ReversibleEmbedding(
        WORDS, 8, tie_weights=head == "tied", logit_soft_cap=cap, dtype=dtype
    )
    x = layers.Dense(8, "tanh", dtype=dtype)(table(tokens))
    if head in ("tied", "untied"):
        y = table(x, reverse=True)
    else:
        y = (end or layers.Dense(WORDS, name="head", dtype=dtype))(x)
    model = exburn.Model(tokens, y)
    loss = settings.pop("loss", SparseCategoricalCrossentropy(**LOGITS))
    optimizer = settings.pop("optimizer", None) or exburn.optimizers.SGD(1.0)
    model.compile(optimizer, loss, **{"metrics": ["accuracy"], **settings}, seed=3)
    return model


def fitted(model, weights=W, **options):
    options = {"batch_size": 4, "epochs": 2, "shuffle": False, "verbose": 0} | options
    val = X[:6], Y[:6], W[:6]
    history = model.fit(X, Y, sample_weight=weights, validation_data=val, **options)
    return model.get_weights(), history.history


def beside_scores(make, fit=fitted, rtol=1e-5):
    """Fits with and without the scores, and compares weights and logs."""
    ours, logs = fit(make())
    config.disable_head_loss()
    try:
        theirs, others = fit(make())
    finally:
        config.enable_head_loss()
    for a, b in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(a, b, rtol=rtol, atol=rtol)
    for name, values in others.items():
        np.testing.assert_allclose(logs[name], values, rtol=rtol, err_msg=name)


HEADS = {
    "dense": {},
    "table": {"head": "tied"},
    "own table": {"head": "untied", "cap": 3.0},
    "tokens": {"accumulate": "tokens", "accumulate_gradients": 2},
    "smoothing": {"loss": SparseCategoricalCrossentropy(True, label_smoothing=0.1)},
    "ignored": {"loss": SparseCategoricalCrossentropy(True, ignore_class=7)},
    "either": {"loss": "cross_entropy"},
    "sum": {
        "loss": SparseCategoricalCrossentropy(True, reduction="sum"),
        "optimizer": exburn.optimizers.SGD(0.01),
    },
    "metrics": {
        "metrics": [
            metrics.SparseTopKCategoricalAccuracy(k=300),
            metrics.SparseCategoricalCrossentropy(**LOGITS),
        ],
        "weighted_metrics": ["accuracy"],
    },
    "no metrics": {"metrics": [], "weighted_metrics": ["accuracy"]},
}


@pytest.mark.parametrize("name", HEADS)
def test_same_as_with_scores(name, spy):
    beside_scores(lambda: network(**HEADS[name]))
    assert {plan.kernel_slope for plan in spy.plans} == {True, False}  # and evaluates


def test_the_plan_says_so(spy):
    model = network()
    fitted(model)
    rows = {decision.choice: decision.switch for decision in model.explain_plan()}
    assert rows["scores of the last layer"] == "config.disable_head_loss()"
    config.disable_head_loss()
    try:
        model = network()
        fitted(model)
    finally:
        config.enable_head_loss()
    choices = [decision.choice for decision in model.explain_plan()]
    assert "scores of the last layer" not in choices


def test_no_weights_and_masks(spy):
    beside_scores(network, lambda m: fitted(m, weights=None))
    assert not any(plan.sorts for plan in spy.plans if plan.kernel_slope)


def test_a_mask_of_the_inputs(spy):
    def masked():
        model = exburn.Sequential(
            [layers.Embedding(WORDS, 8, mask_zero=True), layers.Dense(WORDS)]
        )
        model.compile("sgd", SparseCategoricalCrossentropy(True), seed=3)
        return model

    x = np.where(W > 0, X, 0)

    def fit(model):
        history = model.fit(x, Y, batch_size=4, shuffle=False, verbose=0)
        return model.get_weights(), history.history

    beside_scores(masked, fit)
    assert spy.plans[0].sorts


@pytest.mark.parametrize("dtype", ["mixed_bfloat16", "mixed_float16"])
def test_half_precision(dtype, spy):
    beside_scores(lambda: network(dtype=dtype), rtol=2e-2)
    assert spy.plans


def test_a_frozen_head_gets_no_gradient(spy):
    def frozen():
        model = network()
        model.get_layer("head").trainable = False
        model.compile("sgd", model.loss, seed=3)
        return model

    beside_scores(frozen)
    assert not any(plan.kernel_slope for plan in spy.plans)
    assert any(plan.x_slope for plan in spy.plans)


def test_adapters_constraints_and_penalties(spy):
    def adapted():
        model = network()
        model.get_layer("head").enable_lora(2)
        model.compile("sgd", model.loss, seed=3)
        return model

    def constrained():
        end = layers.Dense(
            WORDS, kernel_regularizer="l2", kernel_constraint="unit_norm"
        )
        return network(end=end)

    beside_scores(adapted)
    beside_scores(constrained)
    assert spy.plans


class Doubled(layers.Dense):
    def call(self, inputs):
        return 2 * super().call(inputs)


def mean_score(y_true, y_pred):
    return exburn.ops.mean(y_pred, axis=-1)


PLAIN = {
    "a call of a user's": {"end": Doubled(WORDS)},
    "an activation": {"end": layers.Dense(WORDS, activation="relu")},
    "another metric": {"metrics": [mean_score]},
    "probabilities": {
        "end": layers.Dense(WORDS, activation="softmax"),
        "loss": "sparse_categorical_crossentropy",
    },
    "another loss": {"loss": lambda t, p: exburn.ops.mean(p, axis=-1)},
}


@pytest.mark.parametrize("name", PLAIN)
def test_scores_are_made(name, spy):
    fitted(network(**PLAIN[name]))
    assert not spy.plans


def test_own_losses_make_scores(spy):
    class Own(exburn.Model):
        def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None):
            return super().compute_loss(x, y, y_pred, sample_weight)

    base = network()
    model = Own(base.input, base.output)
    model.compile("sgd", base.loss)
    fitted(model)
    assert not spy.plans


def test_quantized_heads(spy):
    model = network()
    model.quantize("int8")
    model.compile("sgd", model.loss, metrics=["accuracy"])
    value = model.evaluate(X, Y, verbose=0)
    config.disable_head_loss()
    try:
        model.compile("sgd", model.loss, metrics=["accuracy"])
        assert value == pytest.approx(model.evaluate(X, Y, verbose=0), rel=1e-6)
    finally:
        config.enable_head_loss()


def test_predictions_and_single_batches(spy):
    model = network()
    scores = model.predict(X, verbose=0)
    assert scores.shape == (ROWS, TIME, WORDS) and not spy.plans
    model.train_on_batch(X, Y)
    model.test_on_batch(X, Y)
    assert len(spy.plans) == 2


@pytest.mark.parametrize("family", ["GPT2", "Llama"])
def test_decoders(family, spy):
    sizes = {"vocabulary_size": WORDS, "layers": 1, "width": 8, "heads": 2}
    options = {"GPT2": {"positions": TIME, "dropout": 0.0}, "Llama": {"mlp_width": 16}}

    def decoder():
        exburn.utils.set_random_seed(1)
        model = getattr(exburn.applications, family)(**sizes, **options[family])
        model.compile(exburn.optimizers.SGD(0.5), seed=3, metrics=["accuracy"])
        return model

    beside_scores(decoder)
    assert spy.plans


def test_packed_rows(spy):
    lengths = RNG.integers(2, 12, 20)
    documents = [Document(RNG.integers(1, WORDS, n), np.arange(n) > 1) for n in lengths]
    packed = PackedDocuments(documents, 12)

    def decoder():
        exburn.utils.set_random_seed(1)
        model = exburn.applications.Llama(WORDS, layers=1, width=8, heads=2)
        model.compile(exburn.optimizers.SGD(0.5), seed=3, metrics=["accuracy"])
        return model

    def fit(model):
        history = model.fit(packed, batch_tokens=48, epochs=2, verbose=0)
        return model.get_weights(), history.history

    beside_scores(decoder, fit)
    assert all(plan.sorts for plan in spy.plans) and spy.plans


@on_devices
@pytest.mark.parametrize("mesh", ["data", "fsdp"])
@pytest.mark.parametrize("head", ["dense", "tied"])
def test_meshes_that_divide_the_batch(mesh, head):
    with pytest.MonkeyPatch.context() as patch:
        small(patch)
        spy = Spy(patch)
        settings = {"head": head, "accumulate": "tokens"}
        x, y, w = (np.tile(v, (4, 1)) for v in (X, Y, W))  # 20 tokens a device

        def fit(model):
            options = {"batch_size": 32, "verbose": 0, "shuffle": False}
            history = model.fit(x, y, sample_weight=w, epochs=2, **options)
            return model.get_weights(), history.history

        beside_scores(lambda: network(**settings, mesh=mesh), fit)
        assert spy.plans
        ours, alone = (
            fit(network(**settings, mesh=mesh))[0],
            fit(network(**settings))[0],
        )
    for a, b in zip(ours, alone, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)


@on_devices
@pytest.mark.parametrize("layout", ["head/kernel", "dense/kernel"])
def test_meshes_that_divide_the_classes(layout):
    """The head's own, or those of another layer: then its gradient is gathered."""
    with pytest.MonkeyPatch.context() as patch:
        small(patch)
        spy = Spy(patch)
        settings = {"layout": {layout: (None, "model")}, "accumulate": "tokens"}
        mesh, other = {"data": 4, "model": 2}, {"data": 2, "model": 4}
        x, y, w = (np.tile(v, (4, 1)) for v in (X, Y, W))

        def fit(model):
            options = {"batch_size": 32, "verbose": 0, "shuffle": False}
            history = model.fit(x, y, sample_weight=w, epochs=2, **options)
            return model.get_weights(), history.history

        beside_scores(lambda: network(**settings, mesh=mesh), fit)
        assert {plan.across for plan in spy.plans} == {("model",)}
        ours, logs = fit(network(**settings, mesh=mesh))
        alone, others = fit(network(accumulate="tokens"))
        spy.plans.clear()
        settings["layout"] = {"dense/kernel": (None, "model")}
        filled, few = fit(network(**settings, mesh=other))  # 1,030 classes and 2 more
        assert spy.plans and len(jax.devices()) == 8
    for name, values in others.items():
        np.testing.assert_allclose(logs[name], values, rtol=1e-5, err_msg=name)
        np.testing.assert_allclose(few[name], values, rtol=1e-5, err_msg=name)
    for a, b in zip(ours + filled, alone + alone, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)
