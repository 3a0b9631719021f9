"""``compile(accumulate="tokens")``: parts of a batch train as the whole batch does."""

import numpy as np
import pytest
from tests.distribution.devices import on_devices

import exburn
from exburn import layers
from exburn.errors import ArgumentError, ShapeError
from exburn.losses import SparseCategoricalCrossentropy
from exburn.models.compiling import count_by_tokens

ROWS, TIME, WORDS = 8, 5, 11
COUNTS = 1, 1, 4, 4, 2, 5, 0, 3  # tokens of each row that count
RNG = np.random.default_rng(0)
X, Y = (RNG.integers(1, WORDS, (ROWS, TIME)) for _ in range(2))
W = (np.arange(TIME) < np.array(COUNTS)[:, None]).astype(np.float32)


def network(*, dtype=None, add=False, **settings):
    """A model of tokens; its bias has a penalty, and ``add`` adds a loss."""
    exburn.utils.set_random_seed(1)
    tokens = exburn.Input((TIME,), dtype="int32")
    x = layers.Embedding(WORDS, 8, dtype=dtype)(tokens)
    x = layers.Dense(8, "tanh", activity_regularizer="l2" if add else None)(x)
    y = layers.Dense(WORDS, kernel_regularizer="l2", dtype=dtype)(x)
    model = exburn.Model(tokens, y)
    settings = {"metrics": ["accuracy"], "accumulate": "tokens", "seed": 3} | settings
    loss = settings.pop("loss", SparseCategoricalCrossentropy(from_logits=True))
    optimizer = settings.pop("optimizer", None) or exburn.optimizers.SGD(0.5)
    model.compile(optimizer, loss, **settings)
    return model


def trained(batch_size, rows=ROWS, weights=W, epochs=2, **settings):
    model = network(**settings)
    data = X[:rows], Y[:rows]
    weights = None if weights is None else weights[:rows]
    options = {"batch_size": batch_size, "epochs": epochs, "shuffle": False}
    history = model.fit(*data, sample_weight=weights, verbose=0, **options)
    return model, history


def assert_alike(one, other, rtol=2e-6):
    (a, ours), (b, theirs) = one, other
    for p, q in zip(a.get_weights(), b.get_weights(), strict=True):
        np.testing.assert_allclose(p, q, rtol=rtol, atol=rtol)
    for name, values in theirs.history.items():
        np.testing.assert_allclose(ours.history[name], values, rtol=1e-5, err_msg=name)


