"""How near the doctor's prescribed Loader comes to the lower bound of a step, and to what it was predicted to give.

    python benchmarks/doctor_adoption.py [--scripts folder_v1 depth_tar] [--workers 1 2] [--device-ms 20] [--steps 60]
    python benchmarks/doctor_adoption.py --passive --scripts folder_v2 --workers 2 --rounds 5

Each script of tests/doctor/adopted is diagnosed on made data, with each number of workers. Then it is run as often as
`--rounds` says with the module that the doctor wrote in place of its DataLoader, and in turn as it is. The scripts
train on the CPU, beside the Loader; with `--device-ms` each also runs as on a device: computing has one thread, and
after the optimizer the step waits that long. Printed are the step as it is, on cached batches (the lower bound), with
the module as predicted and as measured, and the Loader's own limit: what it takes for a step's batches alone, and a
step beside a stand-in for its CPU work, as the trial measured them. `reached` is the measured step by the lower bound,
or by the Loader's limit beside the step where that is longer; `error` is the predicted step by the measured one, less
1. `degree` is what the doctor knows of the data, and `first` the remedy that it puts first. With `--passive` each round
also runs with OMP_WAIT_POLICY=passive beside the module; printed are the medians of both, as predicted and as measured.

Run it by a Python that has torchvision, timm, albumentations, webdataset, datasets and tokenizers, on a machine without
other work. The targets: a median `reached` of at most 1.15; a median error of at most 8 %, and none above 25 %.
"""

import argparse
import json
import re
import statistics
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from headrace.doctor.causes import diagnose, prescribe
from headrace.doctor.prove.trial import DIGESTS, TrialRequest, attempt
from headrace.doctor.session import decode_session, session_folder

ADOPTED = Path(__file__).parent.parent / "tests" / "doctor" / "adopted"
MAIN = "from headrace.tools.command_line import main; main()"
MOST_S = 180.0
HEADS = (
    "script",
    "workers",
    "device",
    "degree",
    "first",
    "as it is",
    "lower",
    "alone",
    "beside",
    "predicted",
    "measured",
    "reached",
    "error",
)


@dataclass(frozen=True)
class AdoptionPair:
    """One script, as it was diagnosed and as it ran with the Loader. Times are milliseconds."""

    script: str
    workers: int
    device: float | None
    degree: str
    first: str
    present: float
    lower: float | None
    alone: float
    beside: float
    predicted: float
    low: float
    high: float
    measured: float

    @property
    def reached(self) -> float:
        return self.measured / max(self.lower or 0.0, self.beside)

    @property
    def error(self) -> float:
        return self.predicted / self.measured - 1

    def row(self) -> str:
        lower = "–" if self.lower is None else f"{self.lower:.1f}"
        times = (f"{one:.1f}" for one in (self.alone, self.beside, self.predicted, self.measured))
        device = "–" if self.device is None else f"{self.device:g}"
        cells = (self.script, str(self.workers), device, self.degree, self.first, f"{self.present:.1f}", lower, *times)
        return "| " + " | ".join((*cells, f"{self.reached:.2f}", f"{self.error:+.0%}")) + " |"


def data_of(script, images, folder):
    """The made data that a script reads, made by the first one that does."""
    kinds = subprocess.run(
        [sys.executable, "-c", "import json, adopted_data as made; print(json.dumps(made.DATA_OF))"],
        cwd=ADOPTED, capture_output=True, text=True, check=True,
    )  # fmt: skip
    kind = json.loads(kinds.stdout)[script]
    place = folder / kind
    if not place.exists():
        subprocess.run([sys.executable, ADOPTED / "adopted_data.py", kind, place, str(images)], check=True)
    return place


def as_on_device(script, device_ms, folder):
    """A copy of the script whose step waits after the optimizer; every line keeps its number."""
    text = (ADOPTED / f"{script}.py").read_text()
    once = re.compile(r"^( *)optimizer\.step\(\)$", re.MULTILINE)
    waiting, found = once.subn(rf"\1optimizer.step(), __import__('time').sleep({device_ms / 1e3})", text)
    assert found == 1, f"{script}: expected one line with optimizer.step(), got {found}"
    path = folder / f"{script}.py"
    path.write_text(waiting)
    return path


def diagnosed(command, steps, folder):
    """The session of a diagnosis of `command`, with the Loader tried; None where it came to nothing."""
    path = folder / "session.json"
    path.unlink(missing_ok=True)
    doctor = ["doctor", "--steps", str(steps), "--json", str(path), "--", *command]
    subprocess.run([sys.executable, "-c", MAIN, *doctor], capture_output=True, check=False)
    return decode_session(path.read_bytes()) if path.exists() else None


