"""A process's side as a trainer: its steps, and the batches that it received."""

from __future__ import annotations

from collections.abc import Callable
from itertools import accumulate
from typing import Any

from headrace.doctor.session import evidence_records
from headrace.doctor.session.model import Digest, Gets, Loader, LoaderFeed, Pass, Rest, Trainer, Window

Taker = Callable[[Any], None]


class TrainerSide:
    """Gathers the records of docs/doctor/evidence.md, A process that trains. Those that belong to a step are written
    after it, or before it, or without it where it was never completed."""

    def __init__(self) -> None:
        self.trainer = Trainer(pid=0, host="", rank=0)
        self._names: dict[int, str] = {}
        self._shapes: dict[int, int] = {}
        self._device: dict[int, list[tuple[str, float]]] = {}
        self._ready: dict[int, int] = {}

    @property
    def is_one(self) -> bool:
        return bool(self.trainer.steps.number or self.trainer.passes or self.trainer.loaders)

    def takers(self, names: dict[int, str]) -> dict[type[evidence_records.Record], Taker]:
        """What takes each kind of record; `names` fills as the file is read."""
        self._names = names
        return {
            evidence_records.Loader: lambda record: self.trainer.loaders.append(Loader(record.loader, record.facts)),
            evidence_records.Pass: self._pass,
            evidence_records.Get: lambda record: self._get(self.trainer.gets, record),
            evidence_records.Fetch: lambda record: self._get(self.trainer.fetches, record),
            evidence_records.Padding: self._padding,
            evidence_records.Drained: lambda record: self._get(self.trainer.drained, record),
            evidence_records.Replayed: self._replayed,
            evidence_records.Window: self._window,
            evidence_records.Last: self._last,
            evidence_records.Feed: lambda record: self.trainer.feeds.append(
                LoaderFeed(record.pass_, record.t, record.facts)
            ),
            evidence_records.Step: self._step,
            evidence_records.Rest: self._rest,
            evidence_records.Device: self._marks,
            evidence_records.Ready: lambda record: self._ready.update({record.number: record.t}),
            evidence_records.Collective: self._collective,
            evidence_records.Digest: lambda record: self.trainer.digests.append(
                Digest(record.pass_, record.content, record.keys, record.sketches)
            ),
        }

    def finished(self, pid: int, host: str, rank: int) -> Trainer:
        """The trainer, with what came after its steps filled in."""
        trainer = self.trainer
        trainer.pid, trainer.host, trainer.rank = pid, host, rank
        trainer.steps.device = [self._device.get(number) for number in trainer.steps.number]
        trainer.steps.ready = [self._ready.get(number) for number in trainer.steps.number]
        return trainer

    def _pass(self, record: evidence_records.Pass) -> None:
        self.trainer.passes.append(
            Pass(record.number, record.loader, record.t, record.end_t, record.epoch, record.pids)
        )

    def _get(self, gets: Gets, record: evidence_records.Get) -> None:
        gets.pass_.append(record.pass_)
        gets.index.append(record.index)
        gets.start.append(record.t)
        gets.duration.append(record.duration)
        gets.arrived.append(record.arrived)
        gets.unpickle.append(record.unpickle)
        gets.pin_start.append(record.pin_t)
        gets.pin.append(record.pin)
        gets.bytes.append(record.bytes)
        gets.shape.append(None if record.shape is None else self._shape(record.shape))
        gets.unpickle_cpu.append(record.unpickle_cpu)

    def _replayed(self, record: evidence_records.Replayed) -> None:
        replays = self.trainer.replays
        replays.pass_.append(record.pass_)
        replays.start.append(record.t)
        replays.duration.append(record.duration)

    def _window(self, record: evidence_records.Window) -> None:
        window = Window(record.name, record.first, record.steps, record.settling, record.t, record.end_t)
        self.trainer.windows.append(window)

    def _shape(self, name: int) -> int:
        """Into `Trainer.shapes`."""
        if name not in self._shapes:
            self._shapes[name] = len(self.trainer.shapes)
            self.trainer.shapes.append(self._names.get(name, "?"))
        return self._shapes[name]

    def _padding(self, record: evidence_records.Padding) -> None:
        padding = self.trainer.padding
        padding.pass_.append(record.pass_)
        padding.index.append(record.index)
        padding.rows.append(record.rows)
        padding.width.append(record.width)
        padding.filled.append(record.filled)
        padding.longest.append(record.longest)

    def _last(self, record: evidence_records.Last) -> None:
        for number in reversed(self.trainer.passes):
            if number.number == record.pass_:
                number.last_start, number.last = record.t, record.duration
                return

    def _step(self, record: evidence_records.Step) -> None:
        steps = self.trainer.steps
        steps.number.append(record.number)
        steps.start.append(record.t)
        steps.end.append(record.end_t)
        steps.spans.append([(kind, record.t + offset, duration) for kind, offset, duration in record.spans])
        steps.probe.append(None if record.probe is None else record.probe / 10)
        steps.cpu.append(record.cpu)
        steps.delay.append(record.delay)

    def _rest(self, record: evidence_records.Rest) -> None:
        rest = Rest(record.number, record.t, record.end_t, record.steps, record.probe / 10)
        self.trainer.rests.append(rest)

    def _marks(self, record: evidence_records.Device) -> None:
        times = (tenths / 10 for tenths in accumulate(record.gaps))
        self._device[record.number] = list(zip(record.kinds, times, strict=False))

    def _collective(self, record: evidence_records.Collective) -> None:
        calls = self.trainer.collectives
        calls.step.append(record.number)
        calls.start.append(record.t)
        calls.duration.append(record.duration)
        calls.name.append(self._names.get(record.name, "?"))
        calls.bytes.append(record.bytes)
