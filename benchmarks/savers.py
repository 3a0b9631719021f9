"""Things that save states 1, 2, 3 … into a folder, and find them again.

State 1 is the best. So what keeps the best and the newest must have both at any time.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np

__all__ = ["SYSTEMS", "System"]

SIZE = 64  # of a matrix' axes


def content(value: int, shapes: Iterable[tuple[int, ...]]) -> list[np.ndarray]:
    """The arrays of a state; the first entry of the first is its number."""
    drawn = [
        np.random.default_rng([value, i]).standard_normal(shape, np.float32)
        for i, shape in enumerate(shapes)
    ]
    drawn[0].flat[0] = value
    return drawn


def value_of(arrays: Any) -> int:
    """The state that these arrays, in order, are; -1 if they are none."""
    arrays = [np.asarray(array) for array in arrays]
    value = arrays[0].flat[0] if arrays and arrays[0].size else 0
    if not 0 < value < 10**6 or value != int(value):
        return -1
    expected = content(int(value), [array.shape for array in arrays])
    return int(value) if all(map(np.array_equal, arrays, expected)) else -1


def arrays(value: int) -> dict[str, np.ndarray]:
    """A state of a system that saves named arrays."""
    drawn = content(value, [(SIZE, SIZE)] * 3)
    return {f"layer_{i}": array for i, array in enumerate(drawn)}


def named(arrays: dict[str, Any]) -> int:
    return value_of([arrays[name] for name in sorted(arrays)])


def score(value: int) -> float:
    return 0.1 if value == 1 else 0.5


class Look:
    """What a new process finds in a folder.

    Attributes:
        found: States that are listed and whole.
        wrong: How many are listed, load, and are not what was saved.
        unreadable: How many are listed and do not load.
        litter: Names that do not belong there.
    """

    def __init__(self):
        self.found: list[int] = []
        self.wrong = self.unreadable = 0
        self.litter: list[str] = []

    def add(self, load: Callable[[], int], expected: int | None = None) -> None:
        """Loads one that is listed."""
        try:
            value = load()
        except Exception:  # whatever a peer raises
            self.unreadable += 1
            return
        if value < 1 or expected not in (None, value):
            self.wrong += 1
        else:
            self.found.append(value)


class System:
    """Saves states into a folder.

    Attributes:
        typed: Names of the errors with which a save may fail; of all, if empty.
        lag: How many saves may be unfinished when ``save`` returns.
        keeps_best: Whether the best state is kept besides the newest.
        hidden: Beginning of names that nothing may have after a save has failed.
    """

    typed: tuple[str, ...] = ()
    lag = 0
    keeps_best = False
    hidden = ""

    def imports(self) -> None:
        """Imports what is needed; starts no threads."""
        raise NotImplementedError

    def start(self, folder: str) -> None:
        """Gets ready for saving."""
        self.folder = Path(folder)

    def save(self, value: int) -> None:
        raise NotImplementedError

    def stop(self) -> None:
        """Finishes what ``save`` has begun."""

    def look(self, folder: str) -> Look:
        raise NotImplementedError


class Checkpoints(System):
    """exburn.saving.checkpoint: the newest, and the best."""

    typed, hidden, keeps_best = ("CheckpointError",), ".unfinished", True

    def __init__(self, background: bool):
        self.background, self.lag = background, int(background)

    def imports(self) -> None:
        import orbax.checkpoint  # noqa: F401

        import exburn.saving.checkpoint  # noqa: F401

    def start(self, folder: str) -> None:
        from exburn.saving.checkpoint import CheckpointWriter

        self.writer = CheckpointWriter(
            folder, keep=1, best="min", background=self.background
        )
        self.writer.open()

    def save(self, value: int) -> None:
        self.writer.save(arrays(value), {}, step=value, score=score(value))

    def stop(self) -> None:
        self.writer.close()

    def look(self, folder: str) -> Look:
        from exburn.saving.checkpoint import CheckpointDirectory

        look, directory = Look(), CheckpointDirectory(folder)
        listed = directory.checkpoints()
        for one in listed:
            look.add(lambda one=one: named(directory.read(one).arrays), one.step)
        with directory:
            names = {c.path.name for c in listed}
            look.litter = sorted(set(os.listdir(folder)) - names)
        return look


class ModelFile(System):
    """exburn's model.save over the old file.

    Args:
        parts: Size of the files that the model is cut into, None for one file.
    """

    typed, hidden = ("SaveError",), "."

    def __init__(self, parts: str | None = None):
        self.parts = parts

    def imports(self) -> None:
        import exburn.layers  # noqa: F401

    def start(self, folder: str) -> None:
        import exburn

        super().start(folder)
        stack = [exburn.Input((SIZE,)), exburn.layers.Dense(SIZE)]
        self.model = exburn.Sequential([*stack, exburn.layers.Dense(SIZE)])

    def fill(self, value: int) -> None:
        shapes = [weight.shape for weight in self.model.get_weights()]
        self.model.set_weights(content(value, shapes))

    def save(self, value: int) -> None:
        self.fill(value)
        self.model.save(self.folder / "m.exburn", max_shard_size=self.parts)

    def load(self, path: Path) -> int:
        import exburn

        return value_of(exburn.load_model(path).get_weights())

    def look(self, folder: str) -> Look:
        look, path = Look(), Path(folder) / "m.exburn"
        look.add(lambda: self.load(path))
        text = path.read_bytes().decode("latin-1") if path.exists() else ""
        look.litter = [
            name
            for name in os.listdir(folder)
            if name != path.name and not (self.parts and name in text)
        ]
        return look


class ModelFiles(ModelFile):
    """exburn's ModelCheckpoint with a file for each state: the newest, and the best."""

    keeps_best = True

    def start(self, folder: str) -> None:
        super().start(folder)
        self.callback = None

    def number(self, name: str) -> int:
        stem, _, suffix = name.rpartition(".")
        return int(stem) if suffix == "exburn" else 0

    def path(self, value: int) -> str:
        return str(self.folder / f"{value}.exburn")

    def resume(self, value: int) -> Any:
        """The callback as it was after a state: fit(resume=) brings that back."""
        from exburn.callbacks import ModelCheckpoint

        callback = ModelCheckpoint(str(self.folder / "{epoch}.exburn"), "loss", keep=1)
        numbers = sorted({1, value}) if value else []
        written = [[self.path(number), score(number)] for number in numbers]
        callback.load_state_dict(callback.state_dict() | {"written": written})
        callback.set_model(self.model)
        self.callback = callback
        return callback

    def save(self, value: int) -> None:
        callback = self.callback or self.resume(value - 1)
        self.fill(value)
        callback.on_epoch_end(value - 1, {"loss": score(value)})

    def look(self, folder: str) -> Look:
        look, self.folder = Look(), Path(folder)
        for value in sorted(filter(None, map(self.number, os.listdir(folder)))):
            look.add(lambda value=value: self.load(Path(self.path(value))), value)
        if len(look.found) > 1:  # the next opening: the unfinished save once more
            resumed = look.found[1]
            again = look.found[2] if len(look.found) > 2 else resumed + 1
            self.start(folder)
            self.resume(resumed)
            self.save(again)
            expected = {"1.exburn", f"{again}.exburn"}
            look.litter = sorted(set(os.listdir(folder)) - expected)
        return look


