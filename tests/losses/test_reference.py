"""Every loss against Keras: values, reductions, weights, masks and gradients."""

import jax
import jax.numpy as jnp
import keras
import numpy as np
import pytest

import exburn
from exburn import losses

rng = np.random.default_rng(0)
REAL = rng.normal(size=(6, 4)).astype("float32")
REAL_TRUE = rng.normal(size=(6, 4)).astype("float32")
POSITIVE = rng.uniform(0.1, 5, size=(6, 4)).astype("float32")
COUNTS = rng.integers(0, 6, size=(6, 4)).astype("float32")
PROBS = rng.dirichlet(np.ones(4), size=6).astype("float32")
PROBS_TRUE = rng.dirichlet(np.ones(4), size=6).astype("float32")
UNIT = rng.uniform(0, 1, size=(6, 4)).astype("float32")
BINARY = rng.integers(0, 2, size=(6, 4)).astype("float32")
SIGNS = BINARY * 2 - 1
LABELS = rng.integers(0, 4, size=6).astype("int32")
ONE_HOT = np.eye(4, dtype="float32")[LABELS]
UNIT_ROWS = REAL / np.linalg.norm(REAL, axis=-1, keepdims=True)
PAIRS = np.array([0, 0, 1, 1, 2, 2], "int32")
SEQUENCES = np.array([[1, 2, 0], [3, 3, 0], [1, 0, 0], [2, 1, 2], [3, 0, 0], [1, 1, 0]])
FRAMES = rng.normal(size=(6, 7, 4)).astype("float32")
IMAGES = rng.uniform(size=(6, 5, 5, 3)).astype("float32")
IMAGES_TRUE = rng.integers(0, 2, size=(6, 5, 5, 3)).astype("float32")

CASES = [
    ("MeanSquaredError", {}, REAL_TRUE, REAL),
    ("MeanAbsoluteError", {}, REAL_TRUE, REAL),
    ("MeanAbsolutePercentageError", {}, POSITIVE, REAL),
    ("MeanSquaredLogarithmicError", {}, POSITIVE, REAL),
    ("Huber", {}, REAL_TRUE, REAL),
    ("Huber", {"delta": 0.3}, REAL_TRUE, REAL),
    ("LogCosh", {}, REAL_TRUE, REAL * 10),
    ("CosineSimilarity", {}, REAL_TRUE, REAL),
    ("Hinge", {}, BINARY, REAL),
    ("Hinge", {}, SIGNS, REAL),
    ("SquaredHinge", {}, BINARY, REAL),
    ("SquaredHinge", {}, SIGNS, REAL),
    ("CategoricalHinge", {}, ONE_HOT, REAL),
    ("KLDivergence", {}, PROBS_TRUE, PROBS),
    ("Poisson", {}, COUNTS, POSITIVE),
    ("BinaryCrossentropy", {}, BINARY, UNIT),
    ("BinaryCrossentropy", {"label_smoothing": 0.2}, BINARY, UNIT),
    ("BinaryCrossentropy", {"from_logits": True}, BINARY, REAL * 5),
    ("BinaryCrossentropy", {}, BINARY, BINARY),
    ("BinaryFocalCrossentropy", {}, BINARY, UNIT),
    ("BinaryFocalCrossentropy", {"gamma": 0.7, "from_logits": True}, BINARY, REAL),
    (
        "BinaryFocalCrossentropy",
        {"apply_class_balancing": True, "alpha": 0.3, "label_smoothing": 0.1},
        BINARY,
        UNIT,
    ),
    ("CategoricalCrossentropy", {}, ONE_HOT, PROBS),
    ("CategoricalCrossentropy", {}, ONE_HOT, UNIT),
    ("CategoricalCrossentropy", {"label_smoothing": 0.1}, ONE_HOT, PROBS),
    ("CategoricalCrossentropy", {"from_logits": True}, PROBS_TRUE, REAL * 5),
    ("CategoricalCrossentropy", {"axis": 1, "from_logits": True}, ONE_HOT, REAL),
    ("CategoricalFocalCrossentropy", {}, ONE_HOT, PROBS),
    (
        "CategoricalFocalCrossentropy",
        {"gamma": 3.0, "alpha": 0.5, "from_logits": True, "label_smoothing": 0.1},
        ONE_HOT,
        REAL,
    ),
    ("SparseCategoricalCrossentropy", {}, LABELS, PROBS),
    ("SparseCategoricalCrossentropy", {}, LABELS, UNIT),
    ("SparseCategoricalCrossentropy", {}, LABELS[:, None], PROBS),
    ("SparseCategoricalCrossentropy", {"from_logits": True}, LABELS, REAL * 5),
    (
        "SparseCategoricalCrossentropy",
        {"from_logits": True, "ignore_class": 2},
        LABELS,
        REAL,
    ),
    ("SparseCategoricalCrossentropy", {"ignore_class": 0}, LABELS, PROBS),
    ("CategoricalGeneralizedCrossEntropy", {}, LABELS, PROBS),
    ("CategoricalGeneralizedCrossEntropy", {"q": 0.8}, LABELS, PROBS),
    ("CTC", {}, SEQUENCES, FRAMES),
    ("Circle", {}, PAIRS, UNIT_ROWS),
    ("Circle", {"gamma": 4.0, "margin": 0.2}, PAIRS, UNIT_ROWS),
    ("Circle", {"gamma": 4.0, "remove_diagonal": False}, PAIRS, UNIT_ROWS),
    ("Dice", {"axis": (1, 2, 3)}, IMAGES_TRUE, IMAGES),
    ("Tversky", {"alpha": 0.2, "beta": 0.9, "axis": (1, 2)}, IMAGES_TRUE, IMAGES),
]
IDS = [f"{name}-{i}" for i, (name, *_) in enumerate(CASES)]
OVER_BATCH = [
    ("Dice", {}, IMAGES_TRUE, IMAGES),
    ("Tversky", {"alpha": 0.2, "beta": 0.9}, IMAGES_TRUE, IMAGES),
]
REDUCTIONS = ["sum_over_batch_size", "mean", "sum", "mean_with_sample_weight", "none"]


