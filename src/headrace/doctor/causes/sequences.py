"""Sequences: padding that a shorter batch would do without, and tokenising text by text."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from headrace.doctor.causes.case import (
    LOW,
    WORTH,
    Case,
    Change,
    Proposal,
    scaled,
    share_of,
    tried,
    with_factor,
    would_not,
)
from headrace.doctor.causes.remedy import Factor, untimed
from headrace.doctor.measure.diagnosis import Finding
from headrace.doctor.measure.production import fed_loaders
from headrace.doctor.measure.steps import BACKWARD, FORWARD, pass_of
from headrace.doctor.measure.view import TrainerView
from headrace.doctor.quantities import counted, number, percent, time
from headrace.doctor.simulate.work import FeedSetup

# -- from doctor/analyse/find_padding.py: Padding in batches of sequences: how much of it there is, and how much a
# shorter batch would do without.


WORTH_SAYING = 0.1
"""Share of the tokens that padding to each batch's longest sequence would save."""
MUCH = 0.3
"""Share of the tokens from which padding is worth a word where batches are padded to their longest already."""
TO_LONGEST = (
    "Look at where sequences are padded: in the collate function, to the longest of the batch (padding=True, "
    'DataCollatorWithPadding, pad_sequence), in place of padding="max_length" for each.'
)
BY_LENGTH = (
    "Look at how batches are put together: of sequences of about one length (group_by_length=True, a sampler that "
    "buckets by length), or packed one after another."
)


@dataclass(frozen=True)
class Tokens:
    """Sums over the batches that were looked at."""

    batches: int
    rows: int
    tokens: int
    filled: int
    needed: int
    """With each batch padded to its longest sequence."""

    @property
    def spare(self) -> float:
        """Share of them that need not be there, with each batch padded to its longest sequence."""
        return 1 - self.needed / self.tokens

    @property
    def padded(self) -> float:
        """Share of them that are padding."""
        return 1 - self.filled / self.tokens

    @property
    def width(self) -> float:
        """Of a sequence, on average over the rows."""
        return self.tokens / self.rows

    @property
    def longest(self) -> float:
        """Of each batch, on average over the rows."""
        return self.needed / self.rows


def padding_findings(view: TrainerView) -> Iterator[Finding]:
    """The weight is what shorter batches would save of the model's own time, as far as that goes by tokens."""
    tokens = tokens_of(view)
    if tokens is None:
        return
    spare, padded = tokens.spare, tokens.padded
    model = view.share(FORWARD) + view.share(BACKWARD)
    seen = f"seen in {counted(tokens.batches, 'batch')}; forward and backward take {percent(model)} of each step"
    if spare >= WORTH_SAYING:
        text = f"{too_long(tokens)}."
        yield Finding("padding", spare * model, text, f"{percent(spare)} could be left out; {seen}", TO_LONGEST)
    elif padded >= MUCH:
        text = (
            f"{percent(padded)} of the tokens that are trained on are padding, though each batch is only as long as "
            "its longest sequence."
        )
        yield Finding("padding", 0.0, text, seen, BY_LENGTH)


def too_long(tokens: Tokens) -> str:
    """In words."""
    return (
        f"{percent(tokens.padded)} of the tokens that are trained on are padding: sequences are "
        f"{number(round(tokens.width))} tokens long, where the longest of a batch has "
        f"{number(round(tokens.longest))} on average"
    )


def tokens_of(view: TrainerView) -> Tokens | None:
    """None where no batch of sequences was seen that a step waited for."""
    padding, passes, fed = view.trainer.padding, pass_of(view.trainer), fed_loaders(view.training)
    rows = [
        row for row, pass_ in enumerate(padding.pass_) if (one := passes.get(pass_)) is not None and one.loader in fed
    ]
    tokens = sum(padding.rows[row] * padding.width[row] for row in rows)
    if not tokens:
        return None
    return Tokens(
        batches=len(rows),
        rows=sum(padding.rows[row] for row in rows),
        tokens=tokens,
        filled=sum(padding.filled[row] for row in rows),
        needed=sum(padding.rows[row] * padding.longest[row] for row in rows),
    )


# -- from doctor/remedies/padding.py: Sequences padded to the longest of their batch, and no further.


PAD_TO_BATCH = "pad-to-batch"
BY_TOKENS = (1.0, 0.8, 0.5)
"""Share of forward and backward that goes with the tokens: at the most, usually, at the least. Launching kernels, and
the weights' gradients, take as long for few."""


def pad_to_batch(case: Case) -> Iterator[Proposal]:
    title = "sequences padded to the longest of their batch"
    tokens = tokens_of(case.view)
    if tokens is None:
        return
    if tokens.spare < WORTH:
        padded = f"{percent(tokens.padded)} of the tokens are padding"
        yield would_not(PAD_TO_BATCH, title, f"Each batch is as long as its longest sequence already; {padded}.")
        return
    model = case.view.share(FORWARD) + case.view.share(BACKWARD)
    of_own = min(model / (1 - case.wait_share), 1.0) if case.wait_share < 1 else 0.0
    least, usual, most = (1 - share * of_own * tokens.spare for share in BY_TOKENS)
    basis = "Assumed is that 50 % to 100 % of forward and backward go with the tokens."
    yield tried(
        case,
        with_factor(case, Factor(least, usual, most, False, basis), lambda left: _change(left, tokens)),
        code=PAD_TO_BATCH,
        title=title,
        why=f"{too_long(tokens)}, and forward and backward take {percent(model)} of a step. {basis}",
        confidence=LOW,
        change=_change(usual, tokens),
        costs=["batches of unequal lengths: torch.compile may compile anew for each"],
        hint='in collate_fn: tokenizer.pad(samples, padding="longest"), transformers.DataCollatorWithPadding or '
        'torch.nn.utils.rnn.pad_sequence, in place of padding="max_length" for each sample',
    )


def _change(left: float, tokens: Tokens) -> Change:
    """Of a step's own time; batches become as much smaller as they have fewer tokens."""

    def change(setup: FeedSetup) -> FeedSetup:
        return replace(setup, step=setup.step * left, sent_bytes=setup.sent_bytes * (1 - tokens.spare))

    return change


# -- from doctor/remedies/batch_tokeniser.py: Tokenising by the batch.


BATCH_TOKENISER = "batch-tokeniser"
ASSUMED = (0.2, 0.9)


def batch_tokeniser(case: Case) -> Iterator[Proposal]:
    title = "texts tokenised by the batch"
    tokenising = case.stages("tokenise")
    if not tokenising:
        return
    share, calls = share_of(tokenising), sum(one.calls for one in tokenising)
    if share < WORTH:
        yield would_not(BATCH_TOKENISER, title, f"Tokenising is {percent(share)} of making a batch.")
        return
    if calls < 2:
        yield would_not(
            BATCH_TOKENISER, title, f"Texts are tokenised by the batch already: {number(calls)} calls a batch."
        )
        return
    left = untimed(*ASSUMED)
    yield tried(
        case,
        with_factor(case, left, scaled(tokenising)),
        code=BATCH_TOKENISER,
        title=title,
        why=f"The tokeniser is called {number(calls)} times a batch, {time(sum(one.wall_us for one in tokenising))} a "
        f"sample, {percent(share)} of making a batch. {left.basis}",
        confidence=LOW,
        change=scaled(tokenising)(left.usual),
        costs=["a collate function that takes texts"],
        hint='in collate_fn: tokenizer(texts, padding="longest", truncation=True, return_tensors="pt"), with '
        "TOKENIZERS_PARALLELISM=false in workers",
    )
