"""From a made session to a tuning: what the loader is, what is run, within which limits, and what is told of it."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from dataclasses import replace

import pytest
from made_prescriptions import COLUMNS, GB, ROOMY, made, respawned, with_batches, with_copies, with_gpu
from made_sessions import MadeRun
from report_pages import GOLDEN
from rich.console import Console

from headrace.doctor.causes.findings import diagnose
from headrace.doctor.edits.script_source import ScriptSources
from headrace.doctor.prove.baseline import BaselinePace, ComparedSamples
from headrace.doctor.prove.prover import ProveProgress, TrialRunner
from headrace.doctor.prove.trial import Trial, TrialRequest
from headrace.doctor.session.model import CommandOutcome, Session
from headrace.doctor.session.trainers import BatchDigest
from headrace.doctor.tune.candidates import Arguments, MeasuredArguments, arguments, chosen, grid
from headrace.doctor.tune.report import Paste, TuneResult, keywords_of, not_paying, paste, show
from headrace.doctor.tune.run import TuneBaseline, TuneTrials, baseline_of, measured_steps
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


def looked(session: Session, script: str | None = None) -> TuneBaseline:
    sources = ScriptSources({"train.py": script}.get if script is not None else lambda _: None, "/home/ada")
    return baseline_of(session, diagnose(session), sources)


def pasted(baseline: TuneBaseline, choice: Arguments) -> Paste:
    return paste(baseline.case, choice, baseline.present)


class TestLook:
    def test_knows_the_loader_and_its_bounds(self) -> None:
        found = looked(with_batches(waiting(), "float32[4,3,8,8]", 3072))
        bounds = found.bounds()
        assert found.present == arguments(2)
        assert bounds.cores == 8
        assert bounds.worker_bytes == GB // 2
        assert bounds.free_bytes == COLUMNS["memory_available_bytes"]
        assert bounds.queue_bytes == ROOMY["shm_bytes"] - COLUMNS["shm_used_bytes"]
        assert bounds.batch_bytes == 3072
        assert (bounds.has_gpu, bounds.passes, bounds.is_iterable, bounds.needs_workers) == (False, 1, False, "")

    def test_predicts_the_present_arguments_as_they_were_observed(self) -> None:
        found = looked(waiting())
        mean = sum(found.steps) / len(found.steps)
        present = found.predict(found.present)
        assert present is not None
        assert present.step_us == pytest.approx(mean, rel=0.02)
        more = found.predict(arguments(8))
        assert more is not None
        assert more.step_us < 0.4 * mean

    def test_a_floor_is_no_longer_than_the_step(self) -> None:
        found = looked(waiting())
        assert found.lower_bound_us
        assert 2_000 < found.lower_bound_us < sum(found.steps) / len(found.steps)

    def test_several_passes_ask_whether_workers_stay(self) -> None:
        assert looked(respawned(MadeRun(steps=30))).bounds().passes == 3

    def test_pinning_is_predicted_from_the_copies(self) -> None:
        found = looked(with_copies(with_gpu(made(MadeRun(steps=60, workers=8))), 2_000))
        assert found.bounds().has_gpu
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
        assert looked(waiting(**facts), text).bounds().needs_workers == needs

    def test_own_memory_stands_for_that_of_workers_that_are_not_there(self) -> None:
        session = made(MadeRun(steps=60, workers=0, stages=SLOW))
        session.machines[0].processes[session.trainers[0].pid] = {"private_bytes_peak": 3 * GB}
        assert looked(session).bounds().worker_bytes == 3 * GB

    @pytest.mark.parametrize(
        ("change", "text"),
        [
            (lambda session: session.trainers.clear(), "no training step was seen"),
            (lambda session: _without_steps(session), "no optimizer stepped"),
            (lambda session: session.trainers[0].loaders.clear(), "took no batch from a torch DataLoader"),
            (
                lambda session: session.trainers[0].loaders[0].facts.update(threads=2),
                "the loader is Headrace's own, which has threads in place of workers",
            ),
        ],
    )
    def test_what_cannot_be_tuned_says_why(self, change: Callable[[Session], None], text: str) -> None:
        session = waiting()
        change(session)
        with pytest.raises(TuneError, match=f"^Nothing was tuned: .*{text}") as raised:
            looked(session)
        assert raised.value.status == 125

    def test_a_script_that_ends_too_soon(self) -> None:
        with pytest.raises(TuneError, match=r"ended after \d+ measured steps, and fewer than 20 say too little"):
            looked(made(MadeRun(steps=15, stages=SLOW)))

    @pytest.mark.parametrize(
        ("outcome", "text", "status"),
        [
            (
                CommandOutcome(["train"], 3, "failed", 5, ["boom"]),
                "exit status 3. Make it run .* Its last line: boom",
                3,
            ),
            (
                CommandOutcome(["train"], 127, "not found", 5, ["no such file"]),
                "could not be started: no such file",
                127,
            ),
            (CommandOutcome(["train"], 130, "interrupted", 5, []), "the command was interrupted", 130),
        ],
    )
    def test_a_command_that_did_not_run(self, outcome: CommandOutcome, text: str, status: int) -> None:
        session = waiting()
        session.outcome = outcome
        with pytest.raises(TuneError, match=text) as raised:
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
        self.now, self.content = 0.0, "a"
        self.orders: list[TrialRequest] = []

    def __call__(self, order: TrialRequest) -> Trial:
        self.orders.append(order)
        self.now += self._seconds
        came = self._step_us(order.changes["loaders"]["0"])
        samples = ComparedSamples({0: [BatchDigest(0, self.content, "k", [[1.0, 2.0]])]}, False)
        if isinstance(came, str):
            return Trial(came, "the last\nlines", 0, [], samples)
        return Trial("measured", "", 0, [round(came)] * order.steps, samples)


def trials(session: Session, runs: Runs, *, most_runs: int = 4, most_s: float = 120.0) -> TuneTrials:
    for trainer in session.trainers:
        trainer.digests = DIGESTS
    found = looked(session)
    candidates = grid(found.bounds())
    return TuneTrials(
        baseline=found,
        predictions={one: made for one in candidates if (made := found.predict(one)) is not None},
        runner=TrialRunner(session, runs, ProveProgress(Console(file=io.StringIO())), most_s, lambda: runs.now),
        most_runs=most_runs,
        steps=60,
    )


def by_workers(wanted: dict[str, object]) -> float:
    return 40_000 / max(int(str(wanted["num_workers"])), 1)


def _queued(order: TrialRequest) -> int:
    wanted = order.changes["loaders"]["0"]
    return int(wanted["num_workers"]) * int(wanted.get("prefetch_factor") or 0)


class TestTrials:
    def test_the_first_run_is_the_script_as_it_is(self) -> None:
        made_trials = trials(waiting(), Runs(by_workers), most_runs=1)
        assert made_trials.make() == "runs"
        assert [one.arguments for one in made_trials.runs] == [arguments(2)]

    def test_changes_go_to_the_loader_and_more_workers_win(self) -> None:
        runs = Runs(by_workers)
        made_trials = trials(waiting(), runs)
        made_trials.make()
        assert 2 <= len(made_trials.runs) <= 4
        assert set(runs.orders[0].changes) == {"loaders"}
        taken = chosen(made_trials.runs)
        assert taken is not None
        assert taken.arguments.num_workers > 2

    def test_batches_made_before_the_first_step_are_not_measured(self) -> None:
        """While the program starts the workers fill the queue, which says nothing of what they can keep up."""
        runs = Runs(by_workers)
        made_trials = trials(waiting(), runs)
        wanted = arguments(6, 8)
        asked = TrialRequest({"loaders": {"0": wanted.changes()}}, 60 + wanted.in_flight, None, 1.0)
        trial = runs(asked)
        made_trials._take(wanted, replace(trial, steps=[1] * wanted.in_flight + trial.steps[wanted.in_flight :]))
        assert made_trials.runs[-1].steps == [round(40_000 / 6)] * 60
        made_trials._take(wanted, replace(trial, steps=trial.steps[:50]))
        assert made_trials.runs[-1].why == "broke"
        made_trials.make()
        assert all(order.steps == 60 + _queued(order) for order in runs.orders[1:])

    def test_no_run_where_there_is_no_time(self) -> None:
        runs = Runs(by_workers)
        assert trials(waiting(), runs, most_s=1.0).make() == "time"
        assert not runs.orders

    def test_time_ends_the_runs(self) -> None:
        runs = Runs(by_workers, seconds=70.0)
        made_trials = trials(waiting(), runs, most_runs=9)
        assert made_trials.make() in ("time", "nothing to gain")
        assert len(runs.orders) <= 2

    def test_what_breaks_is_told_and_left(self) -> None:
        made_trials = trials(waiting(), Runs(lambda wanted: "broke"))
        made_trials.make()
        assert {one.why for one in made_trials.runs[1:]} == {"broke"}
        assert chosen(made_trials.runs) == made_trials.runs[0]

    def test_an_interruption_keeps_what_there_is(self) -> None:
        def interrupt(wanted: dict[str, object]) -> float:
            raise KeyboardInterrupt

        made_trials = trials(waiting(), Runs(interrupt))
        assert made_trials.make() == "interrupted"
        assert len(made_trials.runs) == 1
        assert trials(waiting(), Runs(lambda wanted: "interrupted")).make() == "interrupted"

    def test_other_samples_are_never_taken(self) -> None:
        """Once a run had the same ones, so that the script repeats them."""
        runs = Runs(by_workers)
        made_trials = trials(waiting(), runs, most_runs=2)
        made_trials.make()
        runs.content, made_trials.most_runs = "b", 4
        made_trials._take(arguments(8), replace(runs(runs.orders[0]), samples=_values("b", 9.0)))
        assert made_trials.runs[-1].why == "different samples"

    def test_steps_are_whole_epochs_where_one_is_shorter(self) -> None:
        pace = BaselinePace(1.0, 5, 10_000.0, 25)
        assert measured_steps(60, pace, 100.0, 10_000.0) == 50
        assert measured_steps(60, replace(pace, epoch_steps=400), 100.0, 10_000.0) == 60
        assert measured_steps(60, replace(pace, epoch_steps=7), 100.0, 10_000.0) == 60
        assert measured_steps(60, pace, 4.1, 10_000.0) == 0


def _values(content: str, value: float) -> ComparedSamples:
    return ComparedSamples({0: [BatchDigest(0, content, "k", [[value, 2.0]])]}, False)


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
        assert pasted(looked(waiting()), arguments(6)).where == "the DataLoader that train.py:12 iterates"

    def test_a_trainer_of_transformers_has_arguments_of_its_own(self) -> None:
        script = "from transformers import TrainingArguments\nargs = TrainingArguments(output_dir='out')\n"
        found = pasted(looked(waiting(), script), arguments(6))
        assert found.line == "TrainingArguments(..., dataloader_num_workers=6, dataloader_prefetch_factor=2)"
        assert found.where == "train.py:2"

    def test_what_more_would_give_is_told_as_measured_or_predicted(self) -> None:
        found = looked(waiting())
        predictions = {one: found.predict(one) for one in grid(found.bounds())}
        known = {one: made for one, made in predictions.items() if made is not None}
        runs = [
            MeasuredArguments(arguments(2), "measured", [20_000.0] * 40),
            MeasuredArguments(arguments(8), "measured", [6_000.0] * 40),
            MeasuredArguments(arguments(12), "measured", [7_000.0] * 40),
            MeasuredArguments(arguments(16), "measured", [7_000.0] * 40),
            MeasuredArguments(arguments(8, 4), "measured", [6_030.0] * 40),
            MeasuredArguments(arguments(8, 8), "measured", [6_050.0] * 40),
        ]
        said = list(not_paying(arguments(8), runs, known))
        assert said[0] == "more workers than 8: 17 % slower (12 workers, prefetch 2, measured)"
        assert said[1] == (
            "a longer queue than prefetch_factor=2: no faster (8 workers, prefetch 4: within 2 % of it, measured)"
        )


def tuned(*, kept: bool = False) -> TuneResult:
    found = looked(waiting(), "\n" * 7 + SCRIPT)
    predictions = {one: made for one in grid(found.bounds()) if (made := found.predict(one)) is not None}
    runs = [
        MeasuredArguments(arguments(2), "measured", [20_000.0, 20_400.0] * 30),
        MeasuredArguments(arguments(6), "measured", [6_000.0, 6_200.0] * 30),
        MeasuredArguments(arguments(8), "broke", (), "Traceback\nMemoryError: no room"),
        MeasuredArguments(arguments(4), "different samples"),
    ]
    choice = runs[0] if kept else runs[1]
    return TuneResult(
        command=["python", "train.py"],
        present=arguments(2),
        choice=choice,
        runs=runs,
        predictions=predictions,
        ended="runs",
        paste=pasted(found, choice.arguments),
        notes=["pin_memory: no CUDA device was used in this run, so nothing is copied from pinned memory"],
        seconds=21.0,
    )


def shown(result: TuneResult, *, width: int, encoding: str) -> str:
    raw = io.BytesIO()
    with io.TextIOWrapper(raw, encoding=encoding) as out:
        show(result, Console(file=out, width=width))
        out.flush()
        return raw.getvalue().decode(encoding)


class TestReport:
    @pytest.mark.parametrize(
        ("name", "width", "encoding"), [("screen", 100, "utf-8"), ("narrow-ascii", 60, "ascii")], ids=str
    )
    def test_looks_as_it_was_agreed(self, name: str, width: int, encoding: str) -> None:
        expected = (GOLDEN / f"tune-{name}.txt").read_text(encoding="utf-8")
        assert shown(tuned(), width=width, encoding=encoding) == expected

    def test_nothing_to_change_is_the_verdict_and_no_line_to_paste(self) -> None:
        text = shown(tuned(kept=True), width=100, encoding="utf-8")
        assert text.startswith("Keep what you have: 2 workers, prefetch 2.")
        assert "DataLoader(" not in text

    def test_files_and_other_programs_are_told(self) -> None:
        busy = replace(tuned().runs[1], others_cores=1.25)
        result = replace(tuned(), runs=[tuned().runs[0], busy], choice=busy, files=["restored: out.txt"])
        text = shown(result, width=100, encoding="utf-8")
        assert "6.1 ms to 6.1 ms; other programs kept 1.2 cores busy" in " ".join(text.split())
        assert "Files of yours\n  • restored: out.txt" in text

    def test_the_document_has_every_run_and_the_whole_grid(self) -> None:
        document = json.loads(json.dumps(tuned().document()))
        assert document["schema"] == 1
        assert document["outcome"] == "change"
        assert document["choice"]["num_workers"] == 6
        assert document["paste"]["where"] == "train.py:11"
        assert [one["why"] for one in document["runs"]] == ["measured", "measured", "broke", "different samples"]
        assert document["runs"][2]["step_us"] is None
        assert document["speedup"] == pytest.approx(20_200 / 6_100)
        assert len(document["grid"]) == len(tuned().predictions)
        assert json.loads(json.dumps(tuned(kept=True).document()))["outcome"] == "keep"