def close(ours, theirs, tolerance=1e-5):
    ours, theirs = np.asarray(ours), np.asarray(theirs)
    assert ours.shape == theirs.shape
    np.testing.assert_allclose(ours, theirs, rtol=tolerance, atol=tolerance)


def pair(name, options, **more):
    ours = getattr(losses, name)(**options, **more)
    return ours, getattr(keras.losses, name)(**options, **more)


@pytest.mark.parametrize(
    ("name", "options", "y_true", "y_pred"),
    CASES + OVER_BATCH,
    ids=[*IDS, "Dice", "Tversky"],
)
def test_value_and_gradient(name, options, y_true, y_pred):
    ours, theirs = pair(name, options)

    @jax.jit
    def run(y_pred):
        grads = [jax.value_and_grad(lambda p: loss(y_true, p)) for loss in both]  # noqa: B023
        return [grad(y_pred) for grad in grads]

    both = (ours, theirs)
    (value, slope), (expected, expected_slope) = run(jnp.asarray(y_pred))
    close(value, expected)
    assert np.isfinite(slope).all()
    if name != "Circle":  # Keras takes the logarithm of 0 there: NaN gradients
        close(slope, expected_slope)


def by_reduction(name, options, *arguments, **ours_only):
    """Ours and Keras' value for every reduction."""
    values = {}
    for reduction in REDUCTIONS:
        ours, theirs = pair(name, options, reduction=reduction)
        mine = ours(*arguments, **ours_only)
        y_true, y_pred, *weight = arguments
        if "mask" in ours_only:
            y_pred = y_pred + 0
            y_pred._keras_mask = jnp.asarray(ours_only["mask"])
        values[reduction] = mine, theirs(y_true, y_pred, *weight)
    return values


@pytest.mark.parametrize(
    ("name", "options", "y_true", "y_pred"),
    # Those that mask by themselves: see test_masks.
    [case for case in CASES if "ignore_class" not in case[1] and case[0] != "Circle"],
)
def test_reductions_with_weights(name, options, y_true, y_pred):
    shape = (6, 3) if name == "Tversky" else (6,)
    weight = rng.uniform(size=shape).astype("float32")
    run = jax.jit(lambda *arguments: by_reduction(name, options, *arguments))
    for mine, expected in run(y_true, y_pred, weight).values():
        close(mine, expected, 1e-4)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("MeanSquaredError", {}),
        ("SparseCategoricalCrossentropy", {"from_logits": True}),
        ("SparseCategoricalCrossentropy", {"from_logits": True, "ignore_class": 1}),
    ],
)
def test_masks(name, options, weighted):
    y_pred = rng.normal(size=(3, 5, 4)).astype("float32")
    y_true = rng.integers(0, 4, size=(3, 5)).astype("int32")
    if name == "MeanSquaredError":
        y_true = np.eye(4, dtype="float32")[y_true]
    mask = rng.integers(0, 2, size=(3, 5)).astype(bool)
    weight = rng.uniform(size=(3, 5)).astype("float32") if weighted else None
    arguments = (y_true, jnp.asarray(y_pred), weight)
    for mine, expected in by_reduction(name, options, *arguments, mask=mask).values():
        close(mine, expected)


