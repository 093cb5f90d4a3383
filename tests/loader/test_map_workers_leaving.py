"""However a pass with map workers ends, no process, descriptor or memory is left, and nothing hangs."""

from __future__ import annotations

import gc
import multiprocessing
import os
import random
import re
import signal
import threading
from multiprocessing.process import BaseProcess
from pathlib import Path

import battery
import map_functions
import pytest
from loader_data import COUNT, load_crops, write_folder
from processes import (
    DEADLINE_S,
    eventually,
    in_fork,
    interrupt_when_ready,
    map_processes,
    nothing_runs,
    run_python,
    start_python,
)

import headrace as hr
from headrace.errors import MapWorkerError
from headrace.loader import position, step_maker
from headrace.loader.batch_memory import SharedFile
from headrace.loader.map_workers import pool as map_workers
from headrace.loader.map_workers.pool import MapWorkers

WORKERS = 2


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write_folder(tmp_path_factory.mktemp("leaving") / "photos")


@pytest.fixture(scope="module")
def photos(folder):
    return hr.open(folder)


@pytest.fixture(params=["shared", "pipes"])
def way(request, monkeypatch):
    """How fields and results travel."""
    if request.param == "pipes":
        monkeypatch.setattr(SharedFile, "make", lambda: None)
    return request.param


def load(data, map=map_functions.no_pid, **options):
    return load_crops(data, **({"view": hr.RandomResizedCrop(40), "map_workers": WORKERS} | options), map=map)


# --- in this process ---


@pytest.mark.one_in(2)
def test_closing_waits_for_the_rows_in_progress(photos, way):
    """Work with effects, such as a file that map writes, is not cut off; rows not yet begun are left."""
    context = multiprocessing.get_context("fork")
    begun, go_on, done, never = context.Semaphore(0), context.Event(), context.Semaphore(0), context.Event()

    def slow(sample, rng):
        begun.release()
        assert go_on.wait(DEADLINE_S)
        never.wait(0.05)  # in which a worker hears that nobody wants more
        done.release()
        return sample

    iterator = iter(load(photos, slow, batch_size=COUNT))
    for _ in range(WORKERS):
        assert begun.acquire(timeout=DEADLINE_S)
    closing = threading.Thread(target=iterator.close)
    closing.start()
    assert eventually(lambda: iterator._pass._map._hung_up)
    go_on.set()
    closing.join(DEADLINE_S)
    assert not closing.is_alive(), "hangs"
    finished = sum(done.acquire(block=False) for _ in range(COUNT))
    assert WORKERS <= finished < COUNT, "each finishes its row, and leaves the rest"


@pytest.mark.one_in(2)
@pytest.mark.long
def test_workers_with_large_results_for_nobody_need_not_be_killed(photos, way, monkeypatch):
    """Their results lie in the pipe, and beyond what it holds they wait for a reader."""
    killed = []
    monkeypatch.setattr(BaseProcess, "kill", killed.append)
    kill = BaseProcess.kill
    monkeypatch.setattr(BaseProcess, "kill", lambda self: (killed.append(self.name), kill(self)))
    batches = iter(load(photos, map_functions.megabyte_of_text, batch_size=8))
    next(batches)
    batches.close()
    assert eventually(lambda: not map_processes())
    assert not killed


@pytest.mark.one_in(2)
def test_a_map_that_hangs_is_killed(photos, way, monkeypatch):
    monkeypatch.setattr(map_workers, "LEAVE_S", 0.05)
    context = multiprocessing.get_context("fork")
    begun, never = context.Event(), context.Event()

    def hangs(sample, rng):
        begun.set()
        never.wait()

    iterator = iter(load(photos, hangs))
    assert begun.wait(DEADLINE_S)
    iterator.close()
    assert nothing_runs()


def test_dropping_does_not_wait_for_a_map_that_hangs(photos, monkeypatch):
    monkeypatch.setattr(position, "DROP_WAIT_S", 0.01)
    monkeypatch.setattr(map_workers, "LEAVE_S", 0.2)
    context = multiprocessing.get_context("fork")
    begun, never = context.Event(), context.Event()

    def hangs(sample, rng):
        begun.set()
        never.wait()

    iterator = iter(load(photos, hangs))
    assert begun.wait(DEADLINE_S)
    del iterator
    assert eventually(nothing_runs)


