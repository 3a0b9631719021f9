"""Arrays of wrong shapes, types and values for fit, evaluate and predict."""

import itertools

import jax
import numpy as np
from tests.errors.bench import (
    LABELS,
    Cases,
    classifier,
    detector,
    features,
    pair,
    reader,
    regressor,
    spoiled,
    untrained,
)

import exburn
from exburn.errors import DataError, DTypeError, ShapeError, TargetError

bad = Cases()
silent = {"verbose": 0}


# ---------------------------------------------------------------------- shapes
@bad(ShapeError, "float32[None, 8]", "float32[12, 7]")
def feature_width(b):
    b.model.fit(b.x[:, :7], b.y)


@bad(ShapeError, "float32[None, 8]", "float32[12, 7]")
def feature_width_of_evaluate(b):
    b.model.evaluate(b.x[:, :7], b.y)


@bad(ShapeError, "float32[None, 8]", "float32[12, 9]")
def feature_width_of_predict(b):
    b.model.predict(features(12, 9))


@bad(ShapeError, "float32[None, 8]", "float32[12, 7]")
def feature_width_of_train_on_batch(b):
    b.model.train_on_batch(b.x[:, :7], b.y)


@bad(ShapeError, "float32[None, 8]", "float32[12, 1, 8]")
def rank_of_features(b):
    b.model.fit(b.x[:, None], b.y)


@bad(ShapeError, "float32[None, 8]", "float32[8]")
def one_row_without_a_batch_axis(b):
    b.model.predict(b.x[0])


@bad(DataError, "x: 12 rows", "y: 11 rows")
def unequal_lengths(b):
    b.model.fit(b.x, b.y[:11])


@bad(DataError, "x['left']: 12 rows", "x['right']: 11 rows", make=pair)
def unequal_lengths_of_inputs(b):
    b.model.fit({"left": b.x["left"], "right": b.x["right"][:11]}, b.y)


@bad(DataError, "empty", "float32[0, 8]")
def no_rows(b):
    b.model.fit(b.x[:0], b.y[:0])


@bad(DataError, "empty", "float32[0, 8]")
def no_rows_to_predict(b):
    b.model.predict(b.x[:0])


@bad(DataError, "lacks inputs: x is None")
def no_data(b):
    b.model.fit()


@bad(DataError, "1 input is needed, received 0")
def an_empty_list(b):
    b.model.fit([], b.y)


@bad(ShapeError, "leading axis", "scalar")
def a_scalar(b):
    b.model.predict(np.float32(3.0))


@bad(ShapeError, "y_true: float32[12, 1]", "y_pred: float32[12, 3]", make=regressor)
def one_target_column_for_three_outputs(b):
    b.model.fit(b.x, features(12, 1))


@bad(ShapeError, "y_true: float32[12]", "y_pred: float32[12, 3]", make=regressor)
def flat_targets_for_three_outputs(b):
    b.model.fit(b.x, features(12))


@bad(ShapeError, "y_true: float32[12, 3]", "y_pred: float32[12, 1]", make=detector)
def three_target_columns_for_one_output(b):
    b.model.fit(b.x, np.ones((12, 3), np.float32))


@bad(ShapeError, "y_true: int32[12, 3]", "y_pred: float32[12, 1]", make=detector)
def one_hot_for_one_output(b):
    b.model.fit(b.x, np.eye(3, dtype=np.int32)[LABELS])


# ---------------------------------------------------------------------- types
@bad(DTypeError, "x must be numeric", "holds object", "row 0, column 0")
def objects(b):
    b.model.fit(np.array([[object()] * 8] * 12), b.y)


@bad(DTypeError, "x must be numeric", "numbers as text", "row 0, column 0")
def strings(b):
    b.model.fit(b.x.astype(str), b.y)


@bad(DTypeError, "y must be numeric", "strings", "'cat' at row 0", "np.unique")
def string_labels(b):
    b.model.fit(b.x, np.array(["cat", "dog", "cow"] * 4, object))


@bad(ShapeError, "x must have rows of at most 8 positions", "longer rows: 6")
def ragged(b):
    rows = np.empty(12, object)
    rows[:] = [[0.0] * (8 + i % 2) for i in range(12)]
    b.model.fit(rows, b.y)


@bad(DTypeError, "x must be numeric", "complex numbers", "complex64[12, 8]")
def complex_numbers(b):
    b.model.fit(b.x.astype(np.complex64), b.y)


@bad(DTypeError, "x must be numeric", "dates")
def dates(b):
    b.model.fit(np.zeros((12, 8), "datetime64[s]"), b.y)


@bad(DTypeError, "masked array")
def a_masked_array(b):
    b.model.fit(np.ma.masked_invalid(b.x), b.y)


@bad(DTypeError, "int32", "0 … 4294967296", make=reader)
def huge_integers(b):
    b.model.fit(spoiled(b.x.astype(np.int64), 2**32), b.y)


@bad(DTypeError, "x must be", "function")
def a_generator_function_that_was_not_called(b):
    b.model.fit(lambda: iter([(b.x, b.y)]))


@bad(DTypeError, "y must be an array", "str")
def text_as_targets(b):
    b.model.fit(b.x, "labels")


@bad(ShapeError, "a Dense cannot take rows of unlike lengths", make=untrained)
def a_ragged_python_list(b):
    b.model.predict([*b.x.tolist(), [1.0]])


