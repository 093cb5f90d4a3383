"""The referee between two loaders: planted differences are found, equal loaders are equal."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from made_loaders import (
    SAMPLES,
    Pictures,
    cropped,
    flipped,
    flips_lost_at_the_same_seed,
    loader,
    picture,
    reference,
    same,
)
from torch.utils.data import DataLoader
from typer.testing import CliRunner

from headrace.compare import CODES, Judgement, judge, observe
from headrace.compare.observation import leaves_of
from headrace.errors import UsageError
from headrace.tools.command_line import app
from headrace.tools.named_loaders import named_loader

pytest_plugins = ("pytester",)
Made = Callable[[], DataLoader[Any]]


def judged(before: DataLoader[Any], after: DataLoader[Any]) -> Judgement:
    return judge(observe("before", before), observe("after", after))


def codes(judgement: Judgement) -> set[tuple[str, str]]:
    return {(one.code, one.leaf) for one in judgement.differences}


def _channels_swapped(image: Any, _: Any) -> Any:
    return image[::-1]


def _normalised(image: Any, _: Any) -> Any:
    return (image - 0.45) / 0.22


def _rounded(image: Any, _: Any) -> Any:
    return np.round(image * 255) / 255


def _noisy(image: Any, _: Any) -> Any:
    return np.round(image * 255 + np.random.default_rng(0).uniform(-0.4, 0.4, image.shape)) / 255


def _truncated(image: Any, _: Any) -> Any:
    return np.floor(image * 255) / 255


def _of_mean(image: Any, _: Any, mean: float = 0.485) -> Any:
    return (image - np.float32(mean)) / np.float32(0.229)


def _blurred(image: Any, _: Any) -> Any:
    return (image + np.roll(image, 1, axis=2) + np.roll(image, 1, axis=1)) / 3


def _redrawn(image: Any, draw: np.random.Generator) -> Any:
    return draw.normal(size=image.shape).astype(np.float32)


def _brightened(image: Any, draw: np.random.Generator) -> Any:
    return image + np.float32(draw.uniform(-0.4, 0.4))


class _Replaced:
    """Change that turns the third sample it sees into another picture."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self, image: Any, _: Any) -> Any:
        self.count += 1
        return picture(SAMPLES + 1) if self.count == 3 else image


def made(
    *changes: Any, shuffle: bool = True, drop_last: bool = False, seed: int | None = None, **of_pictures: Any
) -> Made:
    """Return the maker of a loader of pictures; `seed`: of its draws and of its order."""
    of_draws, of_order = (0, 1) if seed is None else (seed, seed)
    options = {"shuffle": shuffle, "drop_last": drop_last, "seed": of_order}
    return lambda: loader(Pictures(*changes, seed=of_draws, **of_pictures), **options)


FIXED = made()
EQUAL: dict[str, tuple[Made, Made]] = {
    "fixed": (FIXED, made(seed=5)),
    "drawn": (reference, same),
    "drawn alike": (reference, reference),
    "drawn alike, without names": (made(cropped, flipped, names=False), made(cropped, flipped, names=False)),
    "fixed order": (made(shuffle=False), made(shuffle=False)),
    "dropped last batches": (made(drop_last=True), made(seed=5, drop_last=True)),
    "rounded": (FIXED, made(_rounded)),
    "another half level": (made(_rounded), made(_noisy, seed=4)),
    "fixed without names": (made(names=False), made(names=False, seed=4)),
}


@pytest.mark.parametrize("case", EQUAL)
@pytest.mark.one_in(6)
def test_equal_loaders_are_equal(case: str) -> None:
    before, after = EQUAL[case]
    judgement = judged(before(), after())
    assert judgement.verdict == "equal", judgement.differences
    assert judgement.samples[0] == judgement.samples[1]


def _swapped(index: int) -> int:
    return {7: 1, 11: 7}.get(index, index % 10)


