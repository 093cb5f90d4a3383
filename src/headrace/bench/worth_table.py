"""What pays, for a terminal: what does not comes first."""

from __future__ import annotations

from rich.console import Console

from headrace.bench.table import ASCII, machine
from headrace.tools.bench.settings import CROP_PX
from headrace.tools.bench.worth import COMPARISONS, Worth

INDENT = "    "


def show_worth(worth: Worth, console: Console) -> None:
    """Print the comparisons, in ASCII where the terminal knows no more."""
    signs = ASCII if console.options.ascii_only else {}
    console.print(f"[bold]{worth.headline.translate(signs)}[/bold]\n", highlight=False)
    for text, style in _lines(worth):
        console.print(text.translate(signs), style=style, highlight=False, markup=False)
    console.print(_conditions(worth), highlight=False, markup=False, soft_wrap=True)


def _lines(worth: Worth) -> list[tuple[str, str]]:
    verdicts = worth.verdicts()
    lines = []
    for one in COMPARISONS:
        found = verdicts.get(one.key)
        said = f"not measured: {worth.not_measured[one.key]}" if found is None else str(found)
        colour = "" if found is None or found.pays is None else "green" if found.pays else "yellow"
        lines += [(f"{one.title}: {said}", colour), (f"{INDENT}{one.basis}", "dim")]
    return lines


def _conditions(worth: Worth) -> str:
    settings = worth.settings
    step = f", then a step of {settings.step_ms:g} ms that waits" if settings.step_ms else ", and no training"
    return (
        f"\nRandomResizedCrop({CROP_PX}) + flip to {settings.output}, batch {settings.batch_size}{step}; "
        f"{settings.threads} cores; {settings.rounds} rounds, intervals of 95 %.\n{machine(worth.environment)}"
    )
