"""Models whose weights are in folders of other libraries, read and written.

A family is a class: its constructor makes the network, ``weight_rules`` says which
tensor of a file is which weight, and two methods translate ``config.json``.
"""

from __future__ import annotations

import dataclasses
import os
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any, ClassVar, Self

import jax
import numpy as np

from exburn.applications import peft_files, pretrained_writing
from exburn.applications.gguf_files import (
    config_of,
    keep_blocks,
    renamed_tensors,
)
from exburn.applications.pretrained_writing import (
    FolderOrigin,
    common_dtype,
    json_text,
    kind_of,
)
from exburn.compression.quantization.plan import make_plan
from exburn.compression.quantization.settings import QuantizationSettings
from exburn.core import registry
from exburn.core.checks import check_count
from exburn.errors import (
    ArgumentError,
    FileFormatError,
    ShapeError,
)
from exburn.errors.boundary import api_boundary
from exburn.models import Model
from exburn.models.changes import quantize_in_place
from exburn.module.building import (
    are_kept_specs,
    leave_unread,
    materialize,
    place,
)
from exburn.module.configuration import given_arguments
from exburn.module.selection import layer_paths
from exburn.module.traversal import iter_weights
from exburn.module.variable import Static
from exburn.saving.gguf import GGUFFile, is_gguf
from exburn.saving.pretrained_folder import (
    CONFIG,
    find_weights,
    local_source,
    read_config,
    read_json,
)
from exburn.saving.weight_sources import RenamedSource, WeightSource, open_source
from exburn.saving.weights import fill
from exburn.text.gguf_tokenizer import gguf_tokenizer
from exburn.weights import Rules
from exburn.weights.sizes import Size, check_sizes

__all__ = ["Pretrained", "from_pretrained"]

_KEPT = (
    4 << 20
)  # bytes of a tensor that no weight is made of, and that is written again


@dataclasses.dataclass(frozen=True)
class _Told:
    """What the JSON files of a folder say.

    Attributes:
        config: What ``config.json`` says.
        text: Its text.
        files: What the further files say, by their names.
        texts: Their texts.
    """

    config: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    text: str = ""
    files: Mapping[str, Mapping[str, Any]] = dataclasses.field(default_factory=dict)
    texts: Mapping[str, str] = dataclasses.field(default_factory=dict)


