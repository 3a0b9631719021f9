"""Tests of ``exburn.utils.progress``."""

import logging
import sys

from exburn import config, utils


def test_progbar_means_and_states(capsys):
    bar = utils.Progbar(4, verbose=2, stateful_metrics=["rate"])
    bar.update(1, [("loss", 4.0), ("rate", 1.0)])
    bar.add(3, [("loss", 2.0), ("rate", 3.0)])
    text = capsys.readouterr().out  # the last values stand, as in Keras
    assert text.startswith("4/4") and "loss: 2.0000" in text and "rate: 3.0000" in text
    utils.Progbar(None, verbose=1).update(5, finalize=True)
    assert "5/Unknown" in capsys.readouterr().out
    utils.Progbar(2, verbose=0).update(2)
    assert capsys.readouterr().out == ""


def test_progbar_into_the_log(capsys, caplog):
    config.disable_interactive_logging()
    try:
        with caplog.at_level(logging.INFO, "exburn"):
            bar = utils.Progbar(2)
            bar.update(1)
            bar.update(2)
    finally:
        config.enable_interactive_logging()
    assert len(caplog.messages) == 1 and caplog.messages[0].startswith("2/2")
    assert capsys.readouterr().out == ""


def test_a_line_that_changes_takes_one_row(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "40")
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    bar = utils.Progbar(4, interval=0.0)
    values = [(f"metric_number_{i}", 0.5) for i in range(4)]
    bar.update(1, values)
    assert len(capsys.readouterr().out.lstrip("\r")) <= 39
    bar.update(4, values)  # the line that stays has all of them
    assert "metric_number_3: 0.5000" in capsys.readouterr().out
