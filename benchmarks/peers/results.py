"""The figures of all runs so far, in one JSON file that is whole after every run."""

import json
import os
from pathlib import Path


class Results:
    """`facts` of the machine and the versions, and `runs`: a dict each, in the order in which they were made.

    A run's keys that say what it was: kind ("prepare", "throughput", "start-up"), peer, and what else run.py puts
    there. A run that failed has `failed`, the reason, in place of figures.
    """

    def __init__(self, path):
        self.path = Path(path)
        known = json.loads(self.path.read_text()) if self.path.exists() else {"facts": {}, "runs": []}
        self.facts, self.runs = known["facts"], known["runs"]

    def find(self, **keys):
        return [run for run in self.runs if all(run.get(key) == value for key, value in keys.items())]

    def done(self, **keys):
        """Whether there is such a run with figures: a failed one is tried again."""
        return any("failed" not in run for run in self.find(**keys))

    def add(self, keys, figures):
        """Keep a run in place of an earlier one of the same keys, and save."""
        again = self.find(**keys)
        self.runs = [run for run in self.runs if run not in again]
        self.runs.append({**keys, **figures})
        self.save()

    def save(self):
        self.path.parent.mkdir(parents=True, exist_ok=True)
        runs = ",\n".join(json.dumps(run) for run in self.runs)
        partial = self.path.with_suffix(".partial")
        partial.write_text(f'{{"facts": {json.dumps(self.facts, indent=1)},\n"runs": [\n{runs}\n]}}\n')
        os.replace(partial, self.path)