class Pretrained(Model):
    """Base of models whose weights folders of other libraries hold.

    Subclasses make their graph in the constructor, and define ``styles``, ``is_mine``,
    ``arguments_of``, ``sizes_of``, ``config_for`` and ``weight_rules``. One that is
    registered is found by ``from_pretrained``.

    Args:
        inputs: Symbols that the graph begins with.
        outputs: Symbols that it ends with.

    Attributes:
        styles: Names of the ways in which files call their tensors, the one that is
            written by default first.
        fresh: Beginnings of the paths of weights that a file may lack, and then are
            drawn: those of a classifier.
        further: Names of the JSON files that there may be beside ``config.json``.

    Example:
        >>> from exburn.applications import BERT
        >>> BERT.styles[0]
        'transformers'
    """

    styles: ClassVar[tuple[str, ...]] = ("transformers",)
    fresh: ClassVar[tuple[str, ...]] = ()
    further: ClassVar[tuple[str, ...]] = ()
    families: ClassVar[list[type[Pretrained]]] = []

    _origin: Any = None

    def __init_subclass__(cls, **kwargs: Any):
        super().__init_subclass__(**kwargs)
        if "is_mine" in vars(cls):
            Pretrained.families.append(cls)

    def _make(
        self, inputs: Any, outputs: Any, name: str | None, weights: Any, dtype: Any
    ) -> None:
        """Makes the graph of the model; `_fill` comes after it."""
        quiet = nullcontext() if weights is None else registry.reading_file()
        with quiet:  # then no first weights are drawn
            Model.__init__(self, inputs, outputs, name=name, dtype=dtype)

    def _fill(self, weights: Any) -> None:
        """Takes the weights that the user names, once the model knows all of itself.

        Raises:
            FileFormatError: It is a model's file that names them: files open no others.
        """
        if weights is not None:
            if registry.from_file():
                raise FileFormatError(
                    type(self).__name__,
                    f"a file must not name other files, received weights={weights!r}",
                )
            self.load_pretrained(weights)
            materialize(self)
            place(self)

    # ------------------------------------------------------------------ of a family
    @classmethod
    def is_mine(cls, config: Mapping[str, Any]) -> bool:
        """Whether ``config.json`` describes a model of this family."""
        raise NotImplementedError

    @classmethod
    def arguments_of(
        cls, config: Mapping[str, Any], files: Mapping[str, Mapping[str, Any]]
    ) -> dict[str, Any]:
        """The constructor's arguments that a folder describes.

        Args:
            config: What ``config.json`` says.
            files: What those of the further files say that there are, by their names.

        Raises:
            FileFormatError: They describe what the family does not have, or have an
                entry that nothing is known of.
        """
        raise NotImplementedError

    @classmethod
    def sizes_of(cls, arguments: Mapping[str, Any]) -> Mapping[str, Size]:
        """Sizes that tensors show, by the names of the arguments that decide them.

        Args:
            arguments: The constructor's, as of ``arguments_of``.
        """
        raise NotImplementedError

    @property
    def shared_table(self) -> tuple[str, str] | None:
        """A pattern of names of tensors that repeat a weight, and its path."""
        return None

    def config_for(self, style: str) -> dict[str, Any]:
        """What ``config.json`` says of this model."""
        raise NotImplementedError

    def further_files(self, style: str) -> dict[str, dict[str, Any]]:
        """What JSON files beside ``config.json`` say, by their names."""
        return {}

    def text_files(self) -> dict[str, str | None]:
        """Texts of files that no argument tells, by their names; ``None`` for none."""
        return {}

    def weight_rules(self, style: str) -> Rules:
        """Which tensor of a file is which weight."""
        raise NotImplementedError

    # ------------------------------------------------------------------ reading
    @classmethod
    def from_pretrained(
        cls, source: Any, *, dtype: Any = None, quantize: Any = None, **changes: Any
    ) -> Self:
        """The model of a folder with ``config.json`` and weights.

        One tensor after another is read, and no first weights are drawn: the memory
        that it takes is hardly more than that of the weights.

        Args:
            source: The folder, or ``"user/model"`` on a hub, ``"user/model@revision"``.
            dtype: Precision policy; by default that of the weights in the file.
            quantize: A mode of ``model.quantize`` that needs no data, such as
                ``"int4"``, or its configuration: each weight is stored in few bits as
                soon as it is read, so that there is never more than one as floats.
            **changes: Arguments of the constructor that ``config.json`` is not to
                decide. With another number of ``classes`` the classifier is new.

        Raises:
            FileFormatError: The folder is of another family, damaged, or lacks weights.
            ShapeError: A weight has another shape.
            ArgumentError: ``quantize`` is none of those.
            MissingFileError: There is no such folder, or a file is missing in it.
            DataError: The hub does not have it, or cannot be reached.
            MissingDependencyError: A hub's name needs ``huggingface_hub``.
        """
        op = f"{cls.__name__}.from_pretrained"
        if quantize is not None:
            _packing(quantize, op)  # before anything is read
        folder = local_source(source, op)
        if not os.path.isdir(folder):
            if is_gguf(folder, op):
                return cls._of_gguf(folder, op, dtype, quantize, changes)
            raise ArgumentError(
                op,
                f"{os.fspath(folder)!r} is a file, which does not tell the sizes",
                hint=f"Pass its folder, or make the model: {cls.__name__}(…, "
                "weights=file).",
            )
        config, text = read_config(folder, op)
        cls._check_mine(config, folder / CONFIG, op)
        files, texts = {}, {}
        for name in cls.further:
            if (folder / name).exists():
                files[name], texts[name] = read_json(folder / name, op)
        description = _Told(config, text, files, texts)
        path = find_weights(folder, op)
        with open_source(path, op) as stored:
            options = {"dtype": dtype, "quantize": quantize, "changes": changes}
            return cls._of_description(description, path, stored, op, **options)

    @classmethod
    def _check_mine(cls, config: Mapping[str, Any], path: Path, op: str) -> None:
        """Raises unless a configuration is of this family.

        Raises:
            FileFormatError: It is of another one.
        """
        if not cls.is_mine(config):
            raise FileFormatError(
                op,
                f"the folder does not hold a {cls.__name__}",
                {"file": path, **kind_of(config)},
                hint="exburn.applications.from_pretrained(folder) finds the family.",
            )

    @classmethod
    def _of_gguf(
        cls, path: Path, op: str, dtype: Any, quantize: Any, changes: dict[str, Any]
    ) -> Self:
        """The model of a GGUF file, and its tokenizer where it can be held.

        Raises:
            FileFormatError: The file is damaged, or of another family.
        """
        with GGUFFile(path, op) as file:
            config = config_of(file, op)
            cls._check_mine(config, path, op)
            description = _Told(config, json_text(config))
            stored = renamed_tensors(file, config, op)
            options = {"dtype": dtype, "quantize": quantize, "changes": changes}
            model = cls._of_description(description, path, stored, op, **options)
            if dtype is None and quantize is None and not are_kept_specs():
                keep_blocks(model, stored, op)
            model.tokenizer = gguf_tokenizer(file.facts, op)
        return model

    @classmethod
    def _of_description(
        cls,
        description: _Told,
        path: Path,
        stored: WeightSource,
        op: str,
        *,
        dtype: Any,
        quantize: Any,
        changes: dict[str, Any],
    ) -> Self:
        """The model that JSON files describe, with the weights of a file.

        Args:
            path: The file, for errors.
            stored: Its tensors.
            dtype, quantize, changes: As of ``from_pretrained``.
        """
        arguments = cls.arguments_of(description.config, description.files)
        sizes = cls.sizes_of(arguments)
        check_sizes(
            [size for name, size in sizes.items() if name not in changes],
            stored.shapes,
            op,
            file=path,
        )
        if "classes" in changes:  # others, whose names are not in the folder
            arguments.pop("labels", None)
        arguments |= changes
        if dtype is None:
            shapes = stored.shapes.items()
            dtype = common_dtype((stored.dtype(n), shape) for n, shape in shapes)
        if dtype is not None:
            arguments["dtype"] = dtype
        with registry.reading_file():  # no first weights
            model = cls._of_folder(arguments, op, changed=bool(changes))
        if are_kept_specs():  # it is only planned
            leave_unread(model)
            return model if quantize is None else model.quantize(config=quantize)
        packing = None if quantize is None else _packing(quantize, op)
        options = {"classes": "classes" in changes, "packing": packing}
        model._take(path, stored, op, description, **options)
        return model

    @classmethod
    def _of_folder(cls, arguments: dict[str, Any], op: str, *, changed: bool) -> Self:
        """The model of a folder's arguments.

        Args:
            arguments: The constructor's.
            op: The operation named in errors.
            changed: Whether the user has named some of them.

        Raises:
            FileFormatError: They do not fit together.
        """
        try:
            return cls(**arguments)
        except (ArgumentError, ShapeError) as error:
            if changed:
                raise
            raise FileFormatError(
                op,
                f"{CONFIG} describes no {cls.__name__}: {error.reason}",
                error.details,
            ) from error

    def _take(
        self,
        path: Path,
        stored: WeightSource,
        op: str,
        description: _Told,
        *,
        classes: bool,
        packing: QuantizationSettings | None = None,
    ) -> None:
        """Gives the weights their values; those that the file may lack are drawn."""
        own = {name: w for name, w, _ in iter_weights(self, carried=False)}
        shapes = {name: tuple(weight.shape) for name, weight in own.items()}
        style = self._style_of(stored.shapes)
        renamed = RenamedSource(stored, self.weight_rules(style), shapes, op)
        names = _fitting(path, op, shapes, renamed.shapes, self.fresh, classes)
        self._check_tied(path, stored, renamed, op)
        with self._on_device():
            if packing is None:
                fill(path, own, renamed, names)
            else:
                _fill_packed(self, path, own, renamed, names, packing)
        materialize(self)
        place(self)
        extra = {
            name: np.array(array)
            for name, array in stored.each(_small(stored, renamed.ignored))
        }
        loaded = set(names)
        taken = [m for m in renamed.moves if loaded.issuperset(m.targets)]
        sources = [name for move in taken for name in move.sources]
        dtypes = {name: stored.dtype(name) for name in sources}
        self._origin = Static(
            FolderOrigin(
                style,
                frozenset(sources),
                {name: dtype for name, dtype in dtypes.items() if dtype is not None},
                extra,
                description.config,
                description.text,
                stored.metadata,
                description.files,
                description.texts,
            )
        )

    def _check_tied(
        self, path: Path, stored: WeightSource, renamed: RenamedSource, op: str
    ) -> None:
        """Raises if the file has two tables for what is one table here.

        Raises:
            FileFormatError: They differ.
        """
        if self.shared_table is None:
            return
        pattern, weight = self.shared_table
        copies = [name for name in stored.shapes if re.fullmatch(pattern, name)]
        sources = [move.sources[0] for move in renamed.moves if weight in move.targets]
        if not copies or not sources:
            return
        for copy in copies:
            one, other = stored.read([copy])[copy], stored.read(sources)[sources[0]]
            if not np.array_equal(one, other):
                raise FileFormatError(
                    op,
                    "two tables are one in the model ('tie_word_embeddings'), and "
                    "differ in the file",
                    {"file": path, "tensors": f"{sources[0]}, {copy}"},
                    hint="The configuration should say false, or the file have one "
                    "of them.",
                )

    def _style_of(self, names: Collection[str]) -> str:
        """The way of naming that knows most of a file's names."""

        def unknown(style: str) -> int:
            return len(self.weight_rules(style).load_plan(names).unknown)

        return min(self.styles, key=unknown)

    def load_pretrained(self, source: Any) -> None:
        """Takes the weights of a file, a folder or a hub's repository.

        Args:
            source: A file of weights under the names of one of ``styles``, or under
                this model's own; a folder with one; or a name on a hub.

        Raises:
            FileFormatError, ShapeError: The weights are of another model.
            MissingFileError, DataError, MissingDependencyError: As of
                ``from_pretrained``.
        """
        op = type(self).__name__
        path = find_weights(local_source(source, op), op)
        with open_source(path, op) as stored:
            paths = {name for name, _, _ in iter_weights(self, carried=False)}
            if not paths.isdisjoint(stored.shapes) or not stored.dtypes_known:
                self.load_weights(path)
                return
            self._take(path, stored, op, _Told(), classes=False)

    save_pretrained = pretrained_writing.save_pretrained
    save_adapter, load_adapter = peft_files.save_adapter, peft_files.load_adapter

    def get_config(self) -> dict[str, Any]:
        """The constructor's arguments, without the file of the weights."""
        meta = self._meta.value
        config = given_arguments(self, type(self), meta.args, meta.kwargs)
        with registry.leaving_functions():
            return registry.serialize(
                {k: v for k, v in config.items() if k != "weights"}
            )


