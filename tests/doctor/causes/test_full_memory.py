"""A run that fails for want of shared memory names /dev/shm."""

from __future__ import annotations

import pytest
from made_reports import made_session
from made_sessions import replace

from headrace.doctor.causes import diagnose

BUS_ERROR = (
    "RuntimeError: DataLoader worker (pid 201) is killed by signal: Bus error. It is possible that dataloader's "
    "workers are out of shared memory. Please try to raise your shared memory limit."
)
NO_SPACE = (
    "RuntimeError: Caught RuntimeError in DataLoader worker process 1.\n"
    "RuntimeError: unable to allocate shared memory(shm) for file </torch_1_2_0>: No space left on device (28)"
)


@pytest.mark.parametrize(
    ("error", "is_full"), [(BUS_ERROR, True), (NO_SPACE, True), ("OSError: No space left on device: 'out.pt'", False)]
)
def test_a_run_that_fails_for_want_of_shared_memory(error: str, is_full: bool) -> None:
    session = made_session()
    session.outcome = replace(session.outcome, why="failed", status=1)
    session.processes[0] = replace(session.processes[0], error=error)
    session.machines[0].facts["shm_bytes"] = 64 << 20
    codes = [one.code for one in diagnose(session).findings]
    assert ("stalled-shared-memory" in codes) == is_full
