"""Changes that remedies want in the user's code, made together: one diff a file, or one for all."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from headrace.doctor.edits.loader_call import argument, loader_call
from headrace.doctor.edits.script_source import Replacement, Source
from headrace.doctor.remedies.edits.archives import with_indexed_tar
from headrace.doctor.remedies.edits.keywords import with_keywords
from headrace.doctor.remedies.edits.loops import with_prefetcher
from headrace.doctor.remedies.edits.options import default_to_change, is_literal, option_of
from headrace.doctor.remedies.edits.unified import unified
from headrace.doctor.remedies.edits.worker_threads import NAME, one_thread_each


@dataclass(frozen=True)
class Wanted:
    """What is to be changed. Values of `keywords` are Python expressions."""

    keywords: Mapping[str, str] = field(default_factory=dict)
    """Arguments of the loader's own call."""
    prefetcher: str | None = None
    """The device whose prefetcher goes around the training loop's loader."""
    indexed_tar: bool = False
    one_thread: bool = False
    """In each worker."""

    def with_(self, other: Wanted) -> Wanted:
        return Wanted(
            {**self.keywords, **other.keywords},
            self.prefetcher or other.prefetcher,
            self.indexed_tar or other.indexed_tar,
            self.one_thread or other.one_thread,
        )


@dataclass(frozen=True)
class Changed:
    """One file with its changes made."""

    path: str
    line: int
    """Of what is changed first, other than imports."""
    before: str
    after: str

    def diff(self, root: str) -> str:
        return unified(self.path, self.before, self.after, root=root)


def changed(
    wanted: Wanted, sources: Sequence[Source], facts: Mapping[str, Any], command: Sequence[str] = ()
) -> list[Changed] | None:
    """The files that change for a loader of these facts, in a script that `command` starts. None where one of the
    changes is not certain, or where nothing changes."""
    pieces: list[tuple[Source, int, list[Replacement]] | None] = []
    if wanted.keywords or wanted.one_thread:
        pieces += _of_loader(wanted, sources, facts, command)
    if wanted.prefetcher is not None:
        pieces.append(_of_loop(wanted.prefetcher, sources, facts))
    if wanted.indexed_tar:
        pieces.append(_of_archives(sources))
    made = [piece for piece in pieces if piece is not None]
    if len(made) < len(pieces):
        return None
    files = [_together(source, [one for one in made if one[0] is source]) for source in sources]
    whole = [one for one in files if one is not None]
    return whole if whole and all(_parses(one.after) for one in whole) else None


def _of_loader(
    wanted: Wanted, sources: Sequence[Source], facts: Mapping[str, Any], command: Sequence[str]
) -> Iterable[tuple[Source, int, list[Replacement]] | None]:
    """An argument that is no literal keeps what the script makes of it: its option's default changes, where that is
    what the loader has."""
    found = loader_call(sources, facts)
    if found is None:
        yield None
        return
    keywords = dict(wanted.keywords)
    if wanted.one_thread:
        function = one_thread_each(found)
        yield None if function is None else (found.source, found.line, function)
        keywords["worker_init_fn"] = NAME
    for name in [one for one in keywords if _is_computed(argument(found.call, one))]:
        value = argument(found.call, name)
        option = None if value is None else option_of(sources, value)
        default = None if option is None else default_to_change(option, facts.get(name), command)
        if option is None or default is None:
            yield None
            return
        piece = Replacement(option.source.start(default), option.source.end(default), keywords.pop(name))
        yield (option.source, default.lineno, [piece])
    replaced = with_keywords(found.source, found.call, keywords)
    yield None if replaced is None else (found.source, found.line, replaced)


def _is_computed(value: ast.expr | None) -> bool:
    return value is not None and not is_literal(value)


def _of_loop(
    device: str, sources: Sequence[Source], facts: Mapping[str, Any]
) -> tuple[Source, int, list[Replacement]] | None:
    source = next((one for one in sources if one.path == facts.get("file")), None)
    line = facts.get("line")
    replaced = None if source is None else with_prefetcher(source, line, device)
    return None if source is None or replaced is None else (source, int(line or 0), replaced)


def _of_archives(sources: Sequence[Source]) -> tuple[Source, int, list[Replacement]] | None:
    """In the only file that opens any."""
    found = [(source, *made) for source in sources if (made := with_indexed_tar(source)) is not None]
    return found[0] if len(found) == 1 else None


def _together(source: Source, pieces: Sequence[tuple[Source, int, list[Replacement]]]) -> Changed | None:
    if not pieces:
        return None
    replaced = [piece for _, _, of_one in pieces for piece in of_one]
    line = min(line for _, line, _ in pieces)
    after = source.with_replaced(replaced)
    return None if after == source.text else Changed(source.path, line, source.text, after)


def _parses(text: str) -> bool:
    try:
        ast.parse(text)
    except SyntaxError:
        return False
    return True
