"""`headrace equal`: compare two loaders, and exit with a code of its own if they differ."""

from __future__ import annotations

from typing import Annotated

import typer

from headrace.tools.terminal import Json, console_for, say, write_json

EXIT_CODES = {"equal": 0, "different": 101, "not enough seen": 102}
"""Exit code by verdict; 101 as of `headrace check` with a fault."""


def equal(
    before: Annotated[str, typer.Argument(metavar="BEFORE", help="The reference.")],
    after: Annotated[str, typer.Argument(metavar="AFTER", help="The other loader.")],
    *,
    samples: Annotated[
        int | None, typer.Option(min=1, help="Stop each epoch after so many samples. Default: whole epochs.")
    ] = None,
    epochs: Annotated[int, typer.Option(min=2, help="Epochs of each loader.")] = 2,
    allow_unseen: Annotated[
        list[str] | None, typer.Option(metavar="LEAF", help="Leaf that may differ unseen. Repeatable.")
    ] = None,
    json: Json = None,
) -> None:
    """Compare two loaders: samples, dtypes, shapes, values, distributions of what is random, order, and speed.

    Each is MODULE:FUNCTION, imported from the current folder, which returns a DataLoader, a Loader or anything that is
    iterated anew in each epoch; or "SCRIPT.py ARGUMENTS", quoted, which runs up to its first training pass over a
    DataLoader; or a file that `headrace doctor --draft` wrote. Both loaders are iterated twice. Exits with 101 if they
    differ by more than rounding, and with 102 if a difference could have stayed unseen.
    """
    from headrace.compare import judge, judgement_lines, observe
    from headrace.tools.named_loaders import named_loader

    console = console_for(json)
    observed = []
    for option, name in (("BEFORE", before), ("AFTER", after)):
        say(console, [f"{epochs} epochs of {name} …"], "dim")
        with named_loader(name, option) as loader:
            observed.append(observe(name, loader, most_samples=samples, epochs=epochs))
    judgement = judge(*observed)
    say(console, judgement_lines(judgement))
    write_json(json, judgement.document())
    raise typer.Exit(EXIT_CODES[judgement.verdict_but(leaves=allow_unseen or ())])
