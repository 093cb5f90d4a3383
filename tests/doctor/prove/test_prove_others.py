"""What other programs do while a remedy is tried."""

from __future__ import annotations

import subprocess
import sys

import pytest

from headrace.doctor.prove.trial import Others, used_s


class Busy:
    """Cores that are busy as given."""

    def __init__(self, cores: float | None) -> None:
        self.cores = cores

    def read(self) -> dict[str, float | None]:
        return {"cpu_cores_busy": self.cores}


@pytest.mark.parametrize(("used", "others"), [(4.0, 0.5), (0.0, 0.9), (12.0, 0.0)])
def test_others_are_what_is_busy_beside_our_own(used: float, others: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 10 s, the only core was busy for 9."""
    monkeypatch.setattr("headrace.doctor.prove.trial.Cores", lambda *_: Busy(0.9))
    times, own = iter([50.0, 60.0]), iter([7.0, 7.0 + used])
    assert Others(times.__next__, own.__next__).cores() == pytest.approx(others)


def test_a_machine_that_does_not_tell(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headrace.doctor.prove.trial.Cores", lambda *_: Busy(None))
    times = iter([50.0, 60.0])
    assert Others(times.__next__, lambda: 0.0).cores() is None


def test_our_own_are_those_that_were_waited_for() -> None:
    burn = "import time\nwhile time.process_time() < 0.3: pass"
    before = used_s()
    process = subprocess.Popen([sys.executable, "-c", burn])
    process.wait()
    assert used_s() - before >= 0.25
