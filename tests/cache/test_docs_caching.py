"""The examples of docs/caching.md, run as they stand there but for the sizes."""

from __future__ import annotations

import os
import re
from pathlib import Path

from loader_data import write_folder

PAGE = Path(__file__).parents[2] / "docs" / "caching.md"
SMALLER = {
    "8GB": f"{30_000_000 + os.getpid()}B",
    "256": "24",
    "288": "32",
    "224": "20",
    "batch_size=64": 'batch_size=8, output="numpy"',
}


def examples():
    text = PAGE.read_text()
    for large, small in SMALLER.items():
        text = text.replace(large, small)
    return re.findall(r"```python\n(.*?)```", text, re.DOTALL)


def test_loaders_examples(tmp_path, monkeypatch, capsys):
    write_folder(tmp_path / "train")
    monkeypatch.chdir(tmp_path)
    first, second = [each for each in examples() if "hr.Loader" in each]
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
