"""Reader that translates another library's transform part by part and records differences and unsupported parts."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields, is_dataclass, replace
from typing import Any, Literal, TypeAlias, cast

from headrace.augment import AFFINE, AnyMixing, Augmentation, Drawn, Node, RandomErasing
from headrace.errors import UsageError
from headrace.fields.dense import Mask
from headrace.fields.image import IMAGENET, Filter, Image, ImageDType, Mode, Nearest, Normalize
from headrace.views import FiveCrop, Pads, RandomHorizontalFlip, RandomVerticalFlip, TenCrop, View

MOST_CHARACTERS = 160

Values: TypeAlias = Literal["bytes", "unit", "floats of 0…255", "normalized"]
"""Value range of pixels at some point of a transform: 0…255, 0…1, 0…255 as floats, or normalized numbers."""


class PartError(Exception):
    """Reason why a part cannot be translated."""


@dataclass(frozen=True)
class TranslatedPart:
    """Part of a transform and its translation.

    `becomes` is Headrace's counterpart, None if there is none; `note` describes how results differ, or why the part
    cannot be translated.
    """

    part: str
    becomes: str | None
    note: str = ""


@dataclass(frozen=True)
class Translated:
    """Another library's transform as a field, a view and augmentations of Headrace.

        found = hr.from_torchvision(transform)
        fields = {"image": found.image, "label": hr.Label()}
        loader = hr.Loader("train/", fields, view=found.view, augment=found.augment, batch_size=256)

    `parts` holds the translation of each part. `print(found)` shows them.
    """

    image: Image
    view: tuple[View, ...] | None
    augment: tuple[Augmentation, ...] | None
    parts: tuple[TranslatedPart, ...]
    mask: Mask
    """Field of masks that the transform moves: its filter picks the pixels that the library picks."""
    batch: AnyMixing | None = None
    """Batch mixing, for `Loader(batch=)`."""

    @property
    def unknown(self) -> tuple[TranslatedPart, ...]:
        """Parts that cannot be translated."""
        return tuple(part for part in self.parts if part.becomes is None)

    @property
    def notes(self) -> tuple[str, ...]:
        """Differences in the results of translated parts."""
        return tuple(f"{part.part}: {part.note}" for part in self.parts if part.becomes is not None and part.note)

    @property
    def code(self) -> str:
        """Python code of the equivalent Loader arguments."""
        steps = {"view": self.view, "augment": self.augment}
        lists = [f"{name}=[{', '.join(map(code_of, given))}]" for name, given in steps.items() if given is not None]
        mixing = [] if self.batch is None else [f"batch={code_of(self.batch)}"]
        return ",\n".join([f'fields={{"image": {code_of(self.image)}}}', *lists, *mixing])

    @property
    def exact(self) -> bool:
        """True if every part was translated and none differs by more than rounding."""
        return not self.unknown and not self.notes

    def __str__(self) -> str:
        verdict = "exact" if self.exact else f"{len(self.notes)} with a difference" if not self.unknown else ""
        lines = [verdict or f"{len(self.unknown)} of {len(self.parts)} parts cannot be taken"]
        for part in self.parts:
            lines.append(f"  {part.part}")
            lines.append(f"    {'cannot be taken' if part.becomes is None else part.becomes}")
            lines += [f"    ! {part.note}"] if part.note else []
        return "\n".join(lines)


Handler: TypeAlias = Callable[["Reader", Any], None]
Maker: TypeAlias = Callable[["Reader", Any], Augmentation | None]
PairHandler: TypeAlias = Callable[["Reader", Any, Any], None]


@dataclass(frozen=True)
class Vocabulary:
    """Parts of one family of libraries, by class name.

    `steps` handle geometry, conversions and normalization; `makers` return augmentations, top-level or nested; `pairs`
    handle consecutive parts that translate together; `reasons` explain why other parts are unsupported.
    """

    modules: tuple[str, ...]
    steps: Mapping[str, Handler]
    makers: Mapping[str, Maker]
    pairs: Mapping[tuple[str, ...], PairHandler]
    reasons: Mapping[str, str]
    children: Callable[[Any], Iterable[Any] | None]
    """Function that returns the children of a sequential container; None for any other part."""

    def name(self, part: Any) -> str:
        """Return the name of a part's class; "" for a class from another library or the user's script."""
        module = type(part).__module__
        return type(part).__name__ if module.split(".")[0] in self.modules else ""


class Reader:
    """State of one translation: the parts translated so far, and the value range of pixels at this point."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self.vocabulary = vocabulary
        self.values: Values = "bytes"
        self.is_tensor = False
        """True once a part has made a tensor of the Pillow image."""
        self.dtype: ImageDType = "uint8"
        self.mode: Mode = "RGB"
        self.filter: Filter | None = None
        self.mask_filter: Nearest = "nearest"
        self._normalize: Normalize | None = None
        self._views: list[View] = []
        self._augment: list[Augmentation] = []
        self._erase: tuple[RandomErasing, Values] | None = None
        self._mixing: AnyMixing | None = None
        self._parts: list[TranslatedPart] = []
        self._became: list[str] = []
        self._notes: list[str] = []

    def read(self, transform: Any) -> Translated:
        parts = list(self._flat(transform))
        while parts:
            pair = self.vocabulary.pairs.get(tuple(map(self.vocabulary.name, parts[:2])))
            taken = parts[: 1 if pair is None else 2]
            self._take(" + ".join(map(text_of, taken)), pair or self._one, taken)
            parts = parts[len(taken) :]
        return self._result()

    def view(self, view: View, note: str = "") -> None:
        """Add a geometric step. Raises PartError if it cannot move ahead of the augmentations added before it."""
        flip = isinstance(view, RandomHorizontalFlip | RandomVerticalFlip)
        if self._views and isinstance(self._views[-1], FiveCrop | TenCrop):
            raise PartError(f"it comes after {type(self._views[-1]).__name__}, whose crops are the end of a view")
        before = [step for step in self._augment if not flip or not keeps_mirrored(step)]
        if before:
            raise PartError(
                f"it comes after {type(before[0]).__name__}; the view is cut first here, and the two do not commute"
            )
        if self._erase is not None and not flip:
            raise PartError("it comes after RandomErasing; the view is cut first here")
        self.became(f"view: {code_of(view)}", note)
        if view.resizes:
            self._note_sources(self._views)
        self._views.append(view)

    def _note_sources(self, before: Sequence[View]) -> None:
        """Note what a view's single resampling of the source makes of earlier resizes and crops."""
        resized = next((step for step in before if step.resizes), None)
        if resized is not None:
            self.note(f"resampled once, from the image itself, where {code_of(resized)} has resampled it before")
        padded = next((step for step in before if step.pads(None) is not Pads.NEVER), None)
        if padded is not None:
            self.note(f"an image that {code_of(padded)} would pad is an error here; resize before it")

    def augment(self, augmentation: Augmentation | None) -> None:
        """Add an augmentation; None stands for one that does nothing."""
        if augmentation is None:
            return self.became("nothing")
        if self.values == "normalized":
            raise PartError("it works on normalized values; augmentations run on bytes here: put it before Normalize")
        if self._erase is not None:
            raise PartError("it comes after RandomErasing, which is last here")
        if self._views and isinstance(self._views[-1], FiveCrop | TenCrop):
            raise PartError(f"it comes after {type(self._views[-1]).__name__}; each crop would have a draw of its own")
        self._augment.append(augmentation)
        return self.became(f"augment: {code_of(augmentation)}")

    def erase(self, erasing: RandomErasing) -> None:
        """Add an erasure. Its value is in the current value range."""
        if self._erase is not None:
            raise PartError("it is the second erasure; there is one, at the end")
        self._erase = (erasing, self.values)
        self.became(f"augment: {code_of(erasing)}")

    def mix(self, mixing: AnyMixing, note: str = "") -> None:
        """Set the batch mixing."""
        self._mixing = mixing
        self.became(f"batch: {code_of(mixing)}", note)

    def floats(self, dtype: str, *, scale: bool) -> None:
        """Add a conversion to another dtype."""
        known = {"float32": "float32", "float16": "float16", "bfloat16": "bfloat16", "uint8": "uint8"}
        if dtype not in known or (dtype == "uint8" and self.values != "bytes"):
            raise PartError(f"a conversion to {dtype} is not among uint8, float32, float16 and bfloat16")
        self.dtype = cast("ImageDType", known[dtype])
        if dtype != "uint8" and self.values == "bytes":
            self.values = "unit" if scale else "floats of 0…255"
        self.became(f'Image(dtype="{dtype}")')

    def normalize(self, mean: Sequence[float], std: Sequence[float], note: str = "") -> None:
        if self.values in ("bytes", "normalized"):
            held = "uint8" if self.values == "bytes" else "what is normalized already"
            raise PartError(f"it would normalize {held}; convert to floats before it, once")
        by = 255.0 if self.values == "floats of 0…255" else 1.0
        means, stds = (tuple(value / by for value in values) for values in (mean, std))
        channels = 1 if self.mode == "L" else 3
        if len(means) == 1:
            means, stds = means * channels, stds * channels
        self._normalize = Normalize(means, stds)
        self.values = "normalized"
        self.became(f"Image(normalize={code_of(self._normalize)})", note)

    def grey(self) -> None:
        """Add a conversion to one channel."""
        if self._augment:
            raise PartError(
                f"it comes after {type(self._augment[0]).__name__}; images of one channel are grey from the start here"
            )
        self.mode = "L"
        self.became('Image(mode="L")')

    def became(self, text: str, note: str = "") -> None:
        self._became.append(text)
        self.note(note)

    def note(self, text: str) -> None:
        """Record how the results of this part differ."""
        if text and text not in self._notes:
            self._notes.append(text)

    def resampled(self, kind: Filter) -> None:
        """Set the filter of a resize. Raises PartError if an earlier resize has another filter."""
        if self.filter not in (None, kind):
            raise PartError("it resamples by another filter than the resize before it; a view has one")
        self.filter = kind

    def on_bytes(self, value: float) -> float:
        """Convert a value in the current range (a fill, a threshold) to the scale 0…255."""
        return value * 255 if self.values == "unit" else value

    def augmentation(self, part: Any) -> Augmentation | None:
        """Translate a nested part. Raises PartError if it is unsupported."""
        name = self.vocabulary.name(part)
        if name not in self.vocabulary.makers:
            raise PartError(f"{text_of(part)} inside of it: {self._reason(part)}")
        return self.vocabulary.makers[name](self, part)

    def augmentations(self, parts: Iterable[Any]) -> list[Augmentation]:
        found = [self.augmentation(inner) for part in parts for inner in self._flat(part)]
        return [each for each in found if each is not None]

    def _flat(self, transform: Any) -> Iterable[Any]:
        """Yield the parts of a transform, with nested containers flattened in place."""
        children = self.vocabulary.children(transform)
        if children is None:
            yield transform
        else:
            for child in children:
                yield from self._flat(child)

    def _one(self, reader: Reader, part: Any) -> None:
        name = self.vocabulary.name(part)
        if name in self.vocabulary.steps:
            self.vocabulary.steps[name](reader, part)
        elif name in self.vocabulary.makers:
            self.augment(self.vocabulary.makers[name](self, part))
        else:
            raise PartError(self._reason(part))

    def _reason(self, part: Any) -> str:
        name = self.vocabulary.name(part)
        if name:
            return self.vocabulary.reasons.get(name, "it has no counterpart here; do it in map=")
        return "it is a function or class of your own; do it in map="

    def _take(self, text: str, handler: Callable[..., None], parts: Sequence[Any]) -> None:
        self._became, self._notes = [], []
        try:
            handler(self, *parts)
        except (PartError, UsageError) as error:
            self._parts.append(TranslatedPart(text, None, str(error)))
        except (AttributeError, TypeError, ValueError) as error:
            note = f"its attributes are not those of the versions that are known ({type(error).__name__}: {error})"
            self._parts.append(TranslatedPart(text, None, note))
        else:
            self._parts.append(TranslatedPart(text, ", ".join(self._became), "; ".join(self._notes)))

    def _result(self) -> Translated:
        normalize = self._normalize
        if self.values == "floats of 0…255":
            channels = 1 if self.mode == "L" else 3
            normalize = Normalize((0.0,) * channels, (1 / 255,) * channels)
        augment = list(self._augment)
        if self._erase is not None:
            try:
                augment.append(self._last_erasing(*self._erase))
            except PartError as error:
                self._parts.append(TranslatedPart("RandomErasing", None, str(error)))
        image = Image(dtype=self.dtype, normalize=normalize, mode=self.mode, filter=self.filter or "triangle")
        views = tuple(self._views) or None
        if views is not None and isinstance(views[-1], FiveCrop | TenCrop):
            image, views = replace(image, view=views), None
        mask = Mask(filter=self.mask_filter)
        return Translated(image, views, tuple(augment) or None, tuple(self._parts), mask, self._mixing)

    def _last_erasing(self, erasing: RandomErasing, at: Values) -> RandomErasing:
        """Return the erasure with its value converted to the batch's range."""
        if at == self.values:
            return erasing
        if isinstance(erasing.value, str):
            raise PartError("its random values are changed by what comes after it; put it last")
        values = erasing.value if isinstance(erasing.value, list | tuple) else (erasing.value,) * 3
        values = tuple(values) * (3 if len(values) == 1 else 1)
        shares = [cast(float, value) / (1 if at == "unit" else 255) for value in values]
        if self._normalize is not None:
            mean, std = self._normalize.mean * 3, self._normalize.std * 3
            shares = [(share - mean[k]) / std[k] for k, share in enumerate(shares)]
        elif self.values == "floats of 0…255":
            shares = [255 * share for share in shares]
        return replace(erasing, value=tuple(shares))


