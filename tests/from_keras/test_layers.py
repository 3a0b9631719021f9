"""Section "Layers" of docs/from_keras/, but for what prepares data."""

import json
from collections import OrderedDict

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from tests.from_keras.page import says

import exburn

keras = pytest.importorskip("keras")
BOTH = pytest.mark.parametrize("library", [exburn, keras], ids=["exburn", "keras"])
pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation")  # Keras'
RNG = np.random.default_rng(0)
X = RNG.standard_normal((8, 3)).astype("float32")
STEPS = RNG.standard_normal((2, 4, 3)).astype("float32")
MASK = np.array([[True, True, False, False], [True, True, True, True]])


def stack(library, *layers, **options):
    return library.Sequential([library.Input((3,)), *layers], **options)


def built(layer, shape=(None, 3)):
    layer.build(shape)
    return layer


def wrapper(library, in_build=False):
    """A class of layers with a dense one in it, which its ``build`` builds."""

    class Wrapper(library.layers.Layer):
        def __init__(self, **options):
            super().__init__(**options)
            if not in_build:
                self.inner = library.layers.Dense(2)

        def build(self, input_shape):
            if in_build:
                self.inner = library.layers.Dense(2)
            self.inner.build(input_shape)

        def call(self, x):
            return self.inner(x)

    return Wrapper


# ------------------------------------------------------------------------- weights
@says("A weight is an `nnx.Variable`")
@BOTH
def test_a_weight_computes(library):
    kernel = built(library.layers.Dense(2)).kernel
    kernel.assign(np.ones((3, 2)))
    assert float(kernel.numpy().sum()) == 6 and (kernel * 2 + 1).shape == (3, 2)
    assert isinstance(kernel[...], jax.Array)
    assert isinstance(kernel, nnx.Variable) == (library is exburn)


@says("every weight is an instance of it")
def test_variables():
    for library in (exburn, keras):
        made = library.Variable("ones", (2,), "float32", trainable=False, name="made")
        assert made.name == "made" and not made.trainable
        assert isinstance(built(library.layers.Dense(2)).kernel, library.Variable)
    assert exburn.backend.Variable is exburn.Variable
    assert isinstance(exburn.Variable(np.ones(2)).dtype, np.dtype)
    assert isinstance(keras.Variable(np.ones(2)).dtype, str)
    type("Own", (keras.Variable,), {})
    with pytest.raises(exburn.errors.ArgumentError, match="only makes weights"):
        type("Own", (exburn.Variable,), {})


@says("`overwrite_with_gradient=True` of a weight is an error")
def test_gradients_do_not_overwrite():
    weight, other = exburn.Variable(np.ones(2)), keras.Variable(np.ones(2))
    other.overwrite_with_gradient = True
    with pytest.raises(exburn.errors.ArgumentError, match="overwrite_with_gradient"):
        weight.overwrite_with_gradient = True


@says("An option that made the weights")
def test_options_of_built_layers():
    theirs, ours = built(keras.layers.Dense(2)), built(exburn.layers.Dense(2))
    theirs.units = 5
    assert theirs.kernel.shape == (3, 2) and theirs.get_config()["units"] == 5
    with pytest.raises(ValueError, match="units cannot change"):
        ours.units = 5


@says("The keys of a dict of layers or weights in an attribute")
@BOTH
def test_dicts_of_layers(library):
    class Holder(library.layers.Layer):
        def __init__(self, keys):
            super().__init__()
            self.table = {key: library.layers.Dense(1) for key in keys}

    for keys in ("ab", (1, 2), ((1, 2), (3, 4))):
        ordered = isinstance(Holder(keys).table, OrderedDict)
        assert ordered == (library is exburn)
    if library is exburn:
        with pytest.raises(exburn.errors.ArgumentError, match="keys of one type"):
            Holder((1, "a"))
    else:
        Holder((1, "a"))


