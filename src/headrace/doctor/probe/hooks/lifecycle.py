"""Hooks on a process's life: its start, forks, errors and end, and the files that it saves."""

from __future__ import annotations

import atexit
import functools
import os
import sys
import traceback
from types import ModuleType
from typing import TYPE_CHECKING, Any, Callable

from .. import hands_off
from ..evidence_file import traceback_text

if TYPE_CHECKING:
    from ..hands_off.journal import UndoJournal
    from ..probe import Probe


# -- from doctor/probe/hooks/lifecycle.py: What every process with torch says of itself: that it has it, what went
# wrong, how it ended.
#
# A process that is killed, or calls os._exit, writes no `end` record, which is what tells it.


def watch_process(probe: Probe, _: ModuleType) -> None:
    """Any Python: one that fails before it has imported torch says why."""
    atexit.register(_at_exit, probe)


def watch_forks(probe: Probe, os: ModuleType) -> None:
    """No os.register_at_fork: what is raised in such a callback, Ctrl-C say, is lost, and the run would go on."""

    def make(original: Any) -> Any:
        @functools.wraps(original)
        def fork() -> Any:
            try:
                probe.forking()
            except Exception as error:
                probe.fault("fork", error)
            return original()

        return fork

    probe.patches.replace(os, "fork", make)
    probe.patches.replace(os, "forkpty", make)


def watch_torch(probe: Probe, torch: Any) -> None:
    """Before it nothing is written: most Python processes of a shell script have nothing to do with training."""
    facts = {"version": torch.__version__, "cuda": torch.version.cuda}
    probe.evidence.write(("torch", probe.clock.now_us(), facts))
    probe.last.add(lambda: write_facts(probe))
    probe.patches.replace(sys, "excepthook", _ends_process(probe))
    threading = sys.modules.get("threading")
    if threading is not None:
        probe.patches.replace(threading, "excepthook", _ends_thread(probe))
    atexit.register(_at_exit, probe)  # once more: it then comes before what was registered earlier, which may hang


def watch_children(probe: Probe, util: Any) -> None:
    """A child of multiprocessing leaves by its finalisers, without atexit: a forked one clears those that it inherited
    before it calls what was registered for after a fork, a spawned one calls nothing such."""

    def register(probe: Probe) -> None:
        util.Finalize(None, _at_exit, args=(probe,), exitpriority=0)

    register(probe)
    util.register_after_fork(probe, register)
    probe.patches.replace(traceback, "print_exc", _ends_child(probe))


def write_facts(probe: Probe) -> None:
    """What only the process itself knows, now. Costs a millisecond."""
    torch = sys.modules.get("torch")
    if torch is not None:
        probe.evidence.write_last(("facts", probe.clock.now_us(), {**_threads(probe, torch), **_cuda_facts(torch)}))


def _ends_process(probe: Probe) -> Callable[[Any], Any]:
    def make(original: Any) -> Any:
        def excepthook(kind: Any, error: Any, trace: Any) -> Any:
            probe.last.failed(error)
            return original(kind, error, trace)

        return excepthook

    return make


def _ends_child(probe: Probe) -> Callable[[Any], Any]:
    """From Python 3.13 on finalisers run too late to see the error; but multiprocessing prints it, by this name."""

    def make(original: Any) -> Any:
        @functools.wraps(original)
        def print_exc(*args: Any, **kwargs: Any) -> Any:
            error = sys.exc_info()[1]
            if error is not None and sys._getframe(1).f_globals.get("__name__") == "multiprocessing.process":
                probe.last.failed(error)
            return original(*args, **kwargs)

        return print_exc

    return make


def _ends_thread(probe: Probe) -> Callable[[Any], Any]:
    def make(original: Any) -> Any:
        def excepthook(args: Any) -> Any:
            if args.exc_value is not None and not isinstance(args.exc_value, SystemExit):
                probe.note("thread-died", traceback_text(args.exc_value))
            return original(args)

        return excepthook

    return make


def _at_exit(probe: Probe) -> None:
    """In a child of multiprocessing, the error that ends it is on its way meanwhile, and is printed without a hook.
    Elsewhere another excepthook may have replaced ours; at a prompt, an error ends nothing."""
    error = sys.exc_info()[1] or (None if hasattr(sys, "ps1") else getattr(sys, "last_value", None))
    if isinstance(error, BaseException) and not isinstance(error, SystemExit):
        probe.last.failed(error)
    probe.last.write(probe.ending)


