"""Explain a look, make its recipe's Loader, and compare that with the samples that were looked at.

    python look_recipe.py LOOK MODULE
    python look_recipe.py LOOK "" NAME DATA CODE

MODULE is a file of the doctor's `--draft` to compare; an empty text stands for the module of the recipe that is made
here, and one that NAME follows for the Loader that `hand_made.py` has for it. Printed is JSON: seconds of the
explanation, a row for each leaf, and how each leaf of the Loader compares.
"""

import importlib.util
import json
import sys
import tempfile
import time
import traceback
from pathlib import Path

from headrace.doctor.adoption.comparison import verified
from headrace.doctor.adoption.explained_recipe import explained_recipe
from headrace.doctor.adoption.recipe import module_text, write_files
from headrace.doctor.explain import MaskExplanation, PictureExplanation, PlaneExplanation, ValueExplanation
from headrace.doctor.explain.look import LeafPath, Look, read_look
from headrace.doctor.explain.samples import LeafExplanation, explain_look

PIXELS = ("hr.Image", "hr.Mask", "hr.Depth")


def main() -> None:
    look, module = read_look(Path(sys.argv[1])), sys.argv[2]
    said: dict = {}
    if sys.argv[3:]:
        print("\n" + json.dumps({"hand": by_hand(look, *sys.argv[3:])}), flush=True)
        return
    with tempfile.TemporaryDirectory() as folder:
        if not module:
            begun = time.monotonic()
            explained = explain_look(look)
            said["explain"] = time.monotonic() - begun
            recipe = explained_recipe(look, explained)
            why = {part.part: part.note for part in recipe.parts if part.certainty == "python"}
            said["rows"] = [row_of(look, path, leaf, why) for path, leaf in explained.items()]
            unsure = [each for each in recipe.parts if each.certainty in ("check", "python")]
            said["unsure"] = [f"{each.part}: {each.note}" for each in unsure]
            said["covered"], said["left"] = list(recipe.covered), dict(recipe.left)
            said["fields"], said["view"], said["augment"] = dict(recipe.fields), recipe.view, recipe.augment
            sys.path += recipe.folders
            module = f"{folder}/module.py"
            Path(module).write_text(module_text(recipe, write_files(recipe, Path(folder))))
        if "fields" in said and not any(code.startswith(PIXELS) for code in said["fields"].values()):
            module = ""
        try:
            if module:
                made = imported(module)
                said["verified"] = verified(look, made.make_loader, made.batches)
        except BaseException as error:  # a defect of ours, which the table shows
            traceback.print_exc()
            said["failed"] = f"{type(error).__name__}: {error}"
    print("\n" + json.dumps(said), flush=True)


def by_hand(look: Look, name: str, data: str, code: str) -> dict[str, str]:
    """Return how each leaf of a Loader written by hand compares."""
    import hand_made

    sys.path.insert(0, code)  # its tokenizer

    def made() -> hand_made.Made:
        return getattr(hand_made, name)(Path(data), Path(code))

    return verified(look, lambda *args, **given: made().make_loader(*args, **given), made().batches)


def imported(module: str):
    spec = importlib.util.spec_from_file_location("adopted", module)
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


def row_of(look: Look, path: LeafPath, leaf: LeafExplanation, why: dict[str, str]) -> dict:
    name = ".".join(map(str, path))
    value = look.samples[0].leaves[path]
    shape = value.value.shape if value.kind == "array" else ()
    return {
        "leaf": name,
        "kind": f"{value.value.dtype}[{','.join(map(str, shape))}]" if value.kind == "array" else value.kind,
        "image": len(shape) >= 2 and min(shape[-2:]) > 1 and value.value.size > 256,
        "random": leaf.is_random,
        "by": explained_by(leaf),
        "levels": getattr(leaf.by, "levels", None),
        "left": why.get(name, ""),
    }


def explained_by(leaf: LeafExplanation) -> str:
    by = leaf.by
    if isinstance(by, PictureExplanation):
        flips = "".join(sorted({"f" if one.is_flipped else "-" for one in by.placements}))
        scaled = ", scaled by sample" if by.is_scaled_by_sample else ""
        return f"picture {leaf.input} {by.layout} {by.filter} {by.channels} {flips}{scaled}"
    if isinstance(by, MaskExplanation):
        return f"mask {leaf.input} {by.layout} {by.filter}, {len(by.table)} values"
    if isinstance(by, PlaneExplanation):
        how = "validity" if by.is_validity else f"x {by.scale:.6g} + {by.shift:.4g}, fill {by.fill}"
        return f"plane {leaf.input} {by.layout} {by.filter}, {how} {by.normalisation or ''}"
    if isinstance(by, ValueExplanation):
        return f"{by.kind} {by.column or repr(by.value)[:20]}"
    return "-" if by is None else type(by).__name__


if __name__ == "__main__":
    main()
