"""What the result of a training depends on, and what of it is not as it was.

Whatever goes on from a file of an earlier training compares its own provenance with the
one in the file: ``fit(resume=…)``, runs, sweeps, studies.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from importlib.metadata import version
from threading import Event
from typing import Any

import numpy as np
from flax import nnx
from jax import tree

from exburn.core import registry
from exburn.core.batch_independence import is_foreign
from exburn.core.digests import (
    describe_array,
    describe_value,
    with_digest,
    without_code,
    without_digest,
)
from exburn.data import ArrayDataset, StreamDataset
from exburn.data.ragged import is_ragged
from exburn.data.trees import NAMES, leaves
from exburn.errors import CheckpointError, ExBurnError, unknown_name
from exburn.module.layer import Layer
from exburn.module.traversal import iter_modules, iter_weights
from exburn.module.variable import Static
from exburn.runtime.sharding.arrays import spans_processes
from exburn.training.prepare import Preparer

#: The parts by which differences are told, and may be allowed.
PARTS = (
    *("x", "y", "sample_weight", "class_weight", "validation_data", "batch_size"),
    *("shuffle", "steps_per_epoch", "warmup", "model", "optimizer", "loss"),
    *("loss_weights", "metrics"),
)
_NONE = "None"  # the text of a part that is not there
_VERSIONS = "versions"  # the entry with those that code depends on
_RATE = "learning_rate"
_UNKNOWN = "unknown"  # of a part that is not compared
_MANY = 8  # differences that are told
# Attributes of all layers, beside their options.
_NOT_SETTINGS = frozenset(
    "built name _name _auto_name supports_masking input_spec nodes _meta _run _reached"
    " _policy _given_policy _autocast _own_build _trainable"
    # Those of models, which are described by what they do or change nothing.
    " _graph _host _symbols _start _tokenizer _changes _pruning _compression _report"
    " _origin _format".split()
)


class Provenance:
    """What the result of a training depends on: a short text of each part.

    Args:
        texts: Texts by the names of the parts; ``None`` where one is not known.
        arrays: Arrays by their names, which are described when that is needed.

    Example:
        >>> one = Provenance({"loss": "mse"}, {"y": np.zeros(2)})
        >>> other = Provenance({"loss": "mae"}, {"y": np.ones(2)})
        >>> other.differences_from(one.entries())
        ['loss: mse → mae', 'y: other values (float64[2])']
    """

    def __init__(
        self, texts: Mapping[str, str | None], arrays: Mapping[str, Any] | None = None
    ):
        self._texts, self._arrays = dict(texts), dict(arrays or {})
        self._stop = Event()
        self._begun: Future[dict[str, str]] | None = None

    def begin(self) -> None:
        """Begins to describe the arrays in a thread, beside the training."""
        if self._arrays and self._begun is None:
            threads = ThreadPoolExecutor(1, "exburn-provenance")
            self._begun = threads.submit(self._describe_arrays)
            threads.shutdown(wait=False)

    def close(self) -> None:
        """Ends what ``begin`` has begun."""
        self._stop.set()

    def entries(self) -> dict[str, str]:
        """All texts by name, as they are written into a file."""
        if self._arrays:
            begun, self._begun = self._begun, None
            texts = self._describe_arrays() if begun is None else begun.result()
            self._texts |= texts
            self._arrays = {}
        texts = {name: text or _UNKNOWN for name, text in self._texts.items()}
        return {_VERSIONS: _versions(), **texts}

    def _describe_arrays(self) -> dict[str, str]:
        return {
            name: describe_array(array, self._stop)
            for name, array in self._arrays.items()
        }

    def differences_from(
        self, saved: Mapping[str, str], allowed: Collection[str] = ()
    ) -> list[str]:
        """What is not as in a file, in words, part by part.

        Args:
            saved: What ``entries`` of another one returned.
        """
        now = self.entries()
        same_code = saved.get(_VERSIONS) == now[_VERSIONS]
        texts = [*saved.items(), *now.items()]
        unknown = {name for name, text in texts if text == _UNKNOWN}
        changes: dict[str, str] = {}
        others: set[str] = set()  # things of another class, whose options differ, too
        for name in sorted({*now, *saved} - unknown - {_VERSIONS}):
            if part_of(name) in allowed or not others.isdisjoint(_around(name)):
                continue
            old, new = saved.get(name, _NONE), now.get(name, _NONE)
            if not same_code and (
                _has_code(old) or name not in now or name not in saved
            ):
                continue  # another version has other options, and compiles other code
            if old != new:
                changes[name] = _change(name, old, new)
                if without_digest(old) != without_digest(new):
                    others.add(name)
        order = [*dict.fromkeys([*now, *saved])]
        return [changes[name] for name in order if name in changes]

    def leave_out(self, name: str) -> None:
        """Notes that a part is not known: it is not compared."""
        self._texts[name] = None

    def changes(self, other: Provenance) -> dict[str, tuple[str | None, str | None]]:
        """Texts that differ from those of another one: ours, and the other's."""
        names = dict.fromkeys([*self._texts, *other._texts])
        pairs = {n: (self._texts.get(n), other._texts.get(n)) for n in names}
        return {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}

    def undo(self, changes: Mapping[str, tuple[str | None, str | None]]) -> None:
        """Goes back where a text is what an earlier training has made of it.

        Args:
            changes: What ``changes`` returned: before that training, and after it.
        """
        for name, (before, after) in changes.items():
            if name in self._texts and self._texts[name] == after:
                self._texts[name] = before


