"""Operations of the user's own, and functions between symbols, against Keras."""

import copy
import pickle

import numpy as np
import pytest

import exburn

keras = pytest.importorskip("keras")
BOTH = pytest.mark.parametrize("api", [exburn, keras], ids=["exburn", "keras"])


def scale_of(api):
    class Scale(api.Operation):
        def __init__(self, by=2.0, name=None):
            super().__init__(name=name)
            self.by = by

        def call(self, x):
            return x * self.by

    return Scale


class Shift(exburn.Operation):
    def __init__(self, by):
        super().__init__()
        self.by = by

    def call(self, x):
        return x + self.by


@BOTH
def test_it_computes_on_arrays_and_notes_calls_on_symbols(api):
    triple = scale_of(api)(3.0, name="triple")
    assert triple(np.ones(2)).tolist() == [3, 3]
    x = api.Input((4,))
    y = triple(triple(x))
    assert y.shape == (None, 4)
    assert triple.input is x and triple.output.shape == (None, 4)
    model = api.Model(x, y)
    assert model.operations[1:] == [triple]  # called twice, listed once
    assert model.layers == model.operations[:1]
    assert np.asarray(model(np.ones((1, 4)))).tolist() == [[9, 9, 9, 9]]


@BOTH
def test_configurations_make_equal_operations(api):
    scale = scale_of(api)
    config = scale(3.0).get_config()
    assert config["by"] == 3.0 and scale.from_config(config).by == 3.0

    class Own(scale):
        def get_config(self):
            return {**super().get_config(), "by": 7}

    assert Own(1.0, name="own").get_config() == {"name": "own", "by": 7}

    class Bare(api.Operation):
        def __init__(self, by):
            super().__init__()
            self.by = by

    assert Bare(2).get_config() == {"by": 2}  # it takes no name


@BOTH
def test_a_class_may_say_its_output_itself(api):
    class Pieces(api.Operation):
        def call(self, a, b):
            raise TypeError("not to be traced")

        def compute_output_spec(self, a, b):
            first = api.KerasTensor(a.shape, a.dtype)
            return first, api.KerasTensor((a.shape[0], 7), "int32")

    x = api.Input((4,))
    first, second = Pieces()(x, b=x)
    assert (first.shape, second.shape) == ((None, 4), (None, 7))
    assert (first.dtype, second.dtype) == ("float32", "int32")
    told = scale_of(api)().compute_output_spec(api.KerasTensor((None, 3)))
    assert isinstance(told, api.KerasTensor) and told.shape == (None, 3)


@BOTH
def test_what_is_an_operation_and_a_function(api):
    x = api.Input((4,))
    layer = api.layers.Dense(2)
    model = api.Model(x, layer(x))
    assert isinstance(layer, api.Operation) and isinstance(model, api.Operation)
    assert isinstance(model, api.Function)
    assert not isinstance(layer, api.Function)
    assert isinstance(api.Function(x, x + 1), api.Operation)


@pytest.mark.parametrize(
    "make, error",
    [
        (lambda api: api.Operation(name="a/b"), ValueError),
        (lambda api: api.Operation()(np.ones(2)), (ValueError, NotImplementedError)),
        (lambda api: api.Operation(3), ValueError),
        (lambda api: api.Function([], []), ValueError),
        (lambda api: api.Function(api.Input((2,)), api.Input((2,))), ValueError),
    ],
)
@BOTH
def test_refusals(api, make, error):
    with pytest.raises(error):
        make(api)


def test_what_is_no_tensor_is_told():
    class Wrong(exburn.Operation):
        def compute_output_spec(self, x):
            return (None, 3)

    with pytest.raises(exburn.errors.DTypeError, match="must return KerasTensors"):
        Wrong()(exburn.Input((3,)))
    with pytest.raises(exburn.errors.GraphError, match="not called on symbols"):
        _ = Shift(1).output
    operands = pytest.raises(ValueError, match="shapes")
    with operands as told:
        Shift(np.ones(5))(exburn.Input((3,)))
    assert "operation 'shift'" in str(told.value)


def test_models_with_operations_train_are_copied_and_saved(tmp_path, capsys):
    x = exburn.Input((4,))
    shift = Shift(3.0)
    y = exburn.layers.Dense(2)(shift(shift(x)))
    model = exburn.Model(x, Shift(-1.0)(y))
    model.compile("sgd", "mse")
    model.fit(np.ones((5, 4)), np.ones((5, 2)), verbose=0)
    given = np.random.default_rng(0).normal(size=(3, 4))
    expected = model.predict(given, verbose=0)

    others = [copy.deepcopy(model), model.clone(), pickle.loads(pickle.dumps(model))]
    with exburn.saving.custom_object_scope({"Shift": Shift}):
        model.save(tmp_path / "model.exburn")
        others.append(exburn.models.load_model(tmp_path / "model.exburn"))
        remade = exburn.Model.from_config(model.get_config())
        remade.set_weights(model.get_weights())
        others.append(remade)
    fresh = exburn.models.clone_model(model)
    fresh.set_weights(model.get_weights())
    for other in [*others, fresh]:
        np.testing.assert_array_equal(other.predict(given, verbose=0), expected)
        kinds = [o.by for o in other.operations if isinstance(o, Shift)]
        assert kinds == [3.0, -1.0]
    model.summary()
    assert "shift (Shift)" in capsys.readouterr().out


def test_code_can_ask_whether_shapes_are_inferred():
    asked = []

    class Reads(exburn.layers.Layer):
        def call(self, x):
            asked.append(exburn.backend.in_symbolic_scope())
            return x

    layer = Reads()
    layer(exburn.Input((2,)))
    layer(np.ones((1, 2)))
    assert asked[-1] is False and all(asked[:-1]) and len(asked) > 1
    with exburn.SymbolicScope() as scope:
        assert isinstance(scope, exburn.SymbolicScope)
        with exburn.SymbolicScope():
            pass
        assert exburn.backend.in_symbolic_scope()
    assert not exburn.backend.in_symbolic_scope()


@BOTH
def test_call_of_a_model_obeys_training(api):
    x = api.Input((400,))
    model = api.Model(x, api.layers.Dropout(0.5)(x))
    stack = api.Sequential([api.Input((400,)), api.layers.Dropout(0.5)])
    ones = np.ones((1, 400), "float32")
    for each in (model, stack):
        assert 50 < int((np.asarray(each.call(ones, training=True)) == 0).sum()) < 350
        for quiet in ({}, {"training": False}):
            assert (np.asarray(each.call(ones, **quiet)) == 1).all()

    class Outer(api.layers.Layer):
        def __init__(self):
            super().__init__()
            self.inner = model

        def call(self, x, training=None):
            return self.inner.call(x, training=True)

    assert (np.asarray(Outer()(ones, training=False)) == 0).any()
