"""Print what pyproject.toml asks for, one requirement a word: to build, to run, and the extras named as arguments.

Installed before the package itself, because that is built without isolation, against the pinned versions.
"""

import sys
import tomllib
from pathlib import Path

pyproject = tomllib.loads((Path(__file__).parent.parent / "pyproject.toml").read_text())
project = pyproject["project"]
wanted = [*pyproject["build-system"]["requires"], *project["dependencies"]]
for extra in sys.argv[1:]:
    wanted += project["optional-dependencies"][extra]
print(*(requirement.replace(" ", "") for requirement in wanted))
