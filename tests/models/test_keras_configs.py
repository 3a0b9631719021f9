"""Configurations in the form that Keras writes, there and here."""

import inspect
import json

import jax.numpy as jnp
import keras
import numpy as np
import pytest

import exburn
from exburn.core import registry
from exburn.errors import FileFormatError, UnknownNameError

pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation")  # Keras
KL, ops = keras.layers, keras.ops


def arithmetic():
    """Operators, indexing, and models inside that are called more than once."""
    start = keras.Input((4,))
    inner = keras.Model(start, KL.Dense(4)(start))
    inner(keras.Input((4,)))  # a call of another model's: Keras numbers those on
    stack = keras.Sequential([KL.Dense(4), KL.Dense(4)])
    x = given = keras.Input((4,))
    x = stack(stack(inner(inner(KL.Dense(4)(x)))))
    x = ops.tanh(x) + 2 * x
    return keras.Model(given, ops.reshape(x, (-1, 2, 2))[:, 0])


def shared():
    """Layers whose calls are not in the order of their distance from the inputs."""
    a, b = keras.Input((4,), name="a"), keras.Input((4,), name="b")
    dense, norm = KL.Dense(4), KL.LayerNormalization()
    y = norm(dense(norm(dense(a))))
    y = ops.concatenate([y, dense(b)], axis=-1)
    y = ops.where(y > 0, y, ops.mean(y, axis=-1, keepdims=True))
    y = -y / 2 - ops.abs(y) ** 2
    return keras.Model([a, b], {"o": y, "p": ops.sum(y, axis=1)})


def sequences():
    tokens = keras.Input((None,), dtype="int32", name="t")
    x = KL.Embedding(9, 4, mask_zero=True)(tokens)
    x = KL.Bidirectional(KL.GRU(2, return_sequences=True))(x)
    return keras.Model({"t": tokens}, KL.GlobalAveragePooling1D()(x))


def images():
    given = keras.Input((8, 8, 3))
    x = KL.Rescaling(1 / 255.0)(given)
    x = KL.Conv2D(4, 3, padding="same", activation="relu")(x)
    x = KL.Concatenate()([KL.UpSampling2D()(KL.MaxPooling2D()(x)), given])
    penalty = keras.regularizers.L2(0.1)
    x = KL.SeparableConv2D(3, 3, activation="gelu", pointwise_regularizer=penalty)(x)
    x = KL.LeakyReLU(0.3)(KL.BatchNormalization()(x))
    x = KL.Flatten()(ops.image.resize(x, (4, 4)))
    x = KL.Dense(2, kernel_constraint="max_norm")(KL.Dropout(0.5)(x))
    return keras.Model(given, x)


def operations():
    """Those whose classes take their arguments in another way than functions."""
    given = keras.Input((5, 4))
    x = KL.MultiHeadAttention(2, 2)(given, given, use_causal_mask=True)
    x = ops.pad(x, ((0, 0), (0, 0), (0, 2)), constant_values=1.0)
    state, _, cell = KL.LSTM(3, return_state=True)(x)
    first, second = ops.split(x, 2, axis=-1)
    outputs = [
        ops.softmax(ops.einsum("btd,bsd->bts", x, x)),
        first * second + ops.unstack(x, axis=1)[0][:, None, :3],
        KL.GRU(3)(x, initial_state=state + cell),
        ops.average(x, weights=np.ones(5, "float32"), axis=1),
        ops.full_like(x, 3.0),
        ops.one_hot(ops.argmax(x, axis=-1), 4),
        ops.cast(ops.stack([x, x], 0)[1], "int32"),
        ops.layer_normalization(ops.normalize(x)),
        x[..., None, 1:3],
    ]
    return keras.Model(given, outputs)


MODELS = [arithmetic, shared, sequences, images, operations]


def written(value):
    """What Keras writes of a value into a file, read as JSON again."""
    return json.loads(json.dumps(keras.saving.serialize_keras_object(value)))


@pytest.mark.parametrize("make", MODELS)
def test_models_of_keras_configurations_compute_the_same(make):
    theirs = make()
    ours = registry.deserialize(written(theirs))
    ours.set_weights(theirs.get_weights())
    rng, inputs = np.random.default_rng(0), []
    for symbol in theirs.inputs:
        shape = (2, *(size or 6 for size in symbol.shape[1:]))
        whole = "int" in symbol.dtype
        x = rng.integers(0, 9, shape) if whole else rng.random(shape, np.float32)
        inputs.append(x)
    x = {"t": inputs[0]} if make is sequences else inputs
    x = x if len(x) > 1 or make is sequences else inputs[0]
    outputs = zip(
        keras.tree.flatten(ours(x)), keras.tree.flatten(theirs(x)), strict=True
    )
    for mine, other in outputs:
        np.testing.assert_allclose(mine, other, rtol=1e-4, atol=1e-5)
    again = registry.deserialize(json.loads(json.dumps(registry.serialize(ours))))
    assert [w.shape for w in again.weights] == [w.shape for w in ours.weights]


