"""Results from after the command's end: files, their read times, proofs, and the Loader's trial."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from headrace.doctor.session.declaring import Bytes, Duration, listed, told


@dataclass
class Proof:
    """A run of the command with remedies injected."""

    remedies: list[str] = told("their codes: one, or several together")
    changes: dict[str, Any] = told("what was injected ([remedies.md](remedies.md))")
    why: str = told(
        "`measured`, `broke` (the command failed with it), `not applied`, `not tried` (no time was left, or the "
        "command "
        "cannot run again), `timed out`, `interrupted`"
    )
    detail: str = told("the last lines of a command that broke; what was not applied", default="")
    duration: Duration = told("of the whole run", default=0)
    steps: list[int] = listed("durations of the measured steps; with several ranks, the slowest rank's")
    samples: str | None = told(
        "whether the samples were those of the run without it: `same`, `set`, `alike`, "
        "`different` ([remedies.md](remedies.md)); `null` if runs cannot be compared",
        default=None,
    )
    others_cores: float | None = told("cores that other programs kept busy meanwhile, on average", default=None)


@dataclass
class Calibration:
    """Times of some of the files that the run read, as the run reads them and as a remedy would."""

    remedy: str = told("its code")
    unit: str = told("`image`, `look-up` of an archive's member, or `header` of a member")
    files: list[str] = listed("paths")
    present_us: list[float] = listed("by file, as the run reads; empty if the run itself measured it")
    other_us: list[float] = listed("by file, as the remedy would")
    pixel_bytes: list[int] = listed("of decoded images; for `cache` by the headers of up to 256")
    view: str = told("of `image-reader`: the reader that was timed, as code", default="")


@dataclass
class SeenFolder:
    """The files of a folder that have some endings."""

    files: int = told("how many")
    read: int = told("how many of them were read at most")
    ends: list[str] = told("of their names")
    is_deep: bool = told("whether files in folders below it count as well")
    sized: int = told("files whose sizes were looked up; if not all were, `bytes` is an estimate")
    is_whole: bool = told("False if it has more files than were listed, whose bytes are unknown")


@dataclass
class SeenFile:
    """A file, or a folder of files, that was read while the command ran."""

    path: str = told("of it")
    bytes: Bytes = told("a file's size is exact")
    seen: int = told("how often the sampler saw it open")
    opens: int = told("during batch production", default=0)
    folder: SeenFolder | None = told("`null` for a single file", default=None)


@dataclass
class StagingPlace:
    """Folder that files could be copied to."""

    path: str = told("of it")
    free_bytes: Bytes = told("there")
    kind: str = told("`memory` or `disk`")


@dataclass
class MachineSurvey:
    """Files, places and read times that the doctor looked up after the command had ended, for remedies."""

    files: list[SeenFile] = listed("what was read, most opens first")
    places: list[StagingPlace] = listed("where files could be copied to")
    calibrations: list[Calibration] = listed("times of some of these files as a remedy would read them")


@dataclass
class LookedImage:
    """Recipe of the samples' first image, as code in which `hr` is headrace."""

    steps: list[str] = listed("views of the Loader that cut and resize it; none for the whole picture")
    dtype: str = told("of its values", default="uint8")
    normalize: str = told("the normalisation; empty without one", default="")
    filter: str = told("by which the script resizes, as Pillow names it", default="bilinear")
    is_augmented: bool = told("whether colours are drawn between the view and the values", default=False)


@dataclass
class DataFault:
    """Fault of the data itself, proved by the values of inspected samples."""

    code: str = told("its kind ([the table](README.md#faults-of-the-data))")
    certainty: str = told("`certain`: values prove it; `unless intended`: they do, and some scripts do it on purpose")
    evidence: str = told("what was compared, with which samples and numbers")
    leaves: list[str] = listed("parts of a sample that it concerns")
    place: str = told(
        "`file:line` where the script iterates over the loader that it concerns; empty if unknown", default=""
    )
    mend: str = told("what to change", default="")


@dataclass(frozen=True)
class AdoptedPart:
    """Part of the script, and what does it where Headrace's Loader takes its place."""

    part: str = told("of the script")
    place: str = told("what of the module it concerns: `fields`, `view`, `output` or `loader`")
    becomes: str = told("code")
    certainty: str = told("`exact`, `differs`, `check`, `python` or `no`")
    note: str = told("in words", default="")


@dataclass
class LoaderTrial:
    """Trial of the Loader that could take the place of the run's, in a process of its own on the run's files."""

    why: str = told("`measured`, `failed`, `timed out`, `out of memory`, `interrupted`, `not tried`")
    detail: str = told("the last lines of what failed, and what it was at; why it was not tried", default="")
    module: str = told("text of the module that was run", default="")
    batch_us: list[float] = listed("times between batches where nothing else ran")
    loaded_us: list[float] = listed(
        "the same beside a stand-in of the training step, whose own time is included; empty where there was no time"
    )
    cpu_us: float | None = told("CPU time of a batch, of all threads and processes of the Loader", default=None)
    peak_bytes: Bytes | None = told(
        "memory of all its processes at the most, less what they had before it was made", default=None
    )
    threads: int | None = told("its threads at the end", default=None)
    batch_size: int | None = told("samples of a batch", default=None)
    samples: int = told("made in all", default=0)
    first_us: float | None = told("from making it until its first batch", default=None)
    stand_in_us: float | None = told("a step of the stand-in without any loader", default=None)
    degree: str = told(
        "`exact`, `part` (some of the batch is to be checked, or stays the script's own Python) or `no`",
        default="",
    )
    reason: str = told("why it is not `exact`", default="")
    parts: list[AdoptedPart] = listed("parts of the script")
    leaves: dict[str, str] = told(
        "type and shape of each array and text of a batch that it made, by path: `float32[8, 3, 224, 224]`, `text`; "
        "the "
        "degree is at most `part` where the script's batch has others",
        default_factory=dict,
    )
    verified: dict[str, str] = told(
        "how each compares with the script's own samples, by path: `same` (but for rounding), `drawn` (at random by "
        "the "
        "script: type and shape are compared), or `different: ` and how",
        default_factory=dict,
    )
    covered: list[str] = listed("paths of the script's batch that the Loader makes")
    left: dict[str, str] = told("type and shape, by path, of what stays the script's own Python", default_factory=dict)
    files: dict[str, str] = told(
        "files that the module opens beside the script's own, by the constants that name them: the samples' paths and "
        "values, tokenizers",
        default_factory=dict,
    )
