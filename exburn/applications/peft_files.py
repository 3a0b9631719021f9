"""Adapters in the folders of ``peft``, read and written by a family's weight rules.

A factor there belongs to a module of the file's network, here to a weight. Which input
and output of the module is which of the weight is found by the rule's own transform,
from arrays that number them: so fused, transposed and split matrices need no words of
their own.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import math
import os
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from exburn.compression.quantization.low_rank import DEFAULT, LowRank
from exburn.errors import (
    ArgumentError,
    FileFormatError,
    MissingFileError,
    ShapeError,
    unknown_name,
)
from exburn.layers import Embedding, MixtureOfExperts
from exburn.models import lora
from exburn.models.changes import add_record
from exburn.models.session import require_idle
from exburn.module.selection import layer_paths
from exburn.module.traversal import iter_weights
from exburn.runtime.files.together import changing, make_folder
from exburn.saving.foreign_safetensors import ForeignTensors, add_foreign
from exburn.saving.pretrained_folder import local_source, read_json
from exburn.saving.weight_sources import RenamedSource, WeightSource, open_source
from exburn.weights import Move, Rules
from exburn.weights.entries import (
    Field,
    Kind,
    Misfit,
    Table,
    choice,
    flag,
    list_of,
    nullable,
    real,
    text,
    whole,
)

_CONFIG, _WEIGHTS, _START = "adapter_config.json", "adapter_model", "base_model.model."
_PARTS = {  # names of an adapter's tensors behind that of its module
    ".lora_A.weight": "a",
    ".lora_B.weight": "b",
    ".lora_embedding_A": "a",
    ".lora_embedding_B": "b",
    ".lora_magnitude_vector": "magnitude",
    ".lora_magnitude_vector.weight": "magnitude",
}


_OF_EXPERTS = ("gate_up_proj", "down_proj")  # parameters of a module of experts


@dataclasses.dataclass(frozen=True)
class MatrixLayout:
    """Which input and output of a file's matrix is which of the model's weights.

    Attributes:
        inputs: Places in the file of the inputs of a weight, all axes as one.
        outputs: The same of the outputs, for each weight that the matrix has.
    """

    inputs: np.ndarray
    outputs: tuple[np.ndarray, ...]

    @property
    def columns(self) -> int:
        """Outputs of the file's matrix."""
        return sum(len(outputs) for outputs in self.outputs)


@dataclasses.dataclass(frozen=True)
class Module:
    """A module of the file's network whose matrix adapters here can lie beside.

    Attributes:
        name: Its name in the file.
        paths: Paths of the layers that have a part of its matrix.
        terms: An adapter of rank 1 of each, which tells the axes.
        embeds: Whether it looks up rows.
    """

    name: str
    paths: tuple[str, ...]
    terms: tuple[LowRank, ...]
    layout: MatrixLayout
    embeds: bool


# ------------------------------------------------------------------------- layouts
def _layout(move: Move, terms: tuple[LowRank, ...]) -> MatrixLayout | None:
    """The layout of a matrix; ``None`` for tensors that are none."""
    shapes = tuple(term.shape for term in terms)
    ghosts = tuple(np.broadcast_to(np.int8(0), shape) for shape in shapes)
    saved = move.transform.save(ghosts, len(move.sources))
    if len(saved) != 1 or saved[0].ndim != 2:
        return None
    axes = tuple(term.summed for term in terms)
    return _find_layout(move.transform, saved[0].shape, shapes, axes)


@functools.lru_cache(maxsize=32)
def _find_layout(
    transform: Any, size: tuple, shapes: tuple, summed: tuple
) -> MatrixLayout | None:
    inputs: list[np.ndarray] = []
    outputs: list[np.ndarray] = []
    for axis in (0, 1):
        numbers = np.arange(size[axis], dtype=np.int32)
        numbers = numbers[:, None] if axis == 0 else numbers
        parts = transform.load((np.broadcast_to(numbers, size),), shapes)
        for part, axes in zip(parts, summed, strict=True):
            kept = tuple(i for i in range(part.ndim) if i not in axes)
            rows = math.prod(part.shape[i] for i in axes)
            matrix = part.transpose(axes + kept).reshape(rows, -1)
            if (matrix == matrix[:, :1]).all() and len(inputs) < len(shapes):
                inputs.append(matrix[:, 0].copy())
            elif (matrix == matrix[:1]).all():
                outputs.append(matrix[0].copy())
    one = all(np.array_equal(inputs[0], other) for other in inputs[1:])
    if len(inputs) != len(shapes) or len(outputs) != len(shapes) or not one:
        return None
    return MatrixLayout(inputs[0], tuple(outputs))


