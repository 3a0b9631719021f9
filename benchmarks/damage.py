"""Single-bit flips and truncations of saved files: detected, harmless, or silent."""

from __future__ import annotations

import json
import os
import random
import shutil
import sys
import tempfile
import warnings
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import crashes


def run(name: str, flips: int, truncations: int, seed: int = 0) -> dict:
    """One row of the table: the newest state is damaged, and looked for.

    Half of the damage hits files by their size, half hits every file alike.
    """
    warnings.simplefilter("ignore")
    crashes.SIZE = 256
    system, draw = crashes.SYSTEMS[name](), random.Random(seed)
    base = tempfile.mkdtemp()
    folder = os.path.join(base, "work")
    os.mkdir(folder)
    system.save(folder, 3)
    whole = {
        path: data
        for path in sorted(Path(folder).rglob("*"))
        if path.is_file() and (data := path.read_bytes())
    }
    row = {"system": name, "kind": "damage", "flips": flips, "truncations": truncations}
    row |= {"detected": 0, "harmless": 0, "silent": 0}
    for number in range(flips + truncations):
        sizes = [len(data) if number % 2 else 1 for data in whole.values()]
        path = draw.choices(list(whole), sizes)[0]
        data = bytearray(whole[path])
        if number < flips:
            data[draw.randrange(len(data))] ^= 1 << draw.randrange(8)
        else:
            del data[draw.randrange(len(data)) :]
        path.write_bytes(data)
        seen = system.look(folder)
        good = seen["listed"] == [3] and not seen["bad"]
        silent = seen["bad"] and bool(seen["listed"])
        row["harmless" if good else "silent" if silent else "detected"] += 1
        for place, content in whole.items():  # a reader may have changed others
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(content)
    shutil.rmtree(base)
    return row


if __name__ == "__main__":
    print(json.dumps(run(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))))
