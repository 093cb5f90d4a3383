"""What memory is left, read from made-up files of the kernel's."""

from __future__ import annotations

import pytest

from headrace.available_memory import available_bytes

GB = 1 << 30


@pytest.fixture
def files(tmp_path, monkeypatch):
    """Writes the files that are given; returns what is available by them."""
    monkeypatch.delenv("LOCAL_WORLD_SIZE", raising=False)

    def look(meminfo=None, **group):
        if meminfo is not None:
            (tmp_path / "meminfo").write_text(meminfo)
        for name, text in group.items():
            path = tmp_path / name.replace("__", "/").replace("_dot_", ".")
            path.parent.mkdir(exist_ok=True)
            path.write_text(text)
        return available_bytes(tmp_path, tmp_path / "meminfo")

    return look


MACHINE = f"MemTotal: {64 * GB >> 10} kB\nMemAvailable: {32 * GB >> 10} kB\n"


def test_of_a_machine_without_limits(files):
    assert files(MACHINE) == 32 * GB
    assert files(MACHINE, memory_dot_max="max\n") == 32 * GB


def test_of_a_group_less_what_it_uses_beside_the_page_cache(files):
    stat = f"anon 5\ninactive_file {GB}\nactive_file 7\n"
    assert (
        files(MACHINE, memory_dot_max=f"{8 * GB}\n", memory_dot_current=f"{3 * GB}\n", memory_dot_stat=stat) == 6 * GB
    )


def test_of_a_group_of_the_first_version(files):
    group = {
        "memory__memory_dot_limit_in_bytes": f"{8 * GB}",
        "memory__memory_dot_usage_in_bytes": f"{9 * GB}",
        "memory__memory_dot_stat": "cache 1\n",
    }
    assert files(MACHINE, **group) == 0


def test_a_limit_above_what_the_machine_has(files):
    assert files(MACHINE, memory_dot_max=f"{99 * GB}", memory_dot_current="0", memory_dot_stat="") == 32 * GB


def test_ranks_of_a_node_share_it(files, monkeypatch):
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "4")
    assert files(MACHINE) == 8 * GB


def test_nothing_can_be_read(files):
    assert files() is None
