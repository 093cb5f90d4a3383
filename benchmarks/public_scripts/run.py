"""What the doctor says of public training scripts: which arrays of a batch its Loader makes, and whether they agree.

    python benchmarks/public_scripts/run.py PHOTOS --python PYTHON [--clones FOLDER] [--work FOLDER] [NAME ...]
    python benchmarks/public_scripts/run.py PHOTOS --python PYTHON --work FOLDER --doctor [NAME ...]
    python benchmarks/public_scripts/run.py PHOTOS --python PYTHON --work FOLDER --prove [NAME ...]
    python benchmarks/public_scripts/run.py PHOTOS --python PYTHON --work FOLDER --check [NAME ...]
    python benchmarks/public_scripts/run.py PHOTOS --python PYTHON --work FOLDER --oracle [NAME ...]
    python benchmarks/public_scripts/run.py PHOTOS --python PYTHON --work FOLDER --stopwatch [NAME ...]
    python benchmarks/public_scripts/run.py PHOTOS --work FOLDER --markdown docs/doctor/remedies.md

Each script of `scripts.py` is checked out at its commit, from FOLDER/OWNER+NAME where clones lie there, else by
`git clone`; small data is made for it from the photographs below PHOTOS, and it runs unmodified in PYTHON, on the CPU.
PYTHON needs torch, Headrace and what the scripts import; only `stand_ins.py` is put in place of CUDA, weights and
process groups. The script runs up to its first pass over a DataLoader, whose samples are looked at and explained; with
`--doctor` it trains under the doctor for a few steps. Either way, the Loader of the recipe makes the samples that were
looked at, and each of its arrays is compared with the script's.

Printed is a row for each leaf of a sample: what it is, what it is made of, by how many levels 99 % of its pixels may
differ, how the Loader's compares, and why the recipe leaves it where it does.

`--check` looks for faults of the data alone, and prints each that is found.

`--oracle` compares the Loaders of `hand_made.py` with the same looks, and prints a row a script: what a Loader makes of
its batch by hand, what the recipe made, and why it left the rest.

`--stopwatch` prints the share of the steps that waits for data, by the doctor and by a stopwatch around each
`iter()` and `next()` of a DataLoader in the same run, and their difference in points. It takes a minute a script.

`--prove` runs those that `--doctor` found exact once more, with the Loader put into a run of its own, and prints the
step of two runs without changes, the predicted and the measured one with the Loader, and their difference. It takes 2
to 4 minutes a script, on a machine that does nothing else.
"""

import argparse
import contextlib
import json
import os
import pty
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import hand_made
import numpy as np
from made_data import Photos
from stand_ins import STOPWATCH

from headrace.doctor.measure import main_view_of
from headrace.doctor.probe.settings import ProbeSettings
from headrace.doctor.session import saved_session
from scripts import SCRIPTS, Script

HERE = Path(__file__).parent
MOST_S, DOCTOR_S, PROVE_S = 120, 240, 240
DOCTOR = """
import contextlib, shutil, sys
from headrace.doctor import run
from headrace.tools.command_line import main
kept, run.PROVE_S, looks = sys.argv.pop(1), float(sys.argv.pop(1)), sys.argv.pop(1) == "True"
if not looks:
    run.LOOK_S, run.LoaderAdoption.explain, run.LoaderAdoption.trial = 0.0, lambda *given: None, lambda *given: None
temporary = run.session_folder
@contextlib.contextmanager
def session_folder(**given):
    with temporary(**given) as folder:
        yield folder
        shutil.copytree(folder.path, kept, dirs_exist_ok=True)
run.session_folder = session_folder
main()
"""
ENDING_S = 15
"""That a doctor takes at most to restore the folder once it is told to end."""
LOOKED = ("class", "length", "seconds", "samples", "ended", "errors")
CODE = (".py", ".pyx", ".yaml", ".yml", ".json", ".txt", ".cfg", ".data", ".names", ".gz", ".toml", "train")
HEAD = """## Public training scripts

What the doctor makes of scripts of many authors, unmodified, each at a commit of its repository and on small data in
the layout that it reads (`benchmarks/public_scripts`). Convolutions, weights and CUDA are stood in for; data, datasets
and loaders are the scripts' own.

`degree` is what a whole run of the doctor said, and `predicted` whether it tried the Loader and predicted a step; `–`
where a run did not come to its end. `images` and `leaves` count the pictures, and all arrays and texts, that the
drafted Loader makes of a batch. `compared` says how they compare with the samples that were looked at: the same but for
rounding, drawn at random by the script and of the same type and shape, or different. Seconds are those of the look, of
at most 10 s, and of the explanation, on two cores with much other work, so that some runs
did not come to their end. Rows were measured while the method was mended, not all on one state of the code.
To measure them anew:

    python benchmarks/public_scripts/run.py PHOTOS --python PYTHON --work FOLDER
    python benchmarks/public_scripts/run.py PHOTOS --python PYTHON --work FOLDER --doctor
    python benchmarks/public_scripts/run.py PHOTOS --work FOLDER --markdown docs/doctor/remedies.md

"""


