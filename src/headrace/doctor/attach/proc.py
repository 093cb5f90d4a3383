"""What Linux's /proc tells of one process."""

from __future__ import annotations

from pathlib import Path

from headrace.doctor.process_stat import Stat, parsed

PROC = Path("/proc")
SIGHUP_BIT = 1


def pids() -> set[int]:
    return {int(entry.name) for entry in PROC.iterdir() if entry.name.isdigit()}


def stat(pid: int) -> Stat | None:
    """None where it has ended."""
    return parsed(_read(pid, "stat") or "")


def arguments(pid: int) -> list[str]:
    """Its command line; empty where it has ended."""
    return (_read(pid, "cmdline") or "").split("\0")[:-1]


def environment(pid: int) -> dict[str, str] | None:
    """What it was started with; None where that is not ours to read."""
    text = _read(pid, "environ")
    if text is None:
        return None
    return dict(pair.partition("=")[::2] for pair in text.split("\0") if "=" in pair)


def maps(pid: int) -> str:
    """The files that it has mapped; empty where it has ended, or that is not ours to read."""
    return _read(pid, "maps") or ""


def ignores_hangup(pid: int) -> bool:
    """Whether it was told to outlive its terminal, as by nohup."""
    for line in (_read(pid, "status") or "").splitlines():
        name, _, value = line.partition(":")
        if name == "SigIgn":
            return bool(int(value, 16) & SIGHUP_BIT)
    return False


def _read(pid: int, name: str) -> str | None:
    try:
        return (PROC / str(pid) / name).read_text(encoding="utf-8", errors="surrogateescape")
    except OSError:
        return None
