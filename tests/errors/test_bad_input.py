"""Bad data and bad arguments of compile, fit, evaluate and predict."""

import itertools

import jax
import numpy as np
import pytest
from tests.errors.bench import (
    LABELS,
    Cases,
    check_refused,
    classifier,
    detector,
    features,
    pair,
    reader,
    regressor,
    untrained,
)

import exburn
from exburn.errors import (
    ArgumentError,
    DataError,
    DTypeError,
    ShapeError,
    TargetError,
)

bad = Cases()
silent = {"verbose": 0}


def spoiled(array, value, at=(3, 1)):
    """A copy with one other value."""
    array = np.array(array)
    array[at[: array.ndim]] = value
    return array


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


@bad(ShapeError, "float32[None, 8]", "float32[12, 8, 1]")
def rank_of_features(b):
    b.model.fit(b.x[:, :, None], b.y)


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
@bad(DTypeError, "x must be numeric", "Python objects")
def objects(b):
    b.model.fit(np.array([[object()] * 8] * 12), b.y)


@bad(DTypeError, "x must be numeric", "strings")
def strings(b):
    b.model.fit(b.x.astype(str), b.y)


@bad(DTypeError, "y must be numeric", "strings", "first values: 'cat', 'dog'")
def string_labels(b):
    b.model.fit(b.x, np.array(["cat", "dog", "cow"] * 4, object))


@bad(DTypeError, "x must be numeric", "ragged rows", "(8,), (9,)")
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


@bad(DTypeError, "x[0][0] must be an array", "np.array", make=untrained)
def a_nested_python_list(b):
    b.model.predict(b.x.tolist())


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


@bad(DataError, "int32", "float32", make=reader)
def floats_as_ids(b):
    b.model.fit(b.x + 0.5, b.y)


# ---------------------------------------------------------------------- targets
@bad(DataError, "needs targets")
def targets_missing(b):
    b.model.fit(b.x)


@bad(DataError, "needs targets")
def targets_missing_in_evaluate(b):
    b.model.evaluate(b.x)


@bad(ArgumentError, "must not be given beside a loader", "generator")
def targets_beside_a_generator(b):
    b.model.fit((batch for batch in [(b.x, b.y)]), b.y)


@bad(ArgumentError, "y is a generator")
def a_generator_as_targets(b):
    b.model.fit(b.x, (label for label in b.y))


@bad(DataError, "'size'", "missing", make=pair)
def targets_of_one_output_missing(b):
    b.model.fit(b.x, {"kind": b.y["kind"]})


@bad(DataError, "no output 'sort'", "kind, size", make=pair)
def targets_of_an_unknown_output(b):
    b.model.fit(b.x, {**b.y, "sort": b.y["kind"]})


@bad(DataError, "1 arrays for 2 outputs", make=pair)
def one_array_for_two_outputs(b):
    b.model.fit(b.x, b.y["kind"])


@bad(DataError, "2 arrays for 1 outputs")
def two_arrays_for_one_output(b):
    b.model.fit(b.x, [b.y, b.y])


@bad(DataError, "y['kind'] must be one array", "dict", make=pair)
def nested_targets(b):
    b.model.fit(b.x, {**b.y, "kind": {"deep": b.y["kind"]}})


# ---------------------------------------------------------------------- inputs
@bad(DataError, "2 inputs are needed, received 1", "left, right", make=pair)
def one_array_for_two_inputs(b):
    b.model.fit(b.x["left"], b.y)


@bad(DataError, "right", "left, right", make=pair)
def a_key_missing(b):
    b.model.fit({"left": b.x["left"]}, b.y)


@bad(DataError, "rigth", "left, right", make=pair)
def a_key_misspelt(b):
    b.model.fit({"left": b.x["left"], "rigth": b.x["right"]}, b.y)


@bad(DataError, "1 input is needed, received 2")
def two_arrays_for_one_input(b):
    b.model.predict([b.x, b.x])


@bad(ShapeError, "'left'", "float32[None, 8]", "float32[12, 2]", make=pair)
def inputs_in_the_wrong_order(b):
    b.model.fit([b.x["right"], b.x["left"]], b.y)


@bad(DataError, "x['right'] is None", make=pair)
def an_input_that_is_none(b):
    b.model.fit({**b.x, "right": None}, b.y)


# ---------------------------------------------------------------------- weights
@bad(DataError, "sample_weight", "not negative", "-1.0 at row 3")
def a_negative_sample_weight(b):
    b.model.fit(b.x, b.y, sample_weight=spoiled(np.ones(12), -1))


@bad(DataError, "sample_weight", "finite", "nan at row 3")
def a_nan_sample_weight(b):
    b.model.fit(b.x, b.y, sample_weight=spoiled(np.ones(12), np.nan))


@bad(DataError, "x: 12 rows", "sample_weight: 5 rows")
def too_few_sample_weights(b):
    b.model.fit(b.x, b.y, sample_weight=np.ones(5))


@bad(ShapeError, "sample_weight", "one weight a row")
def sample_weights_of_another_rank(b):
    b.model.fit(b.x, b.y, sample_weight=np.ones((12, 3)))


