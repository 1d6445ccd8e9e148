"""How long to wait before retry k. One function for everything that waits.

The sample is drawn around `min(base * factor**(k-1), cap)` and the range that is sampled is cut at `cap`.
`u`, in [0, 1), is the only randomness and comes from the caller; `unit` derives it so that it can be derived again.
"""

from __future__ import annotations

import hashlib
from enum import StrEnum


class Jitter(StrEnum):
    """How a delay is spread around its nominal value."""

    NONE = "none"
    FULL = "full"
    EQUAL = "equal"
    PROPORTIONAL = "proportional"


def nominal_delay(retry: int, *, base: float, factor: float, cap: float) -> float:
    """`min(base * factor**(retry-1), cap)`, also where the power would overflow."""
    if base == 0 or cap == 0:
        return 0.0
    try:
        return min(base * float(factor) ** (retry - 1), cap)
    except OverflowError:
        return cap


def spread(nominal: float, jitter: Jitter, *, proportion: float, cap: float, u: float) -> float:
    """Place `u` in the range that `jitter` opens around `nominal`, cut at `cap`."""
    low, high = {
        Jitter.NONE: (nominal, nominal),
        Jitter.FULL: (0.0, nominal),
        Jitter.EQUAL: (nominal / 2, nominal),
        Jitter.PROPORTIONAL: (nominal * (1 - proportion), min(nominal * (1 + proportion), cap)),
    }[jitter]
    return min(low + (high - low) * u, cap)


def unit(policy: str, key: str, attempt: int) -> float:
    """A number in [0, 1) that depends on these three and on nothing else, so that a decision can be derived again."""
    source = f"{len(policy)}:{policy}{len(key)}:{key}{attempt}".encode(errors="surrogatepass")
    hashed = int.from_bytes(hashlib.blake2b(source, digest_size=8, person=b"headway-jitter").digest())
    return (hashed >> 11) / 2**53  # as many bits as a float keeps apart, so that it cannot round up to 1
