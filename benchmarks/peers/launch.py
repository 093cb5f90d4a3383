"""Runs measure.py as a process, watches the memory of its tree, and says in words why it failed, if it did."""

import json
import os
import re
import signal
import subprocess
import tempfile
import threading
from contextlib import suppress
from pathlib import Path

from processes import tree_memory

MEASURE = Path(__file__).parent / "measure.py"
WATCH_EVERY_S = 0.2
GRACE_S = 20


class FailedError(Exception):
    """The process did not finish; the text is its own last word."""


def launch(python, arguments, cores, timeout_s):
    """Run measure.py under `python` on the first `cores` cores, and return the facts of all its events.

    Beside them: memory_bytes and memory_file_bytes, the largest proportional set size of the tree, which is read from
    outside and not while batches are counted; imported_bytes, the same right after the imports.

    Raises FailedError with the process's last word, also where there is no such Python.
    """
    if not os.path.exists(python):
        raise FailedError(f"there is no {python}: benchmarks/peers/install.sh makes it")
    with tempfile.TemporaryFile("w+", errors="replace") as errors:
        process = subprocess.Popen(
            [python, MEASURE, *map(str, arguments)],
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            start_new_session=True,
            preexec_fn=lambda: os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:cores]),
        )
        overdue = threading.Timer(timeout_s, kill_group, [process])
        overdue.start()
        try:
            facts = follow(process)
            with suppress(subprocess.TimeoutExpired):  # shared memory that it has named is its own to remove
                process.wait(GRACE_S)
        finally:
            timed_out = not overdue.is_alive()
            overdue.cancel()
            kill_group(process)
            process.wait()
            process.stdout.close()
        errors.seek(0)
        if facts.pop("event", None) != "finished":
            raise FailedError(f"not done after {timeout_s:.0f} s" if timed_out else last_word(errors.read()))
    return facts


def follow(process):
    """Gather the events of the process until it has finished or ended."""
    facts, peak = {}, Peak(process.pid)
    with peak:
        for line in process.stdout:
            with suppress(json.JSONDecodeError):
                found = json.loads(line)
                if isinstance(found, dict) and "event" in found:
                    facts |= found
                    peak.react(found["event"])
            if facts.get("event") == "finished":
                break  # how it tears itself down is not measured
    return facts | peak.facts()


class Peak:
    """The largest memory of a process tree, read by a thread except while batches are counted."""

    def __init__(self, pid):
        self.pid = pid
        self.most, self.imported = None, None
        self.ended, self.counting = threading.Event(), False
        self.thread = threading.Thread(target=self._watch, name="memory")

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.ended.set()
        self.thread.join()

    def react(self, event):
        if event == "imported":
            self.imported = tree_memory(self.pid)
        self.counting = event == "counting"

    def facts(self):
        if self.most is None or self.imported is None:
            return {}
        return {
            "memory_bytes": self.most.bytes,
            "memory_file_bytes": self.most.file_bytes,
            "imported_bytes": self.imported.bytes,
        }

    def _watch(self):
        while not self.ended.wait(WATCH_EVERY_S):
            if not self.counting:
                now = tree_memory(self.pid)
                if self.most is None or now.bytes > self.most.bytes:
                    self.most = now


def kill_group(process):
    with suppress(ProcessLookupError):  # all of it may have ended by itself
        os.killpg(process.pid, signal.SIGKILL)


def last_word(errors):
    """Find the line that names the error: of a traceback the last such, else the last line at all."""
    lines = [line.strip() for line in errors.splitlines() if line.strip()]
    named = [line for line in lines if re.match(r"[\w.]*(Error|Exception|Exit)\b", line)]
    return (named or lines or ["it ended without a word"])[-1][:300]
