"""`DevicePrefetcher` on the CPU: order, ends, errors, arguments, what is left behind. By events, without sleeping."""

from __future__ import annotations

import copy
import gc
import inspect
import itertools
import os
import pickle
import signal
import threading
import traceback
import weakref
from typing import Protocol, runtime_checkable

import pytest
import torch
from processes import eventually, in_fork, run_python
from torch.utils.data import DataLoader, Dataset

import headrace as hr
from headrace.device import DevicePrefetcher, prefetcher
from headrace.device.h2d_copy import PlainLane


def numbers(count):
    return [{"x": torch.full((2,), i), "name": str(i)} for i in range(count)]


def values(batches):
    return [int(batch["x"][0]) for batch in batches]


class Images(Dataset):
    def __init__(self, count=8):
        self.count = count

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        return torch.full((3, 4, 4), index, dtype=torch.uint8), index


def test_same_batches_in_the_same_order():
    source = numbers(7)
    got = list(DevicePrefetcher(source, "cpu"))
    assert values(got) == list(range(7))
    assert [batch["name"] for batch in got] == list("0123456")


def test_nothing_is_copied_on_the_cpu():
    source = numbers(3)
    for mine, theirs in zip(DevicePrefetcher(source, "cpu"), source, strict=True):
        assert mine is theirs


def test_moves_to_other_devices():
    batch = next(iter(DevicePrefetcher(numbers(1), "meta")))
    assert batch["x"].device.type == "meta"


def test_works_ahead_by_depth_and_no_further():
    made = []

    def source():
        for i in range(10):
            made.append(i)
            yield {"x": torch.tensor([i])}

    iterator = iter(DevicePrefetcher(source(), "cpu", depth=3))
    assert eventually(lambda: len(made) == 3)
    next(iterator)
    assert eventually(lambda: len(made) == 4)
    assert eventually(lambda: iterator.stats().ready == 3)  # made a moment before it lies ready
    iterator.close()
    assert len(made) == 4


def test_converts_images_and_nothing_else():
    batch = {
        "image": torch.full((2, 3, 4, 4), 255, dtype=torch.uint8),
        "mask": torch.ones(2, 1, 4, 4, dtype=torch.uint8),
        "label": torch.tensor([1, 2]),
        "latent": torch.ones(2, 4, 8, 8),
    }
    got = next(iter(DevicePrefetcher([batch], "cpu", dtype="bfloat16")))
    assert got["image"].dtype == torch.bfloat16
    assert (got["image"] == 1).all()
    assert got["image"].is_contiguous(memory_format=torch.channels_last)
    assert all(got[name] is batch[name] for name in ("mask", "label", "latent"))


def test_normalize_alone_gives_float32():
    batch = torch.zeros(1, 3, 2, 2, dtype=torch.uint8)
    got = next(iter(DevicePrefetcher([batch], "cpu", normalize=hr.IMAGENET)))
    assert got.dtype == torch.float32
    assert got[0, :, 0, 0].tolist() == pytest.approx([-0.485 / 0.229, -0.456 / 0.224, -0.406 / 0.225])


def test_torch_dtypes_and_named_images():
    batch = (torch.full((2, 1, 4, 4), 255, dtype=torch.uint8), torch.full((2, 3, 4, 4), 255, dtype=torch.uint8))
    got = next(iter(DevicePrefetcher([batch], "cpu", dtype=torch.float16, images=[0])))
    assert (got[0].dtype, got[1].dtype) == (torch.float16, torch.uint8)


