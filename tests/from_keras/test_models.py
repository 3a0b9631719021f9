"""Section "Models" of docs/from_keras/."""

import copy
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from safetensors import safe_open
from tests.from_keras.page import says

import exburn
from exburn.core.jax_dispatch import original

keras = pytest.importorskip("keras")
BOTH = pytest.mark.parametrize("library", [exburn, keras], ids=["exburn", "keras"])
# Variables of Keras are made arrays in a way that NumPy 2 warns of.
pytestmark = pytest.mark.filterwarnings("ignore:__array__ impl:DeprecationWarning")
X = np.random.default_rng(0).standard_normal((8, 3)).astype("float32")
Y = X[:, :1]


def stack(library, *entries):
    layers = entries or (library.layers.Dense(2), library.layers.Dense(1))
    return library.Sequential([library.Input((3,)), *layers])


def equal(one, other):
    pairs = zip(one.get_weights(), other.get_weights(), strict=True)
    return [np.array_equal(a, b) for a, b in pairs]


@says("Names are local to a model")
def test_names_come_from_the_place_in_the_model(tmp_path):
    for library in (exburn, keras):
        one, other = stack(library), stack(library)
        names = [[layer.name for layer in model.layers] for model in (one, other)]
        assert (names[0] == names[1]) == (library is exburn)
    one, other = stack(exburn), stack(exburn)
    assert [layer.name for layer in one.layers] == ["dense", "dense_1"]
    one.set_weights([w + 1 for w in one.get_weights()])
    one.save_weights(tmp_path / "one.safetensors")
    other.load_weights(tmp_path / "one.safetensors")
    assert all(equal(one, other))


@says("stays in inference mode within `fit`")
@BOTH
def test_a_part_called_for_inference_stays_in_it(library):
    part = stack(library, library.layers.BatchNormalization())
    x = library.Input((3,))
    model = library.Model(x, library.layers.Dense(1)(part(x, training=False)))
    model.compile("sgd", "mse")
    model.fit(X, Y, verbose=0)
    still = not np.any(part.layers[0].moving_mean.numpy())
    assert still == (library is exburn)


@says("`training` comes from the argument, else the enclosing call")
@BOTH
def test_what_training_is(library):
    seen = {}

    class Told(library.layers.Layer):
        def call(self, x, training=None):
            seen[self.name] = training
            return x

    class Default(library.layers.Layer):
        def __init__(self):
            super().__init__(name="default")
            self.inner = Told(name="inner")

        def call(self, x, training=True):
            seen[self.name] = training
            return self.inner(x)

    class Net(library.Model):
        def __init__(self):
            super().__init__()
            self.default, self.after = Default(), Told(name="after")

        def call(self, x):
            return self.after(self.default(x))

    net = Net()
    net(X, training=False)  # what is given goes to all
    assert seen == {"default": False, "inner": False, "after": False}
    net(X)  # a default goes inwards; Keras' goes on
    after = None if library is exburn else True
    assert seen == {"default": True, "inner": True, "after": after}
    net.compile("sgd", "mse")
    net.predict(X, verbose=0)
    told = {"default": False, "inner": False, "after": False}
    untold = {"default": True, "inner": True, "after": None}
    assert seen == (told if library is exburn else untold)


@says("Initial weights depend on the seed and on the weight's path")
@BOTH
def test_the_order_in_which_layers_are_made(library):
    models = []
    for order in ("ab", "ba"):
        library.utils.set_random_seed(0)
        parts = {name: library.layers.Dense(3, name=name) for name in order}
        for part in parts.values():
            part.build((None, 3))
        models.append(stack(library, parts["a"], parts["b"]))
    assert all(equal(*models)) == (library is exburn)


@says("A `Sequential` without `Input` has its `input` and `output`")
@BOTH
def test_when_a_model_has_input_and_output(library):
    model = library.Sequential([library.layers.Dense(1)])
    with pytest.raises(AttributeError):
        _ = model.input
    model(X)
    assert hasattr(model, "output") == (library is exburn)
    model(library.Input((3,)))
    assert tuple(model.output.shape) == (None, 1)


@says("The sizes of an `Input` hold for a `Sequential`, too")
@BOTH
def test_sizes_of_a_stack(library):
    model = stack(library, library.layers.ReLU())
    wide = np.ones((2, 5), "float32")
    if library is exburn:
        with pytest.raises(exburn.errors.ShapeError):
            model(wide)
    else:
        assert model(wide).shape == (2, 5)
    free = library.Sequential([library.layers.ReLU()])
    assert [tuple(free(x).shape) for x in (X, wide)] == [(8, 3), (2, 5)]


@says("`model.clone()`, which Keras has not")
@BOTH
def test_copies_and_clones(library):
    model = stack(library)
    model.compile("adam", "mse")
    model.fit(X, Y, verbose=0, shuffle=False)
    twin = copy.deepcopy(model)
    assert hasattr(model, "clone") == (library is exburn)
    if library is exburn:
        clone = model.clone()
        assert all(equal(model, clone)) and not clone.compiled
    logs = [m.fit(X, Y, verbose=0, shuffle=False).history for m in (model, twin)]
    assert logs[0] == logs[1]
    assert int(model.optimizer.iterations) == int(twin.optimizer.iterations) == 2


