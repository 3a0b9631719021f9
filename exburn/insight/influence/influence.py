"""Rows of a training that act on a prediction: ``model.influence(x, y, on=…)``."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from exburn.core.checks import check_choice, check_count, check_number, check_seed
from exburn.core.printing import one_line
from exburn.data import (
    RaggedDataset,
    StreamDataset,
    has_packed,
    has_padded,
    with_targets_like,
)
from exburn.diagnostics.finding import prepared_aside
from exburn.errors import ArgumentError, DataError, warn
from exburn.insight.influence.checkpoints import TrainingPoint, read_points
from exburn.insight.influence.products import METHODS
from exburn.insight.influence.result import Influence
from exburn.insight.influence.row_gradients import RowGradients
from exburn.insight.requirements import require_compiled_loss, require_trained_weights
from exburn.models.arguments import first_batch, part_names
from exburn.models.compiling import count_by_tokens
from exburn.models.encoding import encode_dataset, read_dataset
from exburn.models.network import Network
from exburn.models.packing import PackedRequest, are_chats, fixed_length
from exburn.models.preparing import fixed_batch_size, prepare
from exburn.models.session import require_trainer
from exburn.text.packing import BATCH_TOKENS, PackedDocuments, are_documents
from exburn.training.batch_mixing import compares_rows
from exburn.training.objective.likelihood import likelihood_loss
from exburn.training.trainer import Trainer

_OP = "influence"
_TEXT = 300  # characters that are kept of a document's text
_TOKENS = 150  # of which these are made


def influence(
    self: Network,
    x: Any,
    y: Any = None,
    *,
    on: tuple | None = None,
    method: str = "tracin",
    projection: int = 512,
    damping: float | None = None,
    checkpoints: Any = None,
    sample_weight: Any = None,
    batch_size: int | None = None,
    seed: int = 0,
) -> Influence:
    """Finds the rows of a training that help and harm the loss of other rows.

    With the gradient :math:`g` of each row's loss, the score of a row :math:`i` on a
    row :math:`j` of ``on`` is :math:`g_i^T g_j` by ``"tracin"``: by how much a step on
    :math:`i` lowers the loss of :math:`j`. By ``"trak"`` it is :math:`g_i^T (G^T G + λ
    I)^{-1} g_j`, with the gradients of all rows as :math:`G`: about the rise of the
    loss of :math:`j` where the model is trained without :math:`i`, if it is trained to
    the end and its probabilities are right. ``"datainf"`` is that for adapters: of
    each weight by itself, and the inverse of the mean of the rows' :math:`g g^T` as the
    mean of the inverses. All are at the weights as they are now, or at ``checkpoints``.

    Gradients are of the compiled loss of each row as a batch of one, in a pass at
    inference: dropout is off, and ``BatchNormalization`` uses its running statistics.
    Penalties of regularizers are left out. Gradients of more than ``projection``
    numbers are projected onto that many, by signs that the seed draws. The model is as
    it was afterwards.

    Args:
        x, y, sample_weight: Rows of the training, as of ``fit``. A stream must give
            its rows in the same order each time: results name rows by their number.
            Chats, texts and documents, or a path of such, are taken one in a row.
        on: ``(x, y)`` or ``(x, y, sample_weight)``: rows whose loss is to be explained;
            beside chats more of these. Without it there is self-influence alone.
        method: ``"tracin"``, ``"trak"`` or ``"datainf"``.
        projection: Numbers that stand for a gradient; by ``"datainf"`` for that of each
            weight.
        damping: :math:`λ` of ``"trak"`` and ``"datainf"``, as a part of the mean
            eigenvalue of :math:`G^T G`; 0.1 by default.
        checkpoints: A folder of ``ModelCheckpoint``'s whole runs, or a list of files of
            weights, or of lists as of ``get_weights``. By ``"tracin"`` the scores are
            the sum of theirs, each times its learning rate: ``[(path, rate), …]``; by
            default 1, and of whole runs that of the optimizer. Else they are the mean.
        batch_size: Rows whose gradients are taken at once; by the memory by default.
        seed: Of the projection.

    Returns:
        The scores: ``.top(k)``, ``.mislabelled(share)``, ``.duplicates()``,
        ``.harmful()``; printed, it is a table.

    Raises:
        NotCompiledError: ``compile`` was not called.
        ArgumentError: Nothing is trained, the model mixes the rows of a batch or has
            its own ``train_step``, a checkpoint is of another model, or an option is
            out of range.
        DataError, ShapeError, TargetError: The data do not fit the model.

    Example:
        >>> import numpy as np
        >>> import exburn
        >>> model = exburn.Sequential([exburn.Input((2,)), exburn.layers.Dense(1)])
        >>> model.compile("sgd", "mse", seed=0)
        >>> x, y = np.eye(2)[[0, 1, 0]], np.array([[1.0], [2.0], [1.0]])
        >>> rows = model.influence(x, y, on=(x[:1], y[:1]))
        >>> rows.scores.shape, [group.tolist() for group in rows.duplicates()]
        ((3, 1), [[0, 2]])

    Source: G. Pruthi et al., "Estimating Training Data Influence by Tracing Gradient
    Descent", 2020; S. M. Park et al., "TRAK: Attributing Model Behavior at Scale",
    2023, whose gradients are of a margin, and not of the loss; Y. Kwon et al.,
    "DataInf: Efficiently Estimating Data Influence in LoRA-tuned LLMs and Diffusion
    Models", 2024.
    """
    trainer = require_trainer(self, _OP)
    method = check_choice(_OP, "method", method, METHODS)
    projection = check_count(_OP, "projection", projection)
    damping = _damping(method, damping)
    seed = check_seed(_OP, seed) or 0
    if batch_size is not None:
        batch_size = check_count(_OP, "batch_size", batch_size)
    _check_model(self)
    texts, most = (), None
    if holds_documents(x):
        rest = {"y": y, "sample_weight": sample_weight}
        (x, y, sample_weight), texts, most = read_documents(self, x, _OP, rest)
        if on is not None:
            source = on[0] if isinstance(on, tuple) and len(on) == 1 else on
            on = read_documents(self, source, f"{_OP} (on)", {}).data
    elif on is not None and not (isinstance(on, tuple | list) and 1 <= len(on) <= 3):
        raise ArgumentError(
            _OP, "on must be (x, y) or (x, y, sample_weight)", {"received": type(on)}
        )
    with prepared_aside(self, _OP, x, y, sample_weight, batch_size) as data:
        first = first_batch(data.dataset, None, None, data.batch_size)
        _check_rows(trainer, data.dataset, first, apart=most is not None)
        points = [TrainingPoint(None, 1.0)]
        if checkpoints is not None:
            points = read_points(self, checkpoints, rates=method == "tracin")
        options = {"rows": batch_size, "most": most, "apart": method == "datainf"}
        gradients = RowGradients(trainer, projection, seed, **options)
        explained = None if on is None else _read_on(self, on, first, data.batch_size)
        count = 1 if method == "tracin" else len(points)
        results = []
        for point in points:
            gradients.take_weights(point.read(self))
            others = None
            if explained is not None:
                others = gradients.of(explained, f"{_OP} (on)").values
            rows = gradients.of(data.dataset, _OP)
            scores, own = METHODS[method](rows, others, damping, gradients.parts)
            share = np.float32(point.rate / count)
            # Side by side: products of these features are the sums over checkpoints.
            features = np.sqrt(share) * rows.values
            results.append((share * own, features, scores, share))
    owns, features, scores, shares = zip(*results, strict=True)
    total = None if on is None else np.sum([*map(np.multiply, scores, shares)], axis=0)
    values = np.concatenate(features, axis=1)
    number = 0 if checkpoints is None else len(points)
    own, entries = np.sum(owns, axis=0), gradients.entries
    return Influence(method, own, values, total, entries, number, texts)


def _damping(method: str, damping: float | None) -> float:
    if damping is None:
        return 0.1
    if method == "tracin":
        raise ArgumentError(_OP, "damping is of 'trak' and 'datainf', not of 'tracin'")
    return check_number(_OP, "damping", damping, open_low=True)


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


def _check_model(model: Network) -> None:
    require_compiled_loss(model, _OP)
    rows = fixed_batch_size(model)
    if rows not in (None, 1):
        raise ArgumentError(
            _OP,
            f"{type(model).__name__} takes batches of {rows} rows only, and the "
            "gradient of a row is that of a batch of one",
            hint="Leave batch_size out of Input.",
        )


def _check_rows(trainer: Trainer, dataset: Any, first: Any, *, apart: bool) -> None:
    """Raises where a row has no gradient of its own; nothing is compiled yet.

    Args:
        apart: Whether each of several documents has a row of its own.
    """
    require_trained_weights(trainer, _OP)
    ragged = isinstance(dataset, RaggedDataset)
    if ragged or has_padded(first[0]) or (has_packed(first[0]) and not apart):
        raise DataError(
            _OP,
            "rows of unlike lengths, and packed ones, are not supported",
            hint="Fill them up to one length, with a mask or weights. Chats and "
            "documents are taken as they are: influence(chats).",
        )
    if trainer.preparer.passes.mixes_rows("test"):
        raise ArgumentError(
            _OP,
            "the model computes with the rows of a batch together, so that the loss of "
            "one row has no gradient of its own",
            hint="BatchNormalization is fine: it uses its running statistics here.",
        )
    if first[1] is not None and not isinstance(dataset, StreamDataset):
        _try_losses(trainer, dataset.take(slice(2))[1])


def _try_losses(trainer: Trainer, y: Any) -> None:
    """Warns if the loss of two rows, with any outputs, is not made of that of each.

    It is tried of losses that a user has written, or that give one number a batch.
    """
    objective, outputs = trainer.preparer.objective, trainer.preparer.passes.latest
    tried = [one for term in objective.terms if compares_rows(one := term.loss)]
    if not tried or outputs is None or len(jax.tree.leaves(y)[0]) < 2:
        return
    draws = np.random.default_rng(0)
    some = [
        draws.uniform(0.1, 0.9, (2, *spec.shape[1:])).astype(np.float32)
        for spec in jax.tree.leaves(outputs.outputs)
    ]

    def loss(rows: slice) -> float:
        target, preds = jax.tree.map(lambda v: jnp.asarray(v[rows]), (y, some))
        none = [None] * len(preds)
        with jax.numpy_dtype_promotion("standard"):
            return float(objective.loss(target, (preds, none), None, none, None)[0])

    both, total = loss(slice(2)), loss(slice(1)) + loss(slice(1, 2))
    if not np.isclose(both, [total, total / 2], rtol=1e-3).any():
        warn(
            f"the loss {tried[0].name!r} compares the rows of a batch: influence is of "
            "the loss of each row as a batch of one, which is another"
        )


def _read_on(model: Network, on: tuple, first: Any, batch_size: int) -> Any:
    """The rows that are explained, checked beside those of the training."""
    op = f"{_OP} (on)"
    dataset = read_dataset(model, *on, op=op)
    dataset = encode_dataset(model, dataset, op=op, batch_size=batch_size)
    dataset = with_targets_like(dataset, first[1], part_names(model)[1])
    targets = first_batch(dataset, None)[1]
    if (targets is None) != (first[1] is None):
        raise DataError(
            op,
            "on needs targets where the rows of the training have some, and only there",
            hint="on=(x_test, y_test)",
        )
    prepare(model, op, dataset, like=first, batch_size=batch_size)
    return dataset
