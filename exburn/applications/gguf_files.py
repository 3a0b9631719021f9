"""GGUF files as folders of ``transformers``: their facts, names and changes undone.

A file's facts become entries of ``config.json``, which the family's own table reads,
and its tensors get the names that the family's rules know. llama.cpp has the features
of Llama's queries and keys in another order, and one added to the scales of Gemma's
norms: both are undone as a tensor is read. Blocks of four and of eight bits are kept.
"""

from __future__ import annotations

import dataclasses
import re
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from exburn.compression.quantization.plan import make_plan
from exburn.compression.quantization.scheme import pack_halves
from exburn.compression.quantization.settings import QuantizationSettings
from exburn.errors import FileFormatError
from exburn.models.changes import quantize_in_place
from exburn.saving.gguf import GGUFFile, GGUFSource
from exburn.saving.gguf_blocks import BLOCKS, Q4_0, Q8_0
from exburn.saving.weight_sources import WeightSource

__all__ = ["RenamedTensors", "config_of", "keep_blocks", "renamed_tensors"]

Values = dict[str, Any]
_STORED = {  # how blocks of a kind are stored here
    Q4_0: QuantizationSettings("int4", 32, scales="float32"),
    Q8_0: QuantizationSettings("gptq", 32, scales="float32", bits=8),
}
_LARGEST = np.float32(127)  # number of a block of Q8_0
_BLOCK = re.compile(r"blk\.(\d+)\.(\w+)\.(weight|bias)")
_ENDS = {
    "token_embd.weight": "model.embed_tokens.weight",
    "output_norm.weight": "model.norm.weight",
    "output.weight": "lm_head.weight",
}
_PARTS = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
_JOINED = {"attn_qkv": "self_attn.qkv_proj", "ffn_up": "mlp.gate_up_proj"}
_SANDWICH = {
    "post_attention_norm": "post_attention_layernorm",
    "ffn_norm": "pre_feedforward_layernorm",
    "post_ffw_norm": "post_feedforward_layernorm",
}
# Facts that become an entry of the same meaning, by what follows the architecture.
_ENTRIES = {
    "block_count": "num_hidden_layers",
    "context_length": "max_position_embeddings",
    "embedding_length": "hidden_size",
    "feed_forward_length": "intermediate_size",
    "attention.head_count": "num_attention_heads",
    "attention.head_count_kv": "num_key_value_heads",
    "attention.key_length": "head_dim",
    "attention.layer_norm_rms_epsilon": "rms_norm_eps",
    "rope.freq_base": "rope_theta",
}
_GEMMA = {
    "attention.sliding_window": "sliding_window",
    "final_logit_softcapping": "final_logit_softcapping",
}
# Facts that `_rope` and `config_of` read themselves.
_READ = {
    "attention.value_length",
    "rope.dimension_count",
    "rope.scaling.attn_factor",
    "rope.scaling.factor",
    "rope.scaling.original_context_length",
    "rope.scaling.type",
    "vocab_size",
}
# Without effect: whether a model was trained again for longer texts.
_HARMLESS = {"rope.scaling.finetuned"}
_CONTEXT = "original_max_position_embeddings"
_FREQUENCIES = "rope_freqs.weight"
_FACTORS = {
    "short_factor": "rope_factors_short.weight",
    "long_factor": "rope_factors_long.weight",
}
_SKIPPED = {_FREQUENCIES, *_FACTORS.values()}


@dataclasses.dataclass(frozen=True)
class _Architecture:
    """What llama.cpp calls an architecture.

    Attributes:
        kind: What ``config.json`` calls it.
        parts: Names of a block's tensors, other than the usual ones.
        entries: Facts beside the usual ones, and the entries that they become.
        turned: Whether the features of queries and keys are in another order.
        shift: What is added to the scales of norms.
        further: Entries that follow from others, given the entries.
    """

    kind: str
    parts: Mapping[str, str] = dataclasses.field(default_factory=dict)
    entries: Mapping[str, str] = dataclasses.field(default_factory=dict)
    turned: bool = False
    shift: float = 0.0
    further: Callable[[Values], Values] = lambda values: {}