@says("`model.losses` holds what the last call")
@BOTH
def test_where_losses_are(library):
    rules = {"kernel_regularizer": "l2", "activity_regularizer": "l1"}
    dense = library.layers.Dense(2, **rules)
    model = stack(library, dense)
    assert len(model.losses) == 1
    for _ in range(2):
        y = np.asarray(model(X))
    penalty, added = sorted(map(float, model.losses))
    kernel = np.asarray(dense.get_weights()[0])
    wanted = sorted([0.01 * np.sum(kernel**2), 0.01 * np.abs(y).sum() / len(X)])
    assert [penalty, added] == pytest.approx(wanted, rel=1e-5)
    assert len(dense.losses) == (1 if library is exburn else 2)
    dense.trainable = False
    assert len(model.losses) == 1


@says("In a functional model, operators, indexing, NumPy functions")
def test_what_works_on_symbols():
    def everything(x, library):
        yield library.ops.exp(x * 2 + 1)[:, 0]
        yield np.tanh(np.concatenate([x, x], 1))
        yield jnp.linalg.norm(x, axis=1)
        yield jnp.abs(jnp.fft.fft(x))
        yield jax.nn.relu(x)
        yield jax.lax.exp(x)
        yield jax.scipy.special.erf(x)

    x = exburn.Input((3,))
    own = exburn.fn(lambda a: a[:, ::-1])(x)
    model = exburn.Model(x, [*everything(x, exburn), own])
    wanted = [*everything(X, exburn), X[:, ::-1]]
    for y, w in zip(model.predict(X, verbose=0), wanted, strict=True):
        np.testing.assert_allclose(y, w, rtol=1e-5, atol=1e-6)
    image = jax.image.resize(exburn.Input((4, 4, 1)), (1, 8, 8, 1), "linear")
    assert image.shape == (1, 8, 8, 1)
    calls = everything(keras.Input((3,)), keras)
    assert next(calls).shape == (None,)
    with pytest.raises(ValueError):
        next(calls)
    early = original(jnp.tanh)  # what a script has that imported it by name
    assert early(0.0) == 0
    with pytest.raises(exburn.errors.GraphError, match=r"jnp\.tanh\(x\)"):
        early(exburn.Input((3,)))


@says("Any `flax.nnx.Module` and any function can be an entry")
def test_modules_and_functions_in_models():
    linear = nnx.Linear(3, 2, rngs=nnx.Rngs(0))
    wanted = np.asarray(linear(jnp.asarray(X)))
    x = exburn.Input((3,))
    wrapped = exburn.Model(x, exburn.layers.ModuleLayer(linear)(x))
    np.testing.assert_allclose(wrapped(X), wanted, atol=1e-6)
    np.testing.assert_allclose(
        stack(exburn, linear, jnp.tanh)(X), np.tanh(wanted), atol=1e-6
    )
    for entry in (linear, jnp.tanh):
        with pytest.raises(ValueError, match="Only instances"):
            stack(keras, entry)


@says("A layer that the model's `call` reaches is trained and saved")
@BOTH
def test_layers_that_no_attribute_holds(library, tmp_path):
    def make():
        class Holder:
            def __init__(self):
                self.layer = library.layers.Dense(2, name="of_a_method")

            def apply(self, x):
                return self.layer(x)

        closed = library.layers.Dense(2, name="closed")

        class Net(library.Model):
            def __init__(self):
                super().__init__()
                self.out, self.apply = library.layers.Dense(1), Holder().apply

            def call(self, x):
                return self.out(self.apply(closed(x)))

        return Net()

    net = make()
    net(X)
    assert len(net.trainable_weights) == (6 if library is exburn else 2)
    if library is exburn:
        before = net.get_weights()
        net.compile("sgd", "mse")
        net.fit(X, Y, verbose=0)
        after = net.get_weights()
        assert all(np.any(a != b) for a, b in zip(before, after, strict=True))
        net.save_weights(tmp_path / "net.safetensors")
        again = make()
        again(X)
        again.load_weights(tmp_path / "net.safetensors")
        np.testing.assert_array_equal(again(X), net(X))


@says("`model.save` takes any name of a file")
def test_names_of_files(tmp_path):
    (tmp_path / "folder").mkdir()
    stack(exburn).save(tmp_path / "name.model")
    for name in ("folder", "new/"):
        with pytest.raises(exburn.errors.ArgumentError, match="file"):
            stack(exburn).save(f"{tmp_path}/{name}")
    for name in ("folder", "new/", "name.model"):
        with pytest.raises(ValueError, match="extension"):
            stack(keras).save(f"{tmp_path}/{name}")


