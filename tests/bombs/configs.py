"""Files of ``config.json`` that are far larger in memory, or without an end."""

import functools

TEXTS = {
    "many lists": '{"x":[' + "[]," * 1_000_000 + "[]]}",
    "deep lists": '{"x":' + "[" * 1_000_000 + "]" * 1_000_000 + "}",
    "deep dicts": '{"x":' * 100_000 + "1" + "}" * 100_000,
    "a long number": '{"x":' + "9" * 3_000_000 + "}",
    "a long name": '{"' + "x" * 3_000_000 + '": 1}',
    "a long name twice": '{"' + "x" * 1_500_000 + '": 1, "' + "x" * 1_500_000 + '": 1}',
    "no object": "[" + "1," * 1_000_000 + "1]",
    "too long": '{"x": "' + "y" * 5_000_000 + '"}',
    "an open text": '{"x": "' + '\\"' * 1_000_000,
    "quotes": '"' * 3_000_000,
}


def _file(text, folder):
    path = folder / "config.json"
    path.write_text(text)
    return path


BOMBS = {name: functools.partial(_file, text) for name, text in TEXTS.items()}
