"""Models that stay prepared for batches of several forms."""

import numpy as np
import pytest
from tests.training import batches

import exburn
import exburn as keras
from exburn.errors import DataError, TargetError
from exburn.training.objective.objective import Objective
from exburn.training.prepare import Preparer

pytestmark = pytest.mark.usefixtures("no_thread_is_left")
RNG = np.random.default_rng(0)
X = RNG.normal(size=(20, 4)).astype(np.float32)
Y = X.sum(-1, keepdims=True)


def trained():
    made = exburn.Sequential([exburn.Input((4,)), exburn.layers.Dense(1)])
    made.compile("adam", "mse", metrics=["mae"], seed=0)
    made.fit(X, Y, verbose=0)
    return made


@pytest.fixture(scope="module")
def model():
    return trained()


def test_a_model_stays_prepared_for_batches_of_several_forms(model, monkeypatch):
    train, test = model.train_on_batch, model.test_on_batch
    weights = np.linspace(0, 2, 20, dtype=np.float32)
    calls = [
        (train, (X[:8], Y[:8])),
        (train, (X, Y)),
        (train, (X, Y, weights)),
        (train, (X, Y[:, 0])),
        (test, (X[:8], Y[:8])),
        (test, (X[:5], Y[:5], weights[:5])),
    ]
    for call, batch in calls:
        call(*batch)
    monkeypatch.setattr(Objective, "init", None)  # fresh totals are still there
    monkeypatch.setattr(Objective, "build", None)  # other rows are nothing new to it
    for call, batch in calls:
        call(*[part[:7] for part in batch])
    monkeypatch.setattr(Preparer, "_prepare_once", None)
    for call, batch in [*calls, *calls[::-1]]:
        values = call(*batch, return_dict=True)
        assert np.isfinite(list(values.values())).all()
    error = np.square(np.asarray(model(X)) - Y)[:, 0]
    for given in (weights, 2 * weights):
        loss = test(X[:5], Y[:5], given[:5])[0]
        assert loss == pytest.approx(np.mean(error[:5] * given[:5]), rel=1e-5)


class _WithStep(exburn.Model):
    """Logs the weights' mean where there are weights."""

    def __init__(self):
        super().__init__()
        self.dense = exburn.layers.Dense(1)

    def call(self, x):
        return self.dense(x)

    def train_step(self, state, data):
        logs = {"loss": data[1].sum()}
        if len(data) > 2:
            logs["weight"] = data[2].mean()
        return logs, state


def test_a_model_with_its_own_step_stays_prepared(monkeypatch):
    model = _WithStep()
    model.compile("sgd", "mse")
    batches = [(X, Y), (X, Y, np.full(20, 0.5, np.float32))]
    wanted = [model.train_on_batch(*b, return_dict=True) for b in batches]
    assert [list(logs) for logs in wanted] == [["loss"], ["loss", "weight"]]
    monkeypatch.setattr(Preparer, "_prepare_once", None)
    for _ in range(2):
        assert wanted == [model.train_on_batch(*b, return_dict=True) for b in batches]


class _Ranks(exburn.metrics.Metric):
    """The rank of the targets that it was built for."""

    def build(self, y_true, y_pred):
        self.rank = len(y_true.shape)

    def init(self):
        return {"rank": np.zeros(self.rank, np.float32)}

    def update(self, state, y_true, y_pred, sample_weight=None):
        return {"rank": state["rank"] + 1}

    def compute(self, state):
        return state["rank"].sum()


def test_a_metric_that_learnt_other_shapes_is_built_again():
    model = exburn.Sequential([exburn.Input((4,)), exburn.layers.Dense(1)])
    model.compile("sgd", "mse", metrics=[_Ranks(name="rank")])
    for rows in (20, 8):  # the second ones are compiled after both were prepared
        for targets, rank in [(Y, 2), (Y[:, 0], 1)] * 2:
            assert model.test_on_batch(X[:rows], targets[:rows])[1] == rank


@pytest.mark.filterwarnings("ignore::exburn.errors.RecompileWarning")
def test_a_model_stays_prepared_for_sequences_of_many_lengths(monkeypatch):
    pool = exburn.layers.GlobalAveragePooling1D()
    model = exburn.Sequential([exburn.Input((None, 4)), pool, exburn.layers.Dense(1)])
    lengths = [np.ones((1, n, 4), "float32") for n in range(1, 25)]
    for x in lengths:
        model.predict_on_batch(x)
    monkeypatch.setattr(Preparer, "_prepare_once", None)
    for x in lengths:
        assert model.predict_on_batch(x).shape == (1, 1)


def test_single_batches_follow_changes_of_the_model():
    """What was prepared for the batch before is not used for another model."""
    model = keras.Sequential(
        [keras.Input((4,)), keras.layers.Dense(5), keras.layers.Dense(3)]
    )
    model.compile("sgd", loss="cross_entropy", metrics=["accuracy"], seed=1)
    pair, (first, second) = (batches.X[:20], batches.Y[:20]), model.layers
    for _ in range(2):
        model.train_on_batch(*pair)
    assert model.trace_counts["train"] == 1
    values = model.test_on_batch(*pair)
    assert values == pytest.approx(model.evaluate(*pair, verbose=0))
    outputs = model.predict_on_batch(batches.X[:20])
    np.testing.assert_array_equal(outputs, model.predict(batches.X[:20], verbose=0))

    first.trainable = False
    kernels = first.kernel.numpy(), second.kernel.numpy()
    model.train_on_batch(*pair)
    np.testing.assert_array_equal(first.kernel.numpy(), kernels[0])
    assert not np.array_equal(second.kernel.numpy(), kernels[1])
    first.trainable = True
    model.train_on_batch(*pair)
    assert not np.array_equal(first.kernel.numpy(), kernels[0])

    for call in (model.train_on_batch, model.test_on_batch):
        with pytest.raises(TargetError):
            call(batches.X[:20], batches.Y[:20] + 9)
        with pytest.raises(DataError, match="finite"):
            call(batches.X[:20] * np.nan, batches.Y[:20])
