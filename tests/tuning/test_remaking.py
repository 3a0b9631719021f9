"""What is made anew with another value: users' classes that compute from arguments."""

import numpy as np
import pytest
from tests.tuning.models import X, Y

import exburn
from exburn import layers, ops
from exburn.errors import ArgumentError
from exburn.module.traversal import iter_modules
from exburn.optimizers import SGD
from exburn.optimizers.schedules import LearningRateSchedule
from exburn.tuning import sweep
from exburn.tuning.remaking import CannotRemake, differs_elsewhere, remake, with_layer

FIT = {"epochs": 2, "batch_size": 8, "verbose": 0}


class Told:
    """Its configuration tells its argument."""

    def get_config(self):
        return {"by": self.by}


class Penalty(Told, exburn.regularizers.Regularizer):
    def __init__(self, by):
        self.by, self.square = by, by**2

    def __call__(self, w):
        return self.by * ops.sum(ops.abs(w)) + self.square * ops.sum(ops.square(w))


class Linear(exburn.regularizers.Regularizer):  # from which nothing is computed
    def __init__(self, by):
        self.by = by

    def __call__(self, w):
        return self.by * ops.sum(ops.abs(w))


class Clip(Told, exburn.constraints.Constraint):
    def __init__(self, by):
        self.by = by
        self.within = lambda w: ops.clip(w, -by, by)

    def __call__(self, w):
        return self.within(w) * (self.by / self.by)


class Constant(exburn.initializers.Initializer):  # without a configuration
    def __init__(self, by):
        self.by = by

    def __call__(self, shape, dtype=None):
        return np.linspace(-self.by, self.by, np.prod(shape), dtype=dtype).reshape(
            shape
        )


class Rate(LearningRateSchedule):
    def __init__(self, by):
        self.by, self.tenth = by, by / 10

    def __call__(self, step):
        return self.tenth + 0 * self.by


class Power(exburn.losses.Loss):
    def __init__(self, by=1.0, **options):
        super().__init__(**options)
        self.by, self.more = by, [by, by * 3]

    def call(self, y, p):
        error = ops.square(ops.cast(y, "float32")[:, None] - p)
        return ops.mean(self.by * error + self.more[1] * error, axis=-1)

    def get_config(self):
        return super().get_config() | {"by": self.by}


class Momentum(SGD):
    def __init__(self, by, learning_rate=0.05):
        super().__init__(learning_rate, momentum=by / 2)
        self.by = by

    def apply_rule(self, grads, inner, params, learning_rate, count):
        return super().apply_rule(grads, inner, params, learning_rate * self.by, count)


class Scaled(layers.Layer):
    def __init__(self, by, shift=0.5):  # no get_config at all
        super().__init__(name="scaled")
        self.by, self.shift = by, shift

    def build(self, shape):
        self.start = self.add_weight((), exburn.initializers.Constant(self.by))

    def call(self, x):
        return x * self.start * self.by + self.shift


def make_model(seed=3, **by):
    def of(kind, default=0.5):
        return kind(by.get(kind.__name__, default))

    model = exburn.Sequential(
        [
            exburn.Input((5,)),
            layers.Dense(
                4,
                "tanh",
                kernel_initializer=of(Constant),
                kernel_regularizer=of(Penalty, 0.01),
                bias_regularizer=of(Linear, 0.01),
                kernel_constraint=of(Clip),
                name="q",
            ),
            of(Scaled),
            layers.Dense(1),
        ]
    )
    optimizer = SGD(of(Rate))
    if "Momentum" in by:
        optimizer = of(Momentum)
    model.compile(optimizer, of(Power, 1.0), seed=seed)
    return model


PLACES = {  # path → the class whose argument it is, and whether an array stands for it
    "q/kernel_initializer/by": (Constant, False),
    "q/kernel_regularizer/by": (Penalty, False),
    "q/bias_regularizer/by": (Linear, True),
    "q/kernel_constraint/by": (Clip, False),
    "scaled/by": (Scaled, False),
    "learning_rate/by": (Rate, False),
    "loss/by": (Power, False),
    "by": (Momentum, False),
}