def check_allowed(op: str, may_differ: Any) -> frozenset[str]:
    """Names of parts that may differ from those of a file."""
    names = [may_differ] if isinstance(may_differ, str) else list(may_differ)
    for name in names:
        if name not in PARTS:
            raise unknown_name("part in may_differ", name, PARTS, op=op)
    return frozenset(names)


def differ_error(
    op: str, what: str, differences: Sequence[str], place: Any, hint: str
) -> CheckpointError:
    """The error for a file of a training with another provenance."""
    lines = list(differences[:_MANY])
    if len(differences) > _MANY:
        lines.append(f"and {len(differences) - _MANY} more")
    return CheckpointError(
        op, what, {"different": "; ".join(lines), "checkpoint": place}, hint=hint
    )


def part_of(name: str) -> str:
    """The part that the name of a text belongs to.

    Example:
        >>> part_of("model.hidden.activation"), part_of("x['image']"), part_of("y")
        ('model', 'x', 'y')
    """
    return re.split(r"[.\[]", name, maxsplit=1)[0]


def _around(name: str) -> list[str]:
    """Names of what a part is in: its layer, say, and the model.

    Example:
        >>> _around("model.block/dense.units")
        ['model', 'model.block', 'model.block/dense']
    """
    return [name[: match.start()] for match in re.finditer(r"[./\[]", name)]


def provenance_of(
    preparer: Preparer,
    dataset: ArrayDataset | StreamDataset,
    validation: ArrayDataset | StreamDataset | None,
    options: Mapping[str, Any],
    *,
    begins: bool = False,
) -> Provenance:
    """What the result of a training depends on.

    Left out is what changes results by rounding alone: devices, sizes of programs.

    Args:
        begins: Whether it begins with the module's own weights and seed. Else a
            checkpoint has them.
    """
    module, holder = preparer.holder.module, preparer.holder
    names = _names_of(module)
    texts: dict[str, str | None] = {
        name: describe_value(value) for name, value in options.items()
    }
    arrays: dict[str, Any] = {}
    specs = preparer.batch_specs
    for data, prefix, kind in (
        (dataset, "", "train"),
        (validation, "validation_data.", "test"),
    ):
        texts |= {} if kind == "train" else {"validation_data": _kind_of(data)}
        if isinstance(data, StreamDataset):
            texts |= _describe_stream(data, prefix, specs.get(kind))
        elif data is not None:
            for name, leaf in _named_leaves(data.tree, prefix):
                if holder.placement.own_data or spans_processes(leaf):
                    texts[name] = (
                        f"{leaf.dtype}, {leaf.ndim} axes, of several processes"
                    )
                else:
                    arrays[name] = leaf
    texts |= describe_module(module, names)
    texts |= _describe_objective(preparer.objective, names)
    texts |= _describe_optimizer(holder.optimizer, names)
    if begins:
        texts["seed"] = describe_value(holder.seed)
        texts["weights"] = describe_value(holder.split.read())
        trained = holder.step, holder.epochs, holder.opt_state
        texts["optimizer_state"] = describe_value(trained)
    return Provenance(texts, arrays)


def describe_module(
    module: Any, names: Mapping[int, str] | None = None
) -> dict[str, str | None]:
    """Texts of the layers of a module: their classes, options, and how they connect.

    Args:
        names: Texts of its parts by their ids.

    Example:
        >>> from exburn import layers
        >>> texts = describe_module(layers.Dense(2, activation="relu"))
        >>> texts["model.units"], texts["model.activation"].partition(" ")[0]
        ('2', 'relu')
    """
    names = _names_of(module) if names is None else names
    texts: dict[str, str | None] = {}
    for path, part in iter_modules(module):
        place = f"model.{path}" if path else "model"
        texts[place] = describe_value(type(part), names)
        for name, value in _settings_of(part):
            texts[f"{place}.{name}"] = describe_value(value, names)
    if getattr(module, "is_model", False):  # pruned, adapted, in few bits
        texts["model.changes"] = describe_value(module.changes)
    for path, weight, _ in iter_weights(module):
        metadata, (owner, _, label) = weight.get_metadata(), path.rpartition("/")
        for name in ("regularizer", "constraint"):
            is_option = f"model.{owner}.{label}_{name}" in texts  # as an option
            if metadata.get(name) is not None and not is_option:
                texts[f"model.{path}.{name}"] = describe_value(metadata[name], names)
    return texts


def _names_of(module: Any) -> dict[int, str]:
    names = {id(part): f"module {path}" for path, part in iter_modules(module)}
    return names | {id(w): f"weight {path}" for path, w, _ in iter_weights(module)}


