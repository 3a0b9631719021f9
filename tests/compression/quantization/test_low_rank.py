"""Terms beside weights: what each kind computes, beside NumPy."""

import jax
import numpy as np
import pytest

import exburn
from exburn import errors, layers
from exburn.compression.quantization.low_rank import LowRank, RowAdapters
from exburn.core import forward_context
from exburn.core.forward_context import Context
from exburn.module.traversal import iter_weights

CASES = {
    "dense": (lambda: layers.Dense(40, name="dense"), (6, 16)),
    "einsum": (
        lambda: layers.EinsumDense("...x,xyz->...yz", (4, 5), bias_axes="yz"),
        (6, 16),
    ),
    "joined": (lambda: layers.EinsumDense("...nh,nho->...o", (20,)), (6, 2, 8)),
    "tail": (lambda: layers.EinsumDense("ab...,bc->ac...", (20,)), (16, 3)),
    "batch": (lambda: layers.EinsumDense("bnd,nde->bne", (6, 24)), (6, 16)),
    "conv": (lambda: layers.Conv1D(24, 3), (6, 16)),
    "embedding": (lambda: layers.Embedding(50, 32), (7,)),
}


def adapted(name, stored=None, /, **options):
    make, shape = CASES[name]
    dtype = "int32" if name == "embedding" else "float32"
    layer = make()
    model = exburn.Sequential([exburn.Input(shape, dtype=dtype), layer])
    model = model.quantize(stored) if stored else model
    rng = np.random.default_rng(0)
    if name == "embedding":
        x = rng.integers(0, 50, (3, *shape)).astype(np.int32)
    else:
        x = rng.standard_normal((3, *shape)).astype(np.float32)
    before = np.asarray(model(x))
    model.add_lora(3, **{"alpha": 5, **options})
    np.testing.assert_allclose(model(x), before, atol=1e-5)
    layer = model.layers[0]
    b = layer._low_rank.weights(layer)["lora_b"]
    b.assign(rng.standard_normal(b.shape) * 0.1)
    return model, layer, x


@pytest.mark.parametrize("stored", [None, "int4"])
@pytest.mark.parametrize("kind", ["lora", "rslora", "dora"])
@pytest.mark.parametrize("name", CASES)
def test_a_layer_computes_as_with_the_weight_in_whole(name, kind, stored):
    model, layer, x = adapted(name, stored, kind=kind)
    term: LowRank = layer._low_rank
    scale = 5 / np.sqrt(3) if kind == "rslora" else 5 / 3
    assert term.scale == pytest.approx(scale)
    a, b = layer.lora_a.numpy(), layer.lora_b.numpy()
    total = np.tensordot(a, b, 1) * scale
    total = total.transpose(np.argsort(term.summed + term.kept_axes))
    total += np.asarray(getattr(layer, term.attribute))
    if kind == "dora":
        layer.lora_magnitude.assign(layer.lora_magnitude.numpy() * 1.5)
        norm = np.sqrt((total**2).sum(term.summed, keepdims=True))
        total *= layer.lora_magnitude.numpy().reshape(norm.shape) / norm
    outputs = model.predict(x, verbose=0)
    inputs = exburn.Input(x.shape[1:], dtype=x.dtype.name)
    plain = exburn.Sequential([inputs, CASES[name][0]()])
    exact = plain.layers[0]
    getattr(exact, term.attribute).assign(total)
    if getattr(exact, "bias", None) is not None:
        exact.bias.assign(layer.bias.numpy())
    np.testing.assert_allclose(outputs, plain.predict(x, verbose=0), atol=2e-5)
    if not stored:
        model.merge_lora()
        np.testing.assert_allclose(
            getattr(layer, term.attribute).numpy(), total, atol=1e-5
        )


def test_the_way_back_of_a_tied_table_has_the_term_too():
    layer = layers.ReversibleEmbedding(40, 16)
    x = exburn.Input((5,), dtype="int32")
    model = exburn.Model(x, layer(layer(x), reverse=True))
    ids = np.arange(10).reshape(2, 5).astype(np.int32)
    model.add_lora(2, kind="dora")
    rng = np.random.default_rng(0)
    layer.lora_b.assign(rng.standard_normal(layer.lora_b.shape))
    layer.lora_magnitude.assign(2 * layer.lora_magnitude.numpy())
    outputs = model.predict(ids, verbose=0)
    model.merge_lora()
    np.testing.assert_allclose(model.predict(ids, verbose=0), outputs, rtol=1e-4)


@pytest.mark.parametrize("stored", [None, "nf4"])
@pytest.mark.parametrize("kind", ["lora", "dora"])
def test_dropout_is_of_the_inputs_of_the_term(kind, stored):
    model, _, x = adapted("dense", stored, dropout=0.5, kind=kind)
    still = np.asarray(model(x))
    np.testing.assert_array_equal(still, model(x))
    draws = [np.asarray(model(x, training=True)) for _ in range(2)]
    assert np.abs(draws[0] - still).max() > 1e-3
    many = np.mean([np.asarray(model(x, training=True)) for _ in range(400)], 0)
    np.testing.assert_allclose(many, still, atol=0.4 * np.abs(still).max())
    if kind == "lora":  # what the weight itself sees is not dropped
        model.layers[0].lora_b.assign(np.zeros(model.layers[0].lora_b.shape))
        base = np.asarray(model(x))
        np.testing.assert_array_equal(model(x, training=True), base)