def checked_out(script: Script, clones: Path | None, folder: Path) -> Path:
    """Return the folder of a script's repository at its commit, with the files that are code."""
    into = folder_of(script, folder) / "code"
    if into.exists():
        return into
    clone = None if clones is None else clones / script.repository.replace("/", "+")
    if clone is not None and (clone / "repo").exists():
        clone = clone / "repo"
    if clone is None or not clone.exists():
        clone = folder / "clones" / script.repository.replace("/", "+")
        if not clone.exists():
            said = ["git", "clone", "--quiet", f"https://github.com/{script.repository}", str(clone)]
            subprocess.run(said, check=True)
    git = ["git", f"--git-dir={clone / '.git' if (clone / '.git').exists() else clone}"]
    listed = subprocess.run([*git, "ls-tree", "-r", script.commit], check=True, capture_output=True, text=True).stdout
    for line in listed.splitlines():
        said, path = line.split("\t", 1)
        if path.endswith(CODE) and said.split()[1] == "blob":
            content = subprocess.run([*git, "cat-file", "blob", said.split()[2]], capture_output=True)
            if content.returncode == 0:
                (into / path).parent.mkdir(parents=True, exist_ok=True)
                (into / path).write_bytes(content.stdout)
    return into


def run_in(script: Script, root: Path, command: list[str], log: Path, seconds: float) -> str:
    """Run a command in the script's folder, on a terminal, and return what kept it from its end; empty for nothing."""
    paths = [str(root / script.imports)] if script.imports else []
    paths += filter(None, [os.environ.get("PYTHONPATH")])
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(paths)}
    main_end, terminal = pty.openpty()
    with log.open("w") as file:
        given = {"stdin": terminal, "stdout": file, "stderr": file}
        process = subprocess.Popen(command, cwd=root / script.folder, env=environment, start_new_session=True, **given)
        try:
            process.wait(seconds)
            return ""
        except subprocess.TimeoutExpired:
            process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(ENDING_S)
            return f"no end within {seconds:.0f} s"
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            os.close(main_end)
            os.close(terminal)


def with_data(script: Script, root: Path, photos: Photos) -> list[str]:
    """Return the script with its arguments, once its data is there."""
    data = root.parent / "data"
    if not data.exists():
        data.mkdir()
        try:
            script.make(photos, data, root / script.folder)
        except BaseException:
            shutil.rmtree(data)
            raise
    return [
        ("launched" if script.is_launched else "alone") + ("+gradients" if script.reads_gradients else ""),
        *script.script.split(),
        *script.arguments.format(data=data).split(),
    ]


def last_answer(log: Path) -> dict:
    """Return the last line of JSON in a log; else its last line as the failure."""
    lines = [line for line in log.read_text(errors="replace").splitlines() if line.strip()]
    said = [line for line in lines if line.startswith("{") and line.endswith("}")]
    return json.loads(said[-1]) if said else {"failed": lines[-1] if lines else "nothing said"}