def test_a_worker_is_answered_while_the_pass_closes(photos, monkeypatch):
    """The thread that hears it may be late: memory and descriptors must still be the pass's own."""
    asked, still_open = threading.Event(), []
    answer = MapWorkers._give_places

    def late(self, *question):
        asked.set()
        assert eventually(lambda: map_processes() == [])
        still_open.append(self.memory.file._descriptor is not None)
        answer(self, *question)

    monkeypatch.setattr(MapWorkers, "_give_places", late)
    iterator = iter(load(photos))
    assert asked.wait(DEADLINE_S)
    iterator.close()
    assert still_open
    assert all(still_open)
    assert nothing_runs()


def test_ctrl_c_while_workers_start_waits_until_they_have(photos, monkeypatch):
    """Which another thread receives, and this one handles: inside of a start it would be lost, or lose the process."""
    start, started = BaseProcess.start, []

    def receive():
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
        signal.raise_signal(signal.SIGINT)

    def interrupted(self):
        sender = threading.Thread(target=receive)
        sender.start()
        sender.join()
        start(self)
        started.append(self.pid)

    monkeypatch.setattr(BaseProcess, "start", interrupted)
    with pytest.raises(KeyboardInterrupt):
        iter(load(photos))
    assert len(started) == 1
    assert eventually(nothing_runs)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_an_engine_that_cannot_be_started(photos, monkeypatch):
    """The processes are there first: they must not outlive it."""

    def refuse(*args, **options):
        raise MemoryError("no room for threads")

    monkeypatch.setattr(step_maker._core, "Engine", refuse)
    with pytest.raises(MemoryError, match="no room for threads"):
        iter(load(photos))
    assert eventually(nothing_runs)


def test_the_second_thread_cannot_be_started(photos, monkeypatch):
    """The first, which waits for the workers, must not outlive it."""
    start, started = threading.Thread.start, []

    def refuse(self):
        if started:
            raise RuntimeError("can't start new thread")
        started.append(self)
        start(self)

    monkeypatch.setattr(threading.Thread, "start", refuse)
    with pytest.raises(RuntimeError, match="can't start new thread"):
        iter(load(photos))
    monkeypatch.undo()
    assert eventually(nothing_runs)


# --- a fork ---


def runs(pid):
    """Whether a process lives; one that nobody has waited for does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.long
def test_a_fork_keeps_the_parents_batches(photos):
    """As it was at the fork, whatever the parent and its workers do from then on."""
    read, write = os.pipe()
    iterator = iter(load(photos))
    batch = next(iterator)
    expected = batch["brighter"].tobytes()
    kept = batch["brighter"]
    del batch

    def work():
        os.read(read, 1)
        return bytes([kept.tobytes() == expected])

    child = in_fork(work)
    kept = None
    assert sum(1 for _ in iterator) == COUNT / 4 - 1
    os.write(write, b".")
    assert child() == b"\x01"
    os.close(read), os.close(write)


# --- other processes ---

SCRIPT = """
import multiprocessing, os, sys, threading
import headrace as hr

def doubled(sample, rng):
    return sample | {"large": sample["image"] * 2, "rng": rng.random()}

def loader(map=doubled, **options):
    given = {"view": hr.Resize((40, 40)), "batch_size": 4, "threads": 2, "output": "numpy", "map_workers": 2}
    return hr.Loader(sys.argv[1], **(given | options), map=map)

def pids():
    return [child.pid for child in multiprocessing.active_children()]
