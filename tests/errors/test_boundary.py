"""What a user sees of an error: the lines of the user's own program."""

import contextlib
import copy
import importlib
import inspect
import pickle
import threading
import traceback

import jax.numpy as jnp
import numpy as np
import pytest
from tests.errors.bench import LABELS, X, classifier

import exburn
from exburn import callbacks, config, layers, losses, metrics, ops, optimizers
from exburn.errors import ArgumentError, ShapeError, SignatureError
from exburn.errors.boundary import api_boundary, guard_methods, is_guarded


def shown(error):
    """Names of the functions in a traceback."""
    return [frame.name for frame in traceback.extract_tb(error.__traceback__)]


def functions_of(act):
    """Names of the functions in the traceback of what a function raises."""
    with pytest.raises(BaseException) as caught:
        act()
    assert not hasattr(caught.value, "__notes__")
    return shown(caught.value)[2:]  # without this test and ``act`` itself


class Own(layers.Layer):
    """A layer whose call goes wrong in one way or another."""

    def __init__(self, fault):
        super().__init__()
        self.fault = fault
        self.inner = layers.Dense(3)

    def call(self, x):
        return self.fault(self.inner(x))


def product(x):
    return x @ jnp.ones((5, 5))


def branch(x):
    return x if x.sum() > 0 else -x


def model_of(*stack):
    model = exburn.Sequential([exburn.Input((8,)), *stack])
    model.compile("sgd", "mse")
    return model


def generator():
    yield X, LABELS
    raise RuntimeError("no such luck")


class Broken(callbacks.Callback):
    def on_epoch_end(self, epoch, logs=None):
        self.fail()

    def fail(self):
        raise RuntimeError("no such luck")


def crooked(y_true, y_pred):
    return product(y_pred)


@pytest.mark.parametrize(
    ("act", "functions"),
    [
        (lambda: classifier().fit(X[:, :7], LABELS), []),
        (lambda: classifier().evaluate(X, LABELS + 7), []),
        (lambda: classifier().predict(X[:, :7]), []),
        (lambda: classifier()(X[:, :7]), []),
        (lambda: layers.Dense(0), []),
        (lambda: exburn.Input((-1,)), []),
        (lambda: exburn.load_model("no such file.keras"), []),
        (lambda: optimizers.Adam(learning_rate="fast"), []),
        (lambda: losses.MeanSquaredError()(X, X[:, :7]), []),
        (lambda: metrics.MeanSquaredError()(X, X[:, :7]), []),
        (lambda: ops.matmul(X, X), []),
        (lambda: ops.concatenate([X, exburn.Input((3, 3))]), []),
        (lambda: exburn.Model(exburn.Input((2,)), exburn.Input((2,))), []),
        (lambda: exburn.Input((8,)) + np.ones(3), []),
        (lambda: np.ones(3) - exburn.Input((8,)), []),
        (lambda: exburn.Input((8,))[9, 9, 9], []),
        (lambda: bool(exburn.Input((8,)) > 0), []),
        (lambda: np.asarray(exburn.Input((8,))), []),
        (lambda: exburn.Variable("no such", (3,)), []),
        (lambda: exburn.Variable(np.ones(3)).assign(np.ones(4)), []),
        (lambda: exburn.text.Tokenizer.load("no such file.json"), []),
        (lambda: ops.einsum("ij,jk", X, X), []),
        (lambda: ops.cast(X, "float31"), []),
        (lambda: Own(product)(X), ["call", "product"]),
        (lambda: Own(branch)(X), ["call", "branch"]),
        (lambda: Own(product)(X[:, :4]), ["call", "product"]),
        (lambda: Own(product)(exburn.Input((8,))), ["call", "product"]),
        (lambda: classifier().fit(generator(), verbose=0), ["generator"]),
        (lambda: classifier(crooked).fit(X, X), ["crooked", "product"]),
        (
            lambda: classifier().fit(X, LABELS, callbacks=[Broken()], verbose=0),
            ["on_epoch_end", "fail"],
        ),
    ],
)
def test_a_traceback_has_the_users_lines_alone(act, functions):
    assert functions_of(act) == functions


