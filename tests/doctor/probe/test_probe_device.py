"""The device's view of a step, on a simulated stream that lags behind the thread which fills it."""

from __future__ import annotations

import gc
import itertools
import os
import random
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch
import torch.distributed as dist
from made_sessions import process, read, write_evidence, write_settings
from probing import kinds, notes, probed, records
from torch.utils.data import DataLoader
from training_loops import Loop, loader, pairs

from headrace.doctor.probe.hooks import loop_calls, training_calls
from headrace.doctor.probe.training.device_marks import CudaDevice, DeviceMarks, device_records


@dataclass
class Mark:
    done_us: float = 0.0


@dataclass
class Stream:
    """Work is queued at `now_us` and done in order: a device. Marks take no time."""

    now_us: float = 0.0
    done_us: float = 0.0
    may_mark: bool = True
    made: int = 0
    marks: list[Mark] = field(default_factory=list)

    def work(self, us: float) -> None:
        self.done_us = max(self.done_us, self.now_us) + us

    def follow(self) -> None:
        pass

    def record(self, spare: Mark | None) -> Mark | None:
        if not self.may_mark:
            return None
        if spare is None:
            self.made += 1
            spare = Mark()
        assert spare not in [mark for mark in self.marks if mark is spare]  # no mark in use is set again
        spare.done_us = max(self.done_us, self.now_us)
        return spare

    def is_done(self, mark: Mark) -> bool:
        return mark.done_us <= self.now_us

    def elapsed_us(self, earlier: Mark, later: Mark) -> float:
        assert self.is_done(earlier)  # to ask one that is not done would wait
        assert self.is_done(later)  # to ask one that is not done would wait
        return later.done_us - earlier.done_us


def _step(marks: DeviceMarks, stream: Stream, wait_us: float, backward_us: float) -> None:
    """The thread waits for a batch, then queues work in no time."""
    marks.mark("w")
    stream.now_us += wait_us
    marks.mark("r")
    marks.mark("b")
    stream.work(backward_us)
    marks.mark("c")
    marks.mark("o")
    stream.work(10)
    marks.mark("p")


def _parts(marks: list[tuple[str, float]]) -> dict[str, float]:
    """Microseconds up to each mark, from the one before it."""
    return {kind: us - before for (_, before), (kind, us) in itertools.pairwise(marks)}


@pytest.mark.parametrize(("wait_us", "stood_still_us"), [(100, 0), (510, 0), (600, 90), (5000, 4490)])
def test_a_device_with_work_left_does_not_wait_for_the_batch(wait_us: float, stood_still_us: float) -> None:
    stream = Stream()
    marks = DeviceMarks(stream)
    _step(marks, stream, 0, 500)
    marks.close(0)
    _step(marks, stream, wait_us, 500)
    marks.close(1)
    stream.now_us = 1e9
    (first, second) = marks.read()
    assert [first[0], second[0]] == [0, 1]
    assert _parts(second[1])["r"] == stood_still_us
    assert _parts(second[1])["c"] == 500
    assert second[1][0] == ("s", first[1][-1][1])


def test_a_step_is_read_only_once_the_device_has_come_past_it() -> None:
    stream = Stream()
    marks = DeviceMarks(stream)
    _step(marks, stream, 0, 1000)
    marks.close(0)
    assert marks.read() == []
    stream.now_us = 1009
    assert marks.read() == []
    stream.now_us = 1010
    assert [number for number, _ in marks.read()] == [0]
    assert marks.read() == []


def test_a_device_far_behind_gets_no_marks_until_it_has_caught_up() -> None:
    stream = Stream()
    marks = DeviceMarks(stream, most_steps=4)
    read: list[tuple[int, Any]] = []
    for number in range(20):
        _step(marks, stream, 0, 1000)
        marks.close(number)
        read += marks.read()
    made = stream.made
    assert [number for number, _ in read] == []
    stream.now_us = stream.done_us
    read += marks.read()
    assert [number for number, _ in read] == [0, 1, 2, 3]
    for number in range(20, 24):
        _step(marks, stream, 2000, 500)
        stream.now_us = stream.done_us
        marks.close(number)
        read += marks.read()
    assert [number for number, _ in read] == [0, 1, 2, 3, 20, 21, 22, 23]
    assert made < 40
    assert all(kinds_of(marks_) == "swrbcop" for _, marks_ in read)
    times = [us for _, marks_ in read for _, us in marks_]
    assert times == sorted(times)


def kinds_of(marks: list[tuple[str, float]]) -> str:
    return "".join(kind for kind, _ in marks)


