"""Early stopping of each lane is that of its own fit."""

import numpy as np
import pytest
from tests.tuning.models import X, Y, make_model

from exburn.callbacks import EarlyStopping
from exburn.errors import ArgumentError
from exburn.tuning import PBT, sweep

FIT = {"epochs": 7, "batch_size": 8, "verbose": 0, "validation_split": 0.25}
RATES = [0.3, 0.01]


def stopping(**options):
    return EarlyStopping("val_loss", patience=1, **options)


@pytest.mark.parametrize("restore", [True, False])
def test_each_lane_stops_and_keeps_the_weights_that_its_own_fit_would(restore):
    options = {"restore_best_weights": restore}
    over = {"learning_rate": RATES, "seed": [1, 2]}
    result = sweep(make_model(), X, Y, over=over, callbacks=stopping(**options), **FIT)
    assert len({record.epochs for record in result.records}) > 1
    for number, record in enumerate(result.records):
        alone, callback = make_model(record.trial["seed"]), stopping(**options)
        alone.optimizer.learning_rate = record.trial["learning_rate"]
        history = alone.fit(X, Y, callbacks=[callback], **FIT).history
        np.testing.assert_allclose(
            record.history["val_loss"], history["val_loss"], rtol=1e-4
        )
        wanted = min(history["val_loss"]) if restore else history["val_loss"][-1]
        np.testing.assert_allclose(record.score, wanted, rtol=1e-4)
        assert record.status == "finished"
        pairs = zip(
            result._build(number).get_weights(), alone.get_weights(), strict=True
        )
        for one, two in pairs:
            np.testing.assert_allclose(one, two, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"checkpoint": "folder"}, "checkpoint="),
        ({"scheduler": PBT(interval=2)}, "PBT"),
        ({"callbacks": [stopping(), stopping()]}, "One EarlyStopping"),
    ],
)
def test_what_early_stopping_does_not_go_with_is_refused(options, says, tmp_path):
    if "checkpoint" in options:
        options = {"checkpoint": tmp_path / "folder"}
    given = {"over": {"learning_rate": RATES}, "callbacks": stopping()} | options
    with pytest.raises(ArgumentError, match=says):
        sweep(make_model(), X, Y, **given, **FIT)
