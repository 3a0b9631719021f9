"""Groups of lanes: how they are cut, read, and joined anew."""

import numpy as np
import pytest

from exburn.training.objective.readings import Readings
from exburn.tuning.groups import cut, read_lanes


@pytest.mark.parametrize("count", [1, 2, 5, 16, 17])
@pytest.mark.parametrize("width", [1, 3, 16, 32])
def test_groups_have_one_width_and_each_lane_is_in_one(count, width):
    groups = cut(count, width)
    assert len({len(group) for group in groups}) == 1 and len(groups[0]) <= width
    assert len(groups) == -(-count // width)
    assert sorted({i for group in groups for i in group}) == list(range(count))


def test_logs_are_read_lane_by_lane_in_the_order_of_the_names():
    numbers = np.array([[1.0, 2.0], [3.0, np.nan]], np.float32)
    others = {"hits": np.array([4, 5])}
    found = read_lanes(Readings(numbers, others, ("acc", "loss")), ["loss", "acc"])
    assert found[0] == {"loss": 2.0, "acc": 1.0, "hits": 4}
    assert list(found[1]) == ["loss", "acc", "hits"] and np.isnan(found[1]["loss"])
