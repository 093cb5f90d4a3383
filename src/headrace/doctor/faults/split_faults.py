"""Faults between the data of the training and of its evaluations, by the samples and columns of both."""

from __future__ import annotations

import os
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from itertools import chain, product

import numpy as np
from PIL import Image

from headrace.doctor.explain import ValueExplanation
from headrace.doctor.explain.look import Look
from headrace.doctor.faults.evaluation_faults import LEAKED_SPLIT
from headrace.doctor.faults.fault_kinds import INTENDED, Explained, FaultKind, leaf_name
from headrace.doctor.faults.key_faults import KeyedPass, keyed_passes
from headrace.doctor.faults.process_faults import first_of_passes
from headrace.doctor.session.after_run import DataFault
from headrace.doctor.session.model import Session

_IMAGES = (".jpg", ".jpeg", ".png", ".webp", ".bmp", ".tif", ".tiff")
_NUMBER = re.compile(r"\d+")
_MOST_LOOKED = 64
"""Pictures of the evaluation that are compared with their neighbours in the training."""
_NEAR = 0.3
"""Maximum mean difference of two small grey pictures of one scene, as a share of that between two scenes."""
_LEAST_NEAR, _SHARE_NEAR = 3, 0.6
"""Minimum number and share of pictures that are near one of the training."""
_SMALL = (16, 16)


AUGMENTED_EVALUATION = FaultKind(
    "augmented-evaluation",
    "The evaluation at {place} makes the same samples differently each time, by random draws: {leaves}.",
    "Give the evaluation's dataset transforms that draw nothing, or seed their generators before each pass.",
    "samples of an evaluation differ when they are made again with other random numbers. Always `unless intended`, as "
    "for test-time augmentation",
)


def redrawn(look: Look, explained: Explained, place: str) -> Iterator[DataFault]:
    """Yield an evaluation whose samples differ when they are made again with other random numbers."""
    leaves = [path for path, one in explained.items() if one.is_random]
    if leaves and len({each.index for each in look.samples}) > 1:
        text = ", ".join(map(leaf_name, leaves))
        yield AUGMENTED_EVALUATION.found(*leaves, certainty=INTENDED, place=place, leaves=text)


def listed_files(look: Look) -> list[str]:
    """Return the files that a dataset lists, one for each sample that its loader takes; none if it lists none."""
    for name, column in look.columns.items():
        is_path = not name.startswith(("folder of", "stem of")) and all(
            isinstance(each, str) and each.lower().endswith(_IMAGES) for each in column
        )
        if is_path and column:
            return [os.path.normpath(column[index]) for index in look.chosen or range(len(column))]
    return []


def leaked_list(train: Look, evaluation: Look, place: str, *, is_only: bool) -> Iterator[DataFault]:
    """Yield an evaluation that lists files of the training, or pictures next to them in a series.

    Unless it `is_only`, one that lists nothing else may be an accuracy on training samples.
    """
    trained, evaluated = listed_files(train), listed_files(evaluation)
    folders = [_folders(each) for each in (train, evaluation)]
    shared = sorted(set(trained) & set(evaluated)) if folders[0] == folders[1] else []
    is_all = len(shared) == len(set(evaluated))
    if shared and is_all and not is_only:
        return
    if shared:
        what = f"lists {len(shared)} of the training samples' files among its {len(evaluated)}"
        certainty = INTENDED if is_all else "certain"
        who = f"The evaluation at {place}"
        yield LEAKED_SPLIT.found(certainty=certainty, who=who, what=what, some=shared, place=place)
        return
    pairs = list(_neighbours(train, trained, evaluation, evaluated))
    near = [pair for pair, difference, usual in pairs if difference <= _NEAR * usual]
    if len(near) >= max(_LEAST_NEAR, _SHARE_NEAR * len(pairs)):
        what = f"takes pictures of the training's scenes, {len(near)} of {len(pairs)} that were compared"
        some = [f"{os.path.basename(one)} beside {os.path.basename(other)}" for one, other in near]
        who = f"The evaluation at {place}"
        yield LEAKED_SPLIT.found(certainty=INTENDED, who=who, what=what, some=some, place=place)


def _folders(look: Look) -> set[str]:
    """Return the folders that the samples' relative paths start from, as far as their inputs show them."""
    files = listed_files(look)
    places = [path for each in look.samples for path, _ in each.places if path]
    return {path[: -len(file)] for path in places for file in files if path.endswith(file)}


