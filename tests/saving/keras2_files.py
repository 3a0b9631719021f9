"""Files of Keras 2, and such files made by hand."""

import json
from pathlib import Path

import h5py
import numpy as np

FOLDER = Path(__file__).with_name("keras2")
ANSWERS = np.load(FOLDER / "answers.npz")


def of(name, kind):
    found = [ANSWERS[key] for key in ANSWERS.files if key.startswith(f"{name}/{kind}")]
    return found if len(found) > 1 else found[0]


def listed(value):
    return value if isinstance(value, list) else [value]


def legacy(path, config, groups, version="2.2.4", training=None, chunked=False):
    """A file as Keras 2 documents it; ``groups`` are layers with named arrays."""
    with h5py.File(path, "w") as file:
        file.attrs["keras_version"] = version.encode()
        file.attrs["backend"] = b"tensorflow"
        file.attrs["model_config"] = json.dumps(config).encode()
        if training is not None:
            file.attrs["training_config"] = json.dumps(training).encode()
        weights = file.create_group("model_weights")
        weights.attrs["keras_version"] = version.encode()
        names = [name.encode() for name in groups]
        if chunked:  # as for lists above 64 KB
            weights.attrs["layer_names0"] = names[:1]
            weights.attrs["layer_names1"] = names[1:]
        else:
            weights.attrs["layer_names"] = names
        for name, arrays in groups.items():
            group = weights.create_group(name)
            group.attrs["weight_names"] = [f"{name}/{k}:0".encode() for k in arrays]
            for key, array in arrays.items():
                group[f"{name}/{key}:0"] = array


def dense(name, units=2, **options):
    return {"class_name": "Dense", "config": {"name": name, "units": units, **options}}


WEIGHTS = {
    "one": {"kernel": np.eye(3, 2, dtype="f"), "bias": np.ones(2, "f")},
    "two": {"kernel": np.ones((2, 2), "f"), "bias": np.zeros(2, "f")},
}
