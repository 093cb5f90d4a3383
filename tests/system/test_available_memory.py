"""What memory is left, read from made-up files of the kernel's."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.system.resources import ProcessMemory, available_bytes, available_to_rank, memory

GB = 10**9
MEMINFO = "MemTotal:       16000000 kB\nMemFree:         1000000 kB\nMemAvailable:    8000000 kB\n"
MOUNTS = """30 24 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw
31 24 0:27 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory
"""


def kernel(root: Path, texts: dict[str, str]) -> Path:
    given = {"proc/meminfo": MEMINFO, "proc/self/cgroup": "0::/job/step\n", "proc/self/mountinfo": MOUNTS, **texts}
    for name, text in given.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


def test_memory_of_a_machine_without_limits(tmp_path):
    assert memory(kernel(tmp_path, {})) == ProcessMemory(8_000_000 << 10, 16_000_000 << 10)


def test_the_tightest_group_on_the_way_up_binds(tmp_path):
    group = "sys/fs/cgroup/job"
    texts = {
        f"{group}/step/memory.max": "max\n",
        f"{group}/step/memory.current": "5000\n",
        f"{group}/memory.max": f"{4 * GB}\n",
        f"{group}/memory.current": f"{3 * GB}\n",
        f"{group}/memory.stat": f"anon 1\ninactive_file {GB // 2}\n",
    }
    assert memory(kernel(tmp_path, texts)) == ProcessMemory(GB + GB // 2, 4 * GB)


def test_version_1_of_control_groups(tmp_path):
    group = "sys/fs/cgroup/memory/job"
    texts = {
        "proc/self/cgroup": "5:memory:/job\n4:cpu:/other\n",
        f"{group}/memory.limit_in_bytes": f"{4 * GB}\n",
        f"{group}/memory.usage_in_bytes": f"{3 * GB}\n",
        "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n",
        "sys/fs/cgroup/memory/memory.usage_in_bytes": "7\n",
    }
    assert memory(kernel(tmp_path, texts)) == ProcessMemory(GB, 4 * GB)


def test_ranks_of_a_node_share_it(tmp_path, monkeypatch):
    root = kernel(tmp_path, {})
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "4")
    assert available_to_rank(root) == 2_000_000 << 10
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "none")
    assert available_to_rank(root) == available_bytes(root) == 8_000_000 << 10


def test_nothing_can_be_read(tmp_path):
    assert available_bytes(tmp_path) is None
    assert available_to_rank(tmp_path) is None


def test_a_kernel_that_does_not_say_what_is_available_tells_nothing(tmp_path):
    """Not an error in the consumer's thread, where a tuned pass asks."""
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/meminfo").write_text("MemTotal: 100 kB\nMemFree: 50 kB\n")
    assert available_bytes(tmp_path) is None
    with pytest.raises(OSError, match="expected MemAvailable and MemTotal, got no MemAvailable"):
        memory(tmp_path)
