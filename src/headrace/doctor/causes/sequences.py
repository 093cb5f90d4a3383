"""Sequences: padding that a shorter batch would do without, and tokenising text by text."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from ..measure import BACKWARD, FORWARD, Finding, TrainerView, pass_of
from ..quantities import counted, duration, number, percent
from ..simulate import FeedSetup
from .case import LOW, WORTH, Case, Change, Proposal, scaled, share_of, tried, would_not
from .remedy import Factor, untimed

PAD_TO_BATCH, BATCH_TOKENISER = "pad-to-batch", "batch-tokeniser"
WORTH_SAYING = 0.1
"""Share of the tokens that padding to each batch's longest sequence would save."""
MUCH = 0.3
"""Share of the tokens from which padding is worth a word where batches are padded to their longest already."""
BY_TOKENS = (1.0, 0.8, 0.5)
"""Share of forward and backward that goes with the tokens: at the most, usually, at the least. Launching kernels, and
the weights' gradients, take as long for few."""
ASSUMED = (0.2, 0.9)
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
    """Sums over the batches of sequences that steps waited for."""

    batches: int
    rows: int
    tokens: int
    filled: int
    needed: int
    """Tokens with each batch padded to its longest sequence."""

    @property
    def spare(self) -> float:
        """Share of the tokens that padding to each batch's longest sequence would save."""
        return 1 - self.needed / self.tokens

    @property
    def padded(self) -> float:
        """Share of the tokens that are padding."""
        return 1 - self.filled / self.tokens

    @property
    def said(self) -> str:
        """Say how much of the tokens is padding, and how long sequences are and need be, on average."""
        width, longest = number(round(self.tokens / self.rows)), number(round(self.needed / self.rows))
        return (
            f"{percent(self.padded)} of the tokens that are trained on are padding: sequences are {width} tokens long, "
            f"where the longest of a batch has {longest} on average"
        )


def tokens_of(view: TrainerView) -> Tokens | None:
    """Sum up the batches of sequences; None where no step waited for any."""
    padding, passes, fed = view.trainer.padding, pass_of(view.trainer), view.training.fed
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


def padding_findings(view: TrainerView) -> Iterator[Finding]:
    """Find padding. Its weight is what shorter batches would save of the model's own time."""
    tokens = tokens_of(view)
    if tokens is None:
        return
    model = view.share(FORWARD) + view.share(BACKWARD)
    seen = f"seen in {counted(tokens.batches, 'batch')}; forward and backward take {percent(model)} of each step"
    if tokens.spare >= WORTH_SAYING:
        spare = f"{percent(tokens.spare)} could be left out; {seen}"
        yield Finding("padding", tokens.spare * model, f"{tokens.said}.", spare, TO_LONGEST)
    elif tokens.padded >= MUCH:
        text = (
            f"{percent(tokens.padded)} of the tokens that are trained on are padding, though each batch is only as "
            "long as its longest sequence."
        )
        yield Finding("padding", 0.0, text, seen, BY_LENGTH)


def pad_to_batch(case: Case) -> Proposal | None:
    """Propose sequences padded to the longest of their batch, and no further."""
    title = "sequences padded to the longest of their batch"
    tokens = tokens_of(case.view)
    if tokens is None:
        return None
    spare = tokens.spare
    if spare < WORTH:
        padded = f"{percent(tokens.padded)} of the tokens are padding"
        return would_not(PAD_TO_BATCH, title, f"Each batch is as long as its longest sequence already; {padded}.")
    model = case.view.share(FORWARD) + case.view.share(BACKWARD)
    of_own = min(model / (1 - case.wait_share), 1.0) if case.wait_share < 1 else 0.0
    least, usual, most = (1 - share * of_own * spare for share in BY_TOKENS)
    basis = "Assumed is that 50 % to 100 % of forward and backward go with the tokens."

    def leaving(left: float) -> Change:
        """Return the change of a step's own time; batches become as much smaller as they have fewer tokens."""

        def change(setup: FeedSetup) -> FeedSetup:
            return replace(setup, step=setup.step * left, sent_bytes=setup.sent_bytes * (1 - spare))

        return change

    return tried(
        case,
        case.predict_factor(Factor(least, usual, most, False, basis), leaving),
        code=PAD_TO_BATCH,
        title=title,
        why=f"{tokens.said}, and forward and backward take {percent(model)} of a step. {basis}",
        confidence=LOW,
        change=leaving(usual),
        costs=["batches of unequal lengths: torch.compile may compile anew for each"],
        hint='in collate_fn: tokenizer.pad(samples, padding="longest"), transformers.DataCollatorWithPadding or '
        'torch.nn.utils.rnn.pad_sequence, in place of padding="max_length" for each sample',
    )


def batch_tokeniser(case: Case) -> Proposal | None:
    """Propose tokenising by the batch."""
    title = "texts tokenised by the batch"
    tokenising = case.stages("tokenise")
    if not tokenising:
        return None
    share, calls = share_of(tokenising), sum(one.calls for one in tokenising)
    if share < WORTH:
        return would_not(BATCH_TOKENISER, title, f"Tokenising is {percent(share)} of making a batch.")
    if calls < 2:
        why = f"Texts are tokenised by the batch already: {number(calls)} calls a batch."
        return would_not(BATCH_TOKENISER, title, why)
    left = untimed(*ASSUMED)
    return tried(
        case,
        case.predict_factor(left, scaled(tokenising)),
        code=BATCH_TOKENISER,
        title=title,
        why=f"The tokeniser is called {number(calls)} times a batch, "
        f"{duration(sum(one.wall_us for one in tokenising))} a sample, {percent(share)} of making "
        f"a batch. {left.basis}",
        confidence=LOW,
        change=scaled(tokenising)(left.usual),
        costs=["a collate function that takes texts"],
        hint='in collate_fn: tokenizer(texts, padding="longest", truncation=True, return_tensors="pt"), with '
        "TOKENIZERS_PARALLELISM=false in workers",
    )