def _settings_of(part: Any) -> Iterator[tuple[str, Any]]:
    """Options of a layer, and what a model or a user's class keeps beside them."""
    config: Mapping[str, Any] = {}
    if isinstance(part, Layer):
        config = _config_of(part)
        for name, value in config.items():
            attribute = vars(part).get(name)
            if isinstance(attribute, nnx.Module):
                continue  # it is described by itself
            # A function or an object says more than its configuration, which is a name.
            live = callable(attribute) or hasattr(attribute, "get_config")
            yield name, attribute if live else value
        if (graph := getattr(part, "graph", None)) is not None:
            calls = [
                (n.target, tree.unflatten(n.treedef, n.leaves)) for n in graph.nodes
            ]
            yield "graph", (calls, graph.outputs)
    if not (is_foreign(part) or getattr(part, "is_model", False)):
        return
    for name, value in vars(part).items():
        own = name in config or name in _NOT_SETTINGS or name.startswith("_pytree__")
        value = value.value if isinstance(value, Static) else value
        if not own and not isinstance(value, nnx.Pytree | nnx.Variable):
            yield name, value


def _config_of(layer: Any) -> dict[str, Any]:
    """A layer's options; of a model those that are its own."""
    with registry.leaving_functions():
        try:
            config = layer._init_config() if layer.is_model else layer.get_config()
        except Exception:  # a class of the user's whose options have no description
            config = layer._init_config()
    return {name: value for name, value in config.items() if name != "name"}


def _describe_objective(
    objective: Any, names: Mapping[int, str]
) -> dict[str, str | None]:
    texts: dict[str, str | None] = {}
    if objective.by_tokens:
        texts["loss.accumulate"] = "tokens"
    terms, outputs = objective.terms, objective.output_names
    for term in terms:
        suffix = f".{outputs[term.output]}" if len(terms) > 1 else ""
        texts[f"loss{suffix}"] = describe_value(term.original, names)
        scale = objective._scales[term.place]
        texts[f"loss_weights{suffix}"] = describe_value(scale)
    for meter in objective.meters:
        text = describe_value(meter.metric, names)
        texts[f"metrics.{meter.name}"] = f"weighted {text}" if meter.weighted else text
    return texts


# Options that checkpoints of before do not tell, with what those runs did.
_LATER = {"state_bits": 32}


def _describe_optimizer(
    optimizer: Any, names: Mapping[int, str]
) -> dict[str, str | None]:
    texts: dict[str, str | None] = {"optimizer": describe_value(type(optimizer), names)}
    for name, value in optimizer.settings().items():
        last = name.rpartition(".")[2]
        rate = last == _RATE and value is float
        unset = last in _LATER and value == _LATER[last]
        if name == "class" or rate or unset:
            continue
        texts[f"optimizer.{name}"] = describe_value(value, names)
    for name, value in vars(optimizer).items():
        if name == "_source":  # the transformation of optax
            texts["optimizer.transformation"] = describe_value(value, names)
    if optimizer.schedule is None:
        texts[f"optimizer.{_RATE}"] = _rate_text(optimizer)
    return texts


def _rate_text(optimizer: Any) -> str | None:
    try:
        return str(np.float32(optimizer.learning_rate))
    except ExBurnError:  # a transformation of optax that hides it
        return None


def _describe_stream(
    data: StreamDataset, prefix: str, specs: Any
) -> dict[str, str | None]:
    """What can be told of batches that a loader will read: their form."""
    texts: dict[str, str | None] = {}
    for name, leaf in _named_leaves(specs or (None, None, None), prefix):
        form = f"{leaf.dtype}, {leaf.ndim} axes, of a {data.name}"
        if data.digest is not None and name == f"{prefix}{NAMES[0]}":
            form = with_digest(form, data.digest)
        texts[name] = form
    for name, value in data.settings.items():
        texts[f"{prefix}{NAMES[0]}.{name}"] = describe_value(value)
    return texts


def _named_leaves(data: Sequence[Any], prefix: str) -> Iterator[tuple[str, Any]]:
    for part, name in zip(data, NAMES, strict=True):
        for path, leaf in leaves(part, f"{prefix}{name}"):
            if is_ragged(leaf):
                yield path, leaf.entries
                yield f"{path}.lengths", leaf.lengths
            else:
                yield path, leaf


def _kind_of(data: ArrayDataset | StreamDataset | None) -> str:
    if data is None:
        return _NONE
    return "arrays" if isinstance(data, ArrayDataset) else f"a {data.name}"


def _versions() -> str:
    python = ".".join(map(str, sys.version_info[:2]))
    return f"python {python}, exburn {version('exburn')}"


def _has_code(text: str) -> bool:
    return without_code(text) != text


def _change(name: str, old: str, new: str) -> str:
    before, after = without_digest(old), without_digest(new)
    if before != after:
        return f"{name}: {before} → {after}"
    if name.endswith(".graph"):
        return f"{name}: other connections"
    if after in ("tuple", "list", "dict"):
        return f"{name}: other values"
    if part_of(name) in NAMES or name.startswith("validation_data"):
        return f"{name}: other values ({after})"
    return f"{name}: another {after}"