def test_marks_are_read_as_they_were_to_a_tenth_however_long_the_run(tmp_path: Path) -> None:
    """Gaps that are no whole number of tenths would add up to an error, and days make the numbers long."""
    draw = random.Random(5)
    times = itertools.accumulate(draw.choice([0.0, 0.04, 0.37, 1234.56, 3_600e6]) for _ in itertools.count())
    told = [(number, [(kind, next(times)) for kind in "swrhibcop"]) for number in range(50)]
    records = device_records(SimpleNamespace(read=lambda: told))  # type: ignore[arg-type]
    steps = [["step", number, number, number + 1, [], None] for number, _ in told]
    write_settings(tmp_path)
    write_evidence(tmp_path, "a", [process(7), *steps, *map(list, records)])
    (trainer,) = read(tmp_path).trainers
    found = [mark for marks in trainer.steps.device for mark in marks or []]
    expected = [mark for _, marks in told for mark in marks]
    assert [kind for kind, _ in found] == [kind for kind, _ in expected]
    assert [us for _, us in found] == pytest.approx([us for _, us in expected], rel=0, abs=0.051)
    assert all(round(us, 1) == us for _, us in found)


@pytest.mark.parametrize(
    ("call", "is_copy"),
    [
        (lambda tensor: tensor.to("meta"), True),
        (lambda tensor: tensor.to(device="meta", dtype=torch.float64), True),
        (lambda tensor: tensor.to(torch.device("meta"), non_blocking=True), True),
        (lambda tensor: tensor.to(torch.empty(0, device="meta")), True),
        (lambda tensor: tensor.to(tensor=torch.empty(0, device="meta")), True),
        (lambda tensor: torch.Tensor.to(tensor, "meta"), True),
        (lambda tensor: tensor.to(torch.float64), False),
        (lambda tensor: tensor.to("cpu"), False),
        (lambda tensor: tensor.to(torch.device("cpu")), False),
        (lambda tensor: tensor.to(dtype=torch.float64), False),
        (lambda tensor: tensor.to(torch.empty(0)), False),
        (lambda tensor: tensor.to("meta").to("meta"), True),
        (lambda tensor: torch.nn.Parameter(tensor).to("meta"), False),  # a model on its way is no batch
    ],
)
@pytest.mark.one_in(16)
def test_a_copy_to_a_device_is_a_span(tmp_path: Path, call: Any, is_copy: bool) -> None:
    loop = Loop()
    with probed(tmp_path) as probe:
        loop_calls.install_copies(probe.patches, probe.training, torch)
        for batch in loader(12):
            result = call(batch[0])
            assert isinstance(result, torch.Tensor)
            loop.step(batch)
    assert [kinds(step) for step in records(tmp_path, "step")] == ["hbo" if is_copy else "bo"] * 3


def test_tables_of_methods_still_know_the_ones_that_are_hooked(tmp_path: Path) -> None:
    """As torchvision's tensors and torch's own uninitialised parameters keep them."""
    before = torch.Tensor.to, torch.Tensor.cuda
    with probed(tmp_path) as probe:
        loop_calls.install_copies(probe.patches, probe.training, torch)
        after = torch.Tensor.to, torch.Tensor.cuda
        assert all(method in set(before) for method in after)
        assert all(method in set(after) for method in before)
        assert torch.Tensor.to.__name__ == "to"
        lazy = torch.nn.LazyLinear(3).to(torch.float64)
        assert isinstance(lazy.weight, torch.nn.parameter.UninitializedParameter)

        class Tagged(torch.Tensor):
            @classmethod
            def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
                called.append(func in {before[0]})
                return super().__torch_function__(func, types, args, kwargs or {})

        called: list[bool] = []
        assert isinstance(torch.ones(2).as_subclass(Tagged).to(torch.float64), Tagged)
        assert called[-1]
    assert (torch.Tensor.to, torch.Tensor.cuda) == before


def test_collectives_that_are_waited_for(tmp_path: Path) -> None:
    loop = Loop()
    with probed(tmp_path):
        dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
        try:
            for batch in loader(8):
                loop.step(batch)
                dist.all_reduce(torch.ones(3))
                dist.all_reduce(torch.ones(3), async_op=True).wait()
                gathered: list[Any] = [None]
                dist.all_gather_object(gathered, {"loss": 1})  # made of others
                dist.barrier()
        finally:
            dist.destroy_process_group()
    names = {number: text for _, number, text in records(tmp_path, "name")}
    calls = records(tmp_path, "collective")
    assert [(one[1], names[one[4]]) for one in calls] == [(1, "all_reduce"), (1, "all_gather_object"), (1, "barrier")]
    first, second = records(tmp_path, "step")
    assert kinds(first) == "bo"
    assert kinds(second) == "cccbo"


@pytest.fixture
def an_accelerator(monkeypatch: pytest.MonkeyPatch) -> None:
    """torch believes in one that can pin memory."""
    monkeypatch.setattr(torch.Tensor, "pin_memory", lambda tensor, *_: tensor.clone())
    # Not all versions have all of these; a DataLoader asks those that its torch has.
    believed = {
        "accelerator.is_available": lambda: True,
        "accelerator.current_accelerator": lambda: SimpleNamespace(type="cpu"),
        "accelerator.current_device_index": lambda: 0,
        "accelerator.set_device_index": lambda _: None,
        "cuda.is_available": lambda: True,
        "cuda.current_device": lambda: 0,
        "cuda.set_device": lambda _: None,
    }
    for path, answer in believed.items():
        module, name = path.split(".")
        if hasattr(getattr(torch, module, None), name):
            monkeypatch.setattr(getattr(torch, module), name, answer)


