"""Layers that a model reaches by any way: they are built, trained, saved and counted.

Each way of holding two layers is compared with the plain model, whose attributes hold
them. In Keras they train alike.
"""

import collections
import dataclasses
import functools
import types

import jax
import numpy as np
import pytest
from flax import nnx

import exburn as keras
from exburn import layers, ops
from exburn.errors import GraphError, NotBuiltError, UnheldLayerError

ROWS, WIDTH = 24, 4
rng = np.random.default_rng(0)
X = rng.normal(size=(ROWS, WIDTH)).astype("float32")
Y = (X @ rng.normal(size=(WIDTH, 1))).astype("float32")

GLOBAL: dict[str, keras.Sequential] = {}  # what functions find by a global name
Pair = collections.namedtuple("Pair", "zfirst asecond")


def pair():
    return [layers.Dense(3, "tanh"), layers.Dense(1)]


@dataclasses.dataclass
class Data:
    second: object
    first: object


class Helper:
    """No module: flax does not look into it."""

    def __init__(self, first, second):
        self.inner = types.SimpleNamespace(stack=[first, {"two": second}])

    def run(self, x):
        return self.inner.stack[1]["two"](self.inner.stack[0](x))


class Side(layers.Layer):
    def __init__(self, layer):
        super().__init__()
        self.layer = layer

    def call(self, x):
        return self.layer(x)


# Each takes a model and two layers, holds them, and returns what computes with them.
def attribute(self, a, b):
    self.zz, self.aa = a, b
    return lambda self, x: self.aa(self.zz(x))


def a_list(self, a, b):
    self.stack = [a, b]
    return lambda self, x: self.stack[1](self.stack[0](x))


def nested_list(self, a, b):
    self.stack = [[a], [[b]]]
    return lambda self, x: self.stack[1][0][0](self.stack[0][0](x))


def a_dict(self, a, b):
    self.stack = {"z": a, "a": [b]}
    return lambda self, x: self.stack["a"][0](self.stack["z"](x))


def named_tuple(self, a, b):
    self.stack = Pair(a, [b])
    return lambda self, x: self.stack.asecond[0](self.stack.zfirst(x))


def a_set(self, a, b):
    self.stack = {a, b}

    def call(self, x):
        for layer in sorted(self.stack, key=lambda layer: -layer.units):
            x = layer(x)
        return x

    return call


def data_class(self, a, b):
    self.held = Data(second=b, first=a)
    return lambda self, x: self.held.second(self.held.first(x))


def plain_object(self, a, b):
    self.helper = Helper(a, b)
    return lambda self, x: self.helper.run(x)


def closure(self, a, b):
    self.forward = lambda x: b(a(x))
    return lambda self, x: self.forward(x)


def closure_over_self(self, a, b):
    self.zz, self.aa = a, b
    self.forward = lambda x: self.aa(self.zz(x))
    return lambda self, x: self.forward(x)


def bound_method(self, a, b):
    self.core = keras.Sequential([a, b])
    self.forward = self.core.call
    return lambda self, x: self.forward(x)


def bound_method_alone(self, a, b):
    self.forward = keras.Sequential([a, b]).call
    return lambda self, x: self.forward(x)


def bound_call_of_a_built_layer(self, a, b):
    a.build((None, WIDTH))
    b.build((None, 3))
    self.first, self.second = a.call, b.__call__
    return lambda self, x: self.second(self.first(x))


def a_partial(self, a, b):
    self.forward = functools.partial(lambda g, f, x: g(f(x)), b, a)
    return lambda self, x: self.forward(x)


def default_argument(self, a, b):
    self.forward = lambda x, f=a, g=b: g(f(x))
    return lambda self, x: self.forward(x)


def global_name(self, a, b):
    GLOBAL.setdefault("stack", keras.Sequential([a, b]))  # made once, as in a module
    return lambda self, x: GLOBAL["stack"](x)


def class_attribute(self, a, b):
    if not hasattr(type(self), "stack"):
        type(self).stack = [a, b]
    return lambda self, x: type(self).stack[1](type(self).stack[0](x))


def two_paths(self, a, b):
    self.encoder, self.decoder, self.last = Side(a), Side(a), b
    return lambda self, x: self.last(0.5 * (self.encoder(x) + self.decoder(x)))