LENGTH, ORDER, LABELS = ("length", ""), ("order", ""), ("values", "label")
VALUES, DISTRIBUTION = ("values", "image"), ("distribution", "image")
PLANTED: dict[str, tuple[Made, Made, set[tuple[str, str]]]] = {
    "a sample is missing": (FIXED, made(indices=range(SAMPLES - 1)), {LENGTH, ("samples", "name")}),
    "a sample is repeated": (FIXED, made(indices=[*range(SAMPLES - 1), 0]), {("samples", "name")}),
    "the last batch is dropped": (FIXED, made(drop_last=True), {LENGTH}),
    "other batches": (FIXED, lambda: DataLoader(Pictures(), batch_size=24, shuffle=True), {LENGTH}),
    "labels begin at one": (FIXED, made(label=lambda index: index % 10 + 1), {LABELS}),
    "some labels are swapped": (FIXED, made(label=_swapped), {LABELS}),
    "not shuffled": (FIXED, made(shuffle=False), {ORDER}),
    "another fixed order": (made(shuffle=False), made(indices=range(SAMPLES)[::-1], shuffle=False), {ORDER}),
    "another dtype": (FIXED, made(dtype=np.float64), {("dtype", "image")}),
    "another shape": (FIXED, made(lambda image, _: image[:, 2:]), {("shape", "image"), VALUES}),
    "a leaf is missing": (FIXED, made(names=False), {("leaves", "name")}),
    "channels in another order": (FIXED, made(_channels_swapped), {VALUES}),
    "normalised": (FIXED, made(_normalised), {VALUES}),
    "truncated": (made(_rounded), made(_truncated), {VALUES}),
    "another mean": (made(_of_mean), made(partial(_of_mean, mean=0.482)), {VALUES}),
    "no augmentation": (reference, FIXED, {("augmentation", "image")}),
    "no flips": (reference, made(cropped, seed=5), {DISTRIBUTION}),
    "no flips, the same draws": (reference, flips_lost_at_the_same_seed, {VALUES}),
    "one sample of another, the same draws": (
        reference,
        lambda: loader(Pictures(_Replaced(), cropped, flipped)),
        {VALUES},
    ),
    "only flips": (reference, made(flipped), {DISTRIBUTION}),
    "larger windows": (reference, made(partial(cropped, least=0.97), flipped), {DISTRIBUTION}),
    "drawn, channels in another order": (reference, made(_channels_swapped, cropped, flipped), {VALUES}),
    "drawn, normalised": (reference, made(cropped, flipped, _normalised), {VALUES}),
    "drawn, blurred": (reference, made(cropped, flipped, _blurred), {DISTRIBUTION}),
    "drawn, channels in another order, other draws": (
        reference,
        made(_channels_swapped, cropped, flipped, seed=5),
        {DISTRIBUTION},
    ),
    "drawn, without names, normalised": (
        made(cropped, names=False),
        made(cropped, _normalised, names=False, seed=5),
        {DISTRIBUTION},
    ),
}


@pytest.mark.parametrize("case", PLANTED)
@pytest.mark.one_in(24)
def test_planted_differences_are_found(case: str) -> None:
    before, after, expected = PLANTED[case]
    judgement = judged(before(), after())
    assert codes(judgement) == expected
    assert judgement.verdict != "equal"
    assert {one.code for one in judgement.differences} <= CODES.keys()


def _rows(*, wrong: bool) -> DataLoader[Any]:
    """Labels of 1000 classes, token ids and masks; wrong in one sample of four, in their order, and at an edge."""
    draw, rows = torch.Generator().manual_seed(0), []
    for index in range(64):
        ids, order = torch.randint(0, 30000, (32,), generator=draw), torch.arange(32)
        mask = torch.zeros(16, 16, dtype=torch.uint8)
        mask[4:12, 4:12] = 90
        if wrong:
            order[[3, 4]] = order[[4, 3]]
            mask[4, 4:12] = 89
        label = index % 32 * 30 + (index % 4 == 0 and wrong)
        rows.append({"label": label, "ids": ids[order], "name": f"{index}.jpg", "mask": mask})
    return DataLoader(rows, batch_size=8)


