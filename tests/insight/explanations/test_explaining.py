"""Tests of ``model.explain``."""

from pathlib import Path

import jax
import numpy as np
import pytest

import exburn
from exburn import layers
from exburn.errors import ArgumentError, DataError, UnknownNameError
from exburn.insight.explanations.methods import quadrature

RECORDED = Path(__file__).parent.parent / "recorded" / "explanations.npz"


@pytest.fixture(scope="module")
def captum():
    """Weights, inputs and captum's attributions of two small networks."""
    with np.load(RECORDED) as file:
        return dict(file)


@pytest.fixture(scope="module")
def mlp(captum):
    model = exburn.Sequential(
        [
            exburn.Input((6,), name="x"),
            layers.Dense(8, "tanh"),
            layers.Dense(3, "softmax"),
        ]
    )
    model.set_weights([captum[f"mlp/{i}"] for i in range(4)])
    return model


@pytest.fixture(scope="module")
def cnn(captum):
    model = exburn.Sequential(
        [
            exburn.Input((10, 10, 2)),
            layers.Conv2D(3, 3, activation="tanh", name="first"),
            layers.Conv2D(4, 3, activation="softplus", name="second"),
            layers.Flatten(),
            layers.Dense(3),
        ]
    )
    model.set_weights([captum[f"cnn/{i}"] for i in range(6)])
    return model


def test_a_table_is_explained_as_captum_does(mlp, captum):
    x = captum["mlp/x"]
    base = {"baseline": captum["mlp/base"]}
    options = {"saliency": {}, "occlusion": {}, "shapley": base | {"samples": 720}}
    options["integrated_gradients"] = base | {"steps": 20}
    for method, own in options.items():
        found = mlp.explain(x, method, batch_size=3, **own)
        np.testing.assert_allclose(found.values, captum[f"mlp/{method}"], atol=1e-5)
        assert found.scored == "softmax" and "softmax" in found.text()
        np.testing.assert_allclose(found.outputs.sum(1), 1, rtol=1e-6)
        assert found.targets.tolist() == found.outputs.argmax(1).tolist()


def test_images_are_explained_as_captum_does(cnn, captum):
    x = captum["cnn/x"]
    options = {
        "saliency": {},
        "integrated_gradients": {"steps": 20},
        "occlusion": {"patch": (3, 4), "stride": (2, 3)},
        "gradcam": {},
    }
    for method, own in options.items():
        found = cnn.explain(x, method, target=1, **own)
        expected = captum[f"cnn/{method}"]
        if method == "gradcam":
            expected = expected[..., 0]
            assert found.layer == "second"
        np.testing.assert_allclose(found.values, expected, atol=2e-5)
        assert found.scored == "outputs" and len(found.plot().axes) >= 4


def test_the_smooth_gradient_is_the_mean_over_inputs_with_noise(mlp, captum):
    x = captum["mlp/x"]
    weights = [captum[f"mlp/{i}"] for i in range(4)]

    def score(row, target):
        hidden = jax.numpy.tanh(row @ weights[0] + weights[1])
        return (hidden @ weights[2] + weights[3])[target]

    found = mlp.explain(x, "smooth_gradient", samples=8, noise=0.3, seed=5)
    gradient = jax.vmap(jax.grad(score), (0, None))
    spread = 0.3 * np.ptp(x, axis=1)
    for row, target in enumerate(found.targets.tolist()):
        draws = []
        for key in jax.random.split(jax.random.key(5), 8):
            key = jax.random.fold_in(jax.random.fold_in(key, 0), row)
            draws.append(jax.random.normal(key, (6,)))
        noisy = x[row] + spread[row] * np.stack(draws)
        expected = np.asarray(gradient(noisy, target)).mean(0)
        np.testing.assert_allclose(found.values[row], expected, atol=1e-5)
    apart = mlp.explain(
        x, "smooth_gradient", samples=8, noise=0.3, seed=5, batch_size=3
    )
    np.testing.assert_allclose(apart.values, found.values, atol=1e-6)


def test_some_orders_of_patches_add_up_to_the_difference_of_scores(cnn, captum):
    x = captum["cnn/x"]
    found = cnn.explain(x, "shapley", target=2, patch=5, samples=6, baseline=0.5)
    blank = cnn.explain(np.full_like(x[:1], 0.5), "saliency", target=2)
    sums = found.values[:, ::5, ::5, 0].sum((1, 2))
    np.testing.assert_allclose(sums, found.scores - blank.scores, atol=1e-5)
    again = cnn.explain(x[1:], "shapley", target=2, patch=5, samples=6, baseline=0.5)
    np.testing.assert_allclose(again.values, found.values[1:], atol=1e-5)


def test_few_steps_leave_a_gap_that_is_warned_of(mlp, captum):
    with pytest.warns(UserWarning, match="steps=8"):
        found = mlp.explain(captum["mlp/x"] * 20, steps=2)
    assert found.gaps.max() > 1e-3 and "Gap" in str(found)
    whole = mlp.explain(captum["mlp/x"], steps=60)
    assert whole.gaps.max() < 1e-3


