"""Tests of ``exburn.ops.contract``."""

import inspect
import json
import pydoc

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tests.ops.small import ROWS

from exburn import Input, Model, activations, losses, metrics, ops, random
from exburn.core.jax_dispatch import original
from exburn.layers import Dense
from exburn.module.symbolic_tensor import OPERATIONS


def build():
    x, y = Input((6,), name="x"), Input((6,), name="y")
    z = ops.concatenate([ops.tanh(x), y + 1], axis=-1)
    z = ops.stack([z, ops.clip(z, -0.5, 0.5)], axis=1)
    z = ops.einsum("bij,jk->bk", z, np.ones((12, 3), "float32"))
    z = ops.where(z > 0, z, ops.multiply(z, 0.1))
    a, b, c = ops.split(Dense(6)(z), 3, axis=-1)
    z = ops.reshape(ops.expand_dims(a, 1), (-1, 2)) * ops.softmax(b) + c[:, :2]
    z = ops.cast(ops.one_hot(ops.argmax(z, -1), 4), "float32") + ops.mean(
        z, axis=-1, keepdims=True
    )
    return Model({"x": x, "y": y}, ops.squeeze(ops.unstack(z[:, None], axis=1)[0]))


def test_lists_scalars_and_wide_numbers_are_converted():
    assert ops.sum([1.0, 2.5]).dtype == "float32"
    assert ops.add([[1, 2]], (3, 4)).tolist() == [[4, 6]]
    assert ops.multiply(np.ones(2), np.array([1, 2])).dtype == "float32"
    assert ops.array(np.arange(3)).dtype == "int32"
    assert ops.add(jnp.ones(2, "bfloat16"), 1.5).dtype == "bfloat16"
    assert ops.stack([1, 2, 3]).tolist() == [1, 2, 3]
    assert ops.concatenate([[1, 2], [3]]).tolist() == [1, 2, 3]
    assert ops.einsum("i,i", [1, 2], [3, 4]).tolist() == 11
    assert ops.reshape([1, 2], (None, 1)).shape == (2, 1)


def test_arguments_may_be_named_as_in_keras():
    assert ops.sum(x=ROWS, axis=0, keepdims=True).shape == (1, 6)
    assert ops.sum(ROWS, 0, True).shape == (1, 6)
    assert ops.where(condition=ROWS > 0, x1=1, x2=0).sum() == (ROWS > 0).sum()
    with pytest.raises(TypeError, match="takes 3 arguments"):
        ops.sum(ROWS, 0, True, None)
    with pytest.raises(TypeError, match="multiple values for argument 'x'"):
        ops.sum(ROWS, x=ROWS)
    with pytest.raises(TypeError):
        ops.sum(ROWS, axes=0)


def test_weights_are_arguments():
    layer = Dense(3)
    y = layer(ROWS)
    same = ops.add(ops.matmul(ROWS, layer.kernel), layer.bias)
    np.testing.assert_allclose(same, y, rtol=1e-6)
    both = ops.concatenate([layer.kernel, ops.zeros((1, 3))])
    assert both.shape == (7, 3)
    assert ops.shape(layer.kernel) == (6, 3)
    assert ops.convert_to_numpy(layer.bias).tolist() == [0, 0, 0]
    assert ops.sum([layer.bias, layer.bias]) == 0


def test_ops_run_in_compiled_code_and_have_gradients():
    def f(x):
        return ops.sum(ops.square(ops.tanh(ops.reshape(x, (-1,)))))

    gradient = jax.jit(jax.grad(f))(ROWS)
    np.testing.assert_allclose(
        gradient, 2 * np.tanh(ROWS) / np.cosh(ROWS) ** 2, rtol=1e-4
    )
    quotient = jax.grad(lambda x: ops.sum(ops.divide_no_nan(ROWS, x)))(jnp.zeros(6))
    assert np.isfinite(quotient).all()
    assert np.isfinite(jax.grad(lambda x: ops.cdist(x, x).sum())(ROWS)).all()


def test_models_of_ops_are_described_and_rebuilt():
    model = build()
    config = json.loads(json.dumps(model.get_config()))
    again = Model.from_config(config)
    again.set_weights(model.get_weights())
    data = {"x": ROWS, "y": ROWS[::-1].copy()}
    np.testing.assert_array_equal(model(data), again(data))
    assert model.output_shape == (None, 4)


def test_ops_and_operators_of_symbols_share_names():
    assert OPERATIONS["add"] is original(jnp.add)
    assert OPERATIONS["abs"] is original(jnp.abs)
    assert OPERATIONS["cast"] is original(jnp.astype)
    x = Input((6,))
    model = Model(x, abs(ops.abs(x) + x) - ops.subtract(x, 1))
    again = Model.from_config(model.get_config())
    np.testing.assert_array_equal(model(ROWS), again(ROWS))


PLACES = (ops, ops.image, ops.linalg, ops.nn, ops.numpy, random, activations)
NAMED_BY_CALLERS = {"einsum", "rearrange"}  # options of jax.numpy; names of axes


def test_every_function_says_what_it_takes_and_gives():
    faults = set()
    for place in (*PLACES, losses, metrics):
        for name, function in vars(place).items():
            ours = getattr(function, "__module__", "").startswith("exburn.")
            if name.startswith("_") or not ours or not inspect.isfunction(function):
                continue
            signature = inspect.signature(function)
            for parameter in signature.parameters.values():
                hides = parameter.kind is parameter.VAR_KEYWORD
                if parameter.annotation is parameter.empty or (
                    hides and name not in NAMED_BY_CALLERS
                ):
                    faults.add(f"{place.__name__}.{name}: {parameter}")
            if signature.return_annotation is signature.empty:
                faults.add(f"{place.__name__}.{name}: ->")
    assert not faults


def test_help_shows_the_signature():
    text = pydoc.plain(pydoc.render_doc(ops.mean))
    assert "mean(x: 'Tensor', axis: 'Axis' = None, keepdims: 'bool' = False)" in text
    assert "It is ``jax.numpy.mean``" in text
