"""`map_workers`: what map may return and raise, where its values lie, and what is wrong with arguments."""

from __future__ import annotations

import faulthandler
import itertools
import multiprocessing
import os
import random
import signal
import threading
import traceback

import battery
import cv2
import map_functions
import numpy as np
import pytest
import torch
from bad_loads import fails, says
from loader_data import COUNT, write_folder, write_tar
from processes import DEADLINE_S, in_fork, run_python

import headrace as hr
from headrace.errors import MapWorkerError, UsageError
from headrace.loader import batch_memory
from headrace.loader.batch_memory import SharedFile

VIEW = hr.Resize((48, 40))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write_folder(tmp_path_factory.mktemp("map") / "photos")


@pytest.fixture(scope="module")
def photos(folder):
    return hr.open(folder)


@pytest.fixture(params=["shared", "pipes"])
def way(request, monkeypatch):
    """How fields and results travel."""
    if request.param == "pipes":
        monkeypatch.setattr(SharedFile, "make", lambda: None)
    return request.param


def load(data, map, **options):
    fields = {"image": hr.Image(), "label": hr.Label()}
    given = {"view": VIEW, "batch_size": 10, "output": "numpy", "threads": 2, "map_workers": 2}
    return hr.Loader(data, **({"fields": fields} | given | options), map=map)


# --- processes ---


@pytest.mark.one_in(2)
def test_map_runs_in_processes_of_its_own(photos, way):
    batches = battery.kept(load(photos, map_functions.jitter))
    pids = {pid for batch in batches for pid in batch["pid"]}
    assert os.getpid() not in pids
    assert 1 <= len(pids) <= 2


def test_a_slow_sample_holds_up_one_worker_alone(photos):
    """While one worker is at the first sample, the other takes all the rest of what may be under way."""
    context = multiprocessing.get_context("fork")
    others, go_on = context.Semaphore(0), context.Event()

    def slow_first(sample, rng):
        if first := bool(sample["first"]):
            for _ in range(2 * 10 - 1):
                assert others.acquire(timeout=DEADLINE_S), "the others wait for the slow one"
        else:
            others.release()
        return {"waited": first}

    firsts = photos.select(range(20))
    loader = load(firsts, slow_first_of(firsts, slow_first), prefetch=2)
    assert [batch["waited"].sum() for batch in loader] == [1, 0]
    go_on.set()


def slow_first_of(dataset, function):
    """Calls `function` with a sample that says whether it is the dataset's first."""
    first = next(iter(load(dataset, None, map_workers=0, batch_size=1)))["image"][0]

    def with_first(sample, rng):
        return function(sample | {"first": np.array_equal(sample["image"], first)}, rng)

    return with_first


@pytest.mark.long
def test_workers_know_what_map_knows_when_a_pass_begins(photos):
    strength = {"value": 1}
    loader = load(photos, lambda sample, rng: {"strength": strength["value"]})
    for value in (1, 2):
        strength["value"] = value
        assert {int(each) for batch in loader for each in batch["strength"]} == {value}


def test_global_random_sources_of_workers_differ(photos):
    """Forked processes would else draw the same numbers."""

    def draw(sample, rng):
        drawn = random.random(), float(np.random.random()), float(torch.rand(()))
        return {"drawn": np.array(drawn), "pid": os.getpid()}

    batches = battery.kept(load(photos, draw, batch_size=1, map_workers=4, output="torch"))
    drawn = np.concatenate([batch["drawn"] for batch in batches])
    for source in drawn.T:
        assert len(set(source)) == COUNT


def test_workers_use_one_core_each(photos):
    loader = load(photos, lambda sample, rng: {"threads": torch.get_num_threads()}, output="torch")
    assert {int(count) for batch in loader for count in batch["threads"]} == {1}


