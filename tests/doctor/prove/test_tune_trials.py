"""From a made session to a tuning: what the loader is, what is run, within which limits, and what is told of it."""

from __future__ import annotations

import io
import json
from collections.abc import Callable

import pytest
from machine_findings import quantities
from made_prescriptions import COLUMNS, GB, ROOMY, made, respawned, with_batches, with_copies, with_gpu
from made_sessions import MadeRun
from replacing import replace
from report_pages import GOLDEN
from rich.console import Console

from headrace.doctor.causes.findings import diagnose
from headrace.doctor.edits.script_source import ScriptSources
from headrace.doctor.prove.baseline import BaselinePace, ComparedSamples
from headrace.doctor.prove.prover import Prover
from headrace.doctor.prove.settings import Arguments, SettingSearch, TunedLoader, arguments, chosen
from headrace.doctor.prove.trial import Trial, TrialRequest
from headrace.doctor.report.tuned import Paste, TuneReport, show_tuning
from headrace.doctor.session.after_run import Proof
from headrace.doctor.session.model import CommandOutcome, Session
from headrace.doctor.session.trainers import BatchDigest
from headrace.doctor.tuning import keywords_of, not_paying, paste, report_of, tuned_loader
from headrace.errors import TuneError

pytestmark = pytest.mark.usefixtures("kept_simulations")

SLOW = {"decode:PIL.Image.load": 38_000}
SCRIPT = """
from torch.utils.data import DataLoader

loader = DataLoader(data, batch_size=4, num_workers=2)
for batch in loader:
    train(batch)
"""
"""Of which the loop's head stands where made runs iterate, in line 12, behind seven lines more."""
DIGESTS = [BatchDigest(0, "a", "k", [[1.0, 2.0]])]


def waiting(**facts: object) -> Session:
    """Two workers that need 19 ms a batch, for steps of 3.5 ms, on eight cores."""
    return made(MadeRun(steps=60, stages=SLOW, facts=facts))


def looked(session: Session, script: str | None = None) -> TunedLoader:
    sources = ScriptSources({"train.py": script}.get if script is not None else lambda _: None, "/home/ada")
    return tuned_loader(session, diagnose(session), sources)


def pasted(loader: TunedLoader, choice: Arguments) -> Paste:
    return paste(loader.case, choice, loader.present)


def steps_of(loader: TunedLoader) -> list[int]:
    return loader.case.view.training.durations


