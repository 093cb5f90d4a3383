"""Whether two runs trained on the same samples."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from probing import probed, records
from torch.utils.data import DataLoader
from unasked import UNASKED

from headrace.doctor.prove.baseline import ComparedSamples, compare, compare_adopted
from headrace.doctor.session.trainers import BatchDigest


def digest(content: str, keys: str | None = "keys") -> BatchDigest:
    return BatchDigest(0, content, keys)


def samples(*digests: BatchDigest, draws: bool = False, rank: int = 0) -> ComparedSamples:
    return ComparedSamples({rank: list(digests)}, draws)


BEFORE = samples(digest("a"), digest("b"), digest("c"))


def test_the_same_bytes_are_the_same_as_far_as_both_go() -> None:
    assert compare(BEFORE, samples(digest("a"), digest("b")), UNASKED) == "same"
    assert compare(BEFORE, samples(digest("a", None), digest("b", "other")), UNASKED) == "same"


@pytest.mark.parametrize(("repeats", "said"), [(True, "different"), (False, None), (None, None)])
def test_others_are_different_where_the_run_itself_repeats(repeats: bool | None, said: str | None) -> None:
    after = samples(digest("x"))
    assert compare(BEFORE, after, repeats) == said


def test_an_order_that_is_drawn_anew_cannot_be_compared() -> None:
    """That is known without a run more: what is injected changes no sampler."""
    assert compare(BEFORE, samples(digest("x", "other")), UNASKED) is None


def test_of_samples_without_keys_only_another_run_tells() -> None:
    before, after = samples(digest("a", None)), samples(digest("x", None))
    assert compare(before, after, True) == "different"
    assert compare(before, after, False) is None


def test_other_draws_for_the_same_keys_cannot_be_compared() -> None:
    after = samples(digest("x"), draws=True)
    assert compare(BEFORE, after, UNASKED) is None


def test_every_rank_counts() -> None:
    before = ComparedSamples({0: [digest("a")], 1: [digest("b")]}, False)
    assert compare(before, ComparedSamples({0: [digest("a")], 1: [digest("b")]}, False), UNASKED) == "same"
    after = ComparedSamples({0: [digest("a")], 1: [digest("x")]}, False)
    assert compare(before, after, True) == "different"


def test_the_order_of_a_later_pass_hangs_on_what_was_drawn_meanwhile() -> None:
    before = ComparedSamples({0: [digest("a"), BatchDigest(1, "b", "keys")]}, False, frozenset({(0, 1)}))
    after = ComparedSamples({0: [digest("a"), BatchDigest(1, "x", "other")]}, False, frozenset({(0, 1)}))
    assert compare(before, after, UNASKED) == "same"
    same_keys = ComparedSamples({0: [digest("a"), BatchDigest(1, "x", "keys")]}, False, frozenset({(0, 1)}))
    assert compare(before, same_keys, True) == "different"


def digested(folder: Path, sample: Any) -> ComparedSamples:
    """What the probe tells of a batch of that one sample."""
    with probed(folder, digests=1):
        list(DataLoader([sample], batch_size=None))
    (record,) = records(folder, "digest")
    _, number, content, keys, _ = record
    return samples(BatchDigest(number, content, keys))


def test_one_other_label_is_different(tmp_path: Path) -> None:
    image, labels = torch.rand(3, 8, 8), torch.arange(32)
    others = labels.clone()
    others[7] = 8
    before, after = digested(tmp_path / "1", (image, labels)), digested(tmp_path / "2", (image, others))
    assert compare(before, after, True) == "different"
    assert compare(before, digested(tmp_path / "3", (image, labels)), UNASKED) == "same"


def test_of_many_tensors_none_is_left_out(tmp_path: Path) -> None:
    """The last one differs."""
    tensors = [torch.full((4,), float(number)) for number in range(20)]
    before = digested(tmp_path / "1", tensors)
    after = digested(tmp_path / "2", [*tensors[:-1], torch.rand(4)])
    assert compare(before, after, True) == "different"


# A Loader in place of the DataLoader: another order, other draws.


def adopted(kind: str = "float32[3,8,8]") -> ComparedSamples:
    """A batch of images and labels."""
    return ComparedSamples({0: [BatchDigest(0, "", None, [kind, "int64[]"])]}, False)


@pytest.mark.parametrize(
    ("after", "said"),
    [
        (adopted(), "alike"),
        (adopted("uint8[3,8,8]"), "different"),
        (ComparedSamples(), None),
    ],
)
def test_a_loader_has_samples_of_the_same_kinds(after: ComparedSamples, said: str | None) -> None:
    assert compare_adopted(adopted(), after) == said


def test_digests_tell_kinds(tmp_path: Path) -> None:
    labels = torch.tensor([4, 7, 4])
    pixels = torch.arange(12, dtype=torch.uint8).reshape(3, 2, 2)
    with probed(tmp_path, observe=False, steps=10, digests=2):
        for _ in DataLoader([(image, label) for image, label in zip(pixels, labels, strict=True)], batch_size=3):
            pass
    (found,) = records(tmp_path, "digest")
    assert found[4] == ["uint8[2,2]", "int64[]"]