@says("Paths begin below the outermost model")
@BOTH
def test_paths(library):
    class Block(library.layers.Layer):
        def __init__(self):
            super().__init__(name="block")
            self.attribute = library.layers.Dense(2, name="named")
            self.many = [library.layers.Dense(2, name="first")]

        def build(self, input_shape):
            self.attribute.build(input_shape)
            self.many[0].build((None, 2))

        def call(self, x):
            return self.many[0](self.attribute(x))

    dense = library.layers.Dense(2, name="dense")
    encoder = stack(library, dense, name="encoder")
    block = Block()
    model = stack(library, encoder, block, library.layers.Dense(1), name="outer")
    ours = library is exburn
    assert dense.path == "encoder/dense" and dense.kernel.path == "encoder/dense/kernel"
    assert block.path == ("block" if ours else "outer/block")
    inside = [w.path for w in block.weights if w.name == "kernel"]
    theirs = ["outer/block/named/kernel", "outer/block/first/kernel"]
    assert inside == (
        ["block/attribute/kernel", "block/many/0/kernel"] if ours else theirs
    )
    assert model.name == "outer"


@says("A layer that is renamed keeps its paths")
@BOTH
def test_a_renamed_layer(library):
    dense = library.layers.Dense(2, name="dense")
    stack(library, dense, name="outer")
    before = dense.path, dense.kernel.path
    dense.name = "other"
    assert dense.name == "other" and (dense.path, dense.kernel.path) == before
    with pytest.raises(ValueError, match="/"):
        library.layers.Dense(2, name="a/b")
    if library is exburn:
        with pytest.raises(exburn.errors.ArgumentError, match="/"):
            dense.name = "a/b"


@says("`layer.build(shape)` by hand makes the weights of all layers inside")
@BOTH
@pytest.mark.filterwarnings("ignore:.build..* was called")  # Keras': it warns of it
def test_a_build_by_hand(library):
    class Wrapper(library.layers.Layer):
        def __init__(self):
            super().__init__()
            self.inner = library.layers.Dense(2)

        def call(self, x):
            return self.inner(x)

    assert len(built(Wrapper()).weights) == (2 if library is exburn else 0)


# --------------------------------------------------------------------------- seeds
@says("Seeds of random layers are among `variables`")
@BOTH
def test_seeds(library):
    layer = built(library.layers.Dropout(0.5, seed=1))
    (seed,) = layer.variables
    assert layer.non_trainable_variables[0] is seed and not layer.weights
    given = jnp.array([3, 4], "uint32")
    y, (following,) = layer.stateless_call([], [given], X, training=True)
    z, _ = layer.stateless_call([], [given], X, training=True)
    np.testing.assert_array_equal(y, z)
    assert not np.array_equal(following, given)
    model = stack(library, layer, library.layers.Dense(1))
    model.compile("sgd", "mse")
    before = np.asarray(seed.value)
    model.fit(X, X[:, :1], verbose=0)
    assert np.array_equal(seed.value, before) == (library is exburn)
    if library is exburn:
        with exburn.key_scope(jax.random.key(0)):
            drawn = [
                layer.stateless_call([], [s], X, training=True)[0]
                for s in (given, given + 1)
            ]
        assert not np.array_equal(drawn[0], y)


@says("A recurrent layer has a seed only if it drops out")
@BOTH
def test_seeds_of_recurrent_layers(library):
    counts = [
        len(built(kind(2, **options), STEPS.shape).non_trainable_variables)
        for kind in (library.layers.LSTM, library.layers.GRU, library.layers.SimpleRNN)
        for options in ({}, {"dropout": 0.5}, {"recurrent_dropout": 0.5})
    ]
    assert counts == ([0, 1, 1] * 3 if library is exburn else [1] * 9)