def test_integers_are_never_rounded() -> None:
    assert judged(_rows(wrong=False), _rows(wrong=False)).verdict == "equal"
    found = codes(judged(_rows(wrong=False), _rows(wrong=True)))
    assert found == {("values", "label"), ("values", "ids"), ("values", "mask")}


def test_one_value_of_a_depth_map() -> None:
    draw = np.random.default_rng(0)
    depths = draw.uniform(1, 80, (40, 1, 96, 128)).astype(np.float32)
    wrong = depths.copy()
    wrong[7, 0, 50, 60] += 1
    rounded = (depths.astype(np.float64) + draw.uniform(-2e-5, 2e-5, depths.shape)).astype(np.float32)
    before, same, after = (
        [{"depth": each[n : n + 8], "name": [str(row) for row in range(n, n + 8)]} for n in range(0, 40, 8)]
        for each in (depths, rounded, wrong)
    )
    assert judge(observe("before", before), observe("after", same)).verdict == "equal"
    assert codes(judge(observe("before", before), observe("after", after))) == {("values", "depth")}


def test_rounding_is_equal() -> None:
    judgement = judged(*(each() for each in EQUAL["rounded"]))
    assert judgement.compared["image"] == "values, rounded"


@pytest.mark.parametrize(("change", "found"), [("rounded", set()), ("swapped", {("order", ""), ("values", "name")})])
def test_a_few_pictures_of_other_values_are_no_missing_samples(change: str, found: set[tuple[str, str]]) -> None:
    images = np.random.default_rng(1).integers(0, 256, (40, 3, 16, 16)).astype(np.uint8)
    other = images.copy()
    if change == "rounded":
        other[[5, 9], :, 3, 4] ^= 1
    else:
        other[[5, 9]] = images[[9, 5]]
    names = [str(row) for row in range(40)]
    before, after = (
        [{"image": each[n : n + 8], "name": names[n : n + 8]} for n in range(0, 40, 8)] for each in (images, other)
    )
    assert codes(judge(observe("before", before), observe("after", after))) == found


def test_what_could_not_be_seen_is_not_equal() -> None:
    few = judged(
        loader(Pictures(cropped, flipped, indices=range(20))),
        loader(Pictures(cropped, indices=range(20), seed=5), seed=5),
    )
    assert (few.verdict, few.unseen[0].leaf, few.unseen[0].samples) == ("not enough seen", "image", 30)
    nameless = judged(
        loader(Pictures(cropped, names=False)), loader(Pictures(cropped, names=False, seed=3), seed=4)
    )  # fmt: skip
    assert {one.leaf for one in nameless.unseen} == {"image", "label"}  # labels may belong to other pictures
    assert nameless.verdict_but(leaves=["image"]) == "not enough seen"
    assert nameless.verdict_but(leaves=["image", "label"]) == "equal"
    noise = judged(*(loader(Pictures(_redrawn, seed=seed), seed=seed) for seed in (1, 2)))
    assert "a lost flip" in noise.unseen[0].faults


def test_more_samples_are_named_where_they_help() -> None:
    brightened = [loader(Pictures(_brightened, seed=seed), seed=seed) for seed in (1, 2)]
    judgement = judged(*brightened)
    (only,) = judgement.unseen
    assert judgement.verdict == "not enough seen"
    assert "a mean off by one level" in only.faults
    assert only.samples is not None
    assert only.samples > SAMPLES


@pytest.mark.long
def test_false_alarms_are_rare() -> None:
    alarms = 0
    for seed in range(5):  # benchmarks/equal_power.py --equal has hundreds
        before = observe("before", loader(Pictures(cropped, flipped, seed=seed), seed=seed))
        after = observe("after", loader(Pictures(cropped, flipped, seed=1000 + seed), seed=1000 + seed))
        alarms += judge(before, after).verdict == "different"
    assert alarms == 0


@pytest.mark.parametrize("size", [2, 3])
def test_leaves_of_a_batch(size: int) -> None:
    images, masks = np.zeros((size, 3, 8, 8)), np.zeros((size, 1, 8, 8))
    boxes = [np.zeros((count + 4, 4)) for count in range(size)]
    names = [f"{number}.jpg" for number in range(size)]
    batch = [images, masks, {"boxes": boxes, "names": names}]  # a list, as default_collate makes of tuples
    assert [path for path, _ in leaves_of(batch, size)] == ["0", "1", "2.boxes", "2.names"]
    assert [path for path, _ in leaves_of([images, masks], size)] == ["0", "1"]


