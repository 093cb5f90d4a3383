"""Credentials do not reach the evidence, wherever a script has them; what only looks like one stays."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from headrace.doctor.probe import without_credentials
from headrace.doctor.probe.evidence_file import EvidenceFile, traceback_text
from headrace.doctor.session.evidence_reader import read_session
from headrace.doctor.session.model import CommandOutcome, SessionNote, UnreachedProcess

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

    session = read_session(
        tmp_path,
        outcome=CommandOutcome(["train.py", "--password", PLANTED, "--lr", "0.1"], 1, "failed", 5, ["ok", CUT[0]]),
        mode="measure",
        unreached=[UnreachedProcess(2, f"python x.py --secret={PLANTED}", "why")],
        notes=[SessionNote("leftover", f"curl {CUT[0]} outlived the command")],
    )
    assert session.outcome.command == ["train.py", "--password", "***", "--lr", "0.1"]
    assert PLANTED.lower() not in repr(session).lower()


SETTINGS = {"origin_us": 0, "origin_wall_us": 0, "boot_id": ""}