def test_shapley_values_are_those_of_shap():
    with np.load(RECORDED.with_name("shapley.npz")) as file:
        shap = dict(file)
    model = exburn.Sequential(
        [exburn.Input((5,)), layers.Dense(8, "tanh"), layers.Dense(2)]
    )
    model.set_weights([shap[name] for name in "0123"])
    options = {"target": 1, "baseline": shap["base"]}
    exact = model.explain(shap["x"], "shapley", samples=120, **options).values
    np.testing.assert_allclose(exact, shap["exact"], atol=1e-5)
    np.testing.assert_allclose(exact, shap["kernel"], atol=1e-5)
    few = model.explain(shap["x"], "shapley", samples=40, **options).values
    error, theirs = (np.abs(v - exact).max() for v in (few, shap["sampling"]))
    assert 0 < error < 2 * theirs < 0.1


def test_steps_are_added_for_rows_that_are_not_complete():
    model = exburn.Sequential(
        [exburn.Input((6,)), layers.Dense(30, "relu"), layers.Dense(1)]
    )
    rng = np.random.default_rng(1)
    model.set_weights([3 * rng.normal(size=w.shape) for w in model.get_weights()])
    x = rng.normal(size=(9, 6)).astype(np.float32)
    with pytest.warns(UserWarning, match="steps=200"):
        few = model.explain(x, steps=50)
    found = model.explain(x, batch_size=4)
    assert few.gaps is not None and found.gaps is not None
    assert few.gaps.max() > 1e-3 >= found.gaps.max()
    enough = few.gaps <= 1e-3
    assert enough.any() and np.array_equal(found.values[enough], few.values[enough])
    blank = model.predict(np.zeros((1, 6)), verbose=0)[0, 0]
    np.testing.assert_allclose(found.values.sum(1) + blank, found.scores, rtol=2e-3)


def test_loaders_are_explained_as_their_rows_are(mlp, captum):
    x = captum["mlp/x"]

    class Loader(exburn.utils.PyDataset):
        def __len__(self):
            return 2

        def __getitem__(self, index):
            return x[2 * index : 2 * index + 2], np.zeros(2)

    found = mlp.explain(Loader(), "saliency")
    np.testing.assert_array_equal(found.values, mlp.explain(x, "saliency").values)
    with pytest.raises(DataError, match="may have no end"):
        mlp.explain(iter(lambda: (x, np.zeros(4)), None), "saliency")


def test_tokens_have_their_texts_in_tables_pages_and_pictures(tmp_path):
    model = exburn.Sequential(
        [exburn.Input((3,), dtype="int32"), layers.Embedding(5, 2), layers.Flatten()]
    )
    model.add(layers.Dense(2))
    x, words = np.array([[1, 4, 0], [2, 2, 3]]), ["", "a<b", "so", "it", "was\n"]
    found = model.explain(x, vocabulary=words)
    (texts,) = found.texts.values()
    assert texts == [["a<b", " was\n", ""], ["so", " so", " it"]]
    assert "' it' " in str(found) and "a&lt;b</span>" in found._repr_html_()
    letters = [text.get_text() for text in found.plot().axes[0].texts]
    assert letters[1:9] == [*"a<b was↵"]
    found.save(tmp_path / "found")
    again = exburn.insight.load(tmp_path / "found")
    assert again.texts == found.texts and str(again) == str(found)
    with pytest.raises(ArgumentError, match="list of words"):
        model.explain(x, vocabulary="so it was")
    assert not model.explain(x).texts


def test_tokens_beside_numbers_are_explained_by_the_rows_of_their_table():
    ids, size = exburn.Input((4,), dtype="int32", name="ids"), exburn.Input((2,))
    table = layers.Embedding(9, 3, embeddings_initializer="normal")(ids)
    mean = layers.GlobalAveragePooling1D()(table)
    hidden = layers.Concatenate()([mean, size])
    outputs = [layers.Dense(1, "sigmoid", name="p")(hidden)]
    outputs.append(layers.Dense(3, name="q")(hidden))
    model = exburn.Model([ids, size], outputs)
    rng = np.random.default_rng(0)
    x = [rng.integers(0, 9, (3, 4)), rng.normal(size=(3, 2)).astype(np.float32)]
    found = model.explain(x, output="p")
    values = found.values
    assert values["ids"].shape == (3, 4) and found.scored == "sigmoid"
    rows = model.get_weights()[0][x[0]]
    kernel = model.get_weights()[1]
    np.testing.assert_allclose(values["ids"], rows @ kernel[:3, 0] / 4, atol=1e-6)
    assert len(found.plot().axes) >= 2
    with pytest.raises(ArgumentError, match="2 outputs"):
        model.explain(x)


