"""What is copied and what is removed, from what is wanted, known and there. Pure: nothing here looks at a disk."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from headrace.data.staging.source_files import Wanted
from headrace.data.storage.sidecar import INDEX_SUFFIXES
from headrace.stage.records import Record

PART_BYTES = 64 << 20
"""Large files are copied in parts, by several threads, and after a kill part by part. A file that a journal of other
parts knows is copied anew."""
UNIT_BYTES, UNIT_FILES = 16 << 20, 64
"""Small files share a unit of work, so that they share what makes them durable."""

There = Mapping[bytes, tuple[int, int]]
"""Size and time (ns) of each regular file in the folder of copies, by path."""


@dataclass(frozen=True)
class Part:
    wanted: Wanted
    number: int
    at: int
    length: int


@dataclass
class Plan:
    copy: list[Wanted] = field(default_factory=list)
    kept: list[Wanted] = field(default_factory=list)
    """Complete already, as far as size and time tell."""
    changed: list[bytes] = field(default_factory=list)
    """Of those to copy: copies that are not as they were left."""
    gone: list[bytes] = field(default_factory=list)
    """Copies whose sources are gone."""


def make_plan(wanted: Sequence[Wanted], known: Mapping[bytes, Record], there: There) -> Plan:
    plan = Plan()
    for one in wanted:
        record, found = known.get(one.path), there.get(one.path)
        left = None if record is None else (record.size, record.mtime_ns)
        if found is not None and found == left == (one.size, one.mtime_ns):
            plan.kept.append(one)
            continue
        plan.copy.append(one)
        if record is not None and found is not None and found != left:
            plan.changed.append(one.path)
    names = {one.path for one in wanted}
    plan.gone = [path for path in known if path not in names]
    return plan


def strangers(there: Iterable[bytes], known: Mapping[bytes, Record]) -> list[bytes]:
    """What lies in the folder of copies and is neither a copy nor an index that was built beside one."""
    return [path for path in there if path not in known and not is_index_of(path, known)]


def is_index_of(path: bytes, known: Container[bytes]) -> bool:
    """Whether `path` is called as the index of one of those files is, `NAME.headrace` or `NAME.VARIANT.headrace`."""
    for suffix in map(str.encode, INDEX_SUFFIXES):
        if path.endswith(suffix):
            stem = path[: -len(suffix)]
            return stem in known or stem.rpartition(b".")[0] in known
    return False


def parts_of(wanted: Wanted, part_bytes: int) -> Iterator[Part]:
    """An empty file has one, too."""
    for number, at in enumerate(range(0, max(1, wanted.size), part_bytes)):
        yield Part(wanted, number, at, min(part_bytes, wanted.size - at))


def units(parts: Iterable[Part]) -> Iterator[list[Part]]:
    """What a thread takes at a time: a part of a large file, or some small files."""
    unit: list[Part] = []
    size = 0
    for part in parts:
        if unit and (size + part.length > UNIT_BYTES or len(unit) == UNIT_FILES):
            yield unit
            unit, size = [], 0
        unit.append(part)
        size += part.length
    if unit:
        yield unit
