"""The base class of settings, records and events: frozen, no unknown keys, all faults at once."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import pydantic

from prime_bench.base.errors import UsageError, did_you_mean

JsonTable = dict[str, pydantic.JsonValue]
"""A TOML or JSON table whose keys depend on the class that it configures: plain values, no class
is needed to read it."""

MOST_FAULTS = 100
"""Number of faults of one table that are listed; each costs a search for a similar key."""
_QUOTED = 200
"""Number of characters of a wrong value that a message quotes."""


@dataclass(frozen=True)
class Fault:
    """What is wrong with one key of a table."""

    path: tuple[str, ...]
    """The keys from the root of the table."""
    message: str

    def below(self, *parents: str) -> "Fault":
        """Return the same fault with its path from an enclosing table."""
        return Fault((*parents, *self.path), self.message)

    def __str__(self) -> str:
        return f"{'.'.join(self.path)}: {self.message}" if self.path else self.message


class Frozen(pydantic.BaseModel):
    """Base class of frozen models. Unknown keys are errors, and types are not converted."""

    model_config = pydantic.ConfigDict(
        frozen=True,
        extra="forbid",
        strict=True,
        use_attribute_docstrings=True,
        allow_inf_nan=False,
    )

    @classmethod
    def check(cls, table: Mapping[str, object]) -> tuple[Self | None, list[Fault]]:
        """Read a table from TOML or JSON; returns the model, or None and all faults."""
        try:
            # Strict validation of JSON accepts an array as a tuple, but no text as a number.
            return cls.model_validate_json(json.dumps(dict(table), default=str)), []
        except pydantic.ValidationError as error:
            found = error.errors(include_url=False)
            faults = [_fault(cls, item) for item in found[:MOST_FAULTS]]
        # A list that is too short only because of a faulty element is not a fault of its own.
        inside = {fault.path[:length] for fault in faults for length in range(len(fault.path))}
        listed = [fault for fault in faults if fault.path not in inside]
        if len(found) > MOST_FAULTS:
            listed.append(Fault((), f"and {len(found) - MOST_FAULTS:,} faults more"))
        return None, listed

    @classmethod
    def parse(cls, table: Mapping[str, object], *, where: str) -> Self:
        """Like `check`, but raises a UsageError with all faults and their paths below `where`."""
        settings, faults = cls.check(table)
        if settings is None:
            parents = [where] if where else []
            raise UsageError("\n".join(str(fault.below(*parents)) for fault in faults))
        return settings

    def plain(self) -> JsonTable:
        """Return the model as JSON values, including defaults."""
        return self.model_dump(mode="json", by_alias=True)


def _fault(model: type[pydantic.BaseModel], item: Any) -> Fault:
    path = tuple(str(part) for part in item["loc"])
    if item["type"] == "extra_forbidden":
        return Fault(path, f"unknown key{did_you_mean(path[-1], _keys_at(model, path[:-1]))}")
    if item["type"] == "missing":
        return Fault(path, "missing")
    message = item["msg"].removeprefix("Value error, ")
    return Fault(path, f"{message[0].lower()}{message[1:]}{_given(item)}")


def _given(item: Any) -> str:
    """`, got 3`; empty for a table, or for the text of a whole file."""
    if isinstance(item["input"], dict) or item["type"] == "json_invalid":
        return ""
    text = json.dumps(item["input"])
    return f", got {text if len(text) <= _QUOTED else f'{text[:_QUOTED]}...'}"


def _keys_at(model: type[pydantic.BaseModel], path: Sequence[str]) -> list[str]:
    """The keys that the table at `path` may have. Free names (`dataset.avazu`) are skipped."""
    current: Any = model
    for part in path:
        field = getattr(current, "model_fields", {}).get(part)
        if field is not None:
            current = _table_of(field.annotation)
    return [field.alias or name for name, field in getattr(current, "model_fields", {}).items()]


def _table_of(annotation: Any) -> Any:
    """The model inside `X | None`, `dict[str, X]` or `list[X]`; None if there is none."""
    if isinstance(annotation, type) and issubclass(annotation, pydantic.BaseModel):
        return annotation
    for inner in getattr(annotation, "__args__", ()):
        found = _table_of(inner)
        if found is not None:
            return found
    return None
