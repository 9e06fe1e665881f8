"""Gumbel noise as a pure function of (seed, position, token), so that nobody has to send a probability.

Adding it to `logits / temperature` and taking the argmax samples exactly from the softmax (Gumbel-max
trick). Target and drafter that add the *same* noise choose the same token as often as their
distributions nearly allow (Gumbel coupling, Daliri et al., arXiv 2408.07978).

The definition is the one that vLLM's second model runner uses for its own seeded sampling, so a seeded
request on a stock GPU vLLM without speculation gives the tokens that Nexus gives:

- hash: MurmurHash3 x86 32-bit over the five words (seed low, seed high, position low, token), initial
  state 0, length word 16, with the usual finaliser;
- uniform: u = (hash + 0.5) / 2**32 in float32, from its two 16-bit halves;
- noise: g = -log(-log(1 - u)); log(1 - u) by a degree-8 series below u = 0.25, which keeps the winning
  tail (u near 0) exact in float32;
- position: the index of the *input* token, which is one less than that of the token being chosen.

Arrays are NumPy's or torch's alike: every function takes the module as `xp` and uses only operators
and functions that the two have in common. Integers are int32 with wrap-around, as in C.
"""

from typing import Any

_SERIES = tuple(1.0 / n for n in (8, 7, 6, 5, 4, 3, 2, 1))
_SMALLEST_REMAINDER = 2.0**-24
"""Least value of 1 - u that is given to the logarithm."""

LARGEST = 22.88
"""No noise is larger: u >= 2**-33."""
SMALLEST = -2.82
"""No noise is smaller: 1 - u >= 2**-24."""
SPREAD = LARGEST - SMALLEST
"""A token whose scaled logit is further than this below the best one can never win."""


def _int32(value: int) -> int:
    """The signed reading of a 32-bit constant."""
    return value - (1 << 32) if value >= 1 << 31 else value


_C1, _C2, _ADD = _int32(0xCC9E2D51), _int32(0x1B873593), _int32(0xE6546B64)
_F1, _F2 = _int32(0x85EBCA6B), _int32(0xC2B2AE35)


def _shift_right(value: Any, bits: int) -> Any:
    """Shift as if unsigned: the sign bit does not smear."""
    shifted = value >> bits
    shifted &= (1 << (32 - bits)) - 1
    return shifted


def _rotate_left(value: Any, bits: int) -> Any:
    rotated = value << bits
    rotated |= _shift_right(value, 32 - bits)
    return rotated


# What follows works in place on arrays of its own: over a whole vocabulary, memory is what it waits for.


def _mix(state: Any, word: Any) -> Any:
    word = _rotate_left(word * _C1, 15)
    word *= _C2
    mixed = _rotate_left(state ^ word, 13)
    mixed *= 5
    mixed += _ADD
    return mixed


def _finish(state: Any) -> Any:
    state = state ^ 16
    state ^= _shift_right(state, 16)
    state *= _F1
    state ^= _shift_right(state, 13)
    state *= _F2
    state ^= _shift_right(state, 16)
    return state


def _low_word(value: Any, xp: Any) -> Any:
    """Low 32 bits of int64 values, read as int32."""
    low = value & 0xFFFFFFFF
    low = xp.where(low >= 1 << 31, low - (1 << 32), low)
    return low.astype(xp.int32) if hasattr(low, "astype") else low.to(xp.int32)


def prefix(seed: Any, position: Any, xp: Any) -> Any:
    """The part of the hash that all tokens of a row share.

    Args:
        seed: int64 array, any shape; the request's seed.
        position: int64 array, same shape; index of the input token.
        xp: `numpy` or `torch`.

    Returns:
        int32 array of that shape, for `hash_tokens`.
    """
    state = _low_word(seed, xp)
    state = state ^ state
    state = _mix(state, _low_word(seed, xp))
    state = _mix(state, _low_word(seed >> 32, xp))
    return _mix(state, _low_word(position, xp))


def hash_tokens(row_prefix: Any, tokens: Any) -> Any:
    """Hash of each token in its row, int32 with the bits of the unsigned value; shapes broadcast."""
    return _finish(_mix(row_prefix, tokens))


def uniform(hashed: Any, xp: Any) -> Any:
    """Float32 in (0, 1) from 32 random bits, all of them used."""
    high, low = _shift_right(hashed, 16), hashed & 0xFFFF
    if hasattr(high, "astype"):
        high, low = high.astype(xp.float32), low.astype(xp.float32)
    else:
        high, low = high.to(xp.float32), low.to(xp.float32)
    return high * 2.0**-16 + (low + 0.5) * 2.0**-32


def from_uniform(u: Any, xp: Any) -> Any:
    """Standard Gumbel noise from u in (0, 1), float32."""
    series = u * _SERIES[0]
    for coefficient in _SERIES[1:-1]:
        series = (series + coefficient) * u
    series = -(series + _SERIES[-1]) * u
    remainder = 1.0 - u
    remainder = xp.where(remainder < _SMALLEST_REMAINDER, remainder * 0 + _SMALLEST_REMAINDER, remainder)
    log_remainder = xp.where(u < 0.25, series, xp.log(remainder))
    return -xp.log(-log_remainder)


def noise(seed: Any, position: Any, tokens: Any, xp: Any) -> Any:
    """G(seed, position, token), float32.

    Args:
        seed: int64 array; its shape, `position`'s and `tokens`' must broadcast.
        position: int64 array, index of the input token (sampled position - 1).
        tokens: int32 array of token ids.
        xp: `numpy` or `torch`, whose arrays the others are.
    """
    return from_uniform(uniform(hash_tokens(prefix(seed, position, xp), tokens), xp), xp)
