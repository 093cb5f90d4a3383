"""`headrace tune`: the trials of `--prove` with the arguments of one DataLoader as candidates."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import asdict
from statistics import fmean

from headrace.doctor.attach import DOCTOR_FAILED
from headrace.doctor.causes import Case, case_of, diagnose, outcomes
from headrace.doctor.edits import ScriptSources, WantedEdit, files_here
from headrace.doctor.measure import Diagnosis, main_view_of
from headrace.doctor.prove import (
    DIGESTS,
    EVEN,
    FEWEST_STEPS,
    STEPS,
    Arguments,
    Prover,
    SettingSearch,
    TunedLoader,
    arguments,
    chosen,
    corrected,
)
from headrace.doctor.quantities import percent
from headrace.doctor.report import Outputs, Paste, TuneReport
from headrace.doctor.run import Examination, run_sampled, say, session_of
from headrace.doctor.session import session_folder
from headrace.doctor.session.model import Session
from headrace.errors import TuneError

REPLAY_STEPS = 20
"""Steps of the replay window, and of the loaded one. A step without its loader bounds the possible gain."""
MOST_RUNS = 3
"""Default number of runs: a quarter of a whole grid's time on two cores, start-up included (benchmarks/tune.py)."""
MOST_S = 120.0
TRAINING_ARGUMENTS = "TrainingArguments"
"""Class in which users of transformers' Trainer set the arguments of its loaders."""
SEE_DOCTOR = "headrace doctor says what its steps wait for"


def tune(
    command: list[str], outputs: Outputs, *, steps: int = STEPS, most_runs: int = MOST_RUNS, most_s: float = MOST_S
) -> TuneReport:
    """Measure the unchanged command, predict, run it with faster candidates, and return a proposal.

    `steps` are measured in each of at most `most_runs` runs, including the first. All runs together take at most
    `most_s`, except for the first, which always completes its steps.

    Raises:
        TuneError: The command fails, or has no DataLoader to tune.
    """
    began = time.monotonic()
    with session_folder(steps=steps, replay=REPLAY_STEPS, digests=DIGESTS) as folder:
        examination = Examination(command=command, steps=steps)
        ended, machines = run_sampled(examination, folder, outputs)
        session = session_of(examination, folder, ended, machines)
        search = SettingSearch(tuned_loader(session, diagnose(session), files_here()), most_runs)
        left_s = most_s - (time.monotonic() - began)
        prover = Prover.of(session, command, folder.settings, say, left_s, steps=steps, option="--max-seconds")
        assert prover is not None  # a tunable loader implies measured steps
        prover.prove(search.attempts(prover))
    return report_of(command, search, seconds=time.monotonic() - began)


def tuned_loader(session: Session, diagnosis: Diagnosis, sources: ScriptSources) -> TunedLoader:
    """Return the loader of a measured run.

    Raises:
        TuneError: There is no DataLoader to tune, or too little was measured; the text says which.
    """
    outcome, view = session.outcome, main_view_of(session)
    case = None if view is None else case_of(session, diagnosis, view, sources)
    steps = 0 if view is None or view.training.unit != "step" else len(view.training.steps)
    why, status = "", DOCTOR_FAILED
    if outcome.why in ("failed", "not found", "interrupted"):
        why, status = " ".join(one.text for one in diagnosis.ending), outcome.status or status
    elif not steps:
        why = "no optimizer stepped in a process that imports torch: expected a command that trains."
    elif steps < FEWEST_STEPS:
        why = f"the script ended after {steps} measured steps, and fewer than {FEWEST_STEPS} say too little."
    elif case is None or not case.making.batches or "num_workers" not in case.facts:
        why = f"its steps took no batch from a torch DataLoader, which alone has num_workers. {SEE_DOCTOR}."
    elif case.recorded is None:
        why = "no production of a batch was recorded, so nothing can be predicted: headrace doctor says why."
    if why or case is None:
        raise TuneError(f"Nothing was tuned: {why}", status=status)
    return TunedLoader(case)


