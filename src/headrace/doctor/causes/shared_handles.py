"""Handles that were opened before a fork, and are shared by all workers."""

from __future__ import annotations

import re
from collections.abc import Iterator

from headrace.doctor.causes.cause import APART, Cause, of_steps
from headrace.doctor.causes.processes import RAISED
from headrace.doctor.measure import Finding, TrainerView, whole_fact
from headrace.doctor.quantities import counted
from headrace.doctor.session.model import Session

SHARED_HANDLE = "shared-handle"
LIBRARIES = {
    "zipfile": r"BadZipFile|zlib\.error|struct\.error|zipfile",
    "tarfile": r"ReadError|tarfile",
    "h5py": r"h5py|Unable to (?:synchronously )?(?:read|open)|OSError",
    "sqlite3": r"sqlite3|DatabaseError",
    "lmdb": r"lmdb|MDB_",
    "builtins": r"lmdb|MDB_",
    "_io": r"UnidentifiedImageError|struct\.error|EOFError|OSError|DecodeError|zlib\.error|UnpicklingError",
}
"""Pattern of the errors of wrong bytes, by the module of a handle's class. A damaged picture may follow from any."""
DAMAGED = re.compile(r"UnidentifiedImageError|image file is truncated|broken data stream")


def handle_findings(session: Session, view: TrainerView) -> Iterator[Finding]:
    """Explain a worker's error by a handle that forked workers share."""
    process = session.process_of(view.trainer)
    error = "" if process is None else process.error or ""
    if RAISED not in error:
        return
    for loader in view.trainer.loaders:
        workers = whole_fact(loader.facts, "num_workers") or 0
        handles = (loader.facts.get("described") or {}).get("handles") or []
        found = [name for name in dict.fromkeys(handles) if _explains(name, error)]
        if workers > 1 and loader.facts.get("start_method") == "fork" and found:
            name = found[0].replace("builtins.", "lmdb.").replace("_hl.", "").removeprefix("_io.")
            yield Finding(
                SHARED_HANDLE,
                1.0,
                f"The {counted(workers, 'worker')} share one open {name}, so its reads collide: the error need not "
                "mean damaged data.",
                f"the dataset of {loader.facts.get('dataset')} was opened before the fork",
                f"Open the {name} on first use in each worker: keep its path in __init__, and open it in __getitem__ "
                "if this process has not, or in worker_init_fn.",
            )


def _explains(handle: str, error: str) -> bool:
    pattern = LIBRARIES.get(handle.partition(".")[0])
    return pattern is not None and (re.search(pattern, error) is not None or DAMAGED.search(error) is not None)


CAUSE = Cause(
    findings={SHARED_HANDLE: "A worker failed on wrong bytes, and its dataset held an open handle before the fork."},
    find=of_steps(handle_findings),
    order=APART,
)
