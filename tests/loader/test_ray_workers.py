"""`workers="ray"`: the local loader's batches from Ray actors, whatever happens to them."""

from __future__ import annotations

import gc
import re
import sys
import threading
from concurrent.futures import wait

import battery
import numpy as np
import pytest
from battery_recipes import SOURCES, Recipe, make_of
from loader_data import write_folder
from processes import eventually, interrupt_when_ready, own_threads

import headrace as hr
from headrace.errors import DecodeError, TooManyBadSamplesError, UsageError

ray = pytest.importorskip("ray", reason="ray is not installed")
from headrace.loader.ray_workers import ray_runner  # noqa: E402
from headrace.loader.ray_workers.made_step import MadeStep, NotedBadSamples, unpack  # noqa: E402

pytestmark = [
    pytest.mark.alone,
    pytest.mark.leaks(reason="Ray's own processes, threads and sockets belong to the module's connection"),
]
FIELDS = {"image": hr.Image(), "label": hr.Label(), "key": hr.Key()}


@pytest.fixture(scope="module")
def cluster(ray_nodes):
    ray.init(address=ray_nodes.address, log_to_driver=False, logging_level="error")
    yield ray_nodes
    ray.shutdown()


@pytest.fixture(autouse=True)
def only_actors(monkeypatch):
    """Wait for the actors to start, so that a short epoch shows the actors' batches."""
    has_started = ray_runner.RayRunner._has_started

    def patient(runner, actor):
        wait([actor.versions])
        return has_started(runner, actor)

    monkeypatch.setattr(ray_runner.RayRunner, "_has_started", patient)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write_folder(tmp_path_factory.mktemp("ray") / "photos")


def of_this_module(sample, rng):
    return sample


def load(folder, **options):
    given = {"view": hr.RandomResizedCrop(40, flip=0.5), "batch_size": 4, "shuffle": True, "seed": 2}
    return hr.Loader(folder, FIELDS, **(given | options))


def living():
    return [actor for actor in ray._private.state.actors().values() if actor["State"] != "DEAD"]


def check_nothing_is_left():
    """No thread, actor or object of a pass remains."""
    eventually(lambda: not left())
    assert left() == []


def left():
    gc.collect()
    counts = ray._private.worker.global_worker.core_worker.get_all_reference_counts()
    return [*(name for name in own_threads() if name.startswith("headrace")), *living(), *counts.items()]


def test_batches_are_those_of_the_local_loader(cluster, folder):
    expected = battery.epochs(load(folder), 2)
    loader = load(folder, workers="ray")
    assert (loader._feed.cluster.actors, loader.prefetch) == (2, 5)
    for number in range(2):
        battery.assert_equal(battery.kept(loader), expected[10 * number : 10 * (number + 1)], f"epoch {number}")
        stats = loader.stats()
        assert (stats.batches, stats.samples, stats.ray.actors, stats.ray.steps) == (10, 40, 2, 10)
        assert (stats.ray.lost, stats.ray.redone, stats.ray.local_steps) == (0, 0, 0)
        assert 10 * 4 * 3 * 40 * 40 < stats.ray.bytes < 1.5 * 10 * 4 * 3 * 40 * 40
        assert stats.stages["decode"].items == 40
        assert stats.ray.cpu_s > 0 < stats.ray.wait_s
        assert "2 Ray actors, 0.0 MB a batch" in str(stats)
        assert loader.counts()["ray_bytes"] >= stats.ray.bytes
    batch = next(iter(loader))
    batch["image"][0] = 7  # as writable as a local batch
    assert batch["image"].stride() == (4800, 1, 120, 3)
    del loader, batch
    check_nothing_is_left()


