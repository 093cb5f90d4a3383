"""Remedies that a proof injects into the user's processes without changing the code.

Like the whole probe, they import only the standard library. A remedy that needs headrace or torch imports it from the
user's environment when it takes effect. If the import fails, the remedy is not applied and reports why.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, Callable

from ..patches import Function, HookGuard
from . import indexed_tar, loaders

if TYPE_CHECKING:
    from ..probe import Probe

__all__ = ["AROUND", "BENEATH", "KEYS", "InjectedRemedy", "inject"]


class InjectedRemedy:
    """One remedy in this process: its installation, and a count of its effects.

    It writes the `applied` records of docs/doctor/internals.md: at its first effect, since a process may be killed, and
    with the final count when the process ends.
    """

    def __init__(self, probe: Probe, key: str) -> None:
        self.patches, self.training, self.fault = probe.patches, probe.training, probe.fault
        self.when_imported = probe.when_imported
        self.folder, self.digests = probe.settings.folder, probe.digests
        self.key = key
        self.guarded = HookGuard(probe.fault, f"remedy {key}")
        """Guard for the parts of the remedy: once any part has raised, the remedy is off and reports why."""
        self._evidence, self._clock = probe.evidence, probe.clock
        self._texts: set[str] = set()
        self._count = 0
        self._process = probe.evidence.path
        probe.last.add(self._write_count)

    def around(self, module: str, path: str, call: Function) -> None:
        """Replace a dotted `path` of a module, once imported, by a function that calls `call(original, …)`."""

        def install(imported: Any) -> None:
            *outer, name = path.split(".")
            self.patches.around(functools.reduce(getattr, outer, imported), name, call)

        self.when_imported(module, install)

    def took(self, text: str = "") -> None:
        """Count one more effect. Each distinct `text`, which describes the effect, is written once."""
        self._own()
        self._count += 1
        if self._count == 1 or text not in self._texts:
            self._texts.add(text)
            self._write(self._count, text)

    def refused(self, why: str) -> None:
        """Write why the remedy cannot take effect here."""
        self._own()
        if why not in self._texts:
            self._texts.add(why)
            self._write(0, why)

    @functools.cached_property
    def headrace(self) -> Any:
        """The package; None, with a refusal, if the command's environment lacks it."""
        try:
            import headrace
        except ImportError as error:
            self.refused(f"headrace is not installed in the environment of the command ({error})")
            return None
        return headrace

    def _own(self) -> None:
        """Restart the count in the child of a fork, for its own evidence."""
        if self._process != self._evidence.path:
            self._process = self._evidence.path
            self._texts.clear()
            self._count = 0

    def _write(self, count: int, text: str) -> None:
        self._evidence.write(("applied", self._clock.now_us(), self.key, count, text))

    def _write_count(self) -> None:
        self._own()
        if self._count:
            self._write(self._count, "")


BENEATH: dict[str, Callable[[InjectedRemedy, Any], None]] = {
    "indexed_tar": indexed_tar.install_indexed_tar,
    "loaders": loaders.install_arguments,
}
"""Installers by key of docs/doctor/remedies.md, in order: a later remedy wraps an earlier one.

All are installed under the hooks, whose stages then time the replacements.
"""
AROUND: dict[str, Callable[[InjectedRemedy, Any], None]] = {
    "loader": loaders.install_loader,
    "device_prefetch": loaders.install_device_prefetch,
}
"""Installers of remedies around the hooks, which take batches from their own loader or in another thread."""
KEYS = frozenset((*BENEATH, *AROUND))


def inject(probe: Probe, remedies: dict[str, Callable[[InjectedRemedy, Any], None]]) -> None:
    """Install the `remedies` named in the settings: BENEATH before the hooks, AROUND after them."""
    changes = probe.settings.changes
    for key, install in remedies.items():
        if key not in changes:
            continue
        try:
            install(InjectedRemedy(probe, key), changes[key])
        except Exception as error:
            probe.fault(f"remedy {key}", error)