def _packing(quantize: Any, op: str) -> QuantizationSettings:
    """The settings by which weights are stored as they are read.

    Raises:
        ArgumentError: They store nothing in few bits, or choose weights on data.
    """
    named = isinstance(quantize, str)
    settings = QuantizationSettings.of(
        quantize if named else None, config=None if named else quantize, op=op
    )
    if settings.casts or settings.uses_calibration:
        raise ArgumentError(
            op,
            f"quantize={settings.dtype!r} is no way to store weights as they are read",
            hint="dtype='bfloat16' is for a shorter dtype; gptq and awq need the model "
            "and data: model.quantize(config=…).",
        )
    return settings


def _fill_packed(
    model: Any,
    path: Path,
    own: Mapping[str, Any],
    source: RenamedSource,
    names: list[str],
    packing: QuantizationSettings,
) -> None:
    """Gives weights their values, those of a plan in few bits, one after another."""
    with registry.reading_file():  # no first weights
        plan = make_plan(model, packing, set(layer_paths(model)), op="from_pretrained")
    schemes = {
        f"{target.path}/{name}": scheme
        for target in plan.targets
        for name, scheme in target.schemes.items()
    }
    fill(path, own, source, [name for name in names if name not in schemes])
    packed = [name for name in names if name in schemes]
    source.verify(packed)
    rounded: dict[str, dict[str, tuple]] = {}
    for name, array in source.each(packed):
        layer, _, attribute = name.rpartition("/")
        scheme, quantizer = schemes[name], packing.quantizer
        parts = scheme.encode_by(quantizer, array) if quantizer else None
        parts = scheme.encode(array) if parts is None else parts
        rounded.setdefault(layer, {})[attribute] = tuple(map(jax.device_put, parts))
    quantize_in_place(model, plan, rounded=rounded)