def _module(model: Any, move: Move) -> Module | str:
    """The module of a tensor, or why no adapter here can be that of it."""
    layers, terms, paths = layer_paths(model), [], []
    for target in move.targets:
        path, _, attribute = target.rpartition("/")
        own = lora.terms_of(layers[path], 1, 1.0) if path in layers else []
        term = next((t for t in own if t.attribute == attribute), None)
        if term is None or term.stacked:
            return f"{target!r} can have no adapter"
        terms.append(term)
        paths.append(path)
    layout = _layout(move, tuple(terms)) if len(move.sources) == 1 else None
    if layout is None:
        return f"{', '.join(move.sources)} is no matrix of inputs and outputs"
    embeds = isinstance(layers[paths[0]], Embedding)
    name = move.sources[0].removesuffix(".weight")
    return Module(name, tuple(paths), tuple(terms), layout, embeds)


def _rules(model: Any) -> Rules:
    """The family's rules, with the names of the folder that the model comes from."""
    origin = model._origin and model._origin.value
    rules = model.weight_rules(origin.style if origin else model.styles[0])
    return rules.written_as(origin.names) if origin else rules


def _modules(model: Any) -> Iterator[Module]:
    """The modules whose matrices adapters can lie beside."""
    rules = _rules(model)
    for move in rules.save_plan(p for p in _adaptable(model) if rules.knows(p)):
        module = _module(model, move)
        if isinstance(module, Module):
            yield module


def _adaptable(model: Any) -> Iterator[str]:
    """Paths of the weights that an adapter can lie beside."""
    for path, layer in layer_paths(model).items():
        for term in lora.terms_of(layer, 1, 1.0):
            yield f"{path}/{term.attribute}"


def _head(model: Any) -> tuple[str, str] | None:
    """The module that repeats a tied table, and the layer's path."""
    if model.shared_table is None:
        return None
    pattern, weight = model.shared_table
    name = re.sub(r"\\(.)", r"\1", pattern)
    if not re.fullmatch(pattern, name):
        return None
    return name.removesuffix(".weight"), weight.rpartition("/")[0]


# ------------------------------------------------------------------------- writing
def save_adapter(self: Any, folder: Any, *, name: str | None = None) -> Path:
    """Writes an adapter as ``peft`` does: its configuration and its weights alone.

    ``peft`` and what reads its folders (``transformers``, vLLM) then compute the same.
    Where a matrix there is several weights here, as query, key and value of GPT-2, the
    factors lie beside each other, and the rank is their sum.

    Args:
        folder: The folder, which is made if need be.
        name: Which adapter; the active one by default.

    Returns:
        The file of the weights.

    Raises:
        ArgumentError: There is no adapter, or a part of it has no name there.
        UnknownNameError: There is no adapter of that name.
        SaveError: The system refuses.

    Example:
        >>> import tempfile
        >>> from exburn.applications import Llama
        >>> sizes = {"layers": 1, "width": 16, "heads": 2, "mlp_width": 32}
        >>> model = Llama(50, **sizes)
        >>> _ = model.add_lora(rank=2, filter="*attention*")
        >>> folder = tempfile.mkdtemp()
        >>> model.save_adapter(folder).name
        'adapter_model.safetensors'
        >>> other = Llama(50, **sizes)
        >>> len(other.load_adapter(folder, name="task")), other.active_adapter
        (4, 'task')
    """
    op = "save_adapter"
    name = lora.active_name(self) if name is None else name
    names = lora.adapter_names(self)
    if name is None:
        raise ArgumentError(
            op,
            "no adapter is active" if names else "the model has no adapters",
            hint="model.add_lora(rank=8) adds one; name=… says which.",
        )
    if name not in names:
        raise unknown_name("adapter", name, names, op=op)
    weights = lora.terms_by_weight(self, name)
    terms = {path.rpartition("/")[0]: term for path, term in weights.items()}
    kinds = {(term.kind, term.dropout) for term in terms.values()}
    if len(kinds) > 1:
        raise ArgumentError(
            op, "the adapter's layers are of several kinds", {"kinds": kinds}
        )
    tensors: dict[str, np.ndarray] = {}
    ranks: dict[str, tuple[int, float]] = {}
    modules, experts = list(_modules(self)), _expert_modules(self)
    lost = set(terms) - {path for module in modules for path in module.paths}
    lost -= set(experts.values())
    if lost:
        raise ArgumentError(
            op,
            "the folder's names have none for some of the adapters",
            {"layers": ", ".join(sorted(lost)[:4])},
            hint="model.save_lora(path) writes them in a form of our own.",
        )
    used = [m for m in modules if any(path in terms for path in m.paths)]
    for module in used:
        ranks[module.name] = _write_module(self, module, terms, tensors)
    beside = _trained_beside(self, used, tensors, op)
    named = _count_names(self, modules)
    for module, path in experts.items():
        if path in terms:
            ranks |= _write_experts(layer_paths(self)[path], module, name, tensors)
    config = _config(next(iter(terms.values())), ranks, named, used) | beside
    if (head := _head(self)) is not None and head[1] in terms:
        config["target_modules"].append(head[0])
    target = make_folder(folder, op)
    with changing(target, op=op) as changes:
        written = ForeignTensors({}, Rules([]), extra=tensors)
        file = add_foreign(changes, f"{_WEIGHTS}.safetensors", written)
        changes.write(_CONFIG, (json.dumps(config, indent=2) + "\n").encode())
    return target / file


