"""Declarations of record and session fields: one class describes a line of evidence, its rows and the docs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field, dataclass, field, fields
from functools import cache
from types import NoneType, UnionType
from typing import Annotated, Any, TypeVar, Union, get_args, get_origin, get_type_hints

import msgspec

TIME, PID, _NAME, _TENTHS = "time", "pid", "name", "tenths"
Time = Annotated[int, TIME]
"""Microseconds on the session's clock."""
Pid = Annotated[int, PID]
"""Process id, unique in a session."""
Duration = int
"""Microseconds."""
Bytes = int
Name = Annotated[str, _NAME]
"""Text. A record holds a number for the text, which a `name` record of the same file defines."""
Tenths = Annotated[float, _TENTHS]
"""Microseconds, stored in a record as tenths of a microsecond."""
NameNumber = int
Flag = int
"""0 or 1."""
Facts = dict[str, Any]
_WRITTEN = {_NAME: int, _TENTHS: Union[int, float]}  # noqa: UP007  (a value, not an annotation)
"""Types of values in a record, by the mark of the field's type."""
_Class = TypeVar("_Class", bound=type)


class Table:
    """Rows of one kind, stored as one list per column."""


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
    """Return a dataclass field with its meaning for the docs.

    `written` is the field's type in a record if different from its own. `rows_of` is the kind of record that provides
    the field's rows. A derived field is in no record. A column with `may_be_empty` is empty if no row has a value.
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
    """Return a field for a column or rows: a list that starts empty."""
    return told(meaning, default_factory=list, **more)


def marks_of(kind: type) -> dict[str, str | None]:
    """Return the mark of each field's type, such as `time`."""
    return {name: _mark(annotation) for name, annotation in _hints(kind).items()}


@dataclass(frozen=True)
class RecordField:
    """Field of a kind of record."""

    name: str
    meaning: str
    mark: str | None
    """Mark of the field's type: `time`, `name` or `tenths`."""

    @property
    def is_written_otherwise(self) -> bool:
        """True if a record stores the value in another form than the session."""
        return self.mark in _WRITTEN

    def value(self, written: Any, names: dict[int, str]) -> Any:
        """Return the session's value for a value in a record."""
        if written is None:
            return None
        if self.mark == _NAME:
            return names.get(written, "?")
        return written / 10 if self.mark == _TENTHS else written


@dataclass(frozen=True)
class RecordKind:
    """Kind of record: the tag at the start of its lines, and its fields."""

    name: str
    meaning: str
    process: str
    """Processes that write the record: `every`, `trainer` or `maker`."""
    made: type
    """Class that declares the fields."""
    fields: tuple[RecordField, ...]
    line: type[msgspec.Struct]
    """Type of a decoded line."""


KINDS: dict[str, RecordKind] = {}
"""All kinds of record by name, in order of declaration."""


class EvidenceLine(msgspec.Struct, array_like=True, tag_field="kind"):
    """Decoded line of an evidence file."""


def kind_of(line: EvidenceLine) -> str:
    """Return the name of a line's kind."""
    return str(line.__struct_config__.tag)


def recorded(process: str, kinds: Mapping[str, str], *, order: tuple[str, ...] = ()) -> Callable[[_Class], _Class]:
    """Declare that a dataclass has the fields of these kinds of record, each with its meaning.

    `order` is the order of fields in a line if different from the class. Values that may be None or empty can be
    omitted at the end of a line.
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
    """Return the types of a dataclass's fields; for a table, the types of single values."""
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
