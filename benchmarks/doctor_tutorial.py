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

TUTORIAL = Path(__file__).parent.parent / "docs" / "doctor" / "tutorial.md"


def commands(text):
    """Commands that the tutorial shows, in their order: lines of its code blocks that begin with a prompt."""
    return re.findall(r"^\$ (.+)$", text, re.MULTILINE)


def script(text):
    """The training script that the tutorial begins with."""
    return re.search(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL)[1]


def main():
    photos, text = Path(sys.argv[1]).resolve(), TUTORIAL.read_text()
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory() as programs:
        Path(folder, "train.py").write_text(script(text))
        Path(folder, "photos").symlink_to(photos)
        python = shlex.quote(sys.executable)
        for name, start in {
            "python": python,
            "headrace": f'{python} -c "from headrace.tools.command_line import main; main()"',
        }.items():
            program = Path(programs, name)
            program.write_text(f'#!/bin/sh\nexec {start} "$@"\n')
            program.chmod(0o755)
        environment = {**os.environ, "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}", "NO_COLOR": "1"}
        for command in commands(text):
            print(f"$ {command}", flush=True)
            subprocess.run(command, shell=True, cwd=folder, env=environment, check=True)


if __name__ == "__main__":
    main()
