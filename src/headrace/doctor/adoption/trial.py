"""Trial of a Loader on the run's own files: a separate process, a deadline, and a memory watch."""

from __future__ import annotations

import contextlib
import json
import math
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import psutil

from headrace.doctor.adoption.recipe import Adoption, LoaderRecipe, module_text
from headrace.doctor.adoption.trial_process import ANSWERS, IMPORTS, MODULE_FILE, REQUEST, LoaderTrialRequest
from headrace.doctor.measure import BOUND, RankView, TrainerView
from headrace.doctor.quantities import percent
from headrace.doctor.session.after_run import LoaderTrial
from headrace.doctor.session.model import Session
from headrace.doctor.simulate import RecordedRun, recorded
from headrace.system import available_bytes

PROCESS = "from headrace.doctor.adoption.trial_process import main; main()"
OUTPUT = "output"
"""File of everything that the process prints."""
EXPECTED_S = 10.0
"""Usual duration of a trial: importing torch, opening the data, two seconds alone and four alongside a step."""
MEMORY_SHARE = 0.5
"""Share of available memory above which a trial counts as out of memory."""
WATCH_S = 0.05
"""Interval between memory readings: a process fills fresh memory at about 2 GB/s."""
LISTED_S = 1.0
"""Interval between listings of its descendants, which read all of /proc and so take a core from the trial."""
LAST_LINES = 3
TRIED_AFTER = ("finished", "steps")
"""Ends of a run after which the Loader is tried."""
NEEDS = "No module named 'headrace"
"""Python's message if the interpreter lacks headrace."""


def loader_trial(
    session: Session,
    view: TrainerView,
    ranks: Sequence[RankView],
    adoption: Adoption | None,
    look: Path,
    announce: Callable[[str], None],
) -> LoaderTrial | None:
    """Try a Loader, if one is known and steps wait; `look` has samples to compare, `announce` is called first."""
    if adoption is None:
        return None
    recipe, module = adoption.recipe, adoption.module_text or ""
    run = recorded(session, view, ranks) if module else None
    if run is None:
        why_not = "No batch's making was recorded." if module else ""
    elif session.mode != "measure" or session.outcome.why not in TRIED_AFTER:
        why_not = "It is tried on the run's files only after a measured run that came to its end."
    elif view.wait_share is None or view.wait_share < BOUND:
        why_not = f"A {view.training.unit} waits {percent(view.wait_share or 0.0)} for data: nothing is to be gained."
    else:
        why_not = ""
    if run is None or why_not:
        trial = LoaderTrial("not tried", why_not, module)
    else:
        request = _request(session, view.trainer.pid, run, module, str(look), recipe)
        limit = f"no stage longer than {request.most_s:.0f} s"
        announce(f"trying Headrace's Loader on the run's files: about {EXPECTED_S:.0f} s, {limit}")
        trial = tried_loader(request)
        counted = recipe.tried(trial.verified)
        if counted != recipe:
            recipe, trial.module = counted, module_text(counted, adoption.files)
    trial.degree, trial.reason, trial.files = recipe.degree, recipe.reason, dict(adoption.files)
    trial.covered, trial.left = list(recipe.covered), dict(recipe.left)
    trial.parts = list(recipe.parts)
    return trial


def _request(
    session: Session, pid: int, run: RecordedRun, module: str, look: str, recipe: LoaderRecipe
) -> LoaderTrialRequest:
    """Return the request for the trainer `pid` of a session with the recorded work `run`."""
    trainer = next((one for one in session.processes if one.pid == pid), None)
    facts = {} if trainer is None else trainer.facts.get("process") or {}
    script = next((one for one in facts.get("argv") or [] if str(one).endswith(".py")), "")
    steps, cores = run.steps, run.setup.cores
    computing, waiting = float(steps.compute.mean()), float(steps.wait.mean())
    own = [str(path) for path in (facts.get("executable"), sys.executable) if path]
    return LoaderTrialRequest(
        module=module,
        look=look,
        arguments=recipe.arguments,
        interpreters=list(dict.fromkeys(own)),
        paths=list(dict.fromkeys([os.path.dirname(os.path.abspath(script)), os.getcwd(), *recipe.folders])),
        cores=None if cores is None else math.ceil(cores),
        step_us=(computing, max(waiting, float(steps.device.mean()) - computing)),
        team=run.team,
        batches_a_step=max(round(run.batches_a_step), 1),
    )


