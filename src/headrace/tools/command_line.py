"""Entry point and verbs of the command line `headrace VERB …`."""

from __future__ import annotations

import io
import sys
from typing import Annotated

import typer

from headrace.doctor.cli import app as doctor_app
from headrace.doctor.cli import checks
from headrace.errors import HeadraceError
from headrace.tools import bench_command, dataset_commands, pack_commands, plan_command
from headrace.tools.equal_command import equal

app = typer.Typer(
    name="headrace",
    help="Keeps GPUs fed in PyTorch training.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

app.add_typer(doctor_app, name="doctor")
app.add_typer(checks, name="check")
app.command()(bench_command.bench)
app.command()(bench_command.demo)
app.command()(equal)
app.command()(dataset_commands.index)
app.command()(pack_commands.info)
app.command()(pack_commands.merge)
app.command()(pack_commands.pack)
app.command()(dataset_commands.peek)
app.command()(plan_command.plan)
app.command()(dataset_commands.stage)
app.command()(dataset_commands.unstage)
app.command()(pack_commands.verify)


@app.callback(invoke_without_command=True)
def options(version: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False) -> None:
    if version:
        import headrace

        typer.echo(f"headrace {headrace.__version__}")
        raise typer.Exit


def main() -> None:
    """Run the console script. A HeadraceError prints one message without a traceback and exits with code 1."""
    if isinstance(sys.stdout, io.TextIOWrapper):  # like standard error: a path may not be valid text
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        app()
    except HeadraceError as error:
        typer.echo(f"headrace: {error}", err=True)
        sys.exit(1)
