"""Functions of JAX on symbols: same values, saved by name, and unchanged on arrays."""

from __future__ import annotations

import copy
import inspect
import json
import pickle
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from exburn import Input, Model, activations, fn, layers
from exburn.core import jax_dispatch
from exburn.core.jax_dispatch import function_named, name_of, original
from exburn.errors import (
    DTypeError,
    FileFormatError,
    GraphError,
    ShapeError,
    UnknownNameError,
)
from exburn.module.symbolic_tensor import Symbol

X = np.random.default_rng(0).uniform(0.1, 0.9, (5, 8)).astype(np.float32)
IMAGE = np.random.default_rng(1).random((2, 6, 6, 3)).astype(np.float32)

CASES = {
    "tanh": lambda x: jnp.tanh(x),
    "add": lambda x: jnp.add(x, 1),
    "maximum": lambda x: jnp.maximum(x, 1 - x),
    "abs": lambda x: jnp.absolute(x - 0.5),
    "concatenate": lambda x: jnp.concatenate([x, 2 * x], axis=-1),
    "stack": lambda x: jnp.stack((x, x + 1), axis=1),
    "mean": lambda x: jnp.mean(x, axis=1, keepdims=True),
    "var by keyword": lambda x: jnp.var(a=x, axis=-1),
    "where": lambda x: jnp.where(x > 0.5, x, 0),
    "where by value": lambda x: jnp.where(x > 0.5, X[0], -x),
    "einsum": lambda x: jnp.einsum("bi,bj->bij", x, x + 1),
    "einsum of lists": lambda x: jnp.einsum(x, [0, 1], x, [0, 2], [0, 1, 2]),
    "reshape": lambda x: jnp.reshape(x, (-1, 2, 4)),
    "split": lambda x: jnp.split(x, 2, axis=1),
    "take": lambda x: jnp.take(x, np.array([3, 1]), axis=1),
    "clip": lambda x: jnp.clip(x, min=0.2, max=0.5),
    "sort": lambda x: jnp.sort(x, axis=1, descending=True),
    "zeros_like": lambda x: jnp.zeros_like(x) + jnp.ones((8,)),
    "asarray": lambda x: jnp.asarray([jnp.sum(x), jnp.max(x)]),
    "astype": lambda x: jnp.astype(x * 10, jnp.int32),
    "norm": lambda x: jnp.linalg.norm(x, axis=-1),
    "svdvals": lambda x: jnp.linalg.svdvals(jnp.reshape(x, (-1, 2, 4))),
    "rfft": lambda x: jnp.abs(jnp.fft.rfft(x)),
    "relu": lambda x: jax.nn.relu(x - 0.5),
    "softmax": lambda x: jax.nn.softmax(x, axis=-1),
    "gelu": lambda x: jax.nn.gelu(x, approximate=False),
    "one_hot": lambda x: jax.nn.one_hot(jnp.argmax(x, axis=1), 8),
    "attention": lambda x: jax.nn.dot_product_attention(
        *[jnp.reshape(x, (-1, 2, 2, 2))] * 3
    ),
    "dot_general": lambda x: jax.lax.dot_general(
        x, np.ones((8, 3), np.float32), (((1,), (0,)), ((), ()))
    ),
    "stop_gradient": lambda x: jax.lax.stop_gradient(x),
    "rsqrt": lambda x: jax.lax.rsqrt(x),
    "top_k": lambda x: jax.lax.top_k(x, 3),
    "slice_in_dim": lambda x: jax.lax.slice_in_dim(x, 2, 5, axis=1),
    "erf": lambda x: jax.scipy.special.erf(x),
    "logit": lambda x: jax.scipy.special.logit(x),
    "logsumexp": lambda x: jax.scipy.special.logsumexp(x, axis=1),
}