def _write_module(
    model: Any,
    module: Module,
    terms: Mapping[str, LowRank],
    tensors: dict[str, np.ndarray],
) -> tuple[int, float]:
    """Adds the tensors of a module; returns its rank and its alpha there."""
    layers, layout = layer_paths(model), module.layout
    own = [(i, terms[path]) for i, path in enumerate(module.paths) if path in terms]
    first = own[0][1]
    factors, magnitude = [], np.zeros(layout.columns, np.float32)
    for place, path in enumerate(module.paths):
        if (term := terms.get(path)) is not None:
            values = {k: np.asarray(w) for k, w in term.weights(layers[path]).items()}
            a = values["lora_a"].reshape(-1, term.rank)
            b = values["lora_b"].reshape(term.rank, -1) * (term.scale / first.scale)
            factors.append((a, b.astype(np.float32), layout.outputs[place]))
        if first.kind == "dora":
            size = values["lora_magnitude"] if term is not None else None
            if size is None:  # outputs without an adapter keep their norm
                size = np.asarray(module.terms[place].magnitudes(layers[path]))
            magnitude[layout.outputs[place]] = size.ravel()
    shared = all(np.array_equal(factors[0][0], a) for a, _, _ in factors[1:])
    rank = first.rank if shared else sum(len(b) for _, b, _ in factors)
    file_a = np.zeros((rank, len(layout.inputs)), np.float32)
    file_b = np.zeros((layout.columns, rank), np.float32)
    start = 0
    for a, b, outputs in factors:
        part = slice(start, start + len(b))
        file_a[part, layout.inputs] = a.T
        file_b[outputs, part] = b.T
        start += 0 if shared else len(b)
    parts: dict[str, np.ndarray] = {"a": file_a, "b": file_b}
    if first.kind == "dora":
        parts["magnitude"] = magnitude
    _add_tensors(tensors, module.name, parts, module.embeds)
    head = _head(model)
    if module.embeds and head is not None and head[1] in module.paths:
        if first.kind == "dora":
            raise ArgumentError(
                "save_adapter",
                "peft has the magnitudes of a table and of its way back apart, here "
                "they are one",
                {"layer": head[1]},
                hint="Leave the table out: add_lora(kind='dora', filter=…).",
            )
        back = {"a": np.ascontiguousarray(file_b.T)}
        back["b"] = np.ascontiguousarray(file_a.T)
        _add_tensors(tensors, head[0], back, embeds=False)
    root = math.sqrt(rank) if first.kind == "rslora" else rank
    return rank, first.scale * root


def _add_tensors(
    tensors: dict[str, np.ndarray], module: str, parts: dict, embeds: bool
) -> None:
    for part, array in parts.items():
        if part == "magnitude":
            end = ".lora_magnitude_vector"
        else:
            end = f".lora_embedding_{part.upper()}" if embeds else None
            end = end or f".lora_{part.upper()}.weight"
        tensors[f"{_START}{module}{end}"] = array