@says("Random layers outside of ExBurn's own programs")
@BOTH
def test_drawing_outside_of_programs(library):
    layer = built(library.layers.Dropout(0.5, seed=1))
    scoped = []
    for number in (4, 4, 5):
        given = [(layer.variables[0], jnp.array([3, number], "uint32"))]
        with library.StatelessScope(given) as scope:
            scoped.append(np.asarray(layer(X, training=True)))
        assert not np.array_equal(scope.get_current_value(given[0][0]), given[0][1])
    assert np.array_equal(*scoped[:2]) and not np.array_equal(*scoped[1:])
    library.utils.set_random_seed(1)
    free = library.layers.Dropout(0.5)
    first = np.asarray(free(X, training=True))
    assert not np.array_equal(free(X, training=True), first)
    compiled = jax.jit(lambda x: free(x, training=True))
    if library is keras:
        np.testing.assert_array_equal(compiled(X), compiled(X))
        assert isinstance(free.seed_generator.state.value, jax.core.Tracer)
        return
    exburn.utils.set_random_seed(1)
    np.testing.assert_array_equal(free(X, training=True), first)
    with pytest.raises(exburn.errors.ArgumentError, match="key_scope"):
        compiled(X)

    @jax.jit
    def keyed(key, x):
        with exburn.key_scope(key):
            return free(x, training=True)

    drawn = [np.asarray(keyed(jax.random.key(seed), X)) for seed in (0, 0, 1)]
    assert np.array_equal(*drawn[:2]) and not np.array_equal(*drawn[1:])


@says("`seed=` of a random layer is folded into the key")
def test_a_seed_of_a_layer_and_that_of_the_script():
    def outputs(seed, script):
        exburn.utils.set_random_seed(script)
        layer = exburn.layers.Dropout(0.5, seed=seed)
        return np.asarray(stack(exburn, layer)(X, training=True))

    same = outputs(1, 0), outputs(1, 0)
    np.testing.assert_array_equal(*same)
    assert not np.array_equal(outputs(2, 0), same[0])

    def loss(seed):
        drop = exburn.layers.Dropout(0.5)
        model = stack(exburn, drop, exburn.layers.Dense(1, kernel_initializer="ones"))
        model.compile("sgd", "mse", seed=seed)
        return model.fit(X, X[:, :1], verbose=0).history["loss"]

    assert loss(1) == loss(1) != loss(2)


# ------------------------------------------------------- quantizing, freezing, LoRA
@says("`model.quantize(mode)` gives the quantized model")
@pytest.mark.filterwarnings("ignore:Layer InputLayer")  # Keras'
def test_quantizing_a_model():
    model = stack(exburn, exburn.layers.Dense(2))
    packed = model.quantize("int8")
    assert packed is not model and model.layers[0].kernel.dtype == "float32"
    other = stack(keras, keras.layers.Dense(2))
    assert other.quantize("int8") is None
    assert other.layers[0]._kernel.dtype == "int8"


@says("`layer.quantize(mode)` is there for each layer")
@pytest.mark.parametrize("kind, args", [("LSTM", (4,)), ("MultiHeadAttention", (2, 2))])
def test_quantizing_a_layer(kind, args):
    shapes = [STEPS.shape] * len(args)
    layer = getattr(exburn.layers, kind)(*args)
    layer.build(*shapes)
    layer.quantize("int8")
    assert "int8" in [w.dtype for w in layer.weights]
    other = getattr(keras.layers, kind)(*args)
    other.build(*shapes)
    with pytest.raises(NotImplementedError):
        other.quantize("int8")


@says("`weight.trainable = False` freezes a single weight")
@BOTH
def test_a_frozen_weight(library):
    dense = library.layers.Dense(1)
    model = stack(library, dense)
    dense.kernel.trainable = False
    assert [w.name for w in model.trainable_weights] == ["bias"]
    dense.trainable = False
    assert dense.bias.trainable == (library is exburn)
    assert model.trainable_weights == []
    dense.trainable = True
    names = [w.name for w in model.trainable_weights]
    assert names == (["bias"] if library is exburn else ["kernel", "bias"])
    dense.kernel.trainable = True
    assert len(model.trainable_weights) == 2


