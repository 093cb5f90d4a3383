"""A session and a diagnosis made by hand, of figures that are easy to find again in a report."""

from __future__ import annotations

from dataclasses import replace

from headrace.doctor.causes import Edit, Prescription, Remedy
from headrace.doctor.causes import ProofOutcome as Proved
from headrace.doctor.measure import LowerBounds
from headrace.doctor.measure.diagnosis import (
    Diagnosis,
    Finding,
    LinePart,
    LoaderProduction,
    ProbeCost,
    RankView,
    StagePart,
    Statement,
    StepBudget,
    TimePart,
    WaitSplit,
)
from headrace.doctor.session.model import CommandOutcome, Machine, ProbedProcess, Session, SessionNote
from headrace.doctor.session.trainers import (
    BatchProducer,
    LoaderFacts,
    OptimizerSteps,
    ProducedBatches,
    ReceivedBatches,
    Trainer,
    TrainerPass,
)
from headrace.doctor.simulate import Prediction

STEP_US = 100_000
BATCH_US = 180_000
TRAINER, WORKERS = 100, (201, 202)


def made_session(steps: int = 4) -> Session:
    """One trainer and two workers: each step waits 70 ms for a batch that takes 180 ms to make."""
    return Session(
        created="2026-01-02T03:04:05Z",
        mode="measure",
        headrace="0.1.0",
        warmup=None,
        steps=steps,
        outcome=CommandOutcome(["python", "train.py", "--lr", "1e-3"], 0, "steps", 41_300_000),
        processes=[_process(TRAINER, 1, "trainer"), *(_process(pid, TRAINER, "worker") for pid in WORKERS)],
        trainers=[_trainer(steps)],
        makers=[_maker(worker, pid, steps) for worker, pid in enumerate(WORKERS)],
        machines=[_machine(steps)],
        notes=[SessionNote("scaler", "3 steps were skipped by GradScaler", TRAINER, 5)],
    )


def made_diagnosis() -> Diagnosis:
    return Diagnosis(
        verdict=Statement(
            "input-bound", "A step takes 100 ms; the GPU waits 70 % of it for data, mostly archive lookup."
        ),
        statements=[
            Statement("causes", "58 % of the wait is archive lookup in 2 workers, 27 % decode."),
            Statement("noise", "Figures are noisy."),
        ],
        wait_share=0.7,
        seen_by="gpu",
        budgets=[_budget()],
        waits=[
            WaitSplit(
                TRAINER, [TimePart("not ready", 68_600, 0.98), TimePart("pin", 1_400, 0.02), TimePart("unknown", 0, 0)]
            )
        ],
        batch_production=[_making()],
        findings=[
            Finding(
                "archive-lookup",
                0.41,
                "Each read searches the tar's member list by name.",
                "lookup tarfile.getmember: 104 ms of the 180 ms of a batch, 97 % of it computing",
                "Read members by offset: headrace.IndexedTar takes the place of tarfile.open.",
            ),
            Finding(
                "respawn",
                0.03,
                "Each epoch starts new workers.",
                "1.20 s to start, 3 passes",
                "Set persistent_workers=True.",
            ),
        ],
        cost=ProbeCost(step_us=48.0, step_share=0.00048, evidence_bytes=1_234_567),
    )


def made_ranks() -> Diagnosis:
    """The same on two ranks, of which the second is late."""
    late = RankView(1, 101, 100_000, 0.98, 19_800, None, 2_100, 20_500, "decode:PIL.Image.load")
    ranks = [RankView(0, 100, 100_000, 0.02, 800, 19_400, 2_100, 1_000, None), late]
    return replace(made_diagnosis(), ranks=ranks)


