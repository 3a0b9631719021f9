"""Files beside models that round: what may differ, and what an error says."""

import jax
import numpy as np
import pytest

import exburn
from exburn import layers, ops
from exburn.errors import ExportError
from exburn.export.comparison import compare, reaches
from exburn.export.program import ExportedProgram

X = np.arange(24, dtype=np.uint8).reshape(2, 12)  # each other half is half way


def pixels(x):
    return ops.cast(ops.round(ops.cast(x, "float32") / 2), "uint8")


def features(x):
    return ops.matmul(ops.cast(pixels(x), "float32") / 255, np.ones((12, 3), "f"))


MODELS = {
    "integers": pixels,
    "floats": features,
    "classes": lambda x: ops.argmax(ops.cast(x, "float32"), -1),
    "places": lambda x: ops.cast(x, "int32")[:, 0],
    "truths": lambda x: ops.cast(x, "float32") / 2 > 1.1,
}


def program_of(name):
    x = exburn.Input((12,), dtype="uint8")
    model = exburn.Model(x, layers.Lambda(MODELS[name], name="out")(x))
    specs = jax.ShapeDtypeStruct((2, 12), np.uint8)
    return ExportedProgram(model, specs, "onnx", samples=X)


def moved(name, place, by):
    """The program, and what runs it with one entry of the output moved."""
    program = program_of(name)

    def run(inputs):
        (value,) = program.reference(inputs)
        value = value.copy()
        value.flat[place] += np.asarray(by).astype(value.dtype)
        return [value]

    return program, run


@pytest.mark.parametrize(
    "name, place, by, says",
    [
        ("integers", 1, 1, None),  # 0.5 is 0
        ("integers", 3, -1, None),  # 1.5 is 2
        ("integers", 3, 1, "1 of 24 integers differs, by up to 1"),
        ("integers", 2, 1, "1 of 24 integers differs, by up to 1"),
        ("integers", 3, 2, "1 of 24 integers differs, by up to 2"),
        ("floats", 0, 1 / 255, None),
        ("floats", 0, 20 / 255, "1 of 6 numbers differs by up to 0.078"),
        ("floats", 0, np.nan, "1 is NaN or infinite in one alone"),
        ("classes", 0, -1, "1 of 2 integers differs, by up to 1"),
        ("places", 1, 3, "1 of 2 integers differs, by up to 3"),
        ("truths", 0, True, "1 of 24 booleans differs"),
    ],
)
def test_only_what_follows_from_a_rounding_may_differ(name, place, by, says):
    program, run = moved(name, place, by)
    if says is None:
        found = compare(program, run, 1e-4)
        assert found.error > 1e-4 and len(found.notes) == 1
        assert "half way between two integers" in found.notes[0]
        assert "output out: 1 of" in found.notes[0]
    else:
        with pytest.raises(ExportError, match=says):
            compare(program, run, 1e-4)


def test_an_equal_file_has_no_notes():
    found = compare(*moved("integers", 0, 0), 1e-4)
    assert found.error == 0 and found.notes == ()


def test_indices_that_no_input_tells_are_not_moved():
    """Nearest neighbours are looked up by indices that are rounded floats."""
    image = exburn.Input((7, 7, 1))
    model = exburn.Model(image, layers.Resizing(5, 5, interpolation="nearest")(image))
    specs = jax.ShapeDtypeStruct((1, 7, 7, 1), np.float32)
    inputs = [np.random.default_rng(0).random((1, 7, 7, 1), np.float32)]
    assert reaches(ExportedProgram(model, specs, "onnx"), inputs) is None


@pytest.mark.parametrize("sizes", [(100, 75), (32, 224)])
def test_images_that_are_resized_inside_are_written(sizes, tmp_path):
    pytest.importorskip("onnxruntime")
    before, after = sizes
    image = exburn.Input((before, before, 3), dtype="uint8")
    small = layers.Resizing(after, after, interpolation="lanczos3")(image)
    seen = layers.Conv2D(2, 3, strides=2)(layers.Rescaling(1 / 255)(small))
    model = exburn.Model(image, [small, seen])
    rng = np.random.default_rng(0)
    x = rng.integers(0, 256, (4, before, before, 3)).astype(np.uint8)
    report = model.export(path := tmp_path / "m.onnx", samples=x)
    assert all(note in str(report) for note in report.notes)
    found, wanted = exburn.predict(path, x), model.predict(x, verbose=0)
    apart = np.abs(found[0].astype(int) - wanted[0])
    assert apart.max() <= 1 and apart.mean() < 1e-3
    assert (apart.max() == 0) == (report.notes == ())
