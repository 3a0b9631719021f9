"""Documents: tokens and what of them is counted."""

import numpy as np
import pytest

from exburn.data import Document, DocumentPair
from exburn.errors import DataError, DTypeError, ShapeError


def test_all_tokens_are_counted_where_nothing_is_said():
    document = Document(np.array([3, 4], np.int64))
    assert document.tokens.dtype == np.int32
    assert document.counted.tolist() == [True, True]


def test_documents_are_equal_by_tokens_and_what_is_counted():
    assert Document([1, 2], [True, False]) == Document([1, 2], [True, False])
    assert Document([1, 2], [True, False]) != Document([1, 2])
    assert Document([1, 2]) != Document([1, 3])
    pair = DocumentPair(Document([1, 2]), Document([1, 3]))
    assert pair == DocumentPair(Document([1, 2]), Document([1, 3]))


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (([],), ShapeError),
        (([[1]],), ShapeError),
        (([1, 2], [True]), ShapeError),
        (([1.0],), DTypeError),
        (([1], [1]), DTypeError),
        (([-1],), DataError),
        (([2**31],), DataError),
    ],
)
def test_what_is_no_document_is_refused(arguments, error):
    with pytest.raises(error):
        Document(*arguments)
