"""Precision policies: of the process, a model, a layer; and of matrix products."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import exburn
from exburn import PrecisionPolicy, layers
from exburn.errors import DTypeError, FileFormatError, UnknownNameError
from exburn.module.selection import layer_paths
from exburn.module.traversal import iter_weights

POLICIES = ("float32", "bfloat16", "float16", "mixed_bfloat16", "mixed_float16")
X = np.random.default_rng(0).standard_normal((6, 5, 4)).astype(np.float32)


def dtypes(model):
    return {path: str(w.get_value().dtype) for path, w, _ in iter_weights(model)}


def stack(**options):
    return exburn.Sequential(
        [
            exburn.Input((5, 4)),
            layers.LSTM(3),
            layers.BatchNormalization(),
            layers.Dense(2),
        ],
        **options,
    )


def functional(**options):
    x = exburn.Input((5, 4))
    y = layers.LSTM(3)(x)
    y = layers.BatchNormalization()(y * 2.0)
    return exburn.Model(x, layers.Dense(2)(y), **options)


class Subclass(exburn.Model):
    def __init__(self, **options):
        super().__init__(**options)
        self.lstm, self.norm = layers.LSTM(3), layers.BatchNormalization()
        self.dense = layers.Dense(2)

    def call(self, x):
        return self.dense(self.norm(self.lstm(x)))


BUILDERS = {"sequential": stack, "functional": functional, "subclass": Subclass}


@pytest.mark.parametrize("name", POLICIES)
@pytest.mark.parametrize("kind", BUILDERS)
def test_of_the_process_and_of_a_model(kind, name):
    policy = PrecisionPolicy.of(name)
    mine = BUILDERS[kind](dtype=name)
    assert mine(X).dtype == policy.compute
    exburn.set_precision(name)
    theirs = BUILDERS[kind]()
    exburn.set_precision("float32")
    assert theirs(X).dtype == policy.compute
    for model in (mine, theirs):
        for path, dtype in dtypes(model).items():
            # Statistics of half precision would swallow their own small steps.
            assert dtype == ("float32" if "moving" in path else policy.param)


@pytest.mark.parametrize("kind", ["sequential", "functional"])
def test_the_symbols_of_a_model_know_its_dtypes(kind):
    model = BUILDERS[kind](dtype="bfloat16")
    assert model.output.dtype == model.layers[-1].output.dtype == "bfloat16"
    inner = exburn.Model(model.input, model.get_layer("lstm").output)
    assert inner(X).dtype == jnp.bfloat16


def test_a_layer_keeps_a_policy_of_its_own():
    model = exburn.Sequential(
        [
            exburn.Input((4,)),
            layers.Dense(3),
            layers.Dense(2, dtype="float32", name="head"),
        ],
        dtype="mixed_float16",
    )
    assert [x.precision.name for x in model.layers] == ["mixed_float16", "float32"]
    assert model.predict(X[:, 0], verbose=0).dtype == np.float32


def test_a_nested_model_follows_unless_it_has_a_policy():
    def outer(**inner_options):
        inner = exburn.Sequential([layers.Dense(3)], name="inner", **inner_options)
        stack = [exburn.Input((4,)), inner, layers.Dense(2)]
        return exburn.Sequential(stack, dtype="bfloat16")

    assert set(dtypes(outer()).values()) == {"bfloat16"}
    kept = dtypes(outer(dtype="float32"))
    assert kept["inner/dense/kernel"] == "float32"
    assert kept["dense/kernel"] == "bfloat16"


def test_layers_made_in_build_follow_the_layer_that_makes_them():
    class Late(exburn.Layer):
        def build(self, shape):
            self.inner = layers.Dense(3)

        def call(self, x):
            return self.inner(x)

    stack = [exburn.Input((4,)), Late(), layers.Reshape((3, 1))]
    attention = layers.MultiHeadAttention(2, 4)
    x = exburn.Input((3, 1))
    inner = exburn.Model(x, attention(x, x), name="inner")
    model = exburn.Sequential([*stack, inner], dtype="bfloat16")
    assert set(dtypes(model).values()) == {"bfloat16"}


def test_the_policy_of_a_built_model_can_be_set():
    model = functional()
    weights, before = model.get_weights(), model(X)
    model.precision = "bfloat16"
    assert {d for p, d in dtypes(model).items() if "moving" not in p} == {"bfloat16"}
    assert model.output.dtype == model(X).dtype.name == "bfloat16"
    np.testing.assert_allclose(model(X).astype(np.float32), before, atol=0.02)
    model.precision = "float32"
    for now, then in zip(model.get_weights(), weights, strict=True):
        np.testing.assert_allclose(now, then, rtol=2**-8)


def test_setting_a_policy_reaches_a_loaded_model():
    model = functional(dtype="mixed_bfloat16")
    twin = exburn.Model.from_config(model.get_config())
    assert dtypes(twin) == dtypes(model)
    assert twin.get_layer("lstm").compute_dtype == "bfloat16"
    twin.precision = "float32"
    assert twin(X).dtype == jnp.float32


def test_weights_without_changes_are_drawn_again_after_a_cast():
    model, plain = stack(), stack()
    model.precision = "bfloat16"
    model.compile("sgd", "mse", seed=3)
    plain.compile("sgd", "mse", seed=3)
    for ours, theirs in zip(model.get_weights(), plain.get_weights(), strict=True):
        np.testing.assert_allclose(ours.astype(np.float32), theirs, rtol=2**-7)


def test_the_output_dtype_of_a_model_is_that_of_its_outputs_alone():
    policy = PrecisionPolicy(compute="bfloat16", output="float32")
    model = stack(dtype=policy)
    assert model(X).dtype == jnp.float32
    assert {x.precision.output for x in model.layers} == {None}
    assert model.layers[0](X).dtype == jnp.bfloat16
    again = exburn.Sequential.from_config(model.get_config())
    assert again.precision == policy and again(X).dtype == jnp.float32


def test_an_output_dtype_keeps_masks():
    model = exburn.Sequential(
        [
            exburn.Input((None,), dtype="int32"),
            layers.Embedding(5, 3, mask_zero=True),
            layers.Dense(
                3, dtype=PrecisionPolicy(compute="bfloat16", output="float32")
            ),
            layers.GlobalAveragePooling1D(),
        ]
    )
    ids = np.array([[1, 2, 0, 0]])
    np.testing.assert_allclose(model(ids), model(ids[:, :2]), rtol=1e-5)


@pytest.mark.parametrize("policy", [*POLICIES, PrecisionPolicy("bfloat16", "float32")])
def test_identifiers_make_the_policy_again(policy):
    policy = PrecisionPolicy.of(policy)
    assert PrecisionPolicy.of(policy.identifier) == policy


REFUSALS = [
    (lambda: PrecisionPolicy.of({"sum": "float32"}), DTypeError),
    (lambda: PrecisionPolicy.of("mixed_float4"), UnknownNameError),
    (lambda: PrecisionPolicy(param="floaty"), DTypeError),
    (lambda: PrecisionPolicy(matmul="best"), UnknownNameError),
    (lambda: exburn.set_matmul_precision("tf32"), UnknownNameError),
    (lambda: layers.Dense(2, dtype="mixed_f16"), UnknownNameError),
]


# ------------------------------------------------------------------ matrix products
def products(fn, *args):
    """The precisions of the contractions of a program."""
    found = []

    def walk(jaxpr):
        for equation in getattr(jaxpr, "jaxpr", jaxpr).eqns:
            if equation.primitive.name in ("dot_general", "conv_general_dilated"):
                precision = equation.params["precision"]
                found.append(precision and precision[0])
            for value in equation.params.values():
                for inner in value if isinstance(value, list | tuple) else [value]:
                    if hasattr(getattr(inner, "jaxpr", inner), "eqns"):
                        walk(inner)

    walk(jax.make_jaxpr(fn)(*args))
    return found


@pytest.mark.usefixtures("cpu_only")
def test_matmul_precision_of_the_process_and_of_layers():
    highest, high = jax.lax.Precision.HIGHEST, jax.lax.Precision.HIGH
    model = exburn.Sequential(
        [
            exburn.Input((4,)),
            layers.Dense(3, dtype=PrecisionPolicy(matmul="highest")),
            layers.Dense(2),
        ]
    )
    assert products(model, X[:, 0]) == [highest, None]
    assert exburn.set_matmul_precision("tensorfloat32") is None
    assert products(model, X[:, 0]) == [highest, high]
    assert exburn.set_matmul_precision(None) == "tensorfloat32"
    whole = stack(dtype=PrecisionPolicy(matmul="tensorfloat32"))
    assert set(products(whole, X)) == {high}
    x = jnp.asarray(X[:, 0])
    gradient = jax.grad(lambda x: model(x).sum())
    assert highest in products(gradient, x)[2:]  # the backward pass has it, too


@pytest.mark.usefixtures("cpu_only")
def test_another_matmul_precision_compiles_again():
    model = exburn.Sequential([exburn.Input((4,)), layers.Dense(1)])
    model.compile("sgd", "mse")
    x, y = X[:, 0], X[:, 0, :1]
    model.fit(x, y, verbose=0)
    exburn.set_matmul_precision("highest")
    model.fit(x, y, verbose=0)
    assert model.trace_counts["train"] == 2


def test_the_names_of_keras_dtype_policies():
    policy = exburn.DTypePolicy("mixed_bfloat16")
    assert layers.Dense(2, dtype=policy).dtype_policy is policy
    policies = exburn.dtype_policies
    assert policies.get("float16") == policies.DTypePolicy("float16")
    assert policies.deserialize(policies.serialize(policy)) == policy
    assert exburn.FloatDTypePolicy().name == exburn.config.dtype_policy().name


def attention(**options):
    x = exburn.Input((5, 4))
    return exburn.Model(x, layers.MultiHeadAttention(2, 2, name="mha")(x, x), **options)


def both_ways(**options):
    stack = [exburn.Input((5, 4)), layers.Bidirectional(layers.LSTM(3), name="both")]
    return exburn.Sequential(stack, **options)


@pytest.mark.parametrize("copied", ["saved", "cloned"])
@pytest.mark.parametrize(
    ("make", "path", "policy"),
    [
        (both_ways, "", "float16"),
        (both_ways, "both/backward_layer", "bfloat16"),
        (attention, "mha/value", "mixed_bfloat16"),
        (attention, "mha/value", PrecisionPolicy(compute="bfloat16", matmul="highest")),
    ],
)
def test_copies_and_files_have_the_policies_set_later(
    make, path, policy, copied, tmp_path
):
    def policies(model):
        found = {path: layer.precision for path, layer in layer_paths(model).items()}
        return found, dtypes(model), model.frozen_layers

    model = make()
    layer_paths(model).get(path, model).precision = policy
    model.freeze(list(layer_paths(model))[-1])
    if copied == "cloned":
        copy = model.clone()
    else:
        model.save(tmp_path / "m.exburn")
        copy = exburn.saving.load_model(tmp_path / "m.exburn")
    assert PrecisionPolicy.of(policy) in policies(copy)[0].values()
    assert policies(copy) == policies(model) and copy.changes == model.changes
    assert (copy.predict(X, verbose=0) == model.predict(X, verbose=0)).all()


@exburn.register(package="test_policies")
class Plain(exburn.Model):
    """Its arguments tell nothing of dtypes."""

    def __init__(self):
        super().__init__()
        self.dense = layers.Dense(3)

    def call(self, x):
        return self.dense(x)


@pytest.mark.parametrize("name", ["bfloat16", "mixed_float16"])
def test_a_file_is_read_with_the_default_policy_that_it_was_made_with(name, tmp_path):
    exburn.set_precision(name)
    model = Plain()
    model(X)
    model.save(tmp_path / "m.exburn")
    exburn.set_precision("float32")
    loaded = exburn.saving.load_model(tmp_path / "m.exburn")
    assert loaded.precision == loaded.dense.precision == PrecisionPolicy.of(name)
    assert dtypes(loaded) == dtypes(model)
    assert exburn.get_precision() == layers.Dense(3).precision == PrecisionPolicy()


@pytest.mark.parametrize(
    "record",
    [
        {"policy": "float12", "layers": ["lstm"]},
        {"policy": {"sum": "float32"}, "layers": ["lstm"]},
        {"policy": "float16", "layers": ["lstm/none"]},
        {"policy": "float16", "layers": None},
    ],
)
def test_a_bad_record_of_a_policy_is_refused(record):
    with pytest.raises(FileFormatError, match="precision"):
        stack().repeat_changes([{"kind": "precision", **record}])
