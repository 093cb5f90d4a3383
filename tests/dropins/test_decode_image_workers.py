"""`ImageReader` beside other threads and in other processes: DataLoader's workers, forks, the GIL."""

from __future__ import annotations

import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from loader_data import encode, encoded, photograph
from processes import eventually, in_fork, run_python
from torch.utils.data import DataLoader, Dataset

import headrace as hr
from headrace.dropins.image_reader import ImageReader, read_images
from headrace.dropins.random_sources import sample_random
from headrace.dropins.thread_loader.thread_dataloader import ThreadDataLoader
from headrace.errors import DecodeError

CROP = hr.RandomResizedCrop((24, 30), flip=0.5)
WORKERS = 2


class Photos(Dataset):
    """What a user writes: paths, and one line that decodes."""

    def __init__(self, paths: list[str], reader: ImageReader) -> None:
        self.paths, self.reader = paths, reader

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: int) -> torch.Tensor:
        return self.reader(self.paths[index])


@pytest.fixture(scope="module")
def paths(tmp_path_factory):
    root = tmp_path_factory.mktemp("workers")
    found = []
    for number in range(16):
        path = root / str(number)
        path.write_bytes(encoded(number)[1])
        found.append(str(path))
    return found


def epoch(dataset, method, seed):
    torch.manual_seed(seed)
    return torch.cat(list(DataLoader(dataset, 4, num_workers=WORKERS, multiprocessing_context=method)))


@pytest.mark.parametrize("method", ["fork", pytest.param("spawn", marks=pytest.mark.long)])
def test_workers_draw_as_torch_seeds_them(paths, method):
    """Each batch is what one thread makes of it, seeded as that worker was: base seed plus the worker's number."""
    dataset = Photos(paths, ImageReader(view=CROP))
    dataset.reader(paths[0])  # the parent's decoder has been used before workers start
    got = epoch(dataset, method, seed=1)
    torch.manual_seed(1)
    base = torch.empty((), dtype=torch.int64).random_().item()
    expected = {}
    for worker in range(WORKERS):
        torch.manual_seed(base + worker)
        for batch in range(worker, 4, WORKERS):
            expected[batch] = torch.stack([dataset[index] for index in range(4 * batch, 4 * batch + 4)])
    assert torch.equal(got, torch.cat([expected[batch] for batch in range(4)]))


def test_another_seed_gives_other_views(paths):
    dataset = Photos(paths, ImageReader(view=CROP))
    first, again, other = (epoch(dataset, "fork", seed) for seed in (1, 1, 2))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_numpy_workers_draw_as_torch_seeds_them(paths):
    """DataLoader seeds numpy as well; nothing is shared between workers."""
    dataset = Photos(paths[:1] * 16, ImageReader(view=CROP, output="numpy"))
    first, again = (epoch(dataset, "fork", seed=1) for _ in range(2))
    assert torch.equal(first, again)
    assert len({image.numpy().tobytes() for image in first}) == 16


class Whole(Photos):
    """Decodes a batch at once, by threads of its own."""

    def __getitems__(self, indices: list[int]) -> list[torch.Tensor]:
        return list(read_images([self.paths[index] for index in indices], view=CROP, threads=2))


class InCollate(Photos):
    """Hands over paths, for `decoded` to decode."""

    def __getitem__(self, index: int) -> str:
        return self.paths[index]


def decoded(paths: list[str]) -> torch.Tensor:
    return read_images(paths, view=CROP, threads=1)


THREADED = {
    "torch": lambda paths: {"dataset": Photos(paths, ImageReader(view=CROP))},
    "numpy": lambda paths: {"dataset": Photos(paths, ImageReader(view=CROP, output="numpy"))},
    "whole batches": lambda paths: {"dataset": Whole(paths, ImageReader())},
    "in collate_fn": lambda paths: {"dataset": InCollate(paths, ImageReader()), "collate_fn": decoded},
}


@pytest.mark.parametrize("make", THREADED.values(), ids=THREADED)
def test_threads_draw_from_the_sample_and_touch_no_global_source(paths, make):
    """The same views at any number of threads, and after a resume; the loader's own warning would be an error."""

    def load(threads):
        torch.manual_seed(1)
        return ThreadDataLoader(batch_size=4, num_workers=threads, shuffle=True, **make(paths))

    expected = list(load(0))
    for threads in (1, 4):
        assert all(torch.equal(a, b) for a, b in zip(load(threads), expected, strict=True))
    loader = load(4)
    first = next(iter(loader))
    resumed = load(2)
    resumed.load_state_dict(loader.state_dict())
    assert all(torch.equal(a, b) for a, b in zip([first, *resumed], expected, strict=True))


def test_threads_draw_other_views_for_other_samples_epochs_and_seeds(paths):
    """One image, over and over: what differs is its view."""
    dataset = Photos(paths[:1] * 6, ImageReader(view=CROP))
    runs = []
    for seed in (1, 2):
        torch.manual_seed(seed)
        loader = ThreadDataLoader(dataset, 3, num_workers=2)
        runs += [image for _ in range(2) for batch in loader for image in batch]
    assert len({image.numpy().tobytes() for image in runs}) == len(runs) == 24