def _trained_beside(
    model: Any, used: list[Module], tensors: dict[str, np.ndarray], op: str
) -> dict[str, Any]:
    """Adds what is trained beside adapters; returns what the configuration says of it.

    Biases of adapted modules, all or none, and modules of which everything is trained.
    """
    trained, resting = {}, []
    for path, weight, learns in iter_weights(model, carried=False):
        if not weight.get_metadata().get("lora"):
            if learns:
                trained[path] = weight
            else:
                resting.append(path)
    rules = _rules(model)
    if lost := [path for path in trained if not rules.knows(path)]:
        raise ArgumentError(
            op, "the folder's names have none for what is trained", {"weights": lost}
        )
    written = ForeignTensors(trained, rules)
    names, adapted = list(written.specs), {module.name for module in used}
    biases = {name for name in names if _owner(name) in adapted}
    modules = {_owner(name): None for name in names if name not in biases}
    for move in rules.save_plan([path for path in resting if rules.knows(path)]):
        for name in move.sources:
            torn = _owner(name) in modules
            if torn or (biases and name.endswith(".bias") and _owner(name) in adapted):
                raise ArgumentError(
                    op,
                    "peft saves modules in whole, and the biases of adapted ones all "
                    "or none; a part is frozen here",
                    {"frozen": ", ".join(move.targets)},
                    hint="Train all of a layer, or nothing of it beside adapters.",
                )
    for name, array in zip(names, written.arrays(names), strict=True):
        place = f"{_owner(name)}.base_layer.bias" if name in biases else name
        tensors[f"{_START}{place}"] = np.asarray(array)
    bias = "lora_only" if biases else "none"
    return {"bias": bias, "modules_to_save": list(modules) or None}


def _owner(name: str) -> str:
    return name.rpartition(".")[0]


def _config(
    term: LowRank,
    ranks: Mapping[str, tuple[int, float]],
    named: Mapping[str, int],
    used: list[Module],
) -> dict[str, Any]:
    """What ``adapter_config.json`` says."""
    rank, alpha = Counter(ranks.values()).most_common(1)[0][0]
    own = Counter(_last(module.name) for module in used)
    whole_kinds = {kind for kind, count in own.items() if named[kind] == count}
    targets = [m.name for m in used if _last(m.name) not in whole_kinds]
    modules = {module.name for module in used}
    experts = [n for n in ranks if _last(n) in _OF_EXPERTS and n not in modules]
    return {
        "alpha_pattern": {n: a for n, (_, a) in ranks.items() if a != alpha},
        "base_model_name_or_path": None,
        "fan_in_fan_out": False,
        "inference_mode": True,
        "init_lora_weights": True,
        "lora_alpha": int(alpha) if alpha == int(alpha) else alpha,
        "lora_dropout": term.dropout,
        "peft_type": "LORA",
        "r": rank,
        "rank_pattern": {n: r for n, (r, _) in ranks.items() if r != rank},
        "target_modules": sorted(whole_kinds) + targets,
        "target_parameters": experts or None,
        "task_type": None,
        "use_dora": term.kind == "dora",
        "use_rslora": term.kind == "rslora",
    }


def _count_names(model: Any, modules: list[Module]) -> Counter[str]:
    """How many modules of the file's network have a last name.

    Those of experts count, too: a name that they share would adapt them.
    """
    rules, names = _rules(model), {module.name for module in modules}
    paths = [path for path, _, _ in iter_weights(model, carried=False)]
    paths += _adaptable(model)
    for move in rules.save_plan(p for p in dict.fromkeys(paths) if rules.knows(p)):
        names |= {n.removesuffix(".weight") for n in move.sources if ".weight" in n}
    return Counter(map(_last, names))


def _last(name: str) -> str:
    return name.rpartition(".")[2]