def _threads(probe: Probe, torch: ModuleType | Any) -> dict[str, Any]:
    cv2: Any = sys.modules.get("cv2") if "cv2" in probe.used else None
    return {
        "torch_threads": _asked(torch.get_num_threads),
        "interop_threads": _asked(torch.get_num_interop_threads),
        "omp_threads": _asked(lambda: _omp_threads(torch.__config__.parallel_info())),
        "opencv_threads": None if cv2 is None else _asked(cv2.getNumThreads),
    }


def _omp_threads(info: str) -> int | None:
    """From the line `omp_get_max_threads() : 8`."""
    for line in info.splitlines():
        name, _, value = line.partition(":")
        if name.strip() == "omp_get_max_threads()":
            return int(value)
    return None


def _cuda_facts(torch: ModuleType | Any) -> dict[str, Any]:
    """Nothing here may begin a context: a process that has none stays without."""
    if not torch.cuda.is_initialized():
        return dict.fromkeys(("device", *_CUDA_BYTES))
    cuda = torch.cuda
    free, total = _asked(cuda.mem_get_info) or (None, None)
    held = (_asked(ask) for ask in (cuda.memory_allocated, cuda.memory_reserved, cuda.max_memory_allocated))
    return {"device": _asked(cuda.get_device_name), **dict(zip(_CUDA_BYTES, (*held, free, total)))}


_CUDA_BYTES = ("cuda_allocated_bytes", "cuda_reserved_bytes", "cuda_peak_bytes", "cuda_free_bytes", "cuda_total_bytes")


def _asked(ask: Callable[[], Any]) -> Any:
    """None where it cannot say: after an error on the device, or in a module that is only half there."""
    try:
        return ask()
    except Exception:
        return None


# -- from doctor/probe/hooks/saving.py: Libraries that write files without a word to Python: the undo journal is told
# by these.
#
# They write where they are told to, rather than to another place: scripts rename, copy, list and load again what they
# have saved, by any means.


def watch_torch_save(probe: Probe, serialization: Any) -> None:
    """torch.save and torch.jit.save."""
    _tell(probe, serialization, "save", lambda obj, f, *_, **__: f)


def watch_script_module(probe: Probe, script: Any) -> None:
    """`save` of a scripted module, and of a traced one, whose class has a copy of it."""
    for owner in (script.RecursiveScriptModule, script.ScriptModule):
        _tell(probe, owner, "save", lambda self, f, *_, **__: f)


def watch_package(probe: Probe, package_exporter: Any) -> None:
    """torch.package."""
    _tell(probe, package_exporter.PackageExporter, "__init__", lambda self, f, *_, **__: f)


def watch_safetensors(probe: Probe, safetensors: Any) -> None:
    """What `save_file` of each framework calls."""
    _tell(probe, safetensors, "serialize_file", lambda tensor_dict, filename, *_, **__: filename)


def watch_imwrite(probe: Probe, cv2: Any) -> None:
    _tell(probe, cv2, "imwrite", lambda filename, *_, **__: filename)


def watch_hdf5(probe: Probe, files: Any) -> None:
    _tell(probe, files.File, "__init__", lambda self, name, mode="r", *_, **__: None if mode == "r" else name)


def _tell(probe: Probe, owner: Any, name: str, path_of: Callable[..., Any]) -> None:
    """Before each call of `owner.name`, tells what `path_of` makes of its arguments: a path, or anything else."""
    if hands_off.active() is None:
        return

    def make(original: Any) -> Any:
        @functools.wraps(original)
        def saving(*args: Any, **kwargs: Any) -> Any:
            journal = hands_off.active()
            if journal is not None:
                journal.guarded(_tell_path, journal, path_of, args, kwargs)
            return original(*args, **kwargs)

        return saving

    probe.patches.replace(owner, name, make)


def _tell_path(journal: UndoJournal, path_of: Callable[..., Any], args: Any, kwargs: Any) -> None:
    try:
        path = path_of(*args, **kwargs)
    except TypeError:  # called as it cannot be: that is for the original to say
        return
    if isinstance(path, (str, bytes, os.PathLike)):
        journal.saves(path)
