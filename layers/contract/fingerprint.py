"""The hash functions behind hashed categories; equal on every machine and Python.

They are the ones TensorFlow uses, so that categories land in the buckets they land in
with Keras: FarmHash's 64-bit fingerprint, and SipHash-2-4 where there is a salt.
"""

from __future__ import annotations

import struct

_ALL = (1 << 64) - 1
_K0, _K1, _K2 = 0xC3A5C85C97CB3127, 0xB492B66FBE98F273, 0x9AE16A3B2F90404F


def _word(data: bytes, at: int) -> int:
    return int.from_bytes(data[at : at + 8], "little")


def _rotate(value: int, by: int) -> int:
    """To the right; the value is cut to 64 bits first."""
    value &= _ALL
    return (value >> by | value << (64 - by)) & _ALL


def _mix(value: int) -> int:
    value &= _ALL
    return value ^ (value >> 47)


def _hash16(u: int, v: int, factor: int) -> int:
    v &= _ALL
    a = _mix((u ^ v) * factor)
    return _mix((v ^ a) * factor) * factor & _ALL


def fingerprint(data: bytes) -> int:
    """FarmHash's fingerprint of a string, 64 bits.

    Source: Pike, *FarmHash*, 2014.
    """
    n = len(data)
    if n > 64:
        return _long(data)
    factor = _K2 + n * 2
    if n == 0:
        return _K2
    if n < 4:
        y = data[0] + (data[n >> 1] << 8)
        z = n + (data[-1] << 2)
        return _mix(y * _K2 ^ z * _K0) * _K2 & _ALL
    if n < 8:
        first, last = (int.from_bytes(part, "little") for part in (data[:4], data[-4:]))
        return _hash16(n + (first << 3), last, factor)
    if n <= 16:
        a, b = _word(data, 0) + _K2, _word(data, n - 8)
        c = _rotate(b, 37) * factor + a
        d = (_rotate(a, 25) + b) * factor
        return _hash16(c & _ALL, d, factor)
    a = _word(data, 0) * (_K1 if n <= 32 else _K2)
    b = _word(data, 8)
    c = _word(data, n - 8) * factor
    d = _word(data, n - 16) * _K2
    y = (_rotate(a + b, 43) + _rotate(c, 30) + d) & _ALL
    z = _hash16(y, a + _rotate(b + _K2, 18) + c, factor)
    if n <= 32:
        return z
    e, f = _word(data, 16) * factor, _word(data, 24)
    g = (y + _word(data, n - 32)) * factor
    h = (z + _word(data, n - 24)) * factor
    return _hash16(
        (_rotate(e + f, 43) + _rotate(g, 30) + h) & _ALL,
        e + _rotate(f + a, 18) + g,
        factor,
    )


def _weak(data: bytes, at: int, a: int, b: int) -> tuple[int, int]:
    """A fast hash of 32 bytes with two seeds."""
    w, x, y, z = struct.unpack_from("<4Q", data, at)
    a += w
    b = _rotate(b + a + z, 21)
    c = a
    a += x + y
    b += _rotate(a, 44)
    return (a + z) & _ALL, (b + c) & _ALL


def _long(data: bytes) -> int:
    """More than 64 bytes: rounds of 64 bytes, the last one overlapping."""
    n = len(data)
    x, y = 81, 81 * _K1 + 113
    z = _mix(y * _K2 + 113) * _K2
    v = w = (0, 0)
    x = x * _K2 + _word(data, 0)

    def turn(x, y, z, v, w, at, factor, nine):
        x = _rotate(x + y + v[0] + _word(data, at + 8), 37) * factor
        y = _rotate(y + v[1] + _word(data, at + 48), 42) * factor
        x = (x ^ (w[1] * nine)) & _ALL
        y = (y + v[0] * nine + _word(data, at + 40)) & _ALL
        z = _rotate(z + w[0], 33) * factor & _ALL
        v = _weak(data, at, v[1] * factor, x + w[0])
        w = _weak(data, at + 32, z + w[1], y + _word(data, at + 16))
        return z, y, x, v, w

    for at in range(0, (n - 1) // 64 * 64, 64):
        x, y, z, v, w = turn(x, y, z, v, w, at, _K1, 1)
    factor = _K1 + ((z & 0xFF) << 1)
    w = (w[0] + ((n - 1) & 63), w[1])
    v = (v[0] + w[0], v[1])
    w = (w[0] + v[0], w[1])
    x, y, z, v, w = turn(x, y, z, v, w, n - 64, factor, 9)
    return _hash16(
        (_hash16(v[0], w[0], factor) + _mix(y) * _K0 + z) & _ALL,
        _hash16(v[1], w[1], factor) + x,
        factor,
    )


def combine(first: int, second: int) -> int:
    """One fingerprint of two, in this order.

    Example:
        >>> combine(1, 2) == combine(2, 1)
        False
    """
    factor = 0xC6A4A7935BD1E995
    result = first ^ factor
    result ^= _mix(second * factor) * factor & _ALL
    result = _mix(result * factor) * factor
    return _mix(result)


def siphash(data: bytes, key: tuple[int, int]) -> int:
    """SipHash-2-4 of a string, 64 bits.

    Args:
        data: The string.
        key: Two integers below 2**64.

    Source: Aumasson & Bernstein, *SipHash: A Fast Short-Input PRF*, 2012.
    """
    a, b = (k & _ALL for k in key)
    v0, v1 = a ^ 0x736F6D6570736575, b ^ 0x646F72616E646F6D
    v2, v3 = a ^ 0x6C7967656E657261, b ^ 0x7465646279746573

    def turns(v0, v1, v2, v3, times):
        for _ in range(times):
            v0, v2 = (v0 + v1) & _ALL, (v2 + v3) & _ALL
            v1, v3 = _rotate(v1, 51) ^ v0, _rotate(v3, 48) ^ v2
            v0, v2 = (_rotate(v0, 32) + v3) & _ALL, (v2 + v1) & _ALL
            v3, v1 = _rotate(v3, 43) ^ v0, _rotate(v1, 47) ^ v2
            v2 = _rotate(v2, 32)
        return v0, v1, v2, v3

    tail = data[len(data) // 8 * 8 :].ljust(7, b"\0") + bytes([len(data) & 0xFF])
    for at in range(0, len(data) // 8 * 8 + 8, 8):
        word = _word(data, at) if at + 8 <= len(data) else _word(tail, 0)
        v0, v1, v2, v3 = turns(v0, v1, v2, v3 ^ word, 2)
        v0 ^= word
    v0, v1, v2, v3 = turns(v0, v1, v2 ^ 0xFF, v3, 4)
    return v0 ^ v1 ^ v2 ^ v3
