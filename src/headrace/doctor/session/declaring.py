"""How records and the session declare their fields: one class describes a line of evidence, its rows, and the docs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field, dataclass, field, fields
from functools import cache
from types import NoneType, UnionType
from typing import Annotated, Any, TypeVar, Union, get_args, get_origin, get_type_hints

import msgspec

_TIME, _NAME, _TENTHS = "time", "name", "tenths"
Time = Annotated[int, _TIME]
"""Microseconds on the session's clock."""
Duration = int
"""Microseconds."""
Bytes = int
Name = Annotated[str, _NAME]
"""Text. A record holds its number, which a `name` record of the same file explains."""
Tenths = Annotated[float, _TENTHS]
"""Microseconds. A record holds tenths of them."""
NameNumber = int
Flag = int
"""0 or 1."""
Facts = dict[str, Any]
_WRITTEN = {_NAME: int, _TENTHS: Union[int, float]}  # noqa: UP007  (a value, not an annotation)
"""Types of what stands in a record, by the mark of the field's type."""
_Class = TypeVar("_Class", bound=type)


class Table:
    """Rows of one kind, as one list a column."""


def told(
    meaning: str,
    *,
    default: Any = MISSING,
    default_factory: Any = MISSING,
    written: Any = None,
    rows_of: str | None = None,
    is_derived: bool = False,
    may_be_empty: bool = False,
) -> Any:
    """Return a field of a dataclass, with its meaning for the docs.

    `written` is its type in a record if that differs, and `rows_of` the kind of record whose rows it holds. A derived
    field is in no record. A column that may be empty is so if no row has a value, or in sessions of an earlier doctor.
    """
    metadata = {
        "meaning": meaning,
        "written": written,
        "rows_of": rows_of,
        "is_derived": is_derived,
        "may_be_empty": may_be_empty,
    }
    return field(default=default, default_factory=default_factory, metadata=metadata)


def listed(meaning: str, **more: Any) -> Any:
    """Return a field that is a list and begins empty: a column, or rows."""
    return told(meaning, default_factory=list, **more)


def columns_of(table: object) -> list[str]:
    """Return the names of a table's columns that must be of equal length."""
    declared = fields(table)  # type: ignore[arg-type]  # every table is a dataclass
    return [one.name for one in declared if getattr(table, one.name) or not one.metadata.get("may_be_empty")]


def moments_of(kind: type) -> list[str]:
    """Return the fields of a dataclass that hold moments on the session's clock."""
    return [name for name, annotation in _hints(kind).items() if _mark(annotation) == _TIME]


@dataclass(frozen=True)
class RecordField:
    """Field of a kind of record."""

    name: str
    meaning: str
    mark: str | None
    """Mark of its type: `time`, `name` or `tenths`."""

    @property
    def is_written_otherwise(self) -> bool:
        """True if a record holds another value than the session."""
        return self.mark in _WRITTEN

    def value(self, written: Any, names: dict[int, str]) -> Any:
        """Return the session's value of what stands in a record."""
        if written is None:
            return None
        if self.mark == _NAME:
            return names.get(written, "?")
        return written / 10 if self.mark == _TENTHS else written


@dataclass(frozen=True)
class RecordKind:
    """Kind of record: the first text of its lines, and what follows it."""

    name: str
    meaning: str
    process: str
    """Processes that write it: `every`, `trainer` or `maker`."""
    made: type
    """Class that declares its fields."""
    fields: tuple[RecordField, ...]
    line: type[msgspec.Struct]
    """Its decoded line."""


KINDS: dict[str, RecordKind] = {}
"""All kinds of record, by name, in the order in which they are declared."""


class EvidenceLine(msgspec.Struct, array_like=True, tag_field="kind"):
    """One decoded line of an evidence file."""


def kind_of(line: EvidenceLine) -> str:
    """Return the name of a line's kind."""
    return str(line.__struct_config__.tag)


def recorded(process: str, kinds: Mapping[str, str], *, order: tuple[str, ...] = ()) -> Callable[[_Class], _Class]:
    """Declare that a dataclass's fields are those of kinds of record, each with its meaning.

    `order` is that of the fields in a line where it differs from the class's. What may be None, or empty, may be left
    out at a line's end.
    """

    def declare(made: _Class) -> _Class:
        hints = _hints(made)
        declared = {one.name: one for one in fields(made) if not one.metadata["is_derived"]}
        names = order or tuple(declared)
        told_of = tuple(RecordField(name, declared[name].metadata["meaning"], _mark(hints[name])) for name in names)
        line_fields = [_line_field(hints[name], declared[name]) for name in names]
        for kind, meaning in kinds.items():
            line = msgspec.defstruct(f"{kind.capitalize()}Line", line_fields, bases=(EvidenceLine,), tag=kind)
            KINDS[kind] = RecordKind(kind, meaning, process, made, told_of, line)
        return made

    return declare


def _line_field(annotation: Any, declared: Field[Any]) -> Any:
    written = declared.metadata["written"] or _written(annotation)
    if NoneType in get_args(written):
        return declared.name, written, None
    if declared.default is not MISSING and declared.default is not None:
        return declared.name, written, declared.default
    return (declared.name, written, []) if declared.metadata["may_be_empty"] else (declared.name, written)


@cache
def _hints(made: type) -> dict[str, Any]:
    """Return the types of a dataclass's fields; of a table, those of a value."""
    hints = get_type_hints(made, include_extras=True)
    return {name: get_args(one)[0] for name, one in hints.items()} if issubclass(made, Table) else hints


def _mark(annotation: Any) -> str | None:
    if get_origin(annotation) is Annotated:
        return str(get_args(annotation)[1])
    if get_origin(annotation) in (Union, UnionType, list):
        return next((mark for one in get_args(annotation) if (mark := _mark(one))), None)
    return None


def _written(annotation: Any) -> Any:
    if get_origin(annotation) is Annotated:
        return _WRITTEN.get(get_args(annotation)[1], get_args(annotation)[0])
    if get_origin(annotation) in (Union, UnionType):
        return Union[tuple(map(_written, get_args(annotation)))]  # noqa: UP007
    return annotation
