"""Pressure stall information: the share of time in which something stood still for want of a resource.

https://docs.kernel.org/accounting/psi.html. `some` counts time in which at least one task waited, `full` time in which
all that had work did.
"""

from __future__ import annotations

from typing import Any

from headrace.doctor.machine.control_groups import Cgroups
from headrace.doctor.machine.kernel import Kernel, is_whole, rows
from headrace.doctor.machine.part import Row
from headrace.doctor.machine.rates import Rates

RESOURCES = ("cpu", "io", "memory")


class Pressure:
    """Of the command's own control group where the kernel tells, else of the whole machine."""

    name = "pressure"

    def __init__(self, kernel: Kernel, cgroups: Cgroups) -> None:
        self._kernel = kernel
        self._cgroups = cgroups
        self._rates = Rates()
        self._of = next((of for of in ("cgroup", "machine") if self._text(of, "cpu") is not None), None)

    def read(self, now_s: float) -> Row:
        row: Row = {}
        for resource in RESOURCES:
            totals = _totals(self._text(self._of, resource))
            for kind in ("some", "full"):
                name = f"pressure_{resource}_{kind}_share"
                us = self._rates.per_second(name, totals.get(kind), now_s)
                row[name] = None if us is None else min(us / 1e6, 1.0)
        return row

    def facts(self) -> dict[str, Any]:
        return {"pressure_of": self._of}

    def _text(self, of: str | None, resource: str) -> str | None:
        return self._cgroups.pressure(resource) if of == "cgroup" else self._kernel.text(f"/proc/pressure/{resource}")


def _totals(text: str | None) -> dict[str, int]:
    """Microseconds by kind, of `some avg10=… total=…` lines."""
    found = {}
    for kind, *fields in rows(text):
        total = next((field[6:] for field in fields if field.startswith("total=")), "")
        if is_whole(total):
            found[kind] = int(total)
    return found