def test_draws_of_one_sample_go_on_and_leave_its_other_sources_alone(paths):
    class Twice(Photos):
        def __getitem__(self, index):
            views = [self.reader(self.paths[0]) for _ in range(self.calls)]
            return views[0], views[-1], sample_random().numpy.random()

    def sample(calls):
        dataset = Twice(paths[:1], ImageReader(view=CROP))
        dataset.calls = calls
        torch.manual_seed(1)
        return next(iter(ThreadDataLoader(dataset, None, num_workers=1)))

    once, twice = sample(1), sample(2)
    assert torch.equal(once[0], twice[0])
    assert not torch.equal(twice[0], twice[1])
    assert once[2] == twice[2]


def test_in_the_calling_thread_the_global_source_is_drawn_from_again_afterwards(paths):
    reader = ImageReader(view=CROP)
    torch.manual_seed(1)
    expected = reader(paths[0])
    list(ThreadDataLoader(Photos(paths, reader), 4, num_workers=0))
    torch.manual_seed(1)
    assert torch.equal(reader(paths[0]), expected)


def test_a_workers_error_keeps_its_class(paths, tmp_path):
    (tmp_path / "bad.jpg").write_bytes(b"no image")
    dataset = Photos([*paths[:3], str(tmp_path / "bad.jpg")], ImageReader(view=CROP))
    batches = iter(DataLoader(dataset, 4, num_workers=1))
    with pytest.raises(DecodeError, match=r"bad\.jpg"):
        next(batches)
    assert list(batches) == []  # which ends the worker


def test_threads_share_a_reader(paths):
    reader = ImageReader(view=CROP)
    expected = [reader(path, rng=number) for number, path in enumerate(paths)]
    with ThreadPoolExecutor(4) as pool:
        for _ in range(5):
            got = pool.map(lambda number: reader(paths[number], rng=number), range(len(paths)))
            assert all(torch.equal(a, b) for a, b in zip(got, expected, strict=True))


@pytest.mark.long
def test_a_fork_beside_threads_that_decode(paths):
    """No lock of theirs is taken in the child."""
    reader = ImageReader(view=CROP, output="numpy")
    expected = [reader(path, rng=1) for path in paths]
    stop, busy = threading.Event(), threading.Barrier(4, timeout=20)

    def decode() -> None:
        reader(paths[0], rng=1)
        busy.wait()
        while not stop.is_set():
            for path in paths:
                reader(path, rng=1)

    threads = [threading.Thread(target=decode) for _ in range(3)]
    for thread in threads:
        thread.start()
    busy.wait()
    try:
        for _ in range(5):
            said = in_fork(lambda: b"".join(reader(path, rng=1).tobytes() for path in paths))()
            assert said == b"".join(image.tobytes() for image in expected)
    finally:
        stop.set()
        for thread in threads:
            thread.join()


def runs_beside(work) -> bool:
    """Whether another thread gets to run while `work` does.

    With a switch interval beyond the test's life, only if the thread that holds the GIL lets go of it by itself.
    """
    working, seen, start = False, [], threading.Lock()
    start.acquire()

    def look() -> None:
        with start:  # wakes once `start` is free, and goes on once the GIL is
            seen.append(working)

    watcher = threading.Thread(target=look)
    watcher.start()
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1000)
    try:
        working = True
        start.release()
        work()
        working = False
    finally:
        sys.setswitchinterval(interval)
        watcher.join()
    return seen[0]


@pytest.mark.one_in(2)
@pytest.mark.skipif(not getattr(sys, "_is_gil_enabled", lambda: True)(), reason="this Python has no GIL to release")
@pytest.mark.parametrize("kind", ["path", "bytes"])
@pytest.mark.long
def test_the_gil_is_free_while_the_core_works(tmp_path, kind):
    data = encode(photograph(1, 1600, 1200), quality=95)
    path = tmp_path / "large.jpg"
    path.write_bytes(data)
    reader, source = ImageReader(), path if kind == "path" else data
    assert eventually(lambda: runs_beside(lambda: reader(source)))
    assert not any(runs_beside(lambda: sum(range(100_000))) for _ in range(5)), "this would see any work as free"


@pytest.mark.long
def test_numpy_images_need_no_torch(tmp_path):
    (tmp_path / "a.png").write_bytes(encode(photograph(1, 20, 10), "PNG"))
    code, out, error = run_python(
        """
        import sys
        from headrace import RandomCrop
        from headrace.dropins.image_reader import decode_image
        image = decode_image(sys.argv[1], view=RandomCrop(8), output="numpy")
        print(image.shape, "torch" in sys.modules)
        """,
        tmp_path / "a.png",
    )
    assert (code, out.strip()) == (0, "(8, 8, 3) False"), error


def test_what_pillow_decodes_is_right_in_threads_too():
    reader, data = ImageReader(view=CROP), encode(photograph(1, 64, 48), "WEBP")
    expected = reader(data, rng=1)
    with ThreadPoolExecutor(4) as pool:
        assert all(torch.equal(got, expected) for got in pool.map(lambda _: reader(data, rng=1), range(40)))
