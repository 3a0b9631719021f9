"""Training that is saved, loaded and goes on, beside training that is not interrupted.

Keras has no part in it: the two must be equal, bit for bit.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from tests.fuzz import training
from tests.fuzz.values import Call, pick

TOLERANCE = 0.0
simpler = training.simpler


def draw(rng: np.random.Generator) -> dict:
    spec = training.draw(rng)
    layers = list(spec["layers"])
    if spec["kind"] != "tokens" and rng.random() < 0.5:  # what draws must go on, too
        layer = pick(
            rng,
            Call("layers.Dropout", [0.3], {"name": "drop"}),
            Call("layers.GaussianNoise", [0.2], {"name": "noise"}),
        )
        layers.insert(1, layer)
    fit = {k: v for k, v in spec["fit"].items() if k not in ("initial_epoch",)}
    fit |= {"shuffle": pick(rng, True, True, False)}
    return {
        **{k: v for k, v in spec.items() if k != "again"},
        "layers": layers,
        "fit": fit,
        "how": pick(rng, "model", "copy"),
    }


def render(spec: dict) -> str:
    fit = ", ".join(f"{k}={v!r}" for k, v in spec["fit"].items())
    made = "\n    ".join([*training.model_source(spec), "return model, data, y"])
    again = {
        "model": [
            "import tempfile, pathlib",
            "folder = pathlib.Path(tempfile.mkdtemp())",
            "model.save(folder / 'model.exburn')",
            "model = keras.models.load_model(folder / 'model.exburn')",
        ],
        "copy": ["import copy", "model = copy.deepcopy(model)"],
    }[spec["how"]]
    return "\n".join(
        [
            f"def make():\n    {made}",
            "def outcome(model, data, y, first):",
            f"    second = model.fit(data, y, {fit}).history",
            "    return {'first': first, 'second': second, 'weights': weights(model),",
            "            'predicted': model.predict(data, verbose=0)}",
            "keras.utils.set_random_seed(3)",
            "model, data, y = make()",
            f"first = model.fit(data, y, {fit}).history",
            "plain = outcome(model, data, y, first)",
            "keras.utils.set_random_seed(3)",
            "model, data, y = make()",
            f"first = model.fit(data, y, {fit}).history",
            *again,
            "result = {'plain': plain, 'resumed': outcome(model, data, y, first)}",
        ]
    )


def judge(result: Any) -> str | None:
    """Where the training that was interrupted went another way."""
    if isinstance(result, Exception):
        return f"error: {type(result).__name__}: {str(result).splitlines()[0]}"
    plain = {k: v for k, v in result.items() if k.startswith("result['plain']")}
    for path, value in plain.items():
        other = result[path.replace("'plain'", "'resumed'", 1)]
        if not np.array_equal(np.asarray(value), np.asarray(other), equal_nan=True):
            gap = np.abs(np.asarray(value, float) - np.asarray(other, float)).max()
            return f"value: {gap} of {path}"
    return None
