"""``python -m tests.fuzz --draws 200 --seed 7 --kind ops``."""

from __future__ import annotations

import argparse
import os
import sys
import time

os.environ["KERAS_BACKEND"] = "jax"
os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("EXBURN_COMPILATION_CACHE", "off")


def main() -> int:
    from tests.fuzz.engine import KINDS, Decided, run_kind

    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--kind", choices=KINDS, action="append", help="default: all")
    parser.add_argument("--draws", type=int, default=100, help="number of programs")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--first", type=int, default=0, help="number of the first draw")
    parser.add_argument("--only", type=int, help="one draw, by its number")
    given = parser.parse_args()
    decided, found = Decided(), []
    kinds = given.kind or list(KINDS)
    for kind in kinds:
        count = given.draws
        if not given.kind:
            count = max(1, given.draws * KINDS[kind] // 100)
        draws = range(given.first, given.first + count)
        if given.only is not None:
            draws = range(given.only, given.only + 1)
        start, new = time.monotonic(), 0
        for finding in run_kind(kind, draws, given.seed, decided):
            if finding is not None:
                found.append(finding)
                new += 1
                print(f"--- {finding}", flush=True)
        print(
            f"{kind}: {len(draws)} programs, {new} new differences, "
            f"{time.monotonic() - start:.0f} s",
            flush=True,
        )
    print(f"decided differences met: {sum(decided.uses)}")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
