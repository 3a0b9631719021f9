"""Models, layers and weights that cannot be, and calls that come too early."""

import jax.numpy as jnp
import numpy as np
import pytest
from tests.errors.bench import (
    Case,
    Cases,
    X,
    check_refused,
    features,
    pair,
    reader,
    untrained,
)

import exburn
from exburn import layers
from exburn.core.jax_dispatch import original
from exburn.errors import (
    ArgumentError,
    DataError,
    DTypeError,
    FileFormatError,
    GraphError,
    MissingFileError,
    ModelFormatError,
    NotBuiltError,
    ShapeError,
    UncalledLayerError,
    UnknownNameError,
)

bad = Cases()
Input, Sequential, Model = exburn.Input, exburn.Sequential, exburn.Model


def unbuilt():
    """Gets its width from the first data."""
    model = Sequential([layers.Dense(4), layers.Dense(3)])
    model.compile("sgd", "cross_entropy")
    return model


# ---------------------------------------------------------------------- shapes
@bad(ShapeError, "size 8 on axis -1", "float32[2, 7]")
def a_width_the_layer_was_not_built_for(b):
    b.model.layers[0](np.ones((2, 7), np.float32))


@bad(ShapeError, "rank 2 or more", "float32[8]")
def a_rank_the_layer_was_not_built_for(b):
    b.model.layers[0](np.ones(8, np.float32))


@bad(ShapeError, "rank 4", "(None, 28, 28)")
def an_image_without_channels(b):
    layers.Conv2D(8, 3)(Input((28, 28)))


@bad(ShapeError, "rank 3", "(None, 8)")
def a_sequence_without_features(b):
    layers.LSTM(4)(Input((8,)))


@bad(ShapeError, "window", "float32[None, 2, 2, 3]")
def a_window_larger_than_the_image(b):
    layers.Conv2D(8, 5)(Input((2, 2, 3)))


@bad(ShapeError, "target_shape (3, 3)", "float32[None, 8]")
def a_reshape_that_does_not_fit(b):
    layers.Reshape((3, 3))(Input((8,)))


@bad(ShapeError, "broadcast", "float32[None, 8], float32[None, 7]")
def adding_two_widths(b):
    layers.Add()([Input((8,)), Input((7,))])


@bad(ShapeError, "axis -1 only", "float32[None, 4, 8], float32[None, 5, 8]")
def concatenating_two_lengths(b):
    layers.Concatenate()([Input((4, 8)), Input((5, 8))])


@bad(ArgumentError, "a list of inputs", "(None, 8)")
def adding_one_thing(b):
    layers.Add()(Input((8,)))


@bad(ShapeError, "must be known", "(None, 3)")
def a_dense_layer_on_an_unknown_width(b):
    layers.Dense(3)(Input((None,)))


@bad(ShapeError, "add", "float32[None, 8]", "float32[None, 7]")
def arithmetic_of_two_widths(b):
    Input((8,)) + Input((7,))


@bad(ShapeError, "axis=5", "(None, 8)")
def normalizing_an_axis_that_is_not_there(b):
    layers.BatchNormalization(axis=5)(Input((8,)))


@bad(ShapeError, "within float32[None, 8]", "9")
def an_index_beyond_the_width(b):
    Input((8,))[:, 9]


@bad(ShapeError, "within float32[None, 8]", "slice")
def an_index_of_too_many_axes(b):
    Input((8,))[:, :, 0]


# ---------------------------------------------------------------------- graphs
@bad(GraphError, "disconnected", "'other'")
def a_disconnected_graph(b):
    one, other = Input((8,), name="one"), Input((8,), name="other")
    Model(one, layers.Add()([one, other]))


@bad(GraphError, "outputs must be symbols", "float32[2, 2]")
def an_array_as_output(b):
    Model(Input((8,)), np.ones((2, 2), np.float32))


@bad(GraphError, "inputs must be symbols", "Dense")
def a_layer_as_input(b):
    Model(layers.Dense(3), Input((8,)))


@bad(GraphError, "inputs and outputs")
def inputs_without_outputs(b):
    Model(Input((8,)))


@bad(GraphError, "listed twice", "x")
def one_input_twice(b):
    x = Input((8,), name="x")
    Model([x, x], layers.Dense(3)(x))


@bad(GraphError, "two layers are named 'same'", "Dense", "Dropout")
def two_layers_of_one_name(b):
    x = Input((8,))
    Model(x, layers.Dropout(0.1, name="same")(layers.Dense(3, name="same")(x)))


