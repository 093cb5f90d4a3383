"""The programs of examples/, each for a few steps, on data that they draw themselves."""

from __future__ import annotations

import importlib
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from processes import DEADLINE_S, source_paths

import headrace as hr

EXAMPLES = Path(__file__).parents[1] / "examples"
COUNT, HEIGHT = 38, 32  # 19 batches of pairs an epoch, and 16 a step: depth stops in mid-epoch
PROGRAMS = ["depth", "segmentation", "classify", "clip", "super_resolution"]
SMALL = {
    "depth": ["--size", "24", "32"],
    "segmentation": ["--scale", "0.1"],
    "classify": ["--size", "28"],
    "clip": ["--size", "28"],
    "super_resolution": ["--crop", "6"],
}


@pytest.fixture(scope="module", autouse=True)
def examples():
    """Where programs import what lies beside them. On one thread of torch's, since sums depend on their order."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    sys.path.insert(0, str(EXAMPLES))
    yield
    sys.path.remove(str(EXAMPLES))
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def scenes(tmp_path_factory):
    folder = tmp_path_factory.mktemp("examples") / "scenes"
    call("make_scenes", folder, "--count", COUNT, "--height", HEIGHT)
    call("make_captions", folder / "captions", "--count", 2 * COUNT, "--height", HEIGHT)
    return folder


def call(program, *args):
    """In this process: what torch costs to import is paid once."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", [program, *map(str, args)])
        importlib.import_module(program).main()


def arguments(program, scenes, *args):
    folder = scenes / {"classify": "classes", "clip": "captions", "super_resolution": "images"}.get(program, "")
    return [folder, *SMALL[program], "--device", "cpu", *args]


def start(command, *args):
    own = {name: value for name, value in os.environ.items() if name not in ("RANK", "WORLD_SIZE", "LOCAL_RANK")}
    return subprocess.Popen(
        [sys.executable, "-W", "error", *command, *map(str, args)],
        stdout=subprocess.PIPE,
        text=True,
        env=own | {"PYTHONPATH": os.pathsep.join(source_paths()), "OMP_NUM_THREADS": "1"},
    )


def losses(out):
    """What was printed of each step, by rank and step; a line that a kill has cut off is none."""
    lines = re.findall(r"^(?:rank (\d) )?step (\d+) (?:epoch \d+ )?loss (\d+\.\d+)(?: of (.*))?\n", out, re.MULTILINE)
    return {(int(rank or 0), int(step)): (loss, shapes) for rank, step, loss, shapes in lines}


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.py")), ids=lambda path: path.name)
def test_an_example_can_be_read_in_one_go(path):
    assert len(path.read_text().splitlines()) < 120


