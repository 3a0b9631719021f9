"""A digest at the end of a file whose own format has none, and no reader goes on to."""

from __future__ import annotations

import hashlib

from exburn.errors import FileFormatError

_MARK = b"exburn sha256:"
_LENGTH = len(_MARK) + hashlib.sha256().digest_size


def seal(data: bytes | bytearray) -> bytes:
    """The bytes, and their digest.

    Example:
        >>> len(seal(b"program")), bytes(unseal(seal(b"program")))
        (53, b'program')
    """
    return bytes(data) + _MARK + hashlib.sha256(data).digest()


def unseal(data: bytes | bytearray) -> bytes | bytearray:
    """The bytes without their digest; those that have none as they are.

    Raises:
        FileFormatError: They are not those that were sealed.
    """
    content, seal = data[:-_LENGTH], data[-_LENGTH:]
    if not seal.startswith(_MARK):
        return data
    if hashlib.sha256(content).digest() != seal[len(_MARK) :]:
        raise FileFormatError(
            "predict",
            "the file is damaged: its bytes are not those that were written",
            hint="Export the model again, or take another copy.",
        )
    return content
