"""Files of tokenizers that multiply texts, or take time without bound."""

import base64
import json

GOOD = {
    "version": "1.0",
    "truncation": None,
    "padding": None,
    "added_tokens": [],
    "normalizer": None,
    "pre_tokenizer": None,
    "post_processor": None,
    "decoder": None,
    "model": {
        "type": "WordLevel",
        "vocab": {"[UNK]": 0, "a": 1},
        "unk_token": "[UNK]",
    },
}
UNIGRAM = {"type": "Unigram", "unk_id": 0, "vocab": [["<unk>", 0.0], ["a", -1.0]]}


def replacement(old, new, kind="String"):
    return {"type": "Replace", "pattern": {kind: old}, "content": new}


def sequence(kind, steps):
    return {"type": "Sequence", kind: steps}


def doubling(count):
    return sequence("normalizers", [replacement("a", "aa")] * count)


def split(pattern):
    about = {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated"}
    return about | {"invert": False}


def template(parts, special):
    names = {"[C]": {"id": "[C]", "ids": special, "tokens": ["[UNK]"] * len(special)}}
    about = {"type": "TemplateProcessing", "single": parts, "special_tokens": names}
    return about | {"pair": parts + [{"Sequence": {"id": "B", "type_id": 0}}]}


A = {"Sequence": {"id": "A", "type_id": 0}}
C = {"SpecialToken": {"id": "[C]", "type_id": 0}}
BYTES = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True}
MARKS = {"type": "Punctuation", "behavior": "Isolated"}
token = {"single_word": False, "lstrip": False, "rstrip": False}
PARTS = {
    "forty doublings": {"normalizer": doubling(40)},
    "sequences of sequences": {
        "normalizer": sequence("normalizers", [doubling(10), doubling(10)])
    },
    "twelve doublings": {"normalizer": doubling(12)},
    "a long replacement": {"normalizer": replacement("a", "a" * 9000)},
    "a very long replacement": {"normalizer": replacement("a", "a" * 3_000_000)},
    "a replacement of nothing": {"normalizer": replacement("", "a" * 9000, "Regex")},
    "a long beginning": {
        "normalizer": sequence(
            "normalizers", [{"type": "Prepend", "prepend": "a" * 90}, doubling(8)]
        )
    },
    "a table of long texts": {
        "normalizer": {
            "type": "Precompiled",
            "precompiled_charsmap": base64.b64encode(
                (1024).to_bytes(4, "little") + bytes(1024) + b"a" * 2_000_000 + b"\0"
            ).decode(),
        }
    },
    "a template of texts": {"post_processor": template([A] * 50_000, [0])},
    "a template of tokens": {"post_processor": template([A, C], [0] * 200_000)},
    "templates of templates": {
        "post_processor": sequence("processors", [template([A] * 8, [0])] * 12)
    },
    "a decoder that doubles": {
        "decoder": sequence("decoders", [replacement("a", "aa")] * 40)
    },
    "repetitions of repetitions": {"pre_tokenizer": split("(a+)+[bc]")},
    "choices": {"pre_tokenizer": split("(?:a|a|aa)*[bc]")},
    "counted repetitions": {"pre_tokenizer": split("(?:a*){30}[bc]")},
    "many repetitions": {"pre_tokenizer": split("a*a*a*a*a*a*a*[bc]")},
    "an expression of a normalizer": {
        "normalizer": replacement("(a+)+[bc]", "", "Regex")
    },
    "an expression of a decoder": {"decoder": replacement("(a+)+[bc]", "", "Regex")},
    "long words": {
        "model": {
            "type": "WordPiece",
            "vocab": {"[UNK]": 0, "a": 1, "##a": 2},
            "unk_token": "[UNK]",
            "continuing_subword_prefix": "##",
            "max_input_chars_per_word": 10**9,
        }
    },
    "a large number": {
        "model": GOOD["model"] | {"vocab": {"[UNK]": 0, "a": 2**31}},
    },
    "a large added number": {
        "added_tokens": [
            {"id": 2**31, "content": "a", "special": True, "normalized": False} | token
        ]
    },
    "a negative number": {"model": GOOD["model"] | {"vocab": {"[UNK]": 0, "a": -1}}},
    "an added token that doubles": {
        "normalizer": doubling(13),
        "added_tokens": [
            {"id": 2, "content": "a" * 100_000, "special": False, "normalized": True}
            | token
        ],
    },
    "a long token": {
        "model": GOOD["model"] | {"vocab": {"[UNK]": 0, "a": 1, "b" * 4_000_000: 2}},
    },
    "many values": {"added_tokens": [[]] * 2_000_000},
    "bytes of bytes": {"pre_tokenizer": sequence("pretokenizers", [BYTES] * 40)},
    "many steps": {"pre_tokenizer": sequence("pretokenizers", [MARKS] * 100_000)},
    "pieces of no length": {"pre_tokenizer": {"type": "FixedLength", "length": 0}},
}


def _file(folder, parts):
    path = folder / "tokenizer.json"
    path.write_text(json.dumps(GOOD | parts))
    return path


BOMBS = {
    name: lambda folder, parts=parts: _file(folder, parts)
    for name, parts in PARTS.items()
}
