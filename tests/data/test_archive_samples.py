"""Samples found in the arrays of several archives, against a dict; and in arrays that are damaged."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from webdataset.tariterators import base_plus_ext

from headrace._core import SampleFinder
from headrace.data.archives.archive_columns import ArchiveKeys, ArchiveSamples
from headrace.data.archives.archive_members import GroupedMembers, JoinedArray
from headrace.data.storage.strings import StringColumn

EXTENSIONS = ["jpg", "png", "cls"]
names_of_archives = st.lists(
    st.lists(st.builds("{}.{}".format, st.sampled_from("abc"), st.sampled_from([*EXTENSIONS, "txt"])), max_size=8),
    min_size=1,
    max_size=4,
)


def archives(names: list[list[str]]) -> ArchiveSamples:
    columns = tuple(StringColumn.from_list(part) for part in names)
    types = [np.full(len(part), ord("0"), np.uint8) for part in names]
    return ArchiveSamples(
        columns, tuple(GroupedMembers.group(column, kind, {}) for column, kind in zip(columns, types, strict=True))
    )


def reference(names: list[list[str]], wanted: list[str]) -> list[tuple[str, int, int]]:
    """For each sample its key, its archive and the member that a column of the extensions `wanted` takes."""
    found = []
    for archive, part in enumerate(names):
        last = {base_plus_ext(name): member for member, name in enumerate(part)}
        for key in dict.fromkeys(key for key, _ in map(base_plus_ext, part)):
            members = [last[key, extension] for extension in wanted if (key, extension) in last]
            found.append((key, archive, members[0] if members else -1))
    return found


@given(names_of_archives, st.lists(st.sampled_from(EXTENSIONS), unique=True), st.data())
def test_finds_what_a_dict_finds(names, wanted, draw):
    samples = archives(names)
    expected = reference(names, wanted)
    assert len(samples) == len(expected)
    kept = sorted(draw.draw(st.sets(st.integers(0, len(expected) - 1)))) if expected else []
    for some, numbers in ((samples, range(len(expected))), (samples.keep(np.array(kept, np.int64)), kept)):
        order = draw.draw(st.permutations(range(len(numbers))))
        archive, member = some.find(np.array(order, np.int64), some.ranks(wanted))
        keys = some.keys(np.array(order, np.int64))
        assert list(zip(keys, archive.tolist(), member.tolist(), strict=True)) == [expected[numbers[i]] for i in order]
        assert list(ArchiveKeys(some)) == [expected[number][0] for number in numbers]


def test_a_pickle_finds_the_same():
    samples = archives([["a.jpg", "b.png"], ["c.jpg"]])
    ids, ranks = np.arange(3), samples.ranks(["jpg"])
    expected = [part.tolist() for part in samples.find(ids, ranks)]
    again = pickle.loads(pickle.dumps(samples))
    assert [part.tolist() for part in again.find(ids, ranks)] == expected == [[0, 0, 1], [0, -1, 0]]


@pytest.mark.parametrize("number", [-1, 2])
def test_no_such_sample(number):
    samples = archives([["a.jpg"], ["b.jpg"]])
    with pytest.raises(IndexError, match=f"sample {number} of 2"):
        samples.find(np.array([0, number]), samples.ranks(["jpg"]))


small = st.integers(0, 9)


@given(
    offsets=st.lists(small, min_size=1, max_size=5),
    first=st.lists(small, min_size=1, max_size=5),
    member=st.lists(st.integers(-9, 9), max_size=5),
    extension=st.lists(small, max_size=5),
    ids=st.lists(st.integers(-3, 6), max_size=5),
)
def test_any_arrays_give_an_answer_or_an_error(offsets, first, member, extension, ids):
    finder = SampleFinder()
    names = np.frombuffer(b"a.jpgb", np.uint8)
    arrays = (np.array(offsets, np.uint64), np.array(first, np.uint32), np.array(member, np.int32))
    try:
        finder.add(names, *arrays, np.array(extension, np.uint8))
        found = finder.find(np.array(ids, np.int64), np.zeros(256, np.uint8))[1]
        keys = StringColumn(*finder.keys(np.array(ids, np.int64)))
    except (ValueError, IndexError):
        return
    assert set(found.tolist()) <= set(member)
    assert all(b"a.jpgb".startswith(keys.bytes(i)) or keys.bytes(i) == b"" for i in range(len(keys)))


@given(
    st.sampled_from([np.int64, np.uint32]),
    st.lists(st.lists(st.integers(0, 2**31), max_size=5), min_size=1, max_size=4),
    st.data(),
)
def test_joined_arrays_are_read_as_one(dtype, parts, draw):
    joined = JoinedArray(np.array(part, dtype) for part in parts)
    places = [(part, at) for part in range(len(parts)) for at in range(-1, len(parts[part]))]
    chosen = draw.draw(st.lists(st.sampled_from(places), max_size=8))
    index = np.array(chosen, np.int64).reshape(-1, 2)
    part, at = np.ascontiguousarray(index[:, 0]), np.ascontiguousarray(index[:, 1])
    for one in (joined, pickle.loads(pickle.dumps(joined))):
        taken = one.take(part, at)
        assert taken.tolist() == [0 if i == -1 else parts[p][i] for p, i in chosen]
        assert taken.dtype == dtype


@pytest.mark.parametrize(("part", "index"), [(0, 3), (0, -2), (1, 0), (-1, 0), (2, 0)])
def test_joined_arrays_end_where_they_end(part, index):
    joined = JoinedArray([np.arange(3), np.arange(0)])
    with pytest.raises(IndexError, match="lies outside"):
        joined.take(np.array([part]), np.array([index]))
