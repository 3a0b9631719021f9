import numpy as np
import pytest

import exburn
from exburn import layers
from exburn.errors import DataError, ShapeError

RNG = np.random.default_rng(0)
LENGTHS = RNG.integers(2, 16, 70)
IDS = [RNG.integers(1, 12, n) for n in LENGTHS]
TAGS = [(ids > 6).astype(np.int32) for ids in IDS]
ODD = np.array([ids[0] % 2 for ids in IDS], np.float32)


def classifier(**options):
    exburn.set_random_seed(0)
    parts = [layers.Embedding(12, 4), layers.GRU(4), layers.Dense(1)]
    model = exburn.Sequential(parts)
    loss = exburn.losses.BinaryCrossentropy(from_logits=True)
    model.compile(exburn.optimizers.Adam(0.02), loss, **options)
    return model


def tagger(**options):
    exburn.set_random_seed(0)
    parts = [layers.Embedding(12, 4), layers.Dense(2)]
    model = exburn.Sequential(parts)
    loss = exburn.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(exburn.optimizers.Adam(0.02), loss, **options)
    return model


def fit(model, x=IDS, y=ODD, **options):
    options = {"batch_size": 8, "epochs": 2, "verbose": 0} | options
    return model.fit(x, y, **options)


def weights(model):
    return np.concatenate([w.numpy().ravel() for w in model.weights])


def test_fit_evaluate_predict():
    model = classifier(metrics=["accuracy"])
    history = fit(model, epochs=6)
    assert history.history["loss"][-1] < history.history["loss"][0]
    assert model.trace_counts["train"] <= 6
    logits = model.predict(IDS, verbose=0)
    alone = [model.predict(IDS[row][None], verbose=0)[0] for row in (0, 33, 69)]
    np.testing.assert_allclose(logits[[0, 33, 69]], alone, rtol=1e-5, atol=1e-6)
    accuracy = ((logits[:, 0] > 0.5) == ODD).mean()
    assert model.evaluate(IDS, ODD, verbose=0)[1] == pytest.approx(accuracy)
    assert (model.predict(IDS, verbose=0, batch_size=3) - logits).max() < 1e-5


def test_one_step_is_that_of_rows_filled_up_by_hand():
    exburn.set_random_seed(0)
    by_hand = exburn.Sequential(
        [layers.Embedding(12, 4, mask_zero=True), layers.GRU(4), layers.Dense(1)]
    )
    loss = exburn.losses.BinaryCrossentropy(from_logits=True)
    by_hand.compile(exburn.optimizers.Adam(0.02), loss)
    padded = np.zeros((70, 15), np.int32)
    for row, ids in zip(padded, IDS, strict=True):
        row[: len(ids)] = ids
    model = classifier()
    for rows, one in ((IDS, model), (padded, by_hand)):
        fit(one, rows, batch_size=70, epochs=3, shuffle=False)
    np.testing.assert_allclose(weights(model), weights(by_hand), rtol=1e-4, atol=1e-5)


def test_targets_for_each_position():
    model = tagger(metrics=["accuracy"])
    fit(model, IDS, TAGS, epochs=4)
    outputs = model.predict(IDS, verbose=0)
    assert [len(rows) for rows in outputs] == LENGTHS.tolist()
    right = np.concatenate(
        [p.argmax(-1) == tags for p, tags in zip(outputs, TAGS, strict=True)]
    )
    loss = [
        -np.log(np.exp(p)[np.arange(len(t)), t] / np.exp(p).sum(-1))
        for p, t in zip(outputs, TAGS, strict=True)
    ]
    scores = model.evaluate(IDS, TAGS, verbose=0, batch_size=8)
    assert scores[0] == pytest.approx(np.concatenate(loss).mean(), rel=1e-5)
    assert scores[1] == pytest.approx(right.mean(), rel=1e-6)


def test_weights_of_positions_and_of_rows():
    ones = [np.ones(n, np.float32) for n in LENGTHS]
    plain, weighted = tagger(), tagger()
    fit(plain, IDS, TAGS)
    fit(weighted, IDS, TAGS, sample_weight=ones)
    np.testing.assert_allclose(weights(weighted), weights(plain), rtol=1e-5)
    halves = tagger()
    fit(halves, IDS, TAGS, sample_weight=np.full(70, 0.5))
    assert np.isfinite(weights(halves)).all()
    rows, few = np.zeros(70), tagger()
    rows[:8] = 1
    before = weights(few) if few.built else None
    fit(few, IDS, TAGS, sample_weight=rows)
    assert before is None


def test_weights_of_classes():
    model = classifier()
    fit(model, class_weight={0: 1.0, 1: 3.0})
    by_hand = classifier()
    fit(by_hand, sample_weight=np.where(ODD == 1, 3.0, 1.0))
    assert (weights(model) == weights(by_hand)).all()


def test_validation_data_and_split():
    history = fit(classifier(), validation_data=(IDS[:9], ODD[:9]))
    assert len(history.history["val_loss"]) == 2
    model = classifier()
    history = fit(model, validation_split=0.2)
    loss = model.evaluate(IDS[56:], ODD[56:], verbose=0)
    assert history.history["val_loss"][-1] == pytest.approx(loss, rel=1e-5)


