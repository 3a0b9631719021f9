"""What goes between host and device for one batch, and for an epoch of one step."""

from concurrent.futures import ThreadPoolExecutor

import jax
import numpy as np
import pytest

import exburn
from exburn.runtime import transfer
from exburn.training import output_collector
from exburn.training.objective.objective import Objective
from exburn.training.prepare import Preparer
from exburn.training.program import Program

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


CALLS = {  # what it does, and how many arrays of the host it may send
    "predict_on_batch": (lambda m: m.predict_on_batch(X), 1),
    "test_on_batch": (lambda m: m.test_on_batch(X, Y), 2),
    "train_on_batch": (lambda m: m.train_on_batch(X, Y), 2),
    "predict": (lambda m: m.predict(X, verbose=0), 1),
    "evaluate": (lambda m: m.evaluate(X, Y, verbose=0), 2),
    "an epoch": (lambda m: m.fit(X, Y, verbose=0), 1),
}


@pytest.mark.parametrize(("call", "sent"), CALLS.values(), ids=CALLS)
def test_nothing_is_sent_that_is_there_already(model, call, sent, monkeypatch):
    call(model)
    arguments, put = [], []
    called, device_put = Program.__call__, jax.device_put

    def noted(self, *args, **kwargs):
        leaves = jax.tree.leaves(args)
        arguments.append(sum(not isinstance(leaf, jax.Array) for leaf in leaves))
        return called(self, *args, **kwargs)

    def counted(value, *args, **kwargs):
        put.append(jax.tree.map(np.shape, value))
        return device_put(value, *args, **kwargs)

    monkeypatch.setattr(Program, "__call__", noted)
    monkeypatch.setattr(jax, "device_put", counted)
    call(model)
    assert arguments == [sent]
    assert put == ([((20, 4), (20, 1), None)] if call is CALLS["an epoch"][0] else [])


def test_the_count_of_batches_stays_on_the_device(model):
    trainer = model._run.value.trainer
    before = trainer.holder.step
    model.train_on_batch(X, Y)
    model.fit(X, Y, batch_size=8, epochs=2, verbose=0)
    with pytest.raises(exburn.errors.ShapeError):
        model.train_on_batch(X, Y[:, [0, 0]])
    model.train_on_batch(X[:3], Y[:3])
    assert trainer.holder.step == before + 1 + 6 + 1
    assert int(trainer.preparer.initial_state().step) == trainer.holder.step
    trainer.holder.step = 5  # as a loaded model does
    assert int(trainer.preparer.initial_state().step) == 5


def test_a_model_that_moves_leaves_nothing_behind():
    model = trained()  # of its own: from then on data are bound for it
    model.to_device("cpu")
    model.train_on_batch(X, Y)
    assert (
        model._run.value.trainer.holder._place is None
    )  # it is bound to the old device


def test_fresh_totals_follow_the_metrics(model):
    trainer = model._run.value.trainer
    totals = trainer.preparer.fresh_totals("test")
    assert trainer.preparer.fresh_totals("test") is totals
    assert all(isinstance(leaf, jax.Array) for leaf in jax.tree.leaves(totals))
    model.compile("adam", "mse", metrics=["mae", "mse"], seed=0)
    assert list(model.evaluate(X, Y, verbose=0, return_dict=True)) == [
        "loss",
        "mae",
        "mse",
    ]


@pytest.mark.parametrize("rows", [2, 70_000])
def test_small_outputs_of_a_gpu_are_written_into_memory_of_the_host(rows, monkeypatch):
    outputs = {"a": jax.numpy.arange(rows), "b": jax.numpy.ones(2)}
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    monkeypatch.setattr(transfer, "_OFTEN", 2)
    kinds = []
    for _ in range(4):
        found = transfer.brought(outputs)
        kinds.append({leaf.sharding.memory_kind for leaf in found.values()})
    np.testing.assert_array_equal(found["a"], np.arange(rows))
    often = {"pinned_host" if rows == 2 else "device"}
    assert kinds == [{"device"}, {"device"}, often, often]


