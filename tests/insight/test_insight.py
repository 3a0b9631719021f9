"""What every insight has: a page, a file that is whole, and one that is checked."""

import json

import numpy as np
import pytest
from rich.table import Table

import exburn
from exburn.errors import ModelFormatError
from exburn.errors.boundary import is_guarded
from exburn.insight.curvature import Curvature
from exburn.insight.influence.result import Influence
from exburn.insight.insight import Insight
from exburn.saving.shards import write_tensors


class Heights(Insight):
    kind = "heights"

    def __init__(self, name, values):
        self.name, self.values = name, values

    def text(self):
        return "Metres above the sea."

    def table(self):
        table = Table(title="Heights")
        table.add_column("Name")
        table.add_column("Height", justify="right")
        for value in self.values:
            table.add_row(self.name, f"{value:.1f}")
        return table

    def to_content(self):
        return {"name": self.name}, {"values": self.values}

    @classmethod
    def from_content(cls, settings, arrays):
        if not isinstance(settings["name"], str):
            raise TypeError("name is a text")
        return cls(settings["name"], arrays["values"])


def heights(name="<b>hill</b>"):
    return Heights(name, np.asarray([1.5, 20.0], np.float32))


def test_a_file_is_read_back(tmp_path):
    heights().save(tmp_path / "h")
    again = Heights.load(tmp_path / "h")
    assert again.name == "<b>hill</b>" and again.values.tolist() == [1.5, 20.0]


def test_terminal_and_notebook_show_table_and_text():
    text, page = str(heights()), heights()._repr_html_()
    assert "20.0" in text and "Metres above the sea." in text
    assert "&lt;b&gt;hill" in page and "<b>hill" not in page
    assert "Metres above the sea." in page and "20.0" in page


def test_any_flipped_byte_is_an_error(tmp_path):
    path = heights().save(tmp_path / "h")
    raw = path.read_bytes()
    for place in range(0, len(raw), 7):
        path.write_bytes(raw[:place] + bytes([raw[place] ^ 1]) + raw[place + 1 :])
        with pytest.raises(ModelFormatError):
            Heights.load(path)


class Depths(Heights):
    kind = "depths"


@pytest.mark.parametrize(
    "metadata",
    [
        {"kind": "depths", "settings": json.dumps({"name": "x"})},
        {"kind": "heights", "settings": json.dumps({"name": 3})},
        {"kind": "heights", "settings": json.dumps({})},
        {"kind": "heights", "settings": "[]"},
        {"kind": "heights", "settings": "{"},
        {"kind": "heights"},
        {},
    ],
)
def test_what_is_something_else_is_refused(tmp_path, metadata):
    values = {"values": np.zeros(2, np.float32)}
    write_tensors(tmp_path / "h", values, metadata, format="exburn-insight-1")
    with pytest.raises(ModelFormatError, match=r"h\b"):
        Heights.load(tmp_path / "h")


def test_arrays_that_are_missing_are_named(tmp_path):
    metadata = {"kind": "heights", "settings": json.dumps({"name": "x"})}
    write_tensors(tmp_path / "h", {}, metadata, format="exburn-insight-1")
    with pytest.raises(ModelFormatError, match="values"):
        Heights.load(tmp_path / "h")


def test_an_error_of_a_subclass_is_shown_at_the_users_line():
    assert is_guarded(Heights.plot) and is_guarded(Heights.text)
    assert is_guarded(Curvature.top) and is_guarded(Influence.harmful)


def test_one_function_reads_the_files_of_all_kinds(tmp_path):
    model = exburn.Sequential([exburn.Input((2,)), exburn.layers.Dense(1)])
    model.compile("sgd", "mse", seed=0)
    x, y = np.eye(2, dtype=np.float32), np.ones((2, 1), np.float32)
    for made in (model.explain(x), model.influence(x, y), model.curvature(x, y)):
        made.save(tmp_path / "made")
        again = exburn.insight.load(tmp_path / "made")
        assert type(again) is type(made) and str(again) == str(made)
        assert getattr(exburn.insight, type(made).__name__) is type(made)
    heights().save(tmp_path / "h")
    assert type(exburn.insight.load(tmp_path / "h")) is Heights
    model.save_weights(tmp_path / "w")
    with pytest.raises(ModelFormatError, match="no insight"):
        exburn.insight.load(tmp_path / "w.safetensors")
