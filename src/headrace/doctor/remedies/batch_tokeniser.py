"""Tokenising by the batch, padded to the batch."""

from __future__ import annotations

from collections.abc import Iterator

from ..analyse.words import counted, number, percent, time
from .case import WORTH, Case
from .factor import untimed
from .proposal import LOW, Proposal, tried, with_factor, would_not
from .smaller_samples import LEAF
from .stages import scaled, share_of

CODE = "batch-tokeniser"
ASSUMED = (0.2, 0.9)
FEW_SHAPES = 1
LONG = 64
"""Tokens from which one length for all looks like a limit that texts are padded to."""


def batch_tokeniser(case: Case) -> Iterator[Proposal]:
    title = "texts tokenised by the batch, padded to the longest of it"
    tokenising = case.stages("tokenise")
    if not tokenising:
        return
    share, calls = share_of(tokenising), sum(one.calls for one in tokenising)
    if share < WORTH:
        yield would_not(CODE, title, f"Tokenising is {percent(share)} of making a batch.")
        return
    length = padded_length(case)
    if calls < 2 and length is None:
        yield would_not(CODE, title, f"Texts are tokenised by the batch already: {number(calls)} calls a batch.")
        return
    left = untimed(*ASSUMED)
    padding = "" if length is None else f" All have {counted(length, 'token')}, padded as it seems to a maximum."
    yield tried(
        case,
        with_factor(case, left, scaled(tokenising)),
        code=CODE,
        title=title,
        why=f"The tokeniser is called {number(calls)} times a batch, {time(sum(one.wall_us for one in tokenising))} a "
        f"sample, {percent(share)} of making a batch.{padding} {left.basis}",
        confidence=LOW,
        change=scaled(tokenising)(left.usual),
        costs=["a collate function that takes texts", "batches of unequal lengths"],
        hint='in collate_fn: tokenizer(texts, padding="longest", truncation=True, return_tensors="pt"), with '
        "TOKENIZERS_PARALLELISM=false in workers",
    )


def padded_length(case: Case) -> int | None:
    """The one length that all batches of whole numbers have; None where lengths differ, or are short."""
    lengths = {
        int(sizes.split(",")[1])
        for shape in case.shapes
        for dtype, sizes in LEAF.findall(shape)
        if dtype == "int64" and sizes.count(",") == 1
    }
    only = lengths.pop() if len(lengths) == FEW_SHAPES else None
    return only if only is not None and only >= LONG else None
