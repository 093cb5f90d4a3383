"""Trial of a Loader on the run's own files: a separate process, a deadline, and a memory watch."""

from __future__ import annotations

import contextlib
import json
import math
import os
import selectors
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import IO, Any

import psutil

from headrace.doctor.adoption.module import module_text
from headrace.doctor.adoption.recipe import Adoption
from headrace.doctor.adoption.trial_process import IMPORTS, TrialOrder
from headrace.doctor.measure import BOUND, RankView, TrainerView
from headrace.doctor.quantities import percent
from headrace.doctor.session.after_run import AdoptedPart, LoaderTrial
from headrace.doctor.session.model import Session
from headrace.doctor.simulate import RecordedRun, recorded
from headrace.system import available_bytes

PROCESS = "from headrace.doctor.adoption.trial_process import main; main()"
MODULE_FILE = "headrace_adopted_loader.py"
EXPECTED_S = 10.0
"""Usual duration of a trial: importing torch, opening the data, two seconds alone and four alongside a step."""
MOST_S = 15.0
"""Time limit for imports, and again for everything that follows."""
MEMORY_SHARE = 0.5
"""Share of available memory above which a trial counts as out of memory."""
WATCH_S = 0.05
"""Interval between memory readings: a process fills fresh memory at about 2 GB/s."""
MOST_OUTPUT = 1 << 20
"""Maximum bytes of answers; more come from something else."""
LAST_BYTES = 2_000
"""Bytes of its output that are retained for the reason."""
CLOSING_S = 2.0
TRIED_AFTER = ("finished", "steps")
"""Ends of a run after which the Loader is tried."""
NEEDS = "No module named 'headrace"
"""Python's message if the interpreter lacks headrace."""


@dataclass(frozen=True)
class LoaderTrialRequest:
    """Request of a trial: the module, and the run that it replaces."""

    module: str
    """Text of the module."""
    look: str = ""
    """File of the look to compare its batches with; empty for none."""
    interpreters: Sequence[str] = (sys.executable,)
    """Python interpreters to run it in, best first; the next is used if one lacks headrace."""
    paths: Sequence[str] = ()
    """Folders of the script's own modules."""
    cores: int | None = None
    step_us: tuple[float, float] = (0.0, 0.0)
    """Computing and waiting of a step."""
    team: int = 1
    batches_a_step: int = 1
    most_s: float = MOST_S
    most_bytes: int | None = None
    """Memory limit; None for a share of the memory available at the start."""
    alone_s: float = TrialOrder.alone_s
    alongside_s: float = TrialOrder.alongside_s

    @classmethod
    def of(cls, session: Session, pid: int, run: RecordedRun, module: str, look: str) -> LoaderTrialRequest:
        """Return the request for the trainer `pid` of a session with the recorded work `run`."""
        trainer = next((one for one in session.processes if one.pid == pid), None)
        facts = {} if trainer is None else trainer.facts.get("process") or {}
        script = next((one for one in facts.get("argv") or [] if str(one).endswith(".py")), "")
        steps, cores = run.steps, run.setup.cores
        computing, waiting = float(steps.compute.mean()), float(steps.wait.mean())
        waiting = max(waiting, float(steps.device.mean()) - computing)
        own = [str(path) for path in (facts.get("executable"), sys.executable) if path]
        return cls(
            module=module,
            look=look,
            interpreters=list(dict.fromkeys(own)),
            paths=list(dict.fromkeys([os.path.dirname(os.path.abspath(script)), os.getcwd()])),
            cores=None if cores is None else math.ceil(cores),
            step_us=(computing, waiting),
            team=run.team,
            batches_a_step=max(round(run.batches_a_step), 1),
        )


def loader_trial(
    session: Session,
    view: TrainerView,
    ranks: Sequence[RankView],
    adoption: Adoption | None,
    look: Path,
    announce: Callable[[str], None],
) -> LoaderTrial | None:
    """Try a Loader in place of a measured run's, if its steps wait for data; None if no Loader is known.

    Its batches are compared with the file `look`. `announce` is called first, since the trial takes time.
    """
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
        request = LoaderTrialRequest.of(session, view.trainer.pid, run, module, str(look))
        announce(f"trying Headrace's Loader on the run's files: about {EXPECTED_S:.0f} s, at most {2 * MOST_S:.0f} s")
        trial = tried_loader(request)
        counted = recipe.tried(trial.verified)
        if counted != recipe:
            recipe, trial.module = counted, module_text(counted, adoption.files)
    trial.degree, trial.reason, trial.files = recipe.degree, recipe.reason, dict(adoption.files)
    trial.covered, trial.left = list(recipe.covered), dict(recipe.left)
    trial.parts = [AdoptedPart(part.part, "", part.becomes, part.certainty, part.note) for part in recipe.parts]
    return trial


