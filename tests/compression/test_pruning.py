"""Masks: which numbers go, when, and what they survive."""

import pickle

import jax
import numpy as np
import pytest

import exburn
from exburn.compression import (
    ConstantSparsity,
    PolynomialSparsity,
    SparsitySchedule,
    apply_masks,
    masks,
    sparsity,
    strip,
)
from exburn.compression.masking.masks import pack, unpack
from exburn.compression.masking.plan import PruningPlan
from exburn.compression.quantization.gptq import round_by_gptq
from exburn.compression.quantization.scheme import Scheme
from exburn.errors import ArgumentError, FileFormatError, UnknownNameError
from exburn.layers import LSTM, Conv2D, Dense, DepthwiseConv2D, Embedding, Flatten

RNG = np.random.default_rng(0)
X = RNG.normal(size=(64, 16)).astype(np.float32)
Y = (X @ RNG.normal(size=(16, 5))).argmax(-1)


def make(optimizer=None, **options):
    layers = [exburn.Input((16,)), Dense(16, "relu"), Dense(5)]
    model = exburn.Sequential(layers)
    optimizer = optimizer or exburn.optimizers.SGD(0.1, momentum=0.9)
    model.compile(optimizer, "cross_entropy", seed=1, **options)
    return model


def fits(kernel, left=2, size=4, axis=0):
    rows = np.moveaxis(np.asarray(kernel, np.float32), axis, -1).reshape(-1, size)
    return bool(((rows != 0).sum(-1) <= left).all())


# ------------------------------------------------------------------ which numbers
@pytest.mark.parametrize("scope", ["global", "layer"])
def test_the_least_magnitudes_go(scope):
    """As many as are asked for, the first of equal ones, and what had gone before."""
    weights = {"a": RNG.normal(size=(7, 9)), "b": RNG.normal(size=(4, 3, 5)) * 3}
    weights["a"][2:4] = 0.25  # many are equal
    weights["a"][0, 0], weights["b"][0, 0, 0] = np.inf, 1e-30
    weights = {name: w.astype(np.float32) for name, w in weights.items()}
    gone = {name: np.zeros(w.shape, bool) for name, w in weights.items()}
    gone["b"][3] = True  # large numbers
    shapes = {name: w.shape for name, w in weights.items()}
    plan = PruningPlan(0.5, ConstantSparsity(), None, scope, {"a": 0, "b": 0}, shapes)
    bits = {name: pack(~g) for name, g in gone.items()}
    new = jax.jit(plan.advance)(weights, bits, 0)
    found = {
        name: ~np.asarray(unpack(new[name], w.shape)) for name, w in weights.items()
    }
    for names in [["a", "b"]] if scope == "global" else [["a"], ["b"]]:
        flat = [np.where(gone[n], -1, np.abs(weights[n])).ravel() for n in names]
        flat = np.concatenate(flat)
        expected = np.zeros(flat.size, bool)
        expected[np.argsort(flat, kind="stable")[: round(flat.size / 2)]] = True
        both = np.concatenate([found[n].ravel() for n in names])
        np.testing.assert_array_equal(both, expected)


def test_schedules_follow_their_formulas():
    cubic = PolynomialSparsity(begin=100, end=300, every=50)
    steps = np.array([0, 100, 149, 150, 299, 300, 9999])
    share = 1 - (1 - np.array([0, 0, 0, 50, 150, 200, 200]) / 200) ** 3
    np.testing.assert_allclose(cubic(steps), share, rtol=1e-6)
    assert (
        PolynomialSparsity.from_config(cubic.get_config()).get_config()
        == cubic.get_config()
    )
    np.testing.assert_array_equal(ConstantSparsity(2)(np.arange(4)), [0, 0, 1, 1])


def test_masks_grow_within_the_step_and_stay_zero():
    model = make()
    before = model.get_weights()
    pruned = exburn.prune(model, 0.75, PolynomialSparsity(begin=2, end=8, every=2))
    assert all(map(np.array_equal, model.get_weights(), before))
    assert sparsity(pruned).total == 0
    seen, last = [], None
    for _ in range(5):
        pruned.fit(X, Y, batch_size=32, epochs=1, verbose=0)
        now = masks(pruned)
        for path, mask in now.items():
            kernel = pruned.get_layer(path.partition("/")[0]).kernel.numpy()
            assert not kernel[~mask].any() and kernel[mask].all()
            assert last is None or not (mask & ~last[path]).any()
        seen.append(sum((~m).sum() for m in now.values()))
        last = now
    final = 0.75 * 16 * 21
    share = 1 - (1 - np.array([0, 2, 4, 6, 6]) / 6) ** 3
    assert seen == list(np.floor(share * final + 1e-3))
    assert int(pruned.pruning_step.value) == 10