def _detections(*, boxes: int) -> list[Any]:
    """Return two batches of four pictures with up to three boxes, a last one of two; in one sample a box is off."""
    counts = [index % 4 for index in range(10)]
    samples = [
        {"boxes": np.full((count, 4), index + (index == 7) * boxes), "image_id": index}
        for index, count in enumerate(counts)
    ]
    return [(np.zeros((len(part), 3, 8, 8)), part) for part in (samples[:4], samples[4:8], samples[8:])]


def test_targets_of_a_detector_are_compared_sample_by_sample() -> None:
    one, same, other = (observe("", _detections(boxes=boxes)) for boxes in (0, 0, 1))
    assert judge(one, same).verdict == "equal"
    assert ("values", "1.boxes") in codes(judge(one, other))


@pytest.mark.parametrize("count", [2, 3])
def test_parts_of_a_batch_are_no_samples(count: int) -> None:
    """A pair of dicts for a batch of two, as (inputs, targets), and two views of the same samples."""
    parts = {"x": np.zeros((count, 3))}, {"id": np.arange(count)}
    assert [path for path, _ in leaves_of(parts, count)] == ["0.x", "1.id"]
    assert [path for path, _ in leaves_of([parts[0]] * count, count)] == [f"{n}.x" for n in range(count)]


def test_few_drawn_samples_some_of_which_are_empty_give_no_alarm() -> None:
    draw = np.random.default_rng(0)

    def batches() -> list[Any]:
        return [({"id": [str(n)], "boxes": [draw.lognormal(size=(draw.integers(0, 3), 4))]}) for n in range(20)]

    class Drawn:
        def __iter__(self) -> Iterator[Any]:
            return iter(batches())

    for _ in range(10):
        assert judge(observe("", Drawn()), observe("", Drawn())).verdict == "not enough seen"


def test_rare_draws_of_one_loader_take_more_samples() -> None:
    """One sample of 40 drawn in another loader would not show in 8."""

    def rare(epochs: Iterator[int], count: int) -> Iterator[Any]:
        drawn = next(epochs)
        return iter([{"id": [str(n)], "value": np.array([float(n == 3) * drawn])} for n in range(count)])

    class Rare:
        def __init__(self, count: int, drawn: Iterable[int]) -> None:
            self.count, self.epochs = count, iter(drawn)

        def __iter__(self) -> Iterator[Any]:
            return rare(self.epochs, self.count)

    few = judge(observe("", Rare(20, (0, 1))), observe("", Rare(20, (0, 0))))
    assert (few.verdict, few.unseen[0].leaf) == ("not enough seen", "value")
    assert few.unseen[0].samples is not None
    enough = few.unseen[0].samples
    assert 100 < enough < 1000


def test_a_draft_is_told_the_epoch(tmp_path: Path) -> None:
    (tmp_path / "draft.py").write_text(
        "class Epochs(list):\n    def set_epoch(self, epoch): self[:] = [{'epoch': [epoch] * 4}]\n"
        "def make_loader(): return Epochs()\ndef batches(loader): return loader\n"
    )
    with named_loader(str(tmp_path / "draft.py"), "BEFORE") as made:
        assert observe("draft", made).changed("epoch") == 4


def test_what_is_no_loader() -> None:
    with pytest.raises(UsageError, match="second epoch"):
        observe("made", iter([{"image": np.zeros((4, 3))}]))
    with pytest.raises(UsageError, match="gave none"):
        observe("made", [])
    with pytest.raises(UsageError, match="without a length"):
        observe("made", [3, 4])


