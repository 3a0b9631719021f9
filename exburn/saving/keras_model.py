"""Models in files that Keras wrote: ``.keras`` archives, and ``.h5`` files before them.

A file gives a configuration, weights by the places of layers, settings of ``compile``
and the optimizer's arrays. Names are looked up in the closed registry; the model is
traced without arrays, and nothing is read before all weights have the shapes of the
arrays in the file.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np

from exburn.core import registry
from exburn.errors import FileFormatError, ModelFormatError, warn
from exburn.module.building import materialize, place
from exburn.module.layer import Layer
from exburn.module.traversal import iter_weights
from exburn.optimizers import Optimizer
from exburn.saving.hdf5 import HDF5File
from exburn.saving.json_text import parse_json
from exburn.saving.keras_archive import KerasArchive
from exburn.saving.keras_assets import read_assets, with_vocabularies
from exburn.saving.keras_config import compile_settings, modernize
from exburn.saving.keras_weights import KerasWeights
from exburn.saving.legacy_h5 import LegacyWeights, is_legacy, optimizer_arrays
from exburn.saving.model_description import check_numbers, largest_size, too_many
from exburn.saving.model_reading import unusable
from exburn.saving.model_tensors import fill
from exburn.saving.own_storage import give_back
from exburn.saving.weight_sources import WeightSource

_OP = "load_model"
_ENTRIES = 200_000  # groups and arrays of a file


def load_archive(
    path: Path, custom_objects: Mapping[str, Any] | None, compile: bool
) -> Any:
    """The model of a ``.keras`` archive of Keras 3, or of Keras 2.12 and later.

    Raises:
        ModelFormatError: The archive is damaged, or names what is not known here.
        MissingDependencyError: h5py is not installed.
    """
    with KerasArchive(path, _OP) as archive:
        config = parse_json(archive.config(), _OP, path, "the model's configuration")
        text = archive.metadata() or b"{}"
        metadata = parse_json(text, _OP, path, "the archive's metadata")
        version = metadata.get("keras_version") if isinstance(metadata, dict) else None
        with archive.weights(_ENTRIES) as file:
            with_vocabularies(config, file, archive)
            settings = (
                config.get("compile_config") if isinstance(config, dict) else None
            )
            reader = _Reader(file, f"a .keras archive of Keras {version}", config)
            arrays = [n for n in file.shapes if re.fullmatch(r"optimizer/vars/\d+", n)]
            arrays.sort(key=lambda name: int(name.rpartition("/")[2]))
            with registry.custom_objects(custom_objects):
                return reader.read(
                    lambda model: KerasWeights(file, model),
                    settings if compile else None,
                    arrays,
                    lambda model: read_assets(model, file, archive),
                )


def load_hdf5(
    path: Path, custom_objects: Mapping[str, Any] | None, compile: bool
) -> Any:
    """The model of an ``.h5`` file that ``model.save`` of Keras wrote.

    Raises:
        ModelFormatError: The file is damaged, holds weights only, or names what is not
            known here.
        MissingDependencyError: h5py is not installed.
    """
    with HDF5File(path, _OP, _ENTRIES) as file:
        text = file.text("model_config")
        if text is None:
            kind = "Keras 2" if is_legacy(file) else "Keras 3"
            raise ModelFormatError(
                _OP,
                f"{path} is an HDF5 file of {kind} without a model's configuration",
                {"holds": "weights" if file.shapes else "nothing that is known"},
                hint="Build the same model here, then model.load_weights(path).",
            )
        config = parse_json(text, _OP, path, "the model's configuration")
        version = file.text("keras_version") or file.text(
            "keras_version", "model_weights"
        )
        reader = _Reader(file, f"a legacy .h5 file of Keras {version or '1'}", config)
        if (version or "1").startswith("1."):
            raise reader.unusable(
                FileFormatError(
                    _OP, "its configuration is of Keras 1", hint="Save it with Keras 2."
                )
            )
        training = file.text("training_config") if compile else None
        settings = None
        if training is not None:
            settings = parse_json(training, _OP, path, "the settings of compile")
        with registry.custom_objects(custom_objects):
            return reader.read(
                lambda model: LegacyWeights(file, model),
                settings,
                optimizer_arrays(file),
                lambda model: {},
            )


_FACTORS = ("/lora_a", "/lora_b")


class _Reader:
    """Makes a model of a file that is open.

    Args:
        format: What the file is, for errors.
        config: The description as it was written.
    """

    def __init__(self, file: HDF5File, format: str, config: Any):
        self._file, self._format, self._config = file, format, config

    def unusable(self, error: Exception) -> ModelFormatError:
        """The error for a file that no model can be made of."""
        hint = "Build the same model here, then model.load_weights(path)."
        return unusable(_OP, self._file.path, error, hint, format=self._format)

    def read(
        self,
        stored_for: Callable[[Any], WeightSource],
        settings: Any,
        slots: list[str],
        assets_for: Callable[[Any], Mapping[str, Any]],
    ) -> Any:
        """The model.

        Args:
            stored_for: Makes of a model how its weights are stored.
            settings: Those of ``compile``; ``None`` leaves the model uncompiled.
            slots: The optimizer's arrays in Keras' order.
            assets_for: What the layers of a model have beside their weights.
        """
        try:
            with registry.reading_file(self._file.shapes.values()):
                model = self._make()
                source = stored_for(model)
                own = self._compare(model, source)
                if settings:
                    self._compile(model, settings)
        except ModelFormatError as error:
            if error.op == _OP:
                raise
            raise self.unusable(error) from error
        except Exception as error:
            raise self.unusable(error) from error
        weights = {path: weight for path, weight, _ in iter_weights(model)}
        with model._on_device():
            for path, array in source.read(own).items():
                fill(weights[path], array)
        materialize(model)  # the states of stateful layers are in no file
        for layer in getattr(source, "packed", ()):
            layer.pack()
        place(model)
        give_back(model, {**source.read_own(), **assets_for(model)}, _OP)
        if model.compiled and slots:
            self._restore_state(model, slots)
        return model

    def _make(self) -> Any:
        entries = len(self._file.shapes)
        if not isinstance(self._config, dict) or too_many(self._config, entries):
            raise FileFormatError(_OP, "the configuration is none of a model")
        description = modernize(self._config)
        check_numbers(description, largest_size(self._file.shapes.values()))
        with registry.sharing():
            model = registry.deserialize(description)
        if not (isinstance(model, Layer) and model.is_model):
            raise FileFormatError(_OP, "the outermost object is not a model")
        build = description.get("build_config")
        if not model.built and build:
            model.build_from_config(build)
        if not model.built:
            raise FileFormatError(
                _OP,
                f"the shapes that {model.name!r} was called on are not in the file",
                hint="Build the model, then model.load_weights(path).",
            )
        return model

    def _compare(self, model: Any, source: WeightSource) -> list[str]:
        """The weights to read: each has an array of its shape, and none is left."""
        weights = {
            path: tuple(weight.shape)
            for path, weight, _ in iter_weights(model, carried=False)
            if path not in source.taken
        }
        # Keras adds the term of an adapter to the weight, and stores neither factor.
        for path in [n for n in weights if n.endswith(_FACTORS)]:
            if path not in source.shapes:
                del weights[path]
        missing = [path for path in weights if path not in source.shapes]
        extra = [name for name in source.shapes if name not in weights]
        wrong = [
            f"{path} {shape}, in the file {source.shapes[path]}"
            for path, shape in weights.items()
            if path in source.shapes and source.shapes[path] != shape
        ]
        if missing or extra or wrong:
            raise ModelFormatError(
                _OP,
                "the configuration and the weights in the file do not belong together",
                {
                    "file": self._file.path,
                    "format": self._format,
                    "without an array": ", ".join(missing[:5]) or "none",
                    "without a weight": ", ".join(extra[:5]) or "none",
                    "of other shapes": "; ".join(wrong[:3]) or "none",
                },
                hint="Take another copy of the file, or save the model again.",
            )
        return list(weights)

    def _compile(self, model: Any, settings: Any) -> None:
        if not isinstance(settings, dict):
            raise FileFormatError(_OP, "the settings of compile are none")
        outputs = [""] if model.graph is None else model.output_names
        model.compile_from_config(compile_settings(settings, outputs))

    def _restore_state(self, model: Any, slots: list[str]) -> None:
        """Gives the optimizer its state, or says that it starts anew."""
        params = {
            path: weight.get_raw_value()
            for path, weight, learned in iter_weights(model)
            if learned
        }
        shapes = [self._file.shapes[name] for name in slots]
        for rate, in_turn in ((True, True), (False, _in_turn(slots))):
            state = KerasState(
                model.optimizer, params, shapes, rate=rate, in_turn=in_turn
            )
            if state.fits:
                arrays = [self._file.read(name) for name in slots]
                filled = state.fill(params, arrays)
                step = int(filled["rate"]["count"]) * model.optimizer.accumulate
                old = model._training_state()
                model._set_training_state({**old, "step": step, "opt_state": filled})
                return
        warn(
            f"The state of {type(model.optimizer).__name__} in {self._file.path} is "
            "not read: it has no counterpart here, or is of other weights. Training "
            "goes on from the weights with a new one."
        )


def _in_turn(slots: list[str]) -> bool:
    """Whether the slots of a parameter follow each other, as Keras' names tell.

    Before Keras 2.11 they were called ``Adam/dense/kernel/m:0``.
    """
    kinds = [name.rpartition("/")[2] for name in slots[1:]]
    changes = sum(a != b for a, b in zip(kinds, kinds[1:], strict=False))
    old = all(kind in ("m:0", "v:0", "vhat:0") for kind in kinds)
    return not old or changes > 2


Place = tuple[str, ...]  # of a leaf in our state
# By class: the kinds of slots in Keras' order, by the names that ours have, of which
# an optimizer may have either. Those that it has not, Keras' has not either.
_SLOTS: dict[str, list[tuple[str, ...]]] = {
    "SGD": [("1/trace",)],
    "Adam": [("m", "v"), ("v_max",)],
    "AdamW": [("m", "v"), ("v_max",)],
    "RMSprop": [("0/nu|v",), ("2/trace|step",), ("mean",)],
    "Adagrad": [("sum",)],
    "Adadelta": [("0/e_g", "0/e_x")],
    "Adamax": [("m", "u")],
    "Nadam": [("m", "v")],
    "Ftrl": [("n", "z")],
    "Lion": [("0/mu",)],
    "Lamb": [("0/mu", "0/nu")],
}
_NEGATIVE = ("2/trace",)  # what Keras takes away, and optax adds


class KerasState:
    """How arrays in Keras' order make a state of ours.

    Keras lists an optimizer's variables: the updates so far, the learning rate unless a
    schedule computes it, moving averages, sums of gradients, and then the slots, one
    kind after the other, where those made together are in turn for each parameter.

    Args:
        params: The trained parameters by path, in Keras' order: specs or arrays.
        shapes: Shapes of Keras' arrays.
        rate: Whether the learning rate is among them: it is in Keras 3.
        in_turn: Whether slots that are made together are in turn: they are since
            Keras 2.11.

    Attributes:
        fits: Whether the arrays make a state of this optimizer.

    Example:
        >>> from exburn.optimizers import Adam
        >>> params = {"w": np.ones(2, np.float32)}
        >>> state = KerasState(Adam(), params, [(), (), (2,), (2,)])
        >>> arrays = [np.array(7), np.float32(0.5), np.zeros(2), np.ones(2)]
        >>> made = state.fill(params, arrays)
        >>> int(made["rate"]["count"]), made["inner"]["w"]["v"].tolist()
        (7, [1.0, 1.0])
    """

    def __init__(
        self,
        optimizer: Optimizer,
        params: Mapping[str, Any],
        shapes: Sequence[tuple[int, ...]],
        *,
        rate: bool = True,
        in_turn: bool = True,
    ):
        self._optimizer, self._in_turn = optimizer, in_turn
        specs = {
            path: jax.ShapeDtypeStruct(p.shape, p.dtype) for path, p in params.items()
        }
        leaves = _leaves(optimizer.init(specs))
        self._places: list[Place] = []
        self._negative: set[Place] = set()
        if type(optimizer).__name__ in _SLOTS:
            self._places = self._shared_places(specs, rate) + self._slots(specs, leaves)
        expected = [tuple(leaves[place].shape) for place in self._places]
        self.fits = bool(expected) and expected == [tuple(shape) for shape in shapes]

    def _shared_places(self, params: Mapping[str, Any], rate: bool) -> list[Place]:
        """The places of what every optimizer of Keras' has."""
        places: list[Place] = [("rate", "count")]
        if rate and self._optimizer.schedule is None:
            places.append(("rate", "learning_rate"))
        if self._optimizer.use_ema:
            places += [("average", path) for path in params]
        if self._optimizer.accumulate > 1:
            places += [("accumulated", "gradients", path) for path in params]
        return places

    def _slots(self, params: Mapping[str, Any], leaves: Mapping[Place, Any]) -> list:
        slots: dict[tuple[str, str], Place] = {}
        for key in leaves:
            path = next((part for part in key if part in params), None)
            if key[0] == "inner" and path is not None:
                rest = (part for part in key[1:] if part not in (path, "moments"))
                slot = "/".join(rest)
                slots[slot, path] = key
                if slot in _NEGATIVE:
                    self._negative.add(key)
        has = {slot for slot, _ in slots}
        places = []
        for kinds in _SLOTS[type(self._optimizer).__name__]:
            names = [n for kind in kinds for n in kind.split("|") if n in has]
            if self._in_turn:
                places += [slots[name, path] for path in params for name in names]
            else:
                places += [slots[name, path] for name in names for path in params]
        if ("inner", "product") in leaves:  # Nadam's, of momentums so far
            places.append(("inner", "product"))
        return places

    def fill(self, params: Mapping[str, Any], arrays: Sequence[np.ndarray]) -> Any:
        """The state with these values.

        Args:
            params: The parameters' arrays by path.
            arrays: Those in Keras' order.
        """
        values: dict[Place, Any] = {
            place: -array if place in self._negative else array
            for place, array in zip(self._places, arrays, strict=True)
        }
        batches, k = int(values["rate", "count"]), self._optimizer.accumulate
        updates = batches // k
        values["rate", "count"] = values["inner", "0", "count"] = np.asarray(updates)
        if k > 1:
            values["accumulated", "batches"] = np.asarray(batches % k)
        return jax.tree_util.tree_map_with_path(
            lambda path, old: _cast(values.get(_place(path)), old),
            self._optimizer.init(dict(params)),
        )


def _leaves(state: Any) -> dict[Place, Any]:
    leaves = jax.tree_util.tree_leaves_with_path(state)
    return {_place(path): leaf for path, leaf in leaves}


def _place(path: Any) -> Place:
    return tuple(jax.tree_util.keystr((key,), simple=True) for key in path)


def _cast(value: Any, old: Any) -> Any:
    if value is None:
        return old
    return jax.device_put(np.asarray(value).astype(old.dtype))
