"""The page of a run: one file, no network, at most a megabyte."""

import re
from pathlib import Path

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
