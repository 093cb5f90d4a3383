"""Every test must leave the process as it found it; and photographs for those that want more than one file."""

from __future__ import annotations

import gc
import io
import os
import signal
import stat
import subprocess
import sys
import tarfile
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from multiprocessing import resource_tracker
from multiprocessing.util import get_temp_dir
from pathlib import Path
from shutil import rmtree
from tempfile import mkdtemp
from typing import Any

import pytest
from hypothesis import settings
from hypothesis.internal.conjecture import providers
from leaks import inventory, leaks_of
from PIL import Image
from processes import LimitedProcess, end_processes, started
from whole_files import RunningTests, WholeFiles, garbage_stays

from headrace.tools.demo_dataset import natural_image

# A job that a script starts in the background, or under nohup, ignores these signals, and so would all that it starts.
for signum in (signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGTERM):
    if signal.getsignal(signum) is signal.SIG_IGN:
        signal.signal(signum, signal.default_int_handler if signum == signal.SIGINT else signal.SIG_DFL)

if "PYTEST_XDIST_WORKER" in os.environ:
    # xdist learns of a worker's end, by a timeout for example, from the end of this pipe. No fork may hold it open.
    nowhere = os.open(os.devnull, os.O_RDWR)
    for descriptor in [int(name) for name in os.listdir("/proc/self/fd") if int(name) > 2]:
        with suppress(OSError):  # that of the listing itself, closed by now
            if stat.S_ISFIFO(os.fstat(descriptor).st_mode):
                os.register_at_fork(after_in_child=partial(os.dup2, nowhere, descriptor))

# What a test starts in this process, itself or by `subprocess.run`, has a limit, and ends with the test.
subprocess.Popen = LimitedProcess

# Machines that run this are shared: what is slow once is no fault. The same examples every time, so that a failure is
# the change's.
settings.register_profile("shared", deadline=None, derandomize=True)
settings.register_profile("cut", settings.get_profile("shared"), max_examples=40)
settings.load_profile("shared")
# Hypothesis also draws constants of the modules imported so far, which differ with the tests that ran before.
providers.is_local_module_file = lambda path: False

# Python's own helper process, which lives to the end once anything needs it: there from the start.
resource_tracker.ensure_running()
# Its sockets lie in a folder made once: not in that of the first test that sets another place for temporary files.
get_temp_dir()

PHOTOS = 60
SIZES = ((320, 240), (240, 320), (500, 375), (97, 131), (64, 64))
ENCODINGS = (
    {"subsampling": "4:2:0"},
    {"subsampling": "4:2:2"},
    {"subsampling": "4:4:4"},
    {"subsampling": "4:2:0", "progressive": True},
    {"subsampling": "4:2:0", "optimize": True},
)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--whole-files", action="store_true", help="workers collect a file when they are to run it")


def pytest_configure(config: pytest.Config) -> None:
    """Take fewer examples of each property in `make test`, before modules that want a multiple of them are imported."""
    if "not long" in config.getoption("markexpr"):
        settings.load_profile("cut")
    if config.getoption("whole_files"):
        config.pluginmanager.register(WholeFiles() if "PYTEST_XDIST_WORKER" in os.environ else RunningTests())


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave the first case of every `n` of a function marked `one_in(n)` to `make test`; mark the others `long`."""
    seen: Counter[str] = Counter()
    for item in items:
        mark = item.get_closest_marker("one_in")
        if mark is None:
            continue
        function = item.nodeid.partition("[")[0]
        if seen[function] % mark.args[0]:
            item.add_marker("long")
        seen[function] += 1


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    with garbage_stays():
        return (yield)


@pytest.fixture(scope="module", autouse=True)
def survivors_stay() -> Iterator[None]:
    """Spare later collections what a module's last test leaves alive, such as packages that it imports late."""
    yield
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def nothing_runs_on() -> Iterator[None]:
    """Kill what a test that failed, or that leaks, has left running."""
    before = set(started)
    yield
    end_processes(set(started) - before)


