"""Data whose parts do not belong together: targets, inputs, weights, loaders …"""

import numpy as np
from tests.errors.bench import Cases, pair, spoiled

from exburn.errors import ArgumentError, DataError, ShapeError, TargetError

bad = Cases()


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


@bad(DataError, "evaluate: ", "no output 'sort'", make=pair)
def targets_of_an_unknown_output_in_evaluate(b):
    b.model.evaluate(b.x, {**b.y, "sort": b.y["kind"]})


@bad(DataError, "evaluate: ", "those of 'size' are missing", make=pair)
def targets_of_one_output_missing_in_evaluate(b):
    b.model.evaluate(b.x, {"kind": b.y["kind"]})


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


@bad(DataError, "the input 'right' is None", make=pair)
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


@bad(ArgumentError, "class_weight: 'cat' is no class", "names.index")
def a_class_weight_by_name(b):
    b.model.fit(b.x, b.y, class_weight={"cat": 5.0, 0: 1.0, 1: 1.0, 2: 1.0})


@bad(ArgumentError, "class_weight: '0' is no class", "int(k)")
def class_weights_from_json(b):
    b.model.fit(b.x, b.y, class_weight={"0": 1.0, "1": 1.0, "2": 1.0})


@bad(ArgumentError, "class_weight: 0.5 is no class")
def a_class_weight_between_classes(b):
    b.model.fit(b.x, b.y, class_weight={0: 1.0, 0.5: 1.0, 1: 1.0, 2: 1.0})


@bad(ArgumentError, "train_on_batch", "class_weight: None is no class")
def a_class_weight_of_none(b):
    weights = {0: 1.0, 1: 1.0, 2: 1.0, None: 1.0}
    b.model.train_on_batch(b.x, b.y, class_weight=weights)


@bad(ArgumentError, "class_weight: 3 is no class of one-hot targets with 3 columns")
def a_class_weight_beyond_the_columns(b):
    one_hot = np.eye(3, dtype="float32")[b.y]
    b.model.fit(b.x, one_hot, class_weight={0: 1.0, 1: 1.0, 2: 1.0, 3: 1.0})


@bad(ArgumentError, "class_weight: 3 is no class of a model with 3 outputs")
def a_class_weight_beyond_the_outputs(b):
    b.model.fit(b.x, b.y, class_weight={0: 1.0, 1: 1.0, 2: 1.0, 3: 1.0})


@bad(ArgumentError, "train_on_batch", "class_weight: 7 is no class of a model")
def a_class_weight_beyond_the_outputs_for_a_batch(b):
    weights = {0: 1.0, 1: 1.0, 2: 1.0, 7: 1.0}
    b.model.train_on_batch(b.x, b.y, class_weight=weights)


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


@bad(ShapeError, "float32[None, 8]", "received float32[2]")
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


@bad(DataError, "y has 0 arrays, training has 1", "validation_data=(x, y)")
def validation_without_targets(b):
    b.model.fit(b.x, b.y, validation_data=b.x)


@bad(DataError, "fit (validation data)", "x: 12 rows", "y: 3 rows")
def validation_of_unequal_lengths(b):
    b.model.fit(b.x, b.y, validation_data=(b.x, b.y[:3]))


@bad(ArgumentError, "validation_data must be", "tuple of 4 parts")
def validation_data_in_a_tuple_of_four(b):
    b.model.fit(b.x, b.y, validation_data=(b.x, b.y, None, None))


@bad(DataError, "y has 0 arrays, training has 1", "validation_data=(x, y)")
def validation_data_without_targets(b):
    b.model.fit(b.x, b.y, validation_data=(b.x,))


@bad(DataError, "validation", "2 arrays, training has 1")
def validation_data_of_another_structure(b):
    b.model.fit(b.x, b.y, validation_data=([b.x, b.x], b.y))


@bad(DataError, "leaves 0 for training")
def a_split_that_leaves_nothing(b):
    b.model.fit(b.x[:1], b.y[:1], validation_split=0.5)