def test_actors_stay_for_the_next_pass_of_any_loader_and_end_with_a_broken_one(cluster, folder):
    class Counting:
        count = 0

        def __call__(self, sample, rng):
            return sample | {"count": self.count}

    one, other = (load(folder, workers=hr.RayWorkers(actors=1), map=state) for state in (Counting(), Counting()))
    list(one)
    (actor,) = living()
    one._feed.recipe.map.count = 7  # as a local pass, the next one takes the state of this moment
    assert [batch["count"].tolist() for batch in one] == [[7] * 4] * 10
    assert [batch["count"].tolist() for batch in other] == [[0] * 4] * 10
    assert [each["ActorID"] for each in living()] == [actor["ActorID"]]
    for _ in one:
        break
    check_nothing_is_left()
    pass_ = iter(one)
    next(pass_)
    pass_.close()
    check_nothing_is_left()


CASES = [
    Recipe("tar", "images and captions", "RandAugment", "shuffled", "threads", "no cache"),
    Recipe("zip", "images and crops", "colours", "buckets", "threads", "no cache"),
    Recipe("jsonl, folder", "images and masks", "geometry", "windowed", "threads", "no cache"),
    Recipe("parquet", "floats and vectors", "AugMix", "wrap", "threads", "no cache"),
    Recipe("memory", "images", "timm", "budget", "threads", "no cache"),
]


@pytest.mark.long
@pytest.mark.parametrize("recipe", CASES, ids=str)
def test_fields_views_and_plans_are_equal(cluster, tmp_path, recipe):
    make = make_of(recipe, SOURCES[recipe.source](tmp_path), tmp_path)
    options = {"map": lambda sample, rng: sample | {"jitter": rng.random(2)}} if recipe.plan == "shuffled" else {}
    loader = make(workers="ray", **options)
    battery.assert_equal(battery.epochs(loader), battery.epochs(make(**options)), "epochs")
    assert loader.stats().ray.local_steps == 0


@pytest.mark.long
def test_mixing_functions_and_types_are_equal(cluster, folder):
    fields = {
        "image": hr.Image(dtype="bfloat16", normalize=hr.IMAGENET),
        "label": hr.Label(),
    }
    noise = lambda batch, rng: batch | {"noise": rng.random(3), "nested": {"odd": [np.arange(6).reshape(2, 3).T]}}  # noqa: E731

    def make(**options):
        given = {"view": hr.RandomResizedCrop(24), "batch_size": 4, "shuffle": True, "batch": hr.MixUp(alpha=0.4)}
        return hr.Loader(folder, fields, **given, batch_map=noise, **options)

    for mine, theirs in zip(make(workers="ray"), make(), strict=True):
        assert mine["image"].dtype == theirs["image"].dtype
        assert mine["image"].stride() == theirs["image"].stride()
        assert mine["image"].equal(theirs["image"])
        assert mine["label"].equal(theirs["label"])
        assert np.array_equal(mine["noise"], theirs["noise"])
        assert np.array_equal(mine["nested"]["odd"][0], theirs["nested"]["odd"][0])
        assert mine["noise"].flags.writeable
        assert mine["nested"]["odd"][0].flags.writeable


@pytest.mark.long
def test_two_ranks_resume_in_the_middle(cluster, folder):
    for rank in range(2):
        options = {"rank": rank, "world_size": 2, "batch_size": 3}
        expected = battery.epochs(load(folder, **options), 2)
        loader = load(folder, workers="ray", **options)
        pass_ = iter(loader)
        got = [*battery.kept(next(pass_) for _ in range(3))]
        state = loader.state_dict()
        pass_.close()
        resumed = load(folder, workers="ray", **options)
        resumed.load_state_dict(state)
        battery.assert_equal(got + battery.epochs(resumed, 2), expected, f"rank {rank}")
        local = load(folder, **options)
        local.load_state_dict(state)
        battery.assert_equal(got + battery.epochs(local, 2), expected, f"rank {rank}, locally")
        assert local.state_dict() == resumed.state_dict()
        del loader, resumed, pass_


