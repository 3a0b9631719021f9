"""Tests of ``exburn.visualization.page``."""

import pytest
from tests.visualization.html_pages import Page

from exburn.visualization import page
from exburn.visualization.curves import Curve, Panel, PlotAxis

EVIL = "<script>alert(1)</script>\" onload='x' \x1b[2J\u202e&"


def test_rows_fold_others():
    inner = page.TableRow(["head", 2], inside=[page.TableRow(["dense", 1], "Dense")])
    rows = [page.TableRow(["first", 3]), page.TableRow(["block", 2], inside=[inner])]
    shown = page.fragment(page.table(["Layer", "Params"], rows, [70, 30], [1]))
    read = Page(shown).check()
    assert read.names.count("details") == read.names.count("summary") == 2
    assert read.names.count("table") == 3
    # On a page without style the parts of a folded row are words, not one word.
    assert "▸" not in read.text and "block 2" in read.text
    places = [
        a["style"] for a in read.attributes if "padding-left" in a.get("style", "")
    ]
    assert [p.split("padding-left:")[1] for p in places] == [
        "14px",
        "0px",
        "14px",
        "42px",
    ]


def test_whatever_is_shown_is_no_html():
    row = page.TableRow([EVIL, EVIL], EVIL, [page.TableRow([EVIL, EVIL])])
    panel = Panel(EVIL, (Curve(EVIL, [(1, 1.0)], (1, 1.0)), Curve(EVIL, [(1, 2.0)])))
    parts = page.title(EVIL, EVIL), page.note(EVIL), page.charts([panel])
    shown = page.fragment(*parts, page.table([EVIL, "b"], [row], [50, 50]))
    read = Page(shown).check()
    assert "<script>alert(1)" in read.text and "\x1b" not in shown
    assert "\u202e" not in shown


@pytest.mark.parametrize(
    "place",
    [
        '[data-jp-theme-light="true"] .exburn',
        '[data-jp-theme-light="false"] .exburn',
        ".vscode-dark .exburn",
        '[data-md-color-scheme="slate"] .exburn',
        "@media(prefers-color-scheme:dark){.exburn",
    ],
)
def test_a_page_may_be_light_or_dark(place):
    style = Page(page.fragment("")).check().style
    assert place in style
    colors = style.split(place)[1].split("{")[1]
    assert "--text:var(--jp-content-font-color1," in colors


def test_a_chart_has_axes_with_ticks_and_marks():
    points = [(float(e), 1 / e) for e in range(1, 13)]
    panel = Panel("loss", (Curve("training", points, points[-1]),))
    read = Page(page.fragment(page.charts([panel]))).check()
    assert all(word in read.text for word in ("loss", "epoch", "3", "6", "9", "12"))
    assert "best training: 0.08333, epoch 12" in read.text
    marks = [a for a in read.attributes if a.get("class") == "a"]
    assert len(marks) == 2 + 6 + len(PlotAxis([1, 1 / 12]).ticks(4))
    # Without a style the curve is a line, too.
    (curve,) = [a for a in read.attributes if a.get("class") == "l s0"]
    assert curve["fill"] == "none" and curve["stroke"].startswith("#")


@pytest.mark.parametrize(
    ("last", "ticks"),
    [(1, [1]), (2, [1, 2]), (4, [1, 2, 3, 4]), (12, [2, 4, 6, 8]), (100, [20, 40])],
)
def test_epochs_are_whole_numbers(last, ticks):
    assert PlotAxis([1, last], False).ticks(6, whole=True)[: len(ticks)] == ticks
