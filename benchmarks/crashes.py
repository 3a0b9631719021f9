"""Save-and-prune, hit at one file operation after the other; run it by ``run``.

Every case starts from the same folder (two good states), does one save in a forked
child that is killed, or whose n-th operation fails, and then looks in another child at
what is left, as the next process would.
"""

from __future__ import annotations

import errno
import json
import os
import random
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(Path(__file__).parent)]

import faults  # noqa: E402
import numpy as np  # noqa: E402

SIZE = 64
ERRORS = (errno.ENOSPC, errno.EIO, errno.EACCES)


def content(value: int, shapes: list[tuple[int, ...]]) -> list[np.ndarray]:
    """The arrays of state ``value``."""
    return [
        np.random.default_rng([value, i]).standard_normal(shape, np.float32)
        for i, shape in enumerate(shapes)
    ]


def arrays(value: int) -> dict[str, np.ndarray]:
    """The state ``value`` of a system that saves named arrays."""
    drawn = content(value, [(SIZE, SIZE)] * 3)
    return {f"layer_{i}": array for i, array in enumerate(drawn)}


def value_of(found: Any) -> int:
    """The state that these arrays, in order, are; -1 if they are none."""
    found = [np.asarray(array) for array in found]
    for value in (1, 2, 3):
        wanted = content(value, [array.shape for array in found])
        if all(map(np.array_equal, found, wanted)):
            return value
    return -1


def in_order(found: dict[str, Any]) -> list[Any]:
    return [found[name] for name in sorted(found)]


def fill(model: Any, value: int) -> None:
    """Gives a model the weights of a state."""
    model.set_weights(content(value, [w.shape for w in model.get_weights()]))


class System:
    """Something that saves states 1, 2, 3 …, and finds the newest again."""

    def save(self, folder: str, value: int) -> None:
        raise NotImplementedError

    def look(self, folder: str) -> dict[str, Any]:
        """{"listed": values that are listed, "bad": of these not restorable,
        "litter": names that do not belong}."""
        raise NotImplementedError


class Checkpoints(System):
    """exburn.checkpoint with one kept, and the best."""

    def __init__(self, background: bool):
        self.background = background

    def save(self, folder: str, value: int) -> None:
        from exburn.checkpoint import CheckpointWriter

        writer = CheckpointWriter(
            folder, keep=1, best="min", background=self.background
        )
        writer.open()
        # The first is the best: it has to stay.
        score = 0.1 if value == 1 else 0.5
        writer.save(arrays(value), {}, step=value, score=score)
        writer.close()

    def look(self, folder: str) -> dict[str, Any]:
        from exburn.checkpoint import CheckpointDirectory
        from exburn.errors import CheckpointError

        directory, listed, bad = CheckpointDirectory(folder), [], 0
        for checkpoint in directory.checkpoints():
            try:
                value = value_of(in_order(directory.read(checkpoint).arrays))
                listed.append(value)
                bad += value != checkpoint.step
            except CheckpointError:
                bad += 1
        names = {c.path.name for c in directory.checkpoints()}
        with directory:
            litter = sorted(set(os.listdir(folder)) - names)
        return {"listed": listed, "bad": bad, "litter": litter}


class ModelFile(System):
    """exburn's model.save over the old file."""

    def save(self, folder: str, value: int) -> None:
        import exburn
        from exburn import layers

        model = exburn.Sequential([exburn.Input((SIZE,)), layers.Dense(SIZE)])
        fill(model, value)
        model.save(Path(folder) / "m.exburn")

    def look(self, folder: str) -> dict[str, Any]:
        import exburn

        path = Path(folder) / "m.exburn"
        try:
            model = exburn.load_model(path)
            listed = [value_of(model.get_weights())]
        except exburn.errors.ExBurnError:
            listed = []
        litter = [n for n in os.listdir(folder) if n != path.name]
        bad = int(max(listed, default=-1) < 1)
        return {"listed": listed, "bad": bad, "litter": litter}


