"""Model files under SIGKILL: ExBurn beside Keras' model.save and safetensors alone.

A process saves two models in turn over one file, without end. It is killed at a random
moment, or before its n-th operation on the file system; then the file must hold one of
the two models, whole, and after that opening nothing else may be left in the folder.

    PYTHONSAFEPATH=1 python benchmarks/reliability_files.py --kills 200
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ.setdefault("KERAS_BACKEND", "jax")
os.environ.setdefault("JAX_PLATFORMS", "cpu")

import numpy as np

OPERATIONS = ("open", "write", "lseek", "fsync", "close", "replace", "unlink", "fchmod")


class Case:
    """One way of saving.

    Attributes:
        save: Writes model 0 or 1 to a path.
        load: Reads the path; returns which model it is.
        name: The file's name.
    """

    name = "m.exburn"

    def save(self, which: int, path: Path) -> None:
        raise NotImplementedError

    def load(self, path: Path) -> Any:
        raise NotImplementedError


def value_of(arrays: Any) -> Any:
    """0 or 1 if every weight has that value, else what was found."""
    values = {float(v) for a in arrays for v in np.unique(np.asarray(a))}
    return int(values.pop()) if len(values) == 1 else f"a mixture: {values}"


class ExBurn(Case):
    parts: Any = None

    def __init__(self):
        import exburn

        def model(value: float):
            stack = [exburn.Input((256,)), *(exburn.layers.Dense(256) for _ in "1234")]
            made = exburn.Sequential(stack)
            made.set_weights([np.full(w.shape, value) for w in made.get_weights()])
            return made

        self.models, self.exburn = [model(0.0), model(1.0)], exburn

    def save(self, which: int, path: Path) -> None:
        self.models[which].save(path, max_shard_size=self.parts)

    def load(self, path: Path) -> Any:
        return value_of(self.exburn.load_model(path).get_weights())


class ExBurnParts(ExBurn):
    parts = "300KB"


class ExBurnWeights(ExBurn):
    name = "m.safetensors"

    def save(self, which: int, path: Path) -> None:
        self.models[which].save_weights(path)

    def load(self, path: Path) -> Any:
        model = self.exburn.Sequential(
            [self.exburn.Input((256,))]
            + [self.exburn.layers.Dense(256) for _ in "1234"]
        )
        model.load_weights(path)
        return value_of(model.get_weights())


class Keras(Case):
    name = "m.keras"

    def __init__(self):
        import keras

        def model(value: float):
            stack = [keras.Input((256,)), *(keras.layers.Dense(256) for _ in "1234")]
            made = keras.Sequential(stack)
            made.set_weights([np.full(w.shape, value) for w in made.get_weights()])
            return made

        self.models, self.keras = [model(0.0), model(1.0)], keras

    def save(self, which: int, path: Path) -> None:
        self.models[which].save(path)

    def load(self, path: Path) -> Any:
        return value_of(self.keras.models.load_model(path).get_weights())


class Safetensors(Case):
    name = "m.safetensors"

    def __init__(self):
        import safetensors.numpy

        self.library = safetensors.numpy
        self.tensors = [
            {str(i): np.full((256, 256), v, np.float32) for i in range(4)}
            for v in (0.0, 1.0)
        ]

    def save(self, which: int, path: Path) -> None:
        self.library.save_file(self.tensors[which], path)

    def load(self, path: Path) -> Any:
        return value_of(self.library.load_file(path).values())


CASES: dict[str, type[Case]] = {
    "exburn": ExBurn,
    "exburn-parts": ExBurnParts,
    "exburn-weights": ExBurnWeights,
    "keras": Keras,
    "safetensors": Safetensors,
}


# ---------------------------------------------------------------------- killing
def in_child(work: Callable[[], None]) -> int:
    """Runs the work in a copy of this process."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # JAX's threads do not go along; none is needed
        child = os.fork()
    if child == 0:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
        try:
            work()
        finally:
            os._exit(0)
    return child


