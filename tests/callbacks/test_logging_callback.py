"""Tests of ``exburn.callbacks.logging_callback``."""

from tests.callbacks.messages import X, Y, model

from exburn import callbacks


def test_logging():
    lines = []
    logger = callbacks.LoggingCallback(lines.append)
    model().fit(X, Y, epochs=2, validation_split=0.25, verbose=0, callbacks=[logger])
    first = r"Epoch 1: loss=\d\.\d{4} val_loss=\d\.\d{4} acc=\d+\.\d% val_acc=\d+\.\d% "
    import re

    assert re.fullmatch(first + r"\(\d+ samples/s, \d+ms\) ETA=\d+s", lines[0])
    assert re.fullmatch(
        first.replace("1:", "2:") + r"\(\d+ samples/s, \d+ms\)", lines[1]
    )


def test_durations():
    from exburn.callbacks.logging_callback import _duration

    assert [_duration(s) for s in (5, 62.1, 59.6, 3700)] == [
        "5s",
        "1m2s",
        "1m0s",
        "1h1m",
    ]
