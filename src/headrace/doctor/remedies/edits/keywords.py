"""Arguments of a call of DataLoader, set in its text."""

from __future__ import annotations

import ast
from collections.abc import Mapping

from headrace.doctor.edits.loader_call import argument, is_open
from headrace.doctor.edits.script_source import Replacement, Source


def with_keywords(source: Source, call: ast.Call, wanted: Mapping[str, str]) -> list[Replacement] | None:
    """Each argument of a call of DataLoader, with its value's text: replaced where it is given, by name or by place,
    else added beside the last one. None where `*arguments` or `**options` may give one of them, too."""
    given = {name: value for name in wanted if (value := argument(call, name)) is not None}
    new = {name: text for name, text in wanted.items() if name not in given}
    if new and is_open(call):
        return None
    pieces = [Replacement(source.start(value), source.end(value), wanted[name]) for name, value in given.items()]
    return [*pieces, *_added(source, call, new)]


def _added(source: Source, call: ast.Call, new: Mapping[str, str]) -> list[Replacement]:
    if not new:
        return []
    texts = [f"{name}={text}" for name, text in new.items()]
    arguments: list[ast.expr | ast.keyword] = [*call.args, *call.keywords]
    if not arguments:
        place = source.end(call) - 1
        return [Replacement(place, place, ", ".join(texts))]
    last = max(arguments, key=source.end)
    is_alone = _has_line_of_its_own(source, call, last)
    line = f",{source.newline}{source.indentation(last.lineno)}"
    if is_alone and isinstance(last, ast.keyword):  # before it, since a comment may follow it
        place = source.start(last)
        return [Replacement(place, place, "".join(text + line for text in texts))]
    place = _behind(source, call, last)
    return [Replacement(place, place, "".join((line if is_alone else ", ") + text for text in texts))]


def _behind(source: Source, call: ast.Call, last: ast.expr | ast.keyword) -> int:
    """Where an argument ends, parentheses around it included: the tree leaves them out."""
    place = source.end(last)
    rest = source.between(place, source.end(call) - 1)
    closed = rest[: len(rest) - len(rest.lstrip(") \t"))]
    return place + closed.rfind(")") + 1


def _has_line_of_its_own(source: Source, call: ast.Call, last: ast.expr | ast.keyword) -> bool:
    before = source.between(source.line_start(last.lineno), source.start(last))
    return last.lineno > call.lineno and not before.strip()
