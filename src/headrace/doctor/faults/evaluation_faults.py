"""Faults of evaluations: they read files of the training, or draw random numbers."""

from __future__ import annotations

import filecmp
import os
import re
from collections.abc import Iterator, Sequence
from itertools import combinations

from headrace.doctor.explain.look import Look
from headrace.doctor.faults.fault_kinds import INTENDED, FaultKind
from headrace.doctor.faults.process_faults import Counted, FirstOfPass, files_of_samples, first_of_passes, loader_place
from headrace.doctor.session.after_run import DataFault
from headrace.doctor.session.model import Session
from headrace.doctor.session.trainers import Trainer

_ABOVE = re.compile(r"^(?:\.\./|/)+")

_CHANCE = 1e-3
"""Maximum probability that training files of a run are all listed by another run that splits by another seed."""
_MOST_COMPARED = 8
"""Maximum number of files of one name that are compared with a file."""

_LEAST = 8
"""Minimum number of files of samples: of fewer, one for each may be chance."""


LEAKED_SPLIT = FaultKind(
    "leaked-split",
    "{who} {what}: {some}.",
    "Split the list of files once, before copies are added, and give each dataset its own part.",
    "files opened for first batches of an evaluation are listed for samples of the training loader, or are their "
    "copies; or are those of a training stream, one for each sample of both. `unless intended` if it reads nothing "
    "else; none then if another evaluation does",
)


def leaked_split(
    session: Session, trainer: Trainer, loader: int, look: Look, *, is_of_run: bool = True
) -> Iterator[DataFault]:
    """Yield evaluations that read files of the training samples of a loader, whose dataset was looked at.

    `is_of_run`: in this run. Another run may split its files by another seed: then the files that this run trained on
    must exclude that.

    If an evaluation reads nothing else, that may be intended, as for an accuracy on training samples; it is left out if
    another evaluation reads other files.
    """
    firsts = [one for one in first_of_passes(session, least=1) if one.trainer is trainer and one.pass_.loader == loader]
    trained = [each for one in firsts for each in one.counted if each[0]]
    kinds = _listed_files(look, trained)
    if not kinds:
        return
    seen = len(kinds[0].intersection(path for _, batch in trained for path in batch.files))
    read = _evaluations(session, trainer, loader, min(one.pass_.start for one in firsts))
    leaks = {number: min((_leaked(listed, read[number]) for listed in kinds), key=len) for number in read}
    is_apart = any(batch.files for number in read if not leaks[number] for _, batch in read[number])
    most = max(len(set(batch.files)) / count for count, batch in trained)
    for number, shared in leaks.items():
        samples = sum(count for count, _ in read[number])
        ends = {os.path.splitext(path)[1] for path in shared}
        others = {path for _, batch in read[number] for path in batch.files} - shared
        is_less = any(len(shared.intersection(batch.files)) < count for count, batch in read[number])
        has_others = is_less and any(os.path.splitext(path)[1] in ends for path in others)
        # samples that read more files than those of the training may read these as references
        is_alike = all(len(set(batch.files)) <= most * count for count, batch in read[number])
        is_proved = is_of_run or (samples and (len(shared) / samples) ** seen <= _CHANCE)
        if shared and is_alike and is_proved and (has_others or not is_apart):
            what = f"reads {len(shared)} of the training samples' files, or copies equal byte by byte, for its first "
            yield LEAKED_SPLIT.found(
                certainty="certain" if has_others else INTENDED,
                who=f"The evaluation at {loader_place(trainer, number)}",
                place=loader_place(trainer, number),
                what=f"{what}{samples} samples",
                some=sorted(shared),
            )


