"""Losses as classes and functions: random ranks, weights, reductions and options."""

from __future__ import annotations

from typing import Any

import numpy as np
from tests.fuzz.values import Array, Call, Name, pick

TOLERANCE = 5e-4

#: Class, function, what targets and predictions are, and options with their values.
LOSSES: dict[str, tuple[str, str, dict[str, tuple]]] = {
    "MeanSquaredError": ("mean_squared_error", "real", {}),
    "MeanAbsoluteError": ("mean_absolute_error", "real", {}),
    "MeanAbsolutePercentageError": ("mean_absolute_percentage_error", "positive", {}),
    "MeanSquaredLogarithmicError": ("mean_squared_logarithmic_error", "positive", {}),
    "Huber": ("huber", "real", {"delta": (0.3, 2.0)}),
    "LogCosh": ("log_cosh", "real", {}),
    "CosineSimilarity": ("cosine_similarity", "real", {"axis": (-1,)}),
    "Hinge": ("hinge", "sign", {}),
    "SquaredHinge": ("squared_hinge", "sign", {}),
    "CategoricalHinge": ("categorical_hinge", "one-hot", {}),
    "KLDivergence": ("kl_divergence", "share", {}),
    "Poisson": ("poisson", "positive", {}),
    "BinaryCrossentropy": (
        "binary_crossentropy",
        "binary",
        {"from_logits": (True,), "label_smoothing": (0.1,), "axis": (-1,)},
    ),
    "BinaryFocalCrossentropy": (
        "binary_focal_crossentropy",
        "binary",
        {
            "from_logits": (True,),
            "label_smoothing": (0.1,),
            "gamma": (1.0, 3.0),
            "alpha": (0.4,),
            "apply_class_balancing": (True,),
        },
    ),
    "CategoricalCrossentropy": (
        "categorical_crossentropy",
        "one-hot",
        {"from_logits": (True,), "label_smoothing": (0.1,), "axis": (-1,)},
    ),
    "CategoricalFocalCrossentropy": (
        "categorical_focal_crossentropy",
        "one-hot",
        {
            "from_logits": (True,),
            "label_smoothing": (0.1,),
            "gamma": (1.0,),
            "alpha": (0.4,),
        },
    ),
    "CategoricalGeneralizedCrossEntropy": (
        "categorical_generalized_cross_entropy",
        "sparse",
        {"q": (0.3, 0.9)},
    ),
    "SparseCategoricalCrossentropy": (
        "sparse_categorical_crossentropy",
        "sparse",
        {"from_logits": (True,), "ignore_class": (0, 1, -1), "axis": (-1,)},
    ),
    "Dice": ("dice", "binary", {"axis": ((1,), (1, 2), None)}),
    "Tversky": ("tversky", "binary", {"alpha": (0.3,), "beta": (0.7,)}),
    "Circle": ("circle", "ids", {"gamma": (10.0,), "margin": (0.2,)}),
}
REDUCTIONS = ("sum", "mean", "mean_with_sample_weight", "none", None)


def arrays(rng, what: str, shape: tuple, logits: bool) -> tuple[Any, Any]:
    """Targets and predictions of a kind, ``[batch, …, classes]``."""
    seed = int(rng.integers(1000))
    dtype = pick(rng, "float32", "float32", "float32", "float16", "bfloat16")
    unit = Array(seed, shape, dtype, *((-3, 3) if logits else (0.05, 0.95)))
    classes = shape[-1]
    if what == "real":
        other = pick(rng, dtype, dtype, "float32", "int32")
        return Array(seed + 1, shape, other, -2, 3), Array(seed, shape, dtype)
    if what == "positive":
        return (
            Array(seed + 1, shape, dtype, 0.2, 3),
            Array(seed, shape, dtype, 0.2, 3),
        )
    if what == "sign":
        labels = Array(seed + 1, shape, "int32", 0, 2)
        return pick(rng, labels, Name(f"({labels!r} * 2 - 1)")), Array(
            seed, shape, dtype
        )
    if what == "binary":
        return whole(rng, seed + 1, shape, 2), unit
    if what == "share":
        return Array(seed + 1, shape, dtype, 0.05, 0.95), unit
    if what == "one-hot":
        labels = Array(seed + 1, shape[:-1], "int32", 0, classes)
        return Name(f"np.eye({classes}, dtype='float32')[{labels!r}]"), unit
    if what == "ids":
        return Array(seed + 1, shape[:1], "int32", 0, 3), Array(seed, shape[:2])
    labels = shape[:-1] if rng.random() < 0.7 else (*shape[:-1], 1)
    return whole(rng, seed + 1, labels, classes), unit


def whole(rng, seed: int, shape: tuple, high: int) -> Array:
    """Whole numbers below another, as integers or floats."""
    if rng.random() < 0.5:
        return Array(seed, shape, "int32", 0, high)
    return Array(seed, shape, "float32", 0, high, after=" // 1")


def sample_weight(rng, shape: tuple) -> Any:
    """Weights for values ``[batch, …]``; None for none."""
    seed = int(rng.integers(1000))
    return pick(
        rng,
        None,
        None,
        2.0,
        Array(seed, shape[:1], "float32", 0, 2),
        Array(seed, shape, "float32", 0, 2),
        Array(seed, (*shape[:1], *[1] * (len(shape) - 1)), "float32", 0, 2),
        Array(seed, shape[:1], "int32", 0, 3),
    )


def draw(rng: np.random.Generator) -> dict:
    name = pick(rng, *LOSSES)
    function, what, known = LOSSES[name]
    rank = int(rng.integers(2, 5))
    shape = tuple(int(n) for n in rng.integers(2, 6, rank))
    options = {k: pick(rng, *v) for k, v in known.items() if rng.random() < 0.35}
    y_true, y_pred = arrays(rng, what, shape, options.get("from_logits", False))
    spec = {"y_true": y_true, "y_pred": y_pred}
    if rng.random() < 0.25:
        return spec | {"function": function, "options": options}
    reduction = {}
    if rng.random() < 0.6:
        reduction["reduction"] = pick(rng, *REDUCTIONS)
    if rng.random() < 0.1:
        reduction["dtype"] = pick(rng, "float16", "bfloat16", "float32")
    weight = sample_weight(rng, shape[:-1])
    if name in ("Dice", "Tversky", "Circle"):
        weight = None if name != "Circle" else sample_weight(rng, shape[:1])
    return spec | {"loss": name, "options": options | reduction, "weight": weight}


def render(spec: dict) -> str:
    lines = [f"y_true = {spec['y_true']!r}", f"y_pred = {spec['y_pred']!r}"]
    if "function" in spec:
        call = Call(
            f"losses.{spec['function']}",
            [Name("y_true"), Name("y_pred")],
            spec["options"],
        )
        return "\n".join([*lines, f"result = {call!r}"])
    loss = Call(f"losses.{spec['loss']}", [], spec["options"])
    weight = spec.get("weight")
    last = "" if weight is None else f", sample_weight={weight!r}"
    return "\n".join([*lines, f"result = {loss!r}(y_true, y_pred{last})"])