def test_a_training_loop_of_events_shows_its_own_line():
    def loop():
        for _ in classifier().training(X[:, :7], LABELS):
            pass

    assert functions_of(loop) == []


def test_causes_are_filtered_too():
    def call(x):
        try:
            return product(x)
        except TypeError as error:
            raise ValueError("no such luck") from error

    with pytest.raises(ValueError) as caught:
        Own(call)(X)
    assert shown(caught.value)[1:] == ["call", "call"]
    assert shown(caught.value.__cause__) == ["call", "product"]
    assert "JAX has removed" not in "".join(traceback.format_exception(caught.value))


def test_what_only_the_library_has_met_is_not_shown():
    @api_boundary
    def outer():
        try:
            raise KeyError("inner")
        except KeyError:
            raise ArgumentError("outer", "no such luck") from None

    with pytest.raises(ArgumentError) as caught:
        outer()
    text = "".join(traceback.format_exception(caught.value))
    assert "inner" not in text.splitlines()[-1]


def test_everything_is_shown_when_that_is_asked_for():
    config.disable_traceback_filtering()
    try:
        assert not config.is_traceback_filtering_enabled()
        with pytest.raises(ShapeError) as caught:
            classifier().fit(X[:, :7], LABELS)
        assert len(shown(caught.value)) > 5 and "fit" in shown(caught.value)
    finally:
        config.enable_traceback_filtering()
    assert config.is_traceback_filtering_enabled()


def test_an_error_that_a_users_step_catches_does_not_stop_the_training():
    class Careful(exburn.Sequential):
        def train_step(self, state, data):
            with contextlib.suppress(SignatureError):
                self.compile(optimiser="sgd")
            return super().train_step(state, data)

    model = Careful([exburn.Input((8,)), layers.Dense(3)])
    model.compile("sgd", "mse")
    assert np.isfinite(model.fit(X, X[:, :3], verbose=0).history["loss"][0])


def test_threads_have_lines_of_their_own():
    errors = []

    def work():
        try:
            classifier().fit(X[:, :7], LABELS)
        except ShapeError as error:
            errors.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert shown(errors[0]) == ["work"]


def test_a_public_function_stays_what_it_was():
    for function in (exburn.Model.fit, ops.matmul, losses.MeanSquaredError.__init__):
        inner = inspect.unwrap(function)
        assert function.__name__ == inner.__name__
        assert inspect.getdoc(function) == inspect.getdoc(inner)
    assert "epochs" in inspect.signature(exburn.Model.fit).parameters
    assert list(inspect.signature(losses.MeanSquaredError).parameters)[0] == "reduction"
    loss = losses.mean_squared_error
    assert pickle.loads(pickle.dumps(loss)) is loss
    model = classifier()
    again = pickle.loads(pickle.dumps(model.fit)), copy.deepcopy(model)
    assert again[0].__func__ is model.fit.__func__


def test_a_generator_is_still_one():
    @api_boundary
    def count(least):
        received = yield least
        yield received

    with pytest.raises(SignatureError, match="'laest'"):
        count(laest=1)
    numbers = count(1)
    assert next(numbers) == 1 and numbers.send(5) == 5
    with pytest.raises(StopIteration):
        next(numbers)


# ---------------------------------------------------------------------- arguments
def small(**options):
    return classifier(**options)


