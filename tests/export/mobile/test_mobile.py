"""Mobile bundles: what is in them, and a device that tests itself by one."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import exburn
from exburn import layers
from exburn.errors import ArgumentError, ExportError, ModelFormatError

X = np.random.default_rng(0).integers(0, 256, (12, 6, 6, 1)).astype(np.float32)
LABELS = ["zero", "one", "two"]
PAGE = Path(__file__).parents[3] / "docs" / "export.md"


def model():
    return exburn.Sequential(
        [
            exburn.Input((6, 6, 1), name="image"),
            layers.Rescaling(1 / 255, name="to_one"),
            layers.Conv2D(4, 3, activation="relu"),
            layers.Flatten(),
            layers.Dense(3, activation="softmax", name="digit"),
        ],
        name="digits",
    )


@pytest.fixture(scope="module")
def bundle(tmp_path_factory):
    folder = tmp_path_factory.mktemp("phone") / "app"
    report = model().export(
        folder,
        format="mobile",
        formats=("onnx",),
        samples=X,
        labels=LABELS,
        preprocessing={"image": {"resize": (6, 6), "color": "gray"}},
    )
    return folder, report


def test_labels_are_the_models_own_unless_others_are_given(tmp_path):
    class Labelled(exburn.Model):
        labels = ("a", "b", "c")

    x = exburn.Input((2,))
    made = Labelled(x, layers.Dense(3)(x))
    for options, wanted in (({}, ["a", "b", "c"]), ({"labels": LABELS}, LABELS)):
        folder = tmp_path / wanted[0]
        made.export(folder, format="mobile", formats=("onnx",), **options)
        contract = json.loads((folder / "contract.json").read_text())
        assert contract["outputs"][0]["labels"] == wanted
    made.labels = ("a", "b")  # they name something else
    made.export(tmp_path / "other", format="mobile", formats=("onnx",))
    contract = json.loads((tmp_path / "other" / "contract.json").read_text())
    assert "labels" not in contract["outputs"][0]


def test_the_contract_says_what_an_application_must_know(bundle):
    folder, report = bundle
    assert sorted(p.name for p in folder.iterdir()) == [
        "contract.json",
        "golden.safetensors",
        "model.onnx",
    ]
    contract = json.loads((folder / "contract.json").read_text())
    shape = [None, 6, 6, 1]
    assert contract["inputs"] == [{"name": "image", "shape": shape, "dtype": "float32"}]
    assert contract["outputs"] == [
        {"name": "digit", "shape": [None, 3], "dtype": "float32", "labels": LABELS}
    ]
    assert contract["preprocessing"] == {"image": {"resize": [6, 6], "color": "gray"}}
    assert contract["inside"] == [{"layer": "to_one", "class": "Rescaling"}]
    assert contract["golden"]["rows"] == 8
    assert contract["files"]["onnx"]["rows"] is None
    assert report.error < 1e-5
    assert "onnxruntime" in report.checked


def test_a_bundle_is_verified_from_its_contract(bundle, tmp_path):
    folder = tmp_path / "app"
    shutil.copytree(bundle[0], folder)
    found = exburn.export.verify(folder)
    assert found["onnx"].startswith("equal, greatest error")
    file = folder / "model.onnx"
    data = file.read_bytes()
    file.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    with pytest.raises(ModelFormatError, match=r"model\.onnx is damaged"):
        exburn.export.verify(folder / "contract.json")
    file.unlink()
    with pytest.raises(ModelFormatError, match="it is missing"):
        exburn.export.verify(folder)
    with pytest.raises(ArgumentError, match="no mobile bundle"):
        exburn.export.verify(tmp_path)


def test_other_outputs_than_the_golden_ones_are_an_error(bundle, tmp_path):
    from exburn.export.mobile.verification import digest
    from exburn.saving.seal import seal_document

    folder = tmp_path / "app"
    shutil.copytree(bundle[0], folder)
    other = model()
    other.set_weights([weight + 1 for weight in other.get_weights()])
    other.export(folder / "model.onnx")
    contract = json.loads((folder / "contract.json").read_text())
    contract["files"]["onnx"]["sha256"] = digest(folder / "model.onnx")
    del contract["digest"]
    data = seal_document(contract.pop("format"), contract)
    (folder / "contract.json").write_bytes(data)
    with pytest.raises(ExportError, match="something else than the golden"):
        exburn.export.verify(folder)


@pytest.mark.parametrize(
    "options, says",
    [
        ({"formats": ("onnx", "torch")}, "formats are some of"),
        ({"labels": ["one"]}, "3 classes, received 1"),
        ({"labels": {"x": LABELS}}, "name the output 'x'"),
        ({"preprocessing": {"image": object()}}, "JSON can hold"),
    ],
)
def test_options_that_cannot_be_are_refused(tmp_path, options, says):
    with pytest.raises(ArgumentError, match=says):
        model().export(
            tmp_path / "app", format="mobile", **({"formats": ("onnx",)} | options)
        )
    assert not list(tmp_path.iterdir())


def self_test() -> str:
    """The program of the documentation that a device would run."""
    (found,) = re.findall(
        r"```python file=device.py\n(.*?)```", PAGE.read_text(), re.DOTALL
    )
    return found


def test_a_device_without_exburn_passes_the_golden_outputs(tmp_path):
    for package in ("litert_converter", "ai_edge_litert", "coremltools"):
        pytest.importorskip(package)
    folder = tmp_path / "app"
    report = model().export(folder, format="mobile", samples=X, labels=LABELS)
    assert report.error < 1e-5
    script = tmp_path / "device.py"
    script.write_text(
        self_test() + "\nassert not {'exburn', 'jax'} & set(sys.modules)\n"
    )
    run = subprocess.run(
        [sys.executable, "-P", str(script), str(folder)], capture_output=True, text=True
    )
    assert run.returncode == 0, run.stderr
    assert run.stdout.split() == ["litert", "equal", "onnx", "equal"]
    found = exburn.export.verify(folder)
    assert list(found) == ["litert", "coreml", "onnx"]


def test_a_bundle_of_rounded_pixels_is_verified(tmp_path):
    """Some pixels are half way between two integers, which the contract tells."""
    pytest.importorskip("onnxruntime")
    image = exburn.Input((100, 100, 1), dtype="uint8")
    small = exburn.layers.Resizing(75, 75)(image)
    model = exburn.Model(image, [small, exburn.layers.Rescaling(1 / 255)(small)])
    x = np.random.default_rng(0).integers(0, 256, (4, 100, 100, 1)).astype(np.uint8)
    report = model.export(
        path := tmp_path / "app", format="mobile", formats=("onnx",), samples=x
    )
    about = json.loads((path / "contract.json").read_text())["files"]["onnx"]
    assert about.get("integers", 0) <= 1
    assert ("integers" in about) == bool(report.notes)
    assert exburn.export.verify(path)["onnx"].startswith("equal")