def test_row_weights_of_sequences():
    """Keras broadcasts [batch] with the last axis; [batch, 1] shows what is meant."""
    y_true, y_pred = np.eye(4)[rng.integers(0, 4, (3, 5))], rng.normal(size=(3, 5, 4))
    weight = np.array([0.5, 2.0, 0.0], "float32")
    ours, theirs = pair("MeanSquaredError", {})
    close(ours(y_true, y_pred, weight), theirs(y_true, y_pred, weight[:, None]))


FUNCTIONS = [
    ("mean_squared_error", REAL_TRUE, REAL),
    ("mean_absolute_error", REAL_TRUE, REAL),
    ("mean_absolute_percentage_error", POSITIVE, REAL),
    ("mean_squared_logarithmic_error", POSITIVE, REAL),
    ("huber", REAL_TRUE, REAL),
    ("log_cosh", REAL_TRUE, REAL),
    ("cosine_similarity", REAL_TRUE, REAL),
    ("hinge", BINARY, REAL),
    ("squared_hinge", BINARY, REAL),
    ("categorical_hinge", ONE_HOT, REAL),
    ("kl_divergence", PROBS_TRUE, PROBS),
    ("poisson", COUNTS, POSITIVE),
    ("binary_crossentropy", BINARY, UNIT),
    ("binary_focal_crossentropy", BINARY, UNIT),
    ("categorical_crossentropy", ONE_HOT, PROBS),
    ("categorical_focal_crossentropy", ONE_HOT, PROBS),
    ("sparse_categorical_crossentropy", LABELS, PROBS),
    ("ctc", SEQUENCES, FRAMES),
    ("circle", PAIRS, UNIT_ROWS),
    ("dice", IMAGES_TRUE, IMAGES),
    ("tversky", IMAGES_TRUE, IMAGES),
]


ALONG_AXES = [
    *(("CosineSimilarity", {"axis": axis}) for axis in (0, -1)),
    *(("KLDivergence", {}), ("CategoricalHinge", {})),
]


@pytest.mark.parametrize(("name", "options"), ALONG_AXES)
@pytest.mark.parametrize("vectors", [PROBS, PROBS[0]], ids=["matrix", "vector"])
def test_what_an_axis_is_of(name, vectors, options):
    true = vectors[::-1].copy()
    for kind in ("losses", "metrics"):
        ours, theirs = (
            getattr(getattr(m, kind), name)(**options) for m in (exburn, keras)
        )
        np.testing.assert_allclose(ours(true, vectors), theirs(true, vectors), 1e-5)


@pytest.mark.parametrize("axis", [0, 1])
def test_cosines_along_an_axis_in_short_batches(axis):
    results = []
    for m in (exburn, keras):
        model = m.Sequential([m.Input((4,)), m.layers.Dense(4, "relu", False, "ones")])
        model.compile(
            m.optimizers.SGD(0.1, momentum=0.0),
            m.losses.CosineSimilarity(axis=axis),
            metrics=[m.metrics.CosineSimilarity(axis=axis)],
        )
        options = {"batch_size": 4, "verbose": 0}
        history = model.fit(REAL, REAL_TRUE, shuffle=False, **options).history
        both = [history[key][0] for key in ("loss", "cosine_similarity")]
        results.append(both + model.evaluate(REAL, REAL_TRUE, **options))
    np.testing.assert_allclose(results[0], results[1], 1e-4)


def test_functions():
    @jax.jit  # one program: compiling is what takes time
    def run(arguments):
        return {
            name: [
                getattr(module, name)(*arguments[name])
                for module in (losses, keras.losses)
            ]
            for name in arguments
        }

    for name, (value, expected) in run({n: (t, p) for n, t, p in FUNCTIONS}).items():
        assert value.shape == expected.shape, name
        np.testing.assert_allclose(value, expected, 1e-5, 1e-5, err_msg=name)


def test_circle_with_references():
    refs = UNIT_ROWS[::-1].copy()
    arguments = (PAIRS, UNIT_ROWS, PAIRS[:4], refs[:4], False)
    close(losses.circle(*arguments), keras.losses.circle(*arguments), 1e-4)


@pytest.mark.parametrize("alias", ["mse", "MSE", "mae", "mape", "msle", "bce", "kld"])
def test_aliases(alias):
    y_true, y_pred = PROBS_TRUE, PROBS
    close(
        losses.get(alias)(y_true, y_pred),
        keras.losses.get(alias)(y_true, y_pred),
    )


def test_half_precision_is_computed_in_float32():
    logits = jnp.asarray(REAL * 30, "bfloat16")
    loss = losses.SparseCategoricalCrossentropy(from_logits=True)
    value = loss(LABELS, logits)
    assert value.dtype == jnp.float32
    close(value, loss(LABELS, logits.astype("float32")))