def test_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(Path(__file__).parent)
    report = tmp_path / "equal.json"
    arguments = ["equal", "made_loaders:nameless", "made_loaders:nameless_of_other_draws", "--json", str(report)]
    found = CliRunner().invoke(app, arguments)
    assert found.exit_code == 102, found.output
    document = json.loads(report.read_text())
    assert (document["schema"], document["verdict"], document["differences"]) == (2, "not enough seen", [])
    assert document["compared"]["image"] == "distribution"
    assert [one["leaf"] for one in document["unseen"]] == ["image", "label"]
    allowed = [*arguments, "--allow-unseen", "image"]
    assert CliRunner().invoke(app, allowed).exit_code == 102
    assert CliRunner().invoke(app, [*allowed, "--allow-unseen", "label"]).exit_code == 0
    assert CliRunner().invoke(app, ["equal", "made_loaders:reference", "made_loaders:same"]).exit_code == 0
    found = CliRunner().invoke(
        app, ["equal", "made_loaders:reference", "made_loaders:without_flips", "--json", str(report)]
    )
    assert found.exit_code == 101
    (only,) = json.loads(report.read_text())["differences"]
    assert (only["code"], only["leaf"]) == ("distribution", "image")
    assert only["p_value"] < 1e-5


@pytest.mark.long
def test_fixture(pytester: pytest.Pytester) -> None:
    made = f"import sys; sys.path.insert(0, {str(Path(__file__).parent)!r})"
    pytester.makeconftest(f"{made}\npytest_plugins = ['headrace.tools.pytest_plugin']")
    pytester.makepyfile(
        """
        from made_loaders import nameless, nameless_of_other_draws, reference, same, without_flips

        def test_same(headrace_equal):
            assert headrace_equal(reference(), same()).verdict == "equal"

        def test_unseen(headrace_equal):
            headrace_equal(nameless(), nameless_of_other_draws())

        def test_allowed_unseen(headrace_equal):
            headrace_equal(nameless(), nameless_of_other_draws(), allow=("unseen:image", "unseen:label"))

        def test_flips(headrace_equal):
            headrace_equal(reference(), without_flips())

        def test_allowed(headrace_equal):
            headrace_equal(reference(), without_flips(), allow=("distribution",))
        """
    )
    result = pytester.runpytest_subprocess("-p", "no:cacheprovider")
    result.assert_outcomes(passed=3, failed=2)
    result.stdout.fnmatch_lines(["*distribution image*"])


SCRIPT = """
import sys
import torch
from made_loaders import Pictures, cropped, flipped, loader

for batch in loader(Pictures(cropped, flipped), seed=int(sys.argv[1])):
    raise SystemExit("it trains")
"""
DRAFT = """
from made_loaders import SAME_OR_NOT

def make_loader():
    return SAME_OR_NOT()

def batches(loader):
    for batch in loader:
        yield {"image": batch["image"], "label": batch["label"], "name": batch["name"]}
"""


@pytest.mark.parametrize(("function", "status"), [("same", 0), ("without_flips", 101)])
@pytest.mark.long
def test_a_script_against_its_draft(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, function: str, status: int
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    (tmp_path / "train.py").write_text(SCRIPT)
    (tmp_path / "draft.py").write_text(DRAFT.replace("SAME_OR_NOT", function))
    found = CliRunner().invoke(app, ["equal", "train.py 3", "draft.py"])
    assert found.exit_code == status, found.output


def test_a_script_that_is_not_there() -> None:
    found = CliRunner().invoke(app, ["equal", "none.py", "none.py"])
    assert found.exit_code == 1
    assert isinstance(found.exception, UsageError)
    assert "BEFORE: expected a script, got none.py" in str(found.exception)


def test_several_images_a_sample_are_compared_sample_by_sample():
    def batches(lost=None):
        counts = [2, 0, 3, 1]
        images = np.random.default_rng(0).integers(0, 255, (6, 3, 8, 8), np.uint8)
        if lost is not None:
            images[lost] = 0
        return [{"images": images, "images_counts": np.array(counts), "key": ["a", "b", "c", "d"]}]

    same = judge(observe("one", batches()), observe("other", batches()))
    assert not same.differences
    other = judge(observe("one", batches()), observe("other", batches(lost=4)))
    assert [difference.leaf for difference in other.differences] == ["images"]
