"""Whether two runs trained on the same samples."""

from __future__ import annotations

import pytest

from headrace.doctor.prove.samples import Samples, are_equal, compare
from headrace.doctor.session.model import Digest

VALUES = [float(value) for value in range(0, 256, 8)]


def digest(content: str, keys: str | None = "keys", values: list[float] | None = None) -> Digest:
    return Digest(0, content, keys, [VALUES if values is None else values])


def samples(*digests: Digest, draws: bool = False, rank: int = 0) -> Samples:
    return Samples({rank: list(digests)}, draws)


def unasked() -> bool:
    raise AssertionError("a run was made to find out")


BEFORE = samples(digest("a"), digest("b"), digest("c"))
OTHERS = [200.0 - value for value in VALUES]


def test_the_same_bytes_are_the_same_as_far_as_both_go() -> None:
    assert compare(BEFORE, samples(digest("a"), digest("b")), unasked) == "same"
    assert compare(BEFORE, samples(digest("a", None), digest("b", "other")), unasked) == "same"


def test_values_that_differ_by_rounding_are_close() -> None:
    rounded = [value + 1 for value in VALUES]
    assert compare(BEFORE, samples(digest("x", values=rounded)), unasked) == "close"
    edge = [*rounded[:-1], rounded[-1] + 40]  # one of 32
    assert compare(BEFORE, samples(digest("x", values=edge)), unasked) == "close"


@pytest.mark.parametrize(("repeats", "said"), [(True, "different"), (False, None), (None, None)])
def test_others_are_different_where_the_run_itself_repeats(repeats: bool | None, said: str | None) -> None:
    after = samples(digest("x", "other", OTHERS))
    assert compare(BEFORE, after, lambda: repeats) == said


def test_a_tensor_more_is_no_rounding() -> None:
    after = samples(Digest(0, "x", "keys", [VALUES, VALUES]))
    assert compare(BEFORE, after, lambda: True) == "different"


def test_other_draws_for_the_same_keys_cannot_be_compared() -> None:
    after = samples(digest("x", values=OTHERS), draws=True)
    assert compare(BEFORE, after, unasked) is None


def test_content_that_differs_for_the_same_keys_without_draws_is_different() -> None:
    assert compare(BEFORE, samples(digest("x", values=OTHERS)), lambda: True) == "different"


def test_keys_in_another_order_are_different_though_something_is_drawn() -> None:
    after = samples(digest("x", "other", OTHERS), draws=True)
    assert compare(BEFORE, after, lambda: True) == "different"


def test_every_rank_counts() -> None:
    before = Samples({0: [digest("a")], 1: [digest("b")]}, False)
    assert compare(before, Samples({0: [digest("a")], 1: [digest("b")]}, False), unasked) == "same"
    after = Samples({0: [digest("a")], 1: [digest("x", "other", OTHERS)]}, False)
    assert compare(before, after, lambda: True) == "different"


def test_without_digests_there_is_nothing_to_say() -> None:
    assert compare(samples(), BEFORE, unasked) is None
    assert compare(BEFORE, samples(digest("a"), rank=1), unasked) is None
    assert are_equal(samples(), BEFORE) is None


def test_an_empty_tensor_is_near_itself() -> None:
    one, other = samples(Digest(0, "a", "k", [[]])), samples(Digest(0, "b", "k", [[]]))
    assert compare(one, other, unasked) == "close"


def test_the_order_of_a_later_pass_hangs_on_what_was_drawn_meanwhile() -> None:
    before = Samples({0: [digest("a"), Digest(1, "b", "keys", [VALUES])]}, False, frozenset({(0, 1)}))
    after = Samples({0: [digest("a"), Digest(1, "x", "other", [OTHERS])]}, False, frozenset({(0, 1)}))
    assert compare(before, after, unasked) == "same"
    same_keys = Samples({0: [digest("a"), Digest(1, "x", "keys", [OTHERS])]}, False, frozenset({(0, 1)}))
    assert compare(before, same_keys, lambda: True) == "different"
