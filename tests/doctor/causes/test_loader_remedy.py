"""The remedy `loader`: what it is predicted to give, where it stands, and how it is said, by trials that are made."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from machine_findings import quantities
from made_prescriptions import ROOMY, helping, made, prescribed, why_not
from made_sessions import MadeRun, replace
from report_pages import printed, text

from headrace.doctor.causes import diagnose
from headrace.doctor.causes.loader import coverage
from headrace.doctor.report.html_page import html_page
from headrace.doctor.report.outputs import Outputs, document
from headrace.doctor.report.remedy_text import part_line
from headrace.doctor.report.view import report_view
from headrace.doctor.session.after_run import AdoptedPart, LoaderTrial
from headrace.doctor.session.model import Session
from headrace.errors import UsageError

pytestmark = pytest.mark.usefixtures("kept_simulations")

SLOW = MadeRun(stages={"decode:Pillow load": 36_000, "collate:default": 4_000}, cpu=1.0, facts={"length": 100})
"""40 ms a batch in two workers: a step takes 20 ms, and 3.5 ms of them are the training's own."""
MODULE = "import headrace as hr\n"
PARTS = [
    AdoptedPart("ImageFolder('/data')", "loader", "hr.open('/data')", "exact"),
    AdoptedPart("Resize(256)", "view", "hr.Resize(256)", "check", "the filter is not known"),
]


def tried(batch_us: float = 5_000, *, cpu_us: float | None = None, **changes: Any) -> LoaderTrial:
    """A trial whose batches come every so often, in steps of a stand-in of 3.5 ms that wait for them."""
    usual = LoaderTrial(
        "measured",
        module=MODULE,
        batch_us=[batch_us] * 20,
        loaded_us=[max(batch_us, 3_500.0)] * 20,
        cpu_us=batch_us if cpu_us is None else cpu_us,
        peak_bytes=200_000_000,
        threads=2,
        batch_size=4,
        samples=160,
        first_us=1e5,
        stand_in_us=3_500.0,
        degree="exact",
        parts=PARTS[:1],
    )
    return replace(usual, **changes)


def with_trial(trial: LoaderTrial | None, run: MadeRun = SLOW) -> Session:
    session = made(run, facts=ROOMY)
    session.loader_trial = trial
    return session


@pytest.mark.one_in(4)
@pytest.mark.parametrize(("batch_us", "step_us"), [(1_000, 3_500), (5_000, 5_000), (12_000, 12_000)])
def test_a_step_takes_as_long_as_its_batches_or_its_own_work(batch_us: float, step_us: float) -> None:
    found = helping(with_trial(tried(batch_us)), "loader")
    assert found.prediction is not None
    assert found.prediction.step_us == pytest.approx(step_us, rel=0.05)
    assert found.prediction.low_us - 1 < step_us < found.prediction.high_us
    assert found.prediction.speedup == pytest.approx(20_000 / step_us, rel=0.05)


@pytest.mark.long
def test_what_was_measured_alongside_a_step_counts_and_widens_the_interval() -> None:
    usual = helping(with_trial(tried(2_000)), "loader").prediction
    hindered = helping(with_trial(tried(2_000, loaded_us=[7_000.0] * 20)), "loader").prediction
    unknown = helping(with_trial(tried(2_000, loaded_us=[], stand_in_us=None)), "loader").prediction
    assert usual is not None
    assert hindered is not None
    assert unknown is not None
    assert usual.step_us == pytest.approx(3_500, rel=0.05)
    assert hindered.step_us == pytest.approx(7_000, rel=0.05)
    assert hindered.high_us / hindered.low_us > usual.high_us / usual.low_us
    assert unknown.high_us / unknown.low_us > usual.high_us / usual.low_us
    # The stand-in took 2 ms longer than the step that it stands for: so does what was measured with it.
    slower = helping(with_trial(tried(2_000, loaded_us=[7_000.0] * 20, stand_in_us=5_500.0)), "loader").prediction
    assert slower is not None
    assert slower.step_us == pytest.approx(5_000, rel=0.05)


def test_the_loader_has_no_room_beside_a_team_on_few_cores() -> None:
    """Two cores, 10 ms of work a batch, a step that computes for 3.5 ms: no step is shorter than both together."""
    session = made(SLOW, facts=ROOMY | {"cores": 2})
    session.loader_trial = tried(5_000, cpu_us=10_000, loaded_us=[], stand_in_us=None)
    found = helping(session, "loader")
    assert found.prediction is not None
    assert found.prediction.step_us >= (10_000 + 3_500) / 2 * 0.95


@pytest.mark.parametrize(
    ("wrapper", "takes"),
    [("timm.data.loader.PrefetchLoader", "loader.loader = "), ("mine.Loader", " make_dataloader()")],
)
def test_behind_timms_prefetcher_the_hint_names_what_takes_the_batches(wrapper: str, takes: str) -> None:
    session = with_trial(tried())
    session.trainers[0].loaders[0].facts["described"] = {"wrapper": {"class": wrapper}}
    assert takes in helping(session, "loader").hint


