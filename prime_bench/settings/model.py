"""The base of all settings: frozen, no unknown keys, and every fault of a table in one message."""

import json
from collections.abc import Mapping
from typing import Any, Self

import pydantic

from prime_bench.base.errors import UsageError, did_you_mean


class Settings(pydantic.BaseModel):
    """A frozen table of settings; unknown keys are errors, numbers must be numbers."""

    model_config = pydantic.ConfigDict(
        frozen=True,
        extra="forbid",
        strict=True,
        use_attribute_docstrings=True,
        allow_inf_nan=False,
    )

    @classmethod
    def parse(cls, table: Mapping[str, Any], *, where: str) -> Self:
        """Read a TOML or JSON table. Raises UsageError that lists every fault with its path below `where`."""
        try:
            # Through JSON, where strict validation takes an array for a tuple but no text for a number.
            return cls.model_validate_json(json.dumps(dict(table), default=str))
        except pydantic.ValidationError as error:
            faults = [_fault(cls, item, where) for item in error.errors()]
        raise UsageError("\n".join(faults))

    def plain(self) -> dict[str, Any]:
        """The settings as JSON values, defaults written out."""
        return self.model_dump(mode="json")


def _fault(model: type[pydantic.BaseModel], item: Any, where: str) -> str:
    location = [str(part) for part in item["loc"]]
    path = ".".join([where, *location]) if where else ".".join(location)
    if item["type"] == "extra_forbidden":
        return f"{path}: unknown key{did_you_mean(location[-1], _keys_at(model, item['loc'][:-1]))}"
    if item["type"] == "missing":
        return f"{path}: missing"
    message = item["msg"].removeprefix("Value error, ")
    return f"{path}: {message[0].lower()}{message[1:]}, got {item['input']!r}"


def _keys_at(model: type[pydantic.BaseModel], location: tuple[int | str, ...]) -> list[str]:
    """The keys that the table at `location` may have; names in between (`dataset.avazu`) are looked through."""
    current: Any = model
    for part in location:
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
