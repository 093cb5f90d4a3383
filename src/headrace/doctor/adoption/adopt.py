"""Adoption of the Loader by a script: the recipe of the inspected samples, its degree, and its module."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from headrace.doctor.adoption.explained_recipe import explained_recipe
from headrace.doctor.adoption.recipe import Adoption, Degree, LoaderRecipe, module_text, write_files
from headrace.doctor.adoption.view_codes import seen_both_ways
from headrace.doctor.explain.look import LeafPath, Look, SampleFiles
from headrace.doctor.explain.samples import LeafExplanation, explain_look
from headrace.doctor.measure import TrainerView
from headrace.doctor.session.after_run import AdoptedPart
from headrace.doctor.session.model import Session
from headrace.doctor.session.trainers import LoaderFacts, order_described, short_class

INTERPRETERS = ("python", "pypy")
_WHOLE = ("SequentialSampler", "RandomSampler", "SeedableRandomSampler", "DistributedSampler", "SubsetRandomSampler")
"""Samplers that take each sample once per epoch, the last from a list of samples; the third is accelerate's."""
_PIXELS = ("hr.Image", "hr.Mask", "hr.Depth")


def adopt(session: Session, view: TrainerView, look: Look | None, folder: Path) -> Adoption | None:
    """Return the adoption of a Loader by a session's script; the files it opens are written to `folder`.

    `look` has inspected samples of its loader, or is None. None without a described loader, if the
    loop has none of torch's.
    """
    loader = described_loader(view)
    if loader is None:
        return None
    data = ScriptData(loader.facts, _own_script(session, view.trainer.pid))
    explained: Mapping[LeafPath, LeafExplanation] = {}
    try:
        explained = {} if look is None or not look.samples else explain_look(look)
        recipe = _recipe(data, look, explained, _why_no_look(session))
        if recipe.degree == "no":
            return Adoption(recipe, None, explained=explained)
        files = write_files(recipe, folder)
        return Adoption(recipe, module_text(recipe, files), files, explained)
    except Exception as error:  # samples may hold anything, and a diagnosis is more than this remedy
        why = f"what its samples hold could not be read, a fault of the doctor's: {type(error).__name__}: {error}"
        return Adoption(LoaderRecipe(reason=why), None, explained=explained)


def _why_no_look(session: Session) -> str:
    said = [note.text for note in session.notes if note.code == "no-look"]
    return said[0] if said else "Samples of its dataset were not looked at, since the run ended without its loader."


def _recipe(
    data: ScriptData, look: Look | None, explained: Mapping[LeafPath, LeafExplanation], why_no_look: str
) -> LoaderRecipe:
    if look is None:
        return LoaderRecipe(reason=why_no_look, script=data.script)
    if not look.samples:
        raised = f": {look.errors[0]}" if look.errors else ""
        return LoaderRecipe(reason=f"No sample of {look.dataset} could be made again{raised}.", script=data.script)
    if look.length is None and look.opened is None:
        why = f"{look.dataset} is a stream, and hr.open takes tars and tables."
        return LoaderRecipe(reason=why, script=data.script)
    opened = look.opened or SampleFiles(())
    piped = next((each for each in opened.files if each.startswith("pipe:")), None)
    if piped is not None:
        return LoaderRecipe(reason=f"Its tars come out of a command, {piped}.", script=data.script)
    recipe = explained_recipe(*seen_both_ways(look, explained))
    parts = [*recipe.parts, *_taken_otherwise(opened)]
    if not data.takes_each_once and not data.is_stream:
        note = "the Loader takes each sample once an epoch: see weights=, balanced=, repeats= and samples_per_epoch="
        parts.append(AdoptedPart(data.sampler, "loader", "shuffle", "check", note))
    degree, reason = _degree(recipe, parts)
    return replace(
        recipe,
        parts=tuple(dict.fromkeys(parts)),
        degree=degree,
        reason=reason,
        batch_size=data.batch_size or look.batch_size,
        shuffle=data.is_shuffled or opened.is_shuffled,
        drop_last=bool(data.described.get("drop_last")) or opened.drops,
        script=data.script,
    )