@says("A layer made with `trainable=False`")
@BOTH
def test_a_frozen_layer_with_layers_inside(library):
    made = wrapper(library)(trainable=False)
    frozen = wrapper(library, in_build=True)()
    frozen.trainable = False
    for layer in (made, frozen):
        model = stack(library, layer)
        assert len(model.trainable_weights) == (0 if library is exburn else 2)
        assert layer.trainable_weights == []
    thawed = wrapper(library)(trainable=False)
    thawed.inner.trainable = True
    assert len(stack(library, thawed).trainable_weights) == 2
    kept = wrapper(library)(trainable=True)
    kept.inner.trainable = False
    assert stack(library, kept).trainable_weights == []


@says("`lora_rank=` and `lora_alpha=` make an adapter")
@BOTH
def test_an_adapter(library):
    dense = library.layers.Dense(4, lora_rank=2, lora_alpha=4)
    told = {"lora_rank": 2, "lora_alpha": 4}
    assert told.items() <= dense.get_config().items()
    dense.build((None, 3))
    ours = library is exburn
    assert ("lora_rank" in dense.get_config()) == (not ours)
    names = ["lora_a", "lora_b"] if ours else ["lora_kernel_a", "lora_kernel_b"]
    assert [w.name for w in dense.trainable_weights] == ["bias", *names]


@says("`sparse`, `ragged` and `tensor` of `Input`")
def test_inputs_are_dense():
    keras.Input((3,), sparse=True)
    for option in ({"sparse": True}, {"ragged": True}, {"tensor": keras.Input((3,))}):
        with pytest.raises(exburn.errors.ArgumentError):
            exburn.Input((3,), **option)


# -------------------------------------------------------------------- descriptions
@says("`get_config` gives a plain dtype policy by name")
def test_the_policy_of_a_description():
    for dtype in ("float32", "mixed_bfloat16"):
        assert exburn.layers.Dense(1, dtype=dtype).get_config()["dtype"] == dtype
        theirs = keras.layers.Dense(1, dtype=dtype).get_config()["dtype"]
        assert theirs["config"] == {"name": dtype}


@says("The `module` of a description is `exburn.layers`")
def test_the_module_of_a_description():
    nest = [
        library.layers.serialize(library.layers.Bidirectional(library.layers.GRU(2)))
        for library in (exburn, keras)
    ]
    assert [d["module"] for d in nest] == ["exburn.layers", "keras.layers"]
    renamed = json.loads(json.dumps(nest[0]).replace("exburn.", "keras."))
    for description in (*nest, renamed):
        layer = exburn.layers.deserialize(description)
        assert type(layer.forward_layer) is exburn.layers.GRU
    nest[0]["module"] = "no_such_module"
    assert type(exburn.layers.deserialize(nest[0])) is exburn.layers.Bidirectional
    nest[1]["module"] = "no_such_module"
    with pytest.raises((ImportError, TypeError)):
        keras.layers.deserialize(nest[1])


@says("A function of yours that is not registered stands for itself")
def test_functions_in_descriptions(tmp_path):
    def double(x):
        return 2 * x

    config = exburn.layers.Dense(1, activation=double).get_config()
    assert config["activation"] is double
    copied = exburn.layers.Dense.from_config(config)
    assert copied.activation is double
    with pytest.raises(exburn.errors.ArgumentError, match="Register it"):
        stack(exburn, copied).save(tmp_path / "model.keras")
    config = keras.layers.Dense(1, activation=double).get_config()
    with pytest.raises(TypeError, match="double"):
        keras.layers.Dense.from_config(config)


@says("A constructor of your own is described by its own arguments")
@BOTH
def test_constructors_of_ones_own(library):
    class Doubled(library.layers.Dense):
        def __init__(self, width, **options):
            super().__init__(2 * width, **options)

    class Described(library.layers.Dense):
        def __init__(self, width):
            super().__init__(2 * width)
            self.width = width

        def get_config(self):
            return {**super().get_config(), "width": self.width}

    ours = library is exburn
    own = Doubled(2, use_bias=False).get_config()
    assert ("width" in own) == ours and ("units" in own) == (not ours)
    config = Described(2).get_config()
    assert {"width", "units", "use_bias"} <= config.keys()
    if ours:
        again = Doubled.from_config(own)
        assert again.units == 4 and not again.use_bias
        assert Described.from_config(config).units == 4
    else:
        with pytest.raises(TypeError):
            Described.from_config(config)


