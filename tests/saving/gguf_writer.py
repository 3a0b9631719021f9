"""Writes small GGUF files, right and wrong ones."""

import struct

import numpy as np

KINDS = {int: (5, "<i"), float: (6, "<f"), bool: (7, "?")}


def text(value):
    data = value.encode()
    return struct.pack("<Q", len(data)) + data


def fact(value):
    """A value with its kind; ``bytes`` stand for themselves."""
    if isinstance(value, bytes):
        return value
    if isinstance(value, str):
        return struct.pack("<I", 8) + text(value)
    if isinstance(value, list):
        first = value[0] if value else ""
        kind, form = (8, None) if isinstance(first, str) else KINDS[type(first)]
        parts = [text(v) if form is None else struct.pack(form, v) for v in value]
        return struct.pack("<IIQ", 9, kind, len(value)) + b"".join(parts)
    kind, form = KINDS[type(value)]
    return struct.pack("<I", kind) + struct.pack(form, value)


def gguf_bytes(facts, tensors, *, counts=None, version=3, alignment=32):
    """A file.

    Args:
        facts: Values by their names.
        tensors: Arrays of float32 by their names, or ``(shape, kind, data)``; with an
            ``offset`` behind it, that one.
        counts: Of tensors and facts, other than there are.
    """
    counts = counts or (len(tensors), len(facts))
    head = b"GGUF" + struct.pack("<IQQ", version, *counts)
    for name, value in facts.items():
        head += text(name) + fact(value)
    body = b""
    for name, value in tensors.items():
        if isinstance(value, np.ndarray):
            value = value.shape, 0, value.astype("<f4").tobytes()
        shape, kind, data, *offset = value
        body += b"\0" * (-len(body) % alignment)
        head += text(name) + struct.pack("<I", len(shape))
        head += struct.pack(f"<{len(shape)}Q", *shape[::-1])
        head += struct.pack("<IQ", kind, offset[0] if offset else len(body))
        body += data
    return head + b"\0" * (-len(head) % alignment) + body
