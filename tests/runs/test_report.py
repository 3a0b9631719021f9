"""The page of a run: one file, no network, at most a megabyte."""

import re
from pathlib import Path

import pytest
from tests.visualization.html_pages import Page

from exburn import runs
from exburn.runs.reading import Run
from exburn.runs.report import make_report


def test_the_page_needs_nothing_else(first):
    text = (first / "report.html").read_text()
    assert "finished" in text and text.endswith("</html>\n")
    assert not re.search(
        r"<(script|link|img|iframe)|url\(|@import|https?://(?!www\.w3)", text
    )
    assert "prefers-color-scheme:dark" in text
    assert text.count("<polyline") >= 4  # loss and accuracy, training and validation
    assert runs.write_report(first) == first.resolve() / "report.html"


def test_it_never_has_more_than_a_megabyte():
    names = [f"metric_{number}" for number in range(150)]
    epochs = [
        {
            "epoch": epoch,
            "step": 10,
            "seconds": float(epoch),
            "logs": {name: (epoch * 7919 % 100) / 3 for name in names},
        }
        for epoch in range(200)
    ]
    config = {
        "fit": {"epochs": 200},
        "model": {"name": "m", "summary": "é" * 10**6, "architecture": ["é"] * 10**5},
    }
    events = [{"event": "compile", "time": 0.0, "program": "p" * 10_000}] * 300
    events.append({"event": "failed", "error": "<b>", "traceback": "x" * 10**6})
    run = Run(Path("a"), "failed", config, {}, epochs, [], events, 0)
    text = make_report(run)
    assert len(text.encode()) <= 1_000_000
    assert "Not drawn: " in text and "&lt;b&gt;" in text and "<b>" not in text[:500]


def test_names_and_values_are_no_html(first):
    run = runs.read(first)
    run.epochs[-1]["logs"]["<script>alert(1)</script>"] = 1.0
    assert "<script" not in make_report(run)


def test_a_notebook_shows_a_run(first):
    run = runs.read(first)
    run.epochs[-1]["logs"]["<b>x"] = 1.0
    page = Page(run._repr_html_()).check()
    assert page.names.count("svg") >= 2 and "finished" in page.text
    assert "<b>x" in page.text and "b" not in page.names


def test_settings_are_told_in_words(first):
    text = make_report(runs.read(first))
    assert "class_name" not in text and "registered_name" not in text
    assert "{&#x27;" not in text and "JSON" not in text
    rows = dict(
        re.findall(r'<td class="k">([^<]*)</td><td class="v">([^<]*)</td>', text)
    )
    assert rows["batch size"] == "16" and rows["shuffle"] == "yes"
    assert re.match(r"Adam \(learning_rate 0\.\d+, beta_1 0\.9, ", rows["optimizer"])
    assert re.search(r">Dense</td><td[^>]*>units \d", text)


def test_every_metric_has_its_best_value():
    logs = [
        {"loss": 3.0, "sum": 1.0},
        {"loss": 1.0, "sum": 9.0},
        {"loss": 2.0, "sum": 5},
    ]
    epochs = [{"epoch": n, "step": 1, "logs": log} for n, log in enumerate(logs)]
    text = make_report(Run(Path("a"), "finished", {}, {}, epochs, [], [], 0))
    assert "loss · best 1, epoch 2" in text
    table = re.findall(r">([^<]*)</td>", text.split("Results")[1].split("</table>")[0])
    assert table == [
        *("loss", "2", "1", "2"),
        *("sum", "5", "1 (lowest), 9 (highest)", "1, 2"),
    ]


ODD = [None, 3, "x", [], {}, {"config": 3}, {"config": {"layers": 3}}]
ODD += [{"config": {"layers": [3, {"config": 4}]}}, {"class_name": {}, "config": []}]


@pytest.mark.parametrize("value", ODD, ids=str)
def test_strange_settings_are_no_error(value):
    config = {"model": {"architecture": value}, "fit": {"a": value, "b": [value]}}
    assert make_report(Run(Path("a"), "finished", config, {"c": value}, [], [], [], 0))
