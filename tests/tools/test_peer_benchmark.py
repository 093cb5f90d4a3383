"""benchmarks/peers: what is kept, what is run again, and that a loader that fails is shown with its reason."""

import json
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest
from PIL import Image

PEERS = Path(__file__).parents[2] / "benchmarks" / "peers"
MARKS = ("machine", "throughput", "start_up", "conversion", "differences", "ahead")


def script(name, *arguments):
    command = [sys.executable, PEERS / name, *map(str, arguments)]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


def photographs_and_environment(tmp_path):
    """Write three photographs, and an environment whose Python is this one. Return the arguments that name them."""
    photos = tmp_path / "photos" / "class"
    photos.mkdir(parents=True)
    for index in range(3):
        Image.linear_gradient("L").convert("RGB").save(photos / f"{index}.jpg")
    python = tmp_path / "environment" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    python.chmod(0o755)
    return [photos.parent, "--environment", tmp_path / "environment", "--work", tmp_path / "work"]


def run(peer, images_per_s, *, beside=None, **keys):
    keys = {"kind": "throughput", "task": "train-uint8", "round": 0, "peer": peer, **keys}
    if beside is not None:
        keys["beside"] = beside
    sizes = dict.fromkeys(("memory_bytes", "imported_bytes", "memory_file_bytes"), 5e6)
    figures = {"images_per_s": images_per_s, "cpu_ms_per_image": 0.5, "first_batch_s": 0.25, "import_s": 1.5}
    return {**keys, **figures, **sizes, "blank_images": 0}


@pytest.fixture
def results(tmp_path):
    """Three rounds of one peer, one of a faster one, and one that failed."""
    rounds = [(100, 25), (200, 40), (300, 900)]
    runs = [run("headrace", own, beside="dali", round=i) for i, (own, _) in enumerate(rounds)]
    runs += [run("dali", peer, round=i) for i, (_, peer) in enumerate(rounds)]
    runs += [run("headrace", 400, beside="ffcv-raw"), run("ffcv-raw", 1000)]
    failed = {"kind": "throughput", "task": "train-uint8", "round": 0, "peer": "spdl", "failed": "OSError: no <FFmpeg>"}
    kept = {"kind": "prepare", "peer": "ffcv-raw", "dataset": "photos-1000", "prepare_s": 2.0, "prepared_bytes": 5000}
    facts = {"cpu": "A CPU", "cores": 2, "system": "Linux", "python": "3.11", "date": "2030-01-02"}
    facts |= {"versions": {"x": "1"}, "photos": 500, "bytes_a_photo": 7000}
    path = tmp_path / "results.json"
    path.write_text(json.dumps({"facts": facts, "runs": [*runs, failed, kept]}))
    return path


def test_the_page_has_medians_and_ratios_and_every_reason(results, tmp_path):
    page = tmp_path / "page.md"
    page.write_text("\n".join(f"BEFORE\n<!-- {mark} -->\nOLD\n<!-- /{mark} -->\nAFTER" for mark in MARKS))
    script("page.py", results, page)
    text = page.read_text()
    assert "500 photographs of 7,000 bytes" in text
    assert "| dali | 40 | 5.00 × | 0.50 | 0.25 s | 5 MB | 5 MB | 5 MB |" in text
    assert "| headrace | 250 |  | " in text
    assert text.index("| ffcv-raw | 1,000 |") < text.index("| headrace | 250 |") < text.index("| dali | 40 |")
    assert "- spdl: failed: OSError: no <FFmpeg>" in text
    assert "- turboloader: not comparable: " in text
    assert "- grain: not run" in text
    assert "| ffcv-raw | a .beton of pixels | 2.0 s | 5 |" in text
    assert "- **images/s**: ffcv-raw 4.00 × (train-uint8)\n- **CPU an image**: none" in text
    assert [text.count(word) for word in ("BEFORE", "AFTER", "OLD")] == [len(MARKS), len(MARKS), 0]
    script("page.py", results, page)
    assert page.read_text() == text


def test_a_chart_draws_a_bar_for_each_loader_with_figures(results, tmp_path):
    chart = tmp_path / "chart.svg"
    script("chart.py", "throughput", results, chart, "train-uint8")
    bars = [element for element in ElementTree.parse(chart).iter() if element.tag.endswith("rect")]
    assert [(bar.get("class"), bar.get("width")) for bar in bars] == [
        ("decoded", "480"),
        ("own", "120"),
        ("peer", "19"),
    ]


@pytest.mark.long
def test_what_has_finished_is_kept_and_what_failed_is_tried_again(tmp_path):
    where = photographs_and_environment(tmp_path)
    options = ["--rounds", 1, "--counted", 1, "--tasks", "train-uint8", "--peers", "dali", "ffcv-jpeg"]
    arguments = ["throughput", *where, *options]
    lines = script("run.py", *arguments).splitlines()
    assert [line.split(" ")[:5] for line in lines] == [
        ["prepare", "ffcv-jpeg", "photos-1792", "failed", "there"],
        ["throughput", "train-uint8", "0", "headrace", "dali"],
        ["throughput", "train-uint8", "0", "dali", "failed"],
    ]
    unconverted, own, failed = json.loads((tmp_path / "work" / "results.json").read_text())["runs"]
    assert unconverted["failed"].endswith("environment-ffcv/bin/python: benchmarks/peers/install.sh makes it")
    assert own.get("failed") is None
    assert own["images_per_s"] > 0
    assert own["cpu_ms_per_image"] >= 0
    assert own["memory_bytes"] >= own["imported_bytes"] > 0
    assert failed["failed"].startswith("ModuleNotFoundError: No module named 'nvidia")
    again = script("run.py", *arguments).splitlines()
    tried = [line.partition(" failed")[0] for line in again]
    assert tried == ["prepare ffcv-jpeg photos-1792", "throughput train-uint8 0 dali"]


@pytest.mark.long
def test_recipes_tell_ratios_and_why_a_peer_has_none(tmp_path):
    where = photographs_and_environment(tmp_path)
    options = ["--rows", "bare", "--peers", "dali", "--rounds", 1, "--batch-size", 4]
    page = script("../recipes.py", *where, *options, "--share", 0.1)
    assert "3 photographs of " in page
    (own,) = json.loads((tmp_path / "work" / "recipes.json").read_text())["runs"][:1]
    assert f"| headrace | {own['images_per_s']:,.0f} | " in page
    assert "- dali: failed: ModuleNotFoundError: No module named 'nvidia" in page
