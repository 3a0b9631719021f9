"""Tests of ``exburn.layers.contract.fingerprint``."""

from exburn.layers.contract.fingerprint import fingerprint


def test_the_fingerprint_is_farmhash():
    known = {  # from Google's implementation, one for each branch
        1: 5689676191339864068,
        2: 3644435824453252268,
        4: 15236203898828484578,
        7: 3542725027790063974,
        12: 7047861948287330708,
        40: 12884060260176002545,
    }
    for times, value in known.items():
        assert fingerprint(b"exburn " * times) == value
    assert fingerprint(b"") == 0x9AE16A3B2F90404F