@pytest.mark.long
def test_steps_of_a_killed_actor_are_made_by_the_other(cluster, folder):
    expected = battery.epochs(load(folder), 1)
    loader = load(folder, workers="ray")
    got = []
    for step, batch in enumerate(loader):
        got += battery.kept([batch])
        if step == 2:
            ray.kill(loader._pass._actors[0].handle)
    battery.assert_equal(got, expected, "after a kill")
    found = loader.stats().ray
    assert (found.lost, found.actors, found.local_steps) == (1, 1, 0)
    assert found.redone <= 5


@pytest.mark.long
def test_steps_of_a_lost_node_are_made_here(cluster, folder, caplog):
    node = cluster.add_node(num_cpus=2, resources={"doomed": 1}, object_store_memory=100 << 20)
    expected = battery.epochs(load(folder), 1)
    loader = load(folder, workers=hr.RayWorkers(actors=1, cpus_per_actor=2))
    got = []
    for step, batch in enumerate(loader):
        got += battery.kept([batch])
        if step == 2:
            actor = loader._pass._actors[0].handle._actor_id.hex()
            cluster.remove_node(node, allow_graceful=False)
            assert eventually(lambda: actor not in {each["ActorID"] for each in living()})  # noqa: B023
    battery.assert_equal(got, expected, "after the node's end")
    found = loader.stats().ray
    assert (found.lost, found.actors) == (1, 0)
    assert found.local_steps >= 10 - 3 - 3  # a window of three steps was in flight or ready
    assert "No Ray actor makes batches: 1 were lost" in caplog.text


@pytest.mark.long
def test_a_cluster_without_free_cpus_leaves_all_to_this_process(cluster, folder, monkeypatch, caplog):
    monkeypatch.undo()
    monkeypatch.setattr(ray_runner, "START_S", 0.0)
    loader = load(folder, workers=hr.RayWorkers(actors=1, cpus_per_actor=64))
    battery.assert_equal(battery.epochs(loader, 1), battery.epochs(load(folder), 1), "locally")
    assert (loader.stats().ray.local_steps, loader.stats().ray.steps, loader.stats().threads) == (10, 0, loader.threads)
    assert caplog.text.count("the cluster has started none") == 1
    del loader
    check_nothing_is_left()


@pytest.fixture
def damaged(tmp_path):
    root = write_folder(tmp_path / "damaged")
    for path in sorted(root.rglob("*.jpg"))[:3]:
        path.write_bytes(path.read_bytes()[:60])
    return root


@pytest.mark.long
def test_bad_samples_are_judged_as_by_the_local_loader(cluster, damaged, tmp_path):
    lines = []
    for workers in (None, "ray"):
        path = tmp_path / f"{workers}.jsonl"
        loader = load(damaged, workers=workers, max_bad=0.2, quarantine=path)
        lines.append((battery.epochs(loader, 1), re.sub('"time".*', "", path.read_text())))
        stats = loader.stats()
        assert (stats.bad, stats.replaced) == (3, 3)
    battery.assert_equal(lines[0][0], lines[1][0], "replaced")
    assert sorted(lines[0][1].split("\n")) == sorted(lines[1][1].split("\n"))
    for options, kind in (({"on_error": "raise"}, DecodeError), ({"max_bad": 0.0}, TooManyBadSamplesError)):
        texts = []
        for workers in (None, "ray"):
            with pytest.raises(kind) as caught:
                list(load(damaged, workers=workers, threads=1, **options))
            texts.append(str(caught.value))
        assert texts[0] == texts[1]
    del loader, caught
    check_nothing_is_left()


@pytest.mark.long
def test_an_error_of_map_is_the_local_one(cluster, folder):
    def fails(sample, rng):
        raise KeyError("no such thing")

    notes = []
    for workers in (None, "ray"):
        with pytest.raises(KeyError, match="no such thing") as caught:
            list(load(folder, workers=workers, map=fails))
        notes.append(caught.value.__notes__)
    assert notes[1][: len(notes[0])] == notes[0]
    assert "In a Ray actor:" in notes[1][-1]
    assert "in fails" in notes[1][-1]
    del caught
    check_nothing_is_left()


