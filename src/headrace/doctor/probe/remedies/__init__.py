"""Remedies that a proof injects into the user's processes, without a change of the code.

Like all of the probe they import the standard library only. What a remedy needs beyond that, headrace or torch, it
takes from the user's own environment when the time comes; where that has none, it is not applied and says so.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, Callable

from ..patches import Function, HookGuard
from . import adopted, files, images, loaders

if TYPE_CHECKING:
    from ..probe import Probe

__all__ = ["AROUND", "BENEATH", "KEYS", "InjectedRemedy", "inject"]


class InjectedRemedy:
    """One remedy in this process: what it is installed by, and whether it took effect, and how often.

    It writes the `applied` records of docs/doctor/session.md: at once when the remedy takes effect for the first time,
    since a process may be killed, and with the count when the process ends.
    """

    def __init__(self, probe: Probe, key: str) -> None:
        self.patches, self.training, self.fault = probe.patches, probe.training, probe.fault
        self.when_imported = probe.when_imported
        self.folder, self.digests = probe.settings.folder, probe.digests
        self.key = key
        self.guarded = HookGuard(probe.fault, f"remedy {key}")
        """For the parts of the remedy: once any has raised, it is off, and says why."""
        self._evidence, self._clock = probe.evidence, probe.clock
        self._texts: set[str] = set()
        self._count = 0
        self._process = probe.evidence.path
        probe.last.add(self._write_count)

    def around(self, module: str, path: str, call: Function) -> None:
        """Replace `path`, dotted, of a module, once it has been imported, by what calls `call(original, …)`."""

        def install(imported: Any) -> None:
            *outer, name = path.split(".")
            self.patches.around(functools.reduce(getattr, outer, imported), name, call)

        self.when_imported(module, install)

    def took(self, text: str = "") -> None:
        """Count one effect more. `text` says in which way; each is written once."""
        self._own()
        self._count += 1
        if self._count == 1 or text not in self._texts:
            self._texts.add(text)
            self._write(self._count, text)

    def refused(self, why: str) -> None:
        """Write why it cannot take effect here."""
        self._own()
        if why not in self._texts:
            self._texts.add(why)
            self._write(0, why)

    @functools.cached_property
    def headrace(self) -> Any:
        """Return the package; None, and a refusal, where the environment of the command has none."""
        try:
            import headrace
        except ImportError as error:
            self.refused(f"headrace is not installed in the environment of the command ({error})")
            return None
        return headrace

    def _own(self) -> None:
        """Count anew in the child of a fork, into its own evidence."""
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
    "environment": loaders.install_environment,
    "threads": loaders.install_thread_limits,
    "staging": files.install_staging,
    "indexed_tar": files.install_indexed_tar,
    "native_decode": images.install_native_decode,
    "cache": images.install_image_cache,
    "loaders": loaders.install_arguments,
}
"""By their keys of docs/doctor/remedies.md, in the order in which they are installed: what comes later stands before
what came earlier. All of them stand behind the hooks, whose stages then time what took the place of the user's."""
AROUND: dict[str, Callable[[InjectedRemedy, Any], None]] = {
    "loader": adopted.install_loader,
    "device_prefetch": loaders.install_device_prefetch,
}
"""These stand before the hooks, since they take batches from a loader of their own, or in another thread."""
KEYS = frozenset((*BENEATH, *AROUND))


def inject(probe: Probe, remedies: dict[str, Callable[[InjectedRemedy, Any], None]]) -> None:
    """Install those of `remedies` that the settings name: BENEATH before the hooks are there, AROUND behind them."""
    changes = probe.settings.changes
    for key, install in remedies.items():
        if key not in changes:
            continue
        try:
            install(InjectedRemedy(probe, key), changes[key])
        except Exception as error:
            probe.fault(f"remedy {key}", error)