def test_tokens_that_come_as_floats_are_drawn_as_tokens():
    model = exburn.Sequential(
        [exburn.Input((3,)), layers.Embedding(5, 2), layers.Flatten(), layers.Dense(2)]
    )
    found = model.explain(np.array([[1, 4, 0]]), "saliency")
    assert [text.get_text() for text in found.plot().axes[0].texts] == ["1", "4", "0"]


def test_columns_of_a_table_have_their_names(mlp, captum, tmp_path):
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(captum["mlp/x"], columns=list("abcdef"))
    found = mlp.explain(frame)
    assert found.columns == tuple("abcdef")
    found.save(tmp_path / "found")
    again = type(found).load(tmp_path / "found")
    assert str(again) == str(found) and (again.values == found.values).all()
    labels = [text.get_text() for text in again.plot().axes[0].get_yticklabels()]
    assert sorted(labels) == list("abcdef")


def test_what_cannot_be_explained_is_refused_before_a_program_is_compiled(
    mlp, cnn, captum
):
    x, images = captum["mlp/x"], captum["cnn/x"]
    with pytest.raises(ArgumentError, match="from 0 to 2, received 3"):
        mlp.explain(x, target=3)
    with pytest.raises(ArgumentError, match="one for each of the 4 rows"):
        mlp.explain(x, target=[0, 1])
    with pytest.raises(ArgumentError, match="steps is not of 'saliency'"):
        mlp.explain(x, "saliency", steps=3)
    with pytest.raises(ArgumentError, match="no convolution"):
        mlp.explain(x, "gradcam")
    with pytest.raises(ArgumentError, match="gives no input any"):
        mlp.explain(x, vocabulary=["so"])
    with pytest.raises(ArgumentError, match="axes of space"):
        cnn.explain(images, "gradcam", layer="dense")
    with pytest.raises(UnknownNameError, match="unknown layer 'third'"):
        cnn.explain(images, "gradcam", layer="third")
    with pytest.raises(ArgumentError, match="no larger than the input"):
        cnn.explain(images, "occlusion", patch=11)
    with pytest.raises(ArgumentError, match="baseline of 'x' must be finite"):
        mlp.explain(x, baseline=np.ones(5))
    broken = x.copy()
    broken[2, 1] = np.nan
    with pytest.raises(DataError, match=r"row 2, place \(1,\)"):
        mlp.explain(broken)
    ids = exburn.Input((4,), dtype="int32", name="ids")
    one_hot = layers.CategoryEncoding(5, output_mode="multi_hot")(ids)
    model = exburn.Model(ids, layers.Dense(2)(one_hot))
    with pytest.raises(DataError, match="'ids' holds int"):
        model.explain(np.ones((2, 4), np.int32))
    with pytest.raises(ArgumentError, match="baseline of 'ids' must be finite"):
        model.explain(np.ones((2, 4), np.int32), "occlusion", baseline=0.5)
    assert model.explain(np.ones((2, 4), np.int32), "occlusion").values.shape == (2, 4)


class MinusMean(layers.Layer):
    def call(self, inputs):
        return inputs - exburn.ops.mean(inputs, axis=0)


def test_rows_that_are_computed_together_are_explained_one_by_one():
    model = exburn.Sequential([exburn.Input((3,)), MinusMean(), layers.Dense(2)])
    x = np.random.default_rng(0).normal(size=(2, 3))
    with pytest.raises(ArgumentError, match="computes with the rows of a batch"):
        model.explain(x, "saliency")
    assert not model.explain(x, "saliency", batch_size=1).values.any()


def test_many_steps_stand_in_parts():
    nodes, weights = quadrature(300)
    assert len({*nodes.tolist()}) == 300 and (np.diff(nodes) > 0).all()
    np.testing.assert_allclose((weights * nodes**5).sum(), 1 / 6, rtol=1e-6)


def test_a_baseline_of_another_shape_is_refused_before_scores(mlp, captum, monkeypatch):
    monkeypatch.delattr("exburn.insight.explanations.attribution.AttributionRun.look")
    with pytest.raises(ArgumentError, match="baseline of 'x' must be finite"):
        mlp.explain(captum["mlp/x"], baseline=np.ones(5))


def test_a_score_without_an_axis_and_an_entry_of_a_sequence_are_explained(captum):
    x = exburn.Input((6,))
    square = exburn.Model(x, exburn.ops.sum(x**2, axis=-1))
    found = square.explain(captum["mlp/x"])
    np.testing.assert_allclose(found.values, captum["mlp/x"] ** 2, atol=1e-5)
    steps = exburn.Sequential([exburn.Input((3, 2)), layers.Dense(4, use_bias=False)])
    rows = captum["mlp/x"].reshape(4, 3, 2)
    with pytest.raises(ArgumentError, match="of which one is explained"):
        steps.explain(rows)
    found = steps.explain(rows, target=(1, 2))
    expected = np.zeros_like(rows)
    expected[:, 1] = rows[:, 1] * steps.get_weights()[0][:, 2]
    np.testing.assert_allclose(found.values, expected, atol=1e-6)
