"""Options of training on a few models: optimizers, weights, splits, schedules …"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from tests.fuzz import simplify
from tests.fuzz.values import Array, Call, Name, pick

TOLERANCE = 3e-3
ROWS = 24


def _rate(rng, low: float = 0.01, high: float = 0.1) -> Any:
    rate = round(float(rng.uniform(low, high)), 3)
    if rng.random() < 0.7:
        return rate
    return Call(
        *pick(
            rng,
            (
                "optimizers.schedules.ExponentialDecay",
                [],
                {"decay_steps": 3, "decay_rate": 0.5, "staircase": True},
            ),
            (
                "optimizers.schedules.PolynomialDecay",
                [],
                {"decay_steps": 5, "end_learning_rate": 0.001, "power": 2.0},
            ),
            (
                "optimizers.schedules.CosineDecay",
                [],
                {"decay_steps": 6, "alpha": 0.1, "warmup_steps": 2}
                | {"warmup_target": 0.1},
            ),
            (
                "optimizers.schedules.CosineDecayRestarts",
                [],
                {"first_decay_steps": 3, "t_mul": 2.0, "m_mul": 0.7},
            ),
            (
                "optimizers.schedules.InverseTimeDecay",
                [],
                {"decay_steps": 2, "decay_rate": 0.5},
            ),
            ("optimizers.schedules.PiecewiseConstantDecay", [[2, 5]], {}),
        )
    )


def _scheduled(rate: Any, start: float) -> Any:
    """A schedule with its first rate."""
    if not isinstance(rate, Call):
        return rate
    if "Piecewise" in rate.name:
        return Call(rate.name, [*rate.args, [start, start / 2, start / 4]])
    return Call(rate.name, [], {"initial_learning_rate": start, **rate.options})


def optimizer(rng) -> Call:
    """An optimizer whose every number is given."""
    small = 1e-10  # so small that it does not matter where it is added
    betas = {"beta_1": pick(rng, 0.9, 0.5), "beta_2": pick(rng, 0.999, 0.9)}
    name, high, options = pick(
        rng,
        ("SGD", 0.1, {"momentum": 0.0}),
        ("SGD", 0.1, {"momentum": 0.9, "nesterov": bool(rng.integers(2))}),
        ("Adam", 0.05, {**betas, "epsilon": small, "amsgrad": bool(rng.integers(2))}),
        ("AdamW", 0.05, {**betas, "epsilon": small, "weight_decay": 0.05}),
        ("Adamax", 0.05, {**betas, "epsilon": small}),
        ("Nadam", 0.05, {**betas, "epsilon": small}),
        (
            "RMSprop",
            0.03,
            {
                "rho": 0.9,
                "momentum": pick(rng, 0.0, 0.8),
                "epsilon": small,
                "centered": False,
            },
        ),
        ("Adagrad", 0.1, {"initial_accumulator_value": 0.1, "epsilon": small}),
        ("Adadelta", 0.5, {"rho": 0.9, "epsilon": 1e-3}),
        ("Lion", 0.01, {"beta_1": 0.9, "beta_2": 0.99}),
        ("Lamb", 0.05, {**betas, "epsilon": small}),
        (
            "Ftrl",
            0.1,
            {
                "learning_rate_power": -0.5,
                "initial_accumulator_value": 0.1,
                "l1_regularization_strength": 0.01,
                "l2_regularization_strength": 0.01,
                "l2_shrinkage_regularization_strength": 0.0,
                "beta": 0.1,
            },
        ),
    )
    rate = _scheduled(_rate(rng, high / 5, high), high)
    options = dict(options)
    if rng.random() < 0.25:
        options["weight_decay"] = 0.02
    if rng.random() < 0.35:
        key = pick(rng, "clipnorm", "clipvalue", "global_clipnorm")
        options[key] = pick(rng, 0.05, 0.5)
    if rng.random() < 0.2:
        options |= {"use_ema": True, "ema_momentum": pick(rng, 0.5, 0.9)}
        if rng.random() < 0.5:
            options["ema_overwrite_frequency"] = pick(rng, 2, 3)
    if rng.random() < 0.25:
        options["gradient_accumulation_steps"] = pick(rng, 2, 3)
    return Call(f"optimizers.{name}", [rate], options)


#: Options that every optimizer has.
_BESIDE = (
    *("weight_decay", "clipnorm", "clipvalue", "global_clipnorm", "use_ema"),
    *("ema_overwrite_frequency", "gradient_accumulation_steps"),
)


def _kernel(rng) -> dict:
    options = {}
    if rng.random() < 0.2:
        options["kernel_regularizer"] = Call("regularizers.L2", [0.05])
    if rng.random() < 0.15:
        options["kernel_constraint"] = Call("constraints.MaxNorm", [0.8])
    return options


def _model(rng) -> tuple[str, list, dict]:
    """A kind of model, its layers, and what `compile` is told of it."""
    kind = pick(rng, "mlp", "classes", "binary", "two", "tokens", "image")
    if kind == "tokens":
        layers = [
            Call("layers.Embedding", [9, 4], {"mask_zero": True}),
            Call("layers.GRU", [3], {"reset_after": True}),
            Call("layers.Dense", [1], _kernel(rng)),
        ]
    elif kind == "image":
        layers = [
            Call("layers.Conv2D", [3, 3], {"activation": "tanh", **_kernel(rng)}),
            Call("layers.GlobalAveragePooling2D"),
            Call("layers.Dense", [1]),
        ]
    else:
        layers = [Call("layers.Dense", [6], {"activation": "tanh", **_kernel(rng)})]
        if rng.random() < 0.3:
            momentum = {"momentum": 0.9, "epsilon": 0.01}
            layers.append(Call("layers.BatchNormalization", [], momentum))
        units, activation = {"classes": (3, "softmax"), "binary": (1, "sigmoid")}.get(
            kind, (1, None)
        )
        options = {"activation": activation} if activation else {}
        layers.append(Call("layers.Dense", [units], {**options, **_kernel(rng)}))
    loss, metrics = {
        "classes": (
            "sparse_categorical_crossentropy",
            ["sparse_categorical_accuracy", "accuracy"],
        ),
        "binary": (
            "binary_crossentropy",
            [
                "accuracy",
                Call("metrics.AUC", [], {"num_thresholds": 20, "name": "auc"}),
            ],
        ),
    }.get(kind, (pick(rng, "mse", "mae", Call("losses.Huber", [0.5])), ["mae", "mse"]))
    options: dict[str, Any] = {"loss": loss}
    if kind == "two":
        options["loss"] = pick(rng, ["mse", "mae"], "mse", ["mse", "huber"])
        if rng.random() < 0.5:
            options["loss_weights"] = [0.3, 2.0]
    elif rng.random() < 0.6:
        options["metrics"] = metrics[: int(rng.integers(1, len(metrics) + 1))]
        if kind != "tokens" and rng.random() < 0.3:
            options["weighted_metrics"] = metrics[:1]
    return kind, layers, options


def _fit(rng, kind: str) -> dict:
    options: dict[str, Any] = {
        "batch_size": pick(rng, 6, 7, 8, 24),
        "epochs": int(rng.integers(1, 4)),
        "shuffle": False,
        "verbose": 0,
    }
    if kind == "classes" and rng.random() < 0.5:
        options["class_weight"] = {0: 1.0, 1: 3.0, 2: 0.5}
    elif kind == "binary" and rng.random() < 0.4:
        options["class_weight"] = {0: 0.5, 1: 2.0}
    elif kind != "two" and rng.random() < 0.4:
        options["sample_weight"] = Array(7, (ROWS,), "float32", 0, 2)
    if kind != "two" and rng.random() < 0.35:
        options["validation_split"] = pick(rng, 0.25, 0.4)
    elif kind != "two" and rng.random() < 0.2:
        options["validation_data"] = Name("(data[:9], y[:9])")
        if rng.random() < 0.5:
            options["validation_batch_size"] = 5
    if rng.random() < 0.2:
        options["initial_epoch"] = options["epochs"] - 1
    if rng.random() < 0.2:
        options["steps_per_epoch"] = pick(rng, 1, 2)
    if "validation_split" in options and rng.random() < 0.3:
        options["validation_freq"] = 2
    return options


def draw(rng: np.random.Generator) -> dict:
    kind, layers, options = _model(rng)
    if rng.random() < 0.2:
        options["steps_per_execution"] = 2
    spec = {
        "kind": kind,
        "layers": [
            Call(layer.name, layer.args, {**layer.options, "name": f"l{i}"})
            for i, layer in enumerate(layers)
        ],
        "optimizer": optimizer(rng),
        "compile": options,
        "fit": _fit(rng, kind),
    }
    if rng.random() < 0.3:
        spec["again"] = {"epochs": 1, "batch_size": pick(rng, 6, 24)}
    return spec


def simpler(spec: dict) -> Iterator[dict]:
    """With fewer options, layers and epochs."""
    if "again" in spec:
        yield {k: v for k, v in spec.items() if k != "again"}
    for part in ("fit", "compile"):
        for key in spec[part]:
            if key not in ("shuffle", "verbose", "loss", "batch_size"):
                less = {k: v for k, v in spec[part].items() if k != key}
                yield {**spec, part: less}
    yield {**spec, "optimizer": Call("optimizers.SGD", [0.05], {"momentum": 0.0})}
    made = spec["optimizer"]
    if isinstance(made.args[0], Call):
        yield {**spec, "optimizer": Call(made.name, [0.05], made.options)}
    for key in made.options:
        if key in _BESIDE:  # the others are its formula's
            less = {k: v for k, v in made.options.items() if k != key}
            yield {**spec, "optimizer": Call(made.name, made.args, less)}
    for i, layer in enumerate(spec["layers"]):
        for less in simplify.simpler(layer):
            if "name" in less.options:
                layers = [*spec["layers"][:i], less, *spec["layers"][i + 1 :]]
                yield {**spec, "layers": layers}


_INPUTS = {
    "tokens": ((5,), Array(1, (ROWS, 5), "int32", 0, 9)),
    "image": ((5, 5, 2), Array(1, (ROWS, 5, 5, 2))),
}
_TARGETS = {
    "classes": Array(2, (ROWS,), "int32", 0, 3),
    "binary": Array(2, (ROWS, 1), "int32", 0, 2),
}


def model_source(spec: dict) -> list[str]:
    """Lines that make ``model``, ``data`` and ``y``, and compile it."""
    shape, data = _INPUTS.get(spec["kind"], ((4,), Array(1, (ROWS, 4))))
    y = _TARGETS.get(spec["kind"], Array(2, (ROWS, 1)))
    dtype = {"dtype": "int32"} if spec["kind"] == "tokens" else {}
    lines = [f"data = {data!r}", f"y = {y!r}"]
    layers = spec["layers"]
    lines += [f"x = h = {Call('Input', [shape], dtype)!r}"]
    if spec["kind"] == "two":
        lines += [f"h = {layer!r}(h)" for layer in layers[:-1]]
        second = Call("layers.Dense", [2], {"name": "second"})
        lines += [f"outputs = [{layers[-1]!r}(h), {second!r}(h)]"]
        lines += [f"y = [y, {Array(3, (ROWS, 2))!r}]"]
    else:
        lines += [f"h = {layer!r}(h)" for layer in layers] + ["outputs = h"]
    lines += ["model = fill(keras.Model(x, outputs), 1)"]
    options = ", ".join(f"{k}={v!r}" for k, v in spec["compile"].items())
    return [*lines, f"model.compile({spec['optimizer']!r}, {options})"]


def render(spec: dict) -> str:
    fit = ", ".join(f"{k}={v!r}" for k, v in spec["fit"].items())
    lines = [*model_source(spec), f"history = model.fit(data, y, {fit}).history"]
    if again := spec.get("again"):
        more = ", ".join(f"{k}={v!r}" for k, v in again.items())
        lines.append(
            f"again = model.fit(data, y, shuffle=False, verbose=0, {more}).history"
        )
    return "\n".join(
        [
            *lines,
            "result = {",
            "    'history': history, 'weights': weights(model),",
            "    'again': again," if again else "    'again': None,",
            "    'predicted': model.predict(data, verbose=0),",
            "    'evaluated': model.evaluate(data, y, verbose=0),",
            "}",
        ]
    )
