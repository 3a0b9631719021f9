"""What cannot work is told at once, with what to write instead."""

from pathlib import Path

import numpy as np
import pytest

import exburn as keras
from exburn.errors import ArgumentError, DTypeError


@pytest.mark.parametrize(
    "kind, name, meant",
    [
        (keras.optimizers.Adam, "lr", "learning_rate"),
        (keras.optimizers.Adam, "beta1", "beta_1"),
        (keras.optimizers.SGD, "clip_norm", "clipnorm"),
        (keras.optimizers.SGD, "decay", "a schedule"),
    ],
)
def test_a_name_that_no_optimizer_reads_is_not_set(kind, name, meant):
    optimizer = kind()
    with pytest.raises(ArgumentError, match=f"Set {meant}"):
        setattr(optimizer, name, 0.5)
    optimizer.note = "anything else"
    optimizer.clipnorm = 1.0

    class Own(kind):
        def __init__(self, lr=0.1):
            super().__init__(lr)
            self.lr = lr

    assert Own().lr == 0.1


@pytest.mark.parametrize("dtype", ["string", str, object, np.dtype("U3"), bytes])
def test_text_is_encoded_before_layers_that_compute(dtype):
    words = keras.Input((), dtype=dtype)
    with pytest.raises(DTypeError, match="Hashing or TextVectorization, called on"):
        keras.layers.Dense(2)(words)


@pytest.mark.parametrize("option", [{"sparse": True}, {"ragged": True}, {"tensor": 1}])
def test_inputs_are_dense_and_their_own(option):
    with pytest.raises(ArgumentError, match="dense arrays|own symbol"):
        keras.Input((3,), **option)
    assert keras.Input((3,), **dict.fromkeys(option, None)).shape == (None, 3)


@pytest.mark.parametrize("slash", ["/", ""])
def test_a_folder_is_no_file(tmp_path, slash, monkeypatch):
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    monkeypatch.chdir(tmp_path)
    Path("kept").mkdir()
    for save, name in (
        (model.save, "model.exburn"),
        (model.save_weights, "model.safetensors"),
    ):
        with pytest.raises(ArgumentError, match=f"'kept/{name}'"):
            save("kept" + slash)
        save("kept/" + name)
    assert sorted(p.name for p in tmp_path.rglob("*")) == [
        "kept",
        "model.exburn",
        "model.safetensors",
    ]
    with pytest.raises(ArgumentError, match="of a folder"):
        model.save("missing/")


def test_a_model_is_saved_as_one_file(tmp_path):
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    with pytest.raises(ArgumentError, match="one file"):
        model.save(tmp_path / "m.keras", zipped=False)
    model.save(tmp_path / "m.keras", zipped=True)


@pytest.mark.parametrize(
    "use, meant",
    [
        (lambda k: keras.Sequential([k.layers.Dense(3)]), "exburn.layers.Dense"),
        (lambda k: keras.losses.get(k.losses.Hinge()), "exburn.losses.Hinge"),
        (lambda k: keras.metrics.get(k.metrics.AUC()), "exburn.metrics.AUC"),
        (lambda k: keras.optimizers.get(k.optimizers.SGD()), "exburn.optimizers.SGD"),
    ],
)
def test_objects_of_the_package_keras_are_told_from_ours(use, meant):
    with pytest.raises(DTypeError, match=f"package keras(.|\n)*Take {meant}"):
        use(pytest.importorskip("keras"))


def test_a_class_derived_from_keras_is_told_as_well():
    theirs = pytest.importorskip("keras")

    class Own(theirs.layers.Dense):
        pass

    with pytest.raises(DTypeError, match="Own is(.|\n)*exburn.layers.Dense"):
        keras.Sequential([Own(3)])