@says("A `ModelCheckpoint` takes a folder")
def test_names_of_checkpoints():
    taken = {
        name
        for name in ("run/", "a.exburn", "a.keras", "a.safetensors", "a.weights.h5")
        for only in (False, True)
        if made(exburn, name, save_weights_only=only)
    }
    assert taken == {"run/", "a.exburn", "a.keras", "a.safetensors", "a.weights.h5"}
    assert not made(exburn, "a.weights.h5")
    assert not made(exburn, "a.keras", save_weights_only=True)
    assert not any(made(keras, name) for name in ("run/", "a.exburn", "a.safetensors"))
    assert made(keras, "a.keras")
    assert made(keras, "a.weights.h5", save_weights_only=True)


def made(library, name, **options):
    try:
        return library.callbacks.ModelCheckpoint(name, **options)
    except ValueError:
        return None


@says("`compute_output_shape` need not be written")
@BOTH
def test_shapes_of_outputs(library):
    class Twice(library.layers.Layer):
        def call(self, x):
            return library.ops.concatenate([x, x], -1)

    class Claims(Twice):
        def compute_output_shape(self, input_shape):
            return (None, 99)

    assert Claims().compute_output_shape((None, 3)) == (None, 99)
    ours = library is exburn
    assert Claims()(library.Input((3,))).shape == (None, 99)
    if ours:
        assert Twice().compute_output_shape((None, 3)) == (None, 6)
    else:
        with pytest.raises(NotImplementedError):
            Twice().compute_output_shape((None, 3))


def graph(library):
    x = library.Input((3,), name="x")
    y = library.layers.Dense(1, name="dense")(x)
    return library.Model(x, library.ops.add(y, 1.0), name="model")


@says("`get_config` of models has Keras' form")
def test_configurations():
    ours, theirs = (graph(library).get_config() for library in (exburn, keras))
    assert ours.keys() == theirs.keys()
    for own, other in zip(ours["layers"], theirs["layers"], strict=True):
        assert other.keys() - own.keys() <= {"build_config"}
        assert own.keys() - other.keys() <= {"operation"}
    assert ours["layers"][2]["operation"] == "add"
    calls = [entry["inbound_nodes"][0] for entry in ours["layers"][1:]]
    assert [call["order"] for call in calls] == [0, 1]
    (tensor,) = calls[0]["args"]
    (other,) = theirs["layers"][1]["inbound_nodes"][0]["args"]
    assert other["config"].keys() - tensor["config"].keys() == {"dtype"}
    of_stacks = [stack(library).get_config() for library in (keras, exburn)]
    left_out = of_stacks[0].keys() - of_stacks[1].keys()
    assert left_out == {"dtype", "build_input_shape"}
    source = graph(keras)
    model = exburn.Model.from_config(source.get_config())
    model.set_weights(source.get_weights())
    np.testing.assert_allclose(model(X), source(X), rtol=1e-5)


@says("`model.save` writes one safetensors file")
def test_a_file_is_one_of_safetensors(tmp_path):
    stack(exburn).save(tmp_path / "model.keras")
    assert [path.name for path in tmp_path.iterdir()] == ["model.keras"]
    with safe_open(tmp_path / "model.keras", "numpy") as file:
        assert len(file.keys()) >= 4


class Shifted(keras.layers.Layer):
    def call(self, x):
        return x + 1


class ShiftedHere(exburn.layers.Layer):
    def call(self, x):
        return x + 1


@says("`load_model` reads Keras' `.keras` archives")
@pytest.mark.parametrize("name", ["model.keras", "model.h5"])
@pytest.mark.filterwarnings("ignore")  # Keras': its old format
def test_files_of_keras_are_read(name, tmp_path):
    source = stack(keras, keras.layers.Dense(2), Shifted())
    source.save(tmp_path / name)
    classes = {"Shifted": ShiftedHere}
    model = exburn.models.load_model(tmp_path / name, custom_objects=classes)
    np.testing.assert_allclose(model(X), source(X), rtol=1e-5)


@says("The class of a functional model is `Model`")
def test_class_and_name_of_a_functional_model():
    for framework, kind in ((exburn, "Model"), (keras, "Functional")):
        x = framework.Input((2,))
        model = framework.Model(x, framework.layers.Dense(1)(x))
        assert type(model).__name__ == kind
        assert model.name.partition("_")[0] == kind.lower()


@says("`input_shape` and `output_shape` of a functional model of dicts")
def test_shapes_of_models_of_dicts():
    for framework in (exburn, keras):
        x, y = framework.Input((2,), name="x"), framework.Input((3,), name="y")
        given = {"x": x, "y": y}
        model = framework.Model(given, dict(given))
        wanted: Any = {"x": (None, 2), "y": (None, 3)}
        if framework is keras:
            wanted = [(None, 2), (None, 3)]
        assert model.input_shape == model.output_shape == wanted


@says("has one row a layer at any width")
@BOTH
def test_rows_of_a_summary(library):
    name = "a_layer_with_a_name_that_is_far_too_long_for_a_line_of_sixty_characters"
    layers = library.layers.Dense(2, name=name), library.layers.Dense(1, name="last")
    texts = []
    stack(library, *layers).summary(print_fn=texts.append, line_length=60)
    rows = [line for line in texts[0].splitlines() if line.startswith("│")]
    assert (len(rows) == 2) is (library is exburn)
    assert "…" in texts[0]