def test_dora_is_not_trained_through_the_norm():
    model, layer, x = adapted("dense", kind="dora")
    weights = {path: w for path, w, learns in iter_weights(model) if learns}
    assert set(weights) == {"dense/lora_a", "dense/lora_b", "dense/lora_magnitude"}

    values = {k: w.get_value() for k, w in weights.items()}
    kernel, bias = layer.kernel.get_value(), layer.bias.get_value()
    a, b, m = (values[f"dense/{k}"] for k in ("lora_a", "lora_b", "lora_magnitude"))
    fixed = np.linalg.norm(kernel + a @ b * layer._low_rank.scale, axis=0)

    def loss(a, b, m):
        total = (kernel + a @ b * layer._low_rank.scale) * (m / fixed)
        return ((x @ total + bias) ** 2).mean()

    slopes = jax.grad(loss, (0, 1, 2))(a, b, m)
    before = [np.array(v) for v in (a, b, m)]
    model.compile(exburn.optimizers.SGD(0.1), "mse")
    model.fit(x, np.zeros((3, 6, 40), np.float32), epochs=1, verbose=0)
    after = [layer.lora_a, layer.lora_b, layer.lora_magnitude]
    for old, new, slope in zip(before, after, slopes, strict=True):
        np.testing.assert_allclose(new.numpy(), old - 0.1 * slope, atol=1e-5)


def rows_of(layer, x, numbers, names, training=False):
    """The layer's outputs in a pass that names adapters for rows."""
    with forward_context.forward(Context(training=training)) as ctx:
        ctx.adapters = RowAdapters(np.array(numbers, np.int32), names)
        return np.asarray(layer(x))


@pytest.mark.parametrize("stored", [None, "int8"])
@pytest.mark.parametrize("name", [n for n in CASES if n != "conv"])
def test_each_row_has_its_own_adapter(name, stored):
    model, layer, x = adapted(name, stored, name="a", alpha=3)
    rng = np.random.default_rng(1)
    for rank, (other, kind) in enumerate([("b", "rslora"), ("c", "dora")], 4):
        model.add_lora(rank, kind=kind, name=other)
        b = layer.lora_adapters[other]["lora_b"]
        b.assign(rng.standard_normal(b.shape) * 0.1)
    layer.lora_adapters["c"]["lora_magnitude"].assign(
        1.5 * layer.lora_adapters["c"]["lora_magnitude"].numpy()
    )
    x = np.concatenate([x, x])[:5]
    names = ("a", "b", "c")
    outputs = {}
    for number, active in enumerate((*names, None)):
        model.set_adapter(active)
        outputs[number] = outputs[number - 4] = np.asarray(layer(x))
    model.set_adapter("b")
    numbers = [2, -1, 0, 1, 0]
    y = rows_of(layer, x, numbers, names)
    for row, number in enumerate(numbers):
        np.testing.assert_allclose(y[row], outputs[number][row], atol=1e-5)
    np.testing.assert_array_equal(y[1], outputs[-1][1])
    alone = rows_of(layer, x, [0] * 5, ("a",))  # by the products of the active one
    np.testing.assert_array_equal(alone, outputs[0])
    # What one adapter holds does not reach the rows of others.
    b = layer.lora_adapters["b"]["lora_b"]
    b.assign(np.full(b.shape, np.nan))
    broken = rows_of(layer, x, numbers, names)
    assert np.isnan(broken[3]).all() and not np.isnan(np.delete(broken, 3, 0)).any()
    np.testing.assert_array_equal(np.delete(broken, 3, 0), np.delete(y, 3, 0))


def test_what_cannot_be_computed_by_row_is_refused():
    model, layer, x = adapted("conv", name="a")
    with pytest.raises(errors.ArgumentError, match="adds them to its weight") as said:
        rows_of(layer, x, [0, -1, 0], ("a",))
    assert layer.name in str(said.value)
    np.testing.assert_array_equal(  # an adapter that no row has
        rows_of(layer, x, [-1] * 3, ()), (model.set_adapter(None), layer(x))[1]
    )
    model, layer, x = adapted("dense", name="a", dropout=0.5)
    with pytest.raises(errors.ArgumentError, match="dropout in training"):
        rows_of(layer, x, [0, -1, 0], ("a",), training=True)
    with pytest.raises(errors.ArgumentError, match="3 rows, the pass 2"):
        rows_of(layer, x, [0, -1], ("a",))
    moved = layers.EinsumDense("abd,bc->dac", (2, 20))
    x = np.ones((2, 16, 3), np.float32)
    moved(x)
    moved.enable_lora(2)
    with pytest.raises(errors.ArgumentError, match="moves the rows"):
        rows_of(moved, x, [0, -1], ("default",))
