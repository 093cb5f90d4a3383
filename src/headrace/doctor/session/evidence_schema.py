"""Evidence records that are not rows of the session, and the decoder for all kinds of record.

Each line of an evidence file is a JSON array: the kind, then its fields in order. The probe writes plain tuples. A test
compares the tuples with the declarations in this file and in the session's classes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Union

import msgspec

from headrace.doctor.session import model as model  # declares its own kinds of record
from headrace.doctor.session.declaring import KINDS, Bytes, Duration, Facts, Flag, NameNumber, Time, recorded, told


@recorded("every", {"process": "First line of a file."})
@dataclass
class ProcessLine:
    """Process that wrote the file."""

    time: Time = told("when the probe began in it")
    facts: Facts = told(
        "version, pid, parent, host, boot_id, python, executable, argv, rank, local_rank, world_size (`null` where not "
        "set)"
    )


@recorded("every", {"name": "Text that later records refer to by its number."})
@dataclass
class NameLine:
    """Recurring text and its number."""

    number: NameNumber = told("that stands for it")
    text: str = told("itself")


@recorded(
    "every",
    {
        "torch": "Import of torch: version, cuda (its version or `null`). The file was begun just before.",
        "facts": "What only the process itself knows, at its end and at its first use of CUDA: torch_threads, "
        "omp_threads, "
        "opencv_threads (`null` where OpenCV was not called), parallel_backend (torch's: `OpenMP`), wait_policy (of "
        "OpenMP's threads, if a variable of the environment sets it: `OMP_WAIT_POLICY=passive`), device (its name, "
        "`null` where CUDA was not used). Of a process that trains warmup_steps, once the probe has chosen them, and "
        "window (the window that has begun: the last says in which the process ended). draws: true once samples draw "
        "random numbers from the shared generator of torch, numpy or Python in the first two batches of a fetcher. "
        "replica_inputs: `leaves` as in `first`, of the first two inputs of a DistributedDataParallel model over all "
        "ranks.",
    },
)
@dataclass
class FactsLine:
    """Facts that replace earlier facts of the same names."""

    time: Time = told("of the record")
    facts: Facts = told("by name")


@recorded("every", {"note": "Something that the report says."})
@dataclass
class NoteLine:
    time: Time = told("of the note")
    code: str = told("of the [list below](#note-codes)")
    text: str = told("itself")


@recorded(
    "every",
    {
        "applied": "Remedy of settings' `changes` ([remedies.md](remedies.md)) that took effect; written at its first "
        "effect, "
        "for each text, and at the end."
    },
)
@dataclass
class AppliedLine:
    time: Time = told("of the record")
    key: str = told("of the change")
    count: int = told("places so far")
    text: str = told("how; with `count` 0, why not")


@recorded("every", {"error": "Exception that ended the process. An `end` record follows if it then ended in order."})
@dataclass
class ErrorLine:
    time: Time = told("of the exception")
    text: str = told("the last 50 lines of its traceback")


@recorded("every", {"stack": "Stack that the probe sampled."})
@dataclass
class StackLine:
    """Stack of a batch that hangs."""

    time: Time = told("of the sample")
    what: str = told("`hung`")
    text: str = told("the stack")


@recorded("every", {"end": "Orderly end of the process; absent from a process that was killed."})
@dataclass
class EndLine:
    time: Time = told("of the end")
    reason: str = told(
        "`exit`, or `steps` where the doctor ended the run; then written before the look at samples, which may end the "
        "process"
    )


@recorded("trainer", {"last": "The `next()` that found the end of a pass."})
@dataclass
class LastLine:
    pass_: int = told("number of the pass")
    start: Time = told("when `next()` was called")
    duration: Duration = told("of that call")


@recorded("trainer", {"device": "The GPU's view of a step, written later: marks by CUDA events on the current stream."})
@dataclass
class DeviceLine:
    number: int = told("of the step")
    kinds: str = told("a letter of the [marks](#spans-and-marks) for each; at most four copies after each batch")
    gaps: list[int] = told(
        "tenths of a microsecond since the mark before; for the first mark, since the process's first mark"
    )


@recorded("trainer", {"ready": "Stamped step: the moment at which this rank's own gradients were done."})
@dataclass
class ReadyLine:
    """Time at which a rank begins to wait for others."""

    number: int = told("of the step")
    time: Time = told("of the moment")


@recorded("maker", {"lines": "Stack samples of batch production since the last such record; written now and then."})
@recorded("trainer", {"loop": "Stack samples of the training thread's work on batches since the last such record."})
@dataclass
class LinesLine:
    """Time by line of the user's code."""

    time: Time = told("of the record")
    counts: list[tuple[NameNumber, Duration]] = told(
        "name of a place, and time in it. A place is `file:line:function` of the innermost frame of the user's own "
        "code, "
        "which lies neither in site-packages nor in the standard library"
    )


@recorded(
    "trainer", {"calls": "Calls of the loop that read a tensor or print, in the watched steps since the last record."}
)
@dataclass
class CallsLine:
    """Calls of the training loop."""

    time: Time = told("of the record")
    steps: int = told("that were watched")
    calls: list[tuple[NameNumber, int, Flag, int, Duration]] = told(
        "what (`Tensor.item()`, `print`, …: [steps](measuring.md#reads-and-prints-in-the-loop)), place as in `lines` "
        "(-1 "
        "without one), whether it waits for the device, calls, and time of them together"
    )


@recorded("maker", {"worker": "Start of a worker."})
@dataclass
class WorkerLine:
    time: Time = told("of its loop")
    facts: Facts = told("id, parent, num_workers, dataset, start_method, started_us (when the process began)")


@recorded("maker", {"opened": "Files opened for reading during batch production since the last such record."})
@dataclass
class OpenedLine:
    """Files opened by a process."""

    time: Time = told("of the record")
    files: list[tuple[NameNumber, int]] = told("path and opens of the first 64 files of the process")
    folders: list[tuple[NameNumber, int, Flag, list[str]]] = told(
        "path, opens, whether it stands for all beneath it, and at most 8 endings of names (then the empty text for "
        "all others). At most 16 folders: with more, those within a folder that holds half of them become that folder, "
        "and earlier records of them belong to it"
    )
    rest: int = told("opens in folders that no such folder holds", default=0)


@recorded("maker", {"remote": "Requests to stores during batch production since the last such record."})
@dataclass
class RemoteLine:
    """Requests of a process to stores."""

    time: Time = told("of the record")
    batches: int = told("made meanwhile")
    stores: list[tuple[NameNumber, int, int, Bytes, Duration, list[tuple[int, int]]]] = told(
        "store, requests, failed, bytes, time until the answers began, and requests by class of that time. At most 16, "
        "others together as `other stores`"
    )


@recorded("maker", {"probe": "Cost of the probe in this process so far."})
@dataclass
class ProbeLine:
    time: Time = told("of the record")
    us: Duration = told("in all")


_ANY: Any = Union[tuple(kind.line for kind in KINDS.values())]  # noqa: UP007  (a union of a tuple has no other spelling)
decode_record: Callable[[bytes], Any] = msgspec.json.Decoder(_ANY).decode
"""Decode a line of evidence into its record. Raises DecodeError or UnicodeDecodeError."""
