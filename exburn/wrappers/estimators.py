"""Models as scikit-learn's estimators."""

from __future__ import annotations

import copy
from typing import Any, Self

import numpy as np

from exburn.errors import DTypeError, NotCompiledError, TargetError, require
from exburn.errors.boundary import guard_methods
from exburn.models import Model, clone_model

_WHY = "models as scikit-learn's estimators need scikit-learn"
base = require("sklearn.base", "wrappers", _WHY, package="scikit-learn")
multiclass = require("sklearn.utils.multiclass", "wrappers", _WHY)
validation = require("sklearn.utils.validation", "wrappers", _WHY)


@guard_methods
class _Estimator(base.BaseEstimator):
    """What the three kinds have in common.

    Args:
        model: A compiled model, or a function of ``X`` and ``y`` that makes one.
        warm_start: Whether ``fit`` goes on with the weights of the last ``fit``, and
            trains a given model itself instead of a copy with new weights.
        fit_kwargs: Arguments of ``model.fit``; those of ``fit`` go first.

    Attributes:
        history_: What ``model.fit`` returned.
    """

    def __init__(self, model, warm_start=False, model_kwargs=None, fit_kwargs=None):
        self.model = model
        self.warm_start = warm_start
        self.model_kwargs = model_kwargs
        self.fit_kwargs = fit_kwargs

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.non_deterministic = True
        return tags

    def __sklearn_clone__(self):
        parameters = {name: getattr(self, name) for name in self.get_params(deep=False)}
        if isinstance(self.model, Model):
            parameters["model"] = _renew(self.model)
        return type(self)(
            **{k: v if k == "model" else copy.copy(v) for k, v in parameters.items()}
        )

    def fit(self, X: Any, y: Any, **kwargs: Any) -> Self:
        """Trains a new model, or with ``warm_start`` the one there is.

        Args:
            X: Samples ``[n, features]``.
            y: Targets ``[n]`` or ``[n, outputs]``.
            kwargs: Arguments of ``model.fit``.
        """
        X, y = self._check(X, y)
        targets = self._encode(y)
        if not (self.warm_start and hasattr(self, "model_")):
            self.model_ = self._make(X, targets)
        options = {"verbose": 0, **(self.fit_kwargs or {}), **kwargs}
        self.history_ = self.model_.fit(X, targets, **options)
        return self

    def _make(self, X, y) -> Any:
        model = self.model
        if isinstance(model, Model):
            result = model if self.warm_start else _renew(model)
        else:
            result = model(X=X, y=y, **(self.model_kwargs or {}))
        if not isinstance(result, Model):
            raise DTypeError(
                type(self).__name__,
                f"model must be a model, or a function that makes one: {result!r}",
            )
        if not result.compiled:
            raise NotCompiledError(
                type(self).__name__,
                "the model must be compiled",
                hint="Call model.compile(…), in the function that makes it.",
            )
        return result

    def _check(self, X, y):
        X, y = validation.check_X_y(X, y, multi_output=True)
        self.n_features_in_ = X.shape[1]
        return X, y

    def _outputs(self, X) -> np.ndarray:
        validation.check_is_fitted(self, "model_")
        X = validation.check_array(X)
        if X.shape[1] != self.n_features_in_:
            raise ValueError(
                f"X has {X.shape[1]} features, but {type(self).__name__} is expecting "
                f"{self.n_features_in_} features as input"
            )
        return self.model_.predict(X, verbose=0)

    def _encode(self, y) -> np.ndarray:
        """Targets as the model's output has them: two axes."""
        self._flat = y.ndim == 1
        return y.reshape(-1, 1) if self._flat else y

    def _decode(self, y) -> np.ndarray:
        return y.reshape(-1) if self._flat and y.ndim == 2 and y.shape[1] == 1 else y


def _renew(model: Any) -> Any:
    """A copy with new weights, compiled as the model is."""
    fresh = clone_model(model)
    if model.compiled and not fresh.compiled:
        fresh.compile_from_config(copy.deepcopy(model.get_compile_config()))
    return fresh