@bad(GraphError, "two layers are named 'same'")
def two_layers_of_one_name_in_a_stack(b):
    Sequential([layers.Dense(3, name="same"), layers.Dense(3, name="same")])


@bad(DTypeError, "branch", "<Symbol shape=(None, 8)", "jnp.where")
def python_branching_on_a_symbol(b):
    x = Input((8,))
    return x if x > 0 else -x


@bad(GraphError, "jax.numpy", "<Symbol shape=(None, 8)", "exburn.fn(function)")
def a_jax_function_imported_before_the_first_symbol(b):
    original(jnp.tanh)(Input((8,)))


@bad(DTypeError, "length", "<Symbol shape=(None, 8)")
def the_length_of_a_symbol(b):
    len(Input((8,)))


@bad(DTypeError, "length", "<Symbol shape=(None, 8)")
def looping_over_a_symbol(b):
    list(Input((8,)))


@bad(DTypeError, "no array", "<Symbol shape=(None, 8)")
def a_symbol_as_array(b):
    np.asarray(Input((8,)))


@bad(ArgumentError, "call(self")
def a_model_class_without_a_call(b):
    class Empty(Model):
        pass

    Empty()(Input((8,)))


# ---------------------------------------------------------------------- stacks
@bad(DTypeError, "class Dense", "Dense(...)")
def a_layer_class(b):
    b.model.add(layers.Dense)


@bad(DTypeError, "layer", "int")
def a_number_as_layer(b):
    b.model.add(3)


@bad(ArgumentError, "Input must come first")
def an_input_on_top(b):
    b.model.add(Input((3,)))


@bad(ArgumentError, "'dense' is in the stack already")
def one_layer_twice(b):
    b.model.add(b.model.layers[0])


@bad(ShapeError, "rank 4", "(None, 3)")
def a_layer_that_does_not_fit_on_top(b):
    b.model.add(layers.Conv2D(8, 3))


@bad(GraphError, "two layers are named 'same'")
def a_name_that_is_taken_on_top(b):
    model = Sequential([layers.Dense(3, name="same")])
    model.add(layers.Dense(3, name="same"))


@bad(ArgumentError, "no layers")
def popping_an_empty_stack(b):
    Sequential().pop()


@bad(NotBuiltError, "no layers")
def fitting_an_empty_stack(b):
    model = Sequential()
    model.compile("sgd", "mse")
    model.fit(b.x, b.y)


# ---------------------------------------------------------------------- access
@bad(UnknownNameError, "'dens'", "'dense'")
def an_unknown_layer(b):
    b.model.get_layer("dens")


@bad(ArgumentError, "below 1", "received 5")
def a_layer_number_that_is_too_high(b):
    b.model.get_layer(index=5)


@bad(ArgumentError, "either a name or an index")
def a_layer_by_nothing(b):
    b.model.get_layer()


@bad(ShapeError, "2 arrays", "received 1")
def too_few_weights(b):
    b.model.set_weights([np.ones((8, 3))])


@bad(ShapeError, "kernel", "(8, 3)", "(3, 8)")
def weights_of_another_shape(b):
    b.model.set_weights([np.ones((3, 8)), np.ones(3)])


@bad(DTypeError, "kernel must hold numbers", "str96[8, 3]")
def weights_of_text(b):
    b.model.set_weights([np.full((8, 3), "one"), np.ones(3)])


@bad(ShapeError, "(3,)", "(4,)")
def assigning_another_shape(b):
    b.model.layers[0].bias.assign(np.ones(4))


@bad(ArgumentError, "without '/'", "'a/b'")
def renaming_a_layer(b):
    b.model.layers[0].name = "a/b"


@bad(NotBuiltError, "built", make=unbuilt)
def counting_before_building(b):
    b.model.count_params()


@bad(NotBuiltError, "save_weights", "built", make=unbuilt)
def saving_before_building(b):
    b.model.save_weights("never.safetensors")


@bad(UncalledLayerError, "Input", make=unbuilt)
def shapes_before_building(b):
    b.model.output_shape  # noqa: B018 - the property is the call


@bad(MissingFileError, "no file", "absent.safetensors")
def loading_an_absent_file(b):
    b.model.load_weights("absent.safetensors")


