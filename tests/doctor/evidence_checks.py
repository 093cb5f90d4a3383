"""Records compared with the schema of evidence: their kinds, numbers of fields, and each field's type."""

from __future__ import annotations

from typing import Any

import msgspec

from headrace.doctor.session.evidence import KINDS
from headrace.doctor.session.evidence import decode_record as decode_record


def check_record(line: list[Any]) -> None:
    """Fail where a line is not what the schema says of its kind."""
    assert line[0] in KINDS, f"no such kind of record: {line}"
    record = KINDS[line[0]]
    assert len(line) - 1 <= len(record.__struct_fields__), f"expected {record.__struct_fields__}, got {line}"
    try:
        msgspec.convert(line, record)
    except msgspec.ValidationError as error:
        raise AssertionError(f"{error} of {line}") from error
