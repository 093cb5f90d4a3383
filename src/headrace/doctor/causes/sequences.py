"""Sequences of tokens: padding, and tokenisation by the sample."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from headrace.doctor.causes.case import WORTH, Case, goes_with, sample_us, share_of
from headrace.doctor.causes.cause import Cause, Proposal, RemedyKind, of_steps
from headrace.doctor.causes.remedy import FEW_LINES
from headrace.doctor.measure import BACKWARD, FORWARD, Finding, TrainerView, pass_of
from headrace.doctor.quantities import counted, duration, number, percent
from headrace.doctor.session.model import Session
from headrace.doctor.simulate import scaled, untimed

WORTH_PADDING = 0.1
"""Reporting threshold: share of the tokens that padding to each batch's longest sequence would save."""
MUCH_PADDING = 0.3
"""Reporting threshold: share of padding in batches that are already padded only to their longest sequence."""
TOKENISED = (0.2, 0.9)
TO_LONGEST = (
    'in collate_fn: tokenizer.pad(samples, padding="longest"), transformers.DataCollatorWithPadding or '
    'torch.nn.utils.rnn.pad_sequence, in place of padding="max_length" for each sample'
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
    spare: float
    """Share of the tokens that padding to each batch's longest sequence would save."""
    said: str
    """Sentence on the share of padding, and on the mean padded and longest lengths."""


def tokens_of(view: TrainerView) -> Tokens | None:
    """Return totals over the batches of sequences; None if no step waited for such a batch."""
    padding, passes, fed = view.trainer.padding, pass_of(view.trainer), view.training.fed
    rows = [row for row, pass_ in enumerate(padding.pass_) if pass_ in passes and passes[pass_].loader in fed]
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


def padding_findings(session: Session, view: TrainerView) -> Iterator[Finding]:
    """Find padding. The weight is the saving of the model's own time with shorter batches."""
    tokens = tokens_of(view)
    if tokens is None:
        return
    model = view.share(FORWARD) + view.share(BACKWARD)
    seen = f"seen in {counted(tokens.batches, 'batch')}; forward and backward take {percent(model)} of each step"
    if tokens.spare >= WORTH_PADDING:
        spare = f"{percent(tokens.spare)} could be left out; {seen}"
        weight = tokens.spare * model
        yield Finding("padding", weight, f"{tokens.said}.", spare, f"Pad to the longest of the batch {TO_LONGEST}.")
    elif tokens.padded >= MUCH_PADDING:
        text = (
            f"{percent(tokens.padded)} of the tokens that are trained on are padding, though each batch is only as "
            "long as its longest sequence."
        )
        yield Finding("padding", 0.0, text, seen, BY_LENGTH)


def pad_to_batch(case: Case, kind: RemedyKind) -> Proposal | None:
    tokens = tokens_of(case.view)
    if tokens is None or tokens.spare < WORTH:
        return None
    spare = tokens.spare
    model = case.view.share(FORWARD) + case.view.share(BACKWARD)
    of_own = min(model / (1 - case.wait_share), 1.0) if case.wait_share < 1 else 0.0
    return kind.leaving(
        case,
        goes_with(of_own * spare, "forward and backward go with the tokens"),
        # A batch's bytes shrink with its tokens.
        lambda left: lambda setup: replace(setup, step=setup.step * left, sent_bytes=setup.sent_bytes * (1 - spare)),
        why=f"{tokens.said}, and forward and backward take {percent(model)} of a step.",
    )


def batch_tokeniser(case: Case, kind: RemedyKind) -> Proposal | None:
    """Propose to tokenise a batch at a time."""
    tokenising = case.stages("tokenise")
    share, calls = share_of(tokenising), sum(one.calls for one in tokenising)
    if share < WORTH or calls < 2:  # one call a batch
        return None
    return kind.leaving(
        case,
        untimed(*TOKENISED),
        scaled(tokenising),
        why=f"The tokeniser is called {number(calls)} times a batch, {duration(sample_us(tokenising))} a sample, "
        f"{percent(share)} of making a batch.",
    )


CAUSE = Cause(
    findings={
        "padding": "Padding to the longest of a batch would leave out 10 % of the tokens, or 30 % are padding all the "
        "same."
    },
    find=of_steps(padding_findings),
    explains=("padding",),
    remedies=[
        RemedyKind(
            "batch-tokeniser",
            "texts tokenised by the batch",
            FEW_LINES,
            batch_tokeniser,
            hint='in collate_fn: tokenizer(texts, padding="longest", truncation=True, return_tensors="pt"), with '
            "TOKENIZERS_PARALLELISM=false in workers",
            costs=("a collate function that takes texts",),
        ),
        RemedyKind(
            "pad-to-batch",
            "sequences padded to the longest of their batch",
            FEW_LINES,
            pad_to_batch,
            hint=TO_LONGEST,
            costs=("batches of unequal lengths: torch.compile may compile anew for each",),
        ),
    ],
)