def _small(stored: WeightSource, names: Iterable[str]) -> list[str]:
    """Those of the tensors that are kept although nothing needs them."""
    return [
        name
        for name in names
        if (dtype := stored.dtype(name)) is not None
        and int(np.prod(stored.shapes[name], dtype=object)) * dtype.itemsize <= _KEPT
    ]


def _fitting(
    path: Path,
    op: str,
    shapes: Mapping[str, tuple[int, ...]],
    stored: Mapping[str, tuple[int, ...]],
    fresh: tuple[str, ...],
    classes: bool,
) -> list[str]:
    """The weights that the file has; it may lack, or have more of, those of a top.

    Raises:
        FileFormatError: Weights are missing, or there are others.
    """
    missing = [n for n in shapes if n not in stored and not n.startswith(fresh)]
    unexpected = [n for n in stored if n not in shapes and not n.startswith(fresh)]
    different = {
        name: (shapes[name], stored[name])
        for name in shapes
        if name in stored and shapes[name] != stored[name]
    }
    if classes:
        different = {n: s for n, s in different.items() if not n.startswith(fresh)}
    if missing or unexpected or different:
        lines = [
            f"{n}: {ours}, in the file {its}" for n, (ours, its) in different.items()
        ]
        raise FileFormatError(
            op,
            "the file belongs to another model",
            {
                "file": path,
                "missing in the file": ", ".join(missing[:5]) or "none",
                "not in the model": ", ".join(unexpected[:5]) or "none",
                "of another shape": "; ".join(lines[:3]) or "none",
            },
            hint="from_pretrained(folder) takes the sizes from config.json.",
        )
    return [n for n in shapes if n in stored and shapes[n] == stored[n]]