def test_several_inputs():
    exburn.set_random_seed(0)
    ids = exburn.Input((None,), dtype="int32", name="ids")
    age = exburn.Input((1,), name="age")
    other = exburn.Input((None, 2), name="other")
    parts = [layers.GRU(3)(layers.Embedding(12, 4)(ids)), age, layers.GRU(2)(other)]
    model = exburn.Model([ids, age, other], layers.Dense(1)(layers.concatenate(parts)))
    model.compile("adam", "mse")
    series = [np.ones((n, 2), np.float32) for n in RNG.integers(1, 9, 70)]
    x = {"ids": IDS, "age": ODD[:, None], "other": series}
    fit(model, x)
    outputs = model.predict(x, verbose=0)
    one = {name: np.asarray(rows[5])[None] for name, rows in x.items()}
    np.testing.assert_allclose(model.predict(one, verbose=0)[0], outputs[5], rtol=1e-4)
    fit(model, [IDS, ODD[:, None], series])


def test_epochs_of_few_steps_and_initial_epoch():
    model = classifier()
    fit(model, steps_per_epoch=3, epochs=4)
    assert model.optimizer.iterations == 12
    whole, parts = classifier(), classifier()
    fit(whole, epochs=3)
    fit(parts, epochs=1)
    fit(parts, epochs=3, initial_epoch=1)
    assert (weights(whole) == weights(parts)).all()


def test_a_resumed_run_is_the_uninterrupted_one(tmp_path):
    whole, first, again = classifier(), classifier(), classifier()
    fit(whole, epochs=3)
    checkpoint = exburn.callbacks.ModelCheckpoint(tmp_path)
    fit(first, epochs=2, callbacks=[checkpoint])
    fit(again, epochs=3, resume=tmp_path)
    assert (weights(whole) == weights(again)).all()
    other = [*IDS[:-1], IDS[-1][::-1]]
    with pytest.raises(exburn.errors.CheckpointError, match="x"):
        fit(classifier(), other, epochs=3, resume=tmp_path)


def test_single_batches():
    model = classifier()
    loss = model.train_on_batch(IDS[:8], ODD[:8])
    assert np.isfinite(loss) and np.isfinite(model.test_on_batch(IDS[:8], ODD[:8]))
    outputs = model.predict_on_batch(IDS[:8])
    together = model.predict(IDS[:8], verbose=0)
    np.testing.assert_allclose(outputs, together, rtol=1e-5, atol=1e-6)
    tags = tagger().predict_on_batch(IDS[:8])
    assert [len(rows) for rows in tags] == LENGTHS[:8].tolist()


def test_batches_of_predict_may_be_fewer():
    model = classifier()
    few = model.predict(IDS, batch_size=8, steps=2, verbose=0)
    np.testing.assert_allclose(few, model.predict(IDS, verbose=0)[:16], atol=1e-6)


def test_one_row():
    model = tagger()
    x = exburn.Input((None,), dtype="int32")
    model = exburn.Model(x, layers.Dense(2)(layers.Embedding(12, 4)(x)))
    assert model.predict([IDS[0]], verbose=0).shape == (1, len(IDS[0]), 2)


def test_models_with_steps_of_their_own_are_refused():
    class Own(exburn.Sequential):
        def train_step(self, state, data):
            return state, {}

    model = Own([layers.Embedding(12, 4), layers.GRU(2), layers.Dense(1)])
    model.compile("adam", "mse")
    with pytest.raises(ShapeError, match="a step of its own cannot take rows of"):
        fit(model)


def test_a_row_without_entries_is_named():
    with pytest.raises(DataError, match="x has a row without entries: row 1"):
        fit(classifier(), [IDS[0], [], *IDS[2:]])


def test_a_bad_value_is_found_in_its_row():
    model = exburn.Sequential([layers.GRU(2)])
    model.compile("adam", "mse")
    rows = [np.ones((n, 2), np.float32) for n in LENGTHS]
    rows[40][1] = np.nan
    with pytest.raises(DataError, match="in row 40, by itself"):
        fit(model, rows, np.zeros((70, 2)))
    with pytest.raises(DataError, match="in row"):
        fit(classifier(), [ids + 20 for ids in IDS])


def test_batches_of_a_loader_are_refused():
    batches = iter([(IDS[:8], ODD[:8])])
    with pytest.raises(DataError, match="batch 0 of the generator has rows of unlike"):
        classifier().fit((batch for batch in batches), verbose=0)


@pytest.mark.parametrize("method", ["find_learning_rate", "profile"])
def test_other_operations_refuse_rows_by_name(method):
    with pytest.raises(DataError, match=f"{method}: rows of unlike lengths are taken"):
        getattr(classifier(), method)(IDS, ODD)


def test_a_sweep_refuses_rows_by_name():
    rates = {"optimizer.learning_rate": [0.1, 0.2]}
    with pytest.raises(DataError, match="sweep: rows of unlike lengths are taken"):
        exburn.sweep(classifier(), IDS, ODD, over=rates)


def test_adapters_of_low_rank():
    x = exburn.Input((None,), dtype="int32")
    h = layers.Embedding(12, 4)(x)
    h = layers.GlobalAveragePooling1D()(layers.MultiHeadAttention(2, 2)(h, h))
    model = exburn.Model(x, layers.Dense(1)(h))
    model.compile("adam", "mse")
    model.add_lora(2)
    fit(model, epochs=1)
    assert np.isfinite(model.predict(IDS, verbose=0)).all()


def test_columns_of_hugging_face():
    datasets = pytest.importorskip("datasets")
    rows = {"ids": [ids.tolist() for ids in IDS], "odd": ODD}
    data = exburn.datasets.from_huggingface(
        datasets.Dataset.from_dict(rows), "ids", "odd"
    )
    model, other = classifier(), classifier()
    fit(model, data, None)
    fit(other)
    assert (weights(model) == weights(other)).all()
