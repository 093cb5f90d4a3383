"""The outputs of docs/doctor/tutorial.md, made anew: its script and its commands, run on photos of yours.

    python benchmarks/doctor_tutorial.py PHOTOS

PHOTOS is a folder with one folder of JPEGs for each class. The script that the tutorial shows is written into a new
folder, and its commands run there one after the other, as they stand in the tutorial. Run it with a Python that has
torchvision and headrace, on a machine without other work.
"""

import os
import re
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

from harness import HEADRACE, arguments

TUTORIAL = Path(__file__).parent.parent / "docs" / "doctor" / "tutorial.md"


def main():
    photos, text = arguments(__doc__, "photos").photos.resolve(), TUTORIAL.read_text()
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory() as programs:
        training = re.search(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL)[1]
        Path(folder, "train.py").write_text(training)
        Path(folder, "photos").symlink_to(photos)
        for name, command in {"python": [sys.executable], "headrace": HEADRACE}.items():
            program = Path(programs, name)
            program.write_text(f'#!/bin/sh\nexec {shlex.join(command)} "$@"\n')
            program.chmod(0o755)
        environment = {**os.environ, "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}", "NO_COLOR": "1"}
        for command in re.findall(r"^\$ (.+)$", text, re.MULTILINE):
            print(f"$ {command}", flush=True)
            subprocess.run(command, shell=True, cwd=folder, env=environment, check=True)


if __name__ == "__main__":
    main()
