"""`headrace tune`: a plain DataLoader's arguments, found for an unmodified script."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from headrace.tools.terminal import Json, write_json

Command = Annotated[list[str], typer.Argument(metavar="-- COMMAND...", help="What trains, as a shell would start it.")]
Steps = Annotated[int, typer.Option(min=20, help="Steps to measure in each run; then the run ends.")]
Runs = Annotated[int, typer.Option(min=1, help="Runs at most, that of the script as it is included.")]
MaxSeconds = Annotated[float, typer.Option(min=1, metavar="SECONDS", help="What all runs may take together.")]


def tune(
    command: Command,
    *,
    steps: Steps = 60,
    runs: Runs = 3,
    max_seconds: MaxSeconds = 120.0,
    json: Json = None,
) -> None:
    """Find num_workers, prefetch_factor, pin_memory and persistent_workers: headrace tune -- python train.py

    Nothing of the script changes: arguments are set from outside, in a few short runs. The exit status is the
    command's own where it failed, and 125 where there is nothing to tune.
    """
    from headrace.doctor.report.outputs import Outputs
    from headrace.doctor.status import DOCTOR_FAILED
    from headrace.doctor.tune.report import show
    from headrace.doctor.tune.run import Tuning
    from headrace.doctor.tune.run import tune as find
    from headrace.errors import HeadraceError, TuneError

    outputs = Outputs(json=json)
    asked = Tuning(command=command, steps=steps, most_runs=runs, most_s=max_seconds)
    try:
        outputs.check()
        result = find(asked, outputs)
    except HeadraceError as error:
        typer.echo(f"headrace: {error}", err=True)
        raise typer.Exit(error.status if isinstance(error, TuneError) else DOCTOR_FAILED) from None
    sys.stdout.flush()
    show(result, outputs.console())
    if json is not None:
        write_json(json, result.document())
