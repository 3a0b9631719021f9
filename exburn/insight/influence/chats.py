"""Chats and documents as rows of an influence: each in a row of its own."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, NamedTuple

from exburn.core.printing import one_line
from exburn.errors import ArgumentError
from exburn.models.compiling import count_by_tokens
from exburn.models.network import Network
from exburn.models.packing import PackedRequest, are_chats, fixed_length
from exburn.text.packing import BATCH_TOKENS, PackedDocuments, are_documents
from exburn.training.objective.likelihood import likelihood_loss

_TEXT = 300  # characters that are kept of a text
_TOKENS = 150  # of which these are made


class DocumentRows(NamedTuple):
    """Documents as data of ``fit``, and their texts.

    Attributes:
        data: Rows of tokens, the next tokens, and which of them count.
        texts: How each begins; none if the model has no tokenizer.
        most: Rows that go through the model at once.
    """

    data: tuple[Any, Any, Any]
    texts: tuple[str, ...]
    most: int


def holds_documents(x: Any) -> bool:
    """Whether data are chats, texts or documents, or a path of such."""
    if isinstance(x, PackedDocuments | str | os.PathLike):
        return True
    if isinstance(x, list) and x and isinstance(x[0], Mapping):
        return True
    return are_documents(x) or are_chats(x)


def read_documents(
    model: Network, source: Any, op: str, refused: Mapping[str, Any]
) -> DocumentRows:
    """Reads chats as ``fit`` does.

    Args:
        refused: Arguments that documents do not take, by name.

    Raises:
        ArgumentError: The model is for no such data, or learns from pairs.
        DataError: Rows cannot be used, or are too long.
    """
    if likelihood_loss(model._training_session.objective.losses) is not None:
        raise ArgumentError(op, "pairs of answers have no influence by rows yet")
    request = PackedRequest(op, source, None, None, None, dict(refused), verbose=0)
    request.check(model)
    documents = request.documents(model, source)
    longest = max(int(documents.lengths.max()), 2)
    length = fixed_length(model) or documents.length or longest
    documents = documents.with_length(length)
    count_by_tokens(model)
    texts = ()
    if (tokenizer := model.tokenizer) is not None:
        texts = tuple(
            one_line(tokenizer.decode(documents[number].tokens[:_TOKENS]))[:_TEXT]
            for number in range(len(documents))
        )
    return DocumentRows(documents.apart(), texts, max(BATCH_TOKENS // length, 1))
