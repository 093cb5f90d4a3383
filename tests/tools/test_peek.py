"""`headrace peek`: what is said of files against Pillow, near-duplicates against all pairs, and an offline page."""

from __future__ import annotations

import errno
import io
import json
import os
import re
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import PIL.Image
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from typer.testing import CliRunner

import headrace as hr
from headrace.data import contact_sheet
from headrace.errors import HeadraceError, NotFoundError
from headrace.tools.command_line import app
from headrace.tools.peek_page import histogram
from headrace.tools.peek_survey import MOST_BITS, MOST_LEVELS, Fingerprint, near_duplicates, spread, survey


def picture(seed: int, size: tuple[int, int] = (64, 48)) -> PIL.Image.Image:
    """Soft blobs, different for each seed."""
    small = np.random.default_rng(seed).integers(0, 256, (6, 8, 3), dtype=np.uint8)
    return PIL.Image.fromarray(small).resize(size, PIL.Image.Resampling.BICUBIC)


def encoded(image: PIL.Image.Image, kind: str, **options: object) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, kind, **options)
    return buffer.getvalue()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two classes, a copy that was scaled and compressed, one file of each other kind, and two that fail."""
    files = {
        "cat/0.jpg": encoded(picture(0), "JPEG", quality=95),
        "cat/again.jpg": encoded(picture(0).resize((40, 30)), "JPEG", quality=60),
        "cat/1.png": encoded(picture(1), "PNG"),
        "dog/2.webp": encoded(picture(2, (33, 90)), "WEBP", lossless=True),
        "dog/cut.jpg": encoded(picture(3, (200, 200)), "JPEG")[:900],
        "dog/<b>&no.png": b"hello",
    }
    for name, content in files.items():
        (tmp_path / "set" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "set" / name).write_bytes(content)
    return tmp_path / "set"


def test_a_look_says_what_pillow_says_of_the_file(folder):
    ds = hr.open(folder)
    looks = {look.key: look for look in survey(ds, "image", range(len(ds)))}
    assert list(looks) == list(ds.keys)
    for key, look in looks.items():
        assert look.bytes == (folder / key).stat().st_size
        try:
            with PIL.Image.open(folder / key) as image:
                assert (look.format, look.size) == (image.format, image.size)
        except PIL.UnidentifiedImageError:
            assert (look.format, look.size) == (None, None)
    assert {key: look.error for key, look in looks.items() if look.error is not None} == {
        "dog/cut.jpg": "JPEG cut short: the file ends after 900 bytes, before the image does",
        "dog/<b>&no.png": "neither JPEG nor PNG, and expected an image, got bytes of no format that Pillow knows; "
        "first: 68 65 6c 6c 6f",
    }


def test_a_file_that_is_gone_is_a_look_with_an_error(folder):
    ds = hr.open(folder)
    (folder / "cat/1.png").unlink()
    (look,) = survey(ds, "image", [list(ds.keys).index("cat/1.png")])
    assert (look.bytes, look.format, look.size) == (None, None, None)
    assert look.error is not None
    assert "No such file" in look.error


def test_positions_are_all_or_a_seeded_part():
    assert spread(5, 9, seed=0).tolist() == [0, 1, 2, 3, 4]
    part = spread(1000, 10, seed=1).tolist()
    assert part == sorted(set(part)) == spread(1000, 10, seed=1).tolist()
    assert len(part) == 10
    assert part != spread(1000, 10, seed=2).tolist()


GREYS = arrays.arrays(np.uint8, (8, 9), elements=st.sampled_from([0, 2, 5, 90, 100, 200]))


@settings(max_examples=60)
@given(st.lists(GREYS, max_size=12), st.data())
@pytest.mark.long
def test_groups_are_those_of_all_pairs(greys, data):
    """The reference compares every pair; some are made close on purpose."""
    for grey in list(greys):
        near = grey.copy()
        near[data.draw(st.integers(0, 7)), data.draw(st.integers(0, 8))] ^= np.uint8(data.draw(st.integers(0, 255)))
        greys.append(near)
    prints = [Fingerprint(grey) for grey in greys]
    group_of = list(range(len(prints)))
    for i, first in enumerate(prints):
        for j, second in enumerate(prints):
            levels = np.abs(first.grey.astype(int) - second.grey).mean()
            if (first.hash ^ second.hash).bit_count() <= MOST_BITS and levels <= MOST_LEVELS:
                group_of = [group_of[i] if group == group_of[j] else group for group in group_of]
    expected = [[i for i, group in enumerate(group_of) if group == which] for which in set(group_of)]
    assert sorted(near_duplicates(prints)) == sorted(group for group in expected if len(group) > 1)


@pytest.mark.parametrize("levels", [1, 256])
@pytest.mark.long
def test_plain_pictures_by_the_thousand_are_grouped(levels):
    """Their hashes are all alike. Each compared with each would take minutes."""
    prints = [Fingerprint(np.full((8, 9), number % levels, np.uint8)) for number in range(10_000)]
    assert near_duplicates(prints) == [list(range(10_000))]


def test_bits_of_the_hash_are_steps_to_the_right():
    grey = np.zeros((8, 9), np.uint8)
    grey[0, 1:] = 3  # one step up, of exactly what counts
    grey[7, 8] = 2  # too little
    assert Fingerprint(grey).hash == 1 << 63


@given(st.lists(st.integers(0, 10_000), min_size=1) | st.lists(st.floats(1e-3, 1e6), min_size=1))
def test_every_number_lies_in_a_bar(values):
    bars = histogram(values)
    assert bars is not None
    assert sum(bars.counts) == len(values)
    assert len(bars.edges) == len(bars.counts) + 1 <= 26
    assert list(bars.edges) == sorted(set(bars.edges))
    assert (bars.smallest, bars.largest) == (min(values), max(values))
    assert bars.median == pytest.approx(np.median(values))
    widths = np.diff(bars.edges)
    assert bars.is_logarithmic or widths.max() <= 2 * max(widths.min(), 1), "bars of one width, unless it is said"


def test_nothing_makes_no_bars():
    assert histogram([]) is None


def test_the_sheet_holds_the_pixels_and_a_line_of_ink_under_each():
    images = np.random.default_rng(0).integers(0, 256, (5, 3, 40, 60), dtype=np.uint8)
    sheet = np.asarray(contact_sheet(images, ["a", "b", "long/" * 20 + "end", "\udcff", "e"], columns=3))
    for index, image in enumerate(images):
        left, top = index % 3 * 66 + 6, index // 3 * 60 + 6
        assert (sheet[top : top + 40, left : left + 60] == image.transpose(1, 2, 0)).all()
        under = sheet[top + 40 : top + 54, left : left + 60]
        assert (under < 128).any()
        assert (sheet[top : top + 54, left + 60 : left + 66] == 255).all(), "ink beyond the cell"


def test_keys_of_letters_that_the_font_lacks_are_told_apart():
    image = np.zeros((1, 3, 20, 100), np.uint8)
    sheets = [np.asarray(contact_sheet(image, [key], columns=1)) for key in ("日本", "本日", "ü", "\udcff")]
    assert len({sheet.tobytes() for sheet in sheets}) == len(sheets)


class Addresses(HTMLParser):
    """What a page would fetch, and its scripts."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: list[str] = []
        self.scripts = 0
        self.feed(page)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.scripts += tag == "script"
        self.found += [value or "" for name, value in attributes if name in ("src", "href", "srcset", "data")]


