"""pytest fixture `headrace_equal`: fail a test if two loaders differ, or could differ unseen."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from headrace.compare import Judgement


@pytest.fixture
def headrace_equal() -> Callable[..., Judgement]:
    """Return a function `equal(before, after, *, samples=None, epochs=2, allow=())` that compares two loaders.

    It fails the test with a report unless the loaders are equal but for what `allow` names: codes of differences, and
    `unseen:LEAF` for a leaf in which a difference may stay unseen. It returns the judgement.
    """
    from headrace.compare import judge, judgement_lines, observe

    def equal(
        before: Any, after: Any, *, samples: int | None = None, epochs: int = 2, allow: tuple[str, ...] = ()
    ) -> Judgement:
        names = (("before", before), ("after", after))
        judgement = judge(*(observe(name, loader, most_samples=samples, epochs=epochs) for name, loader in names))
        unseen = [name.removeprefix("unseen:") for name in allow if name.startswith("unseen:")]
        if judgement.verdict_but(allow, unseen) != "equal":
            pytest.fail("\n".join(judgement_lines(judgement)), pytrace=False)
        return judgement

    return equal
