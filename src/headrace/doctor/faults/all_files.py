"""Equal bytes under two names, among all files that a run's datasets list: in training, or there and in evaluation."""

from __future__ import annotations

import hashlib
import io
import os
import time
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from typing import Any, TypeVar

from PIL import Image

from ..explain.look import LeafPath
from ..quantities import counted, size
from ..session.after_run import DataFault
from ..session.model import Session
from ..session.trainers import Trainer
from .evaluation_faults import evaluated_loaders
from .fault_kinds import INTENDED, KINDS
from .listed_samples import Members, Sample, SampleListing, samples_of
from .process_faults import loader_place, loaders_that_feed

_HEAD = 1 << 16
"""Bytes of each file that are compared before the whole."""
_CHUNK = 1 << 20
_THREADS = 8
_TOLD_EVERY_S = 5.0
_MOST_SHOWN, _MOST_FILES = 4, 6
Read = TypeVar("Read")
Group = list[Sample]
"""Different samples that are equal as far as they were compared."""


@dataclass
class Comparison:
    """Faults among all files, and what was compared for them."""

    faults: list[DataFault] = field(default_factory=list)
    text: str = ""


def compare_all(
    session: Session,
    trainer: Trainer,
    listings: Sequence[SampleListing],
    labels: Mapping[LeafPath, Sequence[Any]],
    tell: Callable[[str], None],
) -> Comparison:
    """Compare all files of the training's loader, the first listing, with each other and with the other loaders' files.

    `labels` are values of all its samples by leaf, as far as they are known. `tell` shows the progress.
    """
    members = Members()
    training, *others = listings
    trained = samples_of(training, members)
    if not trained:
        return Comparison(text="Not all files were compared: no values of the training's dataset name its files.")
    fed = loaders_that_feed(trainer)
    listed = [(one, samples_of(one, members)) for one in others if one.number not in fed]
    files = FileContents(members, tell)
    groups = files.equal_samples(chain(trained, *(samples for _, samples in listed)))
    unknown = [one.dataset for one, samples in listed if not samples]
    found = Comparison(text=_compared(training, len(listed) - len(unknown), unknown, files))
    found.faults += _duplicates(trained, labels, groups, files.text)
    found.faults += _leaks(session, trainer, trained, listed, groups, files.text)
    return found


def _compared(training: SampleListing, known: int, unknown: Sequence[str], files: FileContents) -> str:
    """Return what was compared, and what could not be."""
    others = f", and {counted(known, 'other loader')}" if known else ""
    text = f"{files.text} were compared: {training.dataset} of the training{others}."
    if unknown:
        text += f" No values name the files of {', '.join(unknown)}."
    elif not known:
        text += " No other loader was found: if the script evaluates, ask for more steps (--steps) than an epoch has."
    return text + (f" {counted(files.missing, 'more file')}: empty or not found." if files.missing else "")


def _duplicates(
    trained: Sequence[Sample], labels: Mapping[LeafPath, Sequence[Any]], groups: Iterable[Group], compared: str
) -> Iterator[DataFault]:
    """Yield the training's samples whose files equal another sample's under other names.

    Copies may be intended, to show a class more often, unless their labels differ.
    """
    own = set(trained)
    found = [[one for one in group if one in own] for group in groups]
    again = [group for group in found if len(group) > 1]
    unlike = [group for group in again if _are_labelled_apart(group, trained, labels)]
    for some, certainty in ((unlike, "certain"), ([group for group in again if group not in unlike], INTENDED)):
        if some:
            what = f"have the same bytes as another sample's files under other names ({compared} were compared)"
            yield KINDS["duplicate-files"].found(
                certainty=certainty,
                count=sum(map(len, some)) - len(some),
                looked=len(own),
                what=what + (", and other labels" if some is unlike else ""),
                some="; ".join(" = ".join(one[0] for one in group[:_MOST_SHOWN]) for group in some[:_MOST_SHOWN]),
                files=[one[0] for group in some[:_MOST_FILES] for one in group[:2]],
            )


def _are_labelled_apart(group: Group, trained: Sequence[Sample], labels: Mapping[LeafPath, Sequence[Any]]) -> bool:
    """Return True if samples differ in a label. A value that most samples have for themselves is none."""
    rows = [place for place, one in enumerate(trained) if one in group]
    classes = [them for them in labels.values() if len(them) == len(trained) >= 2 * len(set(map(str, them)))]
    return any(len({str(them[place]) for place in rows}) > 1 for them in classes)