@pytest.mark.parametrize("name", CASES)
def test_a_graph_computes_what_the_function_does_on_arrays(name):
    x = Input((8,))
    wanted = CASES[name](jnp.asarray(X))
    outputs = CASES[name](x)
    leaves = jax.tree.leaves(outputs)
    assert all(isinstance(leaf, Symbol) for leaf in leaves)
    model = Model(x, outputs)
    config = json.loads(json.dumps(model.get_config()))
    for one in (model, Model.from_config(config), model.clone()):
        got = jax.tree.leaves(one(X))
        for a, b, leaf in zip(got, jax.tree.leaves(wanted), leaves, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-6)
            assert a.dtype == leaf.dtype
            for size, known in zip(a.shape, leaf.shape, strict=True):
                assert known in (size, None)


def test_images_with_a_fixed_batch_are_resized():
    x = Input((6, 6, 3), batch_size=2)
    y = jax.image.resize(x, (2, 3, 3, 3), method="bilinear")
    got = Model.from_config(Model(x, y).get_config())(IMAGE)
    wanted = jax.image.resize(IMAGE, (2, 3, 3, 3), method="bilinear")
    np.testing.assert_allclose(got, wanted, rtol=1e-6)


def test_a_model_of_such_functions_trains():
    rng = np.random.default_rng(0)
    data = rng.standard_normal((256, 8)).astype(np.float32)
    target = np.abs(data).sum(1, keepdims=True)
    x = Input((8,))
    both = jnp.concatenate([jax.nn.relu(x), jax.nn.relu(jnp.negative(x))], axis=-1)
    model = Model(x, layers.Dense(1)(both))
    model.compile("adam", "mse", seed=0)
    model.optimizer.learning_rate = 0.1
    history = model.fit(data, target, epochs=20, verbose=0).history
    assert history["loss"][-1] < 0.05 * history["loss"][0]


def test_facts_come_from_the_symbol():
    x = Input((8,), dtype="bfloat16")
    assert jnp.shape(x) == (None, 8)
    assert jnp.ndim(x) == 2
    assert jnp.size(x, 1) == 8
    assert jnp.size(Input((8,), batch_size=3)) == 24
    assert jnp.result_type(x, jnp.float32) == jnp.float32
    assert jax.lax.dtype(x) == jnp.bfloat16
    assert not jnp.iscomplexobj(x)
    assert jnp.isrealobj(x)
    assert not jnp.isscalar(x)
    with pytest.raises(DTypeError, match="not known"):
        jnp.size(x)
    with pytest.raises(ShapeError, match="do not fit"):
        jnp.concatenate([x, Input((8, 2))], axis=1)


def test_names_come_from_a_closed_list():
    listed = jax_dispatch._table()
    assert len(listed) > 500
    for name, function in listed.items():
        assert function_named(name) is function
        assert name_of(function) == name
        assert original(function) is function
    refused = ("jax.numpy.load", "jax.numpy.save", "jax.numpy.fromfile", "os.system")
    for name in (*refused, "jax.numpy.float32", "jax.jit", "jax.lax.linalg"):
        assert function_named(name) is None, name
    x = Input((8,))
    config = Model(x, jax.lax.rsqrt(x)).get_config()
    entry = config["layers"][1]
    assert entry["operation"] == "jax.lax.rsqrt"
    entry["operation"] = "jax.numpy.load"
    with pytest.raises(UnknownNameError):
        Model.from_config(config)
    # Without an input it would not be traced but computed: memory for the asking.
    entry["operation"] = "jax.numpy.ones"
    entry["inbound_nodes"][0]["args"] = [3]
    with pytest.raises(FileFormatError, match="no input"):
        Model.from_config(config)


FUNCTIONS = {
    "jitted": "tanh",
    "plain": "concatenate",
    "ufunc": "add",
    "custom derivative": "relu",
}