def test_images_of_floats_change_their_layout_only():
    batch = torch.rand(2, 3, 4, 4)
    got = next(iter(DevicePrefetcher([batch], "cpu", channels_last=True)))
    assert torch.equal(got, batch)
    assert got.is_contiguous(memory_format=torch.channels_last)


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors is in prototype stage")
def test_nested_tensors_pass_through():
    batch = torch.nested.nested_tensor([torch.ones(3, 4, 4), torch.ones(3, 5, 5)])
    assert next(iter(DevicePrefetcher([batch], "cpu"))) is batch


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"depth": 0}, "depth: expected an int of at least 1, got 0"),
        ({"depth": True}, "depth: expected an int of at least 1, got True"),
        ({"dtype": "int8"}, "dtype: expected one of uint8, float32, float16, bfloat16, got int8"),
        ({"dtype": torch.int8}, "dtype: expected one of uint8, float32, float16, bfloat16, got torch.int8"),
        ({"dtype": "uint8", "normalize": hr.IMAGENET}, 'normalize: it gives fractions, got dtype="uint8"'),
        ({"images": "image"}, "images: expected a list of keys, field names or positions, got 'image'; pass ['image']"),
        ({"device": "gpu"}, "device: expected one that torch knows, such as 'cuda' or 'cpu', got 'gpu'"),
    ],
)
def test_arguments_that_do_not_fit(options, words):
    with pytest.raises(hr.HeadraceError) as caught:
        DevicePrefetcher([], **({"device": "cpu"} | options))
    assert words in str(caught.value)


@pytest.mark.parametrize("kind", ["cuda", "xpu"])
def test_a_device_that_is_not_here(kind):
    if getattr(torch, kind).is_available():
        pytest.skip(f"there is a device {kind!r}")
    with pytest.raises(hr.HeadraceError, match=rf"expected a device of this machine, got '{kind}', but torch .*'cpu'"):
        DevicePrefetcher([], kind)


@pytest.mark.parametrize(
    ("batch", "options", "words"),
    [
        (torch.rand(2, 3, 4, 4), {"normalize": hr.IMAGENET}, "got a tensor: float32 [2, 3, 4, 4]; leave bytes"),
        ({"a": [torch.zeros(2)]}, {"dtype": "float32"}, "in the batch, got a.0: float32 [2]"),
        ("text", {"dtype": "float32"}, "in the batch, got no tensor"),
        ({"a": torch.zeros(2)}, {"images": ["image"]}, "expected tensors called 'image' in the batch, got a: float32"),
        ({"a": torch.zeros(2)}, {"images": ["a"]}, "expected 'a' to be uint8 [N, C, H, W], got float32 [2]"),
        (
            {"a": torch.zeros(2, 1, 4, 4, dtype=torch.uint8)},
            {"images": ["a"], "normalize": hr.IMAGENET},
            "with C = 3 for normalize=, got uint8 [2, 1, 4, 4]",
        ),
    ],
)
def test_batches_without_what_was_to_be_converted(batch, options, words):
    with pytest.raises(hr.HeadraceError) as caught:
        list(DevicePrefetcher([batch], "cpu", **options))
    assert words in str(caught.value)


# --- errors ---


def test_an_error_in_the_source_keeps_its_traceback_and_its_place():
    def source():
        yield from numbers(2)
        raise LookupError("the disk is gone")

    iterator = iter(DevicePrefetcher(source(), "cpu"))
    assert values(itertools.islice(iterator, 2)) == [0, 1]
    with pytest.raises(LookupError, match="the disk is gone") as caught:
        next(iterator)
    assert "source" in [frame.name for frame in traceback.extract_tb(caught.value.__traceback__)]
    assert list(iterator) == [], "an iterator that failed is at its end"


@pytest.mark.parametrize("workers", [0, 1])
def test_an_error_in_collate(workers):
    def collate(samples):
        raise ZeroDivisionError("in collate")

    with pytest.raises(ZeroDivisionError, match="in collate"):
        list(DevicePrefetcher(DataLoader(Images(), batch_size=2, collate_fn=collate, num_workers=workers), "cpu"))