@pytest.mark.long
def test_a_draft_says_what_is_to_be_checked_and_is_not_injected() -> None:
    session = with_trial(tried(degree="draft", reason="The filter is not known.", parts=PARTS))
    found = helping(session, "loader")
    assert found.title.endswith("(draft)")
    assert found.changes is None
    assert session.loader_trial is not None
    assert found.why.endswith(session.loader_trial.reason)
    assert ["1", "2"] in [quantities(cost) for cost in found.costs]
    assert "--draft FILE" in found.hint
    assert "loader" not in prescribed(session).together
    page = " ".join(text(report_view(session, diagnose(session), prescribed(session))).split())
    for part in PARTS:
        assert part_line(part) in page
        assert part_line(part).startswith(f"{part.part} → {part.becomes}")
        assert part.note in part_line(part)


@pytest.mark.parametrize(
    ("covered", "left", "different", "counts", "names"),
    [
        (["image", "mask", "depth"], {}, [], ["3"], ""),
        (["image", "mask"], {"depth": "float32[1, 4, 4]"}, [], ["2", "3"], "depth"),
        (["image"], {"depth": "str", "id": "str"}, [], ["1", "3"], "depth, id"),
        (["image", "mask"], {}, ["mask"], ["1", "2"], "mask"),
        (["image"], {}, [], [], ""),
    ],
)
def test_coverage_counts_the_arrays_of_a_batch(
    covered: list[str], left: dict[str, str], different: list[str], counts: list[str], names: str
) -> None:
    parts = [AdoptedPart(path, "", "", "check", "its values differ") for path in different]
    made, _, rest = coverage(LoaderTrial("measured", parts=parts, covered=covered, left=left)).partition("; ")
    assert quantities(made) == counts
    assert rest.startswith(names)
    assert bool(rest) == bool(names)
    assert coverage(LoaderTrial("measured")) == ""


def test_a_part_promises_no_more_than_its_python_lets() -> None:
    """The Loader takes 1 ms a batch; the rest of making it stays in Python, all of it where pixels do."""
    usual = helping(with_trial(tried(1_000, covered=["0", "1"])), "loader")
    beside = helping(with_trial(tried(1_000, degree="part", covered=["0", "1"], left={"2": "str"})), "loader")
    assert [quantities(one.coverage)[:2] for one in (usual, beside)] == [["2"], ["2", "3"]]
    assert usual.prediction is not None
    assert beside.prediction is not None
    assert usual.prediction.step_us <= beside.prediction.step_us
    assert (beside.changes, beside.edit, beside.confidence) == (None, None, "low")
    left = {"2": "float32[1, 3, 64, 64]"}
    pixels = {one.code: one for one in prescribed(with_trial(tried(1_000, covered=["0"], left=left))).remedies}
    assert not pixels["loader"].helps


def test_an_exact_one_is_injected_and_goes_alone() -> None:
    session = with_trial(tried(1_000))
    found = helping(session, "loader")
    assert found.changes == {"loader": {"module": MODULE, "loaders": [0]}}
    assert quantities(found.costs[0]) == ["200 MB"]
    assert prescribed(session).together == ["loader"]


@pytest.mark.parametrize(
    ("trial", "ending"),
    [
        (
            LoaderTrial("failed", "making the first batch\nValueError: no <column>", degree="exact"),
            ": making the first batch · ValueError: no <column>",
        ),
        (
            LoaderTrial(
                "failed", 'File "a.py", line 3, in f\n    x = g(\n        ^^\nUsageError: field', degree="draft"
            ),
            ": UsageError: field",
        ),
        (LoaderTrial("timed out", "opening took 15 s", degree="draft"), ": opening took 15 s"),
        (LoaderTrial("out of memory", "it took 2.0 GB", degree="draft"), ": it took 2.0 GB"),
        (LoaderTrial("not tried", "", degree="no", reason="ffmpeg decodes."), "ffmpeg decodes."),
        (LoaderTrial("not tried", "Only observed.", degree="exact"), "Only observed."),
    ],
)
@pytest.mark.one_in(3)
def test_why_not(trial: LoaderTrial, ending: str) -> None:
    assert why_not(with_trial(trial), "loader").endswith(ending)


def test_reports_escape_what_the_script_holds() -> None:
    hostile = "<script>alert(1)</script>\x1b[2J"
    part = AdoptedPart(hostile, hostile, hostile, "check", hostile)
    session = with_trial(tried(degree="draft", reason=hostile, parts=[part], module=hostile))
    diagnosis, whole = diagnose(session), prescribed(session)
    page = html_page(report_view(session, diagnosis, whole, again=""))
    assert "<script>alert" not in page
    assert "\x1b" not in page + text(report_view(session, diagnosis, whole)) + printed(session, diagnosis, whole)
    assert "\x1b" not in document(session, diagnosis, whole)


def test_a_draft_is_written_to_a_new_file_only(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    session = with_trial(tried(degree="draft", parts=PARTS))
    path = tmp_path / "loader.py"
    outputs = Outputs(draft=path)
    outputs.check()
    assert outputs.put(session, diagnose(session), prescribed(session), saved=None) == []
    assert path.read_text() == MODULE
    assert quantities(capsys.readouterr().err.partition(str(path))[2])[0] == "1"
    path.write_text("mine")
    with pytest.raises(UsageError, match=r"^--draft: .*loader\.py"):
        outputs.check()
    assert len(outputs.put(session, diagnose(session), prescribed(session), saved=None)) == 1
    assert path.read_text() == "mine"