def keeps_mirrored(augmentation: Augmentation) -> bool:
    """Return True if the augmentation commutes with a flip in distribution.

    Pixel and neighbourhood operations do, and so do maps about the centre with draws symmetric about zero. Shears of
    policies do not: they are about a corner.
    """
    return all(_is_even(node) for top in augmentation.nodes() for node in top.operations())


def _is_even(node: Node) -> bool:
    if node.kind != AFFINE:
        return True
    about_middle = len(node.constants) < 6 or node.constants[5] == 0
    drawn = dict(enumerate(node.parameters))
    return about_middle and all(_around_zero(drawn[number]) for number in (0, 1, 2, 4, 5) if number in drawn)


def _around_zero(drawn: Drawn) -> bool:
    if drawn.offset != 0:
        return False
    return drawn.signed or (drawn.low == -drawn.high and drawn.distribution < 3)


def code_of(value: Any) -> str:
    """Return the Python code that constructs a description, without default arguments."""
    if value == IMAGENET:
        return "hr.IMAGENET"
    if isinstance(value, list):
        return f"[{', '.join(map(code_of, value))}]"
    if not is_dataclass(value):
        return json.dumps(value, ensure_ascii=False) if isinstance(value, str) else repr(value)
    given = []
    for field in fields(value):
        held = getattr(value, field.name)
        if field.default is MISSING:
            given.append(code_of(held))
        elif held != field.default:
            given.append(f"{field.name}={code_of(held)}")
    return f"hr.{type(value).__name__}({', '.join(given)})"


def text_of(part: Any) -> str:
    """Return a part's repr on one line, shortened to `MOST_CHARACTERS`."""
    if hasattr(part, "__qualname__"):
        return f"{part.__qualname__}()"
    text = " ".join(repr(part).split())
    return text if len(text) <= MOST_CHARACTERS else text[: MOST_CHARACTERS - 1] + "…"


def finish(call: str, found: Translated, partial: bool) -> Translated:
    """Return `found`. Raises UsageError if it has untranslated parts, unless `partial`."""
    if found.unknown and not partial:
        listed = "".join(f"\n  {part.part}: {part.note}" for part in found.unknown)
        raise UsageError(
            f"{call}: expected known parts, got {len(found.unknown)} that cannot be taken; change them, or take the "
            f"others with partial=True:{listed}"
        )
    return found
