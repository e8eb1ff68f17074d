"""The keys of a frozen model as a reader sees them: name, type in words, default and meaning."""

import types
import typing
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import annotated_types
import pydantic

_TYPES = {
    str: "text",
    int: "integer",
    float: "number",
    bool: "true or false",
    Any: "any value",
    pydantic.JsonValue: "any value",
    type(None): "none",
}
_SIGNS = {
    annotated_types.Ge: "≥",
    annotated_types.Gt: ">",
    annotated_types.Le: "≤",
    annotated_types.Lt: "<",
}


@dataclass(frozen=True, kw_only=True)
class SettingKey:
    """A key of a model."""

    name: str
    """Name in the file."""
    type: str
    """Type in words with its limits: `list of integer`, `"all" or "train"`, `number, ≥ 0`."""
    required: bool
    default: object
    """Default; None if the key is required."""
    choices: tuple[object, ...] | None
    """Values that the key may have; None if they are not a fixed list."""
    doc: str
    """Docstring, on one line; empty if there is none."""


def keys_of(model: type[pydantic.BaseModel]) -> list[SettingKey]:
    """The keys of a model, in the order in which the class defines them."""
    return [
        SettingKey(
            name=field.alias or name,
            type=_type_text(field.annotation, field.metadata),
            required=field.is_required(),
            default=None if field.is_required() else field.get_default(call_default_factory=True),
            choices=typing.get_args(field.annotation)
            if typing.get_origin(field.annotation) is typing.Literal
            else None,
            doc=_doc(model, name),
        )
        for name, field in model.model_fields.items()
    ]


def _doc(model: type[pydantic.BaseModel], name: str) -> str:
    """The docstring of a key; where a class only changes a default, that of its base class."""
    for base in model.__mro__:
        field = getattr(base, "model_fields", {}).get(name)
        if field is not None and field.description:
            return " ".join(field.description.split())
    return ""


def _type_text(annotation: Any, metadata: Sequence[Any] = ()) -> str:
    limits = _limits(metadata)
    text = _bare_type(annotation)
    return f"{text}, {limits}" if limits else text


def _bare_type(annotation: Any) -> str:
    if annotation in _TYPES:
        return _TYPES[annotation]
    origin, inner = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is typing.Literal:
        return " or ".join(
            f'`"{value}"`' if isinstance(value, str) else str(value) for value in inner
        )
    if origin is typing.Annotated:
        return _type_text(inner[0], inner[1:])
    if origin in (typing.Union, types.UnionType):
        return " or ".join(dict.fromkeys(_bare_type(item) for item in inner))
    if origin is tuple and inner[-1:] != (...,):
        return f"list of {len(inner)}: {_bare_type(inner[0])}"
    if origin in (list, tuple):
        return f"list of {_bare_type(inner[0])}"
    if origin is dict:
        of = _bare_type(inner[1])
        return "table" if of == "any value" else f"table of {'tables' if of == 'table' else of}"
    if isinstance(annotation, type) and issubclass(annotation, pydantic.BaseModel):
        return f"table ({annotation.__name__})"
    return str(getattr(annotation, "__name__", annotation))


def _limits(metadata: Sequence[Any]) -> str:
    parts = []
    for item in metadata:
        for kind, sign in _SIGNS.items():
            if isinstance(item, kind):
                parts.append(f"{sign} {getattr(item, kind.__name__.lower())}")
        if isinstance(item, annotated_types.MinLen) and item.min_length:
            parts.append(f"at least {item.min_length}")
    return ", ".join(parts)