@guard_methods
class SKLearnClassifier(base.ClassifierMixin, _Estimator):
    """A model as a classifier of scikit-learn.

    The model's targets are one-hot, in the order of ``classes_``, so that its last
    layer has one unit for each class.

    Args:
        model: A compiled model, or a function of ``X`` and ``y`` that makes one.
        warm_start: Whether ``fit`` goes on with the weights of the last ``fit``, and
            trains a given model itself instead of a copy with new weights.
        model_kwargs: Further arguments of the function.
        fit_kwargs: Arguments of ``model.fit``; those of ``fit`` go first.

    Attributes:
        model_: The trained model.
        history_: What ``model.fit`` returned.
        classes_: The labels.

    Raises:
        MissingDependencyError: scikit-learn is not installed.

    Example:
        >>> from exburn import Input, Sequential, layers
        >>> def make(X, y, units=8):
        ...     head = layers.Dense(y.shape[1], activation="softmax")
        ...     model = Sequential([Input(X.shape[1:]), layers.Dense(units), head])
        ...     model.compile("adam", "categorical_crossentropy")
        ...     return model
        >>> X, y = np.eye(4, dtype=np.float32), np.array(["a", "b", "a", "b"])
        >>> classifier = SKLearnClassifier(make, model_kwargs={"units": 4})
        >>> classifier.fit(X, y, epochs=2).predict(X).shape
        (4,)
    """

    def _encode(self, y) -> np.ndarray:
        kind = multiclass.type_of_target(y, raise_unknown=True)
        if kind not in ("binary", "multiclass"):
            raise TargetError(
                "SKLearnClassifier",
                "Only binary and multiclass target types are supported. "
                f"Target type: {kind}",
            )
        super()._encode(y)
        self.classes_, index = np.unique(y, return_inverse=True)
        if len(self.classes_) == 1:
            raise TargetError(
                "SKLearnClassifier",
                "Classifier can't train when only one class is present.",
            )
        return np.eye(len(self.classes_), dtype=np.float32)[index.reshape(-1)]

    def predict(self, X: Any) -> np.ndarray:
        """The class with the highest score for each sample."""
        return self.classes_[self._outputs(X).argmax(1)]

    def decision_function(self, X: Any) -> np.ndarray:
        """The model's outputs ``[n, classes]``."""
        return self._outputs(X)


@guard_methods
class SKLearnRegressor(base.RegressorMixin, _Estimator):
    """A model as a regressor of scikit-learn.

    Args:
        model, warm_start, model_kwargs, fit_kwargs: As in :class:`SKLearnClassifier`.

    Attributes:
        model_, history_: As there.

    Raises:
        MissingDependencyError: scikit-learn is not installed.

    Example:
        >>> from exburn import Input, Sequential, layers
        >>> model = Sequential([Input((4,)), layers.Dense(1)])
        >>> model.compile("sgd", "mse")
        >>> X = np.eye(4, dtype=np.float32)
        >>> SKLearnRegressor(model).fit(X, X.sum(1)).predict(X).shape
        (4,)
    """

    def predict(self, X: Any) -> np.ndarray:
        """The model's outputs, in the shape that the targets had."""
        return self._decode(self._outputs(X))


@guard_methods
class SKLearnTransformer(base.TransformerMixin, _Estimator):
    """A model as a transformer of scikit-learn, trained towards given targets.

    Args:
        model, warm_start, model_kwargs, fit_kwargs: As in :class:`SKLearnClassifier`.

    Attributes:
        model_, history_: As there.

    Raises:
        MissingDependencyError: scikit-learn is not installed.

    Example:
        >>> from exburn import Input, Sequential, layers
        >>> model = Sequential([Input((4,)), layers.Dense(3)])
        >>> model.compile("sgd", "mse")
        >>> X = np.eye(4, dtype=np.float32)
        >>> SKLearnTransformer(model).fit(X, X[:, :3]).transform(X).shape
        (4, 3)
    """

    def transform(self, X) -> np.ndarray:
        """The model's outputs."""
        return self._outputs(X)