def two_paths_backwards(self, a, b):
    self.z1, self.z2, self.blocks = a, b, [b, a, b]
    self.also = self.z1
    return lambda self, x: self.blocks[2](self.also(x))


def weights_by_hand(self, a, b):
    self.zz, self.aa = a, b
    a.build((None, WIDTH))

    def first(x):
        return ops.tanh(ops.matmul(x, a.kernel) + a.bias)

    self.first = first
    return lambda self, x: self.aa(self.first(x))


def a_lambda_layer(self, a, b):
    self.first, self.second = layers.Lambda(lambda x: a(x)), b
    return lambda self, x: self.second(self.first(x))


WAYS = [
    a_dict, a_lambda_layer, a_list, a_partial, a_set, attribute, bound_method,
    bound_method_alone, bound_call_of_a_built_layer, class_attribute, closure,
    closure_over_self, data_class, default_argument, global_name, named_tuple,
    nested_list, plain_object, two_paths, two_paths_backwards, weights_by_hand,
]  # fmt: skip


class Held(keras.Model):
    """Holds two layers in the way that is set on a subclass."""

    def __init__(self, **options):
        super().__init__(**options)
        self.compute = type(self).way(self, *pair())

    def call(self, x):
        return self.compute(self, x)


class Box:
    """What a function closes over that holds the layers in some way."""


def subclassed(way):
    return type("Held", (Held,), {"way": staticmethod(way)})()


def function(way):
    box = type("Box", (), {})()
    compute = way(box, *pair())
    return lambda x: compute(box, x)


def functional(way):
    x = keras.Input((WIDTH,))
    return keras.Model(x, layers.Lambda(function(way))(x))


def sequential(way):
    return keras.Sequential([keras.Input((WIDTH,)), layers.Lambda(function(way))])


def function_in_a_stack(way):
    return keras.Sequential([function(way)])


KINDS = [subclassed, functional, sequential, function_in_a_stack]


def plain():
    model = keras.Sequential([keras.Input((WIDTH,)), *pair()])
    model.compile(keras.optimizers.SGD(0.2, momentum=0.0), "mse")
    return model


def copy_weights(source, target):
    """By shape: no two of the weights have the same."""
    values = {w.shape: w.numpy() for w in source.weights}
    assert sorted(w.shape for w in target.weights) == sorted(values)
    for weight in target.weights:
        weight.assign(values[weight.shape])


def truth(source, x):
    """What the plain model computes with the weights of another."""
    model = plain()
    copy_weights(source, model)
    return model.predict(x, verbose=0)


@pytest.fixture(autouse=True)
def no_globals():
    GLOBAL.clear()


@pytest.fixture(scope="module")
def reference():
    model = plain()
    start = [w.numpy() for w in model.weights]
    options = {"epochs": 3, "batch_size": 8, "shuffle": False, "verbose": 0}
    losses = model.fit(X, Y, **options).history["loss"]
    return start, losses


def trained_from(model, start, called):
    """Losses of a training that begins with the given weights."""
    if called:
        model(X[:2])
    else:
        model.compile("sgd", "mse")
        model.fit(X[:2], Y[:2], epochs=1, verbose=0)
    other = plain()
    other.set_weights(start)
    copy_weights(other, model)
    model.compile(keras.optimizers.SGD(0.2, momentum=0.0), "mse")
    options = {"epochs": 3, "batch_size": 8, "shuffle": False, "verbose": 0}
    return model.fit(X, Y, **options).history["loss"]


