"""View classes: what they accept, what they compile to, and what their errors say."""

from __future__ import annotations

import math
from dataclasses import FrozenInstanceError

import numpy as np
import pytest

from headrace import _core
from headrace.errors import UsageError
from headrace.views import (
    CenterCrop,
    FiveCrop,
    Letterbox,
    RandomCrop,
    RandomHorizontalFlip,
    RandomQuarterTurn,
    RandomResizedCrop,
    RandomVerticalFlip,
    Resize,
    TenCrop,
    Tiles,
    compile_view,
)

NAN = math.nan


def test_a_program_is_one_row_a_step_and_a_flip_is_a_step():
    program = compile_view([Resize(256, max_size=400, flip=0.5), CenterCrop((200, 224))])
    assert program.ops.dtype == np.float64
    assert program.ops.tolist() == [
        [2, 256, 400, 0, 0, 0, 0, 0, 0, 0],
        [7, 0.5, 0, 0, 0, 0, 0, 0, 0, 0],
        [4, 200, 224, 0, 0, 0, 0, 0, 0, 0],
    ]
    with pytest.raises(ValueError, match="read-only"):
        program.ops[0, 0] = 1


@pytest.mark.parametrize(
    ("view", "size"),
    [
        (None, None),
        ([], None),
        (RandomHorizontalFlip(), None),
        (Resize(256), None),
        (Resize((48, 64)), (48, 64)),
        (RandomResizedCrop(224), (224, 224)),
        (RandomCrop((3, 5)), (3, 5)),
        (Letterbox((3, 5)), (3, 5)),
        ([Resize(256), CenterCrop(224), RandomVerticalFlip()], (224, 224)),
        ([CenterCrop(224), Resize(64)], None),
        ([RandomCrop(8), RandomQuarterTurn()], (8, 8)),
        ([RandomQuarterTurn(), RandomCrop((8, 9))], (8, 9)),
        ([RandomCrop((8, 9)), RandomQuarterTurn((0.5, 0, 0.5, 0))], (8, 9)),
    ],
)
def test_output_size_is_known_unless_it_depends_on_the_source(view, size):
    assert compile_view(view).output_size == size


@pytest.mark.parametrize(
    ("view", "fill"),
    [
        (Resize(8), (0,)),
        (Letterbox(8, fill=114), (114,)),
        (Letterbox(8, fill=(1, 2, 3)), (1, 2, 3)),
        (RandomCrop(8, padding=2, fill=7), (7,)),
        (RandomCrop(8, pad_if_needed=True, fill=7), (7,)),
        ([Letterbox(8, fill=114), CenterCrop(6)], (114,)),  # the crop cannot pad, so its fill says nothing
        ([Letterbox(8, fill=114), RandomCrop(6)], (114,)),
        ([Resize((9, 9)), RandomCrop(9, pad_if_needed=True, fill=7)], (0,)),
    ],
)
def test_fill_is_that_of_the_steps_that_can_pad(view, fill):
    assert compile_view(view).fill == fill


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: Resize(0), r"Resize: expected size to be an int or \(height, width\), .* got 0; give whole pixels"),
        (lambda: Resize(-3), "got -3"),
        (lambda: Tiles(8, grid=0), r"Tiles: expected grid to be an int or \(rows, columns\), of at most 64 .*, got 0"),
        (lambda: Tiles(8, grid=(13, 5)), "each tile is a copy; take larger ones"),
        (lambda: Tiles(8, grid=True), "got True"),
        (lambda: TenCrop(8, "yes"), "TenCrop: expected vertical_flip to be True or False, got 'yes'"),
        (lambda: FiveCrop((8, 0)), "FiveCrop: expected size"),
        (lambda: compile_view([FiveCrop(8), TenCrop(4)]), "expected one step that makes copies, got FiveCrop"),
        (lambda: compile_view([RandomCrop(9), FiveCrop(8)]), "nothing random before FiveCrop.* each copy draws for"),
        (lambda: compile_view([Resize((6, 9)), Tiles(8, grid=2)]), "at most the 6 x 9 .* got 8; resize to more first"),
        (lambda: Resize(2.5), "got 2.5"),
        (lambda: RandomQuarterTurn((0.5, 0.5, 0.5, 0.5)), "probabilities to be four numbers with the sum 1, of 0, 90"),
        (lambda: RandomQuarterTurn(0.5), "got 0.5"),
        (lambda: compile_view(RandomQuarterTurn()), "every turn of RandomQuarterTurn.* to give one size, got"),
        (lambda: compile_view([RandomCrop((8, 9)), RandomQuarterTurn()]), "follow a square crop, or put a crop after"),
        (lambda: Resize(True), "got True"),
        (lambda: Resize((3, 0)), r"got \(3, 0\)"),
        (lambda: Resize((3, 4, 5)), r"got \(3, 4, 5\)"),
        (lambda: Resize("8"), "got '8'"),
        (lambda: CenterCrop(NAN), "CenterCrop: expected size .* got nan"),
        (lambda: Letterbox(1 << 25), "each 1 to 16777216 pixels"),
        (lambda: Resize(8, max_size=8), "expected max_size to be an int above size=8, got 8"),
        (lambda: Resize((8, 9), max_size=10), "None where size is"),
        (lambda: RandomResizedCrop(8, scale=(0.5, 0.1)), r"0 < low <= high <= 1, got \(0.5, 0.1\)"),
        (lambda: RandomResizedCrop(8, scale=(0, 1)), r"got \(0, 1\)"),
        (lambda: RandomResizedCrop(8, scale=(0.1, 1.5)), "share of the image's area"),
        (lambda: RandomResizedCrop(8, scale=(NAN, 1.0)), "got .nan, 1.0."),
        (lambda: RandomResizedCrop(8, scale=0.5), "got 0.5"),
        (
            lambda: RandomResizedCrop(8, ratio=(2, 1)),
            r"ratio to be \(low, high\) .* got \(2, 1\); it is width / height",
        ),
        (lambda: RandomResizedCrop(8, ratio=(-1, 1)), r"got \(-1, 1\)"),
        (lambda: RandomResizedCrop(8, ratio=(1, math.inf)), r"got \(1, inf\)"),
        (lambda: RandomResizedCrop(8, flip=1.5), "flip to be a probability from 0 to 1, got 1.5; 0 never flips"),
        (lambda: Resize(8, flip=-0.1), "got -0.1"),
        (lambda: CenterCrop(8, flip=NAN), "got nan"),
        (lambda: RandomCrop(8, flip=True), "got True"),
        (lambda: RandomHorizontalFlip(2), "RandomHorizontalFlip: expected p to be a probability"),
        (lambda: RandomVerticalFlip("often"), "got 'often'"),
        (lambda: Letterbox(8, fill=256), "expected fill to be an int 0..255, .* got 256"),
        (lambda: CenterCrop(8, fill=(1, 2)), r"got \(1, 2\)"),
        (lambda: RandomCrop(8, fill=0.5), "got 0.5; give it on the scale of uint8"),
        (lambda: RandomCrop(8, padding=-1), "padding to be None, an int or .left, top, right, bottom., .* got -1"),
        (lambda: RandomCrop(8, padding=(1, 2)), r"got \(1, 2\)"),
        (lambda: RandomCrop(8, pad_if_needed=1), "True or False, got 1"),
    ],
)
def test_a_wrong_argument_is_named_with_what_was_expected(make, says):
    with pytest.raises(UsageError, match=says):
        make()