def _leaks(
    session: Session,
    trainer: Trainer,
    trained: Iterable[Sample],
    listed: Sequence[tuple[SampleListing, list[Sample]]],
    groups: Iterable[Group],
    compared: str,
) -> Iterator[DataFault]:
    """Yield loaders whose samples have the files of training samples, or their bytes.

    If all are, that may be intended, as for an accuracy on training samples; it is left out next to others.
    """
    own = set(trained)
    first = {one: next((each for each in group if each in own), None) for group in groups for one in group}
    origins = {one: one for one in own} | {one: origin for one, origin in first.items() if origin and one not in own}
    shared = [[one for one in dict.fromkeys(samples) if one in origins] for _, samples in listed]
    is_apart = any(samples and not leaked for (_, samples), leaked in zip(listed, shared, strict=True))
    evaluated = evaluated_loaders(session, trainer)
    for (listing, samples), leaked in zip(listed, shared, strict=True):
        is_whole = len(leaked) == len(set(samples))
        if not leaked or (is_whole and is_apart):
            continue
        is_used = listing.number in evaluated
        who = f"The loader of {listing.dataset}, which this run did not use,"
        if is_used and listing.number is not None:
            who = f"The evaluation at {loader_place(trainer, listing.number)}"
        share = f"{len(leaked)} of its {counted(len(set(samples)), 'sample')}"
        pairs = [path for one in leaked[:_MOST_FILES] for path in (one[0], origins[one][0])]
        yield KINDS["leaked-split"].found(
            certainty=INTENDED if is_whole or not is_used else "certain",
            who=who,
            what=f"takes {share} from files that the training lists, or from copies equal byte by byte "
            f"({compared} were compared)",
            some=", ".join(dict.fromkeys(pairs[: 2 * _MOST_SHOWN])),
            files=pairs,
        )


class FileContents:
    """Files and members of tars, compared by size, then by their first bytes, then whole."""

    def __init__(self, members: Members, tell: Callable[[str], None]) -> None:
        self._members, self._tell = members, tell
        self._sizes: dict[str, int] = {}
        self.text = ""
        """The number of files that were compared."""
        self.missing = 0
        """Files that are empty, or could not be found."""

    def equal_samples(self, samples: Iterable[Sample]) -> list[Group]:
        """Return groups of samples whose files are equal, except empty files and pictures of one colour."""
        found = list(dict.fromkeys(samples))
        files = {path for one in found for path in one}
        self._tell(f"looking up the sizes of {counted(len(files), 'file')}")
        self._sizes = {path: count for path, count in self._each(self._size, files) if count}
        self.text = counted(len(self._sizes), "file")
        self.missing = len(files) - len(self._sizes)
        groups = self._split([found], self._sizes.get)
        digests: dict[str, bytes | None] = {}
        for most in (_HEAD, None):
            left = {path for group in groups for one in group for path in one}
            digests |= self._digests(left if most else {path for path in left if self._sizes[path] > _HEAD}, most)
            groups = self._split(groups, digests.get)
        return [group for group in groups if not all(map(self._is_plain, group[0]))]

    def _digests(self, paths: Collection[str], most: int | None) -> Iterator[tuple[str, bytes | None]]:
        """Yield the digest of each file, or of its first bytes, and show the progress."""
        bytes_ = {path: min(self._sizes[path], most or self._sizes[path]) for path in paths}
        what = "reading the first bytes of" if most else "reading"
        what = f"{what} {counted(len(paths), 'file')} of equal size, {size(sum(bytes_.values()))}"
        done, told = 0, 0.0
        for path, digest in self._each(partial(self._digest, most=most), paths):
            if time.monotonic() - told > _TOLD_EVERY_S:
                told = time.monotonic()
                self._tell(f"{what}, {size(done)} done" if done else what)
            done += bytes_[path]
            yield path, digest

    def _each(self, read: Callable[[str], Read], paths: Iterable[str]) -> Iterator[tuple[str, Read]]:
        paths = sorted(paths)
        with ThreadPoolExecutor(_THREADS) as pool:
            yield from zip(paths, pool.map(read, paths), strict=True)

    @staticmethod
    def _split(groups: Iterable[Group], value: Callable[[str], Hashable]) -> list[Group]:
        """Return the parts of groups with equal values of all files. A file without a value is equal to none."""
        found: dict[tuple[int, ...] | tuple[Hashable, ...], Group] = {}
        for number, group in enumerate(groups):
            for one in group:
                values = tuple(map(value, one))
                if None not in values:
                    found.setdefault((number, *values), []).append(one)
        return [group for group in found.values() if len(group) > 1]

    def _size(self, path: str) -> int | None:
        if path in self._members.places:
            return self._members.places[path][2]
        try:
            return os.stat(path).st_size
        except OSError:
            return None

    def _digest(self, path: str, most: int | None) -> bytes | None:
        """Return the digest of a file or of its first bytes; None if it cannot be read."""
        made = hashlib.blake2b(digest_size=16)
        try:
            for data in self._read(path, most):
                made.update(data)
        except OSError:
            return None
        return made.digest()

    def _read(self, path: str, most: int | None = None) -> Iterator[bytes]:
        container, begin, count = self._members.places.get(path, (path, 0, self._sizes[path]))
        left = count if most is None else min(count, most)
        with open(container, "rb") as file:
            file.seek(begin)
            while left > 0 and (data := file.read(min(left, _CHUNK))):
                yield data
                left -= len(data)

    def _is_plain(self, path: str) -> bool:
        """Return True for a picture of one colour, which many samples may share."""
        try:
            with Image.open(io.BytesIO(b"".join(self._read(path)))) as picture:
                extrema = picture.getextrema()
        except (OSError, ValueError, SyntaxError, Image.DecompressionBombError):
            return False
        bands = extrema if isinstance(extrema[0], tuple) else (extrema,)
        return all(low == high for low, high in bands)