def tried_loader(request: LoaderTrialRequest) -> LoaderTrial:
    """Try a module, and return the result. A fault of the module is a result, never an error of the doctor."""
    folder = Path(tempfile.mkdtemp(prefix="headrace-trial-"))
    try:
        (folder / MODULE_FILE).write_text(request.module, encoding="utf-8")
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
    at: str = IMPORTS
    measured: dict[str, Any] = field(default_factory=dict)
    is_whole: bool = False
    failed: str | None = None
    printed: bytes = b""
    base_bytes: int = 0
    """Memory of the process when it began to open the data."""
    peak_bytes: int = 0
    _answers: bytes = b""

    def run(self, python: str) -> LoaderTrial:
        process = self._started(python)
        try:
            return self._watched(process)
        except KeyboardInterrupt:
            return LoaderTrial("interrupted")
        finally:
            _end(process)

    def _started(self, python: str) -> subprocess.Popen[bytes]:
        """Start the process. It finds headrace by its own Python, and writes nothing next to the user's data."""
        request, environ = self.request, dict(os.environ)
        environ |= {
            "CUDA_VISIBLE_DEVICES": "",
            "HEADRACE_CACHE": str(self.folder),
            "HEADRACE_CACHE_ONLY": "1",
            "PYTHONDONTWRITEBYTECODE": "1",
            "PYTHONSAFEPATH": "1",
            "PYTHONUNBUFFERED": "1",
            "TMPDIR": str(self.folder),
        }
        order = TrialOrder(
            module=str(self.folder / MODULE_FILE),
            look=request.look,
            paths=list(request.paths),
            cores=request.cores,
            alone_s=request.alone_s,
            alongside_s=request.alongside_s,
            step_us=request.step_us,
            team=request.team,
            batches_a_step=request.batches_a_step,
        )
        process = subprocess.Popen(
            [python, "-c", PROCESS],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environ,
            start_new_session=True,
        )
        assert process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # it has already ended, and its output says why
            process.stdin.write(json.dumps(asdict(order)).encode() + b"\n")
            process.stdin.flush()
        return process

    def _watched(self, process: subprocess.Popen[bytes]) -> LoaderTrial:
        most_bytes = self.request.most_bytes
        if most_bytes is None:
            free = available_bytes()
            most_bytes = None if free is None else round(MEMORY_SHARE * free)
        tree, until = psutil.Process(process.pid), time.monotonic() + self.request.most_s
        for stream, piece in _pieces(process):
            if stream == "stderr":
                self.printed = (self.printed + piece)[-LAST_BYTES:]
            elif piece:
                was_importing = self.at == IMPORTS
                self._take(piece)
                if was_importing and self.at != IMPORTS:
                    self.base_bytes = _memory(tree)
                    until = time.monotonic() + self.request.most_s
            used = _memory(tree)
            self.peak_bytes = max(self.peak_bytes, used)
            if most_bytes is not None and used > most_bytes:
                return self._outcome("out of memory", f"{self.at}: it took more than {most_bytes / 1e9:.1f} GB")
            if self.failed is not None or self.is_whole or len(self._answers) > MOST_OUTPUT:
                break
            if time.monotonic() > until:
                why = f"{self.at} took more than {self.request.most_s:.0f} s"
                return self._outcome("measured" if self.measured else "timed out", "" if self.measured else why)
        if self.failed is not None:
            return self._outcome("failed", self.failed)
        if not self.is_whole:
            self.printed = (self.printed + _end(process))[-LAST_BYTES:]
            return self._outcome("failed", self._why_ended(process.returncode))
        return self._outcome("measured", "")

    def _take(self, piece: bytes) -> None:
        *lines, self._answers = (self._answers + piece).split(b"\n")
        for line in lines:
            try:
                answer = json.loads(line)
            except ValueError:
                answer = {"failed": f"{self.at}: something wrote into its answers"}
            self.at = answer.get("at", self.at)
            self.failed = answer.get("failed", self.failed)
            self.measured = answer.get("measured", self.measured)
            self.is_whole |= bool(answer.get("whole"))

    def _outcome(self, why: str, detail: str) -> LoaderTrial:
        if why != "measured":
            return LoaderTrial(why, detail)
        peak_bytes = max(self.peak_bytes - self.base_bytes, 0) if self.base_bytes else None
        return LoaderTrial(why, peak_bytes=peak_bytes, **self.measured)

    def _why_ended(self, status: int | None) -> str:
        last = self.printed.decode("utf-8", "backslashreplace").strip().splitlines()[-3:]
        how = f"signal {-status}" if status is not None and status < 0 else f"exit status {status}"
        return "\n".join([f"{self.at}: its process ended with {how}", *last])


def _pieces(process: subprocess.Popen[bytes]) -> Iterator[tuple[str, bytes]]:
    """Yield the process's output by stream, and an empty piece now and then; stop at the end of its answers."""
    streams: dict[str, IO[bytes] | None] = {"stdout": process.stdout, "stderr": process.stderr}
    with selectors.DefaultSelector() as selector:
        for name, stream in streams.items():
            assert stream is not None
            selector.register(stream.fileno(), selectors.EVENT_READ, name)
        while True:
            ready = selector.select(WATCH_S)
            for key, _ in ready:
                piece = os.read(key.fd, 65536)
                if piece:
                    yield key.data, piece
                    continue
                selector.unregister(key.fd)
                if key.data == "stdout":
                    return
            if not ready:
                yield "stdout", b""


def _memory(tree: psutil.Process) -> int:
    """Return the resident bytes of a process and its descendants; shared memory counts for each."""
    total = 0
    with contextlib.suppress(psutil.Error):
        for one in [tree, *tree.children(recursive=True)]:
            with contextlib.suppress(psutil.Error):
                total += one.memory_info().rss
    return total


def _end(process: subprocess.Popen[bytes]) -> bytes:
    """Kill the process group, and return the last output.

    The group is killed before the process is waited for: until then, its number is not reused.
    """
    if process.returncode is not None:
        return b""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(CLOSING_S)
    assert process.stderr is not None
    last = b""
    os.set_blocking(process.stderr.fileno(), False)
    with contextlib.suppress(BlockingIOError):
        last = os.read(process.stderr.fileno(), 65536)
    for stream in (process.stdin, process.stdout, process.stderr):
        if stream is not None:
            with contextlib.suppress(OSError):
                stream.close()
    return last