@pytest.mark.long
def test_workers_begin_beside_threads_of_opencv(photos):
    """A fork does not have them, and OpenCV would wait for them without an end."""
    for _ in range(5):
        cv2.GaussianBlur(np.zeros((2000, 2000, 3), np.uint8), (31, 31), 5)
    loader = load(photos, lambda sample, rng: {"threads": cv2.getNumThreads()}, output="torch")
    assert {int(count) for batch in loader for count in batch["threads"]} == {1}


def test_a_context_as_torch_takes_it(photos):
    context = multiprocessing.get_context("fork")
    assert len(list(load(photos, map_functions.unchanged, multiprocessing_context=context))) == COUNT / 10


@pytest.mark.long
def test_the_default_start_method_is_the_programs():
    source = """
import multiprocessing
from headrace.loader.map_workers.processes import start_method
print(start_method(None), multiprocessing.get_start_method(allow_none=True))
multiprocessing.set_start_method("spawn")
print(start_method(None), start_method("fork"), start_method(multiprocessing.get_context("forkserver")))
"""
    default = multiprocessing.get_all_start_methods()[0]
    assert run_python(source) == (0, f"{default} None\nspawn fork forkserver\n", "")


# --- values ---


def test_what_is_given_back_untouched_stays_where_it_is(photos):
    """Neither copied nor turned: the channels-last memory that the core has written."""
    batch = next(iter(load(photos, map_functions.unchanged, output="torch")))
    assert batch["image"].is_contiguous(memory_format=torch.channels_last)
    without = next(iter(hr.Loader(photos, view=VIEW, batch_size=10)))
    assert torch.equal(batch["image"], without["image"])


@pytest.mark.parametrize("output", ["numpy", "torch"])
@pytest.mark.one_in(4)
def test_what_map_writes_into_its_sample_is_seen(photos, way, output):
    def paint(sample, rng):
        sample["image"][:, 0] = 7
        sample["label"] = sample["label"] + 1
        return sample

    batches = [battery.kept(load(photos, paint, map_workers=workers, output=output)) for workers in (0, 2)]
    battery.assert_equal(batches[1], batches[0], "written in place")
    assert (batches[1][0]["image"][:, :, 0] == 7).all()


@pytest.mark.one_in(2)
def test_small_tensors_that_map_writes_to_are_seen(photos, way):
    def count(sample, rng):
        sample["label"].add_(5)
        return sample

    batches = battery.kept(load(photos, count, output="torch"))
    assert set(np.concatenate([batch["label"] for batch in batches])) == {5, 6, 7, 8}


@pytest.mark.one_in(2)
def test_undecoded_bytes_and_lists_come_to_map(tmp_path, way):
    data = hr.open(write_tar(tmp_path / "a.tar"))
    fields = {"text": hr.Raw(), "label": hr.Label()}
    batches = list(load(data, lambda sample, rng: {"said": sample["text"].decode().upper()}, fields=fields, view=None))
    assert [text for batch in batches for text in batch["said"]] == [f"NUMBER {number}" for number in range(COUNT)]


@pytest.mark.one_in(2)
def test_fields_that_come_and_go_with_the_label(photos, way):
    """A layout that was known for one batch may not fit the next."""

    def by_class(sample, rng):
        return {"made": np.full((40 + 10 * int(sample["label"]), 50), 1.5, np.float32)}

    loader = load(photos, by_class)
    assert [batch["made"].shape for batch in loader] == [(10, 40 + 10 * label, 50) for label in range(4)]


@pytest.mark.one_in(2)
def test_rows_of_one_number_in_a_batch_of_a_page(photos, way):
    """Tensors of no dimension are written to shared memory as any other, once there are enough of them."""
    many = photos.select(np.arange(600) % COUNT)

    def number(sample, rng):
        return {"number": torch.tensor(rng.random(), dtype=torch.float64)}

    options = {"batch_size": 600, "output": "torch", "fields": {"label": hr.Label()}, "view": None}
    by_threads, by_workers = (battery.kept(load(many, number, **options, map_workers=workers)) for workers in (0, 2))
    battery.assert_equal(by_workers, by_threads, "numbers")


