"""Costly functions of samples as findings: named with their line, priced, and with what in Headrace does them."""

from __future__ import annotations

import ast
import inspect
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
from machine_findings import quantities
from made_sessions import MadeRun, made_session
from markupsafe import escape
from recorded_scripts import recorded
from report_pages import said, text

import headrace as hr
from headrace.doctor.causes import diagnose
from headrace.doctor.causes.sample_functions import (
    COUNTERPARTS,
    LEAST,
    MOST,
    SAME_NAME,
    SAMPLE_FUNCTION,
    at_lines,
    counterpart_of,
)
from headrace.doctor.measure.diagnosis import Finding, SampleFunction
from headrace.doctor.probe.sample_calls import WATCHED, called
from headrace.doctor.report.html.page import html_page
from headrace.doctor.report.view import report_view
from headrace.doctor.session.after_run import AdoptedPart, LoaderTrial
from headrace.doctor.session.model import Session
from headrace.doctor.session.producers import ObservedCall, ObservedSample


def findings(session: Session) -> list[Finding]:
    return [one for one in diagnose(session).findings if one.code == SAMPLE_FUNCTION]


def function(category: str, name: str, **given: Any) -> SampleFunction:
    return SampleFunction(category, name, [], 0.5, 1_000.0, {}, "", given)


@pytest.mark.parametrize("code", sorted({one.code for one in COUNTERPARTS}))
def test_every_counterpart_is_there_with_its_arguments(code: str) -> None:
    """It is parsed and every call of it bound to the signature of what it calls, `…` being any value."""
    (statement,) = ast.parse(f"made({code.replace('=…', '=None').replace('…', 'None')})").body
    assert isinstance(statement, ast.Expr)
    assert isinstance(statement.value, ast.Call)
    made = statement.value
    arguments = inspect.signature(hr.Loader).parameters
    assert {keyword.arg for keyword in made.keywords} <= set(arguments)
    calls = [node for node in ast.walk(made) if isinstance(node, ast.Call) and node is not made]
    assert calls
    for one in calls:
        assert isinstance(one.func, ast.Attribute)
        named = inspect.signature(getattr(hr, one.func.attr))
        given = [
            argument for argument in one.args if not (isinstance(argument, ast.Constant) and argument.value is None)
        ]
        named.bind_partial(*given, **{str(keyword.arg): None for keyword in one.keywords})


@pytest.mark.parametrize("name", SAME_NAME)
def test_transforms_of_the_same_name_are_augmentations(name: str) -> None:
    found = counterpart_of(function("transform", name))
    assert found is not None
    assert found.code == f"augment=hr.{name}(…)"


def test_quantiles_of_a_depth_map_have_a_counterpart_and_those_of_colours_none() -> None:
    depth = counterpart_of(function("call", "numpy.percentile", shape=[480, 640], dtype="uint16"))
    assert depth is not None
    assert depth.code == "hr.Depth(normalize=hr.Quantiles(…))"
    assert counterpart_of(function("call", "numpy.percentile", shape=[480, 640, 3], dtype="uint8")) is None
    assert counterpart_of(function("call", "torch.quantile")) is None  # nobody knows of what


def test_a_resize_of_floats_says_that_there_were_bytes_before() -> None:
    of_floats = counterpart_of(function("transform", "torchvision resize", shape=[3, 480, 640], dtype="float32"))
    of_bytes = counterpart_of(function("transform", "torchvision resize", shape=[3, 480, 640], dtype="uint8"))
    assert of_floats is not None
    assert of_bytes is not None
    assert of_floats.code == of_bytes.code == "view=hr.Resize(…)"
    assert "float" in of_floats.does
    assert "float" not in of_bytes.does


def test_patterns_of_followed_functions_are_functions_that_are_followed() -> None:
    """A name that is misspelt in the table would be no counterpart of anything."""
    followed = {called(f"{module}.{name}") for module, names in WATCHED.items() for name in names}
    named = {one.partition(":")[2] for row in COUNTERPARTS for one in row.functions if one.startswith("call:")}
    assert {name for name in named if "*" not in name} <= followed


def test_the_depth_scripts_functions_are_named_with_lines_prices_and_counterparts() -> None:
    found = findings(recorded("depth_tar"))
    assert 1 < len(found) <= MOST
    resize = next(one for one in found if one.text.startswith("torchvision resize"))
    assert quantities(resize.text)[:2] == ["42", "9.8 %"]
    assert quantities(resize.evidence)[:1] == ["7.1 ms"]
    quantiles = next(one for one in found if one.text.startswith("torch.quantile"))
    assert quantities(quantiles.text)[:2] == ["48", "49"]
    assert "hr.Depth(normalize=hr.Quantiles(…))" in quantiles.text
    assert all(0 < one.weight < 1 for one in found)


