"""The lane to an accelerator, with doubles for streams and events and "meta" for the device: what it asks of torch.

What only a device can show is in test_device_cuda.py.
"""

from __future__ import annotations

import contextlib

import pytest
import torch

from headrace.device import AnyImages, Conversion, DevicePrefetcher, h2d_copy, image_conversion, prefetcher
from headrace.device.h2d_copy import AcceleratorLane
from headrace.device.nested import dense_parts

DEVICE = torch.device("meta")


class Stream:
    made = 0

    def __init__(self, device=None):
        type(self).made += 1

    def wait_event(self, event):
        pass


class Event:
    def __init__(self, enable_timing):
        pass

    def record(self, stream):
        pass

    def query(self):
        return False


@pytest.fixture
def lane_to(monkeypatch):
    monkeypatch.setattr(h2d_copy, "_idle", {})
    monkeypatch.setattr(Stream, "made", 0)
    monkeypatch.setattr(h2d_copy, "accelerator_of", lambda device: torch.cuda)
    monkeypatch.setattr(torch.cuda, "Stream", Stream)
    monkeypatch.setattr(torch.cuda, "Event", Event)
    monkeypatch.setattr(torch.cuda, "stream", lambda stream: contextlib.nullcontext())
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: Stream())
    monkeypatch.setattr(AcceleratorLane, "_stage", lambda self, path, tensor: tensor)
    monkeypatch.setattr(prefetcher, "lane_to", AcceleratorLane)
    return AcceleratorLane


@pytest.fixture
def recorded(monkeypatch):
    """The tensors that torch was told of; as torch has it, dense ones only."""
    tensors = []

    def record_stream(tensor, stream):
        assert tensor.layout is torch.strided
        assert not tensor.is_nested
        tensors.append(tensor)

    monkeypatch.setattr(torch.Tensor, "record_stream", record_stream)
    return tensors


@pytest.mark.parametrize(
    ("make", "parts"),
    [
        (lambda dense: dense, 1),
        (lambda dense: dense.to_sparse(), 2),
        (lambda dense: dense.to_sparse_csr(), 3),
        (lambda dense: dense.to_sparse_csc(), 3),
    ],
    ids=["dense", "coo", "csr", "csc"],
)
@pytest.mark.filterwarnings("ignore:Sparse CS. tensor support is in beta state")
def test_sparse_tensors_are_handed_over_by_their_parts(lane_to, recorded, make, parts):
    tensor = make(torch.eye(4))
    lane = lane_to(DEVICE, AnyImages(Conversion(None, None, True)))
    got = lane.receive(lane.send([tensor]))
    assert got[0].layout is tensor.layout
    assert len(recorded) == parts
    assert lane.statistics().bytes == sum(part.nbytes for part in dense_parts(tensor)) >= 4 * 4


def test_passes_share_a_stream(lane_to, monkeypatch):
    """torch's allocator keeps what was freed for the stream it was allocated on."""
    monkeypatch.setattr(torch.Tensor, "record_stream", lambda tensor, stream: None)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: object.__new__(Stream))
    for _ in range(3):  # a new prefetcher for each epoch
        loader = DevicePrefetcher([torch.zeros(2)] * 4, "meta")
        assert len(list(loader)) == 4
        for _ in loader:
            break
        loader.close()
    assert Stream.made == 1


def test_passes_side_by_side_have_a_stream_each(lane_to, monkeypatch):
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: object.__new__(Stream))
    first, second = (iter(DevicePrefetcher(iter(lambda: torch.zeros(2), None), "meta")) for _ in range(2))
    assert Stream.made == 2
    first.close()
    second.close()


def test_triton_that_cannot_compile_leaves_the_work_to_torch(monkeypatch):
    """As in a container without a C compiler."""

    class Kernel:
        launches = 0

        def __getitem__(self, grid):
            Kernel.launches += 1
            raise RuntimeError("Failed to find C compiler")

    monkeypatch.setattr(image_conversion, "_unusable", False)
    monkeypatch.setattr(image_conversion, "load_kernel", lambda: Kernel())
    monkeypatch.setattr(torch.cuda, "device_of", lambda tensor: contextlib.nullcontext())

    class OnDevice(torch.Tensor):
        device = torch.device("cuda", 0)

    image = torch.zeros(2, 3, 4, 4, dtype=torch.uint8).as_subclass(OnDevice)
    arguments = image, torch.empty(image.shape), (0.0,) * 3, (255.0,) * 3
    with pytest.warns(RuntimeWarning, match="Triton is installed but cannot be used .*Failed to find C compiler"):
        assert not image_conversion.convert_fused(*arguments)
    assert not image_conversion.convert_fused(*arguments), "no second warning"
    assert Kernel.launches == 1