def tried_loader(request: LoaderTrialRequest) -> LoaderTrial:
    """Try a module, and return the result. A fault of the module is a result, never an error of the doctor."""
    folder = Path(tempfile.mkdtemp(prefix="headrace-trial-"))
    try:
        (folder / MODULE_FILE).write_text(request.module, encoding="utf-8")
        (folder / REQUEST).write_text(json.dumps(asdict(request)), encoding="utf-8")
        found = LoaderTrial("failed", "no Python to try it in")
        for python in request.interpreters:
            found = _TrialWatch(request, folder).run(python)
            if found.why != "failed" or NEEDS not in found.detail:
                break
        found.module = request.module
        return found
    except OSError as error:
        return LoaderTrial("failed", f"the trial could not be started: {error}", request.module)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@dataclass
class _TrialWatch:
    """Watch over one process, from its start until all of its processes have ended."""

    request: LoaderTrialRequest
    folder: Path
    base_bytes: int = 0
    """Memory of the process when it began to open the data."""
    peak_bytes: int = 0
    processes: list[psutil.Process] = field(default_factory=list)
    listed_s: float = -LISTED_S

    def run(self, python: str) -> LoaderTrial:
        process = self._started(python)
        try:
            return self._watched(process)
        except KeyboardInterrupt:
            return LoaderTrial("interrupted")
        finally:  # until it is waited for, the number of its group is not reused
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.communicate()

    def _started(self, python: str) -> subprocess.Popen[bytes]:
        """Start the process. It finds headrace by its own Python, and writes nothing next to the user's data."""
        environ = dict(os.environ) | {
            "CUDA_VISIBLE_DEVICES": "",
            "HEADRACE_CACHE": str(self.folder),
            "HEADRACE_CACHE_ONLY": "1",
            "PYTHONDONTWRITEBYTECODE": "1",
            "PYTHONSAFEPATH": "1",
            "PYTHONUNBUFFERED": "1",
            "TMPDIR": str(self.folder),
        }
        command = [python, "-c", PROCESS, str(self.folder)]
        with (self.folder / OUTPUT).open("wb") as output:
            return subprocess.Popen(
                command,
                env=environ,
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def _watched(self, process: subprocess.Popen[bytes]) -> LoaderTrial:
        most_bytes, free = self.request.most_bytes, available_bytes()
        if most_bytes is None and free is not None:
            most_bytes = round(MEMORY_SHARE * free)
        tree, until, ended, stage = psutil.Process(process.pid), 0.0, None, ""
        while ended is None:
            ended = os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            said = self._answers()
            at, used = said.get("at", IMPORTS), self._used_bytes(tree)
            if not self.base_bytes and at != IMPORTS:
                self.base_bytes = used
            if at != stage:
                stage, until = at, time.monotonic() + self.request.most_s
            self.peak_bytes = max(self.peak_bytes, used)
            if most_bytes is not None and used > most_bytes:
                return LoaderTrial("out of memory", f"{at}: it took more than {most_bytes / 1e9:.1f} GB")
            if "failed" in said:
                return LoaderTrial("failed", said["failed"])
            if said.get("whole") or ("measured" in said and time.monotonic() > until):
                return LoaderTrial("measured", peak_bytes=max(self.peak_bytes - self.base_bytes, 0), **said["measured"])
            if time.monotonic() > until:
                return LoaderTrial("timed out", f"{at} took more than {self.request.most_s:.0f} s")
            time.sleep(0.0 if ended else WATCH_S)
        status = ended.si_status
        how = f"exit status {status}" if ended.si_code == os.CLD_EXITED else f"signal {status}"
        last = (self.folder / OUTPUT).read_text("utf-8", "backslashreplace").strip().splitlines()[-LAST_LINES:]
        return LoaderTrial("failed", "\n".join([f"{at}: its process ended with {how}", *last]))

    def _answers(self) -> dict[str, Any]:
        answers = self.folder / ANSWERS
        found: dict[str, Any] = json.loads(answers.read_bytes()) if answers.exists() else {}
        return found

    def _used_bytes(self, tree: psutil.Process) -> int:
        """Return the resident bytes of a process and its descendants; shared memory counts for each."""
        total = 0
        with contextlib.suppress(psutil.Error):
            if time.monotonic() - self.listed_s > LISTED_S:
                self.processes, self.listed_s = [tree, *tree.children(recursive=True)], time.monotonic()
        for one in self.processes:
            with contextlib.suppress(psutil.Error):
                total += one.memory_info().rss
        return total
