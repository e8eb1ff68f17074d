"""Texts of at most 8 bytes packed into 64-bit integers, and a hash table of such integers.

The first byte of a text is the lowest byte of the integer, and unused bytes are 0. No text has a
NUL byte, so text and integer determine each other; the empty text is 0. A hash table of integers is
several times as fast as one of texts, and packing needs no parser.
"""

import numpy as np

MOST_BYTES = 8
_MASKS = np.array([(1 << 8 * length) - 1 for length in range(MOST_BYTES + 1)], dtype=np.uint64)
# For each length: the shift that moves a text to the upper end, and the digit 0 in its bytes.
_SHIFTS = np.arange(8 * MOST_BYTES, -1, -8, dtype=np.uint64)
_ZEROS = np.uint64(0x3030303030303030) << _SHIFTS
_MINUS = np.uint64(ord("-"))
_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)  # 2^64 / golden ratio (Fibonacci hashing)


def pack(content: bytes, starts: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """Pack the texts at byte positions `starts` (n,) with `lengths` (n,); returns (n,) uint64.

    Of texts over 8 bytes, the first 8 are packed.
    """
    words = np.ndarray((len(content) + 1,), dtype="<u8", buffer=content + bytes(8), strides=(1,))
    packed: np.ndarray = words[starts]
    packed &= _MASKS.take(lengths, mode="clip")
    return packed


def pack_text(text: str) -> np.uint64:
    """Pack one text of at most 8 bytes into a number, the first byte lowest."""
    return np.uint64(int.from_bytes(text.encode(), "little"))


def unpack(packed: np.ndarray) -> bytes:
    """The (n,) texts, none of them empty, as UTF-8 lines."""
    lines = np.full((len(packed), MOST_BYTES + 1), ord("\n"), dtype=np.uint8)
    lines[:, :MOST_BYTES] = packed.astype("<u8")[:, None].view(np.uint8)
    content: bytes = lines[lines != 0].tobytes()
    return content


def in_text_order(packed: np.ndarray) -> np.ndarray:
    """(n,) uint64 whose order is that of the UTF-8 bytes of the texts."""
    swapped: np.ndarray = packed.byteswap()
    return swapped


def integers(packed: np.ndarray, lengths: np.ndarray) -> np.ndarray | None:
    """Parse packed texts (n,) as integers; returns (n,) float64, NaN for empty texts.

    Returns None if any text is neither empty nor digits after an optional minus sign, or has more
    than 8 bytes.
    """
    if lengths.max(initial=0) > MOST_BYTES:
        return None
    negative = (packed & np.uint64(0xFF)) == _MINUS
    n_digits = lengths - negative
    digits = np.where(negative, packed >> np.uint64(8), packed) if negative.any() else packed
    places = (digits << _SHIFTS.take(n_digits)) ^ _ZEROS.take(n_digits)
    # A byte above 9 gets its highest bit set. Carries into the next byte can only add findings.
    bad = (places + np.uint64(0x7676767676767676)) | places
    if (bad & np.uint64(0x8080808080808080)).any() or (negative & (n_digits == 0)).any():
        return None
    # Join digits to pairs, pairs to fours, and fours to eights, all in parallel within a word.
    places = (places * np.uint64(1 + (10 << 8))) >> np.uint64(8) & np.uint64(0x00FF00FF00FF00FF)
    places = (places * np.uint64(1 + (100 << 16))) >> np.uint64(16) & np.uint64(0x0000FFFF0000FFFF)
    places = (places * np.uint64(1 + (10_000 << 32))) >> np.uint64(32)
    values: np.ndarray = places.astype(np.float64)
    np.negative(values, out=values, where=negative)
    values[lengths == 0] = np.nan
    return values


class KeyCodes:
    """Codes 0, 1, ... of uint64 keys, in arbitrary order; key 0 has code 0.

    A hash table with open addressing and 2^b slots, in which code 0 marks an empty slot. Probing is
    triangular (steps of 1, 2, 3, ... slots), which visits all slots and, unlike linear probing,
    does not build long runs.
    """

    def __init__(self) -> None:
        self.n_codes = 1
        self._keys = np.zeros(1 << 8, dtype=np.uint64)
        self._slots = np.zeros(1 << 10, dtype=np.int32)

    @property
    def keys(self) -> np.ndarray:
        """The key of each code, (n_codes,) uint64."""
        return self._keys[: self.n_codes]

    def codes(self, keys: np.ndarray) -> np.ndarray:
        """The codes (n,) int32 of `keys` (n,); unknown keys get new codes."""
        slots = self._home(keys)
        codes: np.ndarray = self._slots.take(slots)
        others = np.flatnonzero(self._keys.take(codes) != keys)
        unknown, step = [], 0
        while len(others):
            step += 1
            at_end = codes[others] == 0
            unknown.append(others[at_end])
            others = others[~at_end]
            slots[others] = (slots[others] + step) & (len(self._slots) - 1)
            codes[others] = self._slots.take(slots[others])
            others = others[self._keys.take(codes[others]) != keys[others]]
        if unknown:
            new = np.concatenate(unknown)
            codes[new] = self._enter(keys[new])
        return codes

    def finish(self) -> None:
        """Free the hash table and keep the keys. To be called after the last `codes`."""
        self._slots = np.zeros(0, dtype=np.int32)

    def _home(self, keys: np.ndarray) -> np.ndarray:
        """The slot (n,) int64 where the search for each key begins."""
        bits = len(self._slots).bit_length() - 1
        home: np.ndarray = np.multiply(keys, _MULTIPLIER)
        home >>= np.uint64(64 - bits)
        return home.view(np.int64)

    def _enter(self, keys: np.ndarray) -> np.ndarray:
        """Give new codes (n,) int32 to unknown keys (n,), among which there may be equal ones."""
        self._make_room(len(keys))
        slots = self._home(keys)
        codes = np.zeros(len(keys), dtype=np.int32)
        todo, step = np.arange(len(keys), dtype=np.int32), 0
        while len(todo):
            step += 1
            # Each key claims its slot if it is empty; of several claims, the last one wins.
            claims = todo[self._slots[slots[todo]] == 0]
            self._slots[slots[claims]] = -claims - 1
            new = claims[self._slots[slots[claims]] == -claims - 1]
            first, self.n_codes = self.n_codes, self.n_codes + len(new)
            self._keys[first : self.n_codes] = keys[new]
            self._slots[slots[new]] = np.arange(first, self.n_codes, dtype=np.int32)
            codes[todo] = self._slots.take(slots[todo])
            todo = todo[self._keys.take(codes[todo]) != keys[todo]]
            slots[todo] = (slots[todo] + step) & (len(self._slots) - 1)
        return codes

    def _make_room(self, n_more: int) -> None:
        """Grow for `n_more` codes so that at least half of the slots stay empty."""
        most = self.n_codes + n_more
        if most > len(self._keys):
            grown = np.zeros(most + most // 4, dtype=np.uint64)
            grown[: self.n_codes] = self.keys
            self._keys = grown
        size = len(self._slots)
        while 2 * most > size:
            size *= 4
        if size == len(self._slots):
            return
        self._slots = np.zeros(size, dtype=np.int32)
        # Of several claims the last one wins: that of the key seen first, often a frequent one.
        codes = np.arange(self.n_codes - 1, 0, -1, dtype=np.int32)
        slots, step = self._home(self._keys[codes]), 0
        while len(codes):
            step += 1
            empty = self._slots[slots] == 0
            self._slots[slots[empty]] = codes[empty]
            homeless = self._slots[slots] != codes
            codes, slots = codes[homeless], (slots[homeless] + step) & (size - 1)