class Safetensors(System):
    """safetensors.numpy.save_file over the old file."""

    def imports(self) -> None:
        import safetensors.numpy

        self.library = safetensors.numpy

    def save(self, value: int) -> None:
        self.library.save_file(arrays(value), self.folder / "m.safetensors")

    def look(self, folder: str) -> Look:
        look, path = Look(), Path(folder) / "m.safetensors"
        look.add(lambda: named(self.library.load_file(path)))
        look.litter = [n for n in os.listdir(folder) if n != path.name]
        return look


class Orbax(System):
    """orbax.checkpoint.CheckpointManager: the newest, and the best."""

    keeps_best = True

    def __init__(self, background: bool):
        self.background, self.lag = background, int(background)

    def imports(self) -> None:
        import orbax.checkpoint

        self.library: Any = orbax.checkpoint

    def manager(self, folder: str) -> Any:
        policies = self.library.checkpoint_managers
        newest = policies.LatestN(1)
        best = policies.BestN(
            get_metric_fn=lambda metrics: metrics["loss"], reverse=True, n=1
        )
        return self.library.CheckpointManager(
            folder,
            options=self.library.CheckpointManagerOptions(
                preservation_policy=policies.AnyPreservationPolicy([newest, best]),
                enable_async_checkpointing=self.background,
            ),
        )

    def start(self, folder: str) -> None:
        self.made = self.manager(folder)

    def save(self, value: int) -> None:
        args = self.library.args.PyTreeSave(arrays(value))
        self.made.save(value, args=args, metrics={"loss": score(value)})

    def stop(self) -> None:
        self.made.close()

    def look(self, folder: str) -> Look:
        look, args = Look(), self.library.args.PyTreeRestore()
        with self.manager(folder) as manager:
            steps = list(manager.all_steps())
            for step in steps:
                look.add(
                    lambda step=step: named(manager.restore(step, args=args)), step
                )
        look.litter = sorted(set(os.listdir(folder)) - set(map(str, steps)))
        return look