def test_a_pattern_grows_within_each_group():
    """Also over masks that have as many zeros in other places."""
    weight = RNG.normal(size=(16, 6)).astype(np.float32)
    plan = PruningPlan(
        0.5,
        PolynomialSparsity(0, 8, power=1, every=1),
        (2, 4),
        "layer",
        {"w": 0},
        {"w": (16, 6)},
    )
    advance = jax.jit(plan.advance)
    bits = {"w": pack(np.ones(weight.shape, bool))}
    for step in range(1, 9):
        bits = advance({"w": weight}, bits, step, step - 1)
        alive = np.asarray(unpack(bits["w"], weight.shape))
        groups = alive.reshape(4, 4, 6).sum(1)
        assert (groups == 4 - step * 2 // 8).all()
    order = np.abs(weight).reshape(4, 4, 6).argsort(1).argsort(1)
    np.testing.assert_array_equal(alive.reshape(4, 4, 6), order >= 2)
    first = {"w": pack(np.arange(16)[:, None] >= 8 + np.zeros((1, 6)))}
    for step in range(1, 9):
        first = advance({"w": weight}, first, step, step - 1)
    alive = np.asarray(unpack(first["w"], weight.shape))
    assert (alive.reshape(4, 4, 6).sum(1) == np.array([0, 0, 2, 2])[:, None]).all()


PRUNINGS = {
    "at once": {"sparsity": 0.6},
    "at once, each layer": {"sparsity": 0.6, "scope": "layer"},
    "by a schedule": {
        "sparsity": 0.6,
        "schedule": PolynomialSparsity(begin=0, end=4, every=1),
    },
    "of groups": {"pattern": "2:4"},
}


def frozen_masks(model):
    return {path: mask.copy() for path, mask in masks(model).items()}


@pytest.mark.parametrize("name", list(PRUNINGS))
def test_masks_stay_after_the_schedule_whatever_is_frozen(name):
    """Of the weights that go on learning some become smaller than what is left."""
    pruned = exburn.prune(make(exburn.optimizers.Adam(0.05)), **PRUNINGS[name])
    pruned.fit(X, Y, batch_size=16, epochs=2, verbose=0)
    wanted = frozen_masks(pruned)
    if "pattern" not in PRUNINGS[name]:
        assert sparsity(pruned).total == pytest.approx(0.6, abs=0.01)
    for layer in pruned.layers:
        pruned.unfreeze()
        layer.trainable = False
        pruned.fit(X, Y, batch_size=16, epochs=3, verbose=0)
        found = masks(pruned)
        assert all((found[path] == mask).all() for path, mask in wanted.items())


@pytest.mark.filterwarnings("ignore::exburn.errors.ConstantLossWarning")
def test_frozen_layers_count_with_what_they_have():
    """What goes of the others is what would go if nothing were frozen."""
    schedule = PolynomialSparsity(begin=0, end=6, every=1)
    model = make(exburn.optimizers.SGD(0.0))
    plain, partly = (exburn.prune(model, 0.7, schedule) for _ in range(2))
    plain.fit(X, Y, batch_size=16, epochs=1, verbose=0)
    partly.fit(X, Y, batch_size=16, epochs=1, verbose=0)
    first, last = (layer.name for layer in partly.layers)
    early = frozen_masks(partly)[f"{last}/kernel"]
    partly.get_layer(last).trainable = False
    for model in (plain, partly):
        model.fit(X, Y, batch_size=16, epochs=4, verbose=0)
    found, wanted = masks(partly), masks(plain)
    assert (found[f"{first}/kernel"] == wanted[f"{first}/kernel"]).all()
    assert (found[f"{last}/kernel"] == early).all()
    assert (wanted[f"{last}/kernel"] != early).any()
    partly.unfreeze()  # the schedule goes on
    partly.fit(X, Y, batch_size=16, epochs=1, verbose=0)
    assert all((m == wanted[path]).all() for path, m in masks(partly).items())


# ------------------------------------------------------------------ what they survive
@pytest.fixture(scope="module")
def sparse():
    pruned = exburn.prune(make(), pattern="2:4")
    pruned.fit(X, Y, epochs=2, verbose=0)
    return pruned


def test_two_of_four_after_fit_files_copies_and_quantize(sparse, tmp_path):
    kernels = [layer.kernel for layer in sparse.layers]
    assert all(map(fits, kernels)) and sparsity(sparse).total == 0.5
    sparse.save(tmp_path / "model.exburn")
    sparse.save_weights(tmp_path / "model.weights.h5")
    fresh = sparse.clone()
    fresh.load_weights(tmp_path / "model.weights.h5")
    copies = exburn.load_model(tmp_path / "model.exburn"), fresh
    for other in (*copies, pickle.loads(pickle.dumps(sparse))):
        assert all(map(np.array_equal, other.get_weights(), sparse.get_weights()))
        assert other.changes == sparse.changes
    for mode in ("int8", "int8_dynamic", "int4", "float8", "bfloat16"):
        small = sparse.quantize(mode)
        assert all(fits(layer.kernel.get_value()) for layer in small.layers), mode
        kept = mode == "bfloat16"  # it can be trained further
        assert bool(masks(small)) == kept and bool(small.changes[-1]["kind"])
        assert sparsity(small).total == 0.5 or mode != "bfloat16"
    small.save(tmp_path / "small.exburn")
    assert fits(exburn.load_model(tmp_path / "small.exburn").layers[0].kernel)
    plain = strip(sparse)
    assert not masks(plain) and len(plain.weights) == 4 and not plain.changes
    assert sparsity(plain).total == 0.5


def test_adapters_of_pruned_weights_are_pruned(sparse, tmp_path):
    model = exburn.prune(sparse, pattern="2:4")
    model.add_lora(2)
    for weight in (w for w in model.weights if "lora_b" in w.path):
        weight.assign(RNG.normal(size=weight.shape))
    adapted = model.predict(X, verbose=0)
    model.save(tmp_path / "adapted.exburn")
    loaded = exburn.load_model(tmp_path / "adapted.exburn")
    np.testing.assert_array_equal(loaded.predict(X, verbose=0), adapted)
    exact = sparse.predict(X, verbose=0)
    assert np.abs(adapted - exact).max() > 0.1
    model.merge_lora()
    assert all(fits(layer.kernel) for layer in model.layers)
    merged = model.predict(X, verbose=0)
    np.testing.assert_allclose(merged, adapted, rtol=1e-4, atol=1e-4)
    assert [record["kind"] for record in model.changes] == ["pruning"]


def test_layers_of_a_pruned_model_keep_their_masks(sparse, tmp_path):
    model = exburn.Sequential([exburn.Input((16,)), sparse.clone(), Dense(3)])
    assert model.changes[0]["model"] == "sequential"
    part = exburn.Sequential([exburn.Input((16,)), sparse.clone().layers[0], Dense(3)])
    assert "schedule" not in part.changes[0]
    for one in (model, part):
        one.save(tmp_path / "one.exburn", overwrite=True)
        again = exburn.load_model(tmp_path / "one.exburn")
        assert masks(again).keys() == masks(one).keys() != set()
    kernel = part.layers[0].kernel
    kernel.assign(np.ones(kernel.shape))
    apply_masks(part)
    assert fits(kernel) and kernel.numpy().sum() == kernel.numpy().size / 2


def test_gptq_rounds_what_is_left():
    errors = np.zeros(2)
    for seed in range(20):  # of one draw alone either may be the smaller
        rng = np.random.default_rng(seed)
        weight = rng.normal(size=(16, 6)).astype(np.float32)
        kept = rng.random(weight.shape) < 0.5
        inputs = rng.normal(size=(200, 3)) @ rng.normal(size=(3, 16))
        inputs += 0.1 * rng.normal(size=inputs.shape)
        scheme = Scheme("int4", weight.shape, (0,), 8, method="gptq", bits=4)
        gram = (2 * inputs.T @ inputs / 200).astype(np.float32)
        parts = round_by_gptq(weight * kept, scheme, gram, mask=kept)
        read = np.asarray(scheme.decode(*parts))
        assert not read[~kept].any()
        later = round_by_gptq(weight * kept, scheme, gram)
        # Errors of what is cut afterwards are not made up for.
        cut = np.asarray(scheme.decode(*later)) * kept
        errors += [np.square(inputs @ (w - weight * kept)).sum() for w in (read, cut)]
    assert 1.2 * errors[0] < errors[1]


def test_every_kind_of_layer_is_pruned_along_what_it_sums_over():
    image = exburn.Input((6, 6, 4))
    y = Conv2D(8, 3, padding="same")(image)
    y = exburn.layers.Conv2DTranspose(8, 3)(exburn.layers.SeparableConv2D(8, 3)(y))
    y = exburn.layers.Reshape((-1, 8))(DepthwiseConv2D(3)(y))
    y = LSTM(8)(exburn.layers.MultiHeadAttention(2, 4)(y, y))
    model = exburn.prune(exburn.Model(image, Dense(3)(y)), pattern="2:4")
    found = {one.path: one for one in sparsity(model).weights}
    spared = {path for path, one in found.items() if not one.masked}
    assert spared == {"depthwise_conv2d/kernel", "separable_conv2d/depthwise_kernel"}
    axes = {"conv2d/kernel": 2, "conv2d_transpose/kernel": 3, "lstm/cell/kernel": 0}
    axes |= {"multi_head_attention/query/kernel": 0, "lstm/cell/recurrent_kernel": 0}
    axes |= {"multi_head_attention/attention_output/kernel": 1}
    weights = {w.path: w for w in model.weights}
    for path, axis in axes.items():
        assert found[path].share == 0.5 and fits(weights[path], axis=axis), path


def test_a_run_goes_on_in_the_middle_of_its_schedule(tmp_path):
    schedule = PolynomialSparsity(0, 7, every=2)

    def begin():
        return exburn.prune(make(), 0.8, schedule)

    whole = begin()
    whole.fit(X, Y, epochs=4, verbose=0)
    half = begin()
    half.fit(X, Y, epochs=2, verbose=0)
    half.save(tmp_path / "half.exburn")
    again = exburn.load_model(tmp_path / "half.exburn")
    again.fit(X, Y, epochs=4, initial_epoch=2, verbose=0)
    backup = exburn.callbacks.BackupAndRestore(tmp_path / "backup")
    stopped = begin()
    stop = exburn.callbacks.LambdaCallback(on_epoch_begin=lambda e, logs: 1 / (e - 2))
    with pytest.raises(ZeroDivisionError):
        stopped.fit(X, Y, epochs=4, verbose=0, callbacks=[backup, stop])
    resumed = begin()
    resumed.fit(X, Y, epochs=4, verbose=0, callbacks=[backup])
    for other in (again, resumed):
        assert all(map(np.array_equal, other.get_weights(), whole.get_weights()))
    assert sparsity(whole).total == pytest.approx(0.8, abs=0.003)


class OwnStep(exburn.Model):
    """A model that trains itself."""

    def __init__(self):
        super().__init__()
        self.first, self.second = Dense(16, "relu"), Dense(5)

    def call(self, x):
        return self.second(self.first(x))

    def train_step(self, state, data):
        trained, others, slots, metrics = state

        def loss(trained):
            out, new = self.stateless_call(trained, others, data[0], training=True)
            return self.compute_loss(data[0], data[1], out), new

        (value, new), grads = jax.value_and_grad(loss, has_aux=True)(trained)
        trained, slots = self.optimizer.stateless_apply(slots, grads, trained)
        return {"loss": value}, (trained, new, slots, metrics)


@pytest.mark.parametrize(
    "way", ["own", "average", "mean", "clone", "batches", "accumulated"]
)
def test_every_way_to_train_prunes(way):
    schedule = PolynomialSparsity(0, 6, every=2)
    adam = exburn.optimizers.Adam
    optimizer = {"average": adam(use_ema=True)}.get(way)
    if way == "accumulated":
        optimizer = adam(gradient_accumulation_steps=2)
    model = make(optimizer)
    if way == "own":
        model = OwnStep()
        model(X)
        model.compile("adam", "cross_entropy")
    pruned, calls = exburn.prune(model, 0.5, schedule), []
    if way == "clone":
        pruned = exburn.models.clone_model(pruned)  # fresh weights, and masks
    if way == "mean":
        calls = [exburn.callbacks.StochasticWeightAveraging(0)]
    if way == "batches":
        for _ in range(8):
            pruned.train_on_batch(X[:32], Y[:32])
    else:
        pruned.fit(X, Y, epochs=4, verbose=0, callbacks=calls)
    assert int(pruned.pruning_step.value) == 8
    assert sparsity(pruned).total == 0.5


def test_lanes_of_a_sweep_are_pruned():
    pruned = exburn.prune(make(), 0.5, PolynomialSparsity(0, 6, every=2))
    over = {"seed": range(2), "learning_rate": [0.1, 0.01]}
    result = exburn.sweep(pruned, X, Y, over=over, epochs=4, verbose=0)
    assert [sparsity(model).total for model in result.models()] == [0.5] * 4


def test_the_zeros_are_in_files_for_other_runtimes(sparse, tmp_path):
    onnx = pytest.importorskip("onnx")
    pytest.importorskip("onnxruntime")
    sparse.export(tmp_path / "model.onnx")
    graph = onnx.load(tmp_path / "model.onnx").graph
    stored = [onnx.numpy_helper.to_array(one) for one in graph.initializer]
    kernels = [v for v in stored if v.shape in ((16, 16), (16, 5))]
    assert len(kernels) == 2 and all(map(fits, kernels))
    assert not any(v.dtype == np.uint8 for v in stored)


# ------------------------------------------------------------------ bad input
def of_step(share):
    """A schedule of a function of the step."""
    return type(
        "Own", (SparsitySchedule,), {"__call__": lambda self, step: share(step)}
    )()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"sparsity": 1.0}, "0 <= sparsity < 1"),
        ({"sparsity": -0.1}, "0 <= sparsity < 1"),
        ({"sparsity": "much"}, "sparsity"),
        ({"pattern": "2:5"}, "axis 0 has 16 entries"),
        ({"pattern": "4:2"}, "1 ≤ n < m"),
        ({"pattern": "rows"}, "n:m"),
        ({"pattern": "2:4", "sparsity": 0.8}, "is a sparsity of 0.5"),
        ({"scope": "model"}, "scope"),
        ({"schedule": 0.5}, "schedule must be a schedule"),
        ({"schedule": of_step(lambda step: 1.0 if step > 3 else 0.5)}, "compiled step"),
        ({"schedule": of_step(lambda step: None)}, "one number from 0 to 1"),
        ({"schedule": of_step(lambda step: step + np.zeros(3))}, "one number"),
        ({"filters": 3}, "layers are named by strings"),
        (
            {"pattern": "channels", "schedule": ConstantSparsity(3)},
            "channels go at once",
        ),
    ],
)
def test_bad_arguments_are_told_before_anything_is_done(arguments, words):
    with pytest.raises(ArgumentError, match=words.replace("(", r"\(")):
        exburn.prune(make(), **arguments)


