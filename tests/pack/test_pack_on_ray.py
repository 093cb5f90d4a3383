"""Packs by Ray on a cluster of two nodes of one core: the bytes of one machine's pack, also without a node."""

from __future__ import annotations

import os
import shutil
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from processes import start_python
from typer.testing import CliRunner

import headrace as hr
from headrace.errors import UsageError
from headrace.pack import PackOptions, pack, pack_on_ray
from headrace.tools.command_line import app

pytestmark = pytest.mark.alone
OPTIONS = PackOptions(max_shard_bytes=200_000)

START = """
    import os, sys, warnings
    from pathlib import Path
    os.environ |= {"RAY_TMPDIR": sys.argv[1], "RAY_USAGE_STATS_ENABLED": "0"}
    import ray
    import headrace as hr
    from headrace.errors import HeadraceError
    from headrace.pack import PackOptions, pack, pack_on_ray

    photos, to = map(Path, sys.argv[2:4])
    options = PackOptions(max_shard_bytes=200_000)
"""
"""Ray leaves threads behind, so each test has its own process."""

EQUAL = """
    (address,) = sys.argv[4:]
    ticks = []
    report = pack_on_ray(hr.open(photos), to, options, address=address, tick=lambda *now: ticks.append(now))
    assert report.written == report.shards == len(ticks) > 5, report
    assert [done for done, _, _ in ticks] == sorted(done for done, _, _ in ticks)
    assert ticks[-1] == (60, 60, report.bytes), ticks
    assert not ray.is_initialized()

    data = hr.open(photos)
    (to / "shard-000002.tar").unlink()
    photos.rename(photos.with_name("away"))
    try:
        pack_on_ray(data, to, options, address=address)
    except HeadraceError as error:
        assert "class0/" in str(error) and "reachable from all nodes" in str(error), error
    else:
        raise AssertionError("a task reads what is not there")
"""

LOST_NODE = """
    from processes import eventually
    from ray.cluster_utils import Cluster
    from slow_dataset import SlowDataset

    node = {"num_cpus": 1, "object_store_memory": 80 << 20}
    cluster = Cluster(initialize_head=True, head_node_args={**node, "include_dashboard": False})
    other = cluster.add_node(**node)

    log, data, ticks = to.with_name("log"), hr.open(photos), []
    raylet = str(other.all_processes["raylet"][0].process.pid)

    def tick(*now):
        ticks.append(now)
        if len(ticks) == 6:
            before = log.stat().st_size
            assert eventually(lambda: raylet in log.read_text()[before:].split()), "the node is idle"
            cluster.remove_node(other, allow_graceful=False)

    report = pack_on_ray(SlowDataset(data.table, log=str(log)), to, options, address=cluster.address, tick=tick)
    cluster.shutdown()
    # Each task reads the first sample first; the plan and its own shard read it once more.
    assert log.read_text().count(f"{data.key(0)} ") > report.shards + 2, "no task was run again"
"""


def bytes_of(folder: Path) -> dict[str, bytes]:
    ends = (".tar", ".json", "columns.headrace")
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.name.endswith(ends)}


def check_pack(photos: Path, folder: Path, ray_folder: Path, script: str, *arguments: str, missing: int) -> None:
    """Check the pack that a script writes against the one that is written here."""
    copy = shutil.copytree(photos, folder / "photos")
    pack(hr.open(photos), folder / "alone", OPTIONS)
    with start_python(START + script, ray_folder, copy, folder / "pack", *arguments, warnings="default") as process:
        out, error = process.communicate()  # longer than other tests: each node starts several processes
    assert process.returncode == 0, out + error
    found, alone = bytes_of(folder / "pack"), bytes_of(folder / "alone")
    assert found == {name: data for name, data in alone.items() if name in found}
    assert len(found) == len(alone) - missing
    assert not [name for name in os.listdir(folder / "pack") if name.endswith(".partial")]


def test_nodes_write_the_bytes_of_one_machine(photos: Path, tmp_path: Path, ray_folder: Path, ray_nodes: Any) -> None:
    check_pack(photos, tmp_path, ray_folder, EQUAL, ray_nodes.address, missing=1)


@pytest.mark.long
def test_a_node_that_is_lost_costs_its_shards_only(photos: Path, tmp_path: Path, ray_folder: Path) -> None:
    pytest.importorskip("ray")
    check_pack(photos, tmp_path, ray_folder, LOST_NODE, missing=0)


def test_a_cluster_that_is_not_there_is_named(photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("ray")
    from ray._private import services

    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path))
    monkeypatch.setattr(services, "find_gcs_addresses", cache(frozenset))  # else it sees `ray_nodes`
    with pytest.raises(UsageError, match="expected a running Ray cluster at address 'auto'"):
        pack_on_ray(hr.open(str(photos)), tmp_path / "pack", OPTIONS)
    done = CliRunner().invoke(app, ["pack", str(photos), str(tmp_path / "pack"), "--ray", "auto", "--shard", "0/2"])
    assert isinstance(done.exception, UsageError)
    assert "--ray without --shard" in str(done.exception)
