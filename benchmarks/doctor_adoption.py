"""How near the doctor's prescribed Loader comes to the lower bound of a step, and to what it was predicted to give.

    python benchmarks/doctor_adoption.py [--scripts folder_v1 depth_tar] [--workers 1 2] [--device-ms 20] [--steps 60]

Each script of tests/doctor/adopted is diagnosed on made data, with each number of workers. Then it is run as often as
`--rounds` says with the module that the doctor wrote in place of its DataLoader, and in turn as it is. The scripts
train on the CPU, beside the Loader; with `--device-ms` each also runs as on a device: computing has one thread, and
after the optimizer the step waits that long. Printed are the step as it is, on cached batches (the lower bound), with
the module as predicted and as measured, and the Loader's own limit: what it takes for a step's batches alone, and a
step beside a stand-in for its CPU work, as the trial measured them. `reached` is the measured step by the lower bound,
or by the Loader's limit beside the step where that is longer; `error` is the predicted step by the measured one, less
1. `degree` is what the doctor knows of the data, and `first` the remedy that it puts first.

Run it by a Python that has torchvision, timm, albumentations, webdataset, datasets and tokenizers, on a machine without
other work. The targets: a median `reached` of at most 1.15; a median error of at most 8 %, and none above 25 %.
"""

import re
import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path
from statistics import fmean, median

from harness import HEADRACE, arguments, head, in_turns, process_json, row

from headrace.doctor.causes import diagnose, prescribe
from headrace.doctor.prove.trial import DIGESTS, TrialRequest, attempt
from headrace.doctor.session import decode_session, session_folder

ADOPTED = Path(__file__).parent.parent / "tests" / "doctor" / "adopted"
MOST_S = 180.0
HEADS = ("script", "workers", "device", "degree", "first", "as it is", "lower", "alone", "beside", "predicted",
         "measured", "reached", "error")  # fmt: skip


class NoPairError(Exception):
    """The text says why a script was not diagnosed and adopted."""


def data_of(script, images, folder):
    """Return the made data that a script reads, made by the first one that does."""
    code = (
        "import json, sys; sys.path.append(sys.argv[1]); import adopted_data; print(json.dumps(adopted_data.DATA_OF))"
    )
    kind = process_json("-c", code, ADOPTED)[script]
    if not (folder / kind).exists():
        subprocess.run([sys.executable, ADOPTED / "adopted_data.py", kind, folder / kind, str(images)], check=True)
    return folder / kind


def as_on_device(script, device_ms, folder):
    """Copy the script so that its step waits after the optimizer; every line keeps its number."""
    once = re.compile(r"^( *)optimizer\.step\(\)$", re.MULTILINE)
    wait = rf"\1optimizer.step(), __import__('time').sleep({device_ms / 1e3})"
    waiting, found = once.subn(wait, (ADOPTED / f"{script}.py").read_text())
    assert found == 1, f"{script}: expected one line with optimizer.step(), got {found}"
    path = folder / f"{script}.py"
    path.write_text(waiting)
    return path


def step_ms(command, changes, steps):
    """Return the mean measured step with changes injected."""
    with session_folder(digests=DIGESTS) as folder:
        trial = attempt(command, folder.settings, TrialRequest(changes, steps, MOST_S))
    if trial.why != "measured":
        raise NoPairError(f"{trial.why}: {trial.detail}")
    return fmean(trial.steps) / 1e3


def adopt(script, workers, device, data, args, folder):
    """Diagnose and adopt one script; print its row; return `reached`, the error, and True if within the interval."""
    path = ADOPTED / f"{script}.py" if device is None else as_on_device(script, device, folder)
    command = [sys.executable, str(path), str(data), "--workers", str(workers), "--steps", "100000"]
    command = command if device is None else ["env", "OMP_NUM_THREADS=1", *command]
    saved = folder / "session.json"
    saved.unlink(missing_ok=True)
    diagnosis = [*HEADRACE, "doctor", "--steps", str(args.steps), "--json", str(saved), "--", *command]
    subprocess.run(diagnosis, capture_output=True, check=False)
    if not saved.exists():
        raise NoPairError("the diagnosis failed")
    session = decode_session(saved.read_bytes())
    trial, prescription, trainer = session.loader_trial, prescribe(session, diagnose(session)), session.trainers[0]
    remedy = next((one for one in prescription.remedies if one.code == "loader"), None)
    if remedy is None or remedy.prediction is None or trial is None:
        raise NoPairError("no Loader: " + ("nothing is known of the data" if remedy is None else remedy.why))
    changes = {"loader": {"module": trial.module, "loaders": [one.number for one in trainer.loaders]}}
    turns = {"present": {}, "adopted": changes}
    runs = in_turns({name: partial(step_ms, command, each, args.steps) for name, each in turns.items()}, args.rounds)
    present, measured = map(median, runs.values())
    bounds = prescription.lower_bounds
    lower = None if bounds is None or bounds.replay_us is None else bounds.replay_us / 1e3
    alone = fmean(trial.batch_us) * max(round(len(trainer.gets.start) / max(len(trainer.steps.start), 1)), 1) / 1e3
    beside = fmean(trial.loaded_us or trial.batch_us) / 1e3
    low, predicted, high = (getattr(remedy.prediction, name) / 1e3 for name in ("low_us", "step_us", "high_us"))
    reached, error = measured / max(lower or 0.0, beside), predicted / measured - 1
    times = ("–" if each is None else f"{each:.1f}" for each in (present, lower, alone, beside, predicted, measured))
    where = "–" if device is None else f"{device:g}"
    first = prescription.remedies[0].code
    print(row(script, workers, where, trial.degree, first, *times, f"{reached:.2f}", f"{error:+.0%}"), flush=True)
    return reached, abs(error), low <= measured <= high


def main():
    names = sorted(path.stem for path in ADOPTED.glob("*.py") if path.stem != "adopted_data")
    args = arguments(
        __doc__, scripts={"nargs": "+", "choices": names, "default": names}, workers=[1, 2], device_ms=float, steps=60,
        images=2000, rounds=2, data={"type": Path, "help": "folder of the made data, which stays"},
    )  # fmt: skip
    pairs = []
    print(head(*HEADS), flush=True)
    with tempfile.TemporaryDirectory() as temporary:
        for script in args.scripts:
            data = data_of(script, args.images, args.data or Path(temporary))
            for device in (None,) if args.device_ms is None else (None, args.device_ms):
                for workers in args.workers:
                    try:
                        pairs.append(adopt(script, workers, device, data, args, Path(temporary)))
                    except NoPairError as reason:
                        print(f"{script}, {workers} workers, device {device} ms: {reason}", file=sys.stderr, flush=True)
    if pairs:
        reached, errors, within = zip(*pairs, strict=True)
        print(
            f"\n{len(pairs)} pairs: reached {median(reached):.2f} in the median, {max(reached):.2f} at most; error "
            f"{median(errors):.0%} in the median, {max(errors):.0%} at most; {sum(within)} of {len(pairs)} within the "
            "interval"
        )


if __name__ == "__main__":
    main()