# ------------------------------------------------------------------------- reading
def load_adapter(self: Any, source: Any, *, name: str = DEFAULT) -> list[str]:
    """Adds the adapter of a folder that ``peft`` or ``save_adapter`` wrote.

    Nothing is changed unless all of it fits. What an entry of the configuration asks
    for and is not computed here is an error that names it.

    Args:
        source: The folder, or the name of a repository on a hub.
        name: The adapter's in this model; it is active then.

    Returns:
        The paths of the layers that have the adapter.

    Raises:
        ArgumentError: There is an adapter of that name, or the model is being trained.
        FileFormatError: The folder holds none of a LoRA, is damaged, or of another
            model.
        MissingFileError: There is no such folder, or a file is missing in it.
    """
    op = "load_adapter"
    require_idle(self, op)
    lora.check_name(op, name)
    if name in lora.adapter_names(self):
        raise ArgumentError(
            op,
            f"the model has an adapter {name!r} already",
            hint="Give it another name=…, or call model.remove_adapter(name) first.",
        )
    folder = local_source(source, op)
    if not os.path.isdir(folder) or not os.path.exists(folder / _CONFIG):
        raise MissingFileError(op, f"{os.fspath(folder)!r} is no folder with {_CONFIG}")
    config = _TABLE.read(read_json(folder / _CONFIG, op)[0], op)
    with open_source(_weights_file(folder, op), op) as stored:
        factors, others = _read_tensors(stored, op)
        terms, values = _read_factors(self, config, factors, op)
        beside = _read_beside(self, config, others, factors, stored, op)
    options = {"name": name, "dropout": config["dropout"]}
    options["method"] = (
        "dora" if config["dora"] else "rslora" if config["rslora"] else "lora"
    )
    groups: dict[tuple[int, float], list[str]] = {}
    for path, key in terms.items():
        groups.setdefault(key, []).append(path)
    added = lora.add_groups(self, groups, options, beside)
    for record in added:
        add_record(self, record)
    for path, weight in lora.adapter_weights(self, name):
        weight.assign(values[path].reshape(weight.shape))
    weights = {path: weight for path, weight, _ in iter_weights(self)}
    for path, array in beside.items():
        weights[path].assign(array)
        layer = path.rpartition("/")[0]
        if layer in terms:  # a bias, whose kernel stays frozen, as a table does
            weights[path].set_metadata("frozen", not path.endswith("/bias"))
        else:
            self.unfreeze(layer)
    return [path for record in added for path in record["layers"]]


def _weights_file(folder: Path, op: str) -> Path:
    for end in (".safetensors", ".bin"):
        path = folder / f"{_WEIGHTS}{end}"
        if path.exists():
            return path
    raise MissingFileError(op, f"{os.fspath(folder)!r} has no {_WEIGHTS}.safetensors")


def _read_tensors(
    stored: WeightSource, op: str
) -> tuple[dict[str, dict[str, np.ndarray]], list[str]]:
    """The parts of each module's adapter, and the names of all other tensors."""
    factors: dict[str, dict[str, str]] = {}
    others = []
    for name in stored.shapes:
        if not name.startswith(_START):
            raise FileFormatError(
                op, f"a tensor's name must begin with {_START!r}, the file has {name!r}"
            )
        bare = name.removeprefix(_START)
        end = next((end for end in _PARTS if bare.endswith(end)), None)
        if end is None:
            others.append(name)
        else:
            factors.setdefault(bare.removesuffix(end), {})[_PARTS[end]] = name
    names = [name for parts in factors.values() for name in parts.values()]
    stored.verify(names)
    arrays = stored.read(names)
    return {
        module: {part: np.asarray(arrays[name]) for part, name in parts.items()}
        for module, parts in factors.items()
    }, others


def _read_factors(
    model: Any,
    config: Mapping[str, Any],
    factors: dict[str, dict[str, np.ndarray]],
    op: str,
) -> tuple[dict[str, tuple[int, float]], dict[str, np.ndarray]]:
    """Rank and alpha by layer, and the values of the adapters' weights by path."""
    if not factors:
        raise FileFormatError(op, "the file holds no adapter")
    head, rules, experts = _head(model), _rules(model), _expert_modules(model)
    for target in config["parameters"]:
        module, _, parameter = target.rpartition(".")
        named = any(_is_named(name, module) for name in experts if name in factors)
        if parameter not in _OF_EXPERTS or not named:
            raise FileFormatError(
                op,
                f"'target_parameters' in {_CONFIG} names {target!r}, of which the file "
                "has no tensors, or the model no such experts",
            )
    if isinstance(config["targets"], tuple):
        for target in config["targets"]:
            if not any(_is_named(module, target) for module in factors):
                raise FileFormatError(
                    op,
                    f"'target_modules' in {_CONFIG} names {target!r}, of which the "
                    "file has no tensors",
                )
    terms: dict[str, tuple[int, float]] = {}
    values: dict[str, np.ndarray] = {}
    for name, parts in factors.items():
        if head is not None and name == head[0]:
            continue
        if (bare := name.removesuffix(".base_layer")) in experts:
            if (path := experts[bare]) not in terms:
                layer = layer_paths(model)[path]
                rank, alpha, own = _read_experts(layer, bare, config, factors, op)
                terms[path] = rank, alpha
                values |= {f"{path}/{part}": array for part, array in own.items()}
            continue
        module = _module_of(model, rules, name, op)
        rank, alpha = _rank_of(config, name, parts, module, op)
        if config["dora"] and config["rslora"]:  # alpha / √rank, as alpha / rank
            alpha *= math.sqrt(rank)
        if head is not None and head[1] in module.paths:
            _check_head(factors.get(head[0]), parts, head, op)
        for place, path in enumerate(module.paths):
            if path in terms:
                raise FileFormatError(op, f"two modules are {path!r}", {"last": name})
            outputs = module.layout.outputs[place]
            terms[path] = rank, alpha
            values[f"{path}/lora_a"] = parts["a"][:, module.layout.inputs].T
            values[f"{path}/lora_b"] = parts["b"][outputs].T
            if config["dora"]:
                sizes = parts["magnitude"].ravel()[outputs]
                values[f"{path}/lora_magnitude"] = sizes
    if head is not None and head[0] in factors and head[1] not in terms:
        raise FileFormatError(
            op,
            f"{head[0]!r} has an adapter, and the table that it is here has none",
            hint="Tied tables are one weight: adapt both or neither.",
        )
    return terms, values


