"""Faults of the data that people have reported of public projects, and whether the doctor finds them there.

    python benchmarks/public_scripts/real_faults.py PHOTOS --python PYTHON [--clones FOLDER] [--work FOLDER] [NAME ...]

Each row of `reported_faults.py` is a project at its commit before the fix. Its data pipeline runs on the CPU,
on small data made from the photographs below PHOTOS, under `headrace check` or `headrace check resume`: once as
it was, and once with the fix. Commits come from bare clones in FOLDER/OWNER+NAME/repo where these exist, else by git
from GitHub, so a network is needed. PYTHON needs torch, torchvision, Headrace, and what the row names.

Printed is a row for each project: the codes before and after the fix. The status is 1 if the reported code is not found
before the fix, or is found after it.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from made_data import Photos
from reported_faults import FAULTS, ReportedFault

MOST_S = 300
LOOP = """
import torch
from torch.utils.data import DataLoader

def train(loader, epochs=20):
    weight = torch.nn.Parameter(torch.zeros(()))
    optimizer = torch.optim.SGD([weight], 1e-3)
    for _ in range(epochs):
        for _ in loader:
            optimizer.zero_grad()
            weight.square().backward()
            optimizer.step()
        yield
"""
"""Training loop that begins each runner; it yields after each epoch."""


def git(clone: Path, *command: str) -> bytes:
    """Return what git prints for a clone."""
    ran = subprocess.run(["git", f"--git-dir={clone}", *command], capture_output=True)
    if ran.returncode:
        raise SystemExit(f"git {command[0]} failed in {clone}: {ran.stderr.decode(errors='replace').strip()}")
    return ran.stdout


def clone_of(fault: ReportedFault, clones: Path | None, work: Path) -> Path:
    """Return the git folder of a project, cloned without files if it is not there."""
    name = fault.repository.replace("/", "+")
    for path in () if clones is None else (clones / name / "repo/.git", clones / name / "repo", clones / name):
        if (path / "HEAD").exists():
            return path
    clone = work / "clones" / name
    if not clone.exists():
        url = f"https://github.com/{fault.repository}"
        ran = subprocess.run(["git", "clone", "--quiet", "--bare", "--filter=blob:none", url, str(clone)])
        if ran.returncode:
            raise SystemExit(f"{url} cannot be cloned: this benchmark needs a network, or --clones")
    return clone


def checked_out(fault: ReportedFault, clone: Path, into: Path, *, is_fixed: bool) -> None:
    """Write the project's files at the commit before or after the fix."""
    commit = (is_fixed and fault.fixed) or fault.commit
    into.mkdir(parents=True)
    archive = git(clone, "archive", commit, *fault.paths)
    subprocess.run(["tar", "-x", "-C", str(into)], input=archive, check=True)
    for path, old, new in fault.compatibility + (fault.mend if is_fixed else ()):
        text = (into / path).read_text()
        if old not in text:
            raise SystemExit(f"{fault.name}: {path} does not contain {old!r}")
        (into / path).write_text(text.replace(old, new))


def checked(fault: ReportedFault, root: Path, python: str) -> list[dict]:
    """Return the faults that the doctor finds in the project below a folder."""
    (root / "run_project.py").write_text(LOOP + fault.runner)
    session, log = root.parent / f"{root.name}.json", root.parent / f"{root.name}.txt"
    command = [python, "run_project.py", str(root.parent / "data")]
    check = []
    if fault.resumes:
        check = ["resume", "--again", shlex.join([*command, "resume"])]
    doctor = [python, "-c", "from headrace.tools.command_line import main; main()", "check", *check]
    places = [str(root / fault.imports), os.environ.get("PYTHONPATH", "")]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(filter(None, places))}
    with log.open("w") as file:
        given = {"stdout": file, "stderr": file, "cwd": root, "env": environment, "timeout": MOST_S}
        status = subprocess.run([*doctor, "--json", str(session), "--", *command], **given).returncode
    if status not in (0, 101):
        raise SystemExit(f"{fault.name}: the doctor ended with status {status}: {log}")
    return json.loads(session.read_text())["faults"]


def main() -> None:
    ask = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ask.add_argument("photos", type=Path)
    ask.add_argument("names", nargs="*")
    ask.add_argument("--python", default=sys.executable)
    ask.add_argument("--clones", type=Path)
    ask.add_argument("--work", type=Path, default=Path(tempfile.gettempdir()) / "headrace-real-faults")
    args = ask.parse_intermixed_args()
    wrong = 0
    for fault in FAULTS:
        if args.names and fault.name not in args.names:
            continue
        folder = args.work.resolve() / fault.name
        shutil.rmtree(folder, ignore_errors=True)
        clone = clone_of(fault, args.clones, args.work.resolve())
        (folder / "data").mkdir(parents=True)
        fault.make(Photos(args.photos), folder / "data")
        codes = []
        for name in ("before", "after"):
            checked_out(fault, clone, folder / name, is_fixed=name == "after")
            found = checked(fault, folder / name, args.python)
            codes.append([one["code"] for one in found])
            print(*(f"  {name}: {one['code']} ({one['certainty']}): {one['evidence']}" for one in found), sep="\n")
        is_right = fault.code in codes[0] and fault.code not in codes[1]
        wrong += not is_right
        print(f"{fault.name} {'right' if is_right else 'WRONG'}: before {codes[0]}, after {codes[1]}", flush=True)
    sys.exit(wrong > 0)


if __name__ == "__main__":
    main()
