"""The base of all settings: frozen, no unknown keys, and every fault of a table in one message."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import pydantic

from prime_bench.base.errors import UsageError, did_you_mean

JsonTable = dict[str, pydantic.JsonValue]
"""A TOML or JSON table whose keys depend on the class that it configures: plain values, no class
is needed to read it."""

_QUOTED = 200
"""Characters of a wrong value that a message repeats."""


@dataclass(frozen=True)
class Fault:
    """What is wrong with one key of a table."""

    path: tuple[str, ...]
    """Keys from the table's root."""
    message: str

    def below(self, *parents: str) -> "Fault":
        """The same fault, seen from a table further out."""
        return Fault((*parents, *self.path), self.message)

    def __str__(self) -> str:
        return f"{'.'.join(self.path)}: {self.message}" if self.path else self.message


class Frozen(pydantic.BaseModel):
    """A frozen table of settings; unknown keys are errors, numbers must be numbers."""

    model_config = pydantic.ConfigDict(
        frozen=True,
        extra="forbid",
        strict=True,
        use_attribute_docstrings=True,
        allow_inf_nan=False,
    )

    @classmethod
    def check(cls, table: Mapping[str, object]) -> tuple[Self | None, list[Fault]]:
        """Read a TOML or JSON table: the settings, or None and every fault."""
        try:
            # Strict validation of JSON takes an array for a tuple, but no text for a number.
            return cls.model_validate_json(json.dumps(dict(table), default=str)), []
        except pydantic.ValidationError as error:
            faults = [_fault(cls, item) for item in error.errors()]
        # A list that is too short because of a faulty element is no fault of its own.
        inside = {fault.path[:length] for fault in faults for length in range(len(fault.path))}
        return None, [fault for fault in faults if fault.path not in inside]

    @classmethod
    def parse(cls, table: Mapping[str, object], *, where: str) -> Self:
        """As `check`, but raises a UsageError with every fault and its path below `where`."""
        settings, faults = cls.check(table)
        if settings is None:
            parents = [where] if where else []
            raise UsageError("\n".join(str(fault.below(*parents)) for fault in faults))
        return settings

    def plain(self) -> JsonTable:
        """The settings as JSON values, defaults written out."""
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
    """`, got 3`; nothing where it is a table, or the text of the whole file."""
    if isinstance(item["input"], dict) or item["type"] == "json_invalid":
        return ""
    text = json.dumps(item["input"])
    return f", got {text if len(text) <= _QUOTED else f'{text[:_QUOTED]}...'}"


def _keys_at(model: type[pydantic.BaseModel], path: Sequence[str]) -> list[str]:
    """The keys that the table at `path` may have; free names (`dataset.avazu`) are passed over."""
    current: Any = model
    for part in path:
        field = getattr(current, "model_fields", {}).get(part)
        if field is not None:
            current = _table_of(field.annotation)
    return [field.alias or name for name, field in getattr(current, "model_fields", {}).items()]


def _table_of(annotation: Any) -> Any:
    """The settings class inside `X | None`, `dict[str, X]` or `list[X]`."""
    if isinstance(annotation, type) and issubclass(annotation, pydantic.BaseModel):
        return annotation
    for inner in getattr(annotation, "__args__", ()):
        found = _table_of(inner)
        if found is not None:
            return found
    return None