def _module_of(model: Any, rules: Rules, name: str, op: str) -> Module:
    plan = rules.load_plan([f"{name}.weight"])
    module = _module(model, plan.moves[0]) if plan.moves else "the model has no such"
    if isinstance(module, str):
        raise FileFormatError(
            op,
            f"the file has an adapter of {name!r}, and here there is no place for it",
            {"reason": module},
        )
    return module


def _rank_of(
    config: Mapping[str, Any],
    name: str,
    parts: dict[str, np.ndarray],
    module: Module,
    op: str,
) -> tuple[int, float]:
    """Rank and alpha of a module's adapter, whose tensors are found to fit."""
    wanted = {"a", "b", *(("magnitude",) if config["dora"] else ())}
    if set(parts) != wanted:
        raise FileFormatError(
            op,
            f"the adapter of {name!r} must have {sorted(wanted)}, "
            f"the file has {sorted(parts)}",
        )
    rank = _of_pattern(config["ranks"], name, config["rank"])
    inputs, columns = len(module.layout.inputs), module.layout.columns
    shapes = {"a": (rank, inputs), "b": (columns, rank), "magnitude": (columns,)}
    for part, array in parts.items():
        shape = array.shape if part != "magnitude" else (array.size,)
        if shape != shapes[part]:
            raise ShapeError(
                op,
                f"the {part} of {name!r} must have shape {shapes[part]} for rank "
                f"{rank}, the file has {array.shape}",
            )
    return rank, _of_pattern(config["alphas"], name, config["alpha"])


def _check_head(
    back: dict[str, np.ndarray] | None,
    parts: dict[str, np.ndarray],
    head: tuple[str, str],
    op: str,
) -> None:
    """Raises unless the way back has the same term as the table that it repeats."""
    back, pairs = back or {}, (("a", "b"), ("b", "a"))
    same = set(back) == {"a", "b"} and all(
        np.array_equal(back[part], parts[other].T) for part, other in pairs
    )
    if not same:
        raise FileFormatError(
            op,
            f"the table and {head[0]!r} are one weight here, and their adapters differ",
            {"layer": head[1]},
            hint="Adapt neither of them, or untie them first.",
        )


def _is_named(module: str, target: str) -> bool:
    return module == target or module.endswith(f".{target}")


def _of_pattern(pattern: Mapping[str, Any], name: str, usual: Any) -> Any:
    return next((v for key, v in pattern.items() if _is_named(name, key)), usual)


def _read_beside(
    model: Any,
    config: Mapping[str, Any],
    names: list[str],
    factors: Mapping[str, Any],
    stored: WeightSource,
    op: str,
) -> dict[str, np.ndarray]:
    """Weights that were trained in whole: of ``modules_to_save``, and biases.

    With the adapter of a table peft writes the table, too, which may have grown.
    """
    saved = config["saved"] or ()
    bare = {
        name.removeprefix(_START).replace(".base_layer.", "."): name for name in names
    }
    unknown = [
        name
        for name in bare
        if not any(_is_named(name.rpartition(".")[0], module) for module in saved)
        and not (config["bias"] != "none" and name.endswith(".bias"))
        and name.removesuffix(".weight") not in factors
    ]
    if unknown:
        raise FileFormatError(
            op, "the file has tensors that nothing is known of", {"names": unknown[:4]}
        )
    if not names:
        return {}
    if others := lora.adapter_names(model):
        raise ArgumentError(
            op,
            "the file replaces weights of the model, which other adapters share",
            {"tensors": list(bare)[:4], "adapters": others},
            hint="Load it first, or into a clone.",
        )
    stored.verify(names)
    weights = {path: w for path, w, _ in iter_weights(model, carried=False)}
    shapes = {path: tuple(weight.shape) for path, weight in weights.items()}
    renamed = RenamedSource(_Bare(stored, bare), _rules(model), shapes, op)
    wrong = [p for p, shape in renamed.shapes.items() if shapes.get(p) != shape]
    if wrong or renamed.ignored:
        raise FileFormatError(
            op,
            "the file has weights that do not fit the model",
            {"tensors": [*wrong, *renamed.ignored][:4]},
        )
    return dict(renamed.each(renamed.shapes))


