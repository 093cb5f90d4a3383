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
from headrace.compat.images.decoding import ImageReader
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


@pytest.mark.parametrize("method", ["fork", "spawn"])
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


@pytest.mark.skipif(not getattr(sys, "_is_gil_enabled", lambda: True)(), reason="this Python has no GIL to release")
@pytest.mark.parametrize("kind", ["path", "bytes"])
def test_the_gil_is_free_while_the_core_works(tmp_path, kind):
    data = encode(photograph(1, 1600, 1200), quality=95)
    path = tmp_path / "large.jpg"
    path.write_bytes(data)
    reader, source = ImageReader(), path if kind == "path" else data
    assert eventually(lambda: runs_beside(lambda: reader(source)))
    assert not any(runs_beside(lambda: sum(range(100_000))) for _ in range(5)), "this would see any work as free"


def test_numpy_images_need_no_torch(tmp_path):
    (tmp_path / "a.png").write_bytes(encode(photograph(1, 20, 10), "PNG"))
    code, out, error = run_python(
        """
        import sys
        from headrace import RandomCrop
        from headrace.compat.images.decoding import decode_image
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
