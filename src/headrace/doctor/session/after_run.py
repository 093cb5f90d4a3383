"""Results from after the command's end: proofs, faults of the data, and the Loader's trial."""

from __future__ import annotations

from typing import Any

import msgspec


class Proof(msgspec.Struct):
    """A run of the command with remedies injected."""

    remedies: list[str]
    """Codes: one, or several together."""
    changes: dict[str, Any]
    """Injected changes, by key of their remedy."""
    why: str
    """`measured`, `broke` (the command failed with it), `not applied`, `not tried`, `timed out`, `interrupted`."""
    detail: str = ""
    """Last lines of a command that broke; changes that were not applied."""
    duration: int = 0
    steps: list[int] = []
    """Durations of the measured steps, of the slowest rank."""
    samples: str | None = None
    """Samples compared with those of the plain run: `same`, `alike`, `different`; None without comparison."""


class LookedImage(msgspec.Struct):
    """Recipe of the samples' first image, as code in which `hr` is headrace."""

    steps: list[str] = []
    """Views of the Loader that cut and resize it; empty for the whole picture."""
    dtype: str = "uint8"
    normalize: str = ""
    filter: str = "bilinear"
    """Filter of the script's resize, as Pillow names it."""
    is_augmented: bool = False
    """True if colours are drawn between the view and the values."""


class DataFault(msgspec.Struct):
    """Fault of the data itself, proved by the values of inspected samples."""

    code: str
    certainty: str
    """`certain`: values prove it; `unless intended`: they do, and some scripts do it on purpose."""
    evidence: str
    """Compared values, with their samples."""
    leaves: list[str] = []
    """Parts of a sample that it concerns."""
    place: str = ""
    """`file:line` of the iteration over the loader; empty if unknown."""
    mend: str = ""
    patch: str = ""
    """Diff of the script; empty if it is not certain."""


class DataCheck(msgspec.Struct):
    """Summary of a check for faults of the data."""

    looked_at: list[str]
    """Passes, samples and leaves that were compared, in sentences."""
    unseen: list[str]
    """Sentences on data that could not be compared, with the reason."""


class AdoptedPart(msgspec.Struct, frozen=True):
    """Part of the script, and what does it where Headrace's Loader takes its place."""

    part: str
    place: str
    """Part of the module that it concerns: `fields`, `view`, `output` or `loader`."""
    becomes: str
    certainty: str
    """`exact`, `drawn` (random, and compared in few samples), `differs`, `check`, `python` or `no`."""
    note: str = ""


class LoaderTrial(msgspec.Struct):
    """Trial of the Loader that could take the place of the run's, in a process of its own on the run's files."""

    why: str
    """`measured`, `failed`, `timed out`, `out of memory`, `interrupted`, `not tried`."""
    detail: str = ""
    """Last lines of a failure and its stage, or why it was not tried."""
    module: str = ""
    """Text of the module that was run."""
    batch_us: list[float] = []
    """Times between batches without other work."""
    loaded_us: list[float] = []
    """The same beside a stand-in of the training step, whose own time is included; empty without time for it."""
    cpu_us: float | None = None
    """CPU time of a batch, of all threads and processes of the Loader."""
    peak_bytes: int | None = None
    """Peak memory of all its processes, less their memory before it existed."""
    threads: int | None = None
    """Threads at the end."""
    batch_size: int | None = None
    samples: int = 0
    first_us: float | None = None
    """Time until its first batch."""
    stand_in_us: float | None = None
    """Step of the stand-in without any loader."""
    degree: str = ""
    """`exact`, `part` (some of the batch needs a check, or stays the script's own Python) or `no`."""
    reason: str = ""
    """Why it is not `exact`."""
    parts: list[AdoptedPart] = []
    leaves: dict[str, str] = {}
    """Type and shape of each array and text of its batch by path: `float32[8, 3, 224, 224]`, `text`."""
    verified: dict[str, str] = {}
    """Comparison with the script's own samples by path: `same`, `drawn: ` and their count, or `different: ` and why."""
    covered: list[str] = []
    """Paths of the script's batch that the Loader produces."""
    left: dict[str, str] = {}
    """Type and shape, by path, of what stays the script's own Python."""
    files: dict[str, str] = {}
    """Further files that the module opens, by the constants that name them."""