class _Bare(WeightSource):
    """Tensors under other names."""

    def __init__(self, stored: WeightSource, names: Mapping[str, str]):
        self._stored, self._names = stored, names
        self.shapes = {bare: stored.shapes[name] for bare, name in names.items()}

    def read(self, names: Any) -> dict[str, np.ndarray]:
        names = list(names)
        arrays = self._stored.read([self._names[name] for name in names])
        return {name: arrays[self._names[name]] for name in names}


def _pattern(kind: Kind) -> Kind:
    """Values by names of modules; of regular expressions plain names alone."""

    def read(value: Any) -> dict[str, Any]:
        if not isinstance(value, Mapping):
            raise Misfit("an object")
        names = [key.removeprefix("^") for key in value]
        if not all(re.fullmatch(r"[\w.]+", name) for name in names):
            raise Misfit("an object whose keys are names of modules, no patterns")
        return dict(zip(names, map(kind, value.values()), strict=True))

    return nullable(read, {})


def _targets(value: Any) -> Any:
    return list_of(text)(value) if isinstance(value, list) else text(value)


# ------------------------------------------------------------------------- experts
def _expert_modules(model: Any) -> dict[str, str]:
    """Paths of mixtures of experts, by their modules' names in a network of peft.

    There an expert's matrices are parts of two parameters of one module, and the names
    of files, which have each by itself, are not those of the network.
    """
    modules, rules = {}, _rules(model)
    for path, layer in layer_paths(model).items():
        gate = f"{path}/gate"
        if isinstance(layer, MixtureOfExperts) and rules.knows(gate):
            source = next(iter(rules.save_plan([gate]))).sources[0]
            module = source.partition(".experts.")[0] + ".experts"
            modules[module.replace(".block_sparse_moe.", ".mlp.")] = path
    return modules


def _write_experts(
    layer: Any, module: str, name: str, tensors: dict[str, np.ndarray]
) -> dict[str, tuple[int, float]]:
    """Adds the tensors of experts; returns ranks and alphas of both parameters.

    Gate and up share the first factor there: where theirs differ, both lie beside each
    other, and the rank is their sum. Columns of zeros are left out.
    """
    own, factors = {}, {}
    for term in (t for t in layer._low_ranks if t.name == name):
        parts = term.weights(layer).values()
        own[term.attribute] = term
        factors[term.attribute] = tuple(np.asarray(w) for w in parts)
    (gate_a, gate_b), (up_a, up_b) = factors["gate"], factors["up"]
    term, a = own["down"], gate_a
    if not np.array_equal(gate_a, up_a):
        a = np.concatenate([gate_a, up_a], 2)
        gate_b = np.pad(gate_b, ((0, 0), (0, term.rank), (0, 0)))
        up_b = np.pad(up_b, ((0, 0), (term.rank, 0), (0, 0)))
    pairs = {
        "down_proj": factors["down"],
        "gate_up_proj": (a, np.concatenate([gate_b, up_b], 2)),
    }
    ranks, place = {}, f"{_START}{module}"
    for parameter, (a, b) in pairs.items():
        used = a.any((0, 1)) | b.any((0, 2))
        if not (rank := int(used.sum())):
            continue
        a, b = a[:, :, used], b[:, used]
        tensors[f"{place}.lora_A.weight"] = a.swapaxes(1, 2).reshape(-1, a.shape[1])
        tensors[f"{place}.lora_B.weight"] = b.transpose(2, 1, 0).reshape(b.shape[2], -1)
        root = math.sqrt(rank) if term.kind == "rslora" else rank
        ranks[f"{module}.{parameter}"] = rank, term.scale * root
        place += ".base_layer"  # of the parameter that peft finds first
    return ranks


