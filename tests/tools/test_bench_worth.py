"""`headrace bench --worth`: what the figures say, by figures that are made, and each side once on real files."""

from __future__ import annotations

import io
import json
import math
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from rich.console import Console
from scipy import stats
from test_bench import HERE, SETTINGS, run
from typer.testing import CliRunner

from headrace.errors import UsageError
from headrace.tools.bench.peer import KEPT_IMAGES, SIDES, DecodedPhotos, DroppedPhotos, Photos, can_be_dropped
from headrace.tools.bench.runs import BenchRun
from headrace.tools.bench.settings import BenchSettings, list_images, samples, window
from headrace.tools.bench.worth import (
    COMPARISONS,
    Worth,
    WorthVerdict,
    preflight,
    rounds,
    show_worth,
    sides,
    verdict,
    why_not_measured,
    worth,
)
from headrace.tools.command_line import app

ASKED = replace(SETTINGS, rounds=5, batch_size=4, images=8)
NOT_MEASURED = {"pinning": "no CUDA device"}


class TestVerdict:
    def test_is_the_interval_of_the_mean_logarithm(self) -> None:
        without, with_it = [100.0, 104.0, 98.0, 101.0], [151.0, 149.0, 155.0, 147.0]
        ratios = [math.log(after / before) for before, after in zip(without, with_it, strict=True)]
        low, high = stats.t.interval(0.95, 3, loc=sum(ratios) / 4, scale=stats.sem(ratios))
        found = verdict(without, with_it)
        assert found.ratio == pytest.approx(math.exp(sum(ratios) / 4))
        assert (found.low, found.high) == pytest.approx((math.exp(low), math.exp(high)), rel=1e-3)

    @pytest.mark.parametrize(
        ("found", "pays", "text"),
        [
            (WorthVerdict(1.8, 1.7, 1.9), True, "pays here: 1.80 × (1.70 to 1.90)"),
            (WorthVerdict(1.02, 0.99, 1.05), False, "does not pay here: 1.02 ×, within the noise of 3 %"),
            (WorthVerdict(1.01, 1.005, 1.015), False, "does not pay here: 1.01 ×, within the noise of 2 %"),
            (WorthVerdict(0.8, 0.75, 0.85), False, "costs here: 0.80 × (0.75 to 0.85)"),
            (WorthVerdict(0.5, 0.3, 0.8), False, "costs here: 0.50 × (0.30 to 0.80)"),
            (
                WorthVerdict(1.3, 0.8, 2.1),
                None,
                "cannot be told: 1.30 × (0.80 to 2.10); more --rounds tell",
            ),
            (WorthVerdict(1.3, 0.0, math.inf), None, "cannot be told: 1.30 × in one round; more --rounds tell"),
        ],
    )
    def test_says_whether_it_pays(self, found: WorthVerdict, pays: bool | None, text: str) -> None:
        assert found.pays is pays
        assert str(found) == text

    def test_one_round_tells_nothing(self) -> None:
        assert verdict([100.0], [300.0]).pays is None


class TestRounds:
    def test_takes_every_side_once_a_round(self) -> None:
        asked: list[tuple[str, int]] = []

        def made(settings: BenchSettings, name: str, number: int) -> BenchRun:
            asked.append((name, number))
            return run(100.0)

        measured = list(rounds(replace(ASKED, rounds=2), NOT_MEASURED, run=made))
        assert [name for name, _ in measured] == sides(NOT_MEASURED) * 2
        assert Counter(asked).most_common(1)[0][1] == 1
        assert not {"pageable-copies", "pinned-copies"} & {name for name, _ in asked}

    def test_every_side_of_a_comparison_is_there(self) -> None:
        assert set(sides([])) == set(SIDES)
        assert len({one.key for one in COMPARISONS}) == len(COMPARISONS)

    def test_says_what_cannot_be_measured_here(self) -> None:
        assert why_not_measured(ASKED, has_cuda=True, can_be_dropped=True) == {}
        found = why_not_measured(replace(ASKED, threads=1), has_cuda=False, can_be_dropped=False)
        assert found["pinning"] == "no CUDA device"
        assert found["threads"] == "there is one core"
        assert "they lie in RAM as it is" in found["page-cache"]

    def test_is_not_asked_of_a_loader_of_the_users(self) -> None:
        with pytest.raises(UsageError, match="expected one of them"):
            preflight(replace(ASKED, against="train:make"))