def check(way, kind, reference, called):
    start, losses = reference
    model = kind(way)
    np.testing.assert_allclose(trained_from(model, start, called), losses, rtol=1e-5)
    assert losses[-1] < 0.9 * losses[0]
    assert model.count_params() == 19
    assert len({w.path for w in model.weights}) == len(model.weights) == 4
    lines: list[str] = []
    model.summary(print_fn=lines.append)
    assert any("Total params: 19" in line for line in lines)
    predicted = model.predict(X, verbose=0)
    np.testing.assert_allclose(predicted, np.asarray(model(X)), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(predicted, truth(model, X), rtol=1e-5, atol=1e-6)
    for weight in model.weights:  # programs that are compiled see it
        weight.assign(weight.numpy() + 0.5)
    np.testing.assert_allclose(
        model.evaluate(X, Y, verbose=0),
        np.mean((truth(model, X) - Y) ** 2),
        rtol=1e-5,
    )
    return model


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_it_trains_as_the_plain_model(way, reference):
    check(way, subclassed, reference, called=True)


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
@pytest.mark.parametrize("kind", KINDS[1:], ids=lambda kind: kind.__name__)
def test_a_function_trains_as_the_plain_model(way, kind, reference):
    check(way, kind, reference, called=True)


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_it_is_built_by_fit(way, kind, reference):
    check(way, kind, reference, called=False)


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_copies_have_weights_of_their_own(way, kind):
    model = kind(way)
    model(X)
    before = model.predict(X, verbose=0)
    clone = model.clone()
    np.testing.assert_allclose(clone.predict(X, verbose=0), before, rtol=1e-6)
    np.testing.assert_allclose(np.asarray(clone(X)), before, rtol=1e-5, atol=1e-6)
    clone.compile("sgd", "mse")
    clone.fit(X, Y, epochs=1, verbose=0)
    assert not np.allclose(clone.predict(X, verbose=0), before)
    np.testing.assert_array_equal(model.predict(X, verbose=0), before)


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_files(way, tmp_path):
    model = subclassed(way)
    model(X)
    model.compile("sgd", "mse")
    model.fit(X, Y, verbose=0)
    before = model.predict(X, verbose=0)
    model.save(tmp_path / "model.keras")
    objects = {"Held": type(model), "Side": Side}
    loaded = keras.load_model(tmp_path / "model.keras", custom_objects=objects)
    np.testing.assert_allclose(loaded.predict(X, verbose=0), before, rtol=1e-6)
    np.testing.assert_allclose(np.asarray(loaded(X)), before, rtol=1e-5, atol=1e-6)
    loaded.fit(X, Y, verbose=0)
    assert not np.allclose(loaded.predict(X, verbose=0), before)
    np.testing.assert_array_equal(model.predict(X, verbose=0), before)


# ------------------------------------------------- what is not the model's own call
def regression(*stack):
    model = keras.Sequential([keras.Input((WIDTH,)), *stack])
    model.compile(keras.optimizers.SGD(0.1, momentum=0.0), "mse")
    return model


def test_statistics_and_dropout_of_a_layer_in_a_closure():
    norm, drop, dense = (
        layers.BatchNormalization(),
        layers.Dropout(0.5),
        layers.Dense(1),
    )
    model = regression(layers.Lambda(lambda x: dense(drop(norm(x)))))
    model.fit(X, Y, epochs=2, verbose=0)
    assert len(model.trainable_weights) == 4
    assert len(model.non_trainable_weights) == 2
    assert np.abs(norm.moving_mean.numpy()).max() > 0
    losses = model.fit(X, Y, epochs=2, batch_size=ROWS, verbose=0).history["loss"]
    assert losses[0] != losses[1]  # other masks, other weights


def test_a_network_in_a_loss_is_not_trained_and_its_weights_are_seen():
    features = keras.Sequential([keras.Input((1,)), layers.Dense(5, "tanh")])

    def perceptual(y_true, y_pred):
        return ops.mean(ops.square(features(y_true) - features(y_pred)), axis=-1)

    def size(y_true, y_pred):
        return ops.mean(ops.abs(features(y_pred)), axis=-1)

    model = keras.Sequential([keras.Input((WIDTH,)), layers.Dense(1)])
    model.compile("adam", perceptual, metrics=[size])
    before = features.get_weights()
    losses = model.fit(X, Y, epochs=3, verbose=0).history["loss"]
    assert losses[-1] < losses[0]
    for old, weight in zip(before, features.weights, strict=True):
        np.testing.assert_array_equal(weight.numpy(), old)
    model.evaluate(X, Y, verbose=0)
    for weight in features.weights:
        weight.assign(weight.numpy() * 2 + 0.1)
    found = model.evaluate(X, Y, verbose=0, return_dict=True)
    y_pred = model(X)
    expected = {
        "loss": float(np.mean(np.asarray(perceptual(Y, y_pred)))),
        "size": float(np.mean(np.asarray(size(Y, y_pred)))),
    }
    assert found == pytest.approx(expected, rel=1e-5)
    assert model.trace_counts["evaluate"] == 1


def test_a_loss_that_reads_a_weight_of_the_model_trains_it():
    dense = layers.Dense(1, use_bias=False, kernel_initializer="ones")
    model = keras.Sequential([keras.Input((WIDTH,)), dense])

    def decay(y_true, y_pred):
        return 0 * ops.mean(y_pred, axis=-1) + ops.sum(dense.kernel**2)

    model.compile(keras.optimizers.SGD(0.1, momentum=0.0), decay)
    model.fit(X, Y, batch_size=ROWS, verbose=0)  # 1 - 0.1 · 2 · 1
    np.testing.assert_allclose(dense.kernel.numpy(), np.full((WIDTH, 1), 0.8), 1e-6)


def test_a_transposed_weight_of_a_layer_outside_is_trained():
    """It was a constant: attributes of arrays were read past what stands for them."""
    table = layers.Dense(WIDTH, use_bias=False)
    table.build((None, WIDTH))

    class Tied(keras.Model):
        def __init__(self):
            super().__init__()
            self.dense = layers.Dense(WIDTH)

        def call(self, x):
            return self.dense(x) @ table.kernel.T

    model = Tied()
    model.compile("sgd", "mse")
    before = table.kernel.numpy().copy()
    model.fit(X, X, batch_size=ROWS, verbose=0)
    assert len(model.trainable_weights) == 3
    assert np.all(table.kernel.numpy() != before)


OUTSIDE = layers.Dense(1)


class Student(keras.Model):
    """Its step reads two layers as they are, besides its own through the state."""

    def __init__(self):
        super().__init__()
        self.dense = layers.Dense(1)
        self.teacher = layers.Dense(1, trainable=False)

    def call(self, x):
        return self.dense(x)

    def train_step(self, state, data):
        trainable, others, optimizer, metrics = state
        x, _, _ = keras.utils.unpack_x_y_sample_weight(data)

        def loss(trainable):
            outputs, new = self.stateless_call(trainable, others, x)
            wanted = self.teacher(x) + OUTSIDE(x)
            return ops.mean(ops.square(outputs - wanted)), new

        (value, others), grads = jax.value_and_grad(loss, has_aux=True)(trainable)
        trainable, optimizer = self.optimizer.stateless_apply(
            optimizer, grads, trainable
        )
        return {"loss": value}, (trainable, others, optimizer, metrics)


def test_weights_that_a_step_reads_by_itself_are_no_constants():
    model = Student()
    model.teacher.build((None, WIDTH))
    OUTSIDE.build((None, WIDTH))
    model.compile(keras.optimizers.SGD(0.0))
    model(X)

    def wanted():
        return float(np.mean(np.asarray(model(X) - model.teacher(X) - OUTSIDE(X)) ** 2))

    one_batch = {"batch_size": ROWS, "verbose": 0}
    for layer in (None, model.teacher, OUTSIDE):
        if layer is not None:
            layer.kernel.assign(layer.kernel.numpy() + 3)
        (loss,) = model.fit(X, Y, **one_batch).history["loss"]
        assert loss == pytest.approx(wanted(), rel=1e-5)
    assert model.trace_counts["train"] == 1


def test_operations_of_a_functional_model_keep_variables():
    x = keras.Input((WIDTH,))
    scale = keras.Variable("ones", shape=(WIDTH,), name="scale")
    table = layers.Embedding(7, 3)
    model = keras.Model(x, layers.Dense(1)(ops.multiply(x, scale)))
    model.compile("adam", "mse")
    model.fit(X, Y, verbose=0)
    assert (scale.numpy() != 1).all()
    scale.assign(np.full(WIDTH, 2.0))
    np.testing.assert_allclose(
        model.predict(X, verbose=0), np.asarray(model(X)), rtol=1e-5, atol=1e-6
    )
    ids = keras.Input((5,), dtype="int32")
    tied = keras.Model(
        ids, keras.fn(lambda h, t: h @ t.T)(table(ids), table.embeddings)
    )
    before = table.embeddings.numpy()
    tied.compile("sgd", "mse")
    tied.fit(np.zeros((4, 5), int), np.ones((4, 5, 7)), verbose=0)
    assert [w.path for w in tied.weights] == ["embedding/embeddings"]
    assert (table.embeddings.numpy() != before).any(axis=1).all()  # not row 0 alone


def test_a_function_on_symbols_that_holds_weights_says_what_to_write():
    dense = layers.Dense(2)
    dense.build((None, WIDTH))
    with pytest.raises(GraphError, match=r"reaches 'kernel'[\s\S]*Lambda\(function\)"):
        keras.fn(lambda x: dense(x))(keras.Input((WIDTH,)))


def test_rematerialized_quantized_and_split():
    core = layers.Dense(3)

    class Block(layers.Layer):
        def call(self, x):
            return core(x)

    block = Block()
    block.rematerialized = True
    model = regression(block, layers.Dense(1))
    before = model.get_weights()
    model.fit(X, Y, verbose=0)
    changes = zip(before, model.get_weights(), strict=True)
    assert all((old != new).any() for old, new in changes)
    graphdef, state = nnx.split(model)
    grads = jax.grad(lambda s: (nnx.merge(graphdef, s)(X) ** 2).sum())(state)
    assert all(np.abs(leaf).max() > 0 for leaf in jax.tree.leaves(grads))
    small = model.quantize("int8")
    exact = model.predict(X, verbose=0)
    core.kernel.assign(core.kernel.numpy() * 0)  # the quantized model has its own
    np.testing.assert_allclose(small.predict(X, verbose=0), exact, atol=0.05)
    np.testing.assert_allclose(np.asarray(small(X)), exact, atol=0.05)


def test_eager_programs():
    dense = layers.Dense(1)
    model = keras.Sequential([keras.Input((WIDTH,)), layers.Lambda(lambda x: dense(x))])
    sgd = keras.optimizers.SGD(0.1, momentum=0.0)
    model.compile(sgd, "mse", run_eagerly=True)
    losses = model.fit(X, Y, epochs=3, verbose=0).history["loss"]
    assert losses[-1] < losses[0]
    assert model.evaluate(X, Y, verbose=0) == pytest.approx(
        float(np.mean((np.asarray(model(X)) - Y) ** 2)), rel=1e-5
    )


def test_a_layer_that_a_model_meets_later():
    """Its ``call`` takes another way than when it was built."""
    late = keras.Sequential([layers.Dense(1)])

    class Net(keras.Model):
        def __init__(self):
            super().__init__()
            self.first, self.forward = layers.Dense(1), None

        def call(self, x):
            return self.first(x) if self.forward is None else self.forward(x)

    model = Net()
    model.compile(keras.optimizers.SGD(0.1, momentum=0.0), "mse")
    model.fit(X, Y, verbose=0)
    model.forward = late.call
    losses = model.fit(X, Y, epochs=5, verbose=0).history["loss"]
    assert losses[-1] < losses[0]
    assert [w.path for w in model.weights][2:] == ["dense/kernel", "dense/bias"]
    np.testing.assert_allclose(
        model.predict(X, verbose=0), np.asarray(late(X)), rtol=1e-5, atol=1e-6
    )


def test_a_branch_for_training_alone():
    extra = layers.Dense(1)

    class Net(keras.Model):
        def __init__(self):
            super().__init__()
            self.dense = layers.Dense(1)

        def call(self, x, training=None):
            return self.dense(x) + extra(x) if training else self.dense(x)

    model = Net()
    model.compile(keras.optimizers.SGD(0.1, momentum=0.0), "mse")
    losses = model.fit(X, Y, epochs=5, verbose=0).history["loss"]
    assert losses[-1] < losses[0]
    assert len(model.weights) == 4
    np.testing.assert_allclose(
        model.predict(X, verbose=0), np.asarray(model.dense(X)), rtol=1e-5, atol=1e-6
    )


def test_a_resumed_run_has_the_reached_layers(tmp_path):
    def run(epochs, **options):
        keras.set_random_seed(3)
        dense = layers.Dense(1)
        model = regression(layers.Lambda(lambda x: dense(x)))
        saver = keras.callbacks.ModelCheckpoint(str(tmp_path / options.pop("name")))
        model.fit(X, Y, epochs=epochs, callbacks=[saver], verbose=0, **options)
        return model.get_weights()

    whole = run(4, name="one")
    run(2, name="two")
    resumed = run(4, name="two", resume="auto")
    for one, other in zip(whole, resumed, strict=True):
        np.testing.assert_array_equal(one, other)


def test_a_flax_module_that_nothing_holds_is_an_error():
    linear = nnx.Linear(WIDTH, 1, rngs=nnx.Rngs(0))
    model = regression(layers.Lambda(lambda x: linear(x)))
    with pytest.raises(UnheldLayerError, match="flax variable"):
        model.fit(X, Y, verbose=0)
    assert isinstance(linear.kernel.get_raw_value(), jax.Array)
    held = regression(layers.ModuleLayer(linear))
    losses = held.fit(X, Y, epochs=2, verbose=0).history["loss"]
    assert losses[1] < losses[0]


def test_a_call_that_runs_without_its_layer_being_built_is_an_error():
    """In Keras an AttributeError about ``_kernel``."""

    class Net(keras.Model):
        def __init__(self, core):
            super().__init__()
            self.core, self.forward = core, core.call

        def call(self, x):
            return self.forward(x)

    model = Net(layers.Dense(1))
    model.compile("sgd", "mse")
    with pytest.raises(NotBuiltError, match="dense: its `call` runs") as told:
        model.fit(np.ones((4, 3)), np.ones((4, 1)), verbose=0)
    assert "layer.build(shape)" in str(told.value)
    model.core.build((None, 3))
    model.fit(np.ones((4, 3)), np.ones((4, 1)), verbose=0)
    assert len(model.trainable_weights) == 2


def test_a_layer_of_somebody_else_in_a_program_is_an_error():
    """What only ``compute_loss`` reaches: the model would keep its weights."""
    other = layers.Dense(1)
    other.build((None, WIDTH))

    class Net(keras.Model):
        def __init__(self):
            super().__init__()
            self.dense = layers.Dense(1)

        def call(self, x):
            return self.dense(x)

        def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None):
            return ops.mean(ops.square(y_pred - other(x)))

    model = Net()
    model.compile("sgd")
    with pytest.raises(UnheldLayerError, match=r"'dense'[\s\S]*attribute of the model"):
        model.fit(X, Y, verbose=0)


