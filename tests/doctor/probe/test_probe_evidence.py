"""One file a process: whole lines, bounded, and never a reason for a run to fail."""

from __future__ import annotations

import enum
import json
import math
import os
import threading

import numpy as np
import pytest
from processes import in_fork

from headrace.doctor.probe.evidence_file import LAST_BYTES, EvidenceFile, json_line

HEADER = ("process", 0, {"pid": 1})


@pytest.fixture
def begin(tmp_path):
    """Begins evidence, and closes it at the end."""
    begun: list[EvidenceFile] = []

    def make(path=tmp_path / "evidence.jsonl", most_bytes=1 << 20, header=lambda: HEADER) -> EvidenceFile:
        begun.append(EvidenceFile(str(path), most_bytes, header))
        return begun[-1]

    yield make
    for evidence in begun:
        evidence.close()


def lines(path) -> list[list[object]]:
    return [json.loads(text) for text in path.read_text(encoding="utf-8").splitlines()]


def test_the_header_comes_with_the_first_record(begin, tmp_path):
    evidence = begin()
    assert not evidence.is_begun
    assert not (tmp_path / "evidence.jsonl").exists()
    evidence.write(("a", 1), ("b", 2))
    assert evidence.is_begun
    assert lines(tmp_path / "evidence.jsonl") == [list(HEADER), ["a", 1], ["b", 2]]


def test_a_name_is_written_once_before_it_is_used(begin, tmp_path):
    evidence = begin()
    number = evidence.name("decode:jpeg")
    assert evidence.name("decode:jpeg") == number
    evidence.write(("a", number))
    evidence.write(("a", number))
    assert lines(tmp_path / "evidence.jsonl")[1:] == [["name", number, "decode:jpeg"], ["a", number], ["a", number]]


@pytest.mark.long
def test_the_bound_is_kept_and_the_end_has_room(begin, tmp_path):
    evidence = begin(most_bytes=4 * LAST_BYTES)
    for number in range(20_000):
        evidence.write(("fill", number, "x" * 20))
    evidence.write_last(("end", 1, "exit"))
    size = (tmp_path / "evidence.jsonl").stat().st_size
    assert 3 * LAST_BYTES - 100 < size < 3 * LAST_BYTES + 100
    for number in range(20_000):
        evidence.write_last(("fill", number, "x" * 20))
    assert (tmp_path / "evidence.jsonl").stat().st_size <= 4 * LAST_BYTES
    assert ["end", 1, "exit"] in lines(tmp_path / "evidence.jsonl")


def test_a_fork_gets_a_file_of_its_own_though_a_thread_held_the_lock(begin, tmp_path):
    evidence = begin()
    number = evidence.name("decode:jpeg")
    evidence.write(("parent", number))
    inside, leave = threading.Event(), threading.Event()

    def hold() -> None:
        with evidence._lock:
            inside.set()
            assert leave.wait(20)

    thread = threading.Thread(target=hold)
    thread.start()
    assert inside.wait(20)

    def child() -> bytes:
        evidence.forked(str(tmp_path / "child.jsonl"))
        evidence.write(("child", number))
        return b""

    result = in_fork(child)
    result()
    leave.set()
    thread.join()
    evidence.write(("parent again", number))
    assert [record[0] for record in lines(tmp_path / "child.jsonl")] == ["process", "name", "child"]
    assert [record[0] for record in lines(tmp_path / "evidence.jsonl")] == [
        "process",
        "name",
        "parent",
        "parent again",
    ]


def test_a_full_disk_is_said_once_and_closes_the_file(begin, capsys):
    """/dev/full takes nothing."""
    evidence = begin("/dev/full")
    before = set(os.listdir("/proc/self/fd"))
    for number in range(3):
        evidence.write(("a", number))
    evidence.write_last(("end", 1, "exit"))
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("headrace: /dev/full: [Errno 28] ")
    assert set(os.listdir("/proc/self/fd")) == before


class Odd(enum.Enum):
    one = 1


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (np.int64(3), 3),
        (np.float32(0.5), 0.5),
        (np.bool_(True), 1),
        (math.nan, None),
        (-math.inf, None),
        ([1, (math.inf, {"a": np.int32(1)})], [1, [None, {"a": 1}]]),
        ({(1, 2): 3, None: np.int8(4)}, {"(1, 2)": 3, "None": 4}),
        ({1}, [1]),
        (Odd.one, "Odd.one"),
        (b"\xff", "b'\\xff'"),
        ("\udcff/\ud800 \U0001f600 é \x00\n", "?/? \U0001f600 é \x00\n"),
        (10**40, 10**40),
    ],
    ids=repr,
)
def test_odd_values_become_what_json_knows(value, shown):
    text = json_line(("a", value))
    assert text.endswith(b"\n")
    assert text.count(b"\n") == 1
    assert json.loads(text, parse_constant=lambda name: pytest.fail(name)) == ["a", shown]


def test_a_script_that_closes_all_descriptors_gets_nothing_of_ours_into_its_files(begin, tmp_path):
    evidence = begin()
    evidence.write(("a", 1))
    os.close(evidence._descriptor)  # as os.closerange does
    with (tmp_path / "the_scripts").open("wb", buffering=0) as file:
        assert file.fileno() == evidence._descriptor
        evidence.write(("b", 2))
        evidence.write(("c", 3))
        file.write(b"its own")
    assert (tmp_path / "the_scripts").read_bytes() == b"its own"
    assert lines(tmp_path / "evidence.jsonl") == [list(HEADER), ["a", 1], ["b", 2], ["c", 3]]


def test_no_standard_descriptor_is_taken(begin, tmp_path):
    def without_standard_input() -> bytes:
        os.close(0)
        begin(tmp_path / "of the fork").write(("a", 1))
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(0)
        return b""

    in_fork(without_standard_input)()
    assert len(lines(tmp_path / "of the fork")) == 2