@bad(ShapeError, "float32[8]", "one row as x[None]; a loader has to batch them")
def rows_of_a_loader_that_are_not_batched(b):
    b.model.predict(iter(b.x))


@bad(DTypeError, "x cannot become an array", "<Symbol shape")
def symbols(b):
    b.model.fit(exburn.Input((8,)), b.y)


@bad(DTypeError, "x[0] cannot become an array", "<Symbol shape")
def symbols_inside_a_list(b):
    b.model.predict([exburn.Input((8,))])


# ---------------------------------------------------------------------- values
@bad(DataError, "x must be finite", "nan at row 3", "rows affected: 1 of 12")
def nan_features(b):
    b.model.fit(spoiled(b.x, np.nan), b.y)


@bad(DataError, "x must be finite", "inf at row 3")
def infinite_features(b):
    b.model.fit(spoiled(b.x, np.inf), b.y)


@bad(DataError, "x must be finite", "inf at row 3")
def features_beyond_float32(b):
    b.model.fit(spoiled(b.x.astype(np.float64), 1e39), b.y)


@bad(DataError, "x must be finite", "nan at row 3")
def nan_features_of_evaluate(b):
    b.model.evaluate(spoiled(b.x, np.nan), b.y)


@bad(DataError, "x must be finite", "nan at row 3")
def nan_features_on_the_device(b):
    b.model.train_on_batch(jax.device_put(spoiled(b.x, np.nan)), b.y)


@bad(DataError, "x must be finite", "nan at row 3")
def nan_features_in_a_loader(b):
    b.model.fit(iter([(spoiled(b.x, np.nan), b.y)]))


@bad(DataError, "x['right'] must be finite", make=pair)
def nan_in_one_of_two_inputs(b):
    b.model.fit({**b.x, "right": spoiled(b.x["right"], np.nan)}, b.y)


@bad(DataError, "y must be finite", "nan at row 3", make=regressor)
def nan_targets(b):
    b.model.fit(b.x, spoiled(b.y, np.nan))


@bad(DataError, "y must be finite", "-inf at row 3", make=regressor)
def infinite_targets(b):
    b.model.fit(b.x, spoiled(b.y, -np.inf))


@bad(TargetError, "from 0 to 2", "first offending value: 3", "row: 3")
def a_label_above_the_classes(b):
    b.model.fit(b.x, spoiled(b.y, 3))


@bad(TargetError, "from 0 to 2", "first offending value: 3", "row: 3")
def a_label_above_the_classes_of_evaluate(b):
    b.model.evaluate(b.x, spoiled(b.y, 3))


@bad(TargetError, "from 0 to 2", "first offending value: 7", "row: 3")
def a_label_above_the_classes_in_a_loader(b):
    b.model.fit(itertools.repeat((b.x, spoiled(b.y, 7))), steps_per_epoch=1)


@bad(TargetError, "from 0 to 2", "first offending value: 3", "row: 3")
def a_label_above_the_classes_on_the_device(b):
    b.model.fit(b.x, jax.device_put(spoiled(b.y, 3)))


@bad(TargetError, "from 0 to 2", "first offending value: -1", "row: 3")
def a_negative_label(b):
    b.model.fit(b.x, spoiled(b.y, -1))


@bad(TargetError, "whole numbers", "first offending value: 0.5", "row: 3")
def a_label_between_two_classes(b):
    b.model.fit(b.x, spoiled(b.y.astype(np.float32), 0.5))


@bad(DataError, "y must be finite", "nan at row 3")
def a_nan_label(b):
    b.model.fit(b.x, spoiled(b.y.astype(np.float32), np.nan))


@bad(TargetError, "between 0 and 1", "first offending value: 2", make=detector)
def a_label_above_one_of_a_binary_loss(b):
    b.model.fit(b.x, spoiled(b.y, 2))


@bad(TargetError, "between 0 and 1", "first offending value: -0.5")
def a_negative_probability(b):
    b.model.fit(b.x, spoiled(np.eye(3)[b.y], -0.5))


@bad(
    TargetError,
    "integer class labels",
    "look one-hot",
    "categorical_crossentropy",
    make=lambda: classifier("sparse_categorical_crossentropy"),
)
def one_hot_for_the_sparse_loss(b):
    b.model.fit(b.x, np.eye(3, dtype=np.float32)[b.y])


@bad(
    TargetError,
    "must be one-hot",
    "look like class labels",
    "sparse_categorical_crossentropy",
    make=lambda: classifier("categorical_crossentropy"),
)
def labels_for_the_categorical_loss(b):
    b.model.fit(b.x, b.y)


@bad(DataError, "ids", "from 0 to 9", "10 at row 3", make=reader)
def an_id_above_the_embedding(b):
    b.model.fit(spoiled(b.x, 10), b.y)


@bad(DataError, "ids", "from 0 to 9", "-1 at row 3", make=reader)
def a_negative_id(b):
    b.model.evaluate(spoiled(b.x, -1), b.y)


@bad(DataError, "ids", "from 0 to 9", "10 at row 3", make=reader)
def an_id_above_the_embedding_in_predict(b):
    b.model.predict(spoiled(b.x, 10))


@bad(DataError, "whole numbers", "0.5 at row 0", make=reader)
def floats_as_ids(b):
    b.model.fit(b.x + 0.5, b.y)