# ------------------------------------------------------------------ normalizations
@says("inside a `jax.grad` or `jax.jit` of your own is an error that names")
@BOTH
def test_statistics_inside_a_gradient(library):
    norm = built(library.layers.BatchNormalization())
    slope = jax.grad(lambda x: library.ops.sum(norm(x, training=True) ** 2))
    if library is exburn:
        with pytest.raises(exburn.errors.ArgumentError, match="stateless_call"):
            slope(X)
        assert norm(X, training=False).shape == X.shape
    else:
        assert slope(X).shape == X.shape
        with pytest.raises(jax.errors.UnexpectedTracerError):
            norm(X, training=False)
    fresh = built(library.layers.BatchNormalization())
    state = [[v.value for v in fresh.trainable_variables]]
    state += [[v.value for v in fresh.non_trainable_variables]]
    outputs, (mean, *_) = fresh.stateless_call(*state, X, training=True)
    assert outputs.shape == X.shape and np.abs(mean).max() > 0


@says("BatchNormalization keeps its moving statistics in float32")
@BOTH
def test_moving_statistics(library):
    norm = built(library.layers.BatchNormalization(dtype="float16"))
    ours = library is exburn
    assert norm.gamma.dtype == "float16"
    assert norm.moving_mean.dtype == ("float32" if ours else "float16")
    if ours:
        exburn.layers.BatchNormalization(synchronized=True)(X, training=True)
    else:
        with pytest.raises(ValueError, match="synchronized"):
            keras.layers.BatchNormalization(synchronized=True)


@says("BatchNormalization's batch statistics leave the padding")
@BOTH
def test_statistics_of_a_short_batch(library):
    norm = library.layers.BatchNormalization(momentum=0.0)
    model = stack(library, norm)
    model.compile("sgd", "mse")
    model.fit(X, X, batch_size=5, shuffle=False, verbose=0)
    np.testing.assert_allclose(norm.moving_mean.numpy(), X[5:].mean(0), rtol=1e-5)


@says("SpectralNormalization normalises at inference")
@BOTH
def test_spectral_normalization(library):
    dense = library.layers.Dense(2)
    norm = built(library.layers.SpectralNormalization(dense))
    kernel = dense.kernel.numpy().copy()
    ours = library is exburn
    place = [w.name for w in norm.weights].index("vector_u")
    assert place == (0 if ours else 1)
    assert np.allclose(norm(X, training=False), X @ kernel, atol=1e-5) == (not ours)
    norm(X, training=True)
    assert np.array_equal(dense.kernel.numpy(), kernel) == ours


@says('1-D convolutions take `padding="causal"`')
def test_causal_convolutions():
    for kind, args in (("DepthwiseConv1D", (2,)), ("SeparableConv1D", (3, 2))):
        layer = getattr(exburn.layers, kind)(*args, padding="causal")
        past = np.asarray(layer(STEPS))[:, :2]
        np.testing.assert_allclose(layer(STEPS[:, :2]), past, rtol=1e-5)
        with pytest.raises(ValueError, match="padding"):
            getattr(keras.layers, kind)(*args, padding="causal")(STEPS)


@says("RMSNormalization takes any axis")
@BOTH
@pytest.mark.filterwarnings("ignore:Layer 'rms_normalization")  # Keras': mask dropped
def test_root_mean_square(library):
    layers = library.layers
    if library is exburn:
        y = layers.RMSNormalization(axis=1)(STEPS)
        wanted = STEPS / np.sqrt(np.mean(STEPS**2, 1, keepdims=True))
        np.testing.assert_allclose(y, wanted, rtol=1e-4)
    else:
        with pytest.raises(ValueError):
            layers.RMSNormalization(axis=1)(STEPS)
    ids = np.array([[1, 2, 0]])
    y = layers.RMSNormalization()(layers.Embedding(5, 4, mask_zero=True)(ids))
    masked = getattr(y, "_keras_mask", None) is not None
    assert masked == (library is exburn)


