"""Adoption of the Loader by a script: the recipe of the inspected samples, its degree, and its module."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from headrace.doctor.adoption.explained_recipe import explained_recipe
from headrace.doctor.adoption.module import module_text
from headrace.doctor.adoption.module_files import write_files
from headrace.doctor.adoption.observed import ScriptData, script_data
from headrace.doctor.adoption.recipe import Adoption, Degree, LoaderRecipe, RecipePart
from headrace.doctor.explain.look import LeafPath, Look
from headrace.doctor.explain.samples import LeafExplanation, explain_look
from headrace.doctor.explain.streams import SampleFiles
from headrace.doctor.measure import TrainerView
from headrace.doctor.session.model import Session

_PIXELS = ("hr.Image", "hr.Mask", "hr.Depth")


def adopt(session: Session, view: TrainerView, look: Look | None, folder: Path) -> Adoption | None:
    """Return the adoption of a Loader by a session's script; the files it opens are written to `folder`.

    `look` has inspected samples of its loader, or is None. None without a described loader: in sessions of an older
    doctor, or if the loop has none of torch's.
    """
    data = script_data(session, view)
    if data is None:
        return None
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
        why = f"{look.dataset} is a stream, and no sequence names its samples: hr.open takes tars and tables."
        return LoaderRecipe(reason=why, script=data.script)
    opened = look.opened or SampleFiles(())
    piped = next((each for each in opened.files if each.startswith("pipe:")), None)
    if piped is not None:
        return LoaderRecipe(reason=f"Its tars come out of a command, {piped}.", script=data.script)
    recipe = explained_recipe(look, explained)
    parts = [*recipe.parts, *_taken_otherwise(opened)]
    is_listed = look.is_stream and look.length is not None
    if is_listed:
        note = f"whether the stream gives each of the {look.length} samples once an epoch was not seen; the Loader does"
        parts.append(RecipePart(look.dataset, "shuffle", "check", note, "loader"))
    if not data.takes_each_once and not data.is_stream:
        note = "the Loader takes each sample once an epoch: see weights=, balanced=, repeats= and samples_per_epoch="
        parts.append(RecipePart(data.sampler, "shuffle", "check", note, "loader"))
    degree, reason = _degree(recipe, parts)
    return replace(
        recipe,
        parts=tuple(dict.fromkeys(parts)),
        degree=degree,
        reason=reason,
        batch_size=data.batch_size or look.batch_size,
        shuffle=data.is_shuffled or opened.is_shuffled or (is_listed and not _is_in_order(look)),
        drop_last=bool(data.described.get("drop_last")) or opened.drops,
        script=data.script,
        is_launched=data.is_launched,
        dataset=look.dataset,
    )


def _is_in_order(look: Look) -> bool:
    places = [each.index for each in look.samples if each.making == look.samples[0].making]
    return places == sorted(places)


def _taken_otherwise(opened: SampleFiles) -> Iterator[RecipePart]:
    """Yield the differences of a tar pipeline from the Loader, which takes each sample once per epoch."""
    if opened.buffer:
        note = f"the script shuffles in a buffer of {opened.buffer}, the Loader globally"
        yield RecipePart(f"shuffle({opened.buffer})", "shuffle", "differs", note, "loader")
    if opened.is_resampled:
        note = "the script draws tars with replacement, the Loader takes each sample once an epoch"
        yield RecipePart("resampled", "shuffle", "differs", note, "loader")
    if opened.epoch is not None:
        note = f"an epoch of the script's is {opened.epoch} of what it yields, one of the Loader's all samples"
        yield RecipePart(f"with_epoch({opened.epoch})", "", "differs", note, "loader")
    for name in opened.selects:
        note = "the script selects samples by it, the Loader takes all: see Dataset.filter"
        yield RecipePart(name, "", "check", note, "loader")


def _degree(recipe: LoaderRecipe, parts: list[RecipePart]) -> tuple[Degree, str]:
    if not any(code.startswith(_PIXELS) for code in recipe.fields.values()):
        why = next((f"{part.part}: {part.note}" for part in parts if part.certainty == "python"), "")
        return "no", f"No picture of its samples was found in a file that it reads{f' ({why})' if why else ''}."
    unsure = [part for part in parts if part.certainty in ("check", "python")]
    if not unsure:
        return "exact", ""
    part = unsure[0]
    more = f" And {len(unsure) - 1} more." if len(unsure) > 1 else ""
    return "part", f"{part.part}: {part.note}.{more}"
