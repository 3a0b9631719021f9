"""Random ways of holding layers, carried out alike in Keras and in ExBurn.

A plan is a list of statements of an ``__init__``: attributes are set to layers, nested
lists, tuples and dicts of them, to parts of other attributes; lists grow afterwards.
"""

import random
from collections import namedtuple

SIZE = 3
NAMES = (
    "blocks a layers_of first head _hidden zs mlp Upper middle nodes items x1".split()
)
Pair = namedtuple("Pair", "left right")


def plan(seed: int) -> list[tuple]:
    """Statements ``(verb, attribute, structure)``; a structure is nested tuples."""
    rng = random.Random(seed)
    names = rng.sample(NAMES, rng.randint(2, 5))
    steps, growing = [], []
    for name in names:
        kind = rng.choice(["one", "holder", "holder", "grows", "alias"])
        if kind == "alias" and steps:
            steps.append(("alias", name, rng.randrange(99)))
        elif kind == "grows":
            steps.append(("set", name, ("list", ())))
            growing.append(name)
        else:
            depth = 0 if kind == "one" else rng.randint(1, 3)
            steps.append(("set", name, structure(rng, depth)))
        if growing and rng.random() < 0.6:
            depth = rng.randint(0, 1)
            steps.append(("append", rng.choice(growing), structure(rng, depth)))
    for name in growing:
        steps.append(("append", name, structure(rng, 0)))
    return steps


def structure(rng: random.Random, depth: int) -> tuple:
    if depth == 0:
        kinds = ["dense"] * 5 + ["norm", "prelu", "stack", "graph", "block", "held"]
        return (rng.choice(kinds), rng.randrange(10**6))
    kind = rng.choice(["list", "list", "tuple", "dict", "pair"])
    count = 2 if kind == "pair" else rng.randint(1, 3)
    return kind, tuple(structure(rng, rng.randrange(depth)) for _ in range(count))


def make(k, L, steps):
    """A model of library ``k`` that holds its layers as the statements say."""

    class Block(L.Layer):
        def __init__(self, seed):
            super().__init__()
            self.many, self.gains = [], []
            carry_out(self, plan(seed)[:2])

        def build(self, shape):
            self.offset = self.add_weight(shape=(SIZE,), initializer="zeros")
            for _ in range(2):  # Keras knows the order in which they are made
                self.gains.append(self.add_weight(shape=(SIZE,), initializer="ones"))
                self.many.append(self.add_weight(shape=(SIZE,), initializer="ones"))

        def call(self, x):
            for path in self.paths:
                x = at(self, path)(x)
            first, second = self.gains
            return x * first + second * self.many[0] - self.many[1] + self.offset

    def new(kind, seed):
        if kind == "dense":
            return L.Dense(SIZE)
        if kind == "norm":
            return L.BatchNormalization()
        if kind == "prelu":
            return L.PReLU()
        if kind == "stack":
            return k.Sequential([L.Dense(SIZE), L.Dense(SIZE)])
        if kind == "graph":
            start = k.Input((SIZE,))
            return k.Model(start, L.Dense(SIZE)(L.Dense(SIZE)(start)))
        return Block(seed)

    def filled(described, made):
        kind, inner = described
        if kind == "held" and made:
            return made[inner % len(made)]
        if kind == "held":
            return filled(("dense", 0), made)
        if not isinstance(inner, tuple):
            made.append(new(kind, inner))
            return made[-1]
        values = [filled(one, made) for one in inner]
        if kind == "dict":
            return {f"k{7 - i}": value for i, value in enumerate(values)}
        if kind == "pair":
            return Pair(*values)
        return tuple(values) if kind == "tuple" else values

    def carry_out(holder, steps):
        made, seen, paths = [], set(), []
        for verb, name, told in steps:
            if verb == "append":
                getattr(holder, name).append(filled(told, made))
            elif verb == "alias":
                there = [path for path in parts_of(holder, steps) if path[0] != name]
                if there:
                    path = there[told % len(there)]
                    setattr(holder, name, at(holder, path[: 1 + told % len(path)]))
            else:
                setattr(holder, name, filled(told, made))
        for path in parts_of(holder, steps):
            if id(part := at(holder, path)) not in seen:
                seen.add(id(part))
                paths.append(path)
        # Text, as a list of tuples would be one more container.
        holder.paths = Paths(paths)

    class Net(k.Model):
        def __init__(self):
            super().__init__()
            carry_out(self, steps)

        @property
        def aside(self):  # met before what it is a part of
            return [at(self, path) for path in reversed(tuple(self.paths))][:1]

        def call(self, x):
            for path in self.paths:
                x = at(self, path)(x)
            return x

    return Net()


class Paths:
    """Places of layers, in no container that a library looks into."""

    def __init__(self, paths):
        self.iter = lambda: iter(paths)

    def __iter__(self):
        return self.iter()


def parts_of(holder, steps):
    """The places of the layers, in the order of the statements."""
    for name in dict.fromkeys(name for _, name, _ in steps):
        if name in vars(holder):
            yield from _leaves(getattr(holder, name), (name,))


def _leaves(value, path):
    if isinstance(value, dict):
        for key, one in value.items():
            yield from _leaves(one, (*path, key))
    elif isinstance(value, list | tuple):
        for key, one in enumerate(value):
            yield from _leaves(one, (*path, key))
    else:
        yield path


def at(holder, path):
    value = getattr(holder, path[0])
    for key in path[1:]:
        value = value[key]
    return value