class TestSides:
    @pytest.mark.long
    def test_keeps_the_images_that_it_would_decode(self, photos: Path) -> None:
        listing = list_images(str(photos))
        indices = np.array([3, 1, 3, 2])
        kept, plain = (kind(listing, indices, "uint8") for kind in (DecodedPhotos, Photos))
        for number in range(4):
            torch.manual_seed(number)
            expected = plain[number]
            torch.manual_seed(number)
            assert torch.equal(kept[number], expected)
        assert len(kept.kept) == 3

    def test_reads_the_same_of_files_that_were_dropped(self, photos: Path, photo_tar: Path) -> None:
        for path in (photos, photo_tar):
            listing = list_images(str(path))
            dropped, plain = (kind(listing, np.arange(3), "uint8") for kind in (DroppedPhotos, Photos))
            torch.manual_seed(0)
            expected = plain[2]
            torch.manual_seed(0)
            assert torch.equal(dropped[2], expected)
            for tar, _ in [*dropped.tars.values(), *plain.tars.values()]:
                tar.close()

    def test_a_file_in_memory_cannot_be_dropped(self) -> None:
        shared = Path("/dev/shm")
        if not shared.is_dir():
            pytest.skip("no /dev/shm")
        path = shared / "headrace-test-worth"
        path.write_bytes(b"1" * 5000)
        try:
            assert not can_be_dropped(str(path))
        finally:
            path.unlink()

    @pytest.mark.parametrize(
        "name",
        ["inline", "thread-workers", "one-thread", "all-threads", "decoded", "dropped", "shrunk", "shrunk-kept"],
    )
    @pytest.mark.one_in(9)
    @pytest.mark.long
    def test_gives_whole_batches_for_its_window(self, name: str, photos: Path) -> None:
        asked = replace(ASKED, path=str(photos), threads=1)
        sizes = list(SIDES[name](asked, 0))
        assert sizes == [4] * window(asked).batches

    @pytest.mark.long
    @pytest.mark.parametrize("name", ["one-worker", "process-workers"])
    def test_gives_them_from_processes_too(self, name: str, photos: Path) -> None:
        asked = replace(ASKED, path=str(photos))
        assert list(SIDES[name](asked, 0)) == [4] * window(asked).batches

    def test_a_large_dataset_is_read_in_part(self) -> None:
        assert len(set(samples(100_000, replace(ASKED, images=5000), most=KEPT_IMAGES))) == KEPT_IMAGES


def found() -> Worth:
    rates: dict[str, list[float]] = {name: [100.0, 101.0, 99.0, 100.0, 100.5] for name in sides(NOT_MEASURED)}
    rates["one-worker"] = [180.0, 181.0, 182.0, 179.0, 180.0]
    rates["process-workers"] = [80.0, 81.0, 79.0, 80.0, 80.0]
    return Worth(settings=ASKED, environment=HERE, rates=rates, not_measured=NOT_MEASURED)


def shown(what: Worth, *, encoding: str = "utf-8", width: int = 100) -> str:
    raw = io.BytesIO()
    with io.TextIOWrapper(raw, encoding=encoding) as out:
        show_worth(what, Console(file=out, width=width))
        out.flush()
        return raw.getvalue().decode(encoding)


class TestReport:
    def test_begins_with_what_does_not_pay(self) -> None:
        text = shown(found())
        assert " ".join(text.split()).startswith(
            "Does not pay here: Headrace on all cores, several batches ahead; worker processes in place of threads;"
        )
        assert "one worker ahead of the training loop: pays here: 1.80 ×" in text
        assert "worker processes in place of threads: costs here: 0.80 ×" in text
        assert "pinned memory: not measured: no CUDA device" in text
        assert "batch 4, and no training; 2 cores; 5 rounds" in " ".join(text.split())

    def test_a_step_that_waits_is_told(self) -> None:
        waits = replace(found(), settings=replace(ASKED, step_ms=20.0))
        assert "then a step of 20 ms that waits" in " ".join(shown(waits).split())

    def test_a_terminal_without_unicode_gets_ascii(self) -> None:
        assert "1.80 x" in shown(found(), encoding="ascii", width=60)

    def test_nothing_idle_is_said_so(self) -> None:
        rates = {name: [1.0] * 5 for name in SIDES}
        faster = {one.with_it: [3.0 + number] * 5 for number, one in enumerate(COMPARISONS) if one.key != "page-cache"}
        all_pay = Worth(settings=ASKED, environment=HERE, rates=rates | faster, not_measured={"page-cache": "in RAM"})
        assert all_pay.headline == "Nothing was shown not to pay here."

    def test_the_document_has_every_comparison(self) -> None:
        document = json.loads(json.dumps(found().document()))
        assert [one["key"] for one in document["comparisons"]] == [one.key for one in COMPARISONS]
        by_key = {one["key"]: one for one in document["comparisons"]}
        assert by_key["asynchronous"]["pays"] is True
        assert by_key["pinning"] == {
            "key": "pinning",
            "basis": by_key["pinning"]["basis"],
            "not_measured": "no CUDA device",
            "ratio": None,
            "low": None,
            "high": None,
            "pays": None,
            "images_per_s": {"pageable-copies": [], "pinned-copies": []},
        }

    def test_the_command_measures_and_tells(self, photos: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        seen: list[BenchSettings] = []

        def made(settings: BenchSettings, name: str, number: int) -> BenchRun:
            seen.append(settings)
            return run(100.0 + number)

        monkeypatch.setattr("headrace.tools.bench.worth.rounds.__kwdefaults__", {"run": made})
        options = ["--worth", "--threads", "1", "--rounds", "2", "--step", "5", "--json", "-"]
        result = CliRunner().invoke(app, ["bench", str(photos), *options])
        assert result.exit_code == 0, result.output
        assert {(one.batch_size, one.images, one.step_ms) for one in seen} == {(32, 400, 5.0)}
        assert "not_measured" in json.loads(result.stdout)["comparisons"][1]

    def test_a_step_without_it_is_refused(self, photos: Path) -> None:
        result = CliRunner().invoke(app, ["bench", str(photos), "--threads", "1", "--step", "5"])
        assert isinstance(result.exception, UsageError)
        assert str(result.exception).startswith("--step: expected --worth beside it")


def test_what_the_rounds_come_to_is_by_side() -> None:
    came = worth(ASKED, NOT_MEASURED, [("inline", 1.0), ("decoded", 2.0), ("inline", 3.0), ("decoded", 4.0)])
    assert came.rates == {"inline": [1.0, 3.0], "decoded": [2.0, 4.0]}