def test_records_that_do_not_fit_are_told(sparse):
    record = sparse.changes[0]
    for bad in (
        {"weights": ["dense/bias"]},
        {"weights": ["nowhere/kernel"]},
        {"pattern": "2:5"},
        {"sparsity": 2.0},
        {"schedule": exburn.core.registry.serialize(exburn.losses.MeanSquaredError())},
        {"model": "inner"},
    ):
        with pytest.raises(FileFormatError, match="pruning does not fit"):
            make().repeat_changes([record | bad])


def test_what_cannot_be_pruned_is_told():
    with pytest.raises(UnknownNameError, match="hidden"):
        exburn.prune(make(), filters="hidden")
    adapted = make()
    adapted.add_lora(1)
    with pytest.raises(ArgumentError, match="adapter"):
        exburn.prune(adapted)
    with pytest.raises(ArgumentError, match="no layer can be pruned"):
        exburn.prune(make().quantize("int8"))
    with pytest.raises(ArgumentError, match="a model is needed"):
        exburn.prune(Dense(3))
    for bad in ({"begin": -1}, {"end": 0}, {"begin": 5, "end": 5}, {"every": 0}):
        with pytest.raises(ArgumentError, match="PolynomialSparsity"):
            PolynomialSparsity(**bad)
    table = exburn.Sequential([Embedding(8, 4), Flatten(), Dense(2)])
    table.build((None, 4))
    assert list(masks(exburn.prune(table))) == ["dense/kernel"]
    named = exburn.prune(table, filters=["embedding", "dense"])
    assert list(masks(named)) == ["embedding/embeddings", "dense/kernel"]


def test_a_schedule_of_ones_own(tmp_path):
    class HalfFirst(SparsitySchedule):
        def __call__(self, step):
            return jax.numpy.where(step < 3, 0.5, 1.0)

    exburn.register(HalfFirst)
    pruned = exburn.prune(make(), 0.5, HalfFirst())
    assert sparsity(pruned).total == 0.25
    pruned.save(tmp_path / "own.exburn")
    schedule = exburn.load_model(tmp_path / "own.exburn").changes[0]["schedule"]
    assert schedule["class_name"] == "HalfFirst"
