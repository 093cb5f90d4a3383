"""The command line: what goes where, the exit codes, and what is said when something is wrong."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from PIL import Image
from processes import run_python
from typer.testing import CliRunner

import headrace
from headrace.tools.bench.runs import BenchRun
from headrace.tools.bench.settings import BenchSettings
from headrace.tools.command_line import app, main
from headrace.tools.demo_dataset import natural_image

RUN = BenchRun(images=1000, wall_s=0.5, cpu_s=1.0, first_batch_s=0.1, peak_memory_bytes=None)
SLOWER = BenchRun(images=1000, wall_s=2.0, cpu_s=4.0, first_batch_s=0.3, peak_memory_bytes=None)
VERDICT = "Headrace: 4.0 × torch DataLoader at 1 core"


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[BenchSettings]:
    """What would have been measured; the figures are given."""
    seen: list[BenchSettings] = []

    def run_rounds(settings: BenchSettings) -> Iterator[tuple[str, BenchRun]]:
        seen.append(settings)
        for _ in range(settings.rounds):
            yield "headrace", RUN
            yield "torch", SLOWER

    monkeypatch.setattr("headrace.tools.bench.runs.run_rounds", run_rounds)
    return seen


def test_prints_the_verdict_first(photos: Path, asked: list[BenchSettings]) -> None:
    result = CliRunner().invoke(app, ["bench", str(photos), "--threads", "1", "--dtype", "float32", "--rounds", "2"])
    assert result.exit_code == 0
    assert result.stdout.strip().startswith(VERDICT)
    assert "60 of 60 images" in result.stdout
    assert asked == [BenchSettings(path=str(photos), threads=1, output="float32", rounds=2)]


def test_json_to_standard_output_stands_alone(photos: Path, asked: list[BenchSettings]) -> None:
    result = CliRunner().invoke(app, ["bench", str(photos), "--threads", "1", "--json", "-"])
    assert result.exit_code == 0
    assert json.loads(result.stdout)["verdict"] == VERDICT
    assert VERDICT in result.stderr


def test_json_to_a_file_leaves_the_table(photos: Path, asked: list[BenchSettings], tmp_path: Path) -> None:
    out = tmp_path / "figures.json"
    result = CliRunner().invoke(app, ["bench", str(photos), "--threads", "1", "--json", str(out)])
    assert VERDICT in result.stdout
    assert json.loads(out.read_text())["verdict"] == VERDICT


def test_the_demo_makes_its_images_once(
    asked: list[BenchSettings], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADRACE_CACHE", str(tmp_path / "cache"))
    photograph = tmp_path / "photos" / "one.jpg"
    photograph.parent.mkdir()
    Image.fromarray(natural_image(1200, 900, seed=0)).save(photograph, quality=98)
    arguments = ["demo", "--photos", str(photograph.parent), "--count", "9", "--threads", "1"]
    first = CliRunner().invoke(app, arguments)
    assert first.exit_code == 0, first.output
    assert f"cut from photographs in {photograph.parent}" in " ".join(first.stdout.split())
    assert "9 of 9 images" in first.stdout
    files = sorted(Path(asked[0].path).rglob("*.jpg"))
    assert len(files) == 9
    times = [file.stat().st_mtime_ns for file in files]
    assert CliRunner().invoke(app, arguments).exit_code == 0
    assert [file.stat().st_mtime_ns for file in files] == times


def test_version() -> None:
    result = CliRunner().invoke(app, ["--version"])
    assert (result.exit_code, result.stdout) == (0, f"headrace {headrace.__version__}\n")


@pytest.mark.one_in(2)
@pytest.mark.parametrize(
    "arguments",
    [
        ["bench"],
        ["bench", "x", "--threads", "0"],
        ["bench", "x", "--batch-size", "0"],
        ["bench", "x", "--rounds", "none"],
        ["bench", "x", "--dtype", "float64"],
        ["bench", "x", "--no-such-option"],
        ["no-such-verb"],
    ],
)
def test_wrong_use_is_exit_code_2(arguments: list[str]) -> None:
    assert CliRunner().invoke(app, arguments).exit_code == 2


def test_a_file_too_small_for_an_index_is_no_index_that_was_there(tmp_path: Path) -> None:
    for name in ("a.csv", "b.csv"):
        (tmp_path / name).write_text("image,label\n1.jpg,0\n")
    result = CliRunner().invoke(app, ["index", str(tmp_path / "a.csv"), str(tmp_path / "b.csv")])
    first, _, total = result.stdout.splitlines()
    assert first == f"{tmp_path}/a.csv: no index needed, 1 members, 1 samples, 20 bytes"
    assert total.startswith("2 files: 0 built, 0 already there, 2 too small to need one, 0 failed; ")


def call(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run `headrace ARGUMENTS` as a process."""
    source = "import sys; from headrace.tools.command_line import main; sys.argv[0] = 'headrace'; main()"
    return subprocess.run([sys.executable, "-c", source, *arguments], capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["bench", "/no/such/place"], "expected a folder, an archive or a manifest, got nothing"),
        (["demo", "--photos", "/no/such/place"], "expected a folder of photographs at /no/such/place"),
    ],
)
@pytest.mark.long
def test_an_error_is_one_message_without_a_traceback(arguments: list[str], words: str) -> None:
    done = call(*arguments)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("headrace: ")
    assert words in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.long
def test_a_path_that_is_no_text_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As standard output is in most locales."""
    monkeypatch.setenv("PYTHONIOENCODING", "utf-8:strict")
    path = tmp_path / os.fsdecode(b"\xff.csv")
    path.write_text("image\n1.jpg\n")
    done = call("index", str(path))
    assert (done.returncode, done.stderr) == (0, "")
    assert "/\\udcff.csv: no index needed, 1 members" in done.stdout


def test_figures_that_cannot_be_written_are_an_error(
    photos: Path,
    asked: list[BenchSettings],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    where = tmp_path / "gone" / "figures.json"
    monkeypatch.setattr(sys, "argv", ["headrace", "bench", str(photos), "--threads", "1", "--json", str(where)])
    with pytest.raises(SystemExit) as end:
        main()
    assert end.value.code == 1
    assert f"expected a file to write, got {where} (No such file or directory)" in capsys.readouterr().err


@pytest.mark.long
def test_help_needs_neither_torch_nor_a_table() -> None:
    code, out, error = run_python(
        """
        import sys
        from typer.testing import CliRunner
        from headrace.tools.command_line import app
        result = CliRunner().invoke(app, ["--help"])
        assert "bench" in result.stdout and "demo" in result.stdout, result.output
        print([name for name in ("torch", "headrace.bench", "headrace.demo") if name in sys.modules])
        """
    )
    assert (code, out.strip()) == (0, "[]"), error
