"""One file a process: whole lines, bounded, and never a reason for a run to fail."""

from __future__ import annotations

import enum
import json
import math
import os
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from processes import in_fork

from headrace.doctor.probe.evidence_file import LAST_BYTES, EvidenceFile, json_line, traceback_text, without_credentials
from headrace.doctor.probe.settings import ProbeSettings
from headrace.doctor.session.evidence_reader import read_session
from headrace.doctor.session.model import CommandOutcome, SessionNote

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
    assert [record[0] for record in lines(tmp_path / "evidence.jsonl")] == ["process", "name", "parent", "parent again"]


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


ASKED = ProbeSettings("/session", 5, 6, "boot", observe=True, warmup=3, steps=9, orders=True, most_bytes=1 << 20)


def written(folder, **values):
    settings = ProbeSettings(**(vars(ASKED) | {"folder": str(folder)} | values))
    settings.write()
    return settings


def test_what_is_written_is_read(tmp_path):
    folder = tmp_path / "odd \udcff name"
    settings = written(folder)
    assert ProbeSettings.read(str(folder)) == settings
    assert settings.evidence == f"{folder}/evidence"
    assert (folder / "evidence").is_dir()


def test_another_version_may_say_more_or_less(tmp_path):
    written(tmp_path)
    file = tmp_path / "settings.json"
    values = json.loads(file.read_text())
    del values["orders"]
    file.write_text(json.dumps(values | {"from_the_future": 1}))
    assert ProbeSettings.read(str(tmp_path)) == written(tmp_path, orders=False)


PLANTED = "planted0Secret1"
CUT = [
    f"https://user:{PLANTED}@host/a.tar",
    f"https://{PLANTED}@host/a.tar",
    f"s3://bucket/a.tar?X-Amz-Credential=a&X-Amz-Signature={PLANTED}",
    f"/a.tar?X-Amz-Security-Token={PLANTED}&x=1",
    f"https://host/a.tar?sv=2020&sig={PLANTED}",
    f"GET /a.tar?sig={PLANTED} failed",
    f"pipe:curl -s -H 'Authorization: Bearer {PLANTED}' https://host/a.tar",
    f"pipe:curl -u user:{PLANTED} https://host/a.tar",
    f"pipe:curl --user 'user:{PLANTED}' https://host/a.tar",
    f"Authorization: Basic {PLANTED}==",
    f"AWS_SECRET_ACCESS_KEY={PLANTED} python train.py",
    f"train.py --secret-key {PLANTED}",
    f"train.py --hf-token={PLANTED}",
    f"--token {PLANTED}",
    f"S3FileSystem(key='a', secret='{PLANTED}')",
    f"{{'aws_session_token': '{PLANTED}'}}",
    f"AccountName=a;AccountKey={PLANTED}==;EndpointSuffix=b",
    f'{{"password": "{PLANTED}"}}',
    "hf_" + PLANTED * 2,
    "AKIA" + PLANTED.upper(),
]
KEPT = [
    "https://host/a b.tar",
    "s3://bucket/key@2x.png",
    "pipe:aws s3 cp s3://bucket/{000..099}.tar -",
    "transform:RandomResizedCrop",
    '{"pad_token": "[PAD]", "unk_token": "[UNK]", "keys": ["image"], "token_type_ids": 1}',
    "train.py --max-token 512 --keys image label --user ada",
    "secret=None, password=None",
    "train.py:41:tokens",
]


@pytest.mark.parametrize("text", CUT)
def test_a_credential_is_cut(text: str) -> None:
    shown = without_credentials(text)
    assert PLANTED.lower() not in shown.lower()
    assert "***" in shown
    assert without_credentials(shown) == shown


@pytest.mark.parametrize("text", KEPT)
def test_what_is_no_credential_stays(text: str) -> None:
    assert without_credentials(text) == text


def test_an_address_still_says_which_object_it_is() -> None:
    shown = without_credentials(f"https://user:{PLANTED}@host/a.tar?sig={PLANTED}&b=2 and more")
    assert shown == "https://***@host/a.tar?*** and more"


SETTINGS_OF_LOADER = {
    "urls": [text for text in CUT if "://" in text],
    "storage_options": {"key": "AKIA" + PLANTED.upper(), "secret": PLANTED, "token": PLANTED * 20},
    "root": f"s3://user:{PLANTED}@bucket/photos",
    "quoted": json.dumps({"secret": f"a\\{PLANTED}"}),
    "headers": {"Authorization": f"Bearer {PLANTED}"},
}


def test_no_record_holds_what_a_script_has_in_its_loader_command_and_errors(tmp_path: Path) -> None:
    folder = tmp_path / "evidence"
    folder.mkdir()
    header: Any = ("process", 0, {"pid": 1, "argv": ["train.py", "--secret-access-key", PLANTED, "--lr", "0.1"]})
    evidence = EvidenceFile(str(folder / "host-1-0.jsonl"), 1 << 20, lambda: header)
    stage = evidence.name(f"remote:{CUT[0]}")
    evidence.write(
        ("loader", 0, 1, {"num_workers": 0, "settings": SETTINGS_OF_LOADER}),
        ("note", 1, "hook-off", CUT[5]),
        ("error", 1, traceback_text(OSError(f"{CUT[0]}: 403 for {CUT[2]}"))),
        ("sample", 0, 1, repr(CUT[4]), 10, [[stage, -1, {"class": CUT[3]}]]),
    )
    evidence.close()
    (tmp_path / "settings.json").write_text(json.dumps({**SETTINGS, "folder": str(tmp_path)}))
    text = (folder / "host-1-0.jsonl").read_text()
    assert PLANTED.lower() not in text.lower()
    lines = [json.loads(line) for line in text.splitlines()]  # still JSON
    assert lines[0][2]["argv"] == ["train.py", "--secret-access-key", "***", "--lr", "0.1"]
    assert len(lines) == 6

    outcome = CommandOutcome(["train.py", "--password", PLANTED, "--lr", "0.1"], 1, "failed", 5, ["ok", CUT[0]])
    notes = [SessionNote("leftover", f"curl {CUT[0]} outlived the command")]
    session = read_session(tmp_path, outcome=outcome, mode="measure", notes=notes)
    assert session.outcome.command == ["train.py", "--password", "***", "--lr", "0.1"]
    assert PLANTED.lower() not in repr(session).lower()


SETTINGS = {"origin_us": 0, "origin_wall_us": 0, "boot_id": ""}