def _scalar(layers: int) -> Callable[[Values], Values]:
    """The divisor of Gemma's scores, which no fact tells: the largest has another."""

    def of(values: Values) -> Values:
        size = values.get("head_dim", 256)
        if values.get("num_hidden_layers") == layers:
            size = values["hidden_size"] // values["num_attention_heads"]
        return {"query_pre_attn_scalar": size}

    return of


ARCHITECTURES = {
    "llama": _Architecture("llama", turned=True),
    "qwen2": _Architecture("qwen2"),
    "qwen3": _Architecture("qwen3"),
    "gemma2": _Architecture(
        "gemma2",
        _SANDWICH,
        {**_GEMMA, "attn_logit_softcapping": "attn_logit_softcapping"},
        shift=1.0,
        further=_scalar(46),
    ),
    "gemma3": _Architecture(
        "gemma3_text",
        _SANDWICH,
        {**_GEMMA, "rope.freq_base_swa": "rope_local_base_freq"},
        shift=1.0,
        further=_scalar(62),
    ),
    "phi3": _Architecture(
        "phi3", _JOINED, {"attention.sliding_window": "sliding_window"}
    ),
}


def _architecture(file: GGUFFile, op: str) -> tuple[str, _Architecture]:
    """The name of a file's architecture, and what is known of it.

    Raises:
        FileFormatError: It is not read here, or the file is a part of one.
    """
    name = file.facts.get("general.architecture")
    if name not in ARCHITECTURES or file.facts.get("split.count", 0) > 1:
        raise FileFormatError(
            op,
            f"GGUF files of {', '.join(ARCHITECTURES)} are read, each a whole model",
            {"file": file.path, "general.architecture": name},
            hint="Parts are joined by llama.cpp's llama-gguf-split --merge.",
        )
    return name, ARCHITECTURES[name]


def config_of(file: GGUFFile, op: str) -> Values:
    """What ``config.json`` says of the model in a GGUF file.

    Raises:
        FileFormatError: It is of another architecture, or says something that may
            change what is computed and that nothing is known of.
    """
    name, about = _architecture(file, op)
    facts = {
        key.removeprefix(f"{name}."): value
        for key, value in file.facts.items()
        if key.startswith(f"{name}.")
    }
    entries = {**_ENTRIES, **about.entries}
    known = {*entries, *_READ, *_HARMLESS}
    others = ("general.", "tokenizer.", "quantize.", "split.")
    unknown = [f"{name}.{key}" for key in facts if key not in known]
    unknown += [key for key in file.facts if not key.startswith((f"{name}.", *others))]
    if unknown:
        raise FileFormatError(
            op,
            f"the file says what nothing is known of: {', '.join(unknown[:6])}",
            {"file": file.path},
            hint="It may change what the model computes.",
        )
    values = {entries[key]: _plain(v) for key, v in facts.items() if key in entries}
    _check_needed(values, file, op)
    size = values.get("head_dim")
    if size is None:
        size = values["hidden_size"] // values["num_attention_heads"]
    if type(size) is not int or size < 1:
        raise FileFormatError(
            op, f"a head has {size!r} features by the file", {"file": file.path}
        )
    if facts.get("attention.value_length", size) != size:
        raise FileFormatError(op, "its values have other heads than its keys")
    values |= _rope(file, facts, about, size, op) | about.further(values)
    embedding = file.tensors.get("token_embd.weight")
    if embedding is not None and embedding.shape:
        values["vocab_size"] = embedding.shape[0]
    values["tie_word_embeddings"] = "output.weight" not in file.tensors
    if about.kind == "llama":
        values["attention_bias"] = "blk.0.attn_q.bias" in file.tensors
        values["mlp_bias"] = "blk.0.ffn_down.bias" in file.tensors
    ends = [file.facts.get(f"tokenizer.ggml.{n}_token_id") for n in ("eos", "eot")]
    ends = [*dict.fromkeys(end for end in ends if end is not None)]
    return {"model_type": about.kind, **values, "eos_token_id": ends or None}


