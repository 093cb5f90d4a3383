"""Results of what the doctor tried after the command had ended: files, their read times, proofs, and the Loader.

Tables, units and None are as in `model`; docs/doctor/session.md describes each field.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass
class Proof:
    """A run of the command with remedies injected, by their codes and their `changes` (docs/doctor/remedies.md)."""

    remedies: list[str]
    changes: dict[str, Any]
    why: str
    """`measured`, `broke` (the command failed), `not applied`, `not tried`, `timed out`, `interrupted`."""
    detail: str = ""
    duration: int = 0
    steps: list[int] = field(default_factory=list)
    samples: str | None = None
    """`same`, `close`, `set`, `alike` or `different` (docs/doctor/remedies.md); None if runs cannot be compared."""
    others_cores: float | None = None


@dataclass
class Calibration:
    """Times of files that the run read, as the run reads them and as a remedy would, taken after the run."""

    remedy: str
    unit: str
    """`image`, `look-up` of an archive's member, or `header` of one."""
    files: list[str] = field(default_factory=list)
    present_us: list[float] = field(default_factory=list)
    other_us: list[float] = field(default_factory=list)
    pixel_bytes: list[int] = field(default_factory=list)
    view: str = ""


@dataclass
class SeenFolder:
    """The files of a folder, by the endings of their names."""

    files: int
    read: int
    ends: list[str]
    is_deep: bool
    sized: int
    is_whole: bool


@dataclass
class SeenFile:
    """A file, or a folder of files, that was read while the command ran."""

    path: str
    bytes: int
    seen: int
    opens: int = 0
    folder: SeenFolder | None = None
    images: int | None = None


@dataclass
class StagingPlace:
    """Folder in `memory` or on a `disk` that files could be copied to."""

    path: str
    free_bytes: int
    kind: str


@dataclass
class MachineSurvey:
    """What the doctor looked up on the machine after the command had ended, for remedies."""

    files: list[SeenFile] = field(default_factory=list)
    places: list[StagingPlace] = field(default_factory=list)
    calibrations: list[Calibration] = field(default_factory=list)


@dataclass
class LookedImage:
    """What a look at samples has found their pictures to be: code in which `hr` is headrace."""

    steps: list[str] = field(default_factory=list)
    """Of the view; none for the whole picture."""
    dtype: str = "uint8"
    normalize: str = ""
    filter: str = "bilinear"
    """By which the script resizes."""
    is_augmented: bool = False
    """Whether colours are drawn between the view and the values."""


@dataclass
class AdoptedPart:
    """Part of the script, and what does it where Headrace's Loader takes its place."""

    part: str
    place: str
    becomes: str
    certainty: str
    """`exact`, `differs`, `check`, `python` or `no`."""
    note: str = ""


@dataclass
class LoaderTrial:
    """Trial of the Loader that could take the place of the run's, in a process of its own on the run's files."""

    why: str
    """`measured`, `failed`, `timed out`, `out of memory`, `interrupted`, `not tried`."""
    detail: str = ""
    module: str = ""
    batch_us: list[float] = field(default_factory=list)
    loaded_us: list[float] = field(default_factory=list)
    cpu_us: float | None = None
    peak_bytes: int | None = None
    threads: int | None = None
    batch_size: int | None = None
    samples: int = 0
    first_us: float | None = None
    stand_in_us: float | None = None
    degree: str = ""
    """`exact`, `part` or `no`; `draft` of an earlier doctor."""
    reason: str = ""
    parts: list[AdoptedPart] = field(default_factory=list)
    passive_us: list[float] = field(default_factory=list)
    leaves: dict[str, str] = field(default_factory=dict)
    """Kind of each array and text of a batch that it made, by path: `float32[8, 3, 224, 224]`, `text`."""
    verified: dict[str, str] = field(default_factory=dict)
    """How each array and text compares with the script's own samples: `same`, `drawn`, or `different` and where."""
    covered: list[str] = field(default_factory=list)
    """Arrays and texts of the script's batch that the Loader makes."""
    left: dict[str, str] = field(default_factory=dict)
    """Kinds of those that stay the script's own Python, by path, as `leaves` has them."""
    files: dict[str, str] = field(default_factory=dict)
    """Files that the module opens beside the script's own, by the constants that name them: the samples' paths and
    values, tokenizers."""