def step_ms(command, changes, steps):
    """Mean measured step with changes injected; None, and the reason, where the run came to nothing."""
    with session_folder(digests=DIGESTS) as folder:
        trial = attempt(command, folder.settings, TrialRequest(changes, steps, MOST_S))
    return (
        (statistics.fmean(trial.steps) / 1e3, "") if trial.why == "measured" else (None, f"{trial.why}: {trial.detail}")
    )


def pair_of(script, workers, device, data, asked, folder):
    """Diagnose and adopt one script; the reason where there is no pair."""
    path = ADOPTED / f"{script}.py" if device is None else as_on_device(script, device, folder)
    command = [sys.executable, str(path), str(data), "--workers", str(workers), "--steps", "100000"]
    if device is not None:
        command = ["env", "OMP_NUM_THREADS=1", *command]
    session = diagnosed(command, asked.steps, folder)
    if session is None:
        return "the diagnosis failed"
    trial, prescription = session.loader_trial, prescribe(session, diagnose(session))
    remedy = next((one for one in prescription.remedies if one.code == "loader"), None)
    if remedy is None or remedy.prediction is None or trial is None:
        return "no Loader: " + ("nothing is known of the data" if remedy is None else remedy.why)
    trainer = session.trainers[0]
    changes = {"loader": {"module": trial.module, "loaders": [one.number for one in trainer.loaders]}}
    present, adopted = [], []
    turns = [(present, {}), (adopted, changes)]
    for _ in range(asked.rounds):
        for found, injected in turns:
            step, why = step_ms(command, injected, asked.steps)
            if step is None:
                return why
            found.append(step)
    lower_bounds = prescription.lower_bounds
    batches_a_step = max(round(len(trainer.gets.start) / max(len(trainer.steps.start), 1)), 1)
    return AdoptionPair(
        script=script,
        workers=workers,
        device=device,
        degree=trial.degree,
        first=next(one.code for one in prescription.remedies),
        present=statistics.median(present),
        lower=None if lower_bounds is None or lower_bounds.replay_us is None else lower_bounds.replay_us / 1e3,
        alone=statistics.fmean(trial.batch_us) * batches_a_step / 1e3,
        beside=statistics.fmean(trial.loaded_us or trial.batch_us) / 1e3,
        predicted=remedy.prediction.step_us / 1e3,
        low=remedy.prediction.low_us / 1e3,
        high=remedy.prediction.high_us / 1e3,
        measured=statistics.median(adopted),
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    names = sorted(path.stem for path in ADOPTED.glob("*.py") if path.stem != "adopted_data")
    parser.add_argument("--scripts", nargs="+", choices=names, default=names)
    parser.add_argument("--workers", nargs="+", type=int, default=[1, 2])
    parser.add_argument("--device-ms", type=float, help="also as on a device that takes this long a step")
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--images", type=int, default=2000)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--data", type=Path, help="folder of the made data, which stays; a temporary one without it")
    asked = parser.parse_args()
    pairs = []
    print("| " + " | ".join(HEADS) + " |\n|" + "---|" * len(HEADS), flush=True)
    with tempfile.TemporaryDirectory() as temporary:
        folder = asked.data or Path(temporary)
        for script in asked.scripts:
            data = data_of(script, asked.images, folder)
            kinds = [(workers, None) for workers in asked.workers]
            kinds += [(workers, asked.device_ms) for workers in asked.workers if asked.device_ms is not None]
            for workers, device in kinds:
                pair = pair_of(script, workers, device, data, asked, Path(temporary))
                if isinstance(pair, str):
                    print(f"{script}, {workers} workers, device {device} ms: {pair}", file=sys.stderr, flush=True)
                else:
                    pairs.append(pair)
                    print(pair.row(), flush=True)
    if pairs:
        errors = [abs(pair.error) for pair in pairs]
        within = sum(pair.low <= pair.measured <= pair.high for pair in pairs)
        print(
            f"\n{len(pairs)} pairs: reached {statistics.median(pair.reached for pair in pairs):.2f} in the median, "
            f"{max(pair.reached for pair in pairs):.2f} at most; error {statistics.median(errors):.0%} in the median, "
            f"{max(errors):.0%} at most; {within} of {len(pairs)} within the interval"
        )


if __name__ == "__main__":
    main()