def leaked_streams(session: Session) -> Iterator[DataFault]:
    """Yield evaluations that read files of the latest training stream, one for each sample of both."""
    evaluated: dict[tuple[int, int], list[FirstOfPass]] = {}
    for one in first_of_passes(session, least=1, feeds=False):
        its = evaluated.setdefault(one.loader, [])
        its += [one] if not its or one.pass_ is its[0].pass_ else []
    leaks = {}
    streamed = [one for one in first_of_passes(session) if one.batches[0].keys is None]
    for loader, its in evaluated.items():
        before = [one for one in streamed if one.trainer is its[0].trainer and one.pass_.start < its[0].pass_.start]
        last = max((one.pass_.start for one in before), default=0)
        trained = files_of_samples([one for one in before if one.pass_.start == last])
        read = files_of_samples(its)
        if trained.keys() == read.keys() and min(map(len, (*trained.values(), *read.values())), default=0) >= _LEAST:
            files, listed = (set[str]().union(*each.values()) for each in (read, trained))
            leaks[loader] = its, files, files & listed
    for its, files, shared in leaks.values():
        if shared and (files - shared or all(each for _, _, each in leaks.values())):
            yield LEAKED_SPLIT.found(
                certainty="certain" if files - shared else INTENDED,
                who=f"The evaluation at {its[0].place}",
                place=its[0].place,
                what=f"reads {len(shared)} of the training stream's files among its {len(files)}",
                some=sorted(shared),
            )


def _evaluations(session: Session, trainer: Trainer, loader: int, begun: int) -> dict[int, list[Counted]]:
    """Return the batches of the first pass of each other loader that evaluates after a time, by loader."""
    first: dict[int, int] = {}
    read: dict[int, list[Counted]] = {}
    for one in first_of_passes(session, least=1, feeds=False):
        number, pass_ = one.pass_.loader, one.pass_.number
        is_later = one.trainer is trainer and number != loader and one.pass_.start > begun
        if is_later and first.setdefault(number, pass_) == pass_:
            read.setdefault(number, []).extend(one.counted)
    return read


def _listed_files(look: Look, batches: Sequence[Counted]) -> list[set[str]]:
    """Return the files of all samples that a loader takes: a set for each kind, such as images and masks.

    A column names them up to a constant beginning and end, and each batch reads one for each of its samples.
    """
    found: list[set[str]] = []
    for column in look.columns.values() if batches else ():
        rows = column if look.chosen is None else [column[index] for index in look.chosen]
        if not all(isinstance(row, str) for row in rows) or len(set(rows)) != len(rows):
            continue
        names = set(map(plain_name, rows))
        around = {(begin, end) for path in batches[0][1].files for begin, name, end in names_in(path) if name in names}
        for begin, end in around:
            listed = {f"{begin}{name}{end}" for name in names}
            if listed not in found and all(len(listed.intersection(each.files)) >= count for count, each in batches):
                found.append(listed)
    return found


def _leaked(listed: set[str], batches: Sequence[Counted]) -> set[str]:
    """Return the files of an evaluation that are listed, or equal listed ones of their name byte by byte."""
    by_name: dict[str, list[str]] = {}
    for path in listed:
        by_name.setdefault(os.path.basename(path), []).append(path)
    read = {path for _, batch in batches for path in batch.files}
    copies = set()
    for path in read - listed:
        candidates = by_name.get(os.path.basename(path), [])[:_MOST_COMPARED]
        copies |= {path for other in candidates if _is_same(path, other)}
    # a single content may be a blank picture
    is_telling = read & listed or any(not _is_same(*pair) for pair in combinations(sorted(copies)[:_MOST_COMPARED], 2))
    return read & listed | copies if is_telling else set()


def _is_same(path: str, other: str) -> bool:
    try:
        return filecmp.cmp(path, other, shallow=False)
    except OSError:
        return False


def names_in(path: str) -> Iterator[tuple[str, str, str]]:
    """Yield each end of a path, with and without its suffix, as a name between what precedes and follows it."""
    parts = path.split("/")
    for place in range(1, len(parts)):
        tail = "/".join(parts[place:])
        stem, suffix = os.path.splitext(tail)
        begin = path[: len(path) - len(tail)]
        yield begin, tail, ""
        if suffix:
            yield begin, stem, suffix


def plain_name(text: str) -> str:
    """Return a text of a column as `names_in` yields it."""
    return _ABOVE.sub("", os.path.normpath(text)) if text else "/"
