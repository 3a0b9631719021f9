"""``make demo``: its data, its model, its table, and its second process."""

import io
import sys

import numpy as np
import pytest
from rich.console import Console

from exburn.command_line import demo


def test_digits_are_images_from_0_to_1():
    (x, y), (x_test, y_test) = demo.load("digits")
    for images, labels in ((x, y), (x_test, y_test)):
        assert images.shape == (len(labels), 8, 8, 1) and images.dtype == "float32"
        assert (images.min(), images.max()) == (0, 1)
        assert set(labels) == set(range(10))


def test_the_table_counts_true_classes_by_predicted_ones():
    labels, predicted = np.array([3, 3, 3, 4]), np.array([3, 3, 5, 4])
    console = Console(file=io.StringIO(), width=120)
    console.print(demo.confusion(labels, predicted))
    rows = {
        line.split()[1]: line.split()[3::2]
        for line in console.file.getvalue().splitlines()
        if line.strip().startswith("│") or line.strip().startswith("|")
    }
    cells = [c for c in rows["3"] if c not in "│|"]
    assert cells == ["·", "·", "·", "2", "·", "1", "·", "·", "·", "·"]


def test_saved_weights_predict_the_same_or_say_so(tmp_path, capsys, monkeypatch):
    _, (x_test, _) = demo.load("digits")
    model = demo.make_model(x_test.shape[1:])
    model.save_weights(tmp_path / "weights.safetensors")
    predicted = model.predict(x_test, verbose=0).argmax(-1)
    np.save(tmp_path / "predicted.npy", predicted)
    arguments = ["demo", "--data", "digits", "--out", str(tmp_path), "--again"]
    monkeypatch.setattr(sys, "argv", arguments)
    assert demo.main() == 0 and "weights: True" in capsys.readouterr().out
    np.save(tmp_path / "predicted.npy", (predicted + 1) % 10)
    assert demo.main() == 1 and "weights: False" in capsys.readouterr().out
    (tmp_path / "weights.safetensors").unlink()
    assert demo.main() == 1 and "load_weights" in capsys.readouterr().err


def test_other_data_are_refused(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["demo", "--data", "faces"])
    with pytest.raises(SystemExit):
        demo.main()
    assert "fashion_mnist" in capsys.readouterr().err