def _read_experts(
    layer: Any,
    module: str,
    config: Mapping[str, Any],
    factors: dict[str, dict[str, np.ndarray]],
    op: str,
) -> tuple[int, float, dict[str, np.ndarray]]:
    """Rank and alpha of experts, and the values of their factors.

    The lower rank of both parameters is filled up with zeros, of which both factors
    have no gradient; so is a parameter without an adapter.
    """
    count, width, units = layer.gate.shape
    sizes = {"gate_up_proj": (width, 2 * units), "down_proj": (units, width)}
    pairs: dict[str, tuple[np.ndarray, np.ndarray, float]] = {}
    for name in (module, f"{module}.base_layer"):
        if (parts := factors.get(name)) is None:
            continue
        shapes = {part: array.shape for part, array in parts.items()}
        for parameter, (into, out) in sizes.items():
            full = f"{module}.{parameter}"
            rank = _of_pattern(config["ranks"], full, config["rank"])
            if shapes == {"a": (count * rank, into), "b": (out, rank * count)}:
                alpha = _of_pattern(config["alphas"], full, config["alpha"])
                root = math.sqrt(rank) if config["rslora"] else rank
                a = parts["a"].reshape(count, rank, into).swapaxes(1, 2)
                b = parts["b"].reshape(out, rank, count).transpose(2, 1, 0)
                pairs[parameter] = a, b, alpha / root
                break
        else:
            raise ShapeError(
                op,
                f"the adapter of {name!r} is of no parameter of its {count} experts",
                {"shapes": shapes, "parameters": ", ".join(sizes)},
            )
    told = [
        parameter
        for parameter in _OF_EXPERTS
        if any(_is_named(f"{module}.{parameter}", t) for t in config["parameters"])
    ]
    if set(told) != set(pairs):
        raise FileFormatError(
            op,
            f"'target_parameters' in {_CONFIG} are not those of the tensors",
            {"module": module, "named": told, "in the file": sorted(pairs)},
        )
    if config["dropout"]:
        raise FileFormatError(op, "'lora_dropout' beside experts is not computed here")
    rank, scale = max((a.shape[2], scale) for a, _, scale in pairs.values())
    values = {}
    for parameter, names in (
        ("gate_up_proj", ("gate", "up")),
        ("down_proj", ("down",)),
    ):
        into, out = sizes[parameter]
        empty = np.zeros((count, into, 0)), np.zeros((count, 0, out)), scale
        a, b, own = pairs.get(parameter, empty)
        more = ((0, 0), (0, 0), (0, rank - a.shape[2]))
        parts = np.split(b * (own / scale), len(names), 2)
        for name, part in zip(names, parts, strict=True):
            values[f"{name}_lora_a"] = np.pad(a, more)
            values[f"{name}_lora_b"] = np.pad(part, (more[0], more[2], more[1]))
    return rank, scale * (math.sqrt(rank) if config["rslora"] else rank), values


_TABLE = Table(
    _CONFIG,
    [
        Field("alpha_pattern", "alphas", _pattern(real(0, above=True)), {}),
        Field("bias", "bias", choice(["none", "lora_only"]), "none"),
        Field("lora_alpha", "alpha", real(0, above=True), 8.0),
        Field("lora_dropout", "dropout", real(0, 1), 0.0),
        Field("modules_to_save", "saved", nullable(list_of(text))),
        Field("peft_type", "type", choice(["LORA"])),
        Field("r", "rank", whole(), 8),
        Field("rank_pattern", "ranks", _pattern(whole()), {}),
        Field("target_modules", "targets", nullable(_targets)),
        Field("target_parameters", "parameters", nullable(list_of(text), ())),
        Field("use_dora", "dora", flag, False),
        Field("use_rslora", "rslora", flag, False),
    ],
    only={
        "ensure_weight_tying": (False,),
        # Others take something off the weights of the base.
        "init_lora_weights": (True, False, "gaussian", "orthogonal", "eva"),
        "loftq_config": ({},),
        "lora_bias": (False,),
        "use_qalora": (False,),
    },
    # Which modules have adapters is seen by the tensors.
    harmless="""
        auto_mapping base_model_name_or_path exclude_modules fan_in_fan_out
        inference_mode layers_pattern layers_to_transform megatron_core peft_version
        qalora_group_size revision runtime_config task_type
    """.split(),
)
