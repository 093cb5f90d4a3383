"""The comparison: the peer against its documented behaviour, the figures with a clock of our own, one real run."""

from __future__ import annotations

import io
import json
import os
import signal
import sys
import tarfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from processes import eventually, start_python
from rich.console import Console
from scipy.stats import kstest

from headrace.errors import DatasetError, EmptyDatasetError, HeadraceError, UsageError
from headrace.tools.bench import peer
from headrace.tools.bench.comparison import (
    METRICS,
    BenchEnvironment,
    BenchResult,
    available_images,
    check_cores,
    check_torch,
    cpu_model,
    digits,
    show,
)
from headrace.tools.bench.runs import BenchRun, cpu_s, measure, pss_bytes, run_rounds, tree
from headrace.tools.bench.settings import BenchSettings, RunWindow, list_images, samples, window

SETTINGS = BenchSettings(path="photos", threads=2)
HERE = BenchEnvironment(
    date="2026-01-02T03:04:05+00:00",
    cpu="Some CPU",
    cores=2,
    system="Linux",
    python="3.11.0",
    packages={"headrace": "0.1.0", "torch": "2.13.0", "pillow": None},
    codecs="libjpeg-turbo 2.1.5",
    pillow_libjpeg_turbo=None,
)


def run(images_per_s: float, *, cpu_s_per_1000: float = 1.0, memory: int | None = 100_000_000) -> BenchRun:
    images = 1000
    return BenchRun(
        images=images,
        wall_s=images / images_per_s,
        cpu_s=cpu_s_per_1000,
        first_batch_s=0.5,
        peak_memory_bytes=memory,
    )


def result(*, memory: int | None = 100_000_000) -> BenchResult:
    own, others = (1800, 2200, 2000), (500, 400, 600)
    pairs = [
        (("headrace", run(mine)), ("torch", run(theirs, cpu_s_per_1000=4.0, memory=memory)))
        for mine, theirs in zip(own, others, strict=True)
    ]
    runs = [named for pair in pairs for named in pair]
    return BenchResult(settings=SETTINGS, environment=HERE, available=12_345, runs=runs)


class TestSettings:
    def test_counts_whole_batches_for_at_least_the_images_asked_for(self) -> None:
        cut = window(replace(SETTINGS, images=6001, batch_size=256))
        assert cut == RunWindow(warm=6, counted=24, tail=6)

    def test_many_workers_get_a_longer_warm_up_and_more_batches(self) -> None:
        cut = window(replace(SETTINGS, threads=64, images=1))
        assert cut == RunWindow(warm=128, counted=256, tail=128)

    def test_a_run_is_one_long_epoch_over_every_image_of_a_small_dataset(self) -> None:
        taken = samples(600, SETTINGS)
        assert len(taken) == window(SETTINGS).batches * 256
        counts = np.bincount(taken, minlength=600)
        assert counts.max() - counts.min() <= 1

    def test_a_run_takes_evenly_picked_images_of_a_large_dataset(self) -> None:
        taken = np.unique(samples(1_000_000_000_000, replace(SETTINGS, images=3000)))
        assert len(taken) == 2000
        assert set(np.diff(taken)) == {500_000_000}


class FakeMeter:
    """A clock that goes on by one second a batch, CPU time at twice its pace, and memory as listed."""

    def __init__(self, memory: list[int | None]) -> None:
        self.batches = 0
        self.memory = iter(memory)

    def batch_sizes(self, count: int) -> Iterator[int]:
        for _ in range(count):
            self.batches += 1
            yield 10

    @property
    def readers(self) -> dict[str, Any]:
        return {
            "now_s": lambda: float(self.batches),
            "used_s": lambda: 2.0 * self.batches,
            "memory_bytes": lambda: next(self.memory),
        }


class TestMeasure:
    def test_counts_only_the_window(self) -> None:
        meter = FakeMeter([5, 9, 7, 6])
        measured = measure(lambda: meter.batch_sizes(9), RunWindow(warm=3, counted=5, tail=1), **meter.readers)
        assert measured == BenchRun(images=50, wall_s=5.0, cpu_s=10.0, first_batch_s=1.0, peak_memory_bytes=9)
        assert measured.images_per_s == 10
        assert measured.cpu_s_per_1000 == 200

    def test_memory_that_cannot_be_read_is_none(self) -> None:
        meter = FakeMeter([None, None])
        measured = measure(lambda: meter.batch_sizes(3), RunWindow(warm=1, counted=1, tail=1), **meter.readers)
        assert measured.peak_memory_bytes is None


