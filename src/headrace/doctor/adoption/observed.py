"""Data of one loader in a session: its facts, and the script's command."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from headrace.doctor.measure import TrainerView
from headrace.doctor.session.model import Session
from headrace.doctor.session.trainers import LoaderFacts, order_described, short_class

INTERPRETERS = ("python", "pypy")
_WHOLE = ("SequentialSampler", "RandomSampler", "SeedableRandomSampler", "DistributedSampler", "SubsetRandomSampler")
"""Samplers that take each sample once per epoch, the last from a list of samples; the third is accelerate's."""


@dataclass(frozen=True)
class ScriptData:
    """The loader that a training waits for, as recorded in the session."""

    facts: Mapping[str, Any]
    command: Sequence[str]
    """Command of the training's own process, below any launcher."""
    is_launched: bool = False
    """True if it is one of several ranks."""

    @property
    def described(self) -> Mapping[str, Any]:
        found: Mapping[str, Any] = self.facts.get("described") or {}
        return found

    @property
    def batch_size(self) -> int | None:
        """Samples per batch; None if the dataset makes batches."""
        size = self.facts.get("batch_size")
        return size if isinstance(size, int) and not isinstance(size, bool) else None

    @property
    def sampler(self) -> str:
        """Class name of the sampler; empty if unknown."""
        return short_class(order_described(self.described))

    @property
    def is_shuffled(self) -> bool:
        """True if the order is random: for any sampler but the sequential one."""
        return any(word in self.sampler for word in ("Random", "Distributed", "Weighted", "Shuffle"))

    @property
    def takes_each_once(self) -> bool:
        """True if an epoch takes each sample once, as far as the sampler is known."""
        state = order_described(self.described).get("attributes", {})
        is_drawn = state.get("replacement") or state.get("_num_samples") is not None
        return not self.sampler or (self.sampler in _WHOLE and not is_drawn)

    @property
    def is_stream(self) -> bool:
        """True if no sampler draws samples of the dataset."""
        return self.sampler == "_InfiniteConstantSampler"

    @property
    def script(self) -> tuple[str, ...]:
        """The script with its arguments, or `-m` with a module; empty for any other command."""
        return script_of(self.command)


def script_of(command: Sequence[str]) -> tuple[str, ...]:
    """Return the script of a Python command with its arguments, or `-m` with a module; empty for any other command."""
    words = list(command)
    while words and os.path.basename(words[0]).startswith(INTERPRETERS):
        words = words[1:]
        while words and words[0].startswith("-") and words[0] not in ("-m", "-c"):
            words = words[1:]
        if words and (words[0].endswith(".py") or words[0] == "-m"):
            return tuple(words)
    return ()


def script_data(session: Session, view: TrainerView) -> ScriptData | None:
    """Return the data of the loader that the steps take their batches from; None if it was not described."""
    loader = described_loader(view)
    if loader is None:
        return None
    return ScriptData(
        facts=loader.facts,
        command=_own_command(session, view.trainer.pid),
        is_launched=len({trainer.rank for trainer in session.trainers}) > 1,
    )


def _own_command(session: Session, pid: int) -> Sequence[str]:
    """Return the command of a training's process, which a launcher may have started, or else the run's command."""
    process = next((one for one in session.processes if one.pid == pid), None)
    began = {} if process is None else process.facts.get("process") or {}
    own = [str(word) for word in began.get("argv") or []]
    return own if script_of(own) else session.outcome.command


def described_loader(view: TrainerView) -> LoaderFacts | None:
    """Return the described loader that gave the training most batches."""
    loaders = {
        loader.number: loader for loader in view.trainer.loaders if isinstance(loader.facts.get("described"), dict)
    }
    of_pass = {one.number: one.loader for one in view.trainer.passes}
    counts = dict.fromkeys(loaders, 0)
    for number in view.trainer.gets.pass_:
        if of_pass.get(number) in counts:
            counts[of_pass[number]] += 1
    most = max(counts, key=counts.__getitem__, default=None)
    return None if most is None else loaders[most]