def looked(script: Script, root: Path, args: argparse.Namespace) -> dict:
    """Look at the script's samples, explain them, and try the recipe."""
    look, logs = root.parent / "look.bin", (root.parent / "log.txt", root.parent / "recipe.txt")
    said = {name: value for name, value in _found(root.parent / "rows.json").items() if name in LOOKED}
    if not (args.again and look.exists()):
        look.unlink(missing_ok=True)
        command = [args.python, str(HERE / "script_look.py"), str(look), str(args.seconds)]
        most_s = args.most_s or MOST_S
        late = run_in(script, root, [*command, *with_data(script, root, Photos(args.photos))], logs[0], most_s)
        said = {"failed": late} if late else last_answer(logs[0])
    if "failed" in said or not look.exists():
        return said
    late = run_in(script, root, [args.python, str(HERE / "look_recipe.py"), str(look), ""], logs[1], MOST_S)
    return said | ({"failed": late} if late else last_answer(logs[1]))


def diagnosed(
    script: Script, root: Path, args: argparse.Namespace, most_s: float, *more: str, looks: bool = True
) -> tuple[dict, dict]:
    """Run the whole doctor on the script, and return how that ended, and the session; an empty one for none.

    `more` begins with "check" to check its data instead.
    """
    kept, draft, session = (root.parent / name for name in ("kept", "draft.py", "session.json"))
    shutil.rmtree(kept, ignore_errors=True)
    draft.unlink(missing_ok=True)
    session.unlink(missing_ok=True)
    doctor = [args.python, "-c", DOCTOR, str(kept), str(PROVE_S), str(looks), "doctor"]
    options = ["--steps", str(args.steps), "--draft", str(draft), *more]
    if more[:1] == ("check",):
        doctor, options = [*doctor[:-1], *more], []
    command = [*doctor, *options, "--json", str(session), "--", args.python, str(HERE / "stand_ins.py")]
    command += with_data(script, root, Photos(args.photos))
    began = time.monotonic()
    late = run_in(script, root, command, root.parent / "doctor.txt", args.most_s or most_s)
    said = {"doctor_s": time.monotonic() - began}
    if late or not session.exists():
        failed = late or last_answer(root.parent / "doctor.txt").get("failed", "no session")
        return said | {"failed": failed}, {}
    found = json.loads(session.read_text())
    ended = found["outcome"]
    if ended["why"] == "failed":
        said["failed"] = next((line for line in reversed(ended["last_lines"]) if line.strip()), "failed")[-200:]
    return said, found


def examined(script: Script, root: Path, args: argparse.Namespace) -> dict:
    """Run the whole doctor on the script, and compare what it claims with the samples that it looked at."""
    look, draft = root.parent / "kept/look", root.parent / "draft.py"
    said, session = diagnosed(script, root, args, DOCTOR_S)
    said |= trial_of(session) if session else {}
    if draft.exists() and look.exists():
        command = [args.python, str(HERE / "look_recipe.py"), str(look), str(draft)]
        late = run_in(script, root, command, root.parent / "compared.txt", MOST_S)
        said["compared"] = {"failed": late} if late else last_answer(root.parent / "compared.txt")
    return said


def proved(script: Script, root: Path, args: argparse.Namespace) -> dict:
    """Run the doctor with proofs, and return what it predicted of the Loader, and what a run with it measured."""
    said, session = diagnosed(script, root, args, DOCTOR_S + PROVE_S, "--prove")
    advice = session.get("prescription") or {}
    said["why"] = advice.get("stop") or (session.get("loader_trial") or {}).get("why", "")
    for outcome in advice.get("outcomes", ()):
        if outcome["remedies"] == ["loader"]:
            said |= {"observed_us": advice["lower_bounds"]["observed_us"], "again_us": advice["again_us"]}
            said["outcome"] = outcome
    return said