@pytest.mark.one_in(2)
def test_tensors_of_a_subclass_become_plain_ones(photos, way):
    batch = next(iter(load(photos, as_picture, output="torch")))
    assert type(batch["image"]) is torch.Tensor
    expected = next(iter(load(photos, as_picture, output="torch", map_workers=0)))
    assert torch.equal(batch["image"], expected["image"])


class Picture(torch.Tensor):
    """As torchvision's tv_tensors: operations give plain tensors."""

    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        with torch._C.DisableTorchFunctionSubclass():
            return function(*args, **(kwargs or {}))


def as_picture(sample, rng):
    return {"image": (sample["image"] + 1).as_subclass(Picture)}


@pytest.mark.one_in(6)
@pytest.mark.parametrize(
    "kind", ["sparse", *(pytest.param(one, marks=pytest.mark.long) for one in ("gradient", "bfloat16")), "conjugate"]
)
def test_odd_tensors(photos, way, kind):
    def make(sample, rng):
        base = sample["image"].float()
        made = {
            "sparse": lambda: base.to_sparse(),
            "gradient": lambda: base.clone().requires_grad_(),
            "bfloat16": lambda: base.bfloat16(),
            "conjugate": lambda: torch.complex(base, base).conj(),
        }[kind]()
        return {"odd": made}

    got, expected = (next(iter(load(photos, make, output="torch", map_workers=workers)))["odd"] for workers in (2, 0))
    assert (got.dtype, got.layout, got.shape) == (expected.dtype, expected.layout, expected.shape)
    assert torch.equal(
        got.to_dense() if kind == "sparse" else got, expected.to_dense() if kind == "sparse" else expected
    )


@pytest.mark.long
def test_a_batch_is_the_consumers_own(photos):
    """Batches that are held stay as they are, whatever comes after, and after the loader."""
    loader = load(photos, map_functions.no_pid, batch_size=4)
    held = [batch for _ in range(2) for batch in loader]
    loader.set_epoch(0)
    expected = [batch for _ in range(2) for batch in battery.kept(load(photos, map_functions.no_pid, batch_size=4))]
    del loader
    battery.assert_equal(battery.kept(held[:10]), expected[:10], "held batches")


def test_memory_that_map_keeps_is_not_used_again(photos):
    """A map may remember samples, as copy-paste augmentation does: what it sees of them must not change."""
    seen = []

    def remembers(sample, rng):
        seen.append((sample["image"], sample["image"].copy()))
        if len(seen) > 12:
            seen.pop(0)
        return {"same": all(np.array_equal(kept, copy) for kept, copy in seen), "large": sample["image"] * 2}

    loader = load(photos, remembers, map_workers=1, batch_size=2, prefetch=2)
    assert all(batch["same"].all() for batch in loader)


def test_a_consumer_that_keeps_every_batch_is_told_once(photos):
    loader = load(photos, lambda sample, rng: {"large": sample["image"] * 2.0}, batch_size=1, prefetch=2)
    with pytest.warns(UserWarning, match=r"batches of [\d,]+ bytes each are alive.*clone") as caught:
        held = list(loader)
    assert len(caught) == 1
    assert len(held) == COUNT


