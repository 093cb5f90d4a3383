"""Sequences padded to the longest of their batch, and no further."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from headrace.doctor.analyse.parts import BACKWARD, FORWARD
from headrace.doctor.causes.case import WORTH, Case, Change
from headrace.doctor.causes.sequences import Tokens, tokens_of, too_long
from headrace.doctor.predict.setup import Setup
from headrace.doctor.quantities import percent
from headrace.doctor.remedies.factor import Factor
from headrace.doctor.remedies.proposal import LOW, Proposal, tried, with_factor, would_not

CODE = "pad-to-batch"
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
        yield would_not(CODE, title, f"Each batch is as long as its longest sequence already; {padded}.")
        return
    model = case.view.share(FORWARD) + case.view.share(BACKWARD)
    of_own = min(model / (1 - case.wait_share), 1.0) if case.wait_share < 1 else 0.0
    least, usual, most = (1 - share * of_own * tokens.spare for share in BY_TOKENS)
    basis = "Assumed is that 50 % to 100 % of forward and backward go with the tokens."
    yield tried(
        case,
        with_factor(case, Factor(least, usual, most, False, basis), lambda left: _change(left, tokens)),
        code=CODE,
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

    def change(setup: Setup) -> Setup:
        return replace(setup, step=setup.step * left, sent_bytes=setup.sent_bytes * (1 - tokens.spare))

    return change