@pytest.mark.parametrize("path", PLACES)
def test_what_a_constructor_computes_is_computed_anew(path):
    kind, is_array = PLACES[path]
    own = {"Momentum": 0.5} if kind is Momentum else {}
    values = [0.5, 0.2]
    model = make_model(**own)
    result = sweep(model, X, Y, over={path: values}, **FIT)
    assert any(note.startswith(path) for note in result.notes) is not is_array
    for number, value in enumerate(values):
        alone = make_model(**{kind.__name__: value})
        wanted = alone.fit(X, Y, **FIT).history["loss"]
        got = result.records[number].history["loss"]
        np.testing.assert_allclose(got, wanted, rtol=1e-5)
        pairs = zip(
            result._build(number).get_weights(), alone.get_weights(), strict=True
        )
        for one, two in pairs:
            np.testing.assert_allclose(one, two, rtol=1e-4, atol=1e-6)
    assert wanted != result.records[0].history["loss"]


def test_what_was_set_since_is_kept():
    """An attribute of a layer, a frozen layer: whatever else is varied."""

    def make(units=4):
        inner = exburn.Sequential([layers.Dense(units, "tanh", name="deep")])
        own = Scaled(0.5)
        own.shift = 0.1
        model = exburn.Sequential([exburn.Input((5,)), inner, own, layers.Dense(1)])
        own.tint = 2.0  # no argument, and nobody reads it
        model.layers[-1].trainable = False
        model.compile(SGD(0.1), "mse", seed=1)
        return model

    for path, value, alone in [
        ("seed", 1, make()),
        ("deep/units", 3, make(3)),
        ("scaled/shift", 0.1, make()),
    ]:
        result = sweep(make(), X, Y, over={path: [value]}, **FIT)
        wanted = alone.fit(X, Y, **FIT).history["loss"]
        np.testing.assert_allclose(
            result.records[0].history["loss"], wanted, rtol=1e-5, err_msg=path
        )
        assert not result.best_model().layers[-1].trainable


class Net(exburn.Model):
    def __init__(self, width=4):
        super().__init__()
        self.body = [layers.Dense(width, "tanh"), layers.Dense(1)]
        self.again = layers.TimeDistributed(layers.Dense(2, name="each"))

    def call(self, x):
        for layer in self.body:
            x = layer(x)
        return ops.sum(self.again(ops.expand_dims(x, 1)), (1, 2))


@pytest.mark.parametrize(
    ("path", "value"), [("body/0/units", 3), ("each/activation", "tanh")]
)
def test_layers_of_a_model_of_ones_own_are_made_anew(path, value):
    def make(value=None):
        model = Net()
        if value is not None:
            layer = model.body[0] if path[0] == "b" else model.again.layer
            config = layer.get_config() | {path.rpartition("/")[2]: value}
            if path[0] == "b":
                model.body[0] = layers.Dense.from_config(config)
            else:
                model.again = layers.TimeDistributed(layers.Dense.from_config(config))
        model.build((None, 5))
        model.compile(SGD(0.1), "mse", seed=1)
        return model

    result = sweep(make(), X, Y, over={path: [value]}, **FIT)
    wanted = make(value).fit(X, Y, **FIT).history["loss"]
    np.testing.assert_allclose(result.records[0].history["loss"], wanted, rtol=1e-5)


class Vague(exburn.losses.Loss):
    def __init__(self, by=1.0, more=2.0):
        super().__init__()
        self.both = by * more

    def call(self, y, p):
        return ops.mean(ops.square(p) * self.both, axis=-1)