class TestLook:
    def test_knows_the_loader_and_its_bounds(self) -> None:
        found = looked(with_batches(waiting(), "float32[4,3,8,8]", 3072))
        assert found.present == arguments(2)
        workers, batches = found.most_more
        assert workers == COLUMNS["memory_available_bytes"] / (GB // 2)
        assert batches == (ROOMY["shm_bytes"] - COLUMNS["shm_used_bytes"]) / 3072
        assert max(found.counts) == 16
        assert found.needs_workers == ""

    def test_predicts_the_present_arguments_as_they_were_observed(self) -> None:
        found = looked(waiting())
        mean = sum(steps_of(found)) / len(steps_of(found))
        present = found.predict(found.present)
        assert present is not None
        assert present.step_us == pytest.approx(mean, rel=0.02)
        more = found.predict(arguments(8))
        assert more is not None
        assert more.step_us < 0.4 * mean

    def test_a_floor_is_no_longer_than_the_step(self) -> None:
        found = looked(waiting())
        assert found.lower_bound_us
        assert 2_000 < found.lower_bound_us < sum(steps_of(found)) / len(steps_of(found))

    def test_several_passes_ask_whether_workers_stay(self) -> None:
        found = looked(respawned(MadeRun(steps=30)))
        assert {one.persistent_workers for one in found.grid if one.num_workers} == {True, False}

    def test_pinning_is_predicted_from_the_copies(self) -> None:
        found = looked(with_copies(with_gpu(made(MadeRun(steps=60, workers=8))), 2_000))
        assert {one.pin_memory for one in found.grid} == {True, False}
        pinned = found.predict(replace(found.present, pin_memory=True))
        present = found.predict(found.present)
        assert pinned is not None
        assert present is not None
        assert pinned.step_us < present.step_us

    @pytest.mark.parametrize(
        ("facts", "script", "needs"),
        [
            ({"timeout": 30}, None, "timeout"),
            ({}, SCRIPT.replace("=2", "=2, worker_init_fn=seed"), "worker_init_fn"),
            ({}, SCRIPT, ""),
        ],
    )
    def test_what_has_a_meaning_in_workers_only(self, facts: dict[str, object], script: str | None, needs: str) -> None:
        text = None if script is None else "\n" * 7 + script
        assert looked(waiting(**facts), text).needs_workers == needs

    def test_own_memory_stands_for_that_of_workers_that_are_not_there(self) -> None:
        session = made(MadeRun(steps=60, workers=0, stages=SLOW))
        session.machines[0].processes[session.trainers[0].pid] = {"private_bytes_peak": 3 * GB}
        assert looked(session).most_more[0] == COLUMNS["memory_available_bytes"] / (3 * GB)

    @pytest.mark.parametrize(
        ("change", "word"),
        [
            (lambda session: session.trainers.clear(), "optimizer"),
            (lambda session: _without_steps(session), "optimizer"),
            (lambda session: session.trainers[0].loaders.clear(), "DataLoader"),
            (lambda session: session.trainers[0].loaders[0].facts.update(threads=2), "DataLoader"),
        ],
        ids=["no-trainer", "no-steps", "no-loader", "own-loader"],
    )
    def test_what_cannot_be_tuned_says_why(self, change: Callable[[Session], None], word: str) -> None:
        session = waiting()
        change(session)
        with pytest.raises(TuneError, match=word) as raised:
            looked(session)
        assert raised.value.status == 125

    def test_a_script_that_ends_too_soon(self) -> None:
        with pytest.raises(TuneError, match=r"\d+ measured steps.* 20 "):
            looked(made(MadeRun(steps=15, stages=SLOW)))

    @pytest.mark.parametrize(
        ("outcome", "said", "status"),
        [
            (CommandOutcome(["train"], 3, "failed", 5, ["boom"]), "exit status 3.*boom", 3),
            (CommandOutcome(["train"], 127, "not found", 5, ["no such file"]), "train", 127),
            (CommandOutcome(["train"], 130, "interrupted", 5, []), "interrupted", 130),
        ],
        ids=["failed", "not-found", "interrupted"],
    )
    def test_a_command_that_did_not_run(self, outcome: CommandOutcome, said: str, status: int) -> None:
        session = waiting()
        session.outcome = outcome
        with pytest.raises(TuneError, match=said) as raised:
            looked(session)
        assert raised.value.status == status


def _without_steps(session: Session) -> None:
    steps = session.trainers[0].steps
    for column in (steps.number, steps.start, steps.end, steps.spans):
        column.clear()  # type: ignore[attr-defined]


class Runs:
    """Stands in for the command: takes `seconds` of a clock and comes to `step_us` of its loader's arguments."""

    def __init__(self, step_us: Callable[[dict[str, object]], float | str], seconds: float = 5.0) -> None:
        self._step_us, self._seconds = step_us, seconds
        self.now, self.contents, self.most_steps = 0.0, ["a"], 1000
        self.orders: list[TrialRequest] = []

    def __call__(self, order: TrialRequest) -> Trial:
        self.orders.append(order)
        self.now += self._seconds
        came = self._step_us(order.changes["loaders"]["0"])
        content = self.contents[min(len(self.orders), len(self.contents)) - 1]
        samples = ComparedSamples({0: [BatchDigest(0, content, "k", [[1.0 if content == "a" else 9.0, 2.0]])]}, False)
        if isinstance(came, str):
            return Trial(came, "the last\nlines", 0, [], samples)
        return Trial("measured", "", 0, [round(came)] * min(order.steps, self.most_steps), samples)


def search(session: Session, runs: Runs, *, most_runs: int = 4, most_s: float = 120.0) -> SettingSearch:
    for trainer in session.trainers:
        trainer.digests = DIGESTS
    pace, found = BaselinePace.of(session), SettingSearch(looked(session), most_runs)
    assert pace is not None
    prover = Prover(session, pace, runs, lambda line: None, most_s, clock=lambda: runs.now, option="--max-seconds")
    prover.prove(found.attempts(prover))
    return found


def by_workers(wanted: dict[str, object]) -> float:
    return 40_000 / max(int(str(wanted["num_workers"])), 1)


def _queued(order: TrialRequest) -> int:
    wanted = order.changes["loaders"]["0"]
    return int(wanted["num_workers"]) * int(wanted.get("prefetch_factor") or 0)


class TestTrials:
    def test_the_first_run_is_the_script_as_it_is(self) -> None:
        found = search(waiting(), Runs(by_workers), most_runs=1)
        assert (found.ended, list(found.runs)) == ("runs", [arguments(2)])
        report = report_of(["train"], found, seconds=1.0)
        assert (report.choice, report.best.speedup) == (report.present, 1.0)

    def test_changes_go_to_the_loader_and_more_workers_win(self) -> None:
        runs = Runs(by_workers)
        found = search(waiting(), runs)
        assert 2 <= len(found.runs) <= 4
        assert set(runs.orders[0].changes) == {"loaders"}
        assert chosen(found.runs).num_workers > 2
        assert {proof.samples for proof in list(found.runs.values())[1:]} == {"same"}

    def test_batches_made_before_the_first_step_are_not_measured(self) -> None:
        """While the program starts the workers fill the queue, which says nothing of what they can keep up."""
        runs = Runs(by_workers)
        found = search(waiting(), runs)
        assert all(order.steps == 60 + _queued(order) > 60 for order in runs.orders)
        assert {len(proof.steps) for proof in found.runs.values()} == {60, len(steps_of(found.loader))}

    def test_a_run_that_ends_within_its_queue_is_not_measured(self) -> None:
        runs = Runs(by_workers)
        runs.most_steps = 25
        found = search(waiting(), runs, most_runs=2)
        assert [proof.why for proof in found.runs.values()] == ["measured", "broke"]

    def test_no_run_where_there_is_no_time(self) -> None:
        runs = Runs(by_workers)
        found = search(waiting(), runs, most_s=1.0)
        assert found.ended == "time"
        assert not runs.orders
        assert "--max-seconds" in list(found.runs.values())[1].detail

    def test_time_ends_the_runs(self) -> None:
        runs = Runs(by_workers, seconds=70.0)
        assert search(waiting(), runs, most_runs=9).ended in ("time", "nothing to gain")
        assert len(runs.orders) <= 2

    def test_what_breaks_is_told_and_left(self) -> None:
        found = search(waiting(), Runs(lambda wanted: "broke"))
        assert {proof.why for proof in list(found.runs.values())[1:]} == {"broke"}
        assert chosen(found.runs) == found.loader.present

    @pytest.mark.long
    def test_an_interruption_keeps_what_there_is(self) -> None:
        def interrupt(wanted: dict[str, object]) -> float:
            raise KeyboardInterrupt

        for runs in (Runs(interrupt), Runs(lambda wanted: "interrupted")):
            found = search(waiting(), runs)
            assert (found.ended, len(found.runs), len(runs.orders)) == ("interrupted", 1, 1)

    def test_other_samples_are_known_once_a_run_had_the_same(self) -> None:
        """So that the script repeats them."""
        runs = Runs(lambda wanted: 15_000.0)
        runs.contents = ["a", "b"]
        found = search(waiting(), runs, most_runs=3)
        assert [proof.samples for proof in list(found.runs.values())[1:]] == ["same", "different"]
        runs = Runs(lambda wanted: 15_000.0)
        runs.contents = ["b"]
        found = search(waiting(), runs, most_runs=2)
        assert [proof.samples for proof in list(found.runs.values())[1:]] == [None]


class TestAdvice:
    @pytest.mark.parametrize(
        ("choice", "present", "text"),
        [
            (arguments(2, 4), arguments(0), "num_workers=2, prefetch_factor=4"),
            (arguments(0), arguments(0), "num_workers=0"),
            (
                arguments(0),
                arguments(2, 4, persistent_workers=True),
                "num_workers=0, prefetch_factor=None, persistent_workers=False",
            ),
            (
                arguments(2, pin_memory=True, persistent_workers=True),
                arguments(1),
                "num_workers=2, prefetch_factor=2, pin_memory=True, persistent_workers=True",
            ),
        ],
    )
    def test_says_what_a_loader_takes(self, choice: Arguments, present: Arguments, text: str) -> None:
        from torch.utils.data import DataLoader

        keywords = keywords_of(choice, present)
        assert ", ".join(f"{name}={value}" for name, value in keywords.items()) == text
        values = {name: eval(value, {}) for name, value in keywords.items() if name != "pin_memory"}
        loader = DataLoader([0], **values)
        assert loader.num_workers == choice.num_workers
        assert loader.prefetch_factor == choice.prefetch_factor
        assert loader.persistent_workers == choice.persistent_workers

    def test_names_the_call_and_changes_it(self) -> None:
        found = pasted(looked(waiting(), "\n" * 7 + SCRIPT), arguments(6, 4))
        assert found.line == "DataLoader(..., num_workers=6, prefetch_factor=4)"
        assert found.where == "train.py:11"
        assert "+loader = DataLoader(data, batch_size=4, num_workers=6, prefetch_factor=4)" in found.diff

    def test_says_where_it_is_iterated_if_no_call_is_certain(self) -> None:
        assert pasted(looked(waiting()), arguments(6)).where.split()[-2] == "train.py:12"

    def test_a_trainer_of_transformers_has_arguments_of_its_own(self) -> None:
        script = "from transformers import TrainingArguments\nargs = TrainingArguments(output_dir='out')\n"
        found = pasted(looked(waiting(), script), arguments(6))
        assert found.line == "TrainingArguments(..., dataloader_num_workers=6, dataloader_prefetch_factor=2)"
        assert found.where == "train.py:2"

    def test_what_more_would_give_is_told_as_measured_or_predicted(self) -> None:
        steps_ms = {
            arguments(8): 6.0,
            arguments(12): 7.0,
            arguments(16): 7.0,
            arguments(8, 4): 6.03,
            arguments(8, 8): 6.05,
        }
        found = SettingSearch(looked(waiting()), 9)
        found.runs |= {one: measured(one, [ms]) for one, ms in steps_ms.items()}
        workers, queue = list(not_paying(arguments(8), found))[:2]
        assert [figure for figure in quantities(workers) if "%" in figure] == ["17 %"]
        assert str(arguments(12)) in workers
        assert str(arguments(8, 4)) in queue
        assert all("measured" in text for text in (workers, queue))


def measured(one: Arguments, steps_ms: list[float]) -> Proof:
    steps = [round(1000 * ms) for ms in steps_ms] * (60 // len(steps_ms))
    return Proof([str(one)], {}, "measured", steps=steps, samples="same")


def tuned(*, kept: bool = False) -> TuneReport:
    """A report of four runs, the last of which had other samples."""
    found = SettingSearch(looked(waiting(), "\n" * 7 + SCRIPT), 1 if kept else 4)
    found.runs[arguments(2)] = measured(arguments(2), [20.0, 20.4])
    if not kept:
        found.runs[arguments(6)] = measured(arguments(6), [6.0, 6.2])
        found.runs[arguments(8)] = Proof(["8 workers, prefetch 2"], {}, "broke", "Traceback\nMemoryError: no room")
        found.runs[arguments(4)] = replace(measured(arguments(4), [5.0]), samples="different")
    return replace(report_of(["python", "train.py"], found, seconds=21.0), notes=["pin_memory: no CUDA device"])


def shown(result: TuneReport, *, width: int, encoding: str) -> str:
    raw = io.BytesIO()
    with io.TextIOWrapper(raw, encoding=encoding) as out:
        show_tuning(result, Console(file=out, width=width))
        out.flush()
        return raw.getvalue().decode(encoding)


class TestReport:
    @pytest.mark.one_in(2)
    @pytest.mark.parametrize(
        ("name", "width", "encoding"), [("screen", 100, "utf-8"), ("narrow-ascii", 60, "ascii")], ids=str
    )
    def test_looks_as_it_was_agreed(self, name: str, width: int, encoding: str) -> None:
        expected = (GOLDEN / f"tune-{name}.txt").read_text(encoding="utf-8")
        assert shown(tuned(), width=width, encoding=encoding) == expected

    def test_nothing_to_change_is_the_verdict_and_no_line_to_paste(self) -> None:
        text = shown(tuned(kept=True), width=100, encoding="utf-8")
        assert str(arguments(2, 2)) in text.splitlines()[0]
        assert "DataLoader(" not in text

    def test_other_programs_are_told(self) -> None:
        result = tuned()
        runs = [(one, replace(outcome, disturbed_by=1.25)) for one, outcome in result.runs]
        text = shown(replace(result, runs=runs), width=100, encoding="utf-8")
        assert "1.2 cores" in text

    @pytest.mark.long
    def test_the_document_has_every_run_and_the_whole_grid(self) -> None:
        document = json.loads(json.dumps(tuned().document()))
        assert document["schema"] == 2
        assert document["outcome"] == "change"
        assert document["choice"]["num_workers"] == 6
        assert document["paste"]["where"] == "train.py:11"
        assert [one["why"] for one in document["runs"]] == ["measured", "measured", "broke", "measured"]
        assert [one["samples"] for one in document["runs"]] == ["same", "same", None, "different"]
        assert (
            document["runs"][1]["low_us"] <= document["runs"][1]["step_us"] == 6_100 <= document["runs"][1]["high_us"]
        )
        assert document["runs"][2]["step_us"] is None
        assert document["speedup"] == pytest.approx(20_200 / 6_100)
        assert {one["num_workers"] for one in document["grid"]} >= {2, 4, 6, 8}
        assert json.loads(json.dumps(tuned(kept=True).document()))["outcome"] == "keep"