@bad(DataError, "no output 'sort'", make=pair)
def sample_weights_of_an_unknown_output(b):
    b.model.fit(b.x, b.y, sample_weight={"sort": np.ones(12)})


@bad(TargetError, "class 2", "not in class_weight", "classes: [0, 1, 2]")
def a_class_without_a_weight(b):
    b.model.fit(b.x, b.y, class_weight={0: 1.0, 1: 2.0})


@bad(ArgumentError, "class_weight[1]", "-2.0")
def a_negative_class_weight(b):
    b.model.fit(b.x, b.y, class_weight={0: 1.0, 1: -2.0, 2: 1.0})


@bad(ArgumentError, "class_weight", "'heavy'")
def a_class_weight_that_is_text(b):
    b.model.fit(b.x, b.y, class_weight={0: 1.0, 1: "heavy", 2: 1.0})


@bad(ArgumentError, "class_weight", "balanced")
def a_name_as_class_weight(b):
    b.model.fit(b.x, b.y, class_weight="balanced")


@bad(ArgumentError, "class_weight or sample_weight, not both")
def class_and_sample_weights(b):
    weights = {0: 1.0, 1: 1.0, 2: 1.0}
    b.model.fit(b.x, b.y, class_weight=weights, sample_weight=np.ones(12))


@bad(ArgumentError, "class_weight needs exactly one array", make=pair)
def class_weights_of_two_outputs(b):
    b.model.fit(b.x, b.y, class_weight={0: 1.0, 1: 1.0, 2: 1.0})


# ---------------------------------------------------------------------- loaders
@bad(DataError, "yielded no batches")
def an_exhausted_generator(b):
    batches = iter([(b.x, b.y)])
    list(batches)
    b.model.fit(batches)


@bad(DataError, "must be x, (x, y) or (x, y, sample_weight)", "4 parts")
def batches_of_four_parts(b):
    b.model.fit(iter([(b.x, b.y, b.y, b.y)]))


@bad(DataError, "x: 12 rows", "y: 5 rows")
def batches_of_unequal_lengths(b):
    b.model.fit(iter([(b.x, b.y[:5])]))


@bad(DataError, "needs targets")
def batches_without_targets(b):
    b.model.fit(iter([b.x]))


@bad(ArgumentError, "validation_split needs arrays")
def splitting_a_generator(b):
    b.model.fit(iter([(b.x, b.y)]), validation_split=0.5)


@bad(DataError, "one batch of arrays", "train_on_batch")
def a_loader_as_one_batch(b):
    b.model.train_on_batch(iter([(b.x, b.y)]))


@bad(DTypeError, "predict_on_batch", "x[0] must be an array")
def a_list_of_numbers_as_one_batch(b):
    b.model.predict_on_batch([1.0, 2.0])


@bad(ArgumentError, "at most 2", "received 100", "batch_size: 8")
def more_steps_than_the_arrays_have(b):
    b.model.fit(b.x, b.y, batch_size=8, steps_per_epoch=100)


# ---------------------------------------------------------------------- validation
@bad(ShapeError, "float32[None, 8]", "float32[12, 7]", "validation")
def validation_features_of_another_width(b):
    b.model.fit(b.x, b.y, validation_data=(b.x[:, :7], b.y))


@bad(DataError, "validation", "(8, 1)", "(8,)")
def validation_features_of_another_rank(b):
    b.model.fit(b.x, b.y, validation_data=(b.x[:, :, None], b.y))


@bad(TargetError, "validation", "first offending value: 3", "row: 3")
def a_validation_label_above_the_classes(b):
    b.model.fit(b.x, b.y, validation_data=(b.x, spoiled(b.y, 3)))


@bad(DataError, "validation", "x must be finite", "nan at row 3")
def nan_validation_features(b):
    b.model.fit(b.x, b.y, validation_data=(spoiled(b.x, np.nan), b.y))


@bad(DataError, "validation", "y has 0 arrays, training has 1")
def validation_without_targets(b):
    b.model.fit(b.x, b.y, validation_data=b.x)


@bad(DataError, "fit (validation data)", "x: 12 rows", "y: 3 rows")
def validation_of_unequal_lengths(b):
    b.model.fit(b.x, b.y, validation_data=(b.x, b.y[:3]))


@bad(ArgumentError, "validation_data must be", "tuple of 1 parts")
def validation_data_in_a_tuple_of_one(b):
    b.model.fit(b.x, b.y, validation_data=(b.x,))


@bad(DataError, "validation", "2 arrays, training has 1")
def validation_data_of_another_structure(b):
    b.model.fit(b.x, b.y, validation_data=([b.x, b.x], b.y))


@bad(DataError, "leaves 0 for training")
def a_split_that_leaves_nothing(b):
    b.model.fit(b.x[:1], b.y[:1], validation_split=0.5)


# ---------------------------------------------------------------------- the test
@pytest.mark.parametrize("case", bad, ids=bad.names())
def test_bad_input_is_refused(case):
    check_refused(case)