@pytest.mark.parametrize(
    ("path", "values", "says"),
    [
        ("loss/by", [1.0, 2.0], r"does not tell 'more'"),
        ("lstm/cell/units", [2, 3], "'lstm' makes it"),
        ("shared/kernel_regularizer/by", [0.1, 0.2], None),
    ],
)
def test_what_cannot_be_made_anew_is_refused_by_name(path, values, says):
    shared = Linear(0.1)
    hidden = layers.Dense(3, kernel_regularizer=shared, name="shared")
    last = layers.Dense(1, kernel_regularizer=shared)
    stack = [hidden, last, layers.Reshape((1, 1)), layers.LSTM(3, name="lstm")]
    model = exburn.Sequential([exburn.Input((5,)), *stack])
    model.compile(SGD(0.1), Vague())
    if says is None:  # one of two that share it: it is made anew for that one
        result = sweep(model, X, Y, over={path: values}, **FIT)
        made = result._build(1)
        parts = [layer.kernel_regularizer.by for layer in made.layers[:2]]
        assert parts == [0.2, 0.1]
        return
    with pytest.raises(ArgumentError, match=says) as caught:
        sweep(model, X, Y, over={path: values}, **FIT)
    assert path in str(caught.value)


def test_an_initializer_of_trained_weights_is_refused():
    model = make_model()
    model.get_layer("q").kernel.assign(np.ones((5, 4), "float32"))
    over = {"q/kernel_initializer/by": [0.1, 0.2]}
    with pytest.raises(ArgumentError, match="set or trained"):
        sweep(model, X, Y, over=over, **FIT)


def test_things_differ_in_what_their_constructors_compute():
    same = [remake(Linear(0.1), {"by": by}) for by in (0.1, 0.2)]
    assert not differs_elsewhere(*same, "by")
    for kind in (Penalty, Clip, Rate, Power):
        one = kind(0.1)
        assert differs_elsewhere(one, remake(one, {"by": 0.2}), "by")
        assert not differs_elsewhere(one, remake(one, {}), "by")


class Parts(exburn.Model):
    """Layers in attributes, a list and a dict."""

    def __init__(self):
        super().__init__()
        a, b, c, d = (layers.Dense(4, name=name) for name in "abcd")
        self.first = layers.Dense(4, name="first")
        self.several, self.named = [a, b], {"c": c, "d": d}
        self.last = layers.Dense(2, name="last")

    def call(self, x):
        for layer in (self.first, *self.several, *self.named.values(), self.last):
            x = layer(x)
        return x


@pytest.mark.parametrize("name", ["first", "a", "c"])
def test_a_layer_made_anew_has_its_weights_where_the_one_before_had_them(name):
    model = Parts()
    model.compile("sgd", "mse")
    model.build((None, 3))
    layer = next(one for _, one in iter_modules(model) if one.name == name)
    made = with_layer(model, layer, "units", 4)
    assert made is not model
    assert [w.path for w in made.weights] == [w.path for w in model.weights]
    made = with_layer(model, layer, "units", 5)
    assert [w.path for w in made.weights] == [w.path for w in model.weights]


class NamedByItself(exburn.losses.Loss):
    """A loss that does not take what its configuration tells."""

    def __init__(self, power):
        super().__init__(name="own")
        self.power = power

    def call(self, y_true, y_pred):
        return abs(y_true - y_pred) ** self.power


def test_what_a_constructor_raises_names_the_thing():
    with pytest.raises(CannotRemake, match=r"'own' cannot .* TypeError: .*'name'"):
        remake(NamedByItself(2.0), {"power": 3.0})


def test_a_layer_gets_its_own_of_what_several_share():
    def make(first, second):
        hidden = layers.Dense(4, "tanh", kernel_regularizer=first, name="hidden")
        out = layers.Dense(3, kernel_regularizer=second)
        model = exburn.Sequential([exburn.Input((5,)), hidden, out])
        model.compile(SGD(0.1), "cross_entropy", seed=1)
        return model

    shared = exburn.regularizers.L2(0.1)
    over = {"hidden/kernel_regularizer/l2": [0.5, 0.01]}
    result = sweep(make(shared, shared), X, Y, over=over, **FIT)
    for record, value in zip(result.records, [0.5, 0.01], strict=True):
        alone = make(exburn.regularizers.L2(value), exburn.regularizers.L2(0.1))
        wanted = alone.fit(X, Y, **FIT).history["loss"]
        np.testing.assert_allclose(record.history["loss"], wanted, rtol=1e-5)