"""


@pytest.mark.one_in(8)
@pytest.mark.parametrize(
    "body",
    [
        "iterator = iter(loader()); next(iterator)",
        pytest.param(
            "keep = loader(); keep.iterator = iter(keep); batch = next(keep.iterator)", marks=pytest.mark.long
        ),
        pytest.param("for batch in loader(): sys.exit(0)", marks=pytest.mark.long),
        pytest.param("iterator = iter(loader())", marks=pytest.mark.long),
        "import multiprocessing.util; iterator = iter(loader(lambda sample, rng: threading.Event().wait(0.1)))",
    ],
    ids=["in mid-epoch", "in a cycle", "sys.exit in the loop", "before the first batch", "while map waits"],
)
def test_the_interpreter_exits(folder, body):
    assert run_python(SCRIPT + body, folder) == (0, "", "")


@pytest.mark.long
def test_a_fork_exits_as_its_parent_does(folder):
    """Through the interpreter's own end, where multiprocessing ends what it takes for the fork's children."""
    body = """
iterator = iter(loader(batch_size=1))
next(iterator)
child = os.fork()
if child:
    assert os.waitpid(child, 0)[1] == 0
    print(sum(1 for _ in iterator))
"""
    code, out, error = run_python(SCRIPT + body, folder, warnings="ignore::DeprecationWarning")
    assert (code, out, error) == (0, f"{COUNT - 1}\n", "")


@pytest.mark.long
def test_ctrl_c_in_the_users_code(folder):
    body = """
for batch in loader():
    print("ready", flush=True)
    while True:
        threading.Event().wait(0.05)
"""
    code, _, error = interrupt_when_ready(SCRIPT + body, folder)
    assert code == -signal.SIGINT
    assert error.rstrip().endswith("KeyboardInterrupt")
    assert "Process headrace-map" not in error, "a worker saw it too"


@pytest.mark.long
def test_ctrl_c_at_the_terminal_reaches_the_whole_group(folder):
    """And ends the parent alone, which ends its workers; the consumer is in `next`, its workers in map."""
    body = """
import signal
os.setpgrp()

def slow(sample, rng):
    print("ready", flush=True)
    threading.Event().wait(0.5)
    return sample

class Interrupt(threading.Thread):
    def run(self):
        os.read(read, 1)
        os.killpg(0, signal.SIGINT)

read, write = os.pipe()

def first(sample, rng):
    os.write(write, b".")
    threading.Event().wait(0.5)
    return sample

keep = loader(first)
Interrupt(daemon=True).start()
try:
    next(iter(keep))
except KeyboardInterrupt:
    print("interrupted", keep.state_dict()["samples"])
    raise
"""
    code, out, error = run_python(SCRIPT + body, folder)
    assert (code, out) == (-signal.SIGINT, "interrupted 0\n"), error
    assert error.rstrip().endswith("KeyboardInterrupt")
    assert "Process headrace-map" not in error, "a worker saw it too"


def test_a_fork_that_lives_on_does_not_hide_its_parents_end(folder):
    """It would, if it kept the descriptors through which workers hear of it."""
    body = """
iterator = iter(loader())
next(iterator)
workers = pids()
child = os.fork()
if child:
    print(child, *workers, flush=True)
threading.Event().wait()
"""
    process = start_python(SCRIPT + body, folder, warnings="ignore::DeprecationWarning")
    child, *workers = map(int, process.stdout.readline().split())
    process.kill()
    process.wait()
    try:
        assert eventually(lambda: not any(runs(pid) for pid in workers)), "orphans"
        assert runs(child)
    finally:
        os.kill(child, signal.SIGKILL)
        process.communicate()


def kill_parent(folder, moment, method):
    """Kills a training process once its workers have begun so many samples, and looks at what becomes of them."""
    body = f"""
from map_functions import told

if __name__ == "__main__":
    training = loader(told, multiprocessing_context={method!r})
    while True:
        iterator = iter(training)
        print(*pids(), flush=True)
        for batch in iterator:
            pass
