"""The live view: evidence is read as it grows, and what is shown of it is true."""

from __future__ import annotations

import io
import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from attach_runs import interrupted_on_terminal
from machine_findings import quantities
from report_pages import GOLDEN
from rich.console import Console

from headrace.doctor.measure import CurrentWindow, DiagnosisPlan, RunMeter, RunProgress
from headrace.doctor.probe.settings import ProbeSettings
from headrace.doctor.report.live import RunStatus, live_line, live_page

SECOND = 1_000_000


def append(path: Path, *records: Any, end: str = "\n") -> None:
    with open(path, "a", encoding="utf-8") as file:
        file.write("\n".join(map(json.dumps, records)) + end)


def step(number: int, start: int, end: int) -> list[Any]:
    return ["step", number, start, end, [], 3]


def get(start: int, duration: int) -> list[Any]:
    return ["get", 0, 0, start, duration, None, None, None, None, None, None]


def batch(start: int, end: int, stages: list[list[int]]) -> list[Any]:
    return ["batch", 0, 0, start, end, end, 10, 4, stages]


def progress(folder: Path, **asked: Any) -> RunProgress:
    """Return what one look at the evidence in `folder` finds."""
    return RunMeter(settings(folder, **asked)).look()


def test_each_record_is_read_once_and_only_when_whole(tmp_path: Path) -> None:
    file = evidence(tmp_path) / "a.jsonl"
    meter = RunMeter(settings(tmp_path))
    assert meter.look() == RunProgress()
    append(file, get(0, 40), step(0, 0, 100))
    append(file, step(1, 100, 200), end="")
    assert (meter.look(), meter.look()) == (progress(tmp_path),) * 2
    append(file, end="\n")
    now = meter.look()
    assert (now.step, now.wait_share) == (1, pytest.approx(0.2))


def test_new_files_are_found_and_damaged_lines_passed_over(tmp_path: Path) -> None:
    meter = RunMeter(settings(tmp_path))
    append(evidence(tmp_path) / "a.jsonl", step(0, 0, 100))
    assert meter.look().step == 0
    damaged = b'{"no": "list"}\n\xff\xfe\nnot json\n[]\n'
    (evidence(tmp_path) / "b.jsonl").write_bytes(damaged + json.dumps(step(7, 100, 200)).encode() + b"\n")
    assert meter.look().step == 7