@pytest.mark.parametrize(
    ("view", "says"),
    [
        ("Resize", "expected a view such as hr.Resize"),
        ([Resize(8), 5], "expected a view"),
        ({Resize(8)}, "expected a view"),
        ([Letterbox(8), Resize(4)], "Resize.* cannot follow Letterbox.*, which pads; put what resizes first"),
        ([RandomCrop(8, padding=1), RandomHorizontalFlip(), RandomResizedCrop(4)], "RandomResizedCrop.* cannot follow"),
        ([Resize((5, 5)), CenterCrop(6), Resize(4)], "cannot follow CenterCrop"),
        ([Resize((5, 5)), RandomCrop(6, pad_if_needed=True), Letterbox(4)], "cannot follow RandomCrop"),
        ([Letterbox(8, fill=1), CenterCrop(9, fill=2)], "expected one fill, got 1 and 2"),
        ([Letterbox(8, fill=1), RandomCrop(9, padding=1)], "expected one fill, got 1 and 0"),
        ([Resize((5, 9)), RandomCrop(6)], "at most the 5 x 9 .* got 6; set pad_if_needed=True"),
        ([Resize((5, 9)), RandomCrop(8, padding=1)], "at most the 7 x 11"),
        ([RandomHorizontalFlip()] * 65, "at most 64 steps .* got 65"),
    ],
)
def test_steps_that_do_not_compose_are_refused(view, says):
    with pytest.raises(UsageError, match=says):
        compile_view(view)


def test_a_centre_crop_of_unknown_source_may_be_resized():
    compile_view([CenterCrop(178), Resize(64)])


def test_views_are_frozen_and_equal_by_value():
    assert RandomCrop(3, padding=1) == RandomCrop(3, padding=1)
    assert len({Resize(3), Resize(3), Resize(4)}) == 2
    with pytest.raises(FrozenInstanceError):
        Resize(3).size = 4  # type: ignore[misc]
    with pytest.raises(TypeError):
        RandomResizedCrop(3, (0.1, 1.0))  # type: ignore[misc]


def row(kind: float, *p: float) -> list[float]:
    return [kind, *p] + [0.0] * (9 - len(p))


@pytest.mark.parametrize(
    ("ops", "says"),
    [
        ([row(0)], "op 0 of the view: unknown kind 0"),
        ([row(NAN)], "unknown kind"),
        ([row(7, 0.5), row(13, 1)], "op 1 of the view: unknown kind 13"),
        ([row(11, 8, 8, 65, 1)], "parameter 2 is out of range: 65"),
        ([row(7, NAN)], "parameter 0 is out of range: nan"),
        ([row(3, 8, 8.5)], "parameter 1 is out of range"),
        ([row(3, 8, NAN)], "parameter 1 is out of range: nan"),
        ([row(3, 8, 1e30)], "parameter 1 is out of range"),
        ([row(1, 8, 8, 0.5, 0.1, 1, 1)], "must be .low, high."),
        ([row(1, 8, 8, 0.5, 0.6, 1e-9, 1)], "parameter 4 is out of range"),
        ([row(5, 8, 8, -1, 0, 0, 0, 0)], "parameter 2 is out of range"),
        ([row(7, 0.5)] * 65, "at most 64 ops"),
    ],
)
def test_the_core_checks_a_program_again(ops, says):
    with pytest.raises(ValueError, match=says):
        _core.output_size(np.array(ops))
