"""The examples of docs/caching.md, run as they stand there but for the sizes."""

from __future__ import annotations

import os

from docs_pages import examples
from loader_data import write_folder

SMALLER = {
    "8GB": f"{30_000_000 + os.getpid()}B",
    "256": "24",
    "288": "32",
    "224": "20",
    "batch_size=64": 'batch_size=8, output="numpy"',
}


def smaller(text):
    for large, small in SMALLER.items():
        text = text.replace(large, small)
    return text


def test_loaders_examples(tmp_path, monkeypatch, capsys):
    write_folder(tmp_path / "train")
    monkeypatch.chdir(tmp_path)
    first, second = [smaller(text) for text in examples("caching.md", before="Staging") if "hr.Loader" in text]
    names = {}
    exec(first, names)
    said = [line for line in capsys.readouterr().out.splitlines() if "cache (ram)" in line or "cached:" in line]
    assert [line.split(",")[0] for line in said[0::2]] == [
        f"  cache (ram): {rate} hits" for rate in ("0.0%", *["100.0%"] * 2)
    ]
    assert set(said[1::2]) == {"    cached: image: 24x24x3 uint8 pixels"}
    exec(second, names)
    assert len(next(iter(names["loader"]))["image"]) == 8
    assert "short side is at most 32" in names["loader"].stats().cache.cuts["image"]