def test_an_error_of_the_device(monkeypatch):
    class Broken(PlainLane):
        def send(self, batch):
            if batch["name"] == "1":
                raise RuntimeError("CUDA error: an illegal memory access was encountered")
            return super().send(batch)

    monkeypatch.setattr(prefetcher, "lane_to", Broken)
    iterator = iter(DevicePrefetcher(numbers(4), "cpu"))
    assert next(iterator)["name"] == "0"
    with pytest.raises(RuntimeError, match="illegal memory access"):
        next(iterator)


def test_an_error_does_not_keep_the_batch_alive():
    batch = numbers(1)[0]["x"]
    alive = weakref.ref(batch)

    def source(batch):
        yield {"x": batch}
        raise LookupError

    iterator = iter(DevicePrefetcher(source(batch), "cpu"))
    del batch
    next(iterator)
    with pytest.raises(LookupError):
        next(iterator)
    del iterator
    gc.collect()
    assert alive() is None


@pytest.mark.filterwarnings("ignore:unclosed file:ResourceWarning")  # of torch, which opens some to count descriptors
def test_a_killed_worker():
    """The consumer is told, by DataLoader's own error, and nothing is left behind."""
    loader = DataLoader(Images(1000), batch_size=1, num_workers=1, prefetch_factor=2, worker_init_fn=kill_later)
    with pytest.raises(RuntimeError, match=r"DataLoader worker .* (killed|exited)"):
        for _ in DevicePrefetcher(loader, "cpu"):
            pass


def kill_later(worker):
    """The worker kills itself a moment after it has begun to work."""
    threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGKILL)).start()


# --- leaving ---


def test_an_endless_source_stops_with_its_consumer():
    ended = threading.Event()

    def source():
        try:
            for i in itertools.count():
                yield {"x": torch.tensor([i])}
        finally:
            ended.set()

    for batch in DevicePrefetcher(source(), "cpu"):
        if batch["x"][0] == 5:
            break
    assert ended.wait(20), "the generator's finally did not run"


def test_dropping_an_iterator_ends_its_thread():
    iterator = iter(DevicePrefetcher(itertools.cycle(numbers(2)), "cpu"))
    next(iterator)
    thread = iterator._feed._thread
    del iterator
    gc.collect()
    assert eventually(lambda: not thread.is_alive())


def test_dropping_the_iterator_does_not_wait_for_a_source_that_hangs():
    release = threading.Event()

    def source():
        yield {"x": torch.zeros(1)}
        release.wait()

    iterator = iter(DevicePrefetcher(source(), "cpu"))
    next(iterator)
    del iterator
    gc.collect()
    release.set()  # reached: the thread ends now, which the leak fixture sees


def test_workers_of_a_broken_off_pass_end():
    loader = DataLoader(Images(100), batch_size=1, num_workers=2)
    for _ in DevicePrefetcher(loader, "cpu"):
        break


def test_one_pass_at_a_time():
    prefetcher = DevicePrefetcher(numbers(3), "cpu")
    first = iter(prefetcher)
    next(first)
    assert values(prefetcher) == [0, 1, 2]
    assert list(first) == []


def test_a_pass_after_the_other():
    prefetcher = DevicePrefetcher(numbers(3), "cpu")
    assert values(prefetcher) == values(prefetcher) == [0, 1, 2]


def test_a_fork_is_told_to_begin_anew():
    prefetcher = DevicePrefetcher(numbers(3), "cpu")
    iterator = iter(prefetcher)
    next(iterator)

    def child():
        with pytest.raises(hr.HeadraceError, match="got a fork of it"):
            next(iterator)
        return bytes(values(prefetcher))

    assert in_fork(child)() == bytes([0, 1, 2])
    assert values(iterator) == [1, 2]


@pytest.mark.long
def test_python_ends_while_the_thread_waits():
    code, _, error = run_python(
        """
        import itertools, torch
        from headrace.device import DevicePrefetcher
        iterator = iter(DevicePrefetcher(itertools.repeat(torch.zeros(2)), "cpu"))
        next(iterator)
        """
    )
    assert (code, error) == (0, "")


