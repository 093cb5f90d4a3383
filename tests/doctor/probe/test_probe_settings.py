"""What the doctor asks of its probes comes through, between versions too."""

from __future__ import annotations

import json

import pytest

from headrace.doctor.probe.settings import ProbeSettings

ASKED = ProbeSettings("/session", 5, 6, "boot", observe=True, warmup=3, steps=9, ranges=True, most_bytes=1 << 20)


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


def test_a_folder_that_was_moved_is_where_it_is_now(tmp_path):
    written(tmp_path / "before")
    (tmp_path / "before").rename(tmp_path / "now")
    assert ProbeSettings.read(str(tmp_path / "now")).folder == str(tmp_path / "now")


def test_another_version_may_say_more_or_less(tmp_path):
    written(tmp_path)
    file = tmp_path / "settings.json"
    values = json.loads(file.read_text())
    del values["ranges"]
    file.write_text(json.dumps(values | {"from_the_future": 1}))
    assert ProbeSettings.read(str(tmp_path)) == written(tmp_path, ranges=False)


def test_no_settings_are_an_error(tmp_path):
    with pytest.raises(FileNotFoundError):
        ProbeSettings.read(str(tmp_path))