def report_of(command: list[str], search: SettingSearch, *, seconds: float) -> TuneReport:
    """Return the proposal with its evidence."""
    loader, runs, choice = search.loader, search.runs, chosen(search.runs)
    predictions, present, host = loader.predictions, loader.present, loader.case.host
    by_name = {str(one): made for one, made in predictions.items() if one != present}
    judged = outcomes(
        list(runs.values()),
        lambda names: by_name.get(names[0]),
        [fmean(runs[present].steps)],
        None if host is None else host.mean("cpu_cores_other"),
    )
    return TuneReport(
        command=command,
        present=asdict(present),
        choice=asdict(choice),
        ended=search.ended,
        paste=paste(loader.case, choice, present),
        notes=[*not_paying(choice, search), *loader.left_out(), *_reach(loader.case)],
        seconds=seconds,
        runs=[(asdict(one), outcome) for one, outcome in zip(runs, judged, strict=True)],
        grid=[(asdict(one), made) for one, made in predictions.items()],
    )


def paste(case: Case, choice: Arguments, present: Arguments) -> Paste:
    """Return the line that sets the chosen arguments, for the call that made the loader of the measured run."""
    keywords, call, name, diff = keywords_of(choice, present), case.script.call, "DataLoader", ""
    where = f"the DataLoader that {case.facts.get('file')}:{case.facts.get('line')} iterates"
    if call is not None:
        where = f"{call.source.path}:{call.call.lineno}"
        edit = case.edit(WantedEdit(keywords)) if choice != present else None
        diff = "" if edit is None else edit.diff
    else:
        for source in reversed(case.script.sources):
            calls = [one for one, made in source.calls if made.rpartition(".")[2].endswith(TRAINING_ARGUMENTS)]
            if len(calls) == 1:
                name, where = TRAINING_ARGUMENTS, f"{source.path}:{calls[0].lineno}"
    prefix = "dataloader_" if name == TRAINING_ARGUMENTS else ""
    texts = ", ".join(f"{prefix}{key}={text}" for key, text in keywords.items())
    return Paste(f"{name}(..., {texts})", where, diff)


def keywords_of(choice: Arguments, present: Arguments) -> dict[str, str]:
    """Return Python expressions of the arguments that differ from DataLoader's defaults or from the script's."""
    both = {name: (value, getattr(present, name)) for name, value in asdict(choice).items()}
    return {name: str(new) for name, (new, old) in both.items() if new or old or name == "num_workers"}


def not_paying(choice: Arguments, search: SettingSearch) -> Iterator[str]:
    """Yield the effect of increasing each argument: as measured, or else as predicted and corrected by the runs."""
    predictions = corrected(search.loader.predictions, search.runs)
    known = {one: (prediction.step_us, "predicted") for one, prediction in predictions.items()}
    known |= {one: (fmean(proof.steps), "measured") for one, proof in search.runs.items() if proof.steps}
    titles = {
        "num_workers": f"more workers than {choice.num_workers}",
        "prefetch_factor": f"a longer queue than prefetch_factor={choice.prefetch_factor}",
    }
    for name, present in asdict(choice).items():
        more = [one for one in known if (getattr(one, name) or 0) > (present or 0)]
        alike = [one for one in more if arguments(**{**asdict(one), name: present}) == choice]
        if not alike:
            continue
        best = min(alike, key=lambda one: known[one][0])
        step_us, how = known[best]
        change, title = step_us / known[choice][0] - 1, titles.get(name, name)
        if abs(change) <= EVEN:
            yield f"{title}: no faster ({best}: within {percent(EVEN)} of it, {how})"
        elif change < 0:
            but = "which is within its noise" if how == "measured" else "which no run has shown"
            yield f"{title}: {percent(-change)} faster ({best}, {how}), {but}"
        else:
            yield f"{title}: {percent(change)} slower ({best}, {how})"


def _reach(case: Case) -> Iterator[str]:
    ranks = len({trainer.rank for trainer in case.session.trainers})
    if ranks > 1:
        yield f"{ranks} ranks: each had the same arguments, and steps are those of the slowest"
    others = len({loader.number for loader in case.view.trainer.loaders} - set(case.loaders))
    if others:
        loaders = "another DataLoader" if others == 1 else f"{others} other DataLoaders"
        yield f"{loaders} of the script: left as it was; this is about the one that its training steps wait for"