# --- what the source has ---


class Stateless:
    def __iter__(self):
        return iter(numbers(2))


class WithEpochs(Stateless):
    epoch = None

    def set_epoch(self, epoch):
        self.epoch = epoch

    def __len__(self):
        return 2


def test_has_only_what_its_source_has():
    prefetcher = DevicePrefetcher(Stateless(), "cpu")
    assert not any(hasattr(prefetcher, name) for name in ("state_dict", "load_state_dict", "set_epoch"))
    with pytest.raises(TypeError, match="has no len"):
        len(prefetcher)
    with pytest.raises(AttributeError, match="expected a source that has it, got Stateless"):
        prefetcher.state_dict()


@runtime_checkable
class Stateful(Protocol):
    """As Lightning, torchdata and torch.distributed.checkpoint ask before they save."""

    def state_dict(self): ...
    def load_state_dict(self, state): ...


def test_has_by_its_class_what_its_source_has():
    """A protocol looks at the class, where a method for every source would look as if it were there."""
    stateless, stateful = DevicePrefetcher(Stateless(), "cpu"), DevicePrefetcher(WithState(), "cpu")
    assert not isinstance(stateless, Stateful)
    assert isinstance(stateful, Stateful)
    assert inspect.getattr_static(stateless, "state_dict", None) is None  # so protocols ask from Python 3.12 on
    assert inspect.getattr_static(stateful, "state_dict", None) is not None


@pytest.mark.parametrize("duplicate", [copy.copy, copy.deepcopy, lambda made: pickle.loads(pickle.dumps(made))])
def test_copies_have_it_too(duplicate):
    """Frameworks that spawn processes pickle loaders."""
    for source in (Stateless(), WithState()):
        new = duplicate(DevicePrefetcher(source, "cpu", depth=3))
        assert isinstance(new, DevicePrefetcher)
        assert hasattr(new, "state_dict") == isinstance(source, WithState)
        assert (new.device, new._depth) == (torch.device("cpu"), 3)


class WithState:
    def state_dict(self):
        return {}

    def load_state_dict(self, state):
        pass


def test_hands_on_length_and_epoch():
    source = WithEpochs()
    prefetcher = DevicePrefetcher(source, "cpu")
    prefetcher.set_epoch(3)
    assert (source.epoch, len(prefetcher)) == (3, 2)


def test_draws_from_torchs_generator_as_the_loader_alone_does():
    """DataLoader draws its seed where `iter` is called: here, not in the thread."""
    loader = DataLoader(Images(20), batch_size=4, shuffle=True)
    torch.manual_seed(7)
    alone = [labels.tolist() for _, labels in loader] + [int(torch.randint(1000, ()))]
    torch.manual_seed(7)
    ahead = [labels.tolist() for _, labels in DevicePrefetcher(loader, "cpu")] + [int(torch.randint(1000, ()))]
    assert ahead == alone


# --- statistics ---


def test_counts():
    prefetcher = DevicePrefetcher(numbers(4), "meta")
    assert prefetcher.stats() is None
    list(prefetcher)
    stats = prefetcher.stats()
    assert (stats.batches, stats.ready) == (4, 0)
    assert stats.copies.bytes == 4 * 2 * 8
    assert stats.copies.overlap is None, "nothing runs beside a device without streams"
    assert "4 batches" in str(stats)
    assert stats.to_dict()["copies"]["bytes"] == 64


def test_says_who_waits():
    gate = threading.Semaphore(0)

    def source():
        for batch in numbers(3):
            gate.acquire()
            yield batch

    iterator = iter(DevicePrefetcher(source(), "cpu"))
    threading.Timer(0.05, gate.release, (3,)).start()
    list(iterator)
    stats = iterator.stats()
    assert stats.consumer_wait_s > 0
    assert stats.source_s >= stats.consumer_wait_s * 0.5
