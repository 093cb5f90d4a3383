"""Near duplicates against comparisons of all pairs, and with pictures that were encoded or resized again."""

from __future__ import annotations

import json
import subprocess
import sys
from itertools import combinations
from pathlib import Path

import numpy as np
from PIL import Image

import headrace as hr
from headrace.pack import PackOptions, near_duplicates, pack
from headrace.pack.picture_hashes import close_pairs, difference_hash


def picture(seed: int) -> Image.Image:
    """A smooth random picture, as photographs are from afar."""
    cells = np.random.default_rng(seed).integers(0, 256, (8, 9, 3), np.uint8)
    return Image.fromarray(cells).resize((320, 240), Image.Resampling.BICUBIC)


def test_close_pairs_are_those_of_all_comparisons() -> None:
    rng = np.random.default_rng(0)
    hashes = rng.integers(0, 1 << 63, 300, np.uint64)
    flips = [sum(1 << int(bit) for bit in rng.choice(64, rng.integers(1, 6), replace=False)) for _ in range(300)]
    hashes = np.unique(np.concatenate([hashes, hashes ^ np.array(flips, np.uint64)]))
    expected = {frozenset(pair) for pair in combinations(hashes.tolist(), 2) if (pair[0] ^ pair[1]).bit_count() <= 3}
    assert 100 < len(expected) < 300
    assert {frozenset(pair) for pair in close_pairs(hashes)} == expected
    assert list(close_pairs(hashes[:1])) == []
    assert list(close_pairs(hashes[:0])) == []


def test_a_hash_compares_neighbours() -> None:
    pixels = np.zeros((8, 9, 3), np.uint8)
    assert difference_hash(pixels) is None
    pixels[2, 4] = 200
    assert difference_hash(pixels) == 1 << (63 - 2 * 8 - 3)


def test_copies_of_another_size_or_quality_are_one_group(tmp_path: Path) -> None:
    source = tmp_path / "in"
    source.mkdir()
    for seed in range(12):
        picture(seed).save(source / f"{seed:02}.jpg", quality=92)
    picture(3).resize((200, 150)).save(source / "3-small.jpg", quality=60)
    picture(3).save(source / "3-again.png")
    picture(7).save(source / "7-poor.jpg", quality=25)
    for name in ("flat", "flat-too"):
        Image.new("RGB", (40, 40), (9, 9, 9)).save(source / f"{name}.png")
    dataset = hr.open(str(source))
    found = [{dataset.key(index) for index in group} for group in near_duplicates(dataset, "image")]
    assert sorted(map(sorted, found)) == [["03.jpg", "3-again.png", "3-small.jpg"], ["07.jpg", "7-poor.jpg"]]
    (source / "broken.jpg").write_bytes(b"\xff\xd8\xff" + bytes(50))
    assert len(near_duplicates(hr.open(str(source)), "image")) == 2
    (source / "broken.jpg").unlink()
    pack(dataset, tmp_path / "pack", PackOptions())
    command = [sys.executable, "-m", "headrace", "info", str(tmp_path / "pack"), "--near-duplicates", "--json", "-"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert sorted(map(len, json.loads(done.stdout)["near_duplicates"])) == [2, 3]
    assert "7-poor" in done.stderr
