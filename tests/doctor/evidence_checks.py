"""Records compared with the schema of evidence: their kinds, numbers of fields, and each field's type."""

from __future__ import annotations

import typing
from typing import Any

import msgspec

from headrace.doctor.session import evidence_schema
from headrace.doctor.session.evidence_schema import RECORDS, EvidenceRecord, fields_of

BY_KIND: dict[str, type[EvidenceRecord]] = {record.kind: record for record in RECORDS}
_HINTS = {kind: typing.get_type_hints(record, vars(evidence_schema)) for kind, record in BY_KIND.items()}


def check_record(line: list[Any]) -> None:
    """Fail where a line is not what the schema says of its kind."""
    kind, *values = line
    assert kind in BY_KIND, f"no such kind of record: {line}"
    names = fields_of(BY_KIND[kind])
    needed = [name for name in names if not hasattr(BY_KIND[kind], name)]
    assert len(needed) <= len(values) <= len(names), f"expected {names}, got {line}"
    for name, value in zip(names, values, strict=False):
        try:
            msgspec.convert(value, _HINTS[kind][name])
        except msgspec.ValidationError as error:
            raise AssertionError(f"{name} of {line}: {error}") from error