@pytest.mark.one_in(2)
@pytest.mark.usefixtures("an_accelerator")
@pytest.mark.parametrize("workers", [0, 2])
def test_pinning_is_timed_by_the_batch(tmp_path: Path, workers: int) -> None:
    with probed(tmp_path):
        Loop().train(DataLoader(pairs(24), batch_size=4, num_workers=workers, pin_memory=True))
    gets = records(tmp_path, "get")
    assert [get[2] for get in gets] == list(range(6))
    for _, _, _, start, duration, arrived, unpickle, pin_start, pin, *_ in gets:
        assert pin is not None
        assert pin_start + pin <= start + duration + 1
        if workers:
            assert arrived <= pin_start + 1
            assert unpickle is not None
        else:
            assert start <= pin_start


def test_a_child_that_was_forked_trains_for_itself(tmp_path: Path) -> None:
    loop = Loop()
    with probed(tmp_path) as probe:
        loop.train(loader(12))
        child = os.fork()
        if child == 0:
            try:
                probe.forked()
                loop.train(loader(8))
                probe.detach()
            finally:
                os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        loop.train(loader(4))
    files = sorted((tmp_path / "evidence").iterdir(), key=lambda path: f"-{child}-" in path.name)
    steps = [[line for line in file.read_text().splitlines() if line.startswith('["step"')] for file in files]
    assert [len(lines) for lines in steps] == [4, 2]
    assert steps[1][0].startswith('["step",0,')


def test_data_parallel_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("data_parallel")

    class DataParallel:
        def __init__(self, devices: int) -> None:
            self.device_ids = list(range(devices))

    module.DataParallel = DataParallel  # type: ignore[attr-defined]
    with probed(tmp_path) as probe:
        training_calls.install_data_parallel(probe.patches, probe.training, module)
        module.DataParallel(1)
        module.DataParallel(4)
    assert list(notes(tmp_path)) == ["data-parallel"]
    assert "4 devices" in notes(tmp_path)["data-parallel"]


def test_nothing_is_marked_or_read_while_a_graph_is_captured(tmp_path: Path) -> None:
    torch_ = _cuda_double()
    stream = CudaDevice(torch_)  # type: ignore[arg-type]
    marks = DeviceMarks(stream)
    stream.follow()
    with probed(tmp_path) as probe:
        graph = SimpleNamespace(capture_begin=lambda: None, capture_end=lambda: None)
        owner = type("Graph", (), {"capture_begin": lambda _: None, "capture_end": lambda _: None})
        loop_calls.watch_captures(probe.patches, probe.training, stream, owner)
        graph = owner()
        marks.mark("p")
        marks.close(0)
        graph.capture_begin()
        marks.mark("w")
        assert marks.read() == []
        graph.capture_end()
        assert [number for number, _ in marks.read()] == [0]
    assert torch_.cuda.recorded == 1
    assert set(notes(tmp_path)) == {"capture"}


def test_cuda_is_followed_from_its_first_use(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    initialised = []
    monkeypatch.setattr(torch.cuda, "_lazy_init", lambda: initialised.append(True))
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: bool(initialised))
    before = torch.cuda._lazy_init
    with probed(tmp_path) as probe:
        assert probe.training.state.marks is None
        torch.cuda._lazy_init()
        assert probe.training.state.marks is not None
        assert torch.cuda._lazy_init is before
        assert "to" in vars(torch.Tensor)
        probe.training.state.marks = None  # there is no device to ask
        monkeypatch.undo()
    assert "to" not in vars(torch.Tensor)


def _cuda_double() -> Any:
    """What a CudaDevice asks of torch."""

    class Event:
        def __init__(self, enable_timing: bool) -> None:
            assert enable_timing

        def record(self, stream: Any) -> None:
            cuda.recorded += 1

        def query(self) -> bool:
            return True

        def elapsed_time(self, other: Any) -> float:
            return 1.0

    cuda = SimpleNamespace(stream="default", recorded=0, Event=Event)
    cuda.is_current_stream_capturing, cuda.current_stream = lambda: False, lambda: cuda.stream
    return SimpleNamespace(cuda=cuda)


def test_the_end_frees_nothing_of_the_users(tmp_path: Path) -> None:
    """A DataLoader's iterator in a reference cycle would wait 5 s for its workers there, and does not without us."""
    enabled: list[bool] = []
    with probed(tmp_path) as probe:
        Loop().train(loader())
        probe.last.add(lambda: enabled.append(gc.isenabled()))
    assert enabled == [False]
    assert gc.isenabled()