def checked(script: Script, root: Path, args: argparse.Namespace) -> None:
    """Look for faults of the script's data, and print them."""
    said, session = diagnosed(script, root, args, DOCTOR_S, "check")
    faults = session.get("faults", [])
    print(f"{script.name}: {said['doctor_s']:.0f} s, {len(faults)} faults {said.get('failed', '')[:200]}", flush=True)
    for fault in faults:
        print(f"  {fault['code']} ({fault['certainty']}): {fault['evidence'][:300]}", flush=True)
    for line in (session.get("check") or {}).get("looked_at", []):
        print(f"  looked at: {line[:200]}", flush=True)


TIMED_HEADS = (
    "| script | steps | a step | waits, by the doctor | by the stopwatch | difference |\n|---|---|---|---|---|---|"
)


def timed_row(script: Script, root: Path, args: argparse.Namespace) -> str:
    """Run the doctor without a look, and return a row of the waits in its measured steps, also by a stopwatch."""
    times = root.parent / "stopwatch"
    os.environ[STOPWATCH] = str(times)
    said, _ = diagnosed(script, root, args, DOCTOR_S, looks=False)
    file = root.parent / "session.json"  # a run that is late has one, too
    view = main_view_of(saved_session(file)) if file.exists() else None
    if view is None or view.wait_share is None:
        return f"| {script.name} | {said.get('failed', 'no step, or no batch')[:100]} |"
    origin_us = ProbeSettings.read(str(root.parent / "kept")).origin_us
    waits = merged_spans(np.fromfile(times, np.int64).reshape(-1, 2) / 1000 - origin_us)
    stretches = np.array([each for step in view.training.steps for each in step.stretches])
    within = np.minimum(waits[:, 1:], stretches[:, 1]) - np.maximum(waits[:, :1], stretches[:, 0])
    share = within.clip(0).sum() / (stretches[:, 1] - stretches[:, 0]).sum()
    counted = f"{len(view.training.steps)} {view.training.unit}"
    shares = f"{view.wait_share:.1%} | {share:.1%} | {100 * (view.wait_share - share):+.1f}"
    return f"| {script.name} | {counted} | {view.budget.mean_us / 1000:.1f} ms | {shares} |"


def merged_spans(spans: np.ndarray) -> np.ndarray:
    """Return spans [count, 2] in order, without those inside another."""
    spans = spans[np.lexsort((-spans[:, 1], spans[:, 0]))]
    reached = np.maximum.accumulate(np.append(-np.inf, spans[:-1, 1]))
    return spans[spans[:, 1] > reached]


ORACLE_HEADS = "| script | by hand | compared | the doctor | leaves | why |\n|---|---|---|---|---|---|"


def by_hand(script: Script, root: Path, args: argparse.Namespace) -> dict:
    """Compare the Loader written by hand with the look; empty without one, or without a look."""
    if not hasattr(hand_made, name_of(script)) or not (root.parent / "look.bin").exists():
        return {}
    command = [args.python, str(HERE / "look_recipe.py"), str(root.parent / "look.bin"), ""]
    command += [name_of(script), str(root.parent / "data"), str(root / script.folder)]
    late = run_in(script, root, command, root.parent / "hand.txt", MOST_S)
    return {"failed": late} if late else last_answer(root.parent / "hand.txt")


def name_of(script: Script) -> str:
    return script.name.replace("-", "_").removeprefix("3d_")


def oracle_row(script: Script, said: dict, seen: dict) -> str:
    """Return a row of the table of Loaders by hand and by the doctor."""
    name, rows = name_of(script), seen.get("rows", [])
    expressible = "none" if not hasattr(hand_made, name) else "part" if name in hand_made.PART else "exact"
    note = hand_made.PART.get(name) or hand_made.NONE.get(name, "")
    compared = said.get("failed") or kinds_of(said.get("hand") or {})
    covered, verified = seen.get("covered", []), seen.get("verified", {})
    wrong = [leaf for leaf, how in verified.items() if how.startswith("different") and leaf in covered]
    has_pixels = any(row["leaf"] in verified for row in rows if row["image"])
    whole = len(covered) == len(rows) > 0 and not seen.get("unsure")
    degree = "–" if not rows else "wrong" if wrong else "none" if not has_pixels else "exact" if whole else "part"
    left = dict.fromkeys(row["left"] for row in rows if row["left"])
    why = seen.get("failed") or "; ".join([verified[leaf] for leaf in wrong] + list(left or seen.get("unsure", ())))
    cells = (script.name, f"{expressible}{f' ({note})' if note else ''}", compared, degree)
    words = re.sub(r"\s+", " ", why).replace("|", "/").replace(str(Path.home()), "~")[:260]
    return f"| {' | '.join(cells)} | {len(covered) if degree != 'none' else 0} of {len(rows)} | {words} |"