class TestProcesses:
    def test_a_process_that_is_gone_has_nothing(self) -> None:
        child = start_python("pass")
        child.communicate()
        assert (tree(child.pid), cpu_s([child.pid]), pss_bytes([child.pid])) == ([child.pid], 0.0, None)

    def test_finds_this_process_and_its_children(self) -> None:
        child = start_python("import signal; signal.pause()")
        try:
            assert child.pid in tree(os.getpid())
            size = pss_bytes([os.getpid()])
            assert size is not None
            assert size > 10_000_000
            assert cpu_s([os.getpid()]) == pytest.approx(sum(os.times()[:4]), abs=0.5)
        finally:
            child.kill()
            child.communicate()


class TestListing:
    @pytest.mark.long
    def test_lists_a_folder_in_order(self, photos: Path) -> None:
        expected = tuple((str(path), None) for path in sorted(photos.rglob("*.jpg")))
        assert list_images(str(photos)).files == expected

    def test_lists_a_tar_and_a_pattern_of_tars(self, photo_tar: Path) -> None:
        with tarfile.open(photo_tar) as tar:
            names = tar.getnames()
        assert list_images(str(photo_tar)).files == tuple((str(photo_tar), name) for name in names)
        assert len(list_images(str(photo_tar.parent / "*.tar"))) == len(names)

    def test_a_file_that_is_no_tar_is_an_error(self, tmp_path: Path) -> None:
        (tmp_path / "captions.jsonl").write_text('{"image": "a.jpg"}\n' * 100)
        with pytest.raises(DatasetError, match=r"captions\.jsonl: expected a folder of images or an uncompressed tar"):
            list_images(str(tmp_path / "captions.jsonl"))

    def test_no_image_is_an_error(self, tmp_path: Path) -> None:
        (tmp_path / "notes.txt").write_text("text")
        with pytest.raises(EmptyDatasetError, match="expected images to compare on in"):
            list_images(str(tmp_path))


class TestPeer:
    """RandomResizedCrop is held to what torchvision documents: 8 to 100 % of the area, aspect ratios 3/4 to 4/3."""

    def test_windows_are_inside_and_follow_the_documented_distribution(self) -> None:
        torch.manual_seed(0)
        width, height = 4000, 4000  # square and large: hardly a draw is rejected for its shape below half the area
        shares, aspects = [], []
        for _ in range(3000):
            left, top, right, bottom = peer.crop_window(width, height)
            assert 0 <= left < right <= width
            assert 0 <= top < bottom <= height
            shares.append((right - left) * (bottom - top) / (width * height))
            aspects.append(np.log((right - left) / (bottom - top)))
        below_half = [(share - 0.08) / 0.42 for share in shares if share < 0.5]
        assert kstest(below_half, "uniform").pvalue > 0.01
        shape = [aspect for share, aspect in zip(shares, aspects, strict=True) if share < 0.5]
        assert kstest(shape, "uniform", args=(np.log(3 / 4), np.log(16 / 9))).pvalue > 0.01

    @pytest.mark.parametrize(
        ("size", "expected"),
        [
            ((1000, 10), (493, 0, 506, 10)),  # far too wide: the central window of ratio 4/3
            ((10, 1000), (0, 493, 10, 506)),  # far too tall: of ratio 3/4
        ],
    )
    def test_falls_back_to_the_centre(self, size: tuple[int, int], expected: tuple[int, ...]) -> None:
        torch.manual_seed(0)
        assert peer.crop_window(*size) == expected

    def test_flips_every_second_image(self) -> None:
        torch.manual_seed(0)
        image = Image.fromarray(np.array([[[0, 0, 0], [255, 255, 255]]], np.uint8))
        flipped = [peer.flip(image).getpixel((0, 0)) == (255, 255, 255) for _ in range(1000)]
        assert 450 < sum(flipped) < 550

    def test_float_output_is_normalised_as_imagenet_is(self) -> None:
        colour = np.array([[[0, 128, 255]]], np.uint8)
        tensor = peer.to_tensor(Image.fromarray(colour), "float32")
        expected = (colour / 255 - [0.485, 0.456, 0.406]) / [0.229, 0.224, 0.225]
        assert tensor.dtype == torch.float32
        np.testing.assert_allclose(tensor.numpy().transpose(1, 2, 0), expected, rtol=1e-5)

    def test_uint8_output_is_the_image(self) -> None:
        pixels = np.random.default_rng(0).integers(0, 256, (3, 5, 3), np.uint8)
        assert np.array_equal(peer.to_tensor(Image.fromarray(pixels), "uint8").numpy(), pixels.transpose(2, 0, 1))

    def test_reads_the_same_from_a_folder_and_a_tar(self, photos: Path, photo_tar: Path) -> None:
        indices = np.arange(60)
        from_folder = peer.Photos(list_images(str(photos)), indices, "uint8")
        from_tar = peer.Photos(list_images(str(photo_tar)), indices, "uint8")
        for number in (0, 11, 59):
            torch.manual_seed(number)
            expected = from_folder[number]
            torch.manual_seed(number)
            assert torch.equal(from_tar[number], expected)
            assert expected.shape == (3, 224, 224)
        for tar, _ in from_tar.tars.values():
            tar.close()


