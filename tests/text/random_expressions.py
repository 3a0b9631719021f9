"""Random expressions of `re`, and random grammars beside equal expressions."""

from __future__ import annotations

import random

ATOMS = [
    *(
        "a",
        "b",
        "yes",
        "日",
        "é",
        "😀",
        " ",
        "-",
        '"',
        "/",
        "#",
        "&",
        "~",
        "<",
        "@",
        "%",
    ),
    *("[a-f]", "[^a-z]", "[é-日]", r"[\d_]", r"[^\s\w]", r"[\]\-^]", "[a-]", "[]a]"),
    *(r"\d", r"\w", r"\s", r"\D", r"\W", r"\S", ".", r"\.", r"\[", r"\\", r"\/"),
    *(r"\x41", r"\u00e9", r"\t", r"\n", "\n", r"\"", r"[\x00-\x1f]", "(?i:ab)"),
]
REPEATS = ["*", "+", "?", "{2}", "{0,2}", "{1,}", "*?", "+?", "??", "{1,3}?"]


def random_expression(draw: random.Random, depth: int = 4) -> str:
    way = draw.random()
    if depth == 0 or way < 0.35:
        return draw.choice(ATOMS)

    def parts() -> list[str]:
        return [random_expression(draw, depth - 1) for _ in range(draw.randint(1, 3))]

    if way < 0.6:
        return "".join(parts())
    if way < 0.75:
        return f"({'|'.join(parts())})"
    if way < 0.8:
        return f"(?:{random_expression(draw, depth - 1)}|)"
    return f"(?:{random_expression(draw, depth - 1)})" + draw.choice(REPEATS)


def random_grammar(draw: random.Random) -> tuple[str, str]:
    """A grammar in Lark's syntax, and an expression of the same texts."""
    rules: list[str] = []
    expressions: dict[str, str] = {}

    def item() -> tuple[str, str]:
        way = draw.random()
        if way < 0.4 and expressions:
            name = draw.choice(sorted(expressions))
            text, expression = name, expressions[name]
        elif way < 0.7:
            word = draw.choice(["a", "bc", "日本", "é", "+", "(", "a b"])
            text, expression = f'"{word}"', "".join(map(_escaped, word))
        else:
            expression = draw.choice(["[a-f]", "[0-9]", "x|yz", "[^a-z+]", r"\+é"])
            text = f"/{expression}/"
        repeat = draw.choice(["", "", "", "?", "*", "+", "{2}"])
        return text + repeat, f"(?:{expression}){repeat}"

    for number in range(draw.randint(1, 5), -1, -1):
        name = f"r{number}" if number else "start"
        if number and draw.random() < 0.4 and not any(n[0] == "r" for n in expressions):
            name = f"R{number}"  # a terminal, which is made of those alone
        choices = [[item() for _ in range(draw.randint(1, 3))] for _ in range(2)]
        rules.append(
            f"{name}: " + " | ".join(" ".join(t for t, _ in c) for c in choices)
        )
        expressions[name] = "|".join("".join(e for _, e in c) for c in choices)
    return "\n".join(reversed(rules)), expressions["start"]


def _escaped(letter: str) -> str:
    return "\\" + letter if letter in "+(" else letter
