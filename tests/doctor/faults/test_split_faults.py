"""Evaluations that read files of the training are found in records of what each pass opened; others raise no alarm."""

from __future__ import annotations

import random
from collections.abc import Sequence
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from made_reports import made_session
from made_sessions import replace

from headrace.doctor.explain import ValueExplanation
from headrace.doctor.explain.look import LeafPath, Look
from headrace.doctor.explain.samples import LeafExplanation
from headrace.doctor.faults import leaked_split
from headrace.doctor.faults.split_faults import shifted_classes
from headrace.doctor.session.model import Session
from headrace.doctor.session.trainers import FirstBatch, LoaderFacts, ProducedBatches, TrainerPass

Opened = Sequence[Sequence[str]]
"""Files that each sample opens."""
BATCH = 4


class Pass(NamedTuple):
    loader: int
    samples: Opened
    trains: bool = False


def trained(samples: Opened, loader: int = 0, seed: int = 0) -> Pass:
    return Pass(loader, random.Random(seed).sample(list(samples), len(samples)), trains=True)


def recorded(*passes: Pass) -> Session:
    """Return a session in which one worker makes the first two batches of each pass."""
    session = made_session()
    (trainer,), (maker, *_) = session.trainers, session.makers
    trainer.loaders = [LoaderFacts(number, {"file": "train.py", "line": number}) for number in range(4)]
    starts = [trainer.steps.start[0] + number for number in range(len(passes))]
    trainer.passes = [
        TrainerPass(number, one.loader, starts[number], 0, number, [maker.pid], with_grad=one.trains)
        for number, one in enumerate(passes)
    ]
    feeding = [number for number, one in enumerate(passes) if one.trains]
    trainer.gets = replace(trainer.gets, pass_=feeding, start=[starts[number] for number in feeding])
    batches = [
        (number, index, samples)
        for number, one in enumerate(passes)
        for index in (0, 1)
        if (samples := one.samples[index * BATCH : (index + 1) * BATCH])
    ]
    produced = ProducedBatches(
        epoch=[number for number, _, _ in batches],
        index=[index for _, index, _ in batches],
        samples=[len(samples) for _, _, samples in batches],
    )
    first = [FirstBatch(number, index, files=list(chain(*samples))) for number, index, samples in batches]
    session.makers = [replace(maker, batches=produced, first=first)]
    return session


def leaks(passes: Sequence[Pass], column: Sequence[str], *, loader: int = 0, **options: Any) -> list[tuple[str, int]]:
    """Return certainty and loader of the leaks into evaluations. `column`: what the training's dataset lists."""
    session = recorded(*passes)
    look = Look([], {"files": list(column), "labels": [len(each) % 3 for each in column]}, length=len(column))
    found = list(leaked_split(session, session.trainers[0], loader, look, **options))
    assert all(one.code == "leaked-split" for one in found)
    places = [one.evidence.partition(" reads ")[0].rpartition(":")[2] for one in found]
    return [(one.certainty, int(place)) for one, place in zip(found, places, strict=True)]


IMAGES = [f"/data/images/{number:02}.png" for number in range(40)]
TEXTS = [f"/data/texts/{number:02}.txt" for number in range(40)]
NAMES = [f"{number:02}" for number in range(40)]
SHUFFLED, AGAIN = (random.Random(seed).sample(IMAGES, 40) for seed in (0, 1))


def alone(files: Sequence[str]) -> Opened:
    return [[file] for file in files]


def masked(names: Sequence[str], root: str = "/data") -> Opened:
    return [[f"{root}/images/{name}.png", f"{root}/masks/{name}.png"] for name in names]


@pytest.mark.parametrize(
    ("training", "evaluated", "column", "certainty"),
    [
        pytest.param(alone(SHUFFLED[:32]), alone(AGAIN[24:]), SHUFFLED[:32], "certain", id="two shuffles"),
        pytest.param(masked(NAMES[:32]), masked(NAMES[28:]), NAMES[:32], "certain", id="overlapping lists of names"),
        pytest.param(alone(TEXTS[:34]), alone(TEXTS[30:]), TEXTS[:34], "certain", id="texts"),
        pytest.param(alone(IMAGES), alone(IMAGES[:16]), IMAGES, "unless intended", id="its own training samples"),
        pytest.param(
            alone(IMAGES), [[], *alone(IMAGES[:15])], IMAGES, "unless intended", id="its own, one of them cached"
        ),
    ],
)
def test_shared_files(training: Opened, evaluated: Opened, column: Any, certainty: str) -> None:
    passes = [trained(training), Pass(1, evaluated)]
    assert leaks(passes, column) == [(certainty, 1)]