class TestPreflight:
    def test_counts_the_images_of_a_folder_and_a_tar(self, photos: Path, photo_tar: Path) -> None:
        assert available_images(BenchSettings(path=str(photos), threads=1)) == 60
        assert available_images(BenchSettings(path=str(photo_tar), threads=1)) == 60

    def test_more_than_one_image_a_sample_is_refused(self, tmp_path: Path) -> None:
        buffer = io.BytesIO()
        Image.new("RGB", (8, 8)).save(buffer, "PNG")
        with tarfile.open(tmp_path / "pairs.tar", "w") as tar:
            for name in ("a.rgb.png", "a.depth.png", "b.rgb.png", "b.depth.png"):
                member = tarfile.TarInfo(name)
                member.size = buffer.tell()
                tar.addfile(member, io.BytesIO(buffer.getvalue()))
        with pytest.raises(UsageError, match=r"expected one image a sample .* finds 2 samples, and 4 files"):
            available_images(BenchSettings(path=str(tmp_path / "pairs.tar"), threads=1))

    def test_more_threads_than_cores_are_refused(self) -> None:
        with pytest.raises(UsageError, match=r"expected at most \d+ threads, .*; got 100000"):
            check_cores(100_000)

    def test_torch_missing_names_the_command(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
        with pytest.raises(UsageError, match="pip install torch"):
            check_torch()


def worker(source: str) -> list[str]:
    return [sys.executable, "-c", source]


class TestRounds:
    def test_takes_the_loaders_in_turn(self) -> None:
        echo = worker(
            "import json, sys; task = json.loads(sys.argv[1]); print('a word from a library')\n"
            "figures = dict(images=1 + task['round'], wall_s=1, cpu_s=1, first_batch_s=1, peak_memory_bytes=None)\n"
            "print(json.dumps(figures))"
        )
        runs = list(run_rounds(replace(SETTINGS, rounds=2), command=echo))
        assert [(loader, run.images) for loader, run in runs] == [
            ("headrace", 1),
            ("torch", 1),
            ("headrace", 2),
            ("torch", 2),
        ]

    def test_a_worker_whose_parent_is_gone_already_does_not_start(self) -> None:
        task = {"loader": "torch", "round": 0, "parent": 1, "settings": {}}
        with pytest.raises(HeadraceError, match="process 1, which asked for this run, has ended"):
            next(
                run_rounds(
                    SETTINGS,
                    command=worker(f"""
import json, sys
sys.argv = ["worker", {json.dumps(task)!r}]
from headrace.tools.bench.runs import main
main()
"""),
                )
            )

    def test_a_worker_that_fails_is_quoted(self) -> None:
        with pytest.raises(HeadraceError, match="the headrace run ended with exit code 3: no such thing"):
            next(
                run_rounds(SETTINGS, command=worker("import sys; print('no such thing', file=sys.stderr); sys.exit(3)"))
            )

    def test_a_worker_that_is_killed_is_named(self) -> None:
        with pytest.raises(HeadraceError, match="the headrace run ended with exit code -9: it said nothing"):
            next(run_rounds(SETTINGS, command=worker("import os; os.kill(os.getpid(), 9)")))

    def test_what_a_worker_started_ends_with_it(self, tmp_path: Path) -> None:
        orphan = tmp_path / "pid"
        source = (
            "import subprocess, sys, pathlib; child = subprocess.Popen(['sleep', '600'], stdout=subprocess.DEVNULL,"
            f" stderr=subprocess.DEVNULL); pathlib.Path({str(orphan)!r}).write_text(str(child.pid)); sys.exit('left')"
        )
        with pytest.raises(HeadraceError, match="left"):
            next(run_rounds(SETTINGS, command=worker(source)))
        assert eventually(lambda: ended(int(orphan.read_text())))

    @pytest.mark.long
    def test_a_worker_ends_with_the_process_that_started_it(self, photos: Path) -> None:
        starter = start_python(
            """
            import json, os, signal, subprocess, sys
            settings = dict(path=sys.argv[1], threads=1, images=10**6)
            task = dict(loader="torch", round=0, parent=os.getpid(), settings=settings)
            command = [sys.executable, "-m", "headrace.tools.bench.runs", json.dumps(task)]
            print(subprocess.Popen(command).pid, flush=True)
            signal.pause()
            """,
            photos,
        )
        try:
            assert starter.stdout is not None
            pid = int(starter.stdout.readline())
            assert eventually(lambda: len(tree(pid)) > 1), "expected the peer's worker process"
            processes = tree(pid)
        finally:
            starter.send_signal(signal.SIGKILL)
            starter.communicate()
        assert eventually(lambda: all(ended(one) for one in processes))


def ended(pid: int) -> bool:
    """Whether a process is gone, or waits only to be reaped by whoever adopted it."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


class TestResult:
    def test_takes_medians_and_says_how_many_times_better(self) -> None:
        speed, cpu, first, memory = METRICS
        assert result().median("headrace", speed) == pytest.approx(2000)
        assert result().median("torch", speed) == pytest.approx(500)
        assert [result().gain(metric) for metric in (speed, cpu, first, memory)] == pytest.approx([4, 4, 1, 1])
        assert result().verdict == "Headrace: 4.0 × torch DataLoader at 2 cores"

    def test_one_core_is_singular(self) -> None:
        assert replace(result(), settings=replace(SETTINGS, threads=1)).verdict.endswith("at 1 core")

    def test_what_was_not_measured_is_null(self) -> None:
        document = json.loads(json.dumps(result(memory=None).document()))
        assert document["median"]["torch"]["peak_memory_bytes"] is None
        assert document["gain"]["peak_memory_bytes"] is None
        assert document["environment"]["packages"]["pillow"] is None

    def test_the_document_has_every_run_and_what_it_was_measured_on(self) -> None:
        document = json.loads(json.dumps(result().document()))
        assert set(document) == {
            "schema",
            "verdict",
            "settings",
            "images_available",
            "images_used",
            "environment",
            "gain",
            "median",
            "runs",
        }
        assert document["schema"] == 1
        assert [entry["loader"] for entry in document["runs"]] == ["headrace", "torch"] * 3
        assert (document["images_available"], document["images_used"]) == (12_345, 2000)
        assert document["settings"]["batch_size"] == 256

    @pytest.mark.parametrize(
        ("figure", "text"),
        [(None, "–"), (0.8512, "0.85"), (4.06, "4.1"), (99.96, "100.0"), (132.4, "132"), (2620.3, "2,620")],
    )
    def test_writes_as_many_digits_as_a_run_bears(self, figure: float | None, text: str) -> None:
        assert digits(figure) == text


def shown(what: BenchResult, *, encoding: str = "utf-8", width: int = 120) -> str:
    raw = io.BytesIO()
    with io.TextIOWrapper(raw, encoding=encoding) as out:
        show(what, Console(file=out, width=width))
        out.flush()
        return raw.getvalue().decode(encoding)


class TestTable:
    def test_begins_with_the_verdict_and_ends_with_the_conditions(self) -> None:
        lines = shown(result()).splitlines()
        assert lines[0] == "Headrace: 4.0 × torch DataLoader at 2 cores"
        speed = next(line for line in lines if "images/s" in line)
        assert "2,000 (1,800–2,200)" in speed
        assert "500 (400–600)" in speed
        assert "4.0 ×" in speed
        assert "2,000 of 12,345 images in photos; 1,000 counted a run." in lines[-2]
        assert lines[-1] == "Some CPU, Python 3.11.0, headrace 0.1.0, torch 2.13.0, 2026-01-02T03:04:05+00:00."

    def test_a_dash_stands_for_what_was_not_measured(self) -> None:
        memory = next(line for line in shown(result(memory=None)).splitlines() if "peak memory" in line)
        assert memory.count(" – ") == 2

    def test_a_terminal_without_unicode_gets_ascii(self) -> None:
        text = shown(result(memory=None), encoding="ascii")
        assert text.startswith("Headrace: 4.0 x torch DataLoader at 2 cores")
        assert "2,000 (1,800-2,200)" in text

    def test_fits_a_terminal_of_80_columns(self) -> None:
        table = [line for line in shown(result(), width=80).splitlines() if line.startswith(("┃", "│"))]
        assert len(table) == 1 + len(METRICS), "expected no cell to wrap"


def test_reads_the_name_of_the_cpu() -> None:
    assert cpu_model("processor\t: 0\nmodel name\t: AMD EPYC 9\nmodel name\t: other\n") == "AMD EPYC 9"
    assert cpu_model("CPU architecture: 8\n") is None


@pytest.mark.parametrize("output", [pytest.param("uint8", marks=pytest.mark.long), "float32"])
@pytest.mark.long
def test_both_loaders_run_on_a_tar(photo_tar: Path, output: str) -> None:
    settings = BenchSettings(path=str(photo_tar), threads=1, batch_size=8, rounds=1, images=16, output=output)
    runs = dict(run_rounds(settings))
    assert list(runs) == ["headrace", "torch"]
    for measured in runs.values():
        assert measured.images == 8 * window(settings).counted
        assert measured.wall_s > 0
        assert measured.cpu_s > 0
        assert measured.peak_memory_bytes is not None
        assert measured.peak_memory_bytes > 50_000_000
