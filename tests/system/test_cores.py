"""How many cores a process may use: affinity, cgroups of both versions, and the ranks that share them."""

from __future__ import annotations

import os

import pytest
from torch.utils.data import Dataset

from headrace.dropins.thread_loader.thread_dataloader import ThreadDataLoader
from headrace.system import available_cores, default_threads

CORES = len(os.sched_getaffinity(0))


@pytest.fixture
def many_cores(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(16)))


@pytest.fixture
def alone(monkeypatch):
    monkeypatch.delenv("LOCAL_WORLD_SIZE", raising=False)


def kernel(root, group, mount, files):
    texts = {"proc/self/cgroup": group, "proc/self/mountinfo": f"30 24 0:26 / {mount}\n"} | files
    for name, text in texts.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


def version_2(root, text, folder=""):
    mount = "/sys/fs/cgroup rw - cgroup2 cgroup2 rw"
    return kernel(root, "0::/job\n", mount, {f"sys/fs/cgroup/{folder}cpu.max": text})


def version_1(root, quota, period):
    folder = "sys/fs/cgroup/cpu"
    files = {f"{folder}/cpu.cfs_quota_us": quota, f"{folder}/cpu.cfs_period_us": period}
    return kernel(root, "4:cpu,cpuacct:/\n", f"/{folder} rw - cgroup cgroup rw,cpu,cpuacct", files)


def test_affinity_bounds_where_there_is_no_cgroup(tmp_path):
    assert available_cores(tmp_path) == CORES


@pytest.mark.parametrize(
    ("text", "cores"),
    [
        ("400000 100000\n", 4),
        ("350000 100000\n", 3),
        ("50000 100000\n", 1),
        ("9900000 100000\n", 16),
        ("max 100000\n", 16),
        ("400000 0\n", 16),
        ("nonsense\n", 16),
        ("", 16),
    ],
)
@pytest.mark.usefixtures("many_cores")
def test_quota_of_version_2(tmp_path, text, cores):
    assert available_cores(version_2(tmp_path, text)) == cores


@pytest.mark.usefixtures("many_cores")
def test_the_tightest_group_on_the_way_up_binds(tmp_path):
    version_2(tmp_path, "800000 100000\n")
    assert available_cores(version_2(tmp_path, "300000 100000\n", "job/")) == 3


@pytest.mark.parametrize(("quota", "cores"), [("200000\n", 2), ("-1\n", 16), ("10000\n", 1)])
@pytest.mark.usefixtures("many_cores")
def test_quota_of_version_1(tmp_path, quota, cores):
    assert available_cores(version_1(tmp_path, quota, "100000\n")) == cores


@pytest.mark.usefixtures("many_cores")
def test_affinity_is_taken_where_the_system_knows_none(tmp_path, monkeypatch):
    monkeypatch.delattr(os, "sched_getaffinity")
    monkeypatch.setattr(os, "cpu_count", lambda: None)
    assert available_cores(tmp_path) == 1


@pytest.mark.usefixtures("alone")
def test_threads_of_a_thread_data_loader_share_the_cores(monkeypatch):
    """Each would start as many again, and the square of the cores would fight for them."""
    monkeypatch.setattr("headrace.system.resources.available_cores", lambda: 12)

    class Asks(Dataset):
        def __len__(self):
            return 6

        def __getitem__(self, index):
            return default_threads()

    for threads, share in ((0, 12), (1, 12), (3, 4), (5, 2), (13, 1)):
        assert set(ThreadDataLoader(Asks(), None, num_workers=threads)) == {share}
    assert default_threads() == 12


@pytest.mark.usefixtures("alone")
def test_threads_default_to_the_cores():
    assert default_threads() == available_cores()


@pytest.mark.parametrize(("ranks", "threads"), [("1", 12), ("4", 3), ("5", 2), ("99", 1), ("0", 12), ("many", 12)])
def test_ranks_of_a_node_share_its_cores(monkeypatch, ranks, threads):
    monkeypatch.setattr("headrace.system.resources.available_cores", lambda: 12)
    monkeypatch.setenv("LOCAL_WORLD_SIZE", ranks)
    assert default_threads() == threads