class Safetensors(System):
    """safetensors.numpy.save_file over the old file."""

    def save(self, folder: str, value: int) -> None:
        import safetensors.numpy

        safetensors.numpy.save_file(arrays(value), Path(folder) / "m.safetensors")

    def look(self, folder: str) -> dict[str, Any]:
        import safetensors.numpy

        path = Path(folder) / "m.safetensors"
        litter = [n for n in os.listdir(folder) if n != path.name]
        try:
            listed = [value_of(in_order(safetensors.numpy.load_file(path)))]
        except Exception:
            listed = []
        bad = int(max(listed, default=-1) < 1)
        return {"listed": listed, "bad": bad, "litter": litter}


class Orbax(System):
    """orbax.checkpoint.CheckpointManager with the newest and the best kept."""

    def manager(self, folder: str) -> Any:
        import orbax.checkpoint as ocp

        options = ocp.CheckpointManagerOptions(
            max_to_keep=1, enable_async_checkpointing=False
        )
        return ocp.CheckpointManager(folder, options=options)

    def save(self, folder: str, value: int) -> None:
        import orbax.checkpoint as ocp

        with self.manager(folder) as manager:
            manager.save(value, args=ocp.args.PyTreeSave(arrays(value)))

    def look(self, folder: str) -> dict[str, Any]:
        import orbax.checkpoint as ocp

        listed, bad = [], 0
        with self.manager(folder) as manager:
            for step in manager.all_steps():
                try:
                    found = manager.restore(step, args=ocp.args.PyTreeRestore())
                    listed.append(value_of(in_order(found)))
                    bad += listed[-1] != step
                except Exception:
                    bad += 1
            names = {str(step) for step in manager.all_steps()}
        litter = sorted(set(os.listdir(folder)) - names)
        return {"listed": listed, "bad": bad, "litter": litter}


class Keras(System):
    """What a Keras 3 callback or model writes into the folder."""

    def __init__(self, backup: bool):
        self.backup = backup

    def model(self) -> Any:
        import keras

        model = keras.Sequential(
            [keras.Input((SIZE,)), keras.layers.Dense(SIZE, name="dense")]
        )
        model.compile("sgd", "mse")
        return model

    def save(self, folder: str, value: int) -> None:
        import keras

        model = self.model()
        fill(model, value)
        if not self.backup:
            model.save(Path(folder) / "m.keras")
            return
        callback = keras.callbacks.BackupAndRestore(
            Path(folder) / "backup", double_checkpoint=True
        )
        callback.set_model(model)
        callback.on_epoch_end(value - 1)

    def look(self, folder: str) -> dict[str, Any]:
        import keras

        try:
            if self.backup:
                model = self.model()
                model.set_weights([0 * w for w in model.get_weights()])
                callback = keras.callbacks.BackupAndRestore(
                    Path(folder) / "backup", double_checkpoint=True
                )
                callback.set_model(model)
                callback.on_train_begin()
                epoch = getattr(model, "_initial_epoch", 0)
            else:
                model: Any = keras.saving.load_model(Path(folder) / "m.keras")
                epoch = None
            value = value_of(model.get_weights())
        except Exception:
            return {"listed": [], "bad": 1, "litter": []}
        bad = value < 1 or (epoch is not None and epoch != value)
        known = ("m.keras", "backup")
        litter = [n for n in os.listdir(folder) if n not in known]
        return {"listed": [value], "bad": int(bad), "litter": litter}


SYSTEMS: dict[str, Callable[[], System]] = {
    "exburn checkpoint": lambda: Checkpoints(False),
    "exburn checkpoint, asynchronous": lambda: Checkpoints(True),
    "exburn model.save": ModelFile,
    "orbax CheckpointManager": Orbax,
    "keras BackupAndRestore": lambda: Keras(True),
    "keras model.save": lambda: Keras(False),
    "safetensors save_file": Safetensors,
}


def prepare(system: System) -> None:
    """Imports what the system needs, before anything is forked."""
    if isinstance(system, Checkpoints):
        import orbax.checkpoint

        import exburn.checkpoint
    elif isinstance(system, ModelFile):
        import exburn.layers  # noqa: F401
    elif isinstance(system, Orbax):
        import orbax.checkpoint  # noqa: F401
    elif isinstance(system, Keras):
        import keras  # noqa: F401
    else:
        import safetensors.numpy  # noqa: F401


