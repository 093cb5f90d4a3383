"""Padding in batches of sequences: how much of it there is, and how much a shorter batch would do without."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from headrace.doctor.analyse.parts import BACKWARD, FORWARD
from headrace.doctor.measure.diagnosis import Finding
from headrace.doctor.measure.production import fed_loaders
from headrace.doctor.measure.steps import pass_of
from headrace.doctor.measure.view import View
from headrace.doctor.quantities import counted, number, percent

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


def padding_findings(view: View) -> Iterator[Finding]:
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


def tokens_of(view: View) -> Tokens | None:
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
