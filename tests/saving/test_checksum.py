"""Digests at the end of files."""

import pytest

from exburn.errors import FileFormatError
from exburn.saving.checksum import seal, unseal


@pytest.mark.parametrize("kind", [bytes, bytearray])
def test_what_was_sealed_is_read_without_its_digest(kind):
    assert bytes(unseal(kind(seal(b"program")))) == b"program"
    assert unseal(b"no digest at all") == b"no digest at all"
    assert unseal(seal(b"")) == b""


def test_every_flipped_bit_of_content_and_digest_is_seen():
    whole = seal(b"program")
    mark = len(b"exburn sha256:")
    for at in range(len(whole)):
        if 7 <= at < 7 + mark:
            continue  # without its mark it is a file that has none
        damaged = bytearray(whole)
        damaged[at] ^= 4
        with pytest.raises(FileFormatError, match="damaged"):
            unseal(damaged)
