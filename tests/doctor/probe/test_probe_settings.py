"""What the doctor asks of its probes comes through, between versions too."""

from __future__ import annotations

import json

from headrace.doctor.probe.settings import ProbeSettings

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
