"""The HTML report: what it says, that it is one small file which loads and runs nothing, and that its figures hold."""

from __future__ import annotations

import base64
import hashlib
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from html_pages import large_page, made_page, parsed, sections, words
from made_reports import made_diagnosis, made_prescription, made_ranks, made_session
from made_sessions import MadeRun, machine, replace
from made_sessions import made_session as simulated
from report_pages import GOLDEN

from headrace.doctor.causes import Edit, diagnose
from headrace.doctor.measure.diagnosis import Diagnosis, Statement
from headrace.doctor.report.html_page import FOLDER, MOST_BYTES, environment, html_page
from headrace.doctor.report.run_text import ending
from headrace.doctor.report.view import Segment, report_view
from headrace.doctor.session.model import CommandOutcome, Session

NOTHING = Diagnosis(Statement("no-training", "No training was seen."), None, "cpu")
REFERS = ("href", "src", "action", "data", "poster", "srcset", "background", "xlink:href", "formaction", "manifest")


def test_looks_as_it_was_agreed() -> None:
    """Without its style sheet, which has tests of its own, and without empty lines."""
    page = re.sub(r"<style>.*?</style>|<meta http-equiv[^>]*>", "", made_page(), flags=re.DOTALL)
    lines = "".join(f"{line.strip()}\n" for line in page.splitlines() if line.strip())
    assert lines == (GOLDEN / "report.html").read_text(encoding="utf-8")


@pytest.mark.parametrize(("share", "badges"), [(0.7, ["●"]), (0.12, ["◐"]), (0.07, ["◐"]), (0.01, ["○"]), (None, [])])
def test_a_badge_agrees_with_the_verdict(share: float | None, badges: list[str]) -> None:
    page = html_page(report_view(made_session(), replace(made_diagnosis(), wait_share=share), made_prescription()))
    assert [words(tag)[0] for tag in parsed(page) if tag.attributes.get("class") == "badge"] == badges


def test_what_goes_together_is_drawn_where_nothing_refused_it() -> None:
    prescription = replace(made_prescription(), outcomes=[], left_out=[], together=["indexed-tar", "workers"])
    page = html_page(report_view(made_session(), made_diagnosis(), prescription))
    assert "Together: 1, 2" in words(sections(page)["remedies"])
    assert "Together" not in words(sections(made_page())["remedies"])


def test_a_diff_keeps_lines_that_look_like_names_of_files() -> None:
    first, *others = made_prescription().remedies
    edit = Edit("a.sql", 3, "--- a/a.sql\n+++ b/a.sql\n@@ -3 +3 @@\n--- old comment\n+++ counter\n")
    prescription = replace(made_prescription(), remedies=[replace(first, edit=edit), *others])
    page = parsed(html_page(report_view(made_session(), made_diagnosis(), prescription)))
    lines = [(tag.attributes["class"], tag.text) for tag in page if tag.name == "span" and "pre" in tag.inside]
    assert lines == list(zip(("place", "less", "more"), edit.diff.splitlines()[2:], strict=True))


def test_nothing_is_loaded_from_elsewhere_and_nothing_runs() -> None:
    for tag in parsed(made_page()):
        assert tag.name not in {"script", "iframe", "object", "embed", "link", "base", "img", "form"}
        assert not [name for name in tag.attributes if name.startswith("on") or name == "style"]
        for name in REFERS:
            assert tag.attributes.get(name, "#").startswith("#")
    style = next(tag.text for tag in parsed(made_page()) if tag.name == "style")
    assert not re.search(r"url\(|@import|expression", style)


def test_the_policy_allows_the_one_style_sheet_and_nothing_else() -> None:
    tags = parsed(made_page())
    policy = next(tag for tag in tags if tag.attributes.get("http-equiv") == "Content-Security-Policy")
    style = next(tag.text for tag in tags if tag.name == "style")
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    allowed = f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    assert policy.attributes["content"] == allowed
    assert tags.index(policy) < min(tags.index(tag) for tag in tags if tag.name == "style")


@pytest.mark.long
def test_ten_thousand_steps_of_eight_ranks_are_less_than_a_megabyte() -> None:
    assert len(large_page().encode()) < MOST_BYTES


@pytest.mark.long
def test_texts_without_end_are_cut_so_that_the_page_stays_small() -> None:
    evil = "<&\U000e0041" * 1_000
    session, diagnosis, prescription = made_session(40), made_ranks(), made_prescription()
    making = diagnosis.batch_production[0]
    diagnosis = replace(
        diagnosis,
        verdict=Statement("input-bound", evil),
        findings=[replace(diagnosis.findings[0], text=evil, evidence=evil, advice=evil)] * 200,
        batch_production=[
            replace(
                making,
                stages=[replace(stage, label=evil) for stage in making.stages] * 30,
                lines=[replace(making.lines[0], place=evil)] * 200,
            )
        ],
        ranks=[replace(rank, cause=evil) for rank in diagnosis.ranks] * 200,
    )
    edit = replace(prescription.remedies[0].edit, diff=f"+{evil}\n" * 500)  # type: ignore[type-var]
    remedies = [replace(prescription.remedies[0], title=evil, why=evil, costs=[evil] * 50, edit=edit)] * 100
    page = html_page(report_view(session, diagnosis, replace(prescription, remedies=remedies), again=evil))
    assert len(page.encode()) < MOST_BYTES
    assert "336 ranks" in page