def _taken_otherwise(opened: SampleFiles) -> Iterator[AdoptedPart]:
    """Yield the differences of a tar pipeline from the Loader, which takes each sample once per epoch."""
    if opened.buffer:
        note = f"the script shuffles in a buffer of {opened.buffer}, the Loader globally"
        yield AdoptedPart(f"shuffle({opened.buffer})", "loader", "shuffle", "differs", note)
    if opened.is_resampled:
        note = "the script draws tars with replacement, the Loader takes each sample once an epoch"
        yield AdoptedPart("resampled", "loader", "shuffle", "differs", note)
    if opened.epoch is not None:
        note = f"an epoch of the script's is {opened.epoch} of what it yields, one of the Loader's all samples"
        yield AdoptedPart(f"with_epoch({opened.epoch})", "loader", "", "differs", note)
    for name in opened.selects:
        note = "the script selects samples by it, the Loader takes all: see Dataset.filter"
        yield AdoptedPart(name, "loader", "", "check", note)


def _degree(recipe: LoaderRecipe, parts: list[AdoptedPart]) -> tuple[Degree, str]:
    if not any(code.startswith(_PIXELS) for code in recipe.fields.values()):
        why = next((f"{part.part}: {part.note}" for part in parts if part.certainty == "python"), "")
        return "no", f"No picture of its samples is a view of a file that it reads{f' ({why})' if why else ''}."
    unsure = [part for part in parts if part.certainty in ("check", "python")]
    if not unsure:
        return "exact", ""
    part = unsure[0]
    more = f" And {len(unsure) - 1} more." if len(unsure) > 1 else ""
    return "part", f"{part.part}: {part.note}.{more}"


# The loader that a training waits for, as recorded.


@dataclass(frozen=True)
class ScriptData:
    """The loader that a training waits for, as recorded in the session."""

    facts: Mapping[str, Any]
    script: tuple[str, ...] = ()
    """The script with its arguments, or `-m` with a module; empty for any other command."""

    @property
    def described(self) -> Mapping[str, Any]:
        found: Mapping[str, Any] = self.facts.get("described") or {}
        return found

    @property
    def batch_size(self) -> int | None:
        """Samples per batch; None if the dataset makes batches."""
        size = self.facts.get("batch_size")
        return size if isinstance(size, int) and not isinstance(size, bool) else None

    @property
    def sampler(self) -> str:
        """Class name of the sampler; empty if unknown."""
        return short_class(order_described(self.described))

    @property
    def is_shuffled(self) -> bool:
        """True if the order is random: for any sampler but the sequential one."""
        return any(word in self.sampler for word in ("Random", "Distributed", "Weighted", "Shuffle"))

    @property
    def takes_each_once(self) -> bool:
        """True if an epoch takes each sample once, as far as the sampler is known."""
        state = order_described(self.described).get("attributes", {})
        is_drawn = state.get("replacement") or state.get("_num_samples") is not None
        return not self.sampler or (self.sampler in _WHOLE and not is_drawn)

    @property
    def is_stream(self) -> bool:
        """True if no sampler draws samples of the dataset."""
        return self.sampler == "_InfiniteConstantSampler"


def _script_of(command: Sequence[str]) -> tuple[str, ...]:
    """Return the script of a Python command with its arguments, or `-m` with a module; empty for any other command."""
    words = list(command)
    while words and os.path.basename(words[0]).startswith(INTERPRETERS):
        words = words[1:]
        while words and words[0].startswith("-") and words[0] not in ("-m", "-c"):
            words = words[1:]
        if words and (words[0].endswith(".py") or words[0] == "-m"):
            return tuple(words)
    return ()


def _own_script(session: Session, pid: int) -> tuple[str, ...]:
    """Return the script of a training's process, which a launcher may have started, or else of the run's command."""
    process = next((one for one in session.processes if one.pid == pid), None)
    began = {} if process is None else process.facts.get("process") or {}
    return _script_of([str(word) for word in began.get("argv") or []]) or _script_of(session.outcome.command)


def described_loader(view: TrainerView) -> LoaderFacts | None:
    """Return the described loader that gave the training most batches."""
    loaders = {
        loader.number: loader for loader in view.trainer.loaders if isinstance(loader.facts.get("described"), dict)
    }
    of_pass = {one.number: one.loader for one in view.trainer.passes}
    counts = dict.fromkeys(loaders, 0)
    for number in view.trainer.gets.pass_:
        if of_pass.get(number) in counts:
            counts[of_pass[number]] += 1
    most = max(counts, key=counts.__getitem__, default=None)
    return None if most is None else loaders[most]
