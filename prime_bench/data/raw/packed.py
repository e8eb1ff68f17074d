"""Texts of up to 8 bytes as numbers: their bytes, first one lowest, filled up with zeros.

No text here has a NUL byte, so text and number determine each other, and the empty text is 0. A
hash table of numbers is several times as fast as one of texts, and reading them needs no parser.
"""

import numpy as np

MOST_BYTES = 8
_MASKS = np.array([(1 << 8 * length) - 1 for length in range(MOST_BYTES + 1)], dtype=np.uint64)
# What moves a text of each length to the upper end, and the digit zero in each of its bytes.
_SHIFTS = np.arange(8 * MOST_BYTES, -1, -8, dtype=np.uint64)
_ZEROS = np.uint64(0x3030303030303030) << _SHIFTS
_MINUS = np.uint64(ord("-"))
_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)  # 2^64 over the golden ratio: neighbours fall apart


def pack(content: bytes, starts: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """(n,) uint64 of the texts at `starts` (n,) of `lengths` (n,); of longer ones the first 8."""
    words = np.ndarray((len(content) + 1,), dtype="<u8", buffer=content + bytes(8), strides=(1,))
    packed: np.ndarray = words[starts]
    packed &= _MASKS.take(lengths, mode="clip")
    return packed


def pack_text(text: str) -> np.uint64:
    """One text."""
    return np.uint64(int.from_bytes(text.encode(), "little"))


def unpack(packed: np.ndarray) -> bytes:
    """(n,) texts, none of them empty, as lines."""
    lines = np.full((len(packed), MOST_BYTES + 1), ord("\n"), dtype=np.uint8)
    lines[:, :MOST_BYTES] = packed.astype("<u8")[:, None].view(np.uint8)
    content: bytes = lines[lines != 0].tobytes()
    return content


def in_text_order(packed: np.ndarray) -> np.ndarray:
    """(n,) uint64 that compare as the UTF-8 bytes of the texts do."""
    swapped: np.ndarray = packed.byteswap()
    return swapped


def integers(packed: np.ndarray, lengths: np.ndarray) -> np.ndarray | None:
    """(n,) float64 of texts that are whole numbers, NaN where empty; None if any is none of both.

    A whole number is digits, a minus sign before them or not, of 8 bytes or less together.
    """
    if lengths.max(initial=0) > MOST_BYTES:
        return None
    negative = (packed & np.uint64(0xFF)) == _MINUS
    n_digits = lengths - negative
    digits = np.where(negative, packed >> np.uint64(8), packed) if negative.any() else packed
    places = (digits << _SHIFTS.take(n_digits)) ^ _ZEROS.take(n_digits)
    # A byte above 9 gets its highest bit; what it carries into the next byte finds no fewer.
    bad = (places + np.uint64(0x7676767676767676)) | places
    if (bad & np.uint64(0x8080808080808080)).any() or (negative & (n_digits == 0)).any():
        return None
    # Neighbouring digits, pairs and fours are joined in all places at once.
    places = (places * np.uint64(1 + (10 << 8))) >> np.uint64(8) & np.uint64(0x00FF00FF00FF00FF)
    places = (places * np.uint64(1 + (100 << 16))) >> np.uint64(16) & np.uint64(0x0000FFFF0000FFFF)
    places = (places * np.uint64(1 + (10_000 << 32))) >> np.uint64(32)
    values: np.ndarray = places.astype(np.float64)
    np.negative(values, out=values, where=negative)
    values[lengths == 0] = np.nan
    return values


class KeyCodes:
    """Codes 0, 1, ... of uint64 keys, in no order; key 0 has code 0.

    An open hash table of 2^b slots; an empty one holds code 0. A search goes on by 1, 2, 3, ...
    slots, which visits all of them and, unlike single steps, builds no long runs.
    """

    def __init__(self) -> None:
        self.n_codes = 1
        self._keys = np.zeros(1 << 8, dtype=np.uint64)
        self._slots = np.zeros(1 << 10, dtype=np.int32)

    @property
    def keys(self) -> np.ndarray:
        """(n_codes,) uint64: the key of each code."""
        return self._keys[: self.n_codes]

    def codes(self, keys: np.ndarray) -> np.ndarray:
        """(n,) int32 codes of `keys` (n,), new ones where they are new."""
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
        """No more keys will come; the table goes, and the keys stay."""
        self._slots = np.zeros(0, dtype=np.int32)

    def _home(self, keys: np.ndarray) -> np.ndarray:
        """(n,) int64: the slot where the search for a key begins."""
        bits = len(self._slots).bit_length() - 1
        home: np.ndarray = np.multiply(keys, _MULTIPLIER)
        home >>= np.uint64(64 - bits)
        return home.view(np.int64)

    def _enter(self, keys: np.ndarray) -> np.ndarray:
        """(n,) int32 new codes of unknown keys (n,), which may be there several times."""
        self._make_room(len(keys))
        slots = self._home(keys)
        codes = np.zeros(len(keys), dtype=np.int32)
        todo, step = np.arange(len(keys), dtype=np.int32), 0
        while len(todo):
            step += 1
            # Each key claims its slot if that is empty; of several claims the last one stands.
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
        """For so many codes, with at least half of the slots empty."""
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
        # Of several claims the last one stands: that of the key seen first, often a frequent one.
        codes = np.arange(self.n_codes - 1, 0, -1, dtype=np.int32)
        slots, step = self._home(self._keys[codes]), 0
        while len(codes):
            step += 1
            empty = self._slots[slots] == 0
            self._slots[slots[empty]] = codes[empty]
            homeless = self._slots[slots] != codes
            codes, slots = codes[homeless], (slots[homeless] + step) & (size - 1)
