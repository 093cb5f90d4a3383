"""Tokenising by the batch."""

from __future__ import annotations

from collections.abc import Iterator

from headrace.doctor.causes.case import WORTH, Case
from headrace.doctor.quantities import number, percent, time
from headrace.doctor.remedies.factor import untimed
from headrace.doctor.remedies.proposal import LOW, Proposal, tried, with_factor, would_not
from headrace.doctor.remedies.stages import scaled, share_of

CODE = "batch-tokeniser"
ASSUMED = (0.2, 0.9)


def batch_tokeniser(case: Case) -> Iterator[Proposal]:
    title = "texts tokenised by the batch"
    tokenising = case.stages("tokenise")
    if not tokenising:
        return
    share, calls = share_of(tokenising), sum(one.calls for one in tokenising)
    if share < WORTH:
        yield would_not(CODE, title, f"Tokenising is {percent(share)} of making a batch.")
        return
    if calls < 2:
        yield would_not(CODE, title, f"Texts are tokenised by the batch already: {number(calls)} calls a batch.")
        return
    left = untimed(*ASSUMED)
    yield tried(
        case,
        with_factor(case, left, scaled(tokenising)),
        code=CODE,
        title=title,
        why=f"The tokeniser is called {number(calls)} times a batch, {time(sum(one.wall_us for one in tokenising))} a "
        f"sample, {percent(share)} of making a batch. {left.basis}",
        confidence=LOW,
        change=scaled(tokenising)(left.usual),
        costs=["a collate function that takes texts"],
        hint='in collate_fn: tokenizer(texts, padding="longest", truncation=True, return_tensors="pt"), with '
        "TOKENIZERS_PARALLELISM=false in workers",
    )
