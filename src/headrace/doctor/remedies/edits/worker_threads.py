"""One thread a library in each worker, by the loader's `worker_init_fn`."""

from __future__ import annotations

from headrace.doctor.edits.loader_call import LoaderCall, argument
from headrace.doctor.edits.script_source import Replacement, Source
from headrace.doctor.remedies.edits.imports import below_imports, full_names, top_names

NAME = "one_thread_each"
CALLS = {"torch": "set_num_threads(1)", "cv2": "setNumThreads(0)"}
"""By module, what keeps it to one thread."""


def one_thread_each(found: LoaderCall) -> list[Replacement] | None:
    """The function, where the loader has none yet: put behind the imports, since workers that are spawned look for it
    by its name. None where the file imports no library whose threads could be set, or has that name already."""
    source = found.source
    anywhere = full_names(source.tree).values()
    lines = [line for module, call in CALLS.items() if module in anywhere for line in _lines(source, module, call)]
    if not lines or argument(found.call, "worker_init_fn") is not None or NAME in source.text:
        return None
    place = below_imports(source)
    text = source.newline.join(["", "", f"def {NAME}(worker):", *lines, ""])
    return [Replacement(place, place, text, order=1)]


def _lines(source: Source, module: str, call: str) -> list[str]:
    """By the name that the file itself has for the module; one that is imported within a function is no name here."""
    names = [name for name, full in top_names(source.tree).items() if full == module]
    return [f"    {names[0]}.{call}"] if names else [f"    import {module}", "", f"    {module}.{call}"]