@pytest.mark.parametrize("kind", FUNCTIONS)
def test_the_public_names_behave_like_the_functions_behind_them(kind):
    Input((8,))  # from here on the names are extended
    name = FUNCTIONS[kind]
    space = jax.nn if name == "relu" else jnp
    front = getattr(space, name)
    behind = original(front)
    assert jax_dispatch.is_extended()
    assert front is not behind
    assert isinstance(front, type(behind)) or inspect.isfunction(front)
    assert front.__name__ == name
    assert front.__doc__ == behind.__doc__
    assert inspect.signature(front) == inspect.signature(behind)
    assert pickle.loads(pickle.dumps(front)) is front
    assert copy.deepcopy(front) is front
    assert all(hasattr(front, n) for n in dir(behind) if not n.startswith("_"))
    args = ([X, X],) if name == "concatenate" else (X, X) if name == "add" else (X,)
    np.testing.assert_array_equal(front(*args), behind(*args))
    for transform in (jax.jit, jax.vmap):
        got, wanted = transform(front)(*args), transform(behind)(*args)
        np.testing.assert_array_equal(got, wanted)
    grads = [jax.grad(lambda *a, f=f: f(*a).sum())(*args) for f in (front, behind)]
    np.testing.assert_array_equal(*map(np.asarray, grads))


def test_methods_of_the_functions_remain():
    Input((8,))
    assert isinstance(jnp.add, jnp.ufunc)
    assert int(jnp.add.reduce(jnp.arange(5))) == 10
    assert jnp.add.nin == 2
    assert jnp.add.at(jnp.zeros(3), jnp.array([1]), 2.0, inplace=False)[1] == 2
    assert callable(jax.nn.relu.defjvps)
    assert "tanh" in jnp.tanh.lower(1.0).as_text()

    class Holder:
        unbound, method = jnp.add, jnp.concatenate

    assert Holder().unbound(1, 2) == 3  # jnp.ufunc binds no instance
    assert inspect.ismethod(Holder().method)


def test_lookups_by_identity_see_the_function_behind():
    Input((8,))
    assert activations.get(jax.nn.relu) is jax.nn.relu
    for function in (jax.nn.relu, jax.nn.gelu, jnp.tanh, jax.nn.silu):
        name = json.loads(json.dumps(activations.serialize(function)))
        assert activations.deserialize(name) is original(function)
    dense = layers.Dense(3, activation=jax.nn.relu)
    again = layers.Dense.from_config(dense.get_config())
    assert again.activation is original(dense.activation)
    x = Input((8,))
    assert fn(jnp.tanh)(x).call.callee.fn is jnp.tanh(x).call.callee.fn


def test_a_function_imported_earlier_says_what_to_do():
    with pytest.raises(GraphError, match="before the first Input"):
        original(jnp.tanh)(Input((8,)))


def test_programs_name_the_callers_line():
    Input((8,))
    text = jax.jit(lambda x: jnp.tanh(x)).lower(1.0).as_text(debug_info=True)
    assert "test_jax_dispatch.py" in text
    assert "exburn/core/jax_dispatch.py" not in text


def test_arrays_pass_at_once():
    """A front calls nothing but its function, or looks once into a list."""
    called = []

    def nothing(*args, **kwargs):
        return None

    front = jax_dispatch._front(nothing, "jax.numpy.nothing", Symbol, nothing)
    array = jnp.ones(3)
    for args, calls in ((array,), 2), ((array, array), 2), (([array, array], 0), 3):
        called.clear()
        sys.setprofile(lambda frame, event, _: called.append((event, frame)))
        front(*args)
        sys.setprofile(None)
        assert sum(event == "call" for event, _ in called) == calls


def test_functions_that_jax_knows_by_identity_are_passed_on_as_they_are():
    Input((2,))  # from now on the public names are fronts
    image = jnp.arange(16.0).reshape(1, 4, 4, 1)
    window = (1, 2, 2, 1)

    def pooled(x):
        least = -jnp.inf
        return jax.lax.reduce_window(x, least, jax.lax.max, window, window, "VALID")

    gradient = jax.grad(lambda x: pooled(x).sum())(image)
    assert gradient.sum() == 4 and gradient[0, 3, 3, 0] == 1
    total = jax.lax.reduce(image, 0.0, computation=jax.lax.add, dimensions=(0, 1, 2))
    assert float(total[0]) == 120
