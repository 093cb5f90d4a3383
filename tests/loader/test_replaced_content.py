"""A state pins what a dataset's files hold: a file that was replaced between save and resume is named."""

from __future__ import annotations

import json
import os
import shutil
import tarfile
from pathlib import Path

import pytest
from archives import add_file
from loader_data import encode, photograph

import headrace as hr
from headrace.errors import ChangedError, StateError


def write_shard(path: Path, *, label: int = 0, images: int = 4) -> None:
    """Write a tar whose members' names, sizes and times do not depend on `label`."""
    with tarfile.open(path, "w") as tar:
        for number in range(images):
            add_file(tar, f"{path.stem}-{number}.png", encode(photograph(number, 24, 24), "PNG"))
            add_file(tar, f"{path.stem}-{number}.cls", str(label).encode())
    os.utime(path, (1_700_000_000, 1_700_000_000))


def shards_of(folder: Path, count: int = 3) -> list[str]:
    folder.mkdir(exist_ok=True)
    for number in range(count):
        write_shard(folder / f"part-{number}.tar")
    return [str(folder / f"part-{number}.tar") for number in range(count)]


def loader(source: object, **options: object) -> hr.Loader:
    view = hr.Resize((16, 16))
    return hr.Loader(source, batch_size=2, view=view, threads=1, **options)


def saved(source: object, **options: object) -> dict[str, object]:
    begun = loader(source, **options)
    next(passing := iter(begun))
    passing.close()
    return json.loads(json.dumps(begun.state_dict()))


@pytest.fixture
def shards(tmp_path: Path) -> list[str]:
    return shards_of(tmp_path / "shards")


def test_a_shard_replaced_by_one_of_the_same_names_and_sizes_is_named(shards: list[str]) -> None:
    state = saved(shards)
    write_shard(Path(shards[1]), label=7)
    resumed = loader(shards)
    with pytest.raises(ChangedError) as caught:
        resumed.load_state_dict(state)
    assert shards[1] in str(caught.value)
    assert (resumed.epoch, resumed.next_step) == (0, 0)
    resumed.load_state_dict(state, allow_changed=True)
    assert (resumed.epoch, resumed.next_step) == (0, 1)


@pytest.mark.long
def test_the_first_of_many_shards_is_named_within_its_run(tmp_path: Path) -> None:
    shards = shards_of(tmp_path / "shards", 100)
    state = saved(shards)
    write_shard(Path(shards[70]), label=7)
    with pytest.raises(ChangedError) as caught:
        loader(shards).load_state_dict(state)
    named = next(number for number, path in enumerate(shards) if path in str(caught.value))
    assert named <= 70 < named + 4
    assert len(json.dumps(state)) < 700


def test_a_copy_elsewhere_with_other_times_is_the_same(shards: list[str], tmp_path: Path) -> None:
    state = saved(shards)
    copies = [shutil.copy(path, tmp_path / os.path.basename(path)) for path in shards]
    resumed = loader(copies)
    resumed.load_state_dict(state)
    assert resumed.next_step == 1


def test_a_dataset_of_other_sizes_goes_on_where_that_is_allowed(shards: list[str]) -> None:
    state = saved(shards)
    write_shard(Path(shards[2]), label=1000)
    resumed = loader(shards)
    with pytest.raises(StateError, match="allow_changed"):
        resumed.load_state_dict(state)
    resumed.load_state_dict(state, allow_changed=True)
    assert resumed.next_step == 1
    write_shard(Path(shards[2]), images=5)
    with pytest.raises(StateError, match="samples in an epoch"):
        loader(shards).load_state_dict(state, allow_changed=True)


def test_an_image_replaced_in_a_folder_is_named(tmp_path: Path) -> None:
    for number in range(6):
        (tmp_path / f"{number}.png").write_bytes(encode(photograph(number, 24, 24), "PNG"))
    state = saved(str(tmp_path))
    (tmp_path / "3.png").write_bytes(encode(photograph(9, 24, 24), "PNG"))
    with pytest.raises(ChangedError, match=r"3\.png"):
        loader(str(tmp_path)).load_state_dict(state)


def test_a_source_of_a_mixture_is_named(shards: list[str], tmp_path: Path) -> None:
    other = shards_of(tmp_path / "other")

    def mixed() -> hr.MixedLoader:
        return hr.mix({"a": loader(shards), "b": loader(other)}, weights={"a": 1, "b": 1}, batches="one-source")

    state = mixed().state_dict()
    write_shard(Path(other[0]), label=7)
    with pytest.raises(ChangedError) as caught:
        mixed().load_state_dict(state)
    assert other[0] in str(caught.value)
    mixed().load_state_dict(state, allow_changed=True)


def test_a_state_of_before_pins_is_loaded(shards: list[str]) -> None:
    state = saved(shards)
    del state["content"]
    with pytest.raises(StateError, match="content"):
        loader(shards).load_state_dict(state)
    write_shard(Path(shards[1]), label=7)
    resumed = loader(shards)
    resumed.load_state_dict(state | {"version": 2})
    assert resumed.next_step == 1


def test_samples_in_memory_have_no_files_to_pin() -> None:
    samples = [{"image": encode(photograph(1, 24, 24), "PNG"), "label": number} for number in range(4)]
    state = saved(samples)
    loader(samples).load_state_dict(state)
