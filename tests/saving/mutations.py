"""Files with some bytes changed, and what reading them may cost."""

import random
import resource
import time

from exburn.errors import ExBurnError

SLOWEST, LARGEST = 1.0, 64 << 20  # seconds, bytes beyond the file


def mutate(data, rng):
    """Some bytes changed, cut out, doubled or put elsewhere."""
    data = bytearray(data)
    for _ in range(rng.randint(1, 4)):
        if not data:
            break
        at = rng.randrange(len(data))
        size = rng.choice((1, 1, 2, 4, 8, 32))
        match rng.randrange(5):
            case 0:
                data[at] ^= 1 << rng.randrange(8)
            case 1:
                data[at : at + size] = rng.randbytes(size)
            case 2:
                del data[at : at + size]
            case 3:
                data[at:at] = data[at : at + size]
            case 4:
                data[at : at + size] = b"\xff" * size
    return bytes(data)


def memory():
    """The most that the process has taken so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def check(read, make, draws):
    """Reads so many files; errors are ExBurn's own, soon, and need little memory.

    Args:
        read: Called once the file has been changed.
        make: Changes it, with the generator that it is given.
        draws: How many.

    Returns:
        How many could be read all the same.
    """
    rng = random.Random(draws)
    before, slowest, readable = memory(), 0.0, 0
    for _ in range(draws):
        make(rng)
        at = time.process_time()
        try:
            read()
            readable += 1
        except ExBurnError:
            pass
        slowest = max(slowest, time.process_time() - at)
    assert slowest < SLOWEST, slowest
    assert memory() - before < LARGEST
    return readable