@pytest.fixture(autouse=True)
def cuda_context(request: pytest.FixtureRequest) -> None:
    """Skip a test for CUDA where there is none, else make the context, whose descriptors stay open."""
    if request.node.get_closest_marker("cuda") is None:
        return
    import torch

    if not torch.cuda.is_available():
        pytest.skip("torch sees no CUDA device")
    with torch.cuda.stream(torch.cuda.Stream()):
        torch.ones(1).pin_memory().cuda(non_blocking=True).item()


@pytest.fixture(autouse=True)
def nothing_leaks(request: pytest.FixtureRequest, nothing_runs_on: None, cuda_context: None) -> Iterator[None]:
    """No thread, child process, open file or shared memory outlives a test, unless @pytest.mark.leaks says why."""
    mark = request.node.get_closest_marker("leaks")
    if mark is not None:
        assert mark.kwargs.get("reason"), "expected @pytest.mark.leaks(reason='…')"
        yield
        return
    before = inventory()
    yield
    decoders = sys.modules.get("headrace.loader.decoding.pillow")
    if decoders is not None:
        decoders.end_processes()  # they wait for the next image, and end by themselves
    request.node.funcargs.clear()  # pytest would hold what fixtures gave the test, a mapped index say, until later
    left = leaks_of(before)
    assert not left, "the test leaves behind " + "; ".join(left)


@pytest.fixture(scope="session")
def caches(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("caches")


@pytest.fixture
def own_cache(caches: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Cache folder of this test alone. `tmp_path_factory` reads the names of all folders for each new one."""
    folder = Path(mkdtemp(dir=caches))
    monkeypatch.setenv("HEADRACE_CACHE", str(folder))
    yield folder
    rmtree(folder, ignore_errors=True)


@pytest.fixture
def ray_folder() -> Iterator[Path]:
    """Folder of Ray's sockets, whose paths have 107 bytes at most. Processes that a failure leaves there are killed."""
    folder = mkdtemp(prefix="ray")
    yield Path(folder)
    for environment in Path("/proc").glob("[0-9]*/environ"):
        with suppress(OSError):  # ended meanwhile, or another user's
            if f"RAY_TMPDIR={folder}\0".encode() in environment.read_bytes():
                os.kill(int(environment.parent.name), signal.SIGKILL)
    rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session")
def ray_nodes() -> Iterator[Any]:
    """Ray cluster of two nodes of one core, and a head without cores. Its start takes 8 s, so all tests share it."""
    pytest.importorskip("ray")
    from ray.cluster_utils import Cluster

    memory = {"object_store_memory": 100 << 20}
    found = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False, **memory})
    try:
        for _ in range(2):
            found.add_node(num_cpus=1, **memory)
        yield found
    finally:
        found.shutdown()


@pytest.fixture(scope="session")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Class folders of 60 small JPEGs: sizes, subsamplings, progressive and grey ones, each with each."""
    root = tmp_path_factory.mktemp("photos")
    for number in range(PHOTOS):
        image = Image.fromarray(natural_image(*SIZES[number % len(SIZES)], seed=number))
        path = root / f"class{number % 5}" / f"{number:03d}.jpg"
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(_encode(image, number))
    return root


@pytest.fixture(scope="session")
def photo_tar(photos: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same files, under the same names, in a tar."""
    path = tmp_path_factory.mktemp("tar") / "photos.tar"
    with tarfile.open(path, "w") as tar:
        for file in sorted(photos.rglob("*.jpg")):
            tar.add(file, arcname=str(file.relative_to(photos)))
    return path


def _encode(image: Image.Image, number: int) -> bytes:
    """Every twelfth is grey; the encodings turn more slowly than the sizes, so that each meets each."""
    buffer = io.BytesIO()
    if number % 12 == 11:
        image.convert("L").save(buffer, "JPEG", quality=90)
    else:
        image.save(buffer, "JPEG", quality=90, **ENCODINGS[number // len(SIZES) % len(ENCODINGS)])
    return buffer.getvalue()