@says("A pooling window larger than its input is an error")
@BOTH
def test_a_window_larger_than_its_input(library):
    pool = library.layers.MaxPooling1D(5)
    with pytest.raises(ValueError):
        pool(library.Input((4, 3)))
    if library is exburn:
        with pytest.raises(exburn.errors.ShapeError):
            pool(STEPS)
    else:
        assert pool(STEPS).shape == (2, 0, 3)


@says("`compute_output_shape` of `EinsumDense`")
@BOTH
def test_shapes_of_an_equation(library):
    layer, shape = library.layers.EinsumDense("...x,xy->...y", 4), (2, 5, 7, 3)
    found = tuple(layer.compute_output_shape(shape))
    assert layer(np.ones(shape, "float32")).shape == (2, 5, 7, 4)
    assert found == ((2, 5, 7, 4) if library is exburn else (2, 7, 5, 4))


@says("`JaxLayer.params` and `state`")
@BOTH
def test_layers_of_jax(library):
    def compute(params, state, rng, inputs, training):
        return inputs @ params["w"], {"calls": state["calls"] + 1}

    params, state = {"w": jnp.ones((3, 2))}, {"calls": jnp.zeros(())}
    layer = library.layers.JaxLayer(compute, params=params, state=state)
    layer(X, training=False)
    assert isinstance(layer.params["w"], jax.Array) == (library is exburn)
    assert float(np.asarray(layer.state["calls"])) == (0 if library is exburn else 1)
    layer(X, training=True)
    assert float(np.asarray(layer.state["calls"])) == (1 if library is exburn else 2)


# ----------------------------------------------------------------------- recurrent
@says("Recurrent layers called with `initial_state=`")
@BOTH
def test_masks_beside_an_initial_state(library):
    ids, zeros = np.array([[1, 2, 0, 0]]), np.zeros((1, 2), "float32")
    table = library.layers.Embedding(5, 3, mask_zero=True)
    layer = library.layers.GRU(2)
    x, state = library.Input((4,)), library.Input((2,))
    model = library.Model([x, state], layer(table(x), initial_state=state))
    steps = np.array(table(ids))
    kept = steps[:, :2] if library is exburn else steps
    np.testing.assert_allclose(model([ids, zeros]), layer(kept), atol=1e-6)


@says('`use_cudnn="auto"` and `True` mean')
def test_kinds_of_loops():
    def derivative(layer):
        x = jnp.asarray(STEPS)
        return jax.jvp(lambda x: jnp.sum(jnp.asarray(layer(x))), (x,), (x,))[1]

    for library in (exburn, keras):
        derivative(built(library.layers.LSTM(2, use_cudnn=False), STEPS.shape))
    fused = [
        built(exburn.layers.LSTM(2, use_cudnn=choice), STEPS.shape)
        for choice in (True, "auto")
    ]
    fused[1].set_weights(fused[0].get_weights())
    np.testing.assert_array_equal(fused[0](STEPS), fused[1](STEPS))
    for layer in fused:
        with pytest.raises(TypeError, match="forward-mode"):
            derivative(layer)
    derivative(built(keras.layers.LSTM(2, use_cudnn="auto"), STEPS.shape))


@says("Recurrent dropout shares one mask over all gates")
def test_recurrent_dropout():
    for option in ("dropout", "recurrent_dropout"):
        keras.layers.LSTM(2, **{option: 1.0})
        with pytest.raises(exburn.errors.ArgumentError, match=option):
            exburn.layers.LSTM(2, **{option: 1.0})
    exburn.layers.Dropout(1.0)
    for library in (exburn, keras):
        cell = library.layers.LSTMCell(32, recurrent_dropout=0.5)
        cell.build((None, 3))
        kernel, _, bias = (np.zeros_like(w.numpy()) for w in cell.weights)
        gates = np.tile(np.eye(32, dtype="float32"), 4)  # each sees the state as it is
        cell.set_weights([kernel, gates, bias])
        state = [np.full((1, 32), 0.5, "float32")] * 2
        y, _ = cell(np.zeros((1, 3), "float32"), state, training=True)
        shared = len(np.unique(np.round(np.asarray(y), 5))) == 2  # seen by all or none
        assert shared == (library is exburn)


