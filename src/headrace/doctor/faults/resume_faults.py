"""Position at which a resumed run goes on, by the keys of its batches: after the checkpoint, before or beyond it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import NamedTuple

from headrace.doctor.faults.fault_kinds import FaultKind
from headrace.doctor.faults.process_faults import passes_that_feed
from headrace.doctor.session.after_run import DataFault
from headrace.doctor.session.model import Session
from headrace.doctor.session.trainers import DrawnBatch, Trainer


class Resumption(NamedTuple):
    """Result of the comparison: words, or the fault and the number of batches that it concerns."""

    text: str
    fault: DataFault | None = None
    batches: int = 0
    is_compared: bool = True


REPEATED_AFTER_RESUME = FaultKind(
    "repeated-after-resume",
    "The first run had trained {trained:,} batches of a pass when it wrote its checkpoint. The second run does "
    "not go on after them: {what}.",
    "Save the sampler's position with the model, as torchdata's StatefulDataLoader, Accelerate's "
    "skip_first_batches or headrace.ResumableBatchSampler do.",
    "with `headrace check resume`: keys of the batches that both runs train on: the second goes on "
    "where the first saved, or takes what is left in another order",
)


def resumption(before: Session, after: Session) -> Resumption:
    """Compare the first batch that a resumed run trains on with the order of the run that wrote its checkpoint."""
    first = next((trainer for trainer in before.trainers if trainer.saved and trainer.drawn), None)
    second = next((trainer for trainer in after.trainers if first and trainer.rank == first.rank), None)
    if first is None or second is None:
        why = "no checkpoint was saved by torch.save or safetensors after batches of a DataLoader"
        return Resumption(f"The resume was not compared: {why}.", is_compared=False)
    ahead = _ahead(first)
    resumed = _trained_first(second, ahead)
    if resumed is None:
        why = "the second run took no optimizer step on a DataLoader's batch"
        return Resumption(f"The resume was not compared: {why}.", is_compared=False)
    passes = _training_passes(first)
    trained = _trained_in_pass(second, resumed)
    saves = [saved for saved in first.saved if saved.is_file] or first.saved
    checkpoints = [_checkpoint(passes, first.drawn[: saved.taken], ahead) for saved in saves]
    judged = [_judged(passes, one, resumed, trained) for one in checkpoints if one is not None]
    if not any(judged):
        judged = [_by_samples(passes, one, second, resumed) for one in checkpoints if one is not None]
    why = "The resume was not compared: the second run draws batches that the first has not drawn."
    unknown = Resumption(why, is_compared=False)
    return min((one for one in judged if one is not None), key=lambda one: one.batches, default=unknown)


def _by_samples(
    passes: dict[int, _TrainedPass], saved: _Checkpoint, second: Trainer, resumed: DrawnBatch
) -> Resumption | None:
    """Compare the samples of a pass that the second run takes in another order; None if they are not known."""
    if saved.trained == passes[saved.pass_].length:
        return Resumption("The resume begins a pass, and the first run had trained a whole one when it saved.")
    done = [sample for batch in passes[saved.pass_].samples[: saved.trained] for sample in batch]
    drawn = [one for one in second.drawn if one.pass_ == resumed.pass_]
    rest = [sample for one in drawn[drawn.index(resumed) :] for sample in one.samples]
    if not done or not rest or len(set(done)) < len(done) or len(set(rest)) < len(rest):
        return None
    twice = len(set(done) & set(rest))
    every = {sample for one in passes.values() for batch in one.samples for sample in batch}
    every |= {sample for one in second.drawn for sample in one.samples}
    never = len(every - set(done) - set(rest)) if len(done) + len(rest) >= len(every) else 0
    if not twice and not never:
        return Resumption("The resume repeats and loses no sample: the second run takes what is left in another order.")
    what = f"it takes another order, {twice:,} samples of the pass are trained twice, and {never:,} never"
    return Resumption("", REPEATED_AFTER_RESUME.found(trained=saved.trained, what=what), twice)


@dataclass(frozen=True)
class _TrainedPass:
    """Pass of the first run that feeds training."""

    keys: list[str]
    """Keys of its batches, in order."""
    samples: list[list[int]]
    """Samples of each of them; empty if unknown."""
    length: int | None
    """Number of batches of a whole pass, if known."""


@dataclass(frozen=True)
class _Checkpoint:
    """Pass that was under way, and the number of its batches that were trained."""

    pass_: int
    trained: int


def _training_passes(trainer: Trainer) -> dict[int, _TrainedPass]:
    """Return the passes that feed training, by number."""
    lengths = {loader.number: loader.facts.get("length") for loader in trainer.loaders}
    length_of = {one.number: lengths.get(one.loader) for one in trainer.passes}
    drawn = sorted(_feeding(trainer), key=lambda one: one.pass_)
    return {
        number: _TrainedPass([one.keys for one in rows], [one.samples for one in rows], length_of.get(number))
        for number, rows in ((number, list(rows)) for number, rows in groupby(drawn, key=lambda one: one.pass_))
    }


def _checkpoint(passes: dict[int, _TrainedPass], taken: Sequence[DrawnBatch], ahead: int) -> _Checkpoint | None:
    """Return what was trained once these batches were taken, the last ones `ahead` of training but at a pass's end."""
    last = next((one.pass_ for one in reversed(taken) if one.pass_ in passes), None)
    if last is None:
        return None
    count = sum(one.pass_ == last for one in taken)
    return _Checkpoint(last, count if count == passes[last].length else max(count - ahead, 0))