def peek(*arguments: object) -> str:
    result = CliRunner().invoke(app, ["peek", *map(str, arguments)], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


def test_the_page_is_offline_escaped_and_complete(folder, tmp_path):
    said = json.loads(peek(folder, "--to", tmp_path / "out", "--size", 32, "--json", "-"))
    page = (tmp_path / "out/peek.html").read_text()
    addresses = Addresses(page)
    assert addresses.scripts == 0
    assert addresses.found
    assert all(address.startswith("data:image/jpeg;base64,") for address in addresses.found)
    assert "default-src 'none'" in page
    assert "dog/&lt;b&gt;&amp;no.png" in page
    assert "<b>&no" not in page
    assert said["near_duplicates"] == [["cat/0.jpg", "cat/again.jpg"]]
    assert said["classes"] == {"cat": 3, "dog": 3}
    assert said["formats"] == {"JPEG": 3, "PNG": 1, "WEBP": 1}
    assert [failure["key"] for failure in said["failures"]] == ["dog/<b>&no.png", "dog/cut.jpg"]
    assert said["width"] == {"smallest": 33, "median": 64, "largest": 200}
    with PIL.Image.open(tmp_path / "out/peek.png") as sheet:
        assert sheet.size == (2 * (32 + 6) + 6, 3 * (32 + 6 + 14) + 6)


def test_the_sheet_is_what_a_loader_hands_out(folder, tmp_path):
    peek(folder, "--to", tmp_path, "--view", "whole", "--size", 24, "--sheet", 4)
    fields = {"image": hr.Image(), "key": hr.Raw(source="__key__")}
    loader = hr.Loader(
        folder, fields, view=hr.Letterbox((24, 24)), batch_size=4, shuffle=True, output="numpy", max_bad=1.0
    )
    first = next(iter(loader))
    sheet = np.asarray(PIL.Image.open(tmp_path / "peek.png"))
    assert (sheet[6:30, 6:30] == first["image"][0].transpose(1, 2, 0)).all()


def test_a_data_set_of_which_nothing_loads_has_a_page(tmp_path):
    (tmp_path / "set").mkdir()
    for name in ("1.jpg", "2.jpg"):
        (tmp_path / "set" / name).write_bytes(b"no image")
    said = peek(tmp_path / "set", "--to", tmp_path)
    assert "2 of 2 samples read cannot be loaded" in said
    assert "No sheet: " in said
    assert not (tmp_path / "peek.png").exists()
    assert len(re.findall("no format that Pillow knows", (tmp_path / "peek.html").read_text())) >= 2


def test_a_manifest_without_a_header_leads_into_its_root(folder, tmp_path):
    names = ("cat/0.jpg", "dog/2.webp")
    (tmp_path / "list.csv").write_text("".join(f"{name},{name}\n" for name in names))
    said = json.loads(
        peek(
            tmp_path / "list.csv",
            "--root",
            folder,
            "--columns",
            "rgb,copy",
            "--image",
            "copy",
            "--to",
            tmp_path,
            "--json",
            "-",
        )
    )
    assert (said["formats"], said["failures"]) == ({"JPEG": 1, "WEBP": 1}, [])


@pytest.mark.parametrize("column", ["label", "depth"])
def test_a_column_without_images_is_wrong_use(folder, tmp_path, column):
    result = CliRunner().invoke(app, ["peek", str(folder), "--image", column, "--to", str(tmp_path)])
    assert result.exit_code == 2
    assert f"expected a column of files, got '{column}'; there is image" in " ".join(
        re.findall(r"[^\s│]+", result.stderr)
    )
    assert not (tmp_path / "peek.html").exists()


def test_files_that_are_somewhere_else_are_one_error(tmp_path):
    (tmp_path / "list.csv").write_text("image\na.jpg\nb.jpg\n")
    with pytest.raises(NotFoundError, match="Pass as root="):
        peek(tmp_path / "list.csv", "--to", tmp_path)


def test_a_full_disk_leaves_no_half_file(folder, tmp_path, monkeypatch):
    monkeypatch.setattr(PIL.Image.Image, "save", fill_the_disk_at(2000))
    with pytest.raises(HeadraceError, match=r"--to: expected a folder to write, got .*out \(No space left on device\)"):
        peek(folder, "--to", tmp_path / "out")
    assert list((tmp_path / "out").iterdir()) == []


def fill_the_disk_at(size):
    """`Image.save`, after whose first `size` bytes of a PNG there is no room."""
    save = PIL.Image.Image.save

    def failing(image, file, kind, **options):
        if kind != "PNG":
            return save(image, file, kind, **options)
        buffer = io.BytesIO()
        save(image, buffer, kind)
        file.write(buffer.getvalue()[:size])
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    return failing


def test_nothing_but_the_outcome_goes_to_a_pipe(folder, tmp_path):
    assert peek(folder, "--to", tmp_path).splitlines()[0] == "2 of 6 samples read cannot be loaded"


def test_keys_in_a_batch_are_those_of_its_samples_also_of_replacements(folder):
    fields = {"image": hr.Image(), "key": hr.Raw(source="__key__"), "label": hr.Label()}
    loader = hr.Loader(folder, fields, view=hr.Resize((8, 8)), batch_size=3, output="numpy", max_bad=1.0)
    ds = hr.open(folder)
    by_key = {ds.key(i): ds[i]["label"] for i in range(len(ds))}
    batches = list(loader)
    keys = [key for batch in batches for key in batch["key"]]
    assert len(keys) == len(ds)
    assert not {"dog/cut.jpg", "dog/<b>&no.png"} & set(keys)
    for batch in batches:
        assert [by_key[key] for key in batch["key"]] == batch["label"].tolist()
