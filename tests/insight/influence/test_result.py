"""`Influence`: which rows it names, and its file."""

from __future__ import annotations

import numpy as np
import pytest

from exburn.errors import ArgumentError, ModelFormatError
from exburn.insight.influence.result import Influence

F32 = np.float32


def influence(features, scores=None, own=None) -> Influence:
    features = np.asarray(features, F32)
    own = (features**2).sum(1) if own is None else np.asarray(own, F32)
    scores = None if scores is None else np.asarray(scores, F32)
    return Influence("tracin", own, features, scores, features.shape[1])


def test_duplicates_are_rows_of_one_direction():
    rows = influence([[1, 0], [0, 2], [3, 0], [0, 0], [0, 0], [-1, 0], [0, 1], [9, 0]])
    groups = [group.tolist() for group in rows.duplicates()]
    assert groups == [[0, 2, 7], [1, 6]]
    assert influence([[1, 0], [0, 1]]).duplicates() == []
    near = influence([[1, 0], [1, 0.1]])
    assert near.duplicates() == []
    assert [g.tolist() for g in near.duplicates(0.99)] == [[0, 1]]


def test_duplicates_are_found_over_blocks():
    features = np.random.default_rng(0).standard_normal((3000, 16)).astype(F32)
    features[2999] = 2 * features[5]
    features[1500] = features[5]
    groups = [group.tolist() for group in influence(features).duplicates()]
    assert groups == [[5, 1500, 2999]]


def test_top_names_no_row_of_the_other_kind():
    rows = influence(np.eye(3), [[1.0, 3.0], [-1.0, 0.0], [0.0, 0.0]])
    assert [part.tolist() for part in rows.top(5)] == [[0], [1]]
    assert rows.harmful().tolist() == [1]
    assert [part.tolist() for part in rows.top(5, row=1)] == [[0], []]
    with pytest.raises(ArgumentError, match="below 2"):
        rows.top(row=2)
    with pytest.raises(
        ArgumentError,
        match="on=",
    ):
        influence(np.eye(3)).top()


@pytest.mark.parametrize("share, count", [(0.05, 5), (0.29, 29), (0.001, 1), (1, 100)])
def test_mislabelled_takes_a_share(share, count):
    rows = influence(np.arange(1, 101)[:, None])
    assert rows.mislabelled(share).tolist() == list(range(99, 99 - count, -1))
    with pytest.raises(ArgumentError, match="share"):
        rows.mislabelled(0)


def test_shows_and_draws():
    rows = influence(np.eye(3), [[1.0], [-1.0], [0.5]])
    assert "Helps" in str(rows) and "TracIn" in rows.text()
    assert "Helps" in rows._repr_html_()
    left, right = rows.plot().axes[::-1]
    assert len(left.patches) == 3 and len(right.lines) == 1
    alone = influence(np.eye(3))
    assert "Helps" not in str(alone) and len(alone.plot().axes) == 1


def test_file_gives_it_back(tmp_path):
    for scores in (None, [[1.0], [-1.0]]):
        rows = influence([[1, 2], [3, 4]], scores)
        read = Influence.load(rows.save(tmp_path / "rows"))
        assert np.array_equal(read.features, rows.features)
        assert str(read) == str(rows)


@pytest.mark.parametrize(
    "change",
    [
        {"features": np.ones((3, 2), F32)},
        {"features": np.ones((2, 9), F32)},
        {"features": np.full((2, 2), np.nan, F32)},
        {"features": np.ones((2, 2), np.float64)},
        {"self_influence": np.ones((2, 1), F32)},
        {"scores": np.ones((2,), F32)},
        {"method": "other"},
        {"entries": 0},
        {"entries": "many"},
    ],
    ids=str,
)
def test_file_with_other_content_is_refused(tmp_path, change):
    class Damaged(Influence):
        def to_content(self):
            settings, arrays = super().to_content()
            arrays |= {n: v for n, v in change.items() if isinstance(v, np.ndarray)}
            settings |= {n: v for n, v in change.items() if n in settings}
            return settings, arrays

    parts = influence([[1, 2], [3, 4]])
    damaged = Damaged("tracin", parts.self_influence, parts.features, None, 2)
    with pytest.raises(ModelFormatError, match="influence"):
        Influence.load(damaged.save(tmp_path / "rows"))