def _feeding(trainer: Trainer) -> list[DrawnBatch]:
    """Return the batches of passes that feed training."""
    feeding = passes_that_feed(trainer)
    return [one for one in trainer.drawn if one.pass_ in feeding]


def _in_step(trainer: Trainer) -> int:
    """Return how many batches an optimizer step takes."""
    return max(sum(one.step == 1 for one in _feeding(trainer)), 1)


def _ahead(trainer: Trainer) -> int:
    """Return how many batches a run that skips none takes before it trains on them: Accelerate's loaders take one."""
    return max(sum(one.step == 0 for one in _feeding(trainer)) - _in_step(trainer), 0)


def _trained_first(trainer: Trainer, ahead: int) -> DrawnBatch | None:
    """Return the first batch of the first optimizer step. Batches before it were skipped."""
    taken = [one for one in _feeding(trainer) if one.step == 0]
    return taken[-min(_in_step(trainer) + ahead, len(taken))] if taken else None


def _trained_in_pass(trainer: Trainer, resumed: DrawnBatch) -> int:
    """Return how many batches the resumed pass trains on."""
    keys = [one.keys for one in trainer.drawn if one.pass_ == resumed.pass_]
    return len(keys) - keys.index(resumed.keys)


def _judged(
    passes: dict[int, _TrainedPass], saved: _Checkpoint, resumed: DrawnBatch, trained: int
) -> Resumption | None:
    """Return where the run goes on, seen from one checkpoint; None if the keys do not show it."""
    pass_ = passes[saved.pass_]
    done, left = pass_.keys[: saved.trained], pass_.keys[saved.trained :]
    is_over = not left and pass_.length in (None, saved.trained)
    following = next((one.keys for number, one in passes.items() if number > saved.pass_), []) if is_over else left
    if following and following[0] == resumed.keys:
        return Resumption(
            f"The resume repeats and loses no batch: the second run goes on after the {saved.trained:,} batches of a "
            "pass that the first had trained when it wrote its checkpoint."
        )
    remaining = None if pass_.length is None else pass_.length - saved.trained
    if is_over:
        return None
    if resumed.keys in done:
        count = len(done) - done.index(resumed.keys)
    elif resumed.keys in left:
        count = left.index(resumed.keys)
        what = f"{count:,} batches are never trained"
        return Resumption("", REPEATED_AFTER_RESUME.found(trained=saved.trained, what=what), count)
    elif remaining is not None and trained > remaining:
        count = trained - remaining
    elif any(_is_order_of(one, pass_, resumed) for number, one in passes.items() if number < saved.pass_):
        what = "it takes batches in the order of an earlier pass"
        return Resumption("", REPEATED_AFTER_RESUME.found(trained=saved.trained, what=what), trained)
    else:
        return None
    what = f"at least {count:,} batches of that pass are repeated"
    return Resumption("", REPEATED_AFTER_RESUME.found(trained=saved.trained, what=what), count)


def _is_order_of(earlier: _TrainedPass, pass_: _TrainedPass, resumed: DrawnBatch) -> bool:
    """Return True if a batch is of an earlier pass, whose order differs from that of the pass under way."""
    drawn = min(len(earlier.keys), len(pass_.keys))
    return resumed.keys in earlier.keys and earlier.keys[:drawn] != pass_.keys[:drawn]
