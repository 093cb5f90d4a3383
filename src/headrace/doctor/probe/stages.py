"""Where the time of a batch goes: stages that nest, each charged with what its inner stages did not take."""

from __future__ import annotations

import threading
import time

Total = list[int]
"""Calls, wall ns and thread-CPU ns, exclusive of inner stages."""


class Stages:
    """Exclusive times by stage, in each thread while an account is open in it. Stages are numbers
    (`Evidence.name("category:label")`), so that a hook costs two clock pairs and no allocation to speak of."""

    def __init__(self) -> None:
        self._local = threading.local()

    def open(self) -> None:
        """From now on this thread's stages count. An account that is open is thrown away."""
        self._local.account = Account()

    def close(self) -> dict[int, Total]:
        """The totals since `open`; nothing counts in this thread from now on."""
        account: Account | None = getattr(self._local, "account", None)
        self._local.account = None
        return {} if account is None else account.totals

    def enter(self, stage: int) -> Account | None:
        """Pass what this gives to `leave`. None where nothing counts: then `leave` need not be called."""
        account: Account | None = getattr(self._local, "account", None)
        if account is not None:
            account.enter(stage)
        return account


class Account:
    """The open stages of one thread and the totals of those that have ended."""

    __slots__ = ("_open", "totals")

    def __init__(self) -> None:
        self._open: list[list[int]] = []  # stage, wall at start, CPU at start, wall and CPU of inner stages
        self.totals: dict[int, Total] = {}

    def enter(self, stage: int) -> None:
        self._open.append([stage, time.monotonic_ns(), time.thread_time_ns(), 0, 0])

    def leave(self) -> int:
        """Wall ns of the stage that ends, inner ones included."""
        cpu = time.thread_time_ns()
        wall = time.monotonic_ns()
        stage, wall_start, cpu_start, inner_wall, inner_cpu = self._open.pop()
        wall -= wall_start
        cpu -= cpu_start
        if self._open:
            outer = self._open[-1]
            outer[3] += wall
            outer[4] += cpu
        total = self.totals.get(stage)
        if total is None:
            total = self.totals[stage] = [0, 0, 0]
        total[0] += 1
        total[1] += wall - inner_wall
        total[2] += cpu - inner_cpu
        return wall
