"""Models as estimators of scikit-learn."""

import numpy as np
import pytest

import exburn as keras
from exburn import layers
from exburn.errors import DTypeError, NotCompiledError, TargetError

sklearn = pytest.importorskip("sklearn")
from sklearn.base import clone  # noqa: E402
from sklearn.exceptions import NotFittedError  # noqa: E402
from sklearn.model_selection import GridSearchCV  # noqa: E402
from sklearn.pipeline import make_pipeline  # noqa: E402
from sklearn.preprocessing import StandardScaler  # noqa: E402

wrappers = keras.wrappers
RNG = np.random.default_rng(0)
X = RNG.standard_normal((40, 3))
LABELS = np.where(X[:, 0] + X[:, 1] > 0, "over", "under")


def classifier(X, y, rate=0.3):
    head = layers.Dense(y.shape[1], activation="softmax")
    model = keras.Sequential([keras.Input(X.shape[1:]), head])
    model.compile(keras.optimizers.SGD(rate), "categorical_crossentropy")
    return model


def test_a_classifier_in_a_pipeline_and_a_search():
    one = wrappers.SKLearnClassifier(classifier, fit_kwargs={"epochs": 5})
    pipeline = make_pipeline(StandardScaler(), one).fit(X, LABELS)
    assert pipeline.score(X, LABELS) > 0.9
    assert set(pipeline.predict(X)) == {"over", "under"}
    np.testing.assert_allclose(pipeline.decision_function(X).sum(1), 1, rtol=1e-5)
    rates = {"model_kwargs": [{"rate": 0.0}, {"rate": 0.5}]}
    search = GridSearchCV(one, rates, cv=2, error_score="raise").fit(X, LABELS)
    assert search.best_params_ == {"model_kwargs": {"rate": 0.5}}


def compiled():
    model = keras.Sequential([keras.Input((3,)), layers.Dense(1)])
    model.compile(keras.optimizers.SGD(0.1), "mse")
    return model


def test_a_regressor_trains_a_copy_unless_it_starts_warm():
    model, y = compiled(), X @ np.array([1.0, -1.0, 0.5])
    before = model.get_weights()
    one = clone(wrappers.SKLearnRegressor(model)).fit(X, y, epochs=20)
    assert one.score(X, y) > 0.8 and one.predict(X).shape == y.shape
    assert list(one.history_.history) == ["loss"]
    np.testing.assert_array_equal(model.get_weights()[0], before[0])
    warm = wrappers.SKLearnRegressor(model, warm_start=True).fit(X, y)
    first = warm.history_.history["loss"][0]
    assert warm.model_ is model
    assert warm.fit(X, y).history_.history["loss"][0] < first


def test_a_transformer_gives_the_outputs():
    model = compiled()
    one = wrappers.SKLearnTransformer(model, warm_start=True).fit(X, X[:, :1])
    np.testing.assert_array_equal(one.transform(X), model.predict(X, verbose=0))


def test_what_cannot_be_fitted_is_told():
    with pytest.raises(NotFittedError):
        wrappers.SKLearnRegressor(compiled()).predict(X)
    with pytest.raises(TargetError, match="only one class"):
        wrappers.SKLearnClassifier(classifier).fit(X, np.zeros(40))
    with pytest.raises(TargetError, match="continuous"):
        wrappers.SKLearnClassifier(classifier).fit(X, X[:, 0])
    with pytest.raises(DTypeError, match="a function that makes one"):
        wrappers.SKLearnRegressor(lambda X, y: 3).fit(X, X[:, 0])
    with pytest.raises(NotCompiledError, match="must be compiled"):
        bare = keras.Sequential([keras.Input((3,)), layers.Dense(1)])
        wrappers.SKLearnRegressor(bare).fit(X, X[:, 0])
    one = wrappers.SKLearnRegressor(compiled()).fit(X, X[:, 0])
    with pytest.raises(ValueError, match="expecting 3 features"):
        one.predict(X[:, :2])