@pytest.mark.long
def test_what_cannot_go_remote_is_refused(cluster, folder, tmp_path, monkeypatch):
    lock = threading.Lock()
    for options, text in (
        ({"cache": "ram:1GB"}, "expected no cache="),
        ({"map": dict, "map_workers": 1}, "expected no map_workers="),
        ({"decode": "device"}, "expected no decode="),
        ({"map": lambda sample, rng: (lock, sample)[1]}, r"^map: expected a function that can be pickled"),
        ({"batch_map": lambda sample, rng: (lock, sample)[1]}, "^batch_map: expected a function"),
        ({"workers": "dask"}, "expected 'ray', hr.RayWorkers"),
    ):
        with pytest.raises(UsageError, match=text):
            load(folder, **({"workers": "ray"} | options))
    with pytest.raises(UsageError, match="expected actors to be an int of at least 1, got 0"):
        hr.RayWorkers(actors=0)
    with pytest.raises(UsageError, match="source 'a' without workers="):
        hr.mix({"a": load(folder, workers="ray"), "b": load(folder)}, weights={"a": 1, "b": 1})
    with pytest.raises(UsageError, match="expected batches of values that can be pickled"):
        list(
            load(
                folder,
                workers="ray",
                batch_map=lambda batch, rng: batch | {"odd": threading.Lock()},
            )
        )
    with pytest.raises(UsageError, match="No module named"):
        list(load(folder, workers="ray", map=of_this_module))
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(UsageError, match=re.escape("pip install 'headrace[ray]'")):
        load(folder, workers="ray")


def test_a_packed_step_is_restored_in_the_given_memory():
    """Ray is not needed: layouts, types and pinned memory, whose tensors have to be views of the memory's own."""
    import torch

    image = torch.arange(2 * 3 * 64 * 64, dtype=torch.float32).reshape(2, 64, 64, 3).to(torch.bfloat16).movedim(-1, 1)
    batch = {"image": image, "rows": [np.arange(3), np.zeros((0, 4))], "odd": np.arange(12.0).reshape(3, 4)[::-1, ::2]}
    block = torch.empty(1 << 20, dtype=torch.uint8)

    class Pinned:
        def acquire(self, nbytes):
            return block.numpy()[:nbytes]

    parts = MadeStep(batch, 2, image.nbytes, *NotedBadSamples().drain(), None).pack()
    for part in parts[1:]:
        part.flags.writeable = False  # as Ray's are
    assert len(parts[0]) < 2000  # no pixels in the pickle
    found = unpack(parts, Pinned()).batch
    assert found["image"].equal(image)
    assert found["image"].stride() == image.stride()
    assert found["image"].untyped_storage().data_ptr() == block.untyped_storage().data_ptr()
    assert np.array_equal(found["odd"], batch["odd"])
    assert [row.shape for row in found["rows"]] == [(3,), (0, 4)]
    assert all(value.flags.writeable for value in (found["odd"], *found["rows"]))


@pytest.mark.long
def test_ctrl_c_in_the_middle_leaves_no_actor(cluster, folder):
    body = """
    import sys, time
    import ray
    import headrace as hr

    def slow(batch, rng):
        time.sleep(5)
        return batch

    ray.init(address=sys.argv[1], log_to_driver=False, logging_level="error")
    loader = hr.Loader(sys.argv[2], batch_size=4, view=hr.Resize((8, 8)), batch_map=slow, workers="ray", threads=1)
    pass_ = iter(loader)
    for actor in loader._pass._actors:
        actor.versions.result()
    try:
        print("ready", flush=True)
        list(pass_)
    except KeyboardInterrupt:
        states = lambda: {actor["State"] for actor in ray._private.state.actors().values()}
        while states() != {"DEAD"}:
            time.sleep(0.1)
        print("all ended", flush=True)
    """
    code, out, error = interrupt_when_ready(body, cluster.address, folder)
    assert (code, out) == (0, "all ended\n"), error