def test_a_session_whose_calls_had_more_facts_is_still_rendered() -> None:
    session = recorded("depth_tar")
    assert any("arguments" in call.facts for maker in session.makers for one in maker.samples for call in one.calls)
    diagnosis = diagnose(session)
    named = "torch.quantile at depth_tar.py:48 and 49 is "
    assert named in " ".join(text(report_view(session, diagnosis, None)).split())
    assert named in html_page(report_view(session, diagnosis, None))


def test_the_verdict_names_the_function_that_takes_most() -> None:
    functions = {
        name: [one.text for one in diagnose(recorded(name)).statements if one.code == "sample-function"]
        for name in ("masks_scale", "captions_csv")
    }
    (captions,) = functions["captions_csv"]
    assert captions.startswith("Resize (torchvision)")
    assert "captions_csv.py:45" in captions
    assert quantities(captions)[-1] == "32 %"
    assert len(functions["masks_scale"]) <= 1


@pytest.mark.parametrize(("forward", "count"), [(1_000, 1), (400_000, 0)])
def test_a_function_is_a_cause_only_where_steps_wait(tmp_path: Path, forward: int, count: int) -> None:
    session = made_session(tmp_path, MadeRun(stages={"transform:Pillow resize": 40_000}, forward=forward))
    calls = [ObservedCall("transform:Pillow resize", "/a/train.py:31:Photos.__getitem__", {"us": 10_000})]
    session.makers[0].samples = [ObservedSample(0, 1, "7", 10_000, calls)]
    found = findings(session)
    assert len(found) == count
    assert all(one.weight == pytest.approx(0.8, abs=0.1) for one in found)  # 20 ms a step, of which 3.5 are its own


def test_every_report_has_the_function_and_escapes_its_name(tmp_path: Path) -> None:
    session = made_session(tmp_path, MadeRun(stages={"transform:<b>Tilt": 40_000}))
    calls = [ObservedCall("transform:<b>Tilt", "/a/<i>.py:31:f\x1b[2J", {"us": 10_000})]
    session.makers[0].samples = [ObservedSample(0, 1, "7", 10_000, calls)]
    diagnosis = diagnose(session)
    sentence = "<b>Tilt at <i>.py:31 is 100 % of making a batch."
    shown, page = text(report_view(session, diagnosis, None)), html_page(report_view(session, diagnosis, None))
    assert sentence in said(diagnosis)
    assert sentence in " ".join(shown.split())
    assert str(escape(sentence)) in page
    assert "<b>Tilt" not in page
    assert "\x1b" not in shown + page
    (told,) = [one for one in asdict(diagnosis)["findings"] if one["code"] == SAMPLE_FUNCTION]
    assert "map=" in told["advice"]


def trial(*parts: AdoptedPart) -> LoaderTrial:
    return LoaderTrial("measured", degree="draft", parts=list(parts))


def test_what_the_loader_takes_over_points_to_that_remedy() -> None:
    took = AdoptedPart("TF.resize(image)", "depth_tar.py:42", "view: hr.Resize((256, 320))", "exact")
    kept = AdoptedPart("torch.quantile(depth, 0.02)", "depth_tar.py:48", "", "python")
    found = findings(replace(recorded("depth_tar"), loader_trial=trial(took, kept)))
    resize = next(one for one in found if one.text.startswith("torchvision resize"))
    quantiles = next(one for one in found if one.text.startswith("torch.quantile"))
    assert quantities(resize.advice) == ["256,", "320"]
    assert "map=" in quantiles.advice


def test_a_part_of_another_line_says_nothing_of_a_function() -> None:
    other = AdoptedPart("TF.resize(image)", "other_depth_tar.py:42", "nothing", "exact")
    found = findings(replace(recorded("depth_tar"), loader_trial=trial(other)))
    resize = next(one for one in found if one.text.startswith("torchvision resize"))
    assert "view=hr.Resize(…)" in resize.advice
    assert "nothing" not in resize.advice


def test_small_functions_are_no_findings() -> None:
    assert all(float(one.text.split(" is ")[1].split()[0]) >= LEAST * 100 for one in findings(recorded("depth_tar")))


def test_lines_are_those_of_one_file() -> None:
    places = ["/a/train.py:9:f", "/a/train.py:7:f", "/b/other.py:3:g", "/a/train.py:1:f"]
    assert at_lines(places).split()[1:] == ["train.py:7", "and", "9"]
    assert at_lines([]) == ""
