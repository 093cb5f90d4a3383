"""pytest fixture `headrace_equal`: fail a test if two loaders differ."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from headrace.tools.equal import Judgement


@pytest.fixture
def headrace_equal() -> Callable[..., Judgement]:
    """Return a function `equal(before, after, *, samples=None, allow=("rounding",))` that compares two loaders.

    It fails the test with a report unless every difference is of a code in `allow`, and returns the judgement.
    """
    from headrace.tools.equal import judge, observe
    from headrace.tools.equal.equal_command import judgement_lines

    def equal(
        before: Any, after: Any, *, samples: int | None = None, allow: tuple[str, ...] = ("rounding",)
    ) -> Judgement:
        names = (("before", before), ("after", after))
        judgement = judge(*(observe(name, loader, most_samples=samples) for name, loader in names))
        if any(one.code not in allow for one in judgement.differences):
            pytest.fail("\n".join(judgement_lines(judgement)), pytrace=False)
        return judgement

    return equal