def test_what_the_sources_of_keras_are_called_does_not_matter():
    for module in ("keras.layers", "keras.src.layers.core.dense", "tf_keras.layers"):
        config = {
            "units": 3,
            "dtype": {"class_name": "DTypePolicy", "config": {"name": "float16"}},
        }
        entry = {"module": module, "class_name": "Dense", "config": config}
        assert registry.deserialize({**entry, "registered_name": "Dense"}).units == 3


@pytest.mark.parametrize("kind", ["losses", "metrics", "initializers"])
def test_namesakes_are_told_apart_by_their_module(kind):
    name = "Identity" if kind == "initializers" else "Poisson"
    described = written(getattr(getattr(keras, kind), name)())
    made = registry.deserialize({"inner": [described]})["inner"][0]
    assert type(made) is getattr(getattr(exburn, kind), name)


def test_the_users_class_goes_before_a_namesake():
    class Dense(exburn.layers.Layer):
        pass

    entry = {"module": "mine", "class_name": "Dense", "config": {}}
    with registry.custom_objects({"shop>Dense": Dense}):
        made = registry.deserialize({**entry, "registered_name": "shop>Dense"})
    assert type(made) is Dense


def lambdas():
    return written(KL.Lambda(lambda x: x + 1))


def test_a_lambda_is_refused_by_name():
    with pytest.raises(FileFormatError, match="lambda, which is code"):
        registry.deserialize({"deep": [lambdas()]})
    with pytest.raises(FileFormatError, match="lambda"):
        exburn.saving.deserialize_keras_object(lambdas(), safe_mode=False)


@pytest.mark.parametrize(
    "config",
    [
        {"class_name": "__typespec__", "spec_name": "x", "config": []},
        {"class_name": "os.system", "module": "os", "config": {}},
        {"class_name": 7, "config": {}},
        {"class_name": "function", "config": {}},
        {"class_name": "function", "config": "os.system", "module": "builtins"},
        {"class_name": "DTypePolicies", "module": "keras", "config": {}},
    ],
)
def test_what_is_not_known_is_a_typed_error(config):
    with pytest.raises((FileFormatError, UnknownNameError)):
        registry.deserialize(config)


@keras.saving.register_keras_serializable("configs")
class Theirs(KL.Layer):
    pass


@exburn.saving.register_keras_serializable("configs")
class Ours(exburn.layers.Layer):
    pass


def values(k, own, array):
    L = k.layers
    return {
        "layer": L.Dense(2),
        "wrapper": L.TimeDistributed(L.Dense(2)),
        "own": own(),
        "initializer": k.initializers.Constant(2.0),
        "regularizer": k.regularizers.L1L2(0.1, 0.2),
        "constraint": k.constraints.UnitNorm(),
        "loss": k.losses.Huber(),
        "metric": k.metrics.AUC(),
        "optimizer": k.optimizers.SGD(k.optimizers.schedules.CosineDecay(0.1, 9)),
        "seed": k.random.SeedGenerator(3),
        "function": k.activations.relu,
        "loss function": k.losses.mean_squared_error,
        "array": np.arange(3.0),
        "tensor": array(np.ones(2, "float32")),
        "slice": slice(1, None, 2),
        "bytes": b"ab",
        "ellipsis": ...,
    }


def described(value):
    """The keys and names of a description, without what its objects hold."""
    if isinstance(value, list):
        return [described(one) for one in value]
    if not isinstance(value, dict):
        return None
    if "class_name" not in value:
        return {k: described(v) for k, v in value.items() if isinstance(v, dict)}
    module = str(value.get("module")).replace("exburn", "keras")
    inner = value["config"]
    told = {k: v for k, v in value.items() if k not in ("config", "module")}
    if told["class_name"].startswith("__") or told["class_name"] == "function":
        return {**told, "module": module, "config": inner}
    deeper = {k: described(v) for k, v in inner.items() if k != "dtype"}
    objects = {k: v for k, v in deeper.items() if v}
    return {**told, "module": module, "config": objects}


@pytest.mark.parametrize("name", values(exburn, Ours, jnp.asarray))
def test_descriptions_have_keras_keys(name):
    theirs = values(keras, Theirs, ops.convert_to_tensor)[name]
    mine = exburn.saving.serialize_keras_object(values(exburn, Ours, jnp.asarray)[name])
    renamed = json.dumps(described(json.loads(json.dumps(mine))))
    expected = json.dumps(described(written(theirs)))
    same = expected.replace("Theirs", "Ours").replace(__name__, Ours.__module__)
    assert json.loads(renamed) == json.loads(same)
    again = registry.deserialize(mine)
    assert (
        type(again) is type(values(exburn, Ours, jnp.asarray)[name]) or name == "array"
    )


def test_layers_of_all_kinds_are_read():
    """Every layer of Keras whose constructor needs one number at most."""
    read = set()
    for name, cls in vars(KL).items():
        layer = inspect.isclass(cls) and issubclass(cls, KL.Layer)
        here = layer and hasattr(exburn.layers, name)
        if not here or name in ("EinsumDense", "Layer", "Pipeline"):  # take no number
            continue
        for arguments in ((), (2,), (2, 2)):
            try:
                theirs = cls(*arguments)
            except Exception:
                continue
            mine = registry.deserialize(written(theirs))
            assert type(mine) is getattr(exburn.layers, name)
            read.add(name)
            break
    assert len(read) > 110