def kinds_of(verified: dict[str, str]) -> str:
    """Return how many leaves compare in each way, and the first difference."""
    kinds = [how.partition(":")[0] for how in verified.values()]
    counts = ", ".join(f"{kinds.count(kind)} {kind}" for kind in dict.fromkeys(kinds))
    differs = next((f" ({leaf} {how[:120]})" for leaf, how in verified.items() if how.startswith("different")), "")
    return (counts + differs).replace("|", "/")


PROVED_HEADS = (
    "| script | a step | again | predicted | proved | difference | proved is in the interval |\n"
    "|---|---|---|---|---|---|---|"
)


def proved_row(script: Script, said: dict) -> str:
    """Return a row of the table of predictions and proofs, or why there is none of a script."""
    outcome = said.get("outcome") or {}
    predicted, step = outcome.get("predicted"), outcome.get("step_us")
    if not predicted or not step:
        return f"| {script.name} | {said.get('failed') or outcome.get('why') or said['why'] or 'no Loader was tried'} |"
    low, us, high = (predicted[name] for name in ("low_us", "step_us", "high_us"))
    disturbed = ", beside other work" if outcome.get("disturbed_by") else ""
    figures = (said["observed_us"], said["again_us"], us, step)
    cells = ["–" if each is None else f"{each / 1000:.1f} ms" for each in figures]
    within = "yes" if low <= step <= high else f"no: {low / 1000:.1f} to {high / 1000:.1f} ms"
    return f"| {script.name} | {' | '.join(cells)} | {us / step - 1:+.1%} | {within}{disturbed} |"


def trial_of(session: dict) -> dict:
    """Return what a session says of the Loader: how much of a batch it makes, and how that was tried."""
    trial = session.get("loader_trial") or {}
    names = ("why", "detail", "degree", "reason", "covered", "left", "verified")
    predicted = bool(trial.get("loaded_us"))
    return {"predicted": predicted, "dataset": session.get("dataset", ""), **{name: trial.get(name) for name in names}}


def printed(script: Script, said: dict) -> None:
    print(f"\n{script.name} ({script.kind}) {said.get('failed', '')[:300]}")
    if "doctor_s" in said:
        print(f"  {said.get('degree')}, {said['doctor_s']:.0f} s, {said.get('why')} {said.get('detail')}")
        print(f"  covers {said.get('covered')}, leaves {said.get('left')}: {said.get('reason')}")
    elif "failed" not in said:
        how = f"{said.get('ended', '')} {said.get('errors') or ''}"
        seconds = said.get("seconds", 0)
        print(f"  look {seconds:.1f} s, {said.get('samples')} samples {how}, explain {said['explain']:.1f} s")
    compared = said.get("compared") or said
    for name, how in (compared.get("verified") or {}).items():
        if how.startswith("different"):
            print(f"    {name} {how}")
    if "failed" in compared:
        print(f"    FAILED {compared['failed'][:300]}")
    for row in said.get("rows", ()):
        levels = "" if row["levels"] is None else f"{row['levels']:.2f}"
        how = said.get("verified", {}).get(row["leaf"], "-").partition(":")[0]
        drawn = "~" if row["random"] else " "
        print(f"  {drawn} {row['leaf'][:24]:24} {row['kind'][:22]:22} {how:9} {levels:5} {row['by']}  {row['left']}")
    sys.stdout.flush()


HEADS = ("script", "repository", "kind", "degree", "predicted", "images", "leaves", "compared", "look", "explanation")