def after(case: Case, path: Path, expected: int) -> dict[str, int]:
    """What is wrong after a kill; the folder is made good again."""
    wrong = {"lost": 0, "litter": 0}
    try:
        if case.load(path) not in (0, 1):
            wrong["lost"] = 1
    except Exception:  # whatever a peer raises, the model is gone
        wrong["lost"] = 1
    wrong["litter"] = int(len(os.listdir(path.parent)) != expected)
    if any(wrong.values()):
        shutil.rmtree(path.parent)
        path.parent.mkdir()
        case.save(0, path)
    return wrong


def random_kills(case: Case, path: Path, kills: int, seed: int) -> dict[str, int]:
    """Kills at random moments of saves that follow one another."""
    rng, total = random.Random(seed), {"kills": kills, "lost": 0, "litter": 0}
    case.save(0, path)
    start = time.perf_counter()
    case.save(1, path)
    took = time.perf_counter() - start
    expected = len(os.listdir(path.parent))

    def work():
        for i in range(1_000_000):
            case.save(i % 2, path)

    for _ in range(kills):
        child = in_child(work)
        time.sleep(rng.uniform(0.002, 0.01 + 3 * took))
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        for key, count in after(case, path, expected).items():
            total[key] += count
    return total


def every_operation(case: Case, path: Path) -> dict[str, int]:
    """Kills before the first operation of a save over a file, the second, and so on."""
    case.save(0, path)
    expected, total = len(os.listdir(path.parent)), {"kills": 0, "lost": 0, "litter": 0}
    at = 0
    while True:

        def work(at: int = at):
            left = [at]

            def counted(function: Any) -> Any:
                def call(*args: Any, **kwargs: Any) -> Any:
                    if not left[0]:
                        os.kill(os.getpid(), signal.SIGKILL)
                    left[0] -= 1
                    return function(*args, **kwargs)

                return call

            for name in OPERATIONS:
                setattr(os, name, counted(getattr(os, name)))
            case.save(1, path)

        status = os.waitpid(in_child(work), 0)[1]
        if not os.WIFSIGNALED(status):
            return total
        total["kills"] += 1
        for key, count in after(case, path, expected).items():
            total[key] += count
        case.save(0, path)
        at += 1


def flipped_bits(case: Case, path: Path, flips: int, seed: int) -> dict[str, int]:
    """Flips one bit at a time: seen, harmless, or loaded as if it were right."""
    rng, total = random.Random(seed), {"flips": flips, "seen": 0, "silent": 0}
    case.save(1, path)
    good = path.read_bytes()
    for _ in range(flips):
        bad = bytearray(good)
        bad[rng.randrange(len(bad))] ^= 1 << rng.randrange(8)
        path.write_bytes(bad)
        try:
            total["silent"] += case.load(path) != 1
        except Exception:  # whatever a peer raises, it has seen it
            total["seen"] += 1
    return total


def run(name: str, kills: int, seed: int) -> dict[str, dict[str, int]]:
    """Both kinds of kills for one way of saving."""
    case = CASES[name]()
    results = {}
    with tempfile.TemporaryDirectory() as folder:
        for kind in ("random moments", "every operation"):
            if kind == "every operation" and not isinstance(case, ExBurn):
                continue  # the peers do not write through Python's os
            place = Path(folder, kind.split()[0])
            place.mkdir()
            path = place / case.name
            if kind == "random moments":
                results[kind] = random_kills(case, path, kills, seed)
            else:
                results[kind] = every_operation(case, path)
        if not isinstance(case, ExBurnParts):
            path = Path(folder, case.name)
            results["flipped bits"] = flipped_bits(case, path, kills, seed)
    return results


def main() -> None:
    parser = argparse.ArgumentParser(description="Model files under SIGKILL")
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", nargs="*", choices=CASES, default=list(CASES))
    parser.add_argument("--out", type=Path, help="a JSON file for the results")
    options = parser.parse_args()
    results = {}
    for name in options.only:
        results[name] = run(name, options.kills, options.seed)
        for kind, counts in results[name].items():
            text = ", ".join(f"{count} {what}" for what, count in counts.items())
            print(f"{name:16s} {kind:16s} {text}", flush=True)
    if options.out:
        options.out.write_text(json.dumps(results, indent=2) + "\n")
    else:
        print(json.dumps(results))


if __name__ == "__main__":
    sys.exit(main())
