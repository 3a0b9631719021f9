"""``compile(privacy=…)``: what a step does, what it refuses, and what it has spent."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import exburn
from exburn import callbacks, layers, losses, optimizers
from exburn.errors import ArgumentError, CheckpointError, UnknownNameError
from exburn.training.privacy.clipping import clipped_sum

pytest.importorskip("dp_accounting")

RNG = np.random.default_rng(0)
X = RNG.normal(size=(60, 3)).astype(np.float32)
Y = RNG.integers(0, 2, 60)


def private(privacy, *, body=(), optimizer=None, seed=1, **options):
    model = exburn.Sequential([exburn.Input((3,)), *body, layers.Dense(2, name="out")])
    loss = losses.SparseCategoricalCrossentropy(from_logits=True)
    optimizer = optimizer or optimizers.SGD(1.0)
    model.compile(optimizer, loss, seed=seed, privacy=privacy, **options)
    return model


def plain_noise(noise=1e-5, **options):
    return exburn.Privacy(noise=noise, delta=1e-5, **options)


@pytest.fixture(scope="module")
def trained():
    """A model of twelve steps, and the weights that it began with."""
    model = private(exburn.Privacy(epsilon=4, delta=1e-3), metrics=["accuracy"])
    before = model.get_weights()
    history = model.fit(X, Y, batch_size=10, epochs=2, verbose=0)
    return model, before, history


def test_a_step_is_the_mean_of_clipped_gradients(trained):
    model = private(plain_noise(clip=0.3), body=[layers.Dense(4, "tanh")])
    before = [jnp.asarray(w) for w in model.get_weights()]
    weight = np.linspace(0.5, 2, 60)
    model.fit(X, Y, batch_size=60, epochs=1, verbose=0, sample_weight=weight)

    def loss(w, x, y, weight):
        scores = jnp.tanh(x @ w[0] + w[1]) @ w[2] + w[3]
        return -weight * jax.nn.log_softmax(scores)[y]

    rows = jax.vmap(jax.grad(loss), (None, 0, 0, 0))(before, X, Y, weight)
    sums = clipped_sum(rows, 0.3)
    plain = jax.tree.map(lambda g: g.sum(0), rows)
    assert np.abs(sums[0] - plain[0]).max() > 0.1  # something was clipped
    for old, new, total in zip(before, model.get_weights(), sums, strict=True):
        np.testing.assert_allclose(new, old - total / 60, atol=1e-5)


def test_the_noise_of_a_step_has_the_spread_that_the_epsilon_is_told_of():
    quiet, loud = private(plain_noise(), seed=5), private(plain_noise(40.0), seed=5)
    for model in (quiet, loud):
        model.layers[-1].set_weights(
            [np.zeros((3, 2), np.float32), np.zeros(2, np.float32)]
        )
        model.fit(X, Y, batch_size=60, epochs=1, verbose=0)
    noise = np.concatenate(
        [
            (a - b).ravel()
            for a, b in zip(quiet.get_weights(), loud.get_weights(), strict=True)
        ]
    )
    assert 0.3 < np.std(noise) / (40 / 60) < 2  # of eight numbers
    other = private(plain_noise(40.0), seed=6)
    other.set_weights(quiet.get_weights())
    assert not np.allclose(other.get_weights()[0], loud.get_weights()[0])


def test_epsilon_is_that_of_the_steps_that_were_taken(trained):
    model, _, history = trained
    spent = model.privacy
    assert spent.epsilon == pytest.approx(4, rel=1e-3) and spent.epsilon <= 4
    assert spent.steps == 12 and spent.spending[0].rate == pytest.approx(1 / 6)
    assert history.privacy == spent
    assert set(history.history) == {"loss", "accuracy", "epsilon"}
    first, last = history.history["epsilon"]
    assert 0 < first < last == spent.epsilon
    assert model.trace_counts["train"] == 1


def test_an_epsilon_is_not_spent_twice(trained):
    model, *_ = trained
    weights = model.get_weights()
    with pytest.raises(ArgumentError, match="epsilon=4 cannot be reached"):
        model.fit(X, Y, batch_size=10, epochs=1, verbose=0)
    np.testing.assert_array_equal(model.get_weights()[0], weights[0])
    assert model.privacy.steps == 12


def test_batches_outside_of_fit_are_refused(trained):
    model, *_ = trained
    with pytest.raises(ArgumentError, match="trained by fit alone"):
        model.train_on_batch(X[:4], Y[:4])


def test_files_and_copies_go_on_counting(trained, tmp_path):
    model, *_ = trained
    model.save(tmp_path / "model.exburn")
    for other in (exburn.load_model(tmp_path / "model.exburn"), model.clone()):
        if other.compiled:
            assert other.privacy == model.privacy
            with pytest.raises(ArgumentError, match="cannot be reached"):
                other.fit(X, Y, batch_size=10, epochs=1, verbose=0)


def test_files_that_are_written_meanwhile_count_the_steps_so_far(tmp_path):
    model = private(plain_noise(1.0))
    write = callbacks.ModelCheckpoint(tmp_path / "{epoch}.exburn")
    model.fit(X, Y, batch_size=20, epochs=2, verbose=0, callbacks=[write])
    for epoch in (1, 2):
        other = exburn.load_model(tmp_path / f"{epoch}.exburn")
        assert other.privacy.steps == 3 * epoch
    assert other.privacy == model.privacy


def test_a_stopped_training_leaves_the_rest_of_its_epsilon():
    model = private(exburn.Privacy(epsilon=4, delta=1e-3))

    class Stop(callbacks.Callback):
        def on_epoch_end(self, epoch, logs=None):
            self.seen = self.model.privacy.steps
            raise KeyboardInterrupt

    stop = Stop()
    with pytest.raises(KeyboardInterrupt):
        model.fit(X, Y, batch_size=10, epochs=2, verbose=0, callbacks=[stop])
    assert stop.seen == model.privacy.steps == 6
    assert 0 < model.privacy.epsilon < 4
    model.fit(X, Y, batch_size=10, epochs=1, verbose=0)
    assert model.privacy.steps == 12
    assert 3.9 < model.privacy.epsilon <= 4


def test_a_run_that_is_resumed_is_the_same_and_spends_the_same(tmp_path, trained):
    whole, *_ = trained
    model = private(exburn.Privacy(epsilon=4, delta=1e-3), metrics=["accuracy"])

    class Stop(callbacks.Callback):
        def on_epoch_begin(self, epoch, logs=None):
            if epoch == 1:
                raise KeyboardInterrupt

    folder = tmp_path / "run"
    with pytest.raises(KeyboardInterrupt):
        model.fit(
            X,
            Y,
            batch_size=10,
            epochs=2,
            verbose=0,
            callbacks=[callbacks.StateCheckpoint(folder), Stop()],
        )
    for new in (
        model,
        private(exburn.Privacy(epsilon=4, delta=1e-3), metrics=["accuracy"]),
    ):
        other = private(exburn.Privacy(epsilon=5, delta=1e-3), metrics=["accuracy"])
        with pytest.raises(
            CheckpointError, match=r"privacy.epsilon: 4.0 → 5.0"
        ) as told:
            other.fit(X, Y, batch_size=10, epochs=2, verbose=0, resume=folder)
        assert "begin anew" in str(told.value) and "may_differ" not in str(told.value)
        assert other.privacy.steps == 0
        new.fit(X, Y, batch_size=10, epochs=2, verbose=0, resume=folder)
        for a, b in zip(new.get_weights(), whole.get_weights(), strict=True):
            np.testing.assert_array_equal(a, b)
        assert new.privacy == whole.privacy


def test_another_compile_goes_on_counting_and_draws_other_noise(trained):
    model = private(plain_noise(2.0))
    model.fit(X, Y, batch_size=60, epochs=1, verbose=0)
    first = model.get_weights()
    model.compile(
        optimizers.SGD(1.0), model.loss, seed=1, privacy=plain_noise(2.0), metrics=[]
    )
    assert model.privacy.steps == 1
    model.set_weights(private(plain_noise(2.0)).get_weights())
    model.fit(X, Y, batch_size=60, epochs=1, verbose=0)
    assert np.abs(model.get_weights()[0] - first[0]).max() > 1e-3
    assert model.privacy.steps == 2


def test_a_step_that_draws_no_row_adds_its_noise_alone():
    model = private(plain_noise(1.0))
    losses = []
    model.fit(
        X[:20],
        Y[:20],
        batch_size=1,
        epochs=2,
        verbose=0,
        callbacks=[lambda logs: losses.append(logs["loss"])],
    )
    assert model.privacy.steps == 40  # exp(-1) of them are empty
    assert np.isfinite(losses).all() and np.isfinite(model.get_weights()[0]).all()


class OwnStep(exburn.Model):
    def train_step(self, data):
        return super().train_step(data)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"body": [layers.BatchNormalization()]}, "GroupNormalization or Layer"),
        ({"accumulate_gradients": 2}, "all rows of an update"),
        ({"accumulate": "tokens"}, "accumulate='means'"),
        ({"run_eagerly": True}, "run_eagerly"),
        ({"remat": "blocks"}, "remat"),
        (
            {"optimizer": optimizers.LossScaleOptimizer(optimizers.Adam())},
            "scales the loss",
        ),
    ],
)
def test_what_cannot_be_private_is_refused_by_compile(options, message):
    with pytest.raises(ArgumentError, match=message):
        private(plain_noise(), **options)


def test_models_and_objects_that_cannot_be_private_are_refused():
    with pytest.raises(ArgumentError, match="train_step of the model's own"):
        x = exburn.Input((3,))
        OwnStep(x, layers.Dense(1)(x)).compile("sgd", "mse", privacy=plain_noise())
    with pytest.raises(ArgumentError, match="exburn.Privacy"):
        private({"epsilon": 3})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"shuffle": False}, "shuffle=False"),
        ({"shuffle": "batch"}, "shuffle='batch'"),
        ({"accumulate_gradients": 2}, "accumulate_gradients"),
        ({"batch_size": 61}, "at most the number of rows"),
    ],
)
def test_what_cannot_be_private_is_refused_by_fit(options, message):
    model = private(plain_noise())
    with pytest.raises(ArgumentError, match=message):
        model.fit(X, Y, verbose=0, **options)
    assert not model.trace_counts.get("train") and model.privacy.steps == 0


def test_loaders_and_layers_with_statistics_are_refused():
    model = private(plain_noise())
    with pytest.raises(ArgumentError, match="must be arrays"):
        model.fit(iter([(X, Y)]), verbose=0, steps_per_epoch=1)
    model = private(plain_noise(), body=[layers.SpectralNormalization(layers.Dense(3))])
    with pytest.raises(ArgumentError, match="may keep what it sees"):
        model.fit(X, Y, verbose=0)
    assert model.privacy.steps == 0


def test_a_model_without_privacy_has_none():
    model = exburn.Sequential([exburn.Input((3,)), layers.Dense(1)])
    model.compile("sgd", "mse")
    assert model.privacy is None


def test_the_report_of_a_run_tells_epsilon(tmp_path):
    model = private(plain_noise(1.0))
    model.fit(X, Y, batch_size=30, epochs=2, verbose=0, run=tmp_path / "run")
    epsilon = f"{model.privacy.epsilon:.4g}"
    report = (tmp_path / "run" / "report.html").read_text("utf-8")
    assert "epsilon" in report and epsilon[:4] in report


def test_ways_to_norms_that_are_none_are_refused():
    with pytest.raises(UnknownNameError, match="ghost"):
        plain_noise(norms="fast")
