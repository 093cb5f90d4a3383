"""Recorded sessions of the scripts in adopted/, which need torchvision and more that the tests' environment lacks.

    python tests/doctor/recorded_scripts.py PYTHON DATA [NAME ...]

records the scripts of these names anew, or all, in a Python that has torchvision, timm, albumentations, OpenCV,
webdataset, datasets and transformers; made data go to DATA. `adopted/NAME.json.xz` is the session, with `DATA` and
`SCRIPTS` in place of folders, without figures of the machine.
"""

from __future__ import annotations

import json
import lzma
import os
import subprocess
import sys
from pathlib import Path

from headrace.doctor.session import decode_session
from headrace.doctor.session.model import Session

FOLDER = Path(__file__).parent / "adopted"
DATA, SCRIPTS = "/data", "/project"
"""What stands for the folders of data and scripts in recorded sessions."""
SAMPLES = {"depth_archive": 64, "shards": 256}
"""Made, of other data 160."""
_LEFT_OUT = ("diagnosis", "prescription", "machines", "outcome", "processes")


def recorded(name: str) -> Session:
    """Return the session of a script."""
    return decode_session(lzma.decompress((FOLDER / f"{name}.json.xz").read_bytes()))


def record(name: str, python: str, data: Path) -> None:
    """Diagnose the script, without proofs, and keep its session."""
    from adopted_data import DATA_OF, MAKERS

    maker = DATA_OF[name]
    folder = data / maker
    if not folder.exists():
        MAKERS[maker](folder, SAMPLES.get(maker, 160))
    document = data / f"{name}.json"
    script = [python, str(FOLDER / f"{name}.py"), str(folder), "--steps", "400", "--batch-size", "8"]
    doctor = "from headrace.tools.command_line import main; main()"
    call = [python, "-c", doctor, "doctor", "--json", str(document), "--steps", "10", "--", *script]
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
    subprocess.run(call, check=True, cwd=data, env=environment)
    text = document.read_text().replace(str(FOLDER), SCRIPTS).replace(str(folder), DATA)
    session = {key: value for key, value in json.loads(text).items() if key not in _LEFT_OUT}
    command = ["python", f"{SCRIPTS}/{name}.py", DATA]
    session["outcome"] = {"command": command, "status": 0, "why": "steps", "duration": 0}
    for process in session["makers"] + session["trainers"]:
        process["host"] = "host"
    packed = lzma.compress(json.dumps(session, separators=(",", ":")).encode(), preset=9)
    (FOLDER / f"{name}.json.xz").write_bytes(packed)


def main() -> None:
    sys.path.insert(0, str(FOLDER))
    from adopted_data import DATA_OF

    python, data, *names = sys.argv[1:]
    Path(data).mkdir(parents=True, exist_ok=True)
    for name in names or DATA_OF:
        record(name, python, Path(data).resolve())


if __name__ == "__main__":
    main()
