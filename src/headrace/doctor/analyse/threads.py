"""Batches that one thread makes with the help of others."""

from __future__ import annotations

Figures = tuple[int, int, int | None]
"""Calls, wall and CPU."""
GETITEM = "getitem:rest"
"""The dataset's own code: where it hands samples to threads of its own and waits for them."""


def with_threads(stages: dict[str, Figures], beside: dict[str, Figures]) -> dict[str, Figures]:
    """Charges the time in which the dataset's own code did not compute to what the threads beside it did meanwhile, in
    proportion to their wall times. The walls still sum to the same; calls and CPU are the threads' own."""
    calls, wall, cpu = stages.get(GETITEM, (0, 0, 0))
    working = sum(us for _, us, _ in beside.values())
    waited = min(max(wall - (cpu or 0), 0), working)
    if waited == 0:
        return stages
    shared, left = dict(stages), waited
    for stage, (own_calls, us, own_cpu) in beside.items():
        part = waited * us // working
        left -= part
        before = shared.get(stage, (0, 0, 0))
        shared[stage] = (before[0] + own_calls, before[1] + part, (before[2] or 0) + (own_cpu or 0))
    shared[GETITEM] = (calls, wall - waited + left, cpu)
    return shared
