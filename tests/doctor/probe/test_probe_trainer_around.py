"""What happens around the steps: copies to a device, collectives, ranges, pinning, forks, engines; without a device."""

from __future__ import annotations

import gc
import os
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch
import torch.distributed as dist
from probing import kinds, notes, probed, records
from torch.utils.data import DataLoader
from training_loops import Loop, loader, pairs

from headrace.doctor.probe.hooks import loop_calls, training_calls
from headrace.doctor.probe.training.device_marks import CudaDevice, DeviceMarks


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
    assert [(call[1], names[call[4]]) for call in calls] == [
        (1, "all_reduce"),
        (1, "all_gather_object"),
        (1, "barrier"),
    ]
    assert calls[0][5] == 12
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

    cuda = SimpleNamespace(
        stream="default",
        recorded=0,
        Event=Event,
        is_current_stream_capturing=lambda: False,
        current_stream=lambda: cuda.stream,
    )
    return SimpleNamespace(cuda=cuda)


def test_the_end_frees_nothing_of_the_users(tmp_path: Path) -> None:
    """A DataLoader's iterator in a reference cycle would wait 5 s for its workers there, and does not without us."""
    enabled: list[bool] = []
    with probed(tmp_path) as probe:
        Loop().train(loader())
        probe.last.add(lambda: enabled.append(gc.isenabled()))
    assert enabled == [False]
    assert gc.isenabled()
