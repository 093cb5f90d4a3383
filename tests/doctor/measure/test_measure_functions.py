"""Functions that make a sample: shares by line, and no time counted twice."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from made_sessions import MadeRun, made_session

from headrace.doctor.measure.diagnosis import SampleFunction
from headrace.doctor.measure.view import main_view_of
from headrace.doctor.session.model import Session
from headrace.doctor.session.producers import ObservedCall, ObservedSample, SourceLine

FILE = "/home/ada/train.py"
LINE_31, LINE_32, LINE_40 = f"{FILE}:31:Depth.__getitem__", f"{FILE}:32:Depth.__getitem__", f"{FILE}:40:Jitter.__call__"
STAGES = {"getitem:rest": 6_000, "transform:Pillow resize": 3_000, "collate:default": 1_000}
"""A batch of 4: 1.5 ms of a sample's 2.5 in the dataset's own code."""


def call(stage: str, us: int, place: str | None = LINE_31, **facts: Any) -> ObservedCall:
    return ObservedCall(stage, place, {"us": us, **facts})


def with_samples(session: Session, *calls: ObservedCall, lines: dict[str, float] | None = None) -> Session:
    """Each maker had eight samples of these calls, the last one taking nine times as long, and `lines` by share."""
    for maker in session.makers:
        for slower in (*[1] * 7, 9):
            slow = [ObservedCall(one.stage, one.place, one.facts | {"us": one.facts["us"] * slower}) for one in calls]
            maker.samples.append(ObservedSample(0, 1, "7", 3_000, slow))
        busy = sum(maker.batches.fetched) - sum(maker.batches.start)
        maker.lines = [SourceLine(place, round(share * busy)) for place, share in (lines or {}).items()]
    return session


def functions(session: Session) -> dict[str, SampleFunction]:
    view = main_view_of(session)
    assert view is not None
    return {f"{one.category}:{one.name}": one for one in view.batch_production[0].functions}


@pytest.fixture
def session(tmp_path: Path) -> Session:
    return made_session(tmp_path, MadeRun(steps=600, stages=STAGES))


def test_a_stage_has_its_share_of_all_batches_whatever_inspected_samples_took(session: Session) -> None:
    found = functions(with_samples(session, call("transform:Pillow resize", 20), call("transform:Pillow resize", 60)))
    resize = found["transform:Pillow resize"]
    assert resize.share == pytest.approx(0.3)
    assert resize.wall_us == pytest.approx(750)


def test_a_stage_is_shared_out_among_its_lines_and_the_functions_inside(session: Session) -> None:
    calls = [
        call("transform:Pillow resize", 400, LINE_32),
        call("call:numpy.clip", 100, LINE_32, inside=0),
        call("transform:Pillow resize", 100),
    ]
    found = functions(with_samples(session, *calls))
    assert found["transform:Pillow resize"].share == pytest.approx(0.3 * 4 / 5)
    assert found["transform:Pillow resize"].places == [LINE_32, LINE_31]
    assert found["call:numpy.clip"].share == pytest.approx(0.3 / 5)
    assert found["call:numpy.clip"].inside == {"transform:Pillow resize": pytest.approx(0.06)}


def test_a_sample_that_lost_its_core_hardly_counts(session: Session) -> None:
    found = functions(with_samples(session, call("call:torch.quantile", 500)))
    assert found["call:torch.quantile"].share == pytest.approx(500 * 9 / 8 / 2_500)
    assert found["call:torch.quantile"].places == [LINE_31]


def test_slow_calls_count_in_full_where_stack_samples_bound_them(session: Session) -> None:
    """A call that draws what it does is slow now and then; the mean of a few is what there is to go by."""
    found = functions(with_samples(session, call("call:torch.quantile", 500), lines={LINE_31: 0.6}))
    assert found["call:torch.quantile"].share == pytest.approx(500 * 16 / 8 / 2_500)


def test_calls_are_no_more_than_the_stack_samples_of_their_line(session: Session) -> None:
    calls = [call("call:torch.quantile", 600), call("call:numpy.pad", 300)]
    found = functions(with_samples(session, *calls, lines={LINE_31: 0.15, LINE_32: 0.5}))
    assert found["call:torch.quantile"].share == pytest.approx(0.1)
    assert found["call:numpy.pad"].share == pytest.approx(0.05)


def test_calls_are_no_more_than_the_stage_around_them(session: Session) -> None:
    calls = [call("call:torch.quantile", 4_000), call("call:numpy.pad", 4_000, LINE_32)]
    found = functions(with_samples(session, *calls))
    assert found["call:torch.quantile"].share + found["call:numpy.pad"].share == pytest.approx(0.6)


def test_what_lines_take_besides_calls_is_the_scripts_own_python(session: Session) -> None:
    calls = [call("call:torch.quantile", 250), call("transform:Pillow resize", 700, LINE_32)]
    found = functions(with_samples(session, *calls, lines={LINE_31: 0.5, LINE_32: 0.4}))
    own = found["getitem:Depth.__getitem__"]
    assert own.share == pytest.approx(0.5 - found["call:torch.quantile"].share + 0.1, rel=0.05)
    assert own.places == [LINE_31, LINE_32]


def test_a_transform_of_the_scripts_own_has_its_line_and_is_counted_once(tmp_path: Path) -> None:
    stages = {"transform:Jitter": 8_000, "getitem:rest": 2_000}
    made = with_samples(
        made_session(tmp_path, MadeRun(steps=600, stages=stages)),
        call("transform:Jitter", 1_900, None, **{"class": "__main__.Jitter"}),
        lines={LINE_40: 0.8, LINE_31: 0.1},
    )
    found = functions(made)
    assert found["transform:Jitter"].places == [LINE_40]
    assert "getitem:Jitter.__call__" not in found
    assert sum(one.share for one in found.values()) <= 1


def test_a_transform_inside_a_function_is_what_that_function_does(session: Session) -> None:
    calls = [call("call:PIL.ImageEnhance", 900), call("transform:Pillow resize", 600, inside=0)]
    found = functions(with_samples(session, *calls, lines={LINE_31: 0.9}))
    assert "transform:Pillow resize" not in found
    enhance = found["call:PIL.ImageEnhance"]
    assert enhance.inside == {"transform:Pillow resize": pytest.approx(0.3), "getitem:rest": pytest.approx(0.24)}
    assert enhance.share == pytest.approx(0.54)


def test_pictures_of_another_mode_are_another_function(tmp_path: Path) -> None:
    stages = {"decode:Pillow load": 8_000, "getitem:rest": 2_000}
    calls = [
        call("decode:Pillow load", 900, LINE_31, mode="RGB", format="PNG"),
        call("decode:Pillow load", 900, LINE_32, mode="I;16", format="PNG"),
    ]
    found = functions(with_samples(made_session(tmp_path, MadeRun(stages=stages)), *calls))
    assert found["decode:Pillow load I;16"].share == pytest.approx(0.4)
    assert found["decode:Pillow load I;16"].given == {"mode": "I;16", "format": "PNG"}


@pytest.mark.parametrize(
    "facts",
    [
        {"image": {"shape": [480, 640], "dtype": "uint16"}},
        {"gives": ["ndarray", [480, 640], "uint16"]},
        {"function": "numpy.pad", "arguments": [{"array": "numpy", "shape": [480, 640], "dtype": "uint16"}, 3]},
    ],
    ids=["taken", "given", "of an earlier doctor"],
)
def test_a_function_is_told_with_the_array_of_its_calls(session: Session, facts: dict[str, Any]) -> None:
    found = functions(with_samples(session, call("call:numpy.pad", 200, **facts)))
    assert found["call:numpy.pad"].given == {"shape": [480, 640], "dtype": "uint16"}


def test_what_is_inside_of_nothing_known_counts_for_the_dataset(session: Session) -> None:
    """Evidence may come from anywhere: numbers of calls that are not there, or that name each other."""
    calls = [call("call:numpy.pad", 200, inside=9), call("call:numpy.clip", 200, inside=1)]
    found = functions(with_samples(session, *calls))
    assert found["call:numpy.pad"].inside == {"getitem:rest": pytest.approx(0.08 * 9 / 8)}