def made_prescription() -> Prescription:
    """Two that help, of which one was proved and the other broke the run; the two tried together, in vain; two that
    would not."""
    both = Prediction(33_400, 31_000, 39_800, 2.99)
    return Prescription(
        lower_bounds=LowerBounds(observed_us=STEP_US, replay_us=31_000),
        why_no_windows="",
        stop="",
        remedies=[_indexed(), _workers(), *_idle()],
        best=_indexed().prediction,
        together=["indexed-tar"],
        left_out=["workers"],
        outcomes=[
            Proved(["indexed-tar"], _indexed().prediction, "measured", "", 39_000, 38_100, 40_200, 2.56, "same", True),
            Proved(["workers"], _workers().prediction, "broke", DIED, None, None, None, None, None, False),
            Proved(["indexed-tar", "workers"], both, "measured", "", 34_000, 33_000, 35_100, 2.94, "different", False),
        ],
    )


def balanced_prescription() -> Prescription:
    """Nothing to do, and no windows to tell the lower bounds from."""
    stop = "Leave the data as it is: backward takes 61 % of each step, and no loader makes that shorter."
    return Prescription(None, "the run was only observed", stop, remedies=_idle())


DIED = "Traceback (most recent call last):\nRuntimeError: DataLoader worker (pid 77) is killed by signal: Killed."


def _indexed() -> Remedy:
    diff = (
        "--- a/data/dataset.py\n+++ b/data/dataset.py\n@@ -39,3 +39,3 @@\n"
        "     def __getitem__(self, index):\n"
        "-        self.tar = self.tar or tarfile.open(self.path)\n"
        "+        self.tar = self.tar or headrace.IndexedTar(self.path)\n"
        "         return self.decode(self.tar, self.names[index])\n"
    )
    return Remedy(
        code="indexed-tar",
        title="IndexedTar in place of tarfile.open",
        helps=True,
        why="Looking up a member takes 104 ms of the 180 ms of a batch; by an index it takes 0.1 ms.",
        prediction=Prediction(38_200, 36_000, 45_100, 2.62),
        confidence="high",
        costs=["an index of 4.1 MB beside the archive"],
        edit=Edit("data/dataset.py", 41, diff),
        changes={"indexed_tar": True},
        effort="one line of code",
    )


def _workers() -> Remedy:
    return Remedy(
        code="workers",
        title="5 workers in place of 2",
        helps=True,
        why="Making batches is 3.6 cores' worth of work, of which 2 workers do 2.",
        prediction=Prediction(71_000, 62_000, 88_000, 1.41),
        confidence="medium",
        costs=["720 MB of memory", "3 cores"],
        hint="DataLoader(…, num_workers=5)",
        changes={"loaders": {"0": {"num_workers": 5}}},
        effort="a setting",
    )


def _idle() -> list[Remedy]:
    reasons = {
        "pin-memory": ("Pinned memory", "batches are pinned already"),
        "cache": ("A cache of decoded images", "51 GB would be needed, and 38 GB are free"),
    }
    return [Remedy(code, title, False, why, None, "high") for code, (title, why) in reasons.items()]


def _budget() -> StepBudget:
    parts = [
        TimePart("data wait", 70_000, 0.70),
        TimePart("host to device", 1_200, 0.012),
        TimePart("forward", 9_000, 0.09),
        TimePart("backward", 16_000, 0.16),
        TimePart("optimizer", 3_400, 0.034),
        TimePart("collective", 0, 0.0),
        TimePart("other", 400, 0.004),
    ]
    device = [TimePart("data wait", 69_100, 0.691), TimePart("backward", 17_000, 0.17)]
    return StepBudget(TRAINER, 0, "step", 200, 16.0, 100_000, 98_000, 131_000, parts, device)