def test_large_outputs_of_a_gpu_go_to_memory_that_it_writes_to(monkeypatch):
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    large = jax.numpy.arange(3 << 20).reshape(2, 3, 1 << 19)
    found = transfer.brought(large)
    assert found.sharding.memory_kind == "pinned_host"
    ((start, rows),) = transfer.in_parts(found)
    np.testing.assert_array_equal(rows, large.reshape(6, -1))
    monkeypatch.setattr(transfer, "_PART", 8 << 20)
    assert transfer.brought(large) is large  # it comes in parts
    assert start == 0 and len(list(transfer.in_parts(large))) == 2


def test_where_no_memory_is_left_that_a_gpu_writes_to_outputs_come_as_others(
    monkeypatch,
):
    def full(*_):
        raise jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED")

    large = jax.numpy.arange(3 << 20).reshape(2, 3, 1 << 19)
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    monkeypatch.setattr(jax, "device_put", full)
    found = transfer.brought(large)
    ((_, rows),) = transfer.in_parts(found)
    np.testing.assert_array_equal(rows, large.reshape(6, -1))


@pytest.mark.parametrize("part", [100, 1_000, 100_000])
@pytest.mark.parametrize("known", [True, False])
def test_large_outputs_of_a_gpu_come_in_parts(part, known, monkeypatch):
    model = exburn.Sequential([exburn.Input((3,)), exburn.layers.Dense(5)])
    model.compile(steps_per_execution=4)
    x = np.random.default_rng(0).standard_normal((61, 3)).astype("float32")

    def batches():
        yield from (x[i : i + 7] for i in range(0, 61, 7))

    given = (lambda: x) if known else batches
    expected = model.predict(given(), 7, verbose=0)
    sent, take = [], transfer.in_parts
    monkeypatch.setattr(transfer, "_PART", part)
    monkeypatch.setattr(output_collector, "is_large", lambda array: True)
    monkeypatch.setattr(
        output_collector,
        "in_parts",
        lambda array: sent.append(array.shape) or take(array),
    )
    np.testing.assert_array_equal(model.predict(given(), 7, verbose=0), expected)
    assert len(sent) > 1


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
    monkeypatch.setattr(Preparer, "_prepare_anew", None)
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
    monkeypatch.setattr(Preparer, "_prepare_anew", None)
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


def test_a_batch_is_measured_alone_whatever_another_thread_does(model):
    halves = [(X[:10], Y[:10]), (X[10:], Y[10:])]
    wanted = [model.test_on_batch(*half) for half in halves]

    def measured(half):
        return [model.test_on_batch(*half) for _ in range(200)]

    with ThreadPoolExecutor(2) as threads:
        for values, value in zip(threads.map(measured, halves), wanted, strict=True):
            assert values == [value] * 200


@pytest.mark.parametrize("bound", ["model", "data", "weight"])
def test_arrays_bound_to_a_device_make_one_program(bound):
    made = exburn.Sequential([exburn.Input((4,)), exburn.layers.Dense(1)])
    made.compile("adam", "mse", seed=0)
    x, y, device = X, Y, jax.devices()[0]
    if bound == "model":
        made.to_device(device)
    elif bound == "data":
        x, y = jax.device_put((X, Y), device)
    else:
        made.layers[0].kernel.assign(jax.device_put(np.ones((4, 1)), device))
    programs = []
    original = Program.__call__

    def call(self, *args, **kwargs):
        programs.append(self._call)
        return original(self, *args, **kwargs)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Program, "__call__", call)
        made.fit(x, y, epochs=3, verbose=0)
        made.optimizer.learning_rate = 0.1
        made.fit(x, y, epochs=2, verbose=0)
        rates = exburn.callbacks.LearningRateScheduler(lambda epoch, rate: rate / 2)
        made.fit(x, y, epochs=3, verbose=0, callbacks=[rates])
    (train,) = {id(p): p for p in programs}.values()
    assert train._cache_size() == 1


@pytest.mark.filterwarnings("ignore::exburn.errors.RecompileWarning")
def test_a_model_stays_prepared_for_sequences_of_many_lengths(monkeypatch):
    pool = exburn.layers.GlobalAveragePooling1D()
    model = exburn.Sequential([exburn.Input((None, 4)), pool, exburn.layers.Dense(1)])
    lengths = [np.ones((1, n, 4), "float32") for n in range(1, 25)]
    for x in lengths:
        model.predict_on_batch(x)
    monkeypatch.setattr(Preparer, "_prepare_anew", None)
    for x in lengths:
        assert model.predict_on_batch(x).shape == (1, 1)
