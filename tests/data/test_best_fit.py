import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from exburn.data.best_fit import best_fit, count_rows, pack_rows

LENGTHS = np.clip(np.random.default_rng(0).lognormal(4, 1, 2000), 1, 512).astype(int)


@settings(max_examples=50, deadline=None)
@given(
    st.lists(st.integers(1, 40), min_size=1, max_size=60),
    st.integers(1, 5),
    st.integers(0, 2**31) | st.none(),
)
def test_each_document_is_in_one_row_that_it_fits_in(sizes, rows_of_batch, seed):
    lengths = np.array(sizes)
    batches = -(-count_rows(lengths, 40) // rows_of_batch)
    random = None if seed is None else np.random.default_rng(seed)
    packing = pack_rows(lengths, 40, rows_of_batch, batches, random)
    rows = [packing.row(number) for number in range(len(packing))]
    assert sorted(np.concatenate(rows).tolist()) == list(range(len(sizes)))
    assert all(0 < lengths[row].sum() <= 40 for row in rows)
    assert -(-len(rows) // rows_of_batch) == batches  # none is empty


def test_rows_are_full():
    assert LENGTHS.sum() / (512 * count_rows(LENGTHS, 512)) > 0.99
    alike = np.full(30, 7)
    assert best_fit(alike, np.arange(30), 10) == [[n] for n in range(30)]


def test_epochs_mix_documents_otherwise():
    def companions(seed):
        batches = -(-count_rows(LENGTHS, 512) // 4)
        random = np.random.default_rng(seed)
        packing = pack_rows(LENGTHS, 512, 4, batches, random)
        rows = [packing.row(number) for number in range(len(packing))]
        return {frozenset(row.tolist()) for row in rows if len(row) > 1}

    one, other = companions(0), companions(1)
    assert one == companions(0)
    assert len(one & other) < 0.1 * len(one)


def test_without_shuffling_rows_come_in_the_order_of_documents():
    lengths = np.array([3, 5, 4, 6, 2])
    packing = pack_rows(lengths, 10, 2, 1)
    assert [packing.row(n).tolist() for n in range(2)] == [[0, 1, 4], [2, 3]]