def told(work: Callable[[], Any], folder: str, **options: Any) -> tuple[int, Any]:
    """A child's status, and what it returned."""
    path = os.path.join(os.path.dirname(folder), "told")
    if os.path.exists(path):
        os.unlink(path)

    def tell() -> None:
        answer = work()
        with open(path, "w") as file:
            json.dump(answer, file)

    status = faults.child(tell, folder if options else None, **options)
    if not os.path.exists(path):
        return status, None
    with open(path) as file:
        return status, json.load(file)


def run(name: str, kind: str, count: int, seed: int = 0) -> dict[str, Any]:
    """One row of the table.

    Args:
        name: The system.
        kind: ``"operation"``: killed at each operation; ``"random"``: killed at random
            moments; ``"error"``: each operation fails.
        count: Cases at most, evenly chosen among the operations; 0 for all.
        seed: Of the random moments.
    """
    system = SYSTEMS[name]()
    prepare(system)
    base = tempfile.mkdtemp()
    start, work = os.path.join(base, "start"), os.path.join(base, "work")
    os.mkdir(start)
    for value in (1, 2):
        status = faults.child(lambda v=value: system.save(start, v), quiet=False)
        if status:
            raise RuntimeError(f"{name}: the first states could not be saved")
    shutil.copytree(start, work)
    begun = time.perf_counter()
    total = faults.operations(lambda: system.save(work, 3), work)
    took = time.perf_counter() - begun
    shutil.rmtree(work)
    if kind == "random":  # those that end before they are killed do not count
        hits = [0] * (4 * count)
    else:
        step = max(total // count, 1) if count else 1
        hits = list(range(1, total + 1, step))
    draw = random.Random(seed)
    row = {"system": name, "kind": kind, "operations": total, "cases": 0}
    row |= {"lost": 0, "bad": 0, "litter": 0, "untyped": 0, "stopped": 0}
    needed = {1, 2} if isinstance(system, Checkpoints) else {2}
    for number, hit in enumerate(hits):
        if kind == "random" and row["stopped"] == count:
            break
        shutil.copytree(start, work)
        error = ERRORS[number % len(ERRORS)] if kind == "error" else 0

        def save() -> str:
            try:
                system.save(work, 3)
                return "saved"
            except Exception as refused:
                return type(refused).__name__

        if kind == "random":
            status = _killed_after(save, draw.random() * took)
            outcome = None
        else:
            status, outcome = told(save, work, at=hit, error=error)
        row["cases"] += 1
        row["stopped"] += status == faults.KILLED or outcome not in (None, "saved")
        typed = outcome in (None, "saved", "CheckpointError", "SaveError")
        row["untyped"] += kind == "error" and not typed
        if kind == "error" and isinstance(system, Checkpoints):
            # Nothing may be left behind, even before the next opening.
            names = [n for n in os.listdir(work) if n.startswith(".unfinished")]
            row["litter"] += bool(names)
        _, seen = told(lambda: system.look(work), work)
        seen = seen or {"listed": [], "bad": 1, "litter": []}
        row["bad"] += bool(seen["bad"])
        row["litter"] += bool(seen["litter"])
        good = set(seen["listed"])
        kept = good | ({2} if 3 in good else set())  # 3 may stand for 2
        row["lost"] += not needed <= kept
        shutil.rmtree(work)
    shutil.rmtree(base)
    return row


def _killed_after(work: Callable[[], Any], seconds: float) -> int:
    pid = os.fork()
    if not pid:
        try:
            null = os.open(os.devnull, os.O_WRONLY)
            os.dup2(null, 2)
            work()
        finally:
            os._exit(0)
    time.sleep(seconds)
    os.kill(pid, 9)
    status = os.waitpid(pid, 0)[1]
    return -os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0


if __name__ == "__main__":
    if not faults.armed():
        print(faults.preloaded(__file__, *sys.argv[1:], timeout=3000), end="")
    else:
        system, kind, count = sys.argv[1:4]
        print(json.dumps(run(system, kind, int(count))))