def _plain(value: Any) -> Any:
    return value.tolist() if isinstance(value, np.ndarray) else value


def _check_needed(values: Values, file: GGUFFile, op: str) -> None:
    """Raises unless the sizes are there that others are made of.

    Raises:
        FileFormatError: One is missing, or is no count.
    """
    for key in ("hidden_size", "num_attention_heads"):
        value = values.get(key)
        if type(value) is not int or value < 1:
            raise FileFormatError(
                op,
                f"the file must say {key!r} as a whole number, it says {value!r}",
                {"file": file.path},
            )


def _rope(
    file: GGUFFile, facts: Values, about: _Architecture, size: int, op: str
) -> Values:
    """The entries of positions."""
    share = facts.get("rope.dimension_count", size) / size
    values: Values = {} if share == 1 else {"partial_rotary_factor": share}
    kind = facts.get("rope.scaling.type", "none")
    scaling: Values | None = {
        "type": kind,
        "factor": facts.get("rope.scaling.factor"),
        _CONTEXT: facts.get("rope.scaling.original_context_length"),
        "attention_factor": facts.get("rope.scaling.attn_factor"),
    }
    if all(name in file.tensors for name in _FACTORS.values()):
        parts = {key: _numbers(file, name, op) for key, name in _FACTORS.items()}
        scaling |= {"type": "longrope", **parts}
    elif _FREQUENCIES in file.tensors:  # Llama 3's: the same for all lengths
        parts = dict.fromkeys(_FACTORS, _numbers(file, _FREQUENCIES, op))
        first = {_CONTEXT: facts.get("context_length")}
        scaling = {"type": "longrope", "attention_factor": 1.0, **first, **parts}
    elif kind == "none":
        scaling = None
    if scaling is not None:
        scaling = {key: v for key, v in scaling.items() if v is not None}
        if (context := scaling.pop(_CONTEXT, None)) is not None:
            values[_CONTEXT] = context  # where Phi-3 reads it
    return {**values, "rope_scaling": scaling}


def _numbers(file: GGUFFile, name: str, op: str) -> list[float]:
    """A tensor of a few numbers.

    Raises:
        FileFormatError: It has other axes.
    """
    shape = file.tensors[name].shape
    if len(shape) != 1 or shape[0] > 4096:
        raise FileFormatError(op, f"{name!r} has the shape {shape}")
    return [float(number) for number in file.read(name)]


def renamed_tensors(
    file: GGUFFile, config: Mapping[str, Any], op: str
) -> RenamedTensors:
    """The tensors of a GGUF file, as a folder of ``transformers`` has them."""
    return RenamedTensors(file, _architecture(file, op)[1], config)


class RenamedTensors(WeightSource):
    """The tensors under other names, with llama.cpp's changes undone.

    Args:
        config: What ``config_of`` tells.
    """

    sequential = dtypes_known = True

    def __init__(self, file: GGUFFile, about: _Architecture, config: Mapping[str, Any]):
        self._stored, self._about, self._config = GGUFSource(file), about, config
        self._names = {
            self._rename(name): name for name in file.tensors if name not in _SKIPPED
        }
        self.shapes = {
            new: self._stored.shapes[old] for new, old in self._names.items()
        }

    def _rename(self, name: str) -> str:
        match = _BLOCK.fullmatch(name)
        if match is None:
            return _ENDS.get(name, name)
        number, part, kind = match.groups()
        parts = {**_PARTS, **self._about.parts}
        return f"model.layers.{number}.{parts[part]}.{kind}" if part in parts else name

    def each(self, names: Iterable[str]) -> Iterator[tuple[str, np.ndarray]]:
        for name in names:
            ((_, array),) = self._stored.each([self._names[name]])
            yield name, self._undo(name, array)

    def _undo(self, name: str, array: np.ndarray) -> np.ndarray:
        """A tensor as it was before llama.cpp changed it."""
        if self._about.shift and name.endswith("norm.weight"):
            return array - np.asarray(self._about.shift, array.dtype)
        heads = {"q_proj": "num_attention_heads", "k_proj": "num_key_value_heads"}
        key = heads.get(name.split(".")[-2]) if self._about.turned else None
        if key is None:
            return array
        count = self._config.get(key) or self._config["num_attention_heads"]
        pairs = array.reshape(count, -1, 2, *array.shape[1:])
        return pairs.swapaxes(1, 2).reshape(array.shape)

    def dtype(self, name: str) -> np.dtype | None:
        return self._stored.dtype(self._names[name])

    def kind(self, name: str) -> int:
        """The number of the form in which a tensor is stored."""
        return self._stored.kind(self._names[name])


