"""`headrace equal`: compare two loaders, and exit with a code of its own if they differ."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from headrace.tools.terminal import Json, console_for, say, write_json

if TYPE_CHECKING:
    from collections.abc import Iterator

    from headrace.tools.equal import Judgement

EXIT_CODES = {"equal": 0, "different": 101, "not enough seen": 102}
"""Exit code by verdict; 101 as of `headrace doctor --check data` with a fault."""


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
    from headrace.tools.equal import judge, observe
    from headrace.tools.equal.named_loaders import named_loader

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


def judgement_lines(judgement: Judgement) -> Iterator[str]:
    """Yield the report: the verdict, each difference, what was not seen, how each leaf was compared, and the speed."""
    from headrace.tools.equal import CODES

    yield judgement.verdict
    for one in judgement.differences:
        where = f" {one.leaf}" if one.leaf else ""
        certainty = "" if one.p_value is None else f" (p = {one.p_value:.0e})"
        yield f"  {one.code}{where}: {one.before} | {one.after}{certainty}"
        yield f"    {CODES[one.code]}"
    for unseen in judgement.unseen:
        yield f"  not seen: {unseen.leaf or 'the batch'}: {', '.join(unseen.faults)}"
        yield f"    It takes {unseen.takes}."
    for leaf, how in judgement.compared.items():
        limit = "; one wrong sample, or windows off by a pixel, may stay unseen" if how == "distribution" else ""
        yield f"  compared: {leaf or 'the batch'} by {how}{limit}"
    before, after = judgement.samples_per_s
    yield f"  {judgement.samples[0]} | {judgement.samples[1]} samples, {before:.0f} | {after:.0f} samples/s"
