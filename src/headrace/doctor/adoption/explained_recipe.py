"""Recipe of a Loader from explained samples of a dataset: fields, view, batch structure and manifest."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from headrace.doctor.adoption.pixel_fields import (
    GEOMETRY,
    VALID,
    LeafField,
    are_drawn_together,
    cut_of_whole,
    field_by_class,
    fixed_window,
    is_filled_as_loader,
    listed,
    note_draws,
    note_own_pixels,
    note_turns,
    parts_of,
    pixel_field,
    resized_code,
    shown_in,
)
from headrace.doctor.adoption.recipe import ROW, LoaderRecipe, UnexplainedError
from headrace.doctor.adoption.value_fields import (
    PictureSource,
    RecipeDraft,
    input_names,
    mixing_code,
    mixing_of,
    only_picture,
    structure,
)
from headrace.doctor.adoption.view_codes import (
    argument_of,
    evaluated,
    known_transforms,
    steps_of,
    view_code,
    why_no_transform,
)
from headrace.doctor.explain import (
    CallExplanation,
    MaskExplanation,
    PictureExplanation,
    PlaneExplanation,
    TokensExplanation,
    ValueExplanation,
    with_clear_scale,
)
from headrace.doctor.explain.look import TURNED, LeafPath, LeafValue, LiveTransform, Look, path_text
from headrace.doctor.explain.samples import LeafExplanation
from headrace.doctor.session.after_run import AdoptedPart, LookedImage

_PILLOWS = {each: each for each in ("bicubic", "lanczos", "box", "hamming")}
_PILLOWS |= {"nearest-pillow": "nearest", "nearest-exact": "nearest", "cubic": "bicubic", "area": "box"}
"""Filters by Pillow's names, except bilinear."""
_VALUES = (ValueExplanation, TokensExplanation, CallExplanation)