@says("`unroll` takes a number, too")
def test_unrolled_loops():
    whole, twice = (
        built(exburn.layers.SimpleRNN(2, unroll=unroll), STEPS.shape)
        for unroll in (True, 2)
    )
    twice.set_weights(whole.get_weights())
    np.testing.assert_allclose(whole(STEPS), twice(STEPS), atol=1e-6)


@says("Masks on ConvLSTM work")
@BOTH
def test_masks_of_images(library):
    layer = library.layers.ConvLSTM1D(2, 2)
    movies = RNG.standard_normal((2, 4, 5, 1)).astype("float32")
    if library is keras:
        with pytest.raises(ValueError, match="Incompatible shapes"):
            layer(movies, mask=MASK)
        return
    y = np.asarray(layer(movies, mask=MASK))
    np.testing.assert_allclose(y[:1], layer(movies[:1, :2]), atol=1e-6)


@says("A stateful layer carries its states")
@BOTH
def test_states_from_batch_to_batch(library):
    x = library.Input(batch_shape=(2, 4, 3))
    layer = library.layers.SimpleRNN(2, stateful=True)
    model = library.Model(x, layer(x))
    model.compile(library.optimizers.SGD(0.0), "mse")
    y = np.zeros((2, 2), "float32")

    def changed(run):
        before = np.array(layer.states[0].value)
        run()
        return not np.allclose(layer.states[0].value, before)

    assert changed(lambda: model(STEPS))
    assert not changed(lambda: model.predict(STEPS, verbose=0))
    assert not changed(lambda: model.evaluate(STEPS, y, verbose=0))
    ours = library is exburn
    assert changed(lambda: model.fit(STEPS, y, shuffle=False, verbose=0)) == ours
    assert changed(lambda: model.train_on_batch(STEPS, y)) == ours
    twice = model.predict(np.tile(STEPS, (2, 1, 1)), batch_size=2, verbose=0)
    np.testing.assert_array_equal(twice[:2], twice[2:])


@says("TimeDistributed folds time into the batch")
@BOTH
def test_normalization_of_all_steps(library):
    norm = library.layers.BatchNormalization(momentum=0.0)
    library.layers.TimeDistributed(norm)(STEPS, training=True)
    seen = STEPS if library is exburn else STEPS[:, -1:]
    np.testing.assert_allclose(norm.moving_mean.numpy(), seen.mean((0, 1)), rtol=1e-4)


# ----------------------------------------------------------------------- attention
@says("`config.disable_flash_attention()` holds for attention layers")
@pytest.mark.usefixtures("cpu_only")
@BOTH
def test_flash_attention(library):
    attention = library.layers.MultiHeadAttention(2, 4)
    asking = library.layers.MultiHeadAttention(2, 4, flash_attention=True)
    was = library.config.is_flash_attention_enabled()
    try:
        library.config.enable_flash_attention()
        attention(STEPS, STEPS)  # it cannot run here, and is not used
        library.config.disable_flash_attention()
        assert not library.config.is_flash_attention_enabled()
        attention(STEPS, STEPS)
        with pytest.raises((ValueError, RuntimeError)):
            asking(STEPS, STEPS)
    finally:
        if was is not False:
            library.config.enable_flash_attention()


@says("Attention honours `query_mask` arguments")
@BOTH
def test_masks_of_queries(library):
    attention = library.layers.MultiHeadAttention(2, 4)
    masked = attention(STEPS, STEPS, query_mask=MASK)
    plain = attention(STEPS, STEPS)
    different = np.any(np.asarray(masked) != np.asarray(plain), (0, 2))
    wanted = [False, False, True, True] if library is exburn else [False] * 4
    assert different.tolist() == wanted
    if library is exburn:
        turning = exburn.layers.RotaryEmbedding()
        exburn.layers.MultiHeadAttention(2, 4, rotary=turning)(STEPS, STEPS)