"""
    process = start_python(SCRIPT + body, folder)
    said = ""
    while said.count(".") < moment:
        character = process.stdout.read(1)
        assert character, process.communicate()
        said += character
    process.kill()
    process.communicate()
    workers = [int(word) for word in said.replace(".", " ").split()]
    assert len(workers) >= WORKERS
    assert eventually(lambda: not any(runs(pid) for pid in workers)), "orphans"


def moments(count, seed):
    return random.Random(seed).choices(range(1, 3 * COUNT), k=count)


@pytest.mark.parametrize("moment", moments(2, seed=1))
@pytest.mark.long
def test_a_killed_parent_leaves_no_worker(folder, moment):
    kill_parent(folder, moment, "fork")


@pytest.mark.long
@pytest.mark.timeout(600)
def test_a_parent_killed_at_50_moments(folder, photos):
    expected = battery.kept(load(photos))
    for moment in moments(50, seed=2):
        kill_parent(folder, moment, "fork")
        battery.assert_equal(battery.kept(load(photos)), expected, "the next run")


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("method", ["forkserver", "spawn"])
def test_a_parent_killed_under_other_start_methods(folder, method):
    for moment in moments(5, seed=3):
        kill_parent(folder, moment, method)


@pytest.mark.long
def test_a_parent_that_is_killed_while_map_hangs(folder):
    """Its workers give the call of map a moment, and end."""
    body = """
from headrace.loader.map_workers import worker as inbox
inbox.LEAVE_S = 0.05

def hangs(sample, rng):
    os.write(1, b".")
    threading.Event().wait()

iterator = iter(loader(hangs))
print(*pids(), flush=True)
next(iterator)
"""
    process = start_python(SCRIPT + body, folder)
    said = ""
    while said.count(".") < WORKERS or "\n" not in said:
        said += process.stdout.read(1)
    process.kill()
    process.communicate()
    workers = [int(word) for word in said.replace(".", " ").split()]
    assert len(workers) == WORKERS
    assert eventually(lambda: not any(runs(pid) for pid in workers)), "orphans"


def until_error(iterator):
    """The batches of a pass, and the error that ends it."""
    got = []
    try:
        for batch in iterator:
            got += battery.kept([batch])
    except MapWorkerError as error:
        return got, error
    return got, None


def kill_worker(photos, expected, moment, victim):
    """Kills one worker once all of them have begun so many samples."""
    read, write = os.pipe()

    def told(sample, rng):
        os.write(write, b".")
        return map_functions.no_pid(sample, rng)

    iterator = iter(load(photos, told))
    pids = [process.pid for process in iterator._pass._map.processes]
    killed = threading.Thread(target=lambda: (_read(read, moment), os.kill(pids[victim], signal.SIGKILL)))
    killed.start()
    got, error = until_error(iterator)
    killed.join()
    os.close(read), os.close(write)
    assert error is not None or len(got) == len(expected), "the pass ends early, and nobody says so"
    if error is not None:
        says = (
            rf"map worker {victim} \(process {pids[victim]}\) was killed by SIGKILL (at sample '|between two samples)"
        )
        assert re.match(says, str(error))
    battery.assert_equal(got, expected[: len(got)], "what came before")
    assert nothing_runs()
    battery.assert_equal(battery.kept(load(photos)), expected, "the next run")


def _read(descriptor, count):
    while count > 0:
        count -= len(os.read(descriptor, count))


def worker_kills(count, seed):
    draw = random.Random(seed)
    return [(draw.randrange(1, COUNT + 1), draw.randrange(WORKERS)) for _ in range(count)]


@pytest.mark.parametrize(("moment", "victim"), worker_kills(2, seed=1))
@pytest.mark.one_in(4)
def test_a_killed_worker(photos, way, moment, victim):
    kill_worker(photos, battery.kept(load(photos, map_workers=0)), moment, victim)


@pytest.mark.long
@pytest.mark.timeout(600)
def test_workers_killed_at_50_moments(photos, way):
    expected = battery.kept(load(photos, map_workers=0))
    for moment, victim in worker_kills(50, seed=2):
        kill_worker(photos, expected, moment, victim)


@pytest.mark.long
def test_epochs_leave_nothing(photos):
    """The leak fixture looks at this process after each test; this looks at the kernel's memory, too."""
    loader = load(photos)

    def shared_kb():
        lines = Path("/proc/self/status").read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("RssShmem"))

    list(loader)
    before = shared_kb()
    for _ in range(5):
        for batch in loader:
            del batch
    gc.collect()
    assert shared_kb() <= before