@dataclass
class _RecipeMaker(RecipeDraft):
    explained: Mapping[LeafPath, LeafExplanation] = field(default_factory=dict)
    left: list[LeafPath] = field(default_factory=list)
    root: str | None = None
    mixing: LiveTransform | None = None

    def recipe(self) -> LoaderRecipe:
        values = [path for path, leaf in self.explained.items() if isinstance(leaf.by, _VALUES)]
        flags = [path for path in self.explained if self._is_flag(path)]
        for path in self.explained:
            if path not in (*values, *flags):
                self._try(path, self._pixels)
        for path in flags:  # of the depth of another leaf
            self._try(path, self._valid)
        view, augment = self._views()
        for path in values:
            self._try(path, self._values)
        mixing = self._mixing()
        order = [path for path in self.explained if path in self.codes]
        used = " ".join(self.fields.values())
        self.columns = {name: one for name, one in self.columns.items() if name in self.fields or repr(name) in used}
        return LoaderRecipe(
            fields=self.fields,
            output=structure({path: self.codes[path] for path in order}),
            view=view,
            augment=augment,
            mixing=mixing,
            columns=self._chosen_columns(),
            root=self.root,
            opened=() if self.look.opened is None else self.look.opened.files,
            keys=self._keys(),
            tokenizers=self.tokenizers,
            parts=tuple(dict.fromkeys(self.parts)),
            covered=tuple(map(path_text, order)),
            left={path_text(path): self._kind(path) for path in self.explained if path in self.left},
            imports=tuple(sorted(self.imports)),
            folders=tuple(self.folders),
            arguments=self.arguments,
            image=self._image(view, augment),
        )

    def _try(self, path: LeafPath, make: Callable[[LeafPath, LeafExplanation], None]) -> None:
        """Make the field of a leaf, or leave it to Python with the reason."""
        try:
            if self.look.mixed is None:
                raise UnexplainedError("whether the script mixes the samples of a batch in it was not seen")
            if path in self.look.mixed:
                self.mixing = mixing_of(self.look, self.explained)
            make(path, self.explained[path])
        except UnexplainedError as why:
            self._leave(path, str(why))

    def _values(self, path: LeafPath, leaf: LeafExplanation) -> None:
        assert isinstance(leaf.by, _VALUES)
        self.codes[path] = self.value_code(path, leaf.by)

    def _image(self, view: str | None, augment: str | None) -> LookedImage | None:
        first = next((one for one in self.placed if one.is_image and one.name in self.fields), None)
        if first is None or first.crops:
            return None
        code = self.fields[first.name]
        return LookedImage(
            steps=[] if first.view == "None" else steps_of(first.view),
            dtype=evaluated(code).dtype,
            normalize=argument_of(code, "normalize"),
            filter=_PILLOWS.get(first.filter or "", "bilinear"),
            is_augmented=bool(first.augment or augment),
        )

    def _mixing(self) -> str | None:
        """Return the mixing of batches as code; None if nothing is mixed, or one of the two leaves is not covered."""
        mixed = self.look.mixed or ()
        if self.mixing is None or any(path not in self.codes for path in mixed):
            for path in [one for one in mixed if one in self.codes]:
                del self.codes[path]
                self._leave(path, "the script mixes the samples of a batch in it, and its picture or label is not made")
            return None
        self.parts += parts_of(self.mixing, "loader")
        image = next(one.name for one in self.placed if one.path in mixed)
        return mixing_code(self.mixing.batch, image, self.one_hot)

    def _leave(self, path: LeafPath, why: str) -> None:
        self.left.append(path)
        self.parts.append(AdoptedPart(path_text(path), "output", "", "python", why))

    def _kind(self, path: LeafPath) -> str:
        value = self.look.samples[0].leaves[path].value
        return f"{value.dtype}{[1, *value.shape]}" if hasattr(value, "dtype") else type(value).__name__

    def _keys(self) -> tuple[str, ...]:
        """Return the columns to open, if any of them is a value in a JSON member."""
        names = [self.sources[name] for name in self.fields] if self.look.opened is not None else []
        return tuple(dict.fromkeys(names)) if any(map(self.is_key, names)) else ()

    def _chosen_columns(self) -> dict[str, Sequence[Any]]:
        chosen, opened = self.look.chosen, self.look.opened
        if opened is not None:
            of = opened.rows
            rows = chosen if of is None else [of[index] for index in chosen or range(len(of))]
            return {} if rows is None else {ROW: rows}
        if chosen is None:
            return self.columns
        return {name: [values[index] for index in chosen] for name, values in self.columns.items()}

    def _is_flag(self, path: LeafPath) -> bool:
        """Return True for an array that is true in every pixel that was seen."""
        if self.explained[path].by is not None or self.look.samples[0].leaves[path].dtype != "bool":
            return False
        leaves = [each.leaves[path].value for each in self.look.samples]
        return all(isinstance(one, np.ndarray) and one.ndim > 1 and bool(one.all()) for one in leaves)

    def _valid(self, path: LeafPath, _: LeafExplanation) -> None:
        """Make a leaf that is true in all pixels that were seen: those of a depth leaf within the dataset's bounds."""
        plain = [one for one in self.placed if one.kind == "Depth" and not argument_of(one.text(), "normalize")]
        pairs = [(one, path) for one in plain for path in (one.path, *one.also) if path in self.codes]
        for one, like in pairs:
            depth = [each.leaves[like].value for each in self.look.samples]
            if depth[0].shape != self._shape(path):
                continue
            least, most = min(float(each.min()) for each in depth), max(float(each.max()) for each in depth)
            near = [each for name, each in self.look.numbers.items() if "min" in name and each < least]
            far = [each for name, each in self.look.numbers.items() if "max" in name and each > most]
            if len(near) == len(far) == 1:
                bounds, name = [f"near={near[0]!r}", f"far={far[0]!r}"], self.name(path, "valid")
                note = "the dataset's bounds; all depth that was seen lies within them"
                part = AdoptedPart(path_text(path), "fields", ", ".join(bounds), "differs", note)
                first, *more = (each for each in one.arguments if each != "valid=False")
                code = one.code.replace(f"batch[{one.name!r}]", f"batch[{name + VALID!r}]")
                made = replace(one, path=path, name=name, code=code, parts=[part], also=[])
                made.arguments = [first, *bounds, *more]
                return self._place(path, made)
        raise UnexplainedError("it is true in all pixels that were seen: which values would be false is not known")

    def _pixels(self, path: LeafPath, leaf: LeafExplanation) -> None:
        is_scaled = isinstance(leaf.by, PictureExplanation) and leaf.by.is_scaled_by_sample
        if leaf.by is not None and not is_scaled:
            self._place(path, self._by_values(path, leaf))
            return
        near = leaf if is_scaled and leaf.is_random else leaf.near
        try:
            made = self._by_class(path, leaf)
        except UnexplainedError:
            if near is None or not isinstance(near.by, PictureExplanation):
                raise
            by = with_clear_scale(near.by, near.seen) if is_scaled else near.by
            made = self._by_values(path, replace(near, by=by))
            note_own_pixels(made, near, near.by)
        self._place(path, made)

    def _place(self, path: LeafPath, made: LeafField) -> None:
        """Add a field, or take the leaf from another field with the same values."""
        twin = next((one for one in self.placed if one.makes_same(made)), None)
        code = made.code
        if twin is None:
            self.parts += made.parts
            self.placed.append(made)
        else:
            twin.also.append(path)
            for part in ("", VALID):
                code = code.replace(f"batch[{made.name + part!r}]", f"batch[{twin.name + part!r}].clone()")
        self.codes[path] = f"list({code})" if self.look.samples[0].leaves[path].is_listed else code

    def _by_values(self, path: LeafPath, leaf: LeafExplanation) -> LeafField:
        by = leaf.by
        assert isinstance(by, PictureExplanation | MaskExplanation | PlaneExplanation)
        if isinstance(by, PictureExplanation) and by.crops:
            leaf = replace(leaf, seen=[replace(each, leaf=each.leaf[0]) for each in leaf.seen])
        kinds = {PictureExplanation: "image", MaskExplanation: "mask", PlaneExplanation: "depth"}
        name = self.name(path, kinds[type(by)])
        source = self._source(leaf.input or 0)
        sizes, shapes = [each.source.shape for each in leaf.seen], [each.leaf.shape for each in leaf.seen]
        made = pixel_field(name, source.column or self._column(name, source), leaf, by)
        pads = is_filled_as_loader(by)
        view = view_code(by.placements, shapes, sizes, by.layout, is_random=leaf.is_random, pads=pads)
        fitting = known_transforms(self.look, made.size, by.placements, sizes) if leaf.is_random else []
        transform = self._of_its_own(path, fitting)
        if transform is not None:
            view, made.augment = listed(transform.view), listed(transform.augment)
        if view is None and transform is None:
            view = self._cut(made, sizes, is_random=leaf.is_random)
        if view is None:
            is_turned = any(one.is_transposed for one in by.placements)
            how = "it has turns by quarters" if is_turned else "its windows are cut by a rule"
            raise UnexplainedError(f"{how} that no view of the Loader has")
        made.view = view
        if leaf.decoding == TURNED:
            note_turns(made, self.look, leaf)
        if isinstance(by, PictureExplanation) and by.crops:  # a view of the field's own
            made.view, made.crops = "None", view.replace("hr.CenterCrop(", f"hr.{by.crops}(")
            made.arguments.append(f"view={made.crops}")
        if transform is None:
            note_draws(made, len(sizes))
        self._take(name, source)
        return made

    def _cut(self, made: LeafField, sources: Sequence[tuple[int, ...]], *, is_random: bool) -> str | None:
        """Cut the leaf out of a whole picture, if it is the same window in all samples; return the view, or None."""
        window, flips = fixed_window(made.placements, sources), {one.is_flipped for one in made.placements}
        is_drawn = len(flips) == 2 and is_random and made.is_image
        if window is None or (True in flips and not is_drawn):
            return None
        cut_of_whole(made, window, sources[0])
        if not is_drawn:
            return "None"
        self.fields[GEOMETRY] = "hr.Geometry()"
        self.imports.add("import torch")
        return "hr.RandomHorizontalFlip(0.5)"

    def _by_class(self, path: LeafPath, leaf: LeafExplanation) -> LeafField:
        """Return the field of an image with values randomised by a known library's transform: no window is visible."""
        value: LeafValue = self.look.samples[0].leaves[path]
        shape = self._shape(path)
        if leaf.is_cut:
            raise UnexplainedError("the search for its window in the files that were read ran out of time")
        if isinstance(leaf.by, PictureExplanation) and not leaf.is_random:
            raise UnexplainedError(
                "it shows a window of its file, whose values are scaled by another factor in each sample"
            )
        if len(shape) == 4 and 3 in (*shape[:2], shape[3]):
            count = shape[1] if shape[0] == 3 else shape[0]
            why = f"it stacks {count} pictures, and only single ones are sought in files"
            raise UnexplainedError(f"{why}: see hr.TenCrop, copies= and columns of several images")
        warps = ", ".join(dict.fromkeys(one.function for each in self.look.samples for one in each.turned))
        turned = f"; the script turns or warps pictures by {warps}: see hr.RandomAffine" if warps else ""
        if len(shape) != 3 or not leaf.is_random:
            why = "these values match no file and no column that was read"
            raise UnexplainedError(f"{why}{turned if leaf.is_random and leaf.is_array else ''}")
        layout = "CHW" if shape[0] in (1, 3) else "HWC"
        fitting = known_transforms(self.look, (shape[1], shape[2]) if layout == "CHW" else (shape[0], shape[1]), (), ())
        fitting = [each for each in fitting if each.augment or len(each.parts) > 1]  # more than a crop alone
        if not fitting:
            why = "no window of a file that was read makes these values by one filter"
            raise UnexplainedError(f"{why}, and {why_no_transform(self.look)}{turned}")
        transform = self._of_its_own(path, fitting)
        if transform is None:
            raise UnexplainedError(f"which of {len(fitting)} transforms makes it is not known")
        name = self.name(path, "image")
        source = self._source(only_picture(self.look.samples))
        made = field_by_class(leaf, name, source.column or self._column(name, source), transform, value.dtype, layout)
        made.parts += parts_of(transform, "view")
        self._take(name, source)
        return made

    def _of_its_own(self, path: LeafPath, fitting: Sequence[LiveTransform]) -> LiveTransform | None:
        """Return which of several transforms makes a leaf: by position, if equally many leaves are alike."""
        if len(fitting) < 2:
            return next(iter(fitting), None)
        shape = self._shape(path)
        alike = [each for each, leaf in self.explained.items() if leaf.is_random and self._shape(each) == shape]
        return fitting[alike.index(path)] if len(alike) == len(fitting) else None

    def _shape(self, path: LeafPath) -> tuple[int, ...]:
        shape: tuple[int, ...] = getattr(self.look.samples[0].leaves[path].value, "shape", ())
        return shape

    def _source(self, number: int) -> PictureSource:
        source = input_names(number, self.look)
        if self.placed and source.root != self.root:
            where, others = source.root or "folders", self.root or "folders"
            raise UnexplainedError(f"its files lie in {where}, those of the other fields in {others}")
        return source

    def _take(self, name: str, source: PictureSource) -> None:
        self.root, self.sources[name] = source.root, source.column or source.names
        if source.column is None:
            self.columns[self._column(name, source)] = source.names

    def _column(self, name: str, source: PictureSource) -> str:
        """Return the manifest's column of these files, which two fields share: their pixels are decoded once."""
        same = (column for column, names in self.columns.items() if names == source.names)
        return next(same, f"{name}__path")

    def _views(self) -> tuple[str | None, str | None]:
        """Add the pixel fields, and return the Loader's view and augmentations, or each image's own view."""
        followers = [one for one in self.placed if not one.is_image]
        if not self.placed:
            return None, None
        first = min(followers or self.placed, key=lambda one: len(steps_of(one.view)))  # not one resized from another
        drawn = [one for one in self.placed if self._is_like(one, first) or self._shares(one, first)]
        augment = next((one.augment for one in drawn if one.augment), None)
        for one in self.placed:
            own = []
            if one not in drawn:
                if self._is_resized(one, first):
                    continue
                is_drawn_with_it = are_drawn_together(one.shown, first.shown)
                if not one.is_image or is_drawn_with_it:
                    also = ", which draws with it" if is_drawn_with_it else ""
                    self._drop(one, f"its view is {one.view}, that of the other fields {first.view}{also}")
                    continue
                own = [f"view={one.view}", *([f"augment={one.augment}"] if one.augment else [])]
            elif one.augment != augment and one.is_image:
                own = [f"augment={one.augment}"] if one.augment else []
            self.fields[one.name] = one.text(own)
        self._leave_what_is_drawn_with_others()
        return None if first.view == "None" else first.view, augment

    def _drop(self, one: LeafField, why: str = "") -> None:
        """Remove a field with its parts; with a reason, leave its leaves to Python."""
        for path in (one.path, *one.also) if why else ():
            del self.codes[path]
            self._leave(path, why)
        self.fields.pop(one.name, None)
        self.parts = [part for part in self.parts if part not in one.parts]

    def _is_resized(self, one: LeafField, whole: LeafField) -> bool:
        """Make an image from another field's if it only differs in size; return True on success."""
        code = resized_code(one, whole)
        if code is None or self.sources[one.name] != self.sources[whole.name]:
            return False
        for path in (one.path, *one.also):
            self.codes[path] = self.codes[path].replace(f"batch[{one.name!r}]", code)
        self._drop(one)
        self.imports.add("import torch")
        return True

    def _leave_what_is_drawn_with_others(self) -> None:
        """Leave random pixel fields to Python if fields left there may share their draws."""
        apart = [path for path in self.left if self.explained[path].is_random and len(self._shape(path)) > 1]
        for one in (each for each in self.placed if self.explained[each.path].is_random):
            shown = {path: shown_in(self.explained[path]) for path in apart}
            together = (path for path, its in shown.items() if not its or are_drawn_together(one.shown, its))
            name = next(together, None)
            if name is not None and one.path in self.codes:
                self._drop(one, f"it may be drawn with {path_text(name)}, which stays in Python")

    @staticmethod
    def _is_like(one: LeafField, first: LeafField) -> bool:
        """Return True for an image of another field's windows: it does not show whether it was mirrored before."""
        windows = [[replace(each, is_turned_first=False) for each in field.placements] for field in (one, first)]
        return one.is_image and windows[0] == windows[1] != []

    def _shares(self, one: LeafField, first: LeafField) -> bool:
        """Return True if two fields may show the same windows: equal in one file, or not known to differ in two."""
        if one.view != first.view:
            return False
        if one is first or one.placements == first.placements != ():
            return True
        is_of_one_file = self.sources[one.name] == self.sources[first.name]
        return not is_of_one_file and not (one.placements and first.placements)


def explained_recipe(look: Look, explained: Mapping[LeafPath, LeafExplanation]) -> LoaderRecipe:
    """Return the recipe of the leaves that the Loader makes. Other leaves are in `left`, with a part that says why."""
    return _RecipeMaker(look, explained=explained).recipe()
