"""Data of one loader as a session has it: described objects, and the values that came out."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from typing import Any

from ..measure import TrainerView
from ..session.model import Session
from ..session.producers import ObservedSample, OutputLeaf
from ..session.trainers import LoaderFacts
from .stand_ins import Rebuilding

INTERPRETERS = ("python", "pypy")


@dataclass(frozen=True)
class ScriptData:
    """The loader that a training waits for, as the session has it."""

    facts: Mapping[str, Any]
    rebuilt: Rebuilding
    samples: Sequence[ObservedSample]
    batch: Mapping[str, OutputLeaf]
    """Values of a batch as collate made it, by path; of a single sample where no batch was seen."""
    is_batched: bool
    """Whether `batch` is of a batch."""
    command: Sequence[str]
    """Of the training's own process, below any launcher."""
    is_launched: bool = False
    """Whether it is one of several ranks."""
    uneven: Set[str] = frozenset()
    """Paths of `batch` whose shapes behind the first side differ from batch to batch."""
    stores: Sequence[str] = ()
    """Stores that samples were read from, `s3://bucket`, the one with the most bytes first."""

    @property
    def dataset(self) -> Any:
        return self.rebuilt.objects.get("dataset")

    @property
    def described(self) -> Mapping[str, Any]:
        found: Mapping[str, Any] = self.facts["described"]
        return found

    @property
    def files(self) -> list[str]:
        """The script's own files: that of the loop, and those that described objects are defined in."""
        loop = self.facts.get("file")
        return [*([loop] if isinstance(loop, str) else []), *_files_in(self.described)]

    @property
    def batch_size(self) -> int | None:
        size = self.facts.get("batch_size")
        return size if isinstance(size, int) and not isinstance(size, bool) else None

    @property
    def seen_batch_size(self) -> int | None:
        """Samples of the batch that was seen."""
        shapes = [leaf.shape for leaf in self.batch.values() if self.is_batched and leaf.shape]
        return shapes[0][0] if shapes else None

    @property
    def steady_batch(self) -> Mapping[str, OutputLeaf]:
        """Values of a batch, without the shape of those whose shapes differ from batch to batch."""
        return {
            path: replace(leaf, shape=None, dtype=None) if path in self.uneven else leaf
            for path, leaf in (self.batch if self.is_batched else {}).items()
        }

    @property
    def pictures_of_two_sizes(self) -> str:
        """The shapes of two pictures that one list of a batch holds, where they differ; empty where none do."""
        listed: dict[str, list[int]] = {}
        for path, leaf in self.batch.items() if self.is_batched else []:
            above, _, last = path.rpartition(".")
            if above and last.isdecimal() and leaf.shape and len(leaf.shape) == 3 and leaf.shape[0] in (1, 3, 4):
                first = listed.setdefault(above, leaf.shape)
                if first != leaf.shape:
                    return f"{first} and {leaf.shape}"
        return ""

    @property
    def is_shuffled(self) -> bool:
        """Tell whether the order is drawn: by any sampler but the sequential one."""
        sampler = order_described(self.described)
        name = str(sampler.get("class", "")) if isinstance(sampler, dict) else ""
        return "Random" in name or "Distributed" in name or "Weighted" in name or "Shuffle" in name

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


def order_described(described: Mapping[str, Any]) -> Any:
    """Return the description of what draws the order: the sampler inside a batch sampler that the script gave.

    Beside one of these, torch's DataLoader has a sequential sampler that nothing asks.
    """
    given = described.get("batch_sampler")
    while isinstance(given, dict) and (name := str(given.get("class", "")).rpartition(".")[2]):
        inner = given.get("attributes", {})
        if name not in ("BatchSampler", "BatchSamplerShard"):
            return given
        given = inner.get("sampler", inner.get("batch_sampler"))
        if isinstance(given, dict) and "BatchSampler" not in str(given.get("class", "")):
            return described.get("sampler") if "again" in given else given
    return described.get("sampler")


def script_data(session: Session, view: TrainerView) -> ScriptData | None:
    """Return the data of the loader that the steps take their batches from; None where it was not described."""
    loader = _described_loader(view)
    if loader is None:
        return None
    makers = [maker for maker in session.makers if maker.trainer == view.trainer.pid]
    samples = [sample for maker in makers for sample in maker.samples]
    batches = [sample for maker in makers for sample in maker.collated]
    leaves = (batches or samples)[0].output if batches or samples else []
    return ScriptData(
        facts=loader.facts,
        rebuilt=Rebuilding(
            {
                "dataset": loader.facts["described"].get("dataset"),
                "collate": loader.facts["described"].get("collate"),
                "sampler": order_described(loader.facts["described"]),
            }
        ),
        samples=samples,
        batch={leaf.path: leaf for leaf in leaves},
        is_batched=bool(batches),
        command=_own_command(session, view.trainer.pid),
        is_launched=len({trainer.rank for trainer in session.trainers}) > 1,
        uneven=_uneven(batches),
        stores=[store.place for store in session.remote.stores],
    )


def _uneven(batches: Sequence[ObservedSample]) -> set[str]:
    shapes: dict[str, list[int] | None] = {}
    leaves = [(leaf.path, leaf.shape and leaf.shape[1:]) for batch in batches for leaf in batch.output]
    return {path for path, shape in leaves if shapes.setdefault(path, shape) != shape}


def _own_command(session: Session, pid: int) -> Sequence[str]:
    """Return the command of a training's process, which a launcher may have started; that of the run if it is none."""
    process = next((one for one in session.processes if one.pid == pid), None)
    began = {} if process is None else process.facts.get("process") or {}
    own = [str(word) for word in began.get("argv") or []]
    return own if script_of(own) else session.outcome.command


def _files_in(described: Any) -> Iterator[str]:
    waiting = [described]
    while waiting:
        thing = waiting.pop()
        if isinstance(thing, dict):
            if isinstance(file := thing.get("file"), str):
                yield file
            waiting.extend(thing.values())
        elif isinstance(thing, list):
            waiting.extend(thing)


def _described_loader(view: TrainerView) -> LoaderFacts | None:
    """Return the loader of most batches among those that were described."""
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