def _making() -> LoaderProduction:
    stages = [
        StagePart("lookup", "tarfile.getmember", 0.58, 6_525, 6_300, 16),
        StagePart("decode", "PIL.Image.load", 0.27, 3_040, 3_000, 16),
        StagePart("read", "tarfile.read", 0.08, 900, 125, 16),
        StagePart("transform", "RandomResizedCrop", 0.03, 340, 340, 16),
        StagePart("collate", "default_collate", 0.02, 225, 225, 1),
        StagePart("getitem", "rest", 0.015, 170, 170, 16),
        StagePart("other", "rest", 0.005, 56, None, 1),
    ]
    lines = [LinePart("/home/ada/train/data/dataset.py:41:__getitem__", 0.57), LinePart("train.py:80:crop", 0.04)]
    return LoaderProduction(TRAINER, 0, 2, 200, 0.99, 1.9, BATCH_US, stages, lines, 1_200_000, None, 3, True)


def _process(pid: int, parent: int, role: str) -> ProbedProcess:
    return ProbedProcess(pid, parent, "box", role, 0, 40_000_000, "steps", facts={"argv": ["python", "train.py"]})


def _trainer(steps: int) -> Trainer:
    starts = [1_000_000 + number * STEP_US for number in range(steps)]
    return Trainer(
        pid=TRAINER,
        host="box",
        rank=0,
        steps=OptimizerSteps(
            number=list(range(steps)),
            start=starts,
            end=[start + STEP_US for start in starts],
            spans=[
                [("h", start + 70_000, 1_200), ("b", start + 80_200, 16_000), ("o", start + 96_200, 3_400)]
                for start in starts
            ],
            probe=[4.8] * steps,
            device=[
                [(kind, start - 1_000_000.0 + at) for kind, at in [("s", 0), ("w", 200), ("r", 70_100), ("b", 80_900)]]
                for start in starts
            ],
            ready=[None] * steps,
        ),
        gets=ReceivedBatches(
            pass_=[0] * steps,
            index=list(range(steps)),
            start=starts,
            duration=[70_000] * steps,
            arrived=[start + 69_000 for start in starts],
            unpickle=[400] * steps,
            pin_start=[None] * steps,
            pin=[None] * steps,
            bytes=[19_267_584] * steps,
            shape=[0] * steps,
        ),
        passes=[TrainerPass(0, 0, 100_000, 900_000, 0, list(WORKERS))],
        loaders=[LoaderFacts(0, {"num_workers": 2, "prefetch_factor": 2, "dataset": "data.Pairs"})],
        shapes=["float32[32,3,224,224]"],
    )


def _maker(worker: int, pid: int, steps: int) -> BatchProducer:
    indices = list(range(worker, steps, len(WORKERS)))
    starts = [1_000_000 + index * STEP_US - BATCH_US for index in indices]
    return BatchProducer(
        pid=pid,
        host="box",
        trainer=TRAINER,
        worker=worker,
        begun=700_000,
        stages=["lookup:tarfile.getmember", "decode:PIL.Image.load"],
        batches=ProducedBatches(
            epoch=[0] * len(indices),
            index=indices,
            start=starts,
            fetched=[start + BATCH_US for start in starts],
            sent=[start + BATCH_US + 500 for start in starts],
            serialise=[300] * len(indices),
            samples=[16] * len(indices),
            stages=[[(0, 16, 120_000, 118_000), (1, 16, 60_000, 60_000)]] * len(indices),
        ),
    )


def _machine(steps: int) -> Machine:
    """Eight cores of which two are busy; one column measured nothing."""
    readings = range(0, 1_000_000 + steps * STEP_US, 250_000)
    columns: dict[str, float | None] = {"cpu_cores_busy": 2.4, "cpu_cores_command": 1.9, "cpu_throttled_cores": None}
    columns |= {"command_pss_bytes": 4.1e9, "shm_used_bytes": 1.2e9}
    facts = {"cores": 8, "cpu_model": "AMD EPYC 7713", "memory_bytes": 64_000_000_000}
    facts |= {"memory_limit_bytes": None, "shm_bytes": 8_000_000_000}
    every = {name: [value for _ in readings] for name, value in columns.items()}
    return Machine(host="box", facts=facts, time=list(readings), columns=every)
