"""The command line: `headrace VERB …`. Each verb is a module here; the work is in the package of its name."""

from __future__ import annotations

import io
import sys
from typing import Annotated

import typer

from headrace.cli import demo, index, stage, tune, unpack
from headrace.doctor.cli import app as doctor_app
from headrace.errors import HeadraceError
from headrace.tools import bench_command, dataset_commands

app = typer.Typer(
    name="headrace",
    help="Keeps GPUs fed in PyTorch training.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

app.add_typer(doctor_app, name="doctor")
app.command()(bench_command.bench)
app.command()(demo.demo)
app.command()(index.index)
app.command()(dataset_commands.peek)
app.command()(stage.stage)
app.command()(tune.tune)
app.command()(unpack.unpack)
app.command()(stage.unstage)


@app.callback(invoke_without_command=True)
def options(version: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False) -> None:
    if version:
        import headrace

        typer.echo(f"headrace {headrace.__version__}")
        raise typer.Exit


def main() -> None:
    """The console script: an error of ours is one readable message and exit code 1, without a traceback."""
    if isinstance(sys.stdout, io.TextIOWrapper):  # as standard error has it: a path need not be text
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        app()
    except HeadraceError as error:
        typer.echo(f"headrace: {error}", err=True)
        sys.exit(1)
