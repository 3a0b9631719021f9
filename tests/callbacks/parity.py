"""What the tests of callbacks share."""

# Multiples of 1/8 are exact in float32, so that ties are ties on both sides.
GRID = [n / 8 for n in range(9)]


def sequence(rng):
    length = rng.randint(1, 10)
    names = rng.choice([("loss", "min"), ("accuracy", "max")])
    return names, [rng.choice(GRID) for _ in range(length)]