@pytest.mark.long
def test_what_is_drawn_comes_out_of_the_files(scenes):
    from scenes import CLASSES, IGNORE, draw

    pairs = hr.open(scenes / "list.txt", root=scenes / "pairs.tar", columns=["rgb", "depth"])
    batch = next(iter(hr.Loader(pairs, {"rgb": hr.Image(), "depth": hr.Depth()}, batch_size=8)))
    for number in range(8):
        scene = draw(number, HEIGHT, HEIGHT * 4 // 3)
        np.testing.assert_array_equal(batch["rgb"][number], scene.rgb.transpose(2, 0, 1))
        np.testing.assert_array_equal(batch["depth"][number, 0], scene.depth)
        np.testing.assert_array_equal(batch["depth_valid"][number, 0], scene.depth > 0)
    masks = hr.open({"image": scenes / "images", "mask": scenes / "masks"})
    values, shapes = set(), set()
    for batch in hr.Loader(masks, {"image": hr.Image(), "mask": hr.Mask()}, batch_size=1):
        values |= set(batch["mask"].unique().tolist())
        shapes.add(batch["mask"].shape)
    assert values == {*range(len(CLASSES)), IGNORE}
    assert len(shapes) > COUNT // 2


@pytest.mark.long
def test_depth_that_was_killed_goes_on_as_if_it_had_not_been(scenes, tmp_path, capsys):
    file = tmp_path / "killed.pt"
    running = start([EXAMPLES / "depth.py"], *arguments("depth", scenes, "--steps", 10_000, "--checkpoint", file))
    out = "".join(running.stdout.readline() for _ in range(2))
    running.send_signal(signal.SIGKILL)
    out += running.communicate(timeout=DEADLINE_S)[0]
    done = torch.load(file)
    assert running.returncode == -signal.SIGKILL

    steps = done["step"] + 2
    call("depth", *arguments("depth", scenes, "--steps", steps, "--checkpoint", file))
    resumed = capsys.readouterr().out
    call("depth", *arguments("depth", scenes, "--steps", steps, "--checkpoint", tmp_path / "whole.pt"))
    whole = capsys.readouterr().out
    assert list(losses(resumed)) == [(0, steps - 2), (0, steps - 1)]
    assert len(losses(whole)) == steps
    assert losses(out) | losses(resumed) == losses(whole)
    assert "samples/s" in resumed


@pytest.mark.long
def test_segmentation_on_two_ranks_goes_on_alone(scenes, tmp_path, capsys):
    launch = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", EXAMPLES / "segmentation.py"]
    file = tmp_path / "two.pt"
    running = start(launch, *arguments("segmentation", scenes, "--steps", 2, "--checkpoint", file))
    out = running.communicate(timeout=2 * DEADLINE_S)[0]
    assert running.returncode == 0
    call("segmentation", *arguments("segmentation", scenes, "--steps", 3, "--checkpoint", file))
    resumed = losses(capsys.readouterr().out)
    call("segmentation", *arguments("segmentation", scenes, "--steps", 3, "--checkpoint", tmp_path / "one.pt"))
    alone = losses(capsys.readouterr().out)

    two = losses(out)
    assert sorted(two) == [(0, 0), (0, 1), (1, 0), (1, 1)]
    assert list(resumed) == [(0, 2)]
    for step in range(2):
        assert two[0, step][1] == two[1, step][1] == alone[0, step][1].replace("4x3x", "2x3x")
    assert resumed[0, 2][1] == alone[0, 2][1]
    assert len({shape for _, shapes in alone.values() for shape in shapes.split()}) > 2


def test_classify(scenes, capsys):
    call("classify", *arguments("classify", scenes, "--epochs", 2))
    out = capsys.readouterr().out
    assert len(re.findall(r"^step \d loss", out, re.MULTILINE)) == 4
    assert len(re.findall(r"^epoch \d accuracy [01]\.\d+$", out, re.MULTILINE)) == 2
    assert "samples/s" in out


@pytest.mark.parametrize("program", ["clip", "super_resolution"])
def test_a_program_stopped_and_resumed_has_the_losses_of_one_run(program, scenes, tmp_path, capsys):
    file = tmp_path / "parts.pt"
    for steps in (2, 4):
        call(program, *arguments(program, scenes, "--steps", steps, "--checkpoint", file))
    parts = losses(capsys.readouterr().out)
    call(program, *arguments(program, scenes, "--steps", 4, "--checkpoint", tmp_path / "whole.pt"))
    assert parts == losses(capsys.readouterr().out)
    assert len(parts) == 4


def test_frames(tmp_path, capsys):
    call("frames", tmp_path / "clips", "--count", 16, "--size", 28, "--steps", 2, "--device", "cpu")
    assert len(losses(capsys.readouterr().out)) == 2


def test_cifar(tmp_path, capsys):
    call("cifar", tmp_path / "images.npz", "--count", 64, "--batch-size", 16, "--epochs", 1, "--device", "cpu")
    assert len(losses(capsys.readouterr().out)) == 4


def test_vision_language_has_equal_ranks(scenes, capsys):
    """Texts and pictures of a rank fit its rows; there are few samples, so not all rows are full."""
    tokens = []
    for rank in range(2):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(importlib.import_module("vision_language"), "ROW", 128)
            loader = importlib.import_module("vision_language").loader_of(scenes / "captions", 2, "cpu", rank, 2)
        tokens.append([int(batch["text"]["mask"].sum()) + 16 * int(batch["images_counts"].sum()) for batch in loader])
    sums = np.array(tokens)
    assert sums.max() <= 2 * 128
    assert np.median(sums.max(axis=0) / sums.mean(axis=0)) <= 1.03
    call("vision_language", scenes / "captions", "--steps", 2, "--rows", 2, "--device", "cpu")
    assert len(losses(capsys.readouterr().out)) == 2


@pytest.mark.long
def test_clip_on_two_ranks_goes_on_alone(scenes, tmp_path, capsys):
    launch = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", EXAMPLES / "clip.py"]
    file = tmp_path / "two.pt"
    running = start(launch, *arguments("clip", scenes, "--steps", 3, "--checkpoint", file))
    out = running.communicate(timeout=2 * DEADLINE_S)[0]
    assert running.returncode == 0
    call("clip", *arguments("clip", scenes, "--steps", 4, "--checkpoint", file))
    resumed = losses(capsys.readouterr().out)
    call("clip", *arguments("clip", scenes, "--steps", 4, "--checkpoint", tmp_path / "one.pt"))
    alone = losses(capsys.readouterr().out)

    two = losses(out)
    assert sorted(two) == [(rank, step) for rank in range(2) for step in range(3)]
    assert list(resumed) == [(0, 3)]
    for step in range(3):  # the loss of the whole batch is the mean of its parts'
        parts = [float(two[rank, step][0]) for rank in range(2)]
        assert np.mean(parts) == pytest.approx(float(alone[0, step][0]), rel=1e-3)
    assert float(resumed[0, 3][0]) == pytest.approx(float(alone[0, 3][0]), rel=1e-3)


@pytest.mark.long
@pytest.mark.parametrize("program", PROGRAMS)
def test_losses_fall(program, scenes, tmp_path, capsys):
    more = ["--epochs", 30] if program == "classify" else ["--steps", 40, "--checkpoint", tmp_path / "file.pt"]
    call(program, *arguments(program, scenes, *more))
    falling = [float(loss) for loss in re.findall(r"loss (\d+\.\d+)", capsys.readouterr().out)]
    assert np.mean(falling[-5:]) < 0.7 * np.mean(falling[:5])