def test_labels_that_are_kept_hold_no_shared_memory(photos):
    """Whoever collects an epoch's labels keeps a few bytes of each batch, and none of its pixels."""
    loader = load(photos, lambda sample, rng: sample | {"large": sample["image"] * 2}, batch_size=4, output="torch")
    labels = [(batch["label"], batch.clear())[0] for batch in loader]
    assert loader._pass._map.memory.held() == 0
    assert torch.cat(labels).tolist() == [number * 4 // COUNT for number in range(COUNT)]


def test_blocks_beyond_what_a_worker_keeps_mapped(photos, monkeypatch):
    monkeypatch.setattr(batch_memory, "MAPPED_BLOCKS", 2)
    expected = battery.kept(load(photos, map_functions.no_pid, map_workers=0, batch_size=3))
    battery.assert_equal(battery.kept(load(photos, map_functions.no_pid, batch_size=3)), expected, "few mapped")


# --- errors ---


@pytest.mark.parametrize(
    ("map", "texts"),
    [
        (lambda sample, rng: None, ["map: expected a dict of fields for every sample", "got 'NoneType'"]),
        (lambda sample, rng: sample if rng.random() < 0.5 else {}, ["map: expected a dict"]),
        (
            lambda sample, rng: {"image": np.zeros((3, int(rng.integers(40, 90)), 40), np.uint8)},
            ["map: expected one shape for field 'image'", "(3, ", "return the same shape"],
        ),
    ],
    ids=["None", "other fields", "other shapes"],
)
@pytest.mark.one_in(6)
def test_nonsense_is_told_in_the_same_words_as_by_threads(photos, way, map, texts):
    by_threads = fails(UsageError, load(photos, map, map_workers=0, batch_size=COUNT), *texts)
    assert str(fails(UsageError, load(photos, map, batch_size=COUNT), *texts)) == str(by_threads)


@pytest.mark.parametrize("workers", [0, 1, 3])
@pytest.mark.one_in(3)
def test_an_exception_keeps_its_traceback_and_gains_the_sample(photos, way, workers):
    """That of the first row which fails, however many workers there are."""
    error = fails(KeyError, load(photos, map_functions.fails_on_bees, map_workers=workers, batch_size=COUNT), "no bees")
    told = "".join(traceback.format_exception(error))
    assert "fails_on_bees" in told
    assert 'raise KeyError("no bees")' in told
    assert error.__notes__[0].startswith("in map=, sample 'bee/0010.")
    assert error.__notes__[0].endswith("epoch 0, position 10")
    if workers:
        first, *rest = error.__notes__[1].splitlines()
        assert first == "In the map worker:"
        assert rest[0].startswith("Traceback")
        assert "map_functions.py" in rest[1], "the user's own code comes first"


@pytest.mark.one_in(2)
def test_an_exception_that_cannot_be_pickled_comes_as_its_base(photos, way):
    error = fails(ValueError, load(photos, map_functions.fails_oddly), "OddError: trouble at home")
    assert type(error) is ValueError
    assert "map_functions.OddError: trouble at home" in error.__notes__[1]


@pytest.mark.one_in(2)
def test_exceptions_that_are_no_exceptions(photos, way):
    def leaves(sample, rng):
        raise SystemExit("enough")

    fails(SystemExit, load(photos, leaves), "enough")


@pytest.mark.one_in(2)
def test_stop_iteration_does_not_end_the_epoch_in_silence(photos, way):
    error = fails(RuntimeError, load(photos, lambda sample, rng: next(iter(()))), "StopIteration raised in map=")
    assert "sample 'ant/0000." in error.__notes__[0]


@pytest.mark.one_in(2)
def test_batches_before_the_failure_are_delivered(photos, way):
    iterator = iter(load(photos, map_functions.fails_on_bees, batch_size=5, prefetch=4))
    assert [len(next(iterator)["label"]) for _ in range(2)] == [5, 5]
    with pytest.raises(KeyError):
        next(iterator)
    with pytest.raises(StopIteration):
        next(iterator)


@pytest.mark.one_in(2)
def test_a_failure_while_the_feed_waits_for_the_consumer(photos, way):
    """The consumer may take its time before it hears of it; nothing hangs."""
    iterator = iter(load(photos, map_functions.fails_on_bees, batch_size=10, prefetch=1))
    assert len(next(iterator)["label"]) == 10
    with pytest.raises(KeyError):
        next(iterator)


@pytest.mark.one_in(2)
def test_values_that_cannot_be_pickled(photos, way):
    def locked(sample, rng):
        return {"label": sample["label"], "lock": [threading.Lock()] if sample["label"] == 2 else None}

    error = fails(
        UsageError,
        load(photos, locked),
        "map: expected values that can be pickled",
        "got 'list' in field 'lock'",
        "map_workers=0",
    )
    assert "sample 'cat/002" in error.__notes__[0]


class Hollow:
    """Pickles to something that cannot be made again."""

    def __reduce__(self):
        return int, ("no number",)


@pytest.mark.one_in(2)
def test_values_that_cannot_be_made_again(photos, way):
    loader = load(photos, lambda sample, rng: {"hollow": Hollow()})
    fails(UsageError, loader, "expected values that can be pickled and made again", "ValueError: invalid literal")


def crash():
    faulthandler.disable()  # pytest's would print all of this process's threads
    os.kill(os.getpid(), signal.SIGSEGV)


@pytest.mark.parametrize(
    ("end", "texts"),
    [
        (
            lambda: os.kill(os.getpid(), signal.SIGKILL),
            ["was killed by SIGKILL", "memory runs out", "fewer map_workers"],
        ),
        (lambda: os.kill(os.getpid(), signal.SIGTERM), ["killed by SIGTERM", "Something asked it to end"]),
        (lambda: crash(), ["was killed by SIGSEGV", "Native code", "map_workers=0"]),
        (lambda: os._exit(3), ["ended with exit code 3", "Something that map calls ended the process"]),
    ],
    ids=["killed", "asked to end", "crashed", "exits"],
)
@pytest.mark.one_in(9)
def test_a_worker_that_ends(photos, way, end, texts):
    """Its error names the very sample that it was at."""

    def ends(sample, rng):
        if sample["label"] == 1:
            end()
        return sample

    at = [f"sample 'bee/{number:04}." for number in range(10, 20)]
    iterator = iter(load(photos, ends, batch_size=10))
    assert len(next(iterator)["label"]) == 10
    with pytest.raises(MapWorkerError) as caught:
        next(iterator)
    says(caught, "map worker ", "(process ", "epoch 0, position 1", *texts)
    assert any(text in str(caught.value) for text in at)
    assert len(list(load(photos, map_functions.unchanged))) == COUNT / 10, "the next pass is as if nothing had been"


def test_a_handler_of_the_parents_is_none_of_a_workers(photos):
    """One that saves the training's state and exits, say, when the job is told to end."""
    before = signal.signal(signal.SIGTERM, lambda number, frame: None)
    try:
        loader = load(photos, lambda sample, rng: os.kill(os.getpid(), signal.SIGTERM))
        fails(MapWorkerError, loader, "was killed by SIGTERM", "Something asked it to end")
    finally:
        signal.signal(signal.SIGTERM, before)


@pytest.mark.one_in(2)
def test_an_idle_worker_that_is_killed(photos, way):
    loader = load(photos, map_functions.unchanged, batch_size=10, prefetch=1)
    iterator = iter(loader)
    next(iterator)
    os.kill(loader._pass._map.processes[0].pid, signal.SIGKILL)
    with pytest.raises(MapWorkerError, match=r"was killed by SIGKILL (at sample|between two samples)"):
        list(iterator)


@pytest.mark.parametrize("method", ["spawn", "forkserver"])
@pytest.mark.long
def test_a_map_that_cannot_be_sent_to_a_process(folder, method):
    source = f"""
import sys, headrace as hr
if __name__ == "__main__":
    loader = hr.Loader({str(folder)!r}, view=hr.Resize((8, 8)), batch_size=4, output="numpy", threads=1,
        map=lambda sample, rng: sample, map_workers=2, multiprocessing_context={method!r})
    try:
        list(loader)
    except hr.HeadraceError as error:
        print(type(error).__name__, error)
"""
    code, out, error = run_python(source)
    assert (code, error) == (0, "")
    assert out.startswith("UsageError map: expected a function that can be pickled, since map workers start by '")
    assert f"{method!r}, got <function <lambda>" in out
    assert "at the top level of a module, or pass multiprocessing_context='fork'" in out


@pytest.mark.long
def test_a_script_without_a_guard(folder, tmp_path):
    """The process that imports it anew fails where the script starts its own; the error says what is missing."""
    script = tmp_path / "train.py"
    script.write_text(
        f"""
import headrace as hr
def same(sample, rng):
    return sample
loader = hr.Loader({str(folder)!r}, view=hr.Resize((8, 8)), batch_size=4, output="numpy", threads=1, map=same,
    map_workers=1, multiprocessing_context="spawn")
for batch in loader:
    pass
"""
    )
    code, _, error = run_python(f"import runpy; runpy.run_path({str(script)!r}, run_name='__main__')")
    assert code == 1
    last = error.strip().splitlines()[-1]
    assert last.startswith("headrace.errors.MapWorkerError: map worker 0 (process ")
    assert "ended with exit code 1 between two samples. What it printed says why." in last
    assert "if __name__ == '__main__':" in last


def test_processes_that_the_system_refuses(photos, monkeypatch):
    started = itertools.count()

    def refuse(self):
        if next(started) == 1:
            raise BlockingIOError(11, "Resource temporarily unavailable")
        return start(self)

    process = multiprocessing.get_context("fork").Process
    start = process.start
    monkeypatch.setattr(process, "start", refuse)
    with pytest.raises(MapWorkerError) as caught:
        iter(load(photos, map_functions.unchanged, map_workers=3, multiprocessing_context="fork"))
    says(caught, "expected to start 3 processes, got 1", "Resource temporarily unavailable", "use fewer")


def test_shared_memory_that_runs_out(photos):
    """Its size in the process that asks is limited (RLIMIT_FSIZE); an epoch before that fits."""

    def work():
        import resource

        loader = load(photos, map_functions.unchanged)
        assert len(list(loader)) == COUNT / 10
        resource.setrlimit(resource.RLIMIT_FSIZE, (30_000, 30_000))
        try:
            list(loader)
        except hr.HeadraceError as error:
            return f"{type(error).__name__}: {error}".encode()
        return b"nothing was raised"

    said = in_fork(work)().decode()
    assert said.startswith("SharedMemoryError: no memory to share with map workers: ")
    assert "File too large" in said
    assert "ulimit -f" in said


# --- arguments ---


@pytest.mark.parametrize(
    ("options", "texts"),
    [
        ({"map_workers": -1}, ["map_workers: expected an int of at least 0, got -1"]),
        ({"map_workers": True}, ["map_workers: expected an int of at least 0, got True"]),
        ({"map": None}, ["map_workers: expected map= with it", "map_workers=2"]),
        (
            {"map_workers": 0, "multiprocessing_context": "fork"},
            ["multiprocessing_context: expected map_workers= of at least 1 with it, got 'fork'"],
        ),
        (
            {"multiprocessing_context": "thread"},
            ["multiprocessing_context: expected 'fork', 'spawn', 'forkserver', a context or None, got 'thread'"],
        ),
        ({"multiprocessing_context": 3}, ["a context or None, got 3"]),
    ],
    ids=lambda value: ", ".join(value) if isinstance(value, dict) else "",
)
def test_wrong_arguments(photos, options, texts):
    with pytest.raises(UsageError) as caught:
        load(photos, **({"map": map_functions.unchanged} | options))
    says(caught, *texts)


@pytest.mark.parametrize("made", ["there", "before"])
def test_a_process_that_may_not_start_others(photos, made):
    context = multiprocessing.get_context("fork")
    queue = context.SimpleQueue()
    loader = load(photos, map_functions.unchanged)

    def work():
        try:
            list(loader if made == "before" else load(photos, map_functions.unchanged))
        except UsageError as error:
            queue.put(str(error))

    process = context.Process(target=work, daemon=True)
    process.start()
    assert "a daemonic one (such as a DataLoader's worker)" in queue.get()
    process.join(DEADLINE_S)
    process.close()
    queue.close()


# --- statistics ---


@pytest.mark.one_in(2)
@pytest.mark.parametrize("workers", [0, 2])
def test_the_time_in_map_is_counted(photos, way, workers):
    loader = load(photos, map_functions.no_pid, map_workers=workers)
    list(loader)
    stats = loader.stats()
    assert stats.map_workers == workers
    assert stats.stages["map"].items == COUNT
    assert 0 < stats.stages["map"].busy_s < stats.wall_s * 2
    assert stats.stages["map"].bytes == COUNT * 3 * 48 * 40
    assert "  map  " in str(stats)


PY314 = """
import logging, multiprocessing, sys, threading, types, headrace as hr

methods = multiprocessing.get_all_start_methods
multiprocessing.get_all_start_methods = lambda: sorted(methods(), key="forkserver".__ne__)  # as Python 3.14 has it
scale = 2

def loader(size=4, **options):
    def halved(sample, rng):
        logging.getLogger("headrace").warning("mapped")
        return {{"image": sample["image"] // scale}}
    return hr.Loader({photos!r}, view=hr.Resize((8, 8)), batch_size=size, output="numpy", map_workers=1, map=halved,
        prefetch=2, **options)

def samples(batches):
    return sum(len(batch["image"]) for batch in batches)

logging.getLogger("headrace").addHandler(logging.NullHandler())
try:
{then}
except hr.errors.UsageError as error:
    print("multiprocessing_context='fork'" in str(error), "top level of a module" in str(error))
"""

STARTS = {
    "alone": ("print(samples(loader()))", f"{COUNT}"),
    "within an epoch of another": ("for _ in zip(loader(), range(2)): print(samples(loader()))", f"{COUNT}\n{COUNT}"),
    "within one that calls the user's batch_map": (
        "for _ in loader(multiprocessing_context='fork', batch_map=lambda batch, rng: batch): print(samples(loader()))",
        "True True",
    ),
    "beside a thread of the user's": (
        "threading.Thread(target=threading.Event().wait, daemon=True).start(); print(samples(loader()))",
        "True True",
    ),
    "after CUDA has started": (
        "sys.modules['torch'] = types.SimpleNamespace(cuda=types.SimpleNamespace(is_initialized=lambda: True)); "
        "print(samples(loader()))",
        "True True",
    ),
    "where the program chose forkserver": (
        "multiprocessing.set_start_method('forkserver'); print(samples(loader()))",
        "True True",
    ),
}


@pytest.mark.parametrize("name", STARTS)
def test_a_closure_under_a_default_of_forkserver_runs_by_fork_where_that_is_safe(folder, name):
    then, expected = STARTS[name]
    status, out, error = run_python(PY314.format(photos=str(folder), then=f"    {then}"))
    assert (status, out.strip()) == (0, expected), error


HOSTILE = """
    class Slow(logging.Handler):
        def emit(self, record):
            threading.Event().wait(0.0005)  # without the GIL, and with the lock of the handler
    def log():
        while True:
            logging.getLogger("headrace").warning("read again")
    logging.getLogger("headrace").addHandler(Slow())
    threading.Thread(target=log, name="headrace-share", daemon=True).start()
    outer, forks = loader(size=1, shuffle=True), 0
    while forks < {forks}:
        for _ in outer:
            assert samples(loader()) == {count}
            forks += 1
            if forks == {forks}:
                break
    print(forks)
"""


@pytest.mark.parametrize("forks", [8, pytest.param(200, marks=pytest.mark.long)])
def test_forks_within_a_running_epoch_never_wait_for_a_lock_of_its_threads(folder, forks):
    code = PY314.format(photos=str(folder), then=HOSTILE.format(forks=forks, count=COUNT))
    status, out, error = run_python(code)
    assert (status, out.strip()) == (0, f"{forks}"), error
