"""`headrace peek`: a look at a data set before it is trained on."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, BinaryIO

import typer

from headrace.errors import HeadraceError
from headrace.tools.terminal import Json, console_for, track, write_json

if TYPE_CHECKING:
    from collections.abc import Callable

    from rich.console import Console

    from headrace.data import Dataset
    from headrace.tools.peek_page import Content
    from headrace.views.views import View


class Recipe(StrEnum):
    """How the sheet's samples are cut."""

    train = "train"
    validate = "validate"
    whole = "whole"


Samples = Annotated[int, typer.Option(min=1, help="Samples to read, drawn at random where there are more.")]
Sheet = Annotated[int, typer.Option(min=1, help="Samples on the contact sheet.")]
Cut = Annotated[Recipe, typer.Option("--view", help="train: random crop and flip; validate: centre crop; whole.")]
Size = Annotated[int, typer.Option(min=1, help="Height and width of the sheet's samples, in pixels.")]
To = Annotated[Path, typer.Option(help="Folder for peek.png and peek.html.")]
Root = Annotated[Path | None, typer.Option(help="Folder or archive that a manifest's or annotations' paths begin in.")]
Columns = Annotated[str | None, typer.Option(help="Names for the columns of a manifest without a header: rgb,depth.")]


def peek(
    path: Annotated[str, typer.Argument(help="Whatever headrace.open takes: a folder, tars, a manifest, …")],
    *,
    image: Annotated[str, typer.Option(help="The column of images.")] = "image",
    root: Root = None,
    columns: Columns = None,
    view: Cut = Recipe.train,
    size: Size = 224,
    samples: Samples = 10_000,
    sheet: Sheet = 36,
    seed: Annotated[int, typer.Option(help="Which samples, and which crops.")] = 0,
    to: To = Path(),
    json: Json = None,
) -> None:
    """Augmented samples on one sheet, and a page of sizes, classes, near-duplicates and samples that fail."""
    from headrace.data import open as open_dataset
    from headrace.peek.collect import class_counts, duplicate_groups, sheet_or_reason
    from headrace.tools.peek_page import Content, document, picture_address, render
    from headrace.tools.peek_survey import Survey, spread, survey

    console = console_for(json)
    dataset = open_dataset(path, root=root, columns=None if columns is None else columns.split(","))
    _check_images(dataset, image)
    positions = spread(len(dataset), samples, seed=seed).tolist()
    looks = list(track(survey(dataset, image, positions), "Reading samples", len(positions), console))
    picture, note = sheet_or_reason(dataset, image, _view(view, size), samples=sheet, seed=seed)
    content = Content(
        title=f"{dataset!r}",
        survey=Survey(len(dataset), looks),
        classes=class_counts(dataset),
        groups=duplicate_groups(dataset, image, looks),
        sheet=None if picture is None else picture_address(picture),
        sheet_view=" then ".join(repr(step) for step in _view(view, size)),
        note=note,
    )
    if picture is not None:
        _write(to / "peek.png", lambda file: picture.save(file, "PNG"))
    page = render(content).encode()
    _write(to / "peek.html", lambda file: file.write(page))
    _say(console, content, to)
    if json is not None:
        write_json(json, document(content))


def _check_images(dataset: Dataset, column: str) -> None:
    """Raises NotFoundError if the column's files are all somewhere else."""
    readable = [name for name in dataset.columns if dataset.has_bytes(name)]
    if column not in readable:
        have = ", ".join(readable) or "none"
        raise typer.BadParameter(f"expected a column of files, got {column!r}; there is {have}", param_hint="--image")
    dataset.expect_files(column)


def _view(recipe: Recipe, size: int) -> list[View]:
    from headrace.views.views import CenterCrop, Letterbox, RandomResizedCrop, Resize

    match recipe:
        case Recipe.train:
            return [RandomResizedCrop(size, flip=0.5)]
        case Recipe.validate:
            return [Resize(size * 8 // 7), CenterCrop(size)]  # 256 to 224, as ImageNet's models are validated
        case Recipe.whole:
            return [Letterbox((size, size))]


def _write(path: Path, write: Callable[[BinaryIO], object]) -> None:
    """The file has its name once it is complete. Raises HeadraceError."""
    from headrace.data.partial_file import UnwritableError, finish, partial_file

    def fill(file: BinaryIO) -> None:
        write(file)

    place = str(path.absolute())
    try:
        with partial_file(place) as partial:
            finish(partial, place, fill)
    except UnwritableError as error:
        raise HeadraceError(f"--to: expected a folder to write, got {path.parent} ({error})") from error


def _say(console: Console, content: Content, to: Path) -> None:
    """The verdict first, then where to look."""
    survey = content.survey
    lines = [
        f"{len(survey.failures):,} of {len(survey.looks):,} samples read cannot be loaded",
        f"{sum(len(group.keys) - 1 for group in content.groups):,} look nearly like another",
        *([content.note] if content.note is not None else []),
        f"→ {to / 'peek.html'}" + ("" if content.sheet is None else f"  {to / 'peek.png'}"),
    ]
    console.print("\n".join(lines), highlight=False, markup=False, soft_wrap=True)