def keep_blocks(model: Any, stored: RenamedTensors, op: str) -> None:
    """Stores weights of a model that was read in the blocks of its file, in place.

    Those of Q4_0 are int4 in blocks of 32, those of Q8_0 integers of 8 bits in groups
    of 32 as of ``gptq``, with the same values to the last bit. For the other forms of
    few bits there is none here: a warning says that they are read as numbers.
    """
    kinds = {name: stored.kind(name) for name in stored.shapes}
    few = {name: kind for name, kind in kinds.items() if BLOCKS[kind].size > 1}
    if not few:
        return
    moves = model.weight_rules(model.styles[0]).load_plan(stored.shapes).moves
    packed: set[str] = set()
    for kind, settings in _STORED.items():
        paths = {
            target
            for move in moves
            if all(kinds[name] == kind for name in move.sources)
            for target in move.targets
        }
        packed |= _pack(model, paths, settings) if paths else set()
    others = Counter(
        BLOCKS[kinds[name]].name
        for move in moves
        if not packed.issuperset(move.targets)
        for name in move.sources
        if name in few
    )
    if others:
        counts = ", ".join(f"{count} of {name}" for name, count in others.items())
        warnings.warn(
            f"{op}: tensors in few bits are read as float32: {counts}. "
            "dtype='bfloat16' halves them; model.quantize('int8') stores them anew.",
            stacklevel=4,
        )


def _pack(model: Any, paths: set[str], settings: QuantizationSettings) -> set[str]:
    """Stores weights in blocks where that is exact; their paths."""
    layers = {path.rpartition("/")[0] for path in paths}
    plan = make_plan(model, settings, layers, again=True)
    targets, rounded = [], {}
    for target in plan.targets:
        parts: dict[str, Any] = {
            name: _exact_parts(scheme, getattr(target.layer, name).get_raw_value())
            for name, scheme in target.schemes.items()
        }
        own = {f"{target.path}/{name}" for name in parts}
        if paths.issuperset(own) and None not in parts.values():
            targets.append(target)
            rounded[target.path] = parts
    if targets:
        plan = dataclasses.replace(plan, targets=targets)
        quantize_in_place(model, plan, rounded=rounded)
    return {f"{path}/{name}" for path, parts in rounded.items() for name in parts}


def _exact_parts(scheme: Any, weight: Any) -> tuple[np.ndarray, ...] | None:
    """Values and scales that are a weight to the last bit; ``None`` if none are."""
    rows = scheme.group_rows(scheme.matrix(weight).astype(np.float32))
    place = np.abs(rows).argmax(-1)[..., None]
    scale = np.take_along_axis(rows, place, -1)[..., 0]
    scale = scale / np.float32(-8) if scheme.in_halves else np.abs(scale) / _LARGEST
    numbers = np.rint(rows / np.where(scale == 0, 1, scale)[..., None])
    same = np.array_equal(numbers * scale[..., None], rows)
    if not same or numbers.max(initial=0) > (7 if scheme.in_halves else _LARGEST):
        return None
    if scheme.in_halves:
        return pack_halves(numbers), scale
    return numbers.astype(np.int8), scale, np.zeros(scale.shape, np.int8)
