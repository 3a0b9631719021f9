"""Chats, documents and pairs of ``fit`` and ``evaluate``, as streams of packed rows."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from exburn.core.checks import check_count
from exburn.core.printing import print_text
from exburn.data import StreamDataset
from exburn.errors import ArgumentError, locate
from exburn.layers import PositionEmbedding
from exburn.losses.contract.likelihood import LikelihoodLoss
from exburn.models.compiling import count_by_tokens
from exburn.models.network import Network
from exburn.models.preference import check_pairs, check_reference, token_scorer
from exburn.module.traversal import iter_modules
from exburn.runtime.sharding import processes
from exburn.text.packing import (
    BATCH_TOKENS,
    PackedDocuments,
    are_documents,
    pack,
)
from exburn.text.pairs import are_made, pack_pairs
from exburn.training.objective.likelihood import likelihood_loss
from exburn.training.requests import FitRequest


@dataclasses.dataclass(frozen=True)
class PackedRequest:
    """How chats or documents are to be packed.

    Args:
        op: ``"fit"`` or ``"evaluate"``.
        x: The chats, or `PackedDocuments`.
        batch_tokens: Tokens of a batch.
        length: Tokens of a row.
        train_on: What of a chat is counted.
        refused: What such data do not take, by the arguments' names.
        loss: The loss of log-probabilities that the model is compiled with, or
            ``None``: the data are pairs of answers then.
        reference: The model whose log-probabilities are that loss' reference.
    """

    op: str
    x: Any
    batch_tokens: int | None
    length: int | None
    train_on: str | None
    refused: dict[str, Any]
    verbose: int | str = "auto"
    loss: LikelihoodLoss | None = None
    reference: Network | None = None

    @property
    def is_packed(self) -> bool:
        """Whether the data are to be packed.

        Raises:
            ArgumentError: Some arguments say so, others do not.
        """
        if self.batch_tokens is not None or isinstance(self.x, PackedDocuments):
            return True
        if self.loss is not None and not isinstance(self.x, StreamDataset):
            return True
        if are_documents(self.x) or are_chats(self.x):
            return True
        for name in ("length", "train_on", "reference"):
            if getattr(self, name) is not None:
                raise ArgumentError(
                    self.op,
                    f"{name} is an argument for chats and documents that are packed, "
                    "and batch_tokens is not given",
                    hint=f"model.{self.op}(chats, batch_tokens=16_384)",
                )
        return False

    def check(self, model: Network) -> None:
        """Raises if the arguments do not fit together.

        Raises:
            ArgumentError: They do not.
        """
        for name, value in self.refused.items():
            if value is not None:
                raise ArgumentError(
                    self.op,
                    f"{name} is not taken beside packed documents, received "
                    f"{type(value).__name__}",
                    hint=_HINTS.get(name, "Leave it out: documents say what counts."),
                )
        for name in ("batch_tokens", "length"):
            if getattr(self, name) is not None:
                check_count(self.op, name, getattr(self, name), 2)
        check_reference(self.op, model, self.loss, self.reference)
        if isinstance(self.x, PackedDocuments) and self.train_on is not None:
            raise ArgumentError(
                self.op,
                "train_on is said when documents are made: these are already",
                hint="exburn.text.pack(chats, tokenizer, train_on=…)",
            )
        if processes.count() > 1:
            raise ArgumentError(
                self.op,
                "packed documents cannot be those of one process of several",
                hint="Train them in one process, on all of its devices: mesh='fsdp'.",
            )
        graph = model.graph
        if graph is not None and [len(spec.shape) for spec in graph.inputs] != [2]:
            raise ArgumentError(
                self.op,
                "packed documents need a model with one input of tokens, [rows, time]",
                {"inputs": [tuple(spec.shape) for spec in graph.inputs]},
            )

    def documents(self, model: Network, source: Any) -> PackedDocuments:
        """The documents of chats, the pairs of answers, or those that are there."""
        if isinstance(source, PackedDocuments):
            check_pairs(self.op, self.loss, source)
            return source
        options: dict[str, Any] = {}
        if self.train_on is not None:
            options["train_on"] = self.train_on
        if model.tokenizer is None and not are_made(source):
            raise ArgumentError(
                self.op,
                "chats and texts are cut into tokens by the model's tokenizer, and it "
                "has none",
                hint="model.tokenizer = exburn.text.Tokenizer.load(folder)",
            )
        if self.loss is not None:
            options |= {"length": self.length, "labelled": self.loss.labelled}
            return pack_pairs(source, model.tokenizer, **options)
        most = self.length or context_of(model)
        return pack(source, model.tokenizer, most, verbose=self.verbose, **options)

    def stream(self, model: Network) -> tuple[StreamDataset, int]:
        """Batches of the documents, and rows of a batch."""
        self.check(model)
        stream, _, rows, _ = self.streams(model, self.documents(model, self.x))
        return stream, rows

    def streams(
        self, model: Network, documents: PackedDocuments, validation: Any = None
    ) -> tuple[StreamDataset, StreamDataset | None, int, dict[str, Any]]:
        """Batches of the documents, of those of a validation, and rows of a batch.

        Returns:
            The fourth one is what a log tells of the packing.
        """
        context = context_of(model)
        said = self.length or (
            documents.length if isinstance(self.x, PackedDocuments) else None
        )
        most = self.batch_tokens or BATCH_TOKENS
        length = fixed_length(model) or said or documents.usual_length(context, most)
        if self.batch_tokens is None:
            most = max(most, length)
        if most < length:
            raise ArgumentError(
                self.op,
                f"batch_tokens must be at least a row, {length} tokens, received "
                f"{most}",
                hint=f"batch_tokens={8 * length} is 8 rows; length= has shorter ones.",
            )
        documents, rows = documents.with_length(length), most // length
        documents = self._with_reference(documents, rows)
        count_by_tokens(model)
        stream = documents.stream(rows, self.op)
        facts = facts_of(documents, rows)
        if self.verbose and processes.is_main():
            print_text(_line_of(documents, facts))
        held_out = None
        if validation is not None:
            try:
                held_out = validation.with_length(length)
                held_out = self._with_reference(held_out, rows)
            except Exception as error:
                locate(error, "in the validation data")
                raise
            held_out = held_out.stream(rows, f"{self.op} (validation data)")
        return stream, held_out, rows, facts

    def _with_reference(self, documents: Any, rows: int) -> Any:
        """Pairs with what the reference says of them, if one was given."""
        if self.reference is None:
            return documents
        return documents.with_reference(token_scorer(self.reference, self.op), rows)


_HINTS = {
    "batch_size": "batch_tokens says how many tokens a batch has.",
    "validation_batch_size": "batch_tokens says how many tokens a batch has.",
    "y": "The targets are the next tokens of the documents.",
    "resident": "They are streamed: leave it out.",
}


def packed_request(model: Network, request: FitRequest) -> FitRequest:
    """The request with streams of packed rows in the place of chats and documents.

    Any other request stays as it is.
    """
    names = "y", "sample_weight", "class_weight", "batch_size", "validation_batch_size"
    packed = PackedRequest(
        request.op,
        request.x,
        request.batch_tokens,
        request.length,
        request.train_on,
        {name: getattr(request, name) for name in (*names, "resident")},
        request.verbose,
        likelihood_loss(model._training_session.objective.losses),
        request.reference,
    )
    if not packed.is_packed:
        return request
    packed.check(model)
    documents, validation = packed.documents(model, request.x), None
    if request.validation_data is not None:
        validation = packed.documents(model, request.validation_data)
    elif request.validation_split:
        documents, validation = documents.divide(request.validation_split)
    stream, held_out, rows, facts = packed.streams(model, documents, validation)
    return dataclasses.replace(
        request,
        x=stream,
        validation_data=held_out,
        validation_split=0.0,
        batch_size=rows,
        packing=facts,
    )


def facts_of(documents: PackedDocuments, rows: int) -> dict[str, Any]:
    """What a history tells of packed documents.

    Args:
        rows: Rows of a batch.
    """
    return {
        documents.noun: len(documents),
        "tokens": documents.tokens,
        "rows": documents.rows,
        "length": documents.length,
        "rows_of_batch": rows,
        "fill_rate": documents.fill_rate,
        "cut": documents.cut,
        "dropped": documents.dropped,
    }


def _line_of(documents: PackedDocuments, facts: dict[str, Any]) -> str:
    beside = "".join(
        f", {facts[name]:,} {name}" for name in ("cut", "dropped") if facts[name]
    )
    return (
        f"{len(documents):,} {documents.noun}{beside}: {facts['tokens']:,} tokens, "
        f"{facts['rows']:,} rows of {facts['length']:,}, {facts['fill_rate']:.1%} "
        "filled"
    )


def are_chats(source: Any) -> bool:
    """Whether a list has chats, which nothing else of ``fit`` looks like."""
    first = source[0] if isinstance(source, list | tuple) and source else None
    messages = first if isinstance(first, list | tuple) and first else [None]
    return isinstance(messages[0], Mapping) and {"role", "content"} <= {*messages[0]}


def fixed_length(model: Network) -> int | None:
    """The length of rows that a model's input fixes, or ``None``."""
    if model.graph is None:
        return None
    length = model.graph.inputs[0].shape[1]
    return length if isinstance(length, int) else None


def context_of(model: Network) -> int | None:
    """Tokens that a model can see at once, if that has a limit."""
    limits = [
        part.sequence_length
        for _, part in iter_modules(model)
        if isinstance(part, PositionEmbedding)
    ]
    own = None if model.tokenizer is None else model.tokenizer.settings.max_length
    further = fixed_length(model), own, getattr(model, "context_length", None)
    return min([*limits, *(n for n in further if n is not None)], default=None)
