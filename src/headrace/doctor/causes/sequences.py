"""Sequences: padding that shorter batches avoid, and tokenisation text by text."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from ..measure import BACKWARD, FORWARD, Finding, TrainerView, pass_of
from ..quantities import counted, duration, number, percent
from .case import WORTH, Case, sample_us, scaled, share_of, step_left
from .proposals import Proposal, RemedyKind
from .remedy import untimed
from .training_kinds import TRAINING

WORTH_SAYING = 0.1
"""Reporting threshold: share of the tokens that padding to each batch's longest sequence would save."""
MUCH = 0.3
"""Reporting threshold: share of padding in batches that are already padded only to their longest sequence."""
ASSUMED = (0.2, 0.9)
TO_LONGEST = (
    "Look at where sequences are padded: in the collate function, to the longest of the batch (padding=True, "
    'DataCollatorWithPadding, pad_sequence), in place of padding="max_length" for each.'
)
BY_LENGTH = (
    "Put sequences of about one length into a batch (group_by_length=True, a sampler that "
    "buckets by length), or packed one after another."
)


@dataclass(frozen=True)
class Tokens:
    """Tokens of the sequence batches that steps waited for."""

    batches: int
    padded: float
    """Share of the tokens that is padding."""
    spare: float
    """Share of the tokens that padding to each batch's longest sequence would save."""
    said: str
    """Sentence on the share of padding, and on the mean padded and longest lengths."""


def tokens_of(view: TrainerView) -> Tokens | None:
    """Return totals over the batches of sequences; None if no step waited for such a batch."""
    padding, passes, fed = view.trainer.padding, pass_of(view.trainer), view.training.fed
    rows = [
        row for row, pass_ in enumerate(padding.pass_) if (one := passes.get(pass_)) is not None and one.loader in fed
    ]
    tokens = sum(padding.rows[row] * padding.width[row] for row in rows)
    if not tokens:
        return None
    samples = sum(padding.rows[row] for row in rows)
    needed = sum(padding.rows[row] * padding.longest[row] for row in rows)
    padded = 1 - sum(padding.filled[row] for row in rows) / tokens
    said = (
        f"{percent(padded)} of the tokens that are trained on are padding: sequences are "
        f"{number(round(tokens / samples))} tokens long, where the longest of a batch has "
        f"{number(round(needed / samples))} on average"
    )
    return Tokens(len(rows), padded, 1 - needed / tokens, said)


def padding_findings(view: TrainerView) -> Iterator[Finding]:
    """Find padding. The weight is the saving of the model's own time with shorter batches."""
    tokens = tokens_of(view)
    if tokens is None:
        return
    model = view.share(FORWARD) + view.share(BACKWARD)
    seen = f"seen in {counted(tokens.batches, 'batch')}; forward and backward take {percent(model)} of each step"
    if tokens.spare >= WORTH_SAYING:
        spare = f"{percent(tokens.spare)} could be left out; {seen}"
        weight = tokens.spare * model
        yield TRAINING["padding"].found(weight, text=f"{tokens.said}.", evidence=spare, advice=TO_LONGEST)
    elif tokens.padded >= MUCH:
        text = (
            f"{percent(tokens.padded)} of the tokens that are trained on are padding, though each batch is only as "
            "long as its longest sequence."
        )
        yield TRAINING["padding"].found(text=text, evidence=seen, advice=BY_LENGTH)


def pad_to_batch(case: Case, kind: RemedyKind) -> Proposal | None:
    """Propose to pad sequences only to the longest of their batch."""
    tokens = tokens_of(case.view)
    if tokens is None:
        return None
    spare = tokens.spare
    if spare < WORTH:
        padded = f"{percent(tokens.padded)} of the tokens are padding"
        return kind.would_not(f"Each batch is as long as its longest sequence already; {padded}.")
    model = case.view.share(FORWARD) + case.view.share(BACKWARD)
    return kind.leaving(
        case,
        step_left(case, model, spare, "forward and backward go with the tokens"),
        # A batch's bytes shrink with its tokens.
        lambda left: lambda setup: replace(setup, step=setup.step * left, sent_bytes=setup.sent_bytes * (1 - spare)),
        why=f"{tokens.said}, and forward and backward take {percent(model)} of a step.",
    )


def batch_tokeniser(case: Case, kind: RemedyKind) -> Proposal | None:
    """Propose to tokenise a batch at a time."""
    tokenising = case.stages("tokenise")
    if not tokenising:
        return None
    share, calls = share_of(tokenising), sum(one.calls for one in tokenising)
    if share < WORTH:
        return kind.too_little("Tokenising", share)
    if calls < 2:
        return kind.would_not(f"Texts are tokenised by the batch already: {number(calls)} calls a batch.")
    return kind.leaving(
        case,
        untimed(*ASSUMED),
        scaled(tokenising),
        why=f"The tokeniser is called {number(calls)} times a batch, {duration(sample_us(tokenising))} a sample, "
        f"{percent(share)} of making a batch.",
    )
