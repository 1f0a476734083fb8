"""The compiled hash of keys.

Thread: any; only other kernels call it.
Never: imported if its machine code is cached (see `loading`).
"""

# numba infers the types here.
# ruff: noqa: ANN001, ANN201, ANN202
# mypy: disable-error-code="no-untyped-def, no-untyped-call, untyped-decorator"

from __future__ import annotations

import numpy as np
from numba import njit

from multilane.wire.records.kernels import little64

_SIP = tuple(map(np.uint64, (0x736F6D6570736575, 0x646F72616E646F6D, 0x6C7967656E657261, 0x7465646279746573)))


@njit
def _turned(word, by):
    return word << np.uint64(by) | word >> np.uint64(64 - by)


@njit
def _round(v0, v1, v2, v3):
    v0 += v1
    v2 += v3
    v1 = _turned(v1, 13) ^ v0
    v3 = _turned(v3, 16) ^ v2
    v0 = _turned(v0, 32) + v3
    v2 += v1
    v3 = _turned(v3, 21) ^ v0
    v1 = _turned(v1, 17) ^ v2
    return v0, v1, _turned(v2, 32), v3


@njit
def hash_key(data, at, size, secret, second):
    """SipHash-1-3, as Python hashes bytes: without the secret nobody can choose keys that collide."""
    k0, k1 = np.uint64(secret), np.uint64(second)
    v0, v1, v2, v3 = k0 ^ _SIP[0], k1 ^ _SIP[1], k0 ^ _SIP[2], k1 ^ _SIP[3]
    end = at + size
    while at + 8 <= end:
        word = little64(data, at)
        v0, v1, v2, v3 = _round(v0, v1, v2, v3 ^ word)
        v0 ^= word
        at += 8
    rest = np.uint64(size & 0xFF) << np.uint64(56)
    for i in range(end - at):
        rest |= np.uint64(data[np.uint64(at + i)]) << np.uint64(8 * i)
    v0, v1, v2, v3 = _round(v0, v1, v2, v3 ^ rest)
    v0 ^= rest
    v2 ^= np.uint64(0xFF)
    for _ in range(3):
        v0, v1, v2, v3 = _round(v0, v1, v2, v3)
    return np.int64(v0 ^ v1 ^ v2 ^ v3)