MEANT = {
    "layer": (lambda: layers.Dense(3, activaton="relu"), "activation"),
    "layer of options": (lambda: layers.LSTM(3, go_backward=True), "go_backwards"),
    "model": (lambda: exburn.Sequential(nme="net"), "name"),
    "own layer": (lambda: Own(falt=product), "fault"),
    "fit": (lambda: small().fit(X, LABELS, epoch=3), "epochs"),
    "compile": (lambda: small().compile(optimiser="sgd"), "optimizer"),
    "evaluate": (lambda: small().evaluate(X, LABELS, batchsize=3), "batch_size"),
    "predict": (lambda: small().predict(X, verbos=0), "verbose"),
    "call": (lambda: small()(X, trainin=True), "training"),
    "optimizer": (lambda: optimizers.Adam(learningrate=0.1), "learning_rate"),
    "option": (lambda: optimizers.SGD(0.1, clipnrm=1.0), "clipnorm"),
    "loss": (lambda: losses.Huber(dleta=1.0), "delta"),
    "formula": (lambda: losses.MeanSquaredError(reducton="sum"), "reduction"),
    "metric": (lambda: metrics.Accuracy(nme="a"), "name"),
    "callback": (lambda: callbacks.EarlyStopping(monitr="loss"), "monitor"),
    "initializer": (
        lambda: exburn.initializers.RandomNormal(stdev=0.1),
        "stddev",
    ),
    "regularizer": (lambda: exburn.regularizers.L1L2(l3=0.1), "l2' or 'l1"),
    "constraint": (lambda: exburn.constraints.MaxNorm(max_val=2), "max_value"),
    "schedule": (
        lambda: optimizers.schedules.ExponentialDecay(0.1, 10, 0.9, stairs=True),
        "staircase",
    ),
    "op": (lambda: ops.sum(X, axs=0), "axis"),
}


@pytest.mark.parametrize("name", MEANT)
def test_a_misspelt_argument_is_named_beside_the_one_that_was_meant(name):
    act, meant = MEANT[name]
    with pytest.raises(TypeError) as caught:
        act()
    assert isinstance(caught.value, SignatureError), repr(caught.value)
    assert shown(caught.value)[2:] == []
    last = str(caught.value).splitlines()[-1]
    assert last.startswith(f"  → Did you mean '{meant}'"), str(caught.value)


@pytest.mark.parametrize(
    ("act", "says"),
    [
        (lambda: layers.Dense(), "Call it as Dense(units, activation=None"),
        (lambda: ops.matmul(X), "Call it as matmul(x1, x2)"),
        (lambda: small().predict(), "Call it as predict(x, "),
        (lambda: exburn.Sequential([], True, "net", None, 5), "Call it as Sequential("),
        (
            lambda: exburn.Sequential(layers.Dense(3), layers.Dense(2)),
            "Pass a list: Sequential([Dense, Dense]).",
        ),
        (
            lambda: exburn.Sequential(*[layers.Dense(3)] * 6),
            "Pass a list: Sequential([Dense, ",
        ),
    ],
)
def test_wrong_arguments_are_answered_by_the_right_ones(act, says):
    with pytest.raises(SignatureError) as caught:
        act()
    assert shown(caught.value)[2:] == []
    assert str(caught.value).splitlines()[-1].startswith(f"  → {says}")


def test_a_type_error_in_a_function_is_no_wrong_argument():
    @guard_methods
    class Square:
        def __init__(self, side):
            self.side = len(side)

    with pytest.raises(TypeError, match="has no len") as caught:
        Square(3)
    assert type(caught.value) is TypeError


# ---------------------------------------------------------------------- coverage
NAMESPACES = (
    "activations applications backend callbacks compression compute config constraints"
    " datasets distillation distribution dtype_policies export initializers layers"
    " losses metrics mixed_precision models ops optimizers optimizers.schedules"
    " preprocessing quantizers random regularizers runs saving serving text tree tuning"
    " utils visualization weights wrappers"
).split()


def unguarded(space):
    """Public functions, and constructors, whose errors would show the library."""
    module = importlib.import_module(f"exburn.{space}")
    names = getattr(module, "__all__", None) or [n for n in dir(module) if n[0] != "_"]
    for name in names:
        value = getattr(module, name)
        if str(getattr(value, "__module__", "")).partition(".")[0] != "exburn":
            continue
        if inspect.isclass(value) and not issubclass(value, exburn.Layer):
            value = value.__init__
        if inspect.isfunction(value) and not is_guarded(value):
            yield name


@pytest.mark.parametrize("space", NAMESPACES)
def test_every_public_function_and_class_is_guarded(space):
    pytest.importorskip("sklearn")  # which the wrappers derive from
    assert list(unguarded(space)) == []