def test_a_file_that_holds_no_weights_is_refused(tmp_path):
    path = tmp_path / "damaged.safetensors"
    path.write_bytes(b"no weights at all")
    says = ("damaged.safetensors", "intact")
    act = lambda b: b.model.load_weights(path)  # noqa: E731
    check_refused(Case(act, ModelFormatError, says, untrained))


def test_weights_of_another_model_are_refused(tmp_path):
    reader().save_weights(tmp_path / "other.safetensors")
    says = ("another model", "missing in the file", "embedding/embeddings")
    act = lambda b: b.model.load_weights(tmp_path / "other.safetensors")  # noqa: E731
    check_refused(Case(act, FileFormatError, says, untrained))


def test_weights_of_another_width_are_refused(tmp_path):
    other = Sequential([Input((8,)), layers.Dense(4)])
    other.save_weights(tmp_path / "other.safetensors")
    says = ("dense/kernel", "(8, 3)", "(8, 4)")
    act = lambda b: b.model.load_weights(tmp_path / "other.safetensors")  # noqa: E731
    check_refused(Case(act, ShapeError, says, untrained))


def test_a_file_is_not_overwritten_against_the_users_wish(tmp_path):
    path = tmp_path / "kept.safetensors"
    path.write_bytes(b"mine")
    act = lambda b: b.model.save_weights(path, overwrite=False)  # noqa: E731
    check_refused(Case(act, ArgumentError, ("kept.safetensors", "exists"), untrained))
    assert path.read_bytes() == b"mine"


# ---------------------------------------------------------------------- calls
@bad(DataError, "2 inputs are needed, received 1", make=pair)
def calling_with_one_of_two_inputs(b):
    b.model(b.x["left"])


@bad(DTypeError, "on arrays or symbols", "[[1.0, 2.0]]", "np.array")
def calling_on_a_nested_list(b):
    layers.Dense(3)([[1.0, 2.0]])


@bad(DTypeError, "on arrays or symbols", "NoneType", "`return`")
def calling_on_nothing(b):
    layers.Dense(3)(None)


class Jagged:
    """Has rows of different lengths, as torch's nested tensors, which refuse so."""

    dtype = np.dtype(np.float32)

    @property
    def shape(self):
        raise RuntimeError("rows of different lengths")

    def __array__(self, dtype=None, copy=None):
        return self.shape


@bad(DTypeError, "on arrays or symbols", "received Jagged", "np.array")
def calling_on_rows_of_different_lengths(b):
    b.model(Jagged())


@bad(DTypeError, "must hold numbers, received Jagged", "cause: rows of different")
def a_weight_of_rows_of_different_lengths(b):
    b.model.weights[0].assign(Jagged())


@bad(DTypeError, "must hold numbers", "object[2, 8]")
def calling_on_objects(b):
    b.model(np.full((2, 8), None))


@bad(DTypeError, "must hold numbers", "str32[2, 8]")
def calling_on_strings(b):
    b.model.layers[0](np.full((2, 8), "a"))


@bad(DataError, "one row for each of the 12 rows", "float32[]")
def predicting_what_has_no_rows(b):
    x = Input((8,))
    Model(x, exburn.fn(jnp.sum)(x)).predict(b.x)


@bad(ShapeError, "float32[None, 8]", "float32[2, 7]")
def calling_on_another_width(b):
    b.model(np.ones((2, 7), np.float32))


@bad(ShapeError, "rank 4", "(None, 3)", make=unbuilt)
def an_unbuilt_stack_that_does_not_fit(b):
    b.model.add(layers.Conv2D(4, 3))
    try:
        b.model.fit(b.x, b.y)
    finally:
        b.model.pop()


def test_a_failed_build_leaves_a_model_that_other_data_can_build():
    model = Sequential([layers.Dense(4), layers.Conv2D(2, 3)])
    with pytest.raises(ShapeError):
        model.predict(X, verbose=0)
    assert not model.built and not model.layers[0].built
    out = model.predict(features(2, 5, 5, 3), verbose=0)
    assert out.shape == (2, 3, 3, 2)


def test_a_failed_add_leaves_the_stack_as_it_was():
    model = untrained()
    before = model.predict(X, verbose=0)
    conv = layers.Conv2D(8, 3)
    with pytest.raises(ShapeError):
        model.add(conv)
    assert [layer.name for layer in model.layers] == ["dense"]
    assert model.output_shape == (None, 3)
    np.testing.assert_array_equal(model.predict(X, verbose=0), before)
    model.add(layers.Dense(2))
    assert model.predict(X, verbose=0).shape == (12, 2)