def hide(layer, rng, depth):
    """A holder of a layer within holders, at random, and what reads it from there."""
    if depth == 0:
        return layer, lambda held: held
    inner, read = hide(layer, rng, depth - 1)
    name = str(rng.choice(list("abyz")))
    return [
        lambda: ([None, inner], lambda held: read(held[1])),
        lambda: ((inner,), lambda held: read(held[0])),
        lambda: ({name: inner}, lambda held: read(held[name])),
        lambda: (Pair(inner, name), lambda held: read(held.zfirst)),
        lambda: (Data(inner, None), lambda held: read(held.second)),
        lambda: (types.SimpleNamespace(x=inner), lambda held: read(held.x)),
        lambda: (lambda: inner, lambda held: read(held())),
        lambda: (functools.partial(lambda x: x, inner), lambda held: read(held())),
        lambda: (functools.partial(dict.get, {name: inner}), lambda h: read(h(name))),
        lambda: (Getter(inner).get, lambda held: read(held())),
    ][rng.integers(10)]()


class Getter:
    def __init__(self, inner):
        self.inner = inner

    def get(self):
        return self.inner


class Hidden(keras.Model):
    """Two layers under two names in some order, each in holders of its own."""

    def __init__(self, seed, **options):
        super().__init__(**options)
        self.seed = seed
        rng = np.random.default_rng(seed)
        names = rng.permutation(["first", "second", "zero", "alpha"])[:2]
        hidden = [hide(layer, rng, rng.integers(1, 4)) for layer in pair()]
        for index in rng.permutation(2):
            setattr(self, names[index], hidden[index][0])
        self.reads = [
            (str(name), read) for name, (_, read) in zip(names, hidden, strict=True)
        ]

    def call(self, x):
        for name, read in self.reads:
            x = read(getattr(self, name))(x)
        return x


@pytest.mark.parametrize("seed", range(24))
def test_random_ways(seed, reference, tmp_path):
    model = check(seed, Hidden, reference, called=bool(seed % 2))
    before = model.predict(X, verbose=0)
    clone = model.clone()
    model.save(tmp_path / "model.keras")
    objects = {"Hidden": Hidden}
    loaded = keras.load_model(tmp_path / "model.keras", custom_objects=objects)
    for copy in (clone, loaded):
        np.testing.assert_allclose(copy.predict(X, verbose=0), before, rtol=1e-6)
        copy.compile("sgd", "mse")
        copy.fit(X, Y, verbose=0)
        assert not np.allclose(copy.predict(X, verbose=0), before)
    np.testing.assert_array_equal(model.predict(X, verbose=0), before)