def rank_classes(
    op: str, predictions: Any, names: Sequence[str], top: int
) -> list[list[tuple]]:
    """The likeliest classes of each row: (number, name, score), the best first.

    Raises:
        ShapeError: There are not as many scores as names.

    Example:
        >>> rank_classes("decode", [[0.25, 0.75]], ["cat", "dog"], 1)
        [[('1', 'dog', 0.75)]]
    """
    scores, count = np.asarray(predictions), len(names)
    if scores.ndim != 2 or scores.shape[1] != count:
        raise ShapeError(
            op, f"predictions must be [batch, {count}], received {scores.shape}"
        )
    check_count(op, "top", top)
    return [
        [(str(i), names[i], row[i].item()) for i in row.argsort()[::-1][:top]]
        for row in scores
    ]


def architecture(config: Mapping[str, Any]) -> str:
    """What ``config.json`` of timm calls the network; ``""`` for other files."""
    named = config.get("architecture")
    return named if isinstance(named, str) else ""


@api_boundary
def from_pretrained(
    source: Any, *, dtype: Any = None, quantize: Any = None, **changes: Any
) -> Any:
    """The model of a folder with ``config.json`` and weights, of any known family.

    Args:
        source: The folder, or ``"user/model"`` on a hub, ``"user/model@revision"``; or
            a GGUF file of a decoder.
        dtype: Precision policy; by default that of the weights in the file.
        quantize: A mode of ``model.quantize``, such as ``"int4"``, or its
            configuration: weights are stored in few bits as they are read.
        **changes: Arguments of the family's class that are to be others, such as
            ``classes=3``.

    Raises:
        FileFormatError: No family has such models, or the folder is damaged.
        MissingFileError: There is no such folder, or a file is missing in it.
        DataError: The hub does not have it, or cannot be reached.
        MissingDependencyError: A hub's name needs ``huggingface_hub``.

    Example:
        >>> import tempfile
        >>> from exburn import applications
        >>> sizes = {"patch_size": 8, "layers": 1, "width": 16, "heads": 2}
        >>> sizes |= {"mlp_width": 32, "input_shape": (16, 16, 3)}
        >>> small = applications.ViT(classes=5, **sizes)
        >>> folder = tempfile.mkdtemp()
        >>> _ = small.save_pretrained(folder)
        >>> applications.from_pretrained(folder).output_shape
        (None, 5)
    """
    op = "from_pretrained"
    folder = local_source(source, op)
    if os.path.isdir(folder):
        config, _ = read_config(folder, op)
    elif is_gguf(folder, op):
        with GGUFFile(folder, op) as file:
            config = config_of(file, op)
    else:
        raise ArgumentError(
            op,
            f"{os.fspath(folder)!r} is a file, which does not tell what the model is",
            hint="Pass its folder, or make the model and pass the file as weights=.",
        )
    for family in Pretrained.families:
        if family.is_mine(config):
            options = {"dtype": dtype, "quantize": quantize}
            return family.from_pretrained(folder, **options, **changes)
    families = ", ".join(family.__name__ for family in Pretrained.families)
    raise FileFormatError(
        op,
        "the folder holds a model of no known family",
        {"file": folder / CONFIG, **kind_of(config), "known": families},
        hint="Make the network yourself, and load its weights by rules: "
        "model.load_weights(file, rules=exburn.weights.rules([…])).",
    )