def _neighbours(
    train: Look, trained: Sequence[str], evaluation: Look, evaluated: Sequence[str]
) -> Iterator[tuple[tuple[str, str], float, float]]:
    """Yield pairs of an evaluation's picture and the training's next in number, their difference, and that of scenes.

    Pictures of a scene are in one folder, and have names that differ by a number only.
    """
    series: dict[str, list[tuple[int, str]]] = {}
    for path in trained:
        series.setdefault(_series(path), []).append((_number(path), path))
    roots = [next(iter(_folders(each)), "") for each in (train, evaluation)]
    step = max(1, len(evaluated) // _MOST_LOOKED)
    for path in evaluated[::step]:
        its, others = series.get(_series(path), []), [each for name, each in series.items() if name != _series(path)]
        if not its or not others:
            continue
        _, near = min(its, key=lambda each: abs(each[0] - _number(path)))
        shown = [
            _small(roots[1] + path),
            *(_small(roots[0] + each) for each in (near, *(one[0][1] for one in others[:4]))),
        ]
        if all(each is not None for each in shown):
            one, *rest = (each for each in shown if each is not None)
            apart = [float(np.abs(one - each).mean()) for each in rest]
            yield (path, near), apart[0], float(np.median(apart[1:]))


def _series(path: str) -> str:
    """Return a path with its last number left out."""
    numbers = list(_NUMBER.finditer(os.path.basename(path)))
    if not numbers:
        return path
    folder = os.path.basename(os.path.dirname(path))
    name = os.path.basename(path)
    return f"{folder}/{name[: numbers[-1].start()]}#{name[numbers[-1].end() :]}"


def _number(path: str) -> int:
    numbers = _NUMBER.findall(os.path.basename(path))
    return int(numbers[-1]) if numbers else 0


def _small(path: str) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]] | None:
    try:
        with Image.open(path) as picture:
            return np.asarray(picture.convert("L").resize(_SMALL, Image.Resampling.BOX), np.float64)
    except (OSError, ValueError, Image.DecompressionBombError):
        return None


SHIFTED_CLASSES = FaultKind(
    "shifted-classes",
    "The training and the evaluation at {place} give classes different numbers: {some}.",
    "Number the classes once, by the training's list, and give the evaluation the same mapping.",
    "samples below folders of one name have one label in the training and another in the evaluation, for each sample "
    "of both; of streams, by the one file, or member of a tar, that is read for each sample, if the evaluation's label "
    "is that of another folder in training",
)


def shifted_classes(
    train: Look, explained: Explained, evaluation: Look, evaluated: Explained, place: str
) -> Iterator[DataFault]:
    """Yield an evaluation that numbers the classes otherwise than the training does."""
    ours, theirs = _classes(train, explained), _classes(evaluation, evaluated)
    apart = [name for name in ours.keys() & theirs.keys() if ours[name] != theirs[name]]
    if apart and len(ours) > 1:
        some = [f"{name} is {ours[name]} in training and {theirs[name]} in evaluation" for name in sorted(apart)]
        yield SHIFTED_CLASSES.found(place=place, some=some)


def _classes(look: Look, explained: Explained) -> dict[str, object]:
    """Return the label of each folder of samples; none if a folder has several labels."""
    for one in explained.values():
        by = one.by
        if not isinstance(by, ValueExplanation) or by.column not in look.columns:
            continue
        labels = look.columns[by.column]
        if by.kind == "class":
            ranks = {value: rank for rank, value in enumerate(sorted(set(labels)))}
            labels = [ranks[value] for value in labels]
        elif by.kind != "equal":
            continue
        for name, column in look.columns.items():
            if not name.startswith("folder of"):
                continue
            found: dict[str, set[object]] = {}
            for folder, label in zip(column, labels, strict=True):
                found.setdefault(str(folder), set()).add(tuple(label) if isinstance(label, list) else label)
            if len(found) > 1 and all(len(each) == 1 for each in found.values()):
                return {folder: next(iter(each)) for folder, each in found.items()}
    return {}


def shifted_streams(session: Session) -> Iterator[DataFault]:
    """Yield the same of two streams, by the file, or the member of a tar, that is read for each sample."""
    streams = [one for one in keyed_passes(session) if not one.keys.count]
    for one in (each for each in streams if not each.keys.feeds):
        trained = next((each for each in streams if each.trainer is one.trainer and each.keys.feeds), one)
        ours, theirs = (_streamed_classes(session, each) for each in (trained, one))
        for path in ours.keys() & theirs.keys():
            owners = {label: folder for folder, label in ours[path].items()}
            apart = {name: owners.get(label, name) for name, label in theirs[path].items() if name in ours[path]}
            some = [f"{name} has the number of {other} in training" for name, other in apart.items() if name != other]
            if some:
                yield SHIFTED_CLASSES.found(place=one.place, some=sorted(some))
                return


def _streamed_classes(session: Session, one: KeyedPass) -> dict[str, dict[str, str]]:
    """Return, by leaf, the digest of each folder's label in a pass, where each folder has a label of its own."""
    rows = {batch.index: batch.leaves for batch in one.trainer.rows if batch.pass_ == one.pass_.number}
    found: dict[str, Counter[tuple[str, str]]] = defaultdict(Counter)
    firsts = first_of_passes(session, least=1, feeds=bool(one.keys.feeds))
    for count, batch in chain.from_iterable(each.counted for each in firsts if each.pass_ is one.pass_):
        by_kind: dict[str, list[str]] = defaultdict(list)
        for file in batch.files:
            by_kind[os.path.splitext(file)[1]].append(file.rsplit("/", 2)[-2])
        for folders, (path, labels) in product(by_kind.values(), rows.get(batch.index, [])):
            if len(folders) == len(labels) == count:
                found[path].update(zip(folders, labels, strict=True))
    return {
        path: dict(pairs.keys())
        for path, pairs in found.items()
        if min(pairs.values()) > 1 and all(len(set(side)) == len(pairs) for side in zip(*pairs, strict=True))
    }