def test_a_session_without_anything_has_a_page() -> None:
    session = Session("", "measure", "", None, 0, CommandOutcome(["x"], 0, "finished", 1_000_000))
    page = html_page(report_view(session, NOTHING))
    assert NOTHING.verdict.text in page
    assert list(sections(page)) == []


def test_a_command_that_failed_shows_its_last_words() -> None:
    outcome = CommandOutcome(["python", "x.py"], 3, "failed", 2_000_000, ["Traceback", "ValueError: <odd>"])
    page = html_page(report_view(replace(made_session(), outcome=outcome), NOTHING))
    assert "ValueError: &lt;odd&gt;" in page
    assert ending(outcome) in page


@pytest.mark.parametrize(
    "run",
    [
        MadeRun(steps=60, slow_batches={30: 200_000}),
        MadeRun(steps=60, workers=0),
        MadeRun(steps=60, workers=4, prefetch=1, gpu=True),
        MadeRun(steps=1),
    ],
)
def test_simulated_runs_have_pages(run: MadeRun, tmp_path: Path) -> None:
    session = simulated(tmp_path, run, machines=[machine(cores=2)])
    page = html_page(report_view(session, diagnose(session)))
    names = list(sections(page))
    assert {"step", "machine"} <= set(names)
    parsed(page)


@pytest.mark.long
def test_the_templates_are_in_the_wheel(tmp_path: Path) -> None:
    root = Path(__file__).parents[3]
    options = ["--no-deps", "--no-build-isolation", "--quiet", "-C", "wheel.cmake=false", "-C", f"build-dir={tmp_path}"]
    subprocess.run(
        [sys.executable, "-m", "pip", "wheel", str(root), *options, "-w", str(tmp_path)], check=True, timeout=110
    )
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = {Path(name).name for name in archive.namelist() if "/report/templates/" in name}
    assert names == {path.name for path in FOLDER.iterdir()}


def stacked(*arguments: object, **named: object) -> str:
    return str(environment().get_template("parts.html").module.stacked(*arguments, **named))  # type: ignore[attr-defined]


def test_pieces_lie_end_to_end() -> None:
    pieces = [Segment("data wait", 1, "a"), Segment("backward", 0, "none"), Segment("optimizer", 3, "b")]
    shown = stacked(pieces, top=4, label="said", labelled=True)
    assert re.findall(r'x="([\d.]+%)" width="([\d.]+%)"', shown) == [("0%", "25%"), ("25%", "75%")]
    assert re.findall(r">(\d+ %)<", shown) == ["25 %", "75 %"]


def test_texts_in_charts_are_escaped() -> None:
    shown = stacked([Segment("data wait", 1, "</svg><script>\x1b")], top=1, label='"><b>')
    assert 'aria-label="&#34;&gt;&lt;b&gt;"' in shown
    assert "<title>&lt;/svg&gt;&lt;script&gt;\\x1b</title>" in shown
    long = stacked([Segment("data wait", 1, "x" * 400)], top=1, label="<i>")
    assert f"<title>{'x' * 299}…</title>" in long


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_texts_and_colours_stand_out_from_what_they_lie_on(scheme: str) -> None:
    colours = _colours(scheme)
    grounds = (colours["ground"], colours["panel"])
    for ground in grounds:
        for name in ("text", "soft", "link", "red", "yellow", "green"):
            assert _contrast(colours[name], ground) >= 4.5, (name, ground)
    fills = ("wait", "amber", "sky", "blue", "teal", "purple", "pink", "slate", "other", "olive", "brown")
    for name in fills:
        assert _contrast(colours[name], colours["ground"]) >= 3, name
        assert _contrast(colours["on"], colours[name]) >= 4.5, name
    assert _contrast(colours["more"], colours["more-ground"]) >= 4.5
    assert _contrast(colours["less"], colours["less-ground"]) >= 4.5


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_waiting_can_be_told_from_computing_without_seeing_red_or_green(scheme: str) -> None:
    """Blue against yellow is what those who see no red or no green have left, and lightness."""
    colours = _colours(scheme)
    for name in ("sky", "blue", "teal", "purple", "slate", "other"):
        assert _yellow(colours["wait"]) - _yellow(colours[name]) >= 60, name


def _colours(scheme: str) -> dict[str, str]:
    light, dark = re.findall(r":root \{(.*?)\}", (FOLDER / "style.css").read_text(encoding="utf-8"), re.DOTALL)[:2]
    found = dict(re.findall(r"--([\w-]+): (#[0-9a-f]{3,6})", light))
    if scheme == "dark":
        found |= dict(re.findall(r"--([\w-]+): (#[0-9a-f]{3,6})", dark))
    return found


def _contrast(one: str, other: str) -> float:
    """WCAG 2.2, contrast ratio."""
    high, low = sorted((_luminance(one), _luminance(other)), reverse=True)
    return (high + 0.05) / (low + 0.05)


def _luminance(colour: str) -> float:
    linear = [value / 12.92 if value <= 0.04045 else ((value + 0.055) / 1.055) ** 2.4 for value in _rgb(colour)]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def _yellow(colour: str) -> float:
    red, green, blue = _rgb(colour)
    return 255 * ((red + green) / 2 - blue)


def _rgb(colour: str) -> list[float]:
    digits = colour[1:] if len(colour) == 7 else "".join(digit * 2 for digit in colour[1:])
    return [int(digits[at : at + 2], 16) / 255 for at in (0, 2, 4)]
