"""What batches cost by stage, exclusive of inner stages."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from headrace.doctor.analyse.join import Made
from headrace.doctor.analyse.threads import Figures, with_threads
from headrace.doctor.measure.diagnosis import StagePart
from headrace.doctor.session.model import Maker

REST = "other:rest"
"""Time of a batch that no stage covers."""
SERIALISE = "serialise:to the trainer"
"""Pickling a batch into the pipe, its tensors into shared memory."""


@dataclass
class Sums:
    """Calls, wall and CPU microseconds of one stage; CPU is None where it was not measured."""

    calls: int = 0
    wall: float = 0
    cpu: float | None = None

    def add(self, calls: int, wall: float, cpu: float | None) -> None:
        self.calls += calls
        self.wall += wall
        if cpu is not None:
            self.cpu = (self.cpu or 0) + cpu


@dataclass
class Costs:
    """Of a number of batches, by stage; the walls sum to the time that they took to make."""

    batches: int = 0
    samples: int = 0
    stages: dict[str, Sums] = field(default_factory=dict)

    @property
    def wall(self) -> float:
        return sum(sums.wall for sums in self.stages.values())

    @property
    def cpu(self) -> float:
        """Of the stages of which it is known."""
        return sum(sums.cpu or 0 for sums in self.stages.values())


def costs(made: Iterable[Made], batch_size: int | None) -> Costs:
    """`batch_size` is the number of samples of a batch that does not tell; where that is None too, it counts as one."""
    sums = Costs()
    for maker, row in made:
        sums.batches += 1
        sums.samples += maker.batches.samples[row] or batch_size or 1
        for stage, (calls, wall, cpu) in batch_stages(maker, row).items():
            sums.stages.setdefault(stage, Sums()).add(calls, wall, cpu)
    return sums


def batch_stages(maker: Maker, row: int, *, serialise: bool = True) -> dict[str, Figures]:
    """Calls, wall and CPU of one batch by stage, with what they leave of its time as `other:rest`, and with the time
    that it took to `serialise`, which the worker's other thread does while the next batch is begun."""
    batches = maker.batches
    stages = _named(maker, batches.stages[row])
    rest = made_us(maker, row) - sum(wall for _, wall, _ in stages.values())
    if batches.beside and batches.beside[row]:
        stages = with_threads(stages, _named(maker, batches.beside[row]))
    if rest > 0:
        stages[REST] = (1, rest, None)
    pickling = batches.serialise[row]
    if serialise and pickling:
        stages[SERIALISE] = (1, pickling, None)
    return stages


def made_us(maker: Maker, row: int) -> int:
    """Return what making a batch took: of all the threads together, where several made it."""
    worked = maker.batches.worked[row] if maker.batches.worked else None
    return maker.batches.fetched[row] - maker.batches.start[row] if worked is None else worked


def _named(maker: Maker, rows: list[tuple[int, int, int, int]]) -> dict[str, Figures]:
    return {maker.stages[number]: (calls, wall, cpu) for number, calls, wall, cpu in rows}


def stage_parts(sums: Costs) -> list[StagePart]:
    """Heaviest first; the shares sum to 1."""
    whole = sums.wall
    if whole <= 0:
        return []
    parts = [_part(stage, one, sums, whole) for stage, one in sums.stages.items()]
    return sorted(parts, key=lambda part: -part.share)


def _part(stage: str, one: Sums, sums: Costs, whole: float) -> StagePart:
    category, _, label = stage.partition(":")
    return StagePart(
        category=category,
        label=label,
        share=one.wall / whole,
        wall_us=one.wall / sums.samples,
        cpu_us=None if one.cpu is None else one.cpu / sums.samples,
        calls=one.calls / sums.batches,
    )