def markdown(work: Path) -> str:
    """Return the table of all scripts, from what was found last of each."""
    rows = [f"| {' | '.join(HEADS)} | what is left, and why |", "|---" * (len(HEADS) + 1) + "|"]
    for script in SCRIPTS:
        seen, tried = (_found(folder_of(script, work) / name) for name in ("rows.json", "doctor.json"))
        leaves, covered = seen.get("rows", []), seen.get("covered", [])
        images = [row["leaf"] for row in leaves if row["image"]]
        verified = (tried.get("compared") or seen).get("verified") or seen.get("verified") or {}
        kinds = {
            kind: sum(how.startswith(kind) for how in verified.values()) for kind in ("same", "drawn", "different")
        }
        left = dict.fromkeys(row["left"] for row in leaves if row["left"])
        why = "; ".join(left) or tried.get("reason") or ("" if covered else seen.get("failed", ""))
        cells = [
            script.name,
            f"{script.repository}@{script.commit[:7]}",
            script.kind,
            tried.get("degree") or f"– ({tried.get('failed', 'not run')[:40]})",
            "yes" if tried.get("predicted") else "no",
            f"{sum(each in covered for each in images)} of {len(images)}" if leaves else "",
            f"{len(covered)} of {len(leaves)}" if leaves else "",
            ", ".join(f"{count} {kind}" for kind, count in kinds.items() if count),
            f"{seen['seconds']:.1f} s" if "seconds" in seen else "",
            f"{seen['explain']:.1f} s" if "explain" in seen else "",
            re.sub(r"\s+", " ", why).replace("|", "\\|").replace(str(work), "…")[:240],
        ]
        rows.append(f"| {' | '.join(cells)} |")
    return HEAD + "\n".join(rows) + "\n"


def _found(file: Path) -> dict:
    return json.loads(file.read_text()) if file.exists() else {}


def folder_of(script: Script, work: Path) -> Path:
    return work / script.repository.replace("/", "+") / script.name


def main() -> None:
    ask = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ask.add_argument("photos", type=Path)
    ask.add_argument("names", nargs="*")
    ask.add_argument("--python", default=sys.executable)
    ask.add_argument("--clones", type=Path)
    ask.add_argument("--work", type=Path)
    ask.add_argument("--seconds", type=float, default=10.0, help="of a look")
    ask.add_argument("--most-s", type=float, help="that a script may take")
    ask.add_argument("--steps", type=int, default=30, help="of a run under the doctor")
    ask.add_argument("--again", action="store_true", help="explain the looks that lie below --work")
    ask.add_argument("--doctor", action="store_true")
    ask.add_argument("--prove", action="store_true")
    ask.add_argument("--check", action="store_true")
    ask.add_argument("--oracle", action="store_true")
    ask.add_argument("--stopwatch", action="store_true")
    ask.add_argument("--markdown", type=Path)
    args = ask.parse_intermixed_args()
    work = args.work or Path(tempfile.mkdtemp())
    if args.markdown:
        before = args.markdown.read_text().partition(HEAD.splitlines()[0])[0]
        args.markdown.write_text(before + markdown(work))
        return
    if args.prove or args.oracle or args.stopwatch:
        print(PROVED_HEADS if args.prove else ORACLE_HEADS if args.oracle else TIMED_HEADS)
    for script in SCRIPTS:
        if args.names and script.name not in args.names:
            continue
        root = checked_out(script, args.clones, work)
        if args.check:
            checked(script, root, args)
            continue
        if args.stopwatch:
            print(timed_row(script, root, args), flush=True)
            continue
        if args.oracle:
            print(oracle_row(script, by_hand(script, root, args), _found(root.parent / "rows.json")), flush=True)
            continue
        if args.prove:
            if args.names or _found(root.parent / "doctor.json").get("degree") == "exact":
                print(proved_row(script, proved(script, root, args)), flush=True)
            continue
        said = (examined if args.doctor else looked)(script, root, args)
        (root.parent / ("doctor.json" if args.doctor else "rows.json")).write_text(json.dumps(said, indent=1))
        printed(script, said)


if __name__ == "__main__":
    main()
