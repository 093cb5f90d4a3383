"""Runs on a machine that stays as it is, and what is found in them."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

from headrace.doctor.causes import diagnose
from headrace.doctor.measure.diagnosis import Finding
from headrace.doctor.session.model import CommandOutcome, Machine, ProbedProcess, Session
from headrace.doctor.session.trainers import BatchProducer, LoaderFacts, OptimizerSteps, Trainer, TrainerPass

GB = 10**9
TRAINER = 100
ROWS = 10


@dataclass
class Run:
    """A run on one machine: a trainer, workers, and readings that stay as they are."""

    facts: dict[str, Any] = field(default_factory=dict)
    columns: dict[str, float | None] = field(default_factory=dict)
    workers: int = 2
    worker_facts: dict[str, Any] = field(default_factory=dict)
    worker_figures: dict[str, Any] = field(default_factory=dict)
    trainer_facts: dict[str, Any] = field(default_factory=dict)
    device: str | None = None
    host: str = "here"

    def session(self) -> Session:
        pids = [TRAINER + 1 + worker for worker in range(self.workers)]
        trainer = Trainer(
            TRAINER,
            self.host,
            0,
            steps=OptimizerSteps(
                number=[0], start=[0], end=[ROWS], spans=[[]], probe=[None], device=[None], ready=[None]
            ),
            passes=[TrainerPass(0, 0, 0, 1, 0, pids or [TRAINER])],
            loaders=[LoaderFacts(0, {"num_workers": self.workers})],
        )
        makers = [BatchProducer(pid, self.host, TRAINER, worker) for worker, pid in enumerate(pids)]
        trainers_facts = {"facts": {"device": self.device, **self.trainer_facts}}
        return Session(
            created="",
            mode="measure",
            headrace="",
            warmup=None,
            steps=1,
            outcome=CommandOutcome([], 0, "finished", ROWS),
            trainers=[trainer],
            makers=makers or [BatchProducer(TRAINER, self.host, TRAINER, None)],
            processes=[
                ProbedProcess(TRAINER, 1, self.host, "trainer", 0, ROWS, "exit", trainers_facts),
                *(
                    ProbedProcess(pid, TRAINER, self.host, "worker", 0, ROWS, "exit", {"facts": self.worker_facts})
                    for pid in pids
                ),
            ],
            machines=[self.machine(pids or [TRAINER])],
        )

    def machine(self, makers: list[int]) -> Machine:
        return Machine(
            host=self.host,
            facts=self.facts,
            time=list(range(1, ROWS + 1)),
            columns={name: [value] * ROWS for name, value in self.columns.items()},
            processes={TRAINER: {}}
            | {pid: {"started": 0, "last": 10_000_000, **self.worker_figures} for pid in makers},
        )


def machine_findings(session: Session) -> list[Finding]:
    """The findings on the machines, heaviest first: a run without its trainer has no others."""
    return diagnose(session).findings


def only(run: Run) -> Finding:
    found = machine_findings(run.session())
    assert len(found) == 1, f"expected one finding, got {[finding.code for finding in found]}"
    return found[0]


def quantities(sentence: str) -> list[str]:
    """The numbers of a sentence with their units, in its order: `9.8 %`, `400 MB`, `2`."""
    return re.findall(r"(?<![\w,.\[])\d[\d,]*(?:\.\d+)?(?: (?:µs|ms|s|min|h|B|kB|MB|GB|TB|%|×)(?!\w))?", sentence)


def codes(run: Run) -> list[str]:
    return [finding.code for finding in machine_findings(run.session())]


_POOLS = {"torch_threads": 1, "opencv_threads": 8, "omp_threads": None}
_WAITED = {"cpu_wait_s": 4.0}
THREADS = Run(facts={"cores": 4}, workers=2, worker_facts=_POOLS, worker_figures=_WAITED, device="NVIDIA H100")