def test_what_is_longer_than_one_look_comes_with_the_next(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headrace.doctor.measure.run_meter.MOST_BYTES_AT_ONCE", 60)
    append(evidence(tmp_path) / "a.jsonl", *(step(number, number, number + 1) for number in range(10)))
    meter = RunMeter(settings(tmp_path))
    seen = [meter.look().step for _ in range(8)]
    assert seen[0] != 9
    assert seen[-1] == 9


def test_the_pace_of_a_run(tmp_path: Path) -> None:
    """Ten steps of 100 ms that wait 70; two workers make a batch of 150 in each 200 ms."""
    folder = evidence(tmp_path)
    append(folder / "trainer.jsonl", *(get(n * 100_000, 70_000) for n in range(10)))
    append(folder / "trainer.jsonl", *(step(n, n * 100_000, (n + 1) * 100_000) for n in range(10)))
    for worker in range(2):
        made = [batch(n * 200_000, n * 200_000 + 150_000, [[0, 4, 90_000, 1], [1, 4, 60_000, 1]]) for n in range(5)]
        append(folder / f"worker{worker}.jsonl", ["name", 0, "decode:x"], ["name", 1, "read:y"], *made)
    assert progress(tmp_path) == RunProgress(
        step=9,
        steps_per_s=pytest.approx(10),
        wait_share=pytest.approx(0.7),
        workers=2,
        busy=pytest.approx(0.75),
        stages=[("decode:x", pytest.approx(0.6)), ("read:y", pytest.approx(0.4))],
    )


def test_the_pace_forgets(tmp_path: Path) -> None:
    old, new = [get(0, SECOND), step(0, 0, SECOND)], [get(60 * SECOND, 0), step(1, 60 * SECOND, 61 * SECOND)]
    append(evidence(tmp_path) / "a.jsonl", *old, *new)
    assert progress(tmp_path).wait_share == 0.0


def test_records_of_an_unknown_shape_are_left_out(tmp_path: Path) -> None:
    odd = [["step"], ["step", "x", None, {}, 1], ["get", 1], batch(0, 9, [[7, 1, 1, 1]]), [1], ["x"]]
    append(evidence(tmp_path) / "a.jsonl", *odd)
    assert progress(tmp_path) == RunProgress()


PACE = RunProgress(
    120, 8.14, 0.71, 2, 0.99, [("lookup:tarfile", 0.58), ("decode:x", 0.3), ("read:\x1b[2J", 0.1), ("a:b", 0.02)]
)


def test_both_views_look_as_they_were_agreed() -> None:
    """The view of a terminal, in ASCII, and the line for what is none."""
    page = live_page(PACE, None, width=70, ascii_only=True).lines
    shown = [*(line.plain for line in page), live_line(PACE, 0.22, ascii_only=False)]
    assert shown == (GOLDEN / "live-view.txt").read_text(encoding="utf-8").splitlines()


def test_where_nothing_was_seen_it_says_so() -> None:
    page = live_page(RunProgress(), None, width=80, ascii_only=False)
    assert len(page.lines) == 1


def settings(folder: Path, **asked: Any) -> ProbeSettings:
    return ProbeSettings(str(folder), origin_us=0, origin_wall_us=0, boot_id="", **asked)


def evidence(folder: Path) -> Path:
    path = Path(settings(folder).evidence)
    path.mkdir(exist_ok=True)
    return path


MEASURED: dict[str, Any] = {"steps": 20, "replay": 40}
TWO_WORKERS, NO_WORKERS = ["loader", 0, 0, {"num_workers": 2}], ["loader", 0, 0, {"num_workers": 0}]
CHOSEN = ["facts", 0, {"warmup_steps": 7}]
OBSERVED, REPLAYED = ["window", "observe", 7, 20, 0, 0, 9], ["window", "replay", 27, 43, 3, 9, 99]
LOADED, DRAINED = ["window", "load", 70, 43, 3, 99, 199], ["window", "drain", 113, 0, 0, 199, 299]


EARLY = ["window", "early", 11, 13, 3, 0, 9]
"""Steps that were replayed after the first epoch; `steps` are those that were observed, and these."""


def steps(many: int) -> list[Any]:
    return [step(number, number, number + 1) for number in range(many)]


@pytest.mark.parametrize(
    ("records", "window"),
    [
        (steps(2), CurrentWindow("warm-up", 2)),
        ([*steps(2), CHOSEN], CurrentWindow("warm-up", 2, 7)),
        ([CHOSEN, *steps(7)], CurrentWindow("observe", 0, 20)),
        ([CHOSEN, *steps(19)], CurrentWindow("observe", 12, 20)),
        ([CHOSEN, *steps(27), OBSERVED], CurrentWindow("replay", 0, 20)),
        ([CHOSEN, *steps(30), OBSERVED], CurrentWindow("replay", 0, 20)),
        ([CHOSEN, *steps(44), OBSERVED], CurrentWindow("replay", 14, 20)),
        ([TWO_WORKERS, *steps(75), OBSERVED, REPLAYED], CurrentWindow("load", 2, 20)),
        ([["loader", 0, 0, {"num_workers": 0, "threads": 2}], *steps(71), REPLAYED], CurrentWindow("load", 0, 20)),
        ([CHOSEN, EARLY, *steps(40)], CurrentWindow("observe", 20, 20)),
        ([["facts", 0, {"warmup_steps": 24}], EARLY, *steps(40)], CurrentWindow("observe", 16, 20)),
        ([CHOSEN, *steps(44), ["window", "observe", 7, 20, 0, 0, 20 * SECOND]], CurrentWindow("replay", 6, 6)),
        ([NO_WORKERS, *steps(70), OBSERVED, REPLAYED], CurrentWindow("drain")),
        ([TWO_WORKERS, *steps(113), REPLAYED, LOADED], CurrentWindow("drain")),
        ([*steps(113), LOADED, DRAINED], CurrentWindow("end")),
        ([*steps(27), OBSERVED, ["note", 1, "no-replay", "It was only observed."]], CurrentWindow("end")),
        ([*steps(9), ["end", 9, "exit"]], CurrentWindow("end")),
        ([*steps(44), ["window", "odd"], ["window"], ["facts", 1, None]], CurrentWindow("warm-up", 44)),
        ([TWO_WORKERS], None),
    ],
)
def test_which_window_a_measured_run_is_in(tmp_path: Path, records: list[Any], window: CurrentWindow | None) -> None:
    append(evidence(tmp_path) / "a.jsonl", *records)
    assert progress(tmp_path, **MEASURED).window == window


def test_a_warm_up_that_was_asked_for_is_known_from_the_start(tmp_path: Path) -> None:
    append(evidence(tmp_path) / "a.jsonl", *steps(5))
    assert progress(tmp_path, **MEASURED, warmup=2).window == CurrentWindow("observe", 3, 20)


def test_a_run_that_is_only_observed_has_no_window(tmp_path: Path) -> None:
    append(evidence(tmp_path) / "a.jsonl", CHOSEN, *steps(9))
    assert progress(tmp_path, observe=True).window is None


def test_both_views_say_which_window_it_is_and_how_far() -> None:
    figures = {
        CurrentWindow("warm-up", 2): [],
        CurrentWindow("warm-up", 2, 7): ["2", "7"],
        CurrentWindow("observe", 12, 20): ["12", "20"],
        CurrentWindow("replay", 14, 40): ["14", "40"],
        CurrentWindow("load", 2, 40): ["2", "40"],
        CurrentWindow("drain"): [],
        CurrentWindow("end"): [],
    }
    positions = {}
    for window in figures:
        now = replace(PACE, window=window)
        first, *_ = live_page(now, None, width=80, ascii_only=False).lines
        positions[window] = first.plain.partition(" steps/s, ")[2]
        assert f" steps/s, {positions[window]}, " in live_line(now, None, ascii_only=False)
    assert {window: quantities(text) for window, text in positions.items()} == figures
    assert len(set(positions.values())) == len(figures)


def status(folder: Path, *, terminal: bool, **asked: Any) -> tuple[RunStatus, io.StringIO]:
    file = io.StringIO()
    console = Console(file=file, force_terminal=terminal, width=80, color_system=None, _environ={"TERM": "xterm"})
    plan = DiagnosisPlan(steps=20, warmup=None, replay=40, drain_s=10.0)
    return RunStatus(settings(folder, **asked), plan, console, live=lambda: 0.5), file


def test_on_a_terminal_the_output_stays_above_and_the_view_goes_away(tmp_path: Path) -> None:
    append(evidence(tmp_path) / "a.jsonl", get(0, 50_000), step(0, 0, 100_000))
    view, file = status(tmp_path, terminal=True)
    with view:
        view.relay("epoch 1")
        view.wrote(1, b"a bar 10 %")  # of which the view has whole lines only
        view.look()
        drawn = file.getvalue()
        view.relay("epoch 2")
    shown = file.getvalue()
    assert shown.index("epoch 1") < shown.index("waits for data") < shown.index("epoch 2")
    erased = shown.removeprefix(drawn).partition("epoch 2")[0]
    assert erased.count("\x1b[2K") == 4
    assert erased.count("\x1b[1A") == 3
    assert shown.endswith("epoch 2\n")


def test_elsewhere_it_is_a_line(tmp_path: Path) -> None:
    append(evidence(tmp_path) / "a.jsonl", get(0, 50_000), step(0, 0, 100_000))
    view, file = status(tmp_path, terminal=False)
    with view:
        view.look()
        view.look()  # too soon for another
    (line,) = file.getvalue().splitlines()
    assert quantities(line) == ["0,", "10", "50 %", "0", "50 %"]


def test_a_measured_run_says_how_far_its_window_is(tmp_path: Path) -> None:
    append(evidence(tmp_path) / "a.jsonl", CHOSEN, *steps(44), OBSERVED)
    view, file = status(tmp_path, terminal=False, **MEASURED)
    view.look()
    assert "14 of 20" in file.getvalue()


def test_in_a_terminal_ctrl_c_ends_it_cleanly(tmp_path: Path) -> None:
    """The command gets the signal, and the report comes."""
    status, shown = interrupted_on_terminal(tmp_path, "--live", shows=("under way",))
    assert status == 130, shown
    assert "interrupted" in shown
    assert "no step yet" in shown
    assert f"headrace{os.sep}doctor" not in shown  # a traceback, if any, is the command's
