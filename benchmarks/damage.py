"""Single-bit flips and truncations of saved files: detected, harmless, or silent.

Half of the damage hits files by their size, half hits every file alike. One line of
JSON for each case.

    PYTHONSAFEPATH=1 python benchmarks/damage.py "ExBurn checkpoint"
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path[:0] = [str(Path(__file__).resolve().parents[1]), str(Path(__file__).parent)]

import savers  # noqa: E402


def cases(
    name: str, flips: int, truncations: int, first: int = 0
) -> Iterator[dict[str, Any]]:
    """The outcome of each case: state 1 is saved, damaged, and looked for.

    Yields:
        ``detected``, ``harmless``, or ``silent`` (it loads, and is something else).
    """
    warnings.simplefilter("ignore")
    savers.SIZE = 256
    system = savers.SYSTEMS[name]()
    system.imports()
    with tempfile.TemporaryDirectory() as base:
        folder = os.path.join(base, "work")
        os.mkdir(folder)
        system.start(folder)
        system.save(1)
        system.stop()
        whole = {
            path: data
            for path in sorted(Path(folder).rglob("*"))
            if path.is_file() and (data := path.read_bytes())
        }
        for number in range(first, flips + truncations):
            draw = random.Random(f"{name}{number}")
            sizes = [len(data) if number % 2 else 1 for data in whole.values()]
            path = draw.choices(list(whole), sizes)[0]
            data = bytearray(whole[path])
            if number < flips:
                data[draw.randrange(len(data))] ^= 1 << draw.randrange(8)
            else:
                del data[draw.randrange(len(data)) :]
            path.write_bytes(data)
            seen = system.look(folder)
            good = seen.found == [1] and not seen.wrong and not seen.unreadable
            outcome = "silent" if seen.wrong else "harmless" if good else "detected"
            yield {"case": number, "of": flips + truncations, outcome: 1}
            for place, content in whole.items():  # a reader may have changed others
                place.parent.mkdir(parents=True, exist_ok=True)
                place.write_bytes(content)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("system", choices=savers.SYSTEMS)
    parser.add_argument("--flips", type=int, default=1000)
    parser.add_argument("--truncations", type=int, default=200)
    parser.add_argument("--first", type=int, default=0)
    options = parser.parse_args()
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what libraries print
    count = options.flips, options.truncations
    for case in cases(options.system, *count, options.first):
        print(json.dumps(case), file=answers, flush=True)


if __name__ == "__main__":
    main()