@pytest.mark.parametrize("batch_size", [1, 2, 4])
def test_accumulated_parts_equal_the_large_batch(batch_size):
    whole = trained(ROWS)
    assert_alike(trained(batch_size, accumulate_gradients=ROWS // batch_size), whole)
    assert whole[1].params["accumulate"] == "tokens"


def test_means_stay_the_default_and_differ():
    """With tokens of 1, 1, 4 and 4 that a label rules out, weights differ."""
    ignore = {"loss": SparseCategoricalCrossentropy(True, ignore_class=0)}
    labels = np.where(W[:4] > 0, Y[:4], 0)

    def weights_after(batch_size, **settings):
        model = network(**ignore, **settings)
        x = X[:4]
        model.fit(x, labels, batch_size=batch_size, shuffle=False, verbose=0)
        return model.get_weights()

    def distance(accumulate):
        whole = weights_after(4, accumulate=accumulate)
        parts = weights_after(1, accumulate=accumulate, accumulate_gradients=4)
        return max(np.abs(a - b).max() for a, b in zip(whole, parts, strict=True))

    assert distance(None) == distance("means") > 1e-3
    assert distance("tokens") < 1e-6


def test_a_short_group_and_rows_that_fill_up_count_for_their_tokens():
    """Seven rows by twos: the last step has one row, and one of filling."""
    parts = trained(2, rows=7, accumulate_gradients=4)
    assert_alike(parts, trained(7, rows=7))


def test_weights_that_are_no_ones_and_no_weights_at_all():
    shares = W * RNG.uniform(0.1, 3.0, W.shape).astype(np.float32)
    whole = trained(ROWS, weights=shares, weighted_metrics=["accuracy"])
    settings = {"weighted_metrics": ["accuracy"], "accumulate_gradients": 4}
    assert_alike(trained(2, weights=shares, **settings), whole)
    assert_alike(
        trained(2, weights=None, accumulate_gradients=4), trained(ROWS, weights=None)
    )


def test_what_layers_add_counts_by_tokens_too():
    """One part's mean is weighed by its tokens; a part without any adds nothing."""
    model, history = trained(4, accumulate_gradients=2, add=True)
    assert np.isfinite(history.history["loss"]).all()
    penalty_alone, _ = trained(
        2, weights=np.zeros_like(W), accumulate_gradients=4, epochs=1
    )
    whole, _ = trained(ROWS, weights=np.zeros_like(W), epochs=1)
    for a, b in zip(penalty_alone.get_weights(), whole.get_weights(), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-6)
    kernel = penalty_alone.layers[-1].kernel
    assert not np.allclose(kernel, network().layers[-1].kernel)  # it was penalized


def test_history_and_evaluation_are_means_over_tokens():
    model = network(accumulate="tokens")
    scores = model.predict(X, verbose=0)
    right = (scores.argmax(-1) == Y) * W
    for batch_size in (1, 3, 8):
        logs = model.evaluate(
            X, Y, sample_weight=W, batch_size=batch_size, verbose=0, return_dict=True
        )
        assert logs["accuracy"] == pytest.approx(right.sum() / W.sum())
    assert logs["loss"] == pytest.approx(
        model.evaluate(X, Y, sample_weight=W, batch_size=2, verbose=0)[0], rel=1e-6
    )


def test_single_batches_go_on_with_a_group():
    whole, _ = trained(ROWS, epochs=1)
    parts = network(accumulate_gradients=4)
    for i in range(0, ROWS, 2):
        rows = slice(i, i + 2)
        parts.train_on_batch(X[rows], Y[rows], sample_weight=W[rows])
    for a, b in zip(parts.get_weights(), whole.get_weights(), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-6)


def test_float16_and_its_scale_of_the_loss():
    narrow = trained(2, dtype="mixed_float16", accumulate_gradients=4)
    whole = trained(ROWS, dtype="mixed_float16")
    assert narrow[0].optimizer.scales_loss
    assert_alike(narrow, whole, rtol=2e-3)


def test_several_optimizers_each_count_tokens():
    def both(group):
        optimizers = [
            exburn.optimizers.SGD(rate, gradient_accumulation_steps=group)
            for rate in (0.5, 0.1)
        ]
        return exburn.optimizers.MultiOptimizer(lambda v: optimizers["bias" in v.path])

    assert_alike(trained(2, optimizer=both(4)), trained(ROWS, optimizer=both(None)))


def test_remat():
    whole = trained(ROWS)
    model = network(accumulate_gradients=4)
    model.remat("dense*")
    history = model.fit(
        X, Y, sample_weight=W, batch_size=2, epochs=2, shuffle=False, verbose=0
    )
    assert_alike((model, history), whole)


@on_devices
@pytest.mark.parametrize("mesh", ["data", {"data": 2}, "fsdp"], ids=str)
@pytest.mark.parametrize("batch_size", [8, 4])
def test_devices_divide_tokens(mesh, batch_size):
    alone = trained(ROWS)
    group = {} if batch_size == ROWS else {"accumulate_gradients": ROWS // batch_size}
    assert_alike(trained(batch_size, mesh=mesh, **group), alone, rtol=5e-6)


def test_lanes_of_a_sweep_equal_their_own_fit():
    model = network(accumulate_gradients=4)
    fit = {"batch_size": 2, "epochs": 2, "shuffle": False, "verbose": 0}
    over = {"optimizer/learning_rate": [0.5, 0.1]}
    result = exburn.tuning.sweep(model, X, Y, sample_weight=W, over=over, **fit)
    _, history = trained(2, accumulate_gradients=4)
    lane = result.records[0].history["loss"]
    np.testing.assert_allclose(lane, history.history["loss"], rtol=1e-5)


def test_changing_the_kind_of_a_group_begins_it_anew():
    model = network(accumulate_gradients=4, accumulate="means")
    model.train_on_batch(X[:2], Y[:2])
    model.compile(model.optimizer, model.loss, accumulate="tokens")
    model.fit(X, Y, sample_weight=W, batch_size=2, shuffle=False, verbose=0)
    assert np.isfinite(model.get_weights()[0]).all()
    state = model._training_session.holder.opt_state
    assert float(state["accumulated"]["weights"]) == 0


def test_a_saved_model_goes_on_by_tokens(tmp_path):
    model, _ = trained(2, accumulate_gradients=4, epochs=1)
    model.save(tmp_path / "model.exburn")
    again = exburn.models.load_model(tmp_path / "model.exburn")
    assert again._training_session.objective.by_tokens
    for one in (model, again):
        one.fit(X, Y, sample_weight=W, batch_size=2, shuffle=False, verbose=0)
    for a, b in zip(model.get_weights(), again.get_weights(), strict=True):
        np.testing.assert_array_equal(a, b)


class OwnStep(exburn.Sequential):
    def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None):
        return exburn.ops.mean(y_pred)


class OwnCall(exburn.losses.Loss):
    def __call__(self, y_true, y_pred, sample_weight=None):
        return exburn.ops.mean(y_pred)


def dense(cls=exburn.Sequential):
    return cls([exburn.Input((2,)), layers.Dense(3)])


@pytest.mark.parametrize(
    ("loss", "text"),
    [
        (None, "there is no loss"),
        (exburn.losses.MeanSquaredError(reduction="sum"), "reduction='sum'"),
        (exburn.losses.MeanSquaredError(reduction="none"), "reduction='none'"),
        (OwnCall(), "__call__ of its own"),
    ],
)
def test_losses_that_no_sum_divides_are_refused(loss, text):
    with pytest.raises(ArgumentError, match=text):
        dense().compile("sgd", loss, accumulate="tokens")


def test_steps_of_the_models_own_and_unknown_words_are_refused():
    with pytest.raises(ArgumentError, match="computes its own in compute_loss"):
        dense(OwnStep).compile("sgd", "mse", accumulate="tokens")
    with pytest.raises(ArgumentError, match="received 'sums'"):
        dense().compile("sgd", "mse", accumulate="sums")


def test_a_step_of_the_models_own_keeps_its_loss_for_chats():
    model = dense(OwnStep)
    model.compile("sgd", "mse")
    count_by_tokens(model)
    assert not model._training_session.objective.by_tokens


def test_several_losses_and_numbers_of_whole_batches_are_refused():
    x, y = np.ones((4, 2)), np.ones((4, 3))
    inputs = exburn.Input((2,))
    heads = [layers.Dense(3)(inputs), layers.Dense(3)(inputs)]
    model = exburn.Model(inputs, heads)
    model.compile("sgd", "mse", accumulate="tokens")
    with pytest.raises(ArgumentError, match="divides one loss by its tokens"):
        model.fit(x, [y, y], verbose=0)
    model = dense()
    model.compile("sgd", lambda t, p: exburn.ops.mean(p), accumulate="tokens")
    with pytest.raises(ShapeError, match="one number for a whole batch"):
        model.fit(x, y, verbose=0)
    model = dense()
    model.compile(
        "sgd", "mse", metrics=[lambda t, p: exburn.ops.mean(p)], accumulate="tokens"
    )
    with pytest.raises(ShapeError, match="one number for a whole batch"):
        model.fit(x, y, verbose=0)


def test_a_decoder_without_a_loss_counts_tokens():
    sizes = {"vocabulary_size": WORDS, "layers": 1, "width": 8, "heads": 2}
    model = exburn.applications.GPT2(**sizes, positions=TIME, dropout=0.0)
    model.compile("sgd")
    assert model._training_session.objective.by_tokens
    history = model.fit(X, Y, sample_weight=W, batch_size=4, verbose=0)
    assert history.params["accumulate"] == "tokens"
    assert history.params["loss"] == "sparse_categorical_crossentropy"
    model.compile("sgd", SparseCategoricalCrossentropy(from_logits=True))
    assert not model._training_session.objective.by_tokens