@pytest.mark.parametrize(
    ("training", "evaluated", "count"),
    [(SHUFFLED[:32], AGAIN[24:], 1), (IMAGES[:32], IMAGES[24:], 0), (IMAGES, IMAGES[:16], 0)],
)
def test_samples_looked_at_in_another_run(training: list[str], evaluated: list[str], count: int) -> None:
    """They prove only what another split of the same files cannot explain."""
    passes = [trained(alone(training)), Pass(1, alone(evaluated))]
    assert len(leaks(passes, training, is_of_run=False)) == count


@pytest.mark.parametrize(("copies", "found"), [(4, [("certain", 1)]), (2, [("certain", 1)]), (0, [])])
def test_copies(copies: int, found: Any, tmp_path: Path) -> None:
    files: dict[str, list[str]] = {"train": [], "held-out": []}
    for folder in files:
        (tmp_path / folder).mkdir()
        for number in range(16):
            own = "" if number < copies else folder
            file = tmp_path / folder / f"{number}.txt"
            file.write_text(f"{number} {own}")
            files[folder].append(str(file))
    assert leaks([trained(alone(files["train"])), Pass(1, alone(files["held-out"]))], files["train"]) == found


def test_copies_of_one_content_prove_nothing(tmp_path: Path) -> None:
    """Masks of two samples are whole, in the training and in the evaluation."""
    names, passes = [f"{number:02}" for number in range(16)], []
    for root in ("train", "val"):
        samples = masked(names, str(tmp_path / root))
        for number, sample in enumerate(samples):
            for file in map(Path, sample):
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_text("whole" if "masks" in str(file) and number < 2 else f"{file}")
        passes.append(samples)
    assert leaks([trained(passes[0]), Pass(1, passes[1])], names) == []


@pytest.mark.parametrize("own", [0, 1])
def test_a_file_that_all_samples_open(own: int) -> None:
    def opened(files: Sequence[str]) -> Opened:
        return [[file, "/data/labels.csv"][1 - own :] for file in files]

    assert leaks([trained(opened(TEXTS[:32])), Pass(1, opened(TEXTS[32:]))], TEXTS[:32]) == []


def test_a_picture_of_reference() -> None:
    compared = [[file, IMAGES[0]] for file in IMAGES[32:]]
    assert leaks([trained(alone(IMAGES[:32])), Pass(1, compared)], IMAGES[:32]) == []


def test_other_files() -> None:
    assert leaks([trained(alone(IMAGES[:32])), Pass(1, alone(IMAGES[32:]))], IMAGES[:32]) == []
    assert leaks([trained(masked(NAMES[:32])), Pass(1, masked(NAMES[:8], "/data/val"))], NAMES[:32]) == []
    assert leaks([trained(alone(TEXTS[:32])), Pass(1, alone(TEXTS[32:]))], TEXTS[:32]) == []


def test_an_accuracy_on_training_samples_beside_one_on_others() -> None:
    on_training, on_others = Pass(1, alone(IMAGES[:16])), Pass(2, alone(IMAGES[32:]))
    assert leaks([trained(alone(IMAGES[:32])), on_training, on_others], IMAGES[:32]) == []


def test_passes_that_are_no_evaluations_of_this_training() -> None:
    everything = Pass(1, alone(IMAGES))
    own = Pass(0, alone(IMAGES))
    assert leaks([everything, trained(alone(IMAGES[:32])), Pass(2, alone(IMAGES[32:]))], IMAGES[:32]) == []
    assert leaks([trained(alone(IMAGES)), own], IMAGES) == []
    folds = [IMAGES[8:], IMAGES[:8], [*IMAGES[:8], *IMAGES[16:]], IMAGES[8:16]]
    passes = [trained(alone(folds[0])), Pass(1, alone(folds[1])), trained(alone(folds[2]), 2), Pass(3, alone(folds[3]))]
    assert leaks(passes, folds[2], loader=2) == []


@pytest.mark.parametrize("label", [lambda number: number, lambda number: [number, number % 2]])
@pytest.mark.parametrize("first", [0, 1])
def test_labels_by_folder(label: Any, first: int) -> None:
    """Labels are numbers, or lists of those, as for samples of several classes."""

    def sides(first: int) -> tuple[Look, dict[LeafPath, LeafExplanation]]:
        folders = [number % 3 for number in range(9)]
        columns = {"labels": [label(first + one) for one in folders], "folder of paths": [f"c{one}" for one in folders]}
        by = ValueExplanation("equal", "labels")
        return Look([], columns), {("label",): LeafExplanation(("label",), by)}

    found = list(shifted_classes(*sides(0), *sides(first), "train.py:9"))
    assert [one.code for one in found] == ["shifted-classes"] * bool(first)