class Keras(System):
    """What Keras' model.save, or its BackupAndRestore, writes into the folder."""

    def __init__(self, backup: bool):
        self.backup = backup

    def imports(self) -> None:
        import keras

        self.library: Any = keras

    def _model(self) -> Any:
        stack = [self.library.layers.Dense(SIZE, name=name) for name in ("a", "b")]
        model = self.library.Sequential([self.library.Input((SIZE,)), *stack])
        model.compile("sgd", "mse")
        return model

    def _callback(self, folder: Path, model: Any) -> Any:
        callback = self.library.callbacks.BackupAndRestore(
            folder / "backup", double_checkpoint=True
        )
        callback.set_model(model)
        return callback

    def start(self, folder: str) -> None:
        super().start(folder)
        self.model = self._model()
        self.callback = self._callback(self.folder, self.model)

    def save(self, value: int) -> None:
        shapes = [weight.shape for weight in self.model.get_weights()]
        self.model.set_weights(content(value, shapes))
        if self.backup:
            self.callback.on_epoch_end(value - 1)
        else:
            self.model.save(self.folder / "m.keras")

    def look(self, folder: str) -> Look:
        look = Look()
        look.add(lambda: (self._restored if self.backup else self._loaded)(folder))
        own = ("m.keras", "backup")
        look.litter = [n for n in os.listdir(folder) if n not in own]
        return look

    def _loaded(self, folder: str) -> int:
        model: Any = self.library.saving.load_model(Path(folder) / "m.keras")
        return value_of(model.get_weights())

    def _restored(self, folder: str) -> int:
        model = self._model()
        model.set_weights([0 * weight for weight in model.get_weights()])
        self._callback(Path(folder), model).on_train_begin()
        if not getattr(model, "_initial_epoch", 0):
            raise FileNotFoundError("it begins at the first epoch, with new weights")
        value = value_of(model.get_weights())
        return value if value == getattr(model, "_initial_epoch", 0) else -1


SYSTEMS: dict[str, Callable[[], System]] = {
    "ExBurn model.save": ModelFile,
    "ExBurn model.save, in parts": lambda: ModelFile("20KB"),
    "ExBurn ModelCheckpoint, files": ModelFiles,
    "ExBurn checkpoint": lambda: Checkpoints(False),
    "ExBurn checkpoint, asynchronous": lambda: Checkpoints(True),
    "Orbax CheckpointManager": lambda: Orbax(False),
    "Orbax CheckpointManager, asynchronous": lambda: Orbax(True),
    "Keras model.save": lambda: Keras(False),
    "Keras BackupAndRestore": lambda: Keras(True),
    "safetensors save_file": Safetensors,
}
