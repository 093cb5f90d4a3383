"""`headrace doctor`: its options and commands. The work is in run.py and report/."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from headrace.doctor.attach import DOCTOR_FAILED
from headrace.errors import HeadraceError

COMMAND = "headrace.doctor.command"
"""Key of the context that passes the words after `--` to the callback."""
RESUME = "resume"
"""Command that takes another command line."""


class _DoctorGroup(TyperGroup):
    """Group of commands with options up to `--`, which begins another command line.

    (`ctx` is click's, or belongs to the copy of click in newer typers.)
    """

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        own = args
        if "--" in args:
            cut = args.index("--")
            own, ctx.meta[COMMAND] = args[:cut], args[cut + 1 :]
        return super().parse_args(ctx, own if own or COMMAND in ctx.meta else ["--help"])

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if (COMMAND in ctx.meta) != (args[0] == RESUME) or args[0] not in self.commands:
            ctx.fail(
                f"expected options, then -- and the command, got {args[0]!r}: headrace {ctx.info_name} … -- COMMAND"
            )
        return super().resolve_command(ctx, args)


def _share(text: str) -> float:
    """Parse a share of 1 from a text such as `5%`."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?) ?%", text.strip())
    if found is None or float(found[1]) > 100:
        raise typer.BadParameter(f"expected a share such as 5%, got {text!r}")
    return float(found[1]) / 100


app = typer.Typer(cls=_DoctorGroup, invoke_without_command=True, subcommand_metavar="-- COMMAND...")

Html = Annotated[
    Path | None, typer.Option("--html", help="Write the whole report to this file, as one page for a browser.")
]
Json = Annotated[
    str | None,
    typer.Option("--json", help="Write the session and its diagnosis to this file; - for standard output."),
]
Apply = Annotated[
    Path | None,
    typer.Option("--apply", help="Write what remedies change in your files to this file: patch -p1 < FILE."),
]
Draft = Annotated[
    Path | None,
    typer.Option("--draft", help="Write Headrace's Loader for this script to this new file, as a Python module."),
]
FailAbove = Annotated[
    float | None,
    typer.Option(
        "--fail-above", parser=_share, metavar="SHARE", help="Exit with status 100 if steps wait longer for data."
    ),
]
Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="Print everything, not only what fits a screen.")]


@app.callback()
def doctor(
    ctx: typer.Context,
    *,
    steps: Annotated[int | None, typer.Option(min=1, help="Steps to measure; then the run ends. Default: 200.")] = None,
    observe: Annotated[bool, typer.Option("--observe", help="Only watch: the run goes on to its own end.")] = False,
    prove: Annotated[
        bool,
        typer.Option("--prove", help="Try each remedy that needs no change of code, in a run of its own."),
    ] = False,
    html: Html = None,
    json: Json = None,
    apply: Apply = None,
    draft: Draft = None,
    fail_above: FailAbove = None,
    verbose: Verbose = False,
) -> None:
    """Say what an unmodified training command waits for.

    For example: headrace doctor -- python train.py

    The exit status is the command's own; 100 by --fail-above, 125 where the doctor itself failed.
    """
    if ctx.invoked_subcommand is not None:
        _refuse_options_before_command(ctx)
        return
    command = _command_of(ctx)
    if observe and steps is not None:
        ctx.fail("--steps ends the run, --observe lets it go on: expected one of them")
    if observe and prove:
        ctx.fail("--prove runs the command again, --observe lets it go on to its end: expected one of them")
    from headrace.doctor.report import Outputs
    from headrace.doctor.run import Examination, examine

    asked = Examination(command, steps=steps, observe=observe, fail_above=fail_above, proves=prove)
    outputs = Outputs(html=html, json=json, apply=apply, draft=draft, verbose=verbose)
    raise typer.Exit(_or_failed(lambda: examine(asked, outputs)))


@app.command()
def show(
    session: Annotated[Path, typer.Argument(help="A session that the doctor wrote.")],
    *,
    html: Html = None,
    json: Json = None,
    apply: Apply = None,
    draft: Draft = None,
    fail_above: FailAbove = None,
    verbose: Verbose = False,
) -> None:
    """Render a saved session again, without running anything."""
    from headrace.doctor.report import Outputs
    from headrace.doctor.run import show_again

    outputs = Outputs(html=html, json=json, apply=apply, draft=draft, verbose=verbose)
    raise typer.Exit(_or_failed(lambda: show_again(session, outputs, fail_above=fail_above)))


@app.command()
def merge(
    sessions: Annotated[list[Path], typer.Argument(help="Sessions of one training, one from each node.")],
    *,
    html: Html = None,
    json: Json = None,
    fail_above: FailAbove = None,
    verbose: Verbose = False,
) -> None:
    """Join the sessions of several nodes into one, and report on all ranks together."""
    from headrace.doctor.report import Outputs
    from headrace.doctor.run import show_merged

    outputs = Outputs(html=html, json=json, verbose=verbose)
    raise typer.Exit(_or_failed(lambda: show_merged(sessions, outputs, fail_above=fail_above)))


checks = typer.Typer(cls=_DoctorGroup, invoke_without_command=True, subcommand_metavar="-- COMMAND...")


@checks.callback()
def check(
    ctx: typer.Context,
    *,
    batches: Annotated[int, typer.Option(min=1, help="Batches that each pass makes; the rest is read by keys.")] = 4,
    seconds: Annotated[float, typer.Option(min=1, help="Time limit of the run, from its first batch on.")] = 60,
    html: Html = None,
    json: Json = None,
    apply: Apply = None,
    verbose: Verbose = False,
) -> None:
    """Say whether the data that an unmodified training command trains on are right.

    For example: headrace check -- python train.py

    The exit status is the command's own; 101 for a certain fault, 125 where nothing was seen or the check failed.
    """
    if ctx.invoked_subcommand is not None:
        _refuse_options_before_command(ctx)
        return
    command = _command_of(ctx)
    from headrace.doctor import checking
    from headrace.doctor.report import Outputs

    outputs = Outputs(html=html, json=json, apply=apply, verbose=verbose)
    raise typer.Exit(_or_failed(lambda: checking.check(command, outputs, batches=batches, seconds=seconds)))


@checks.command(RESUME)
def resume(
    ctx: typer.Context,
    *,
    again: Annotated[
        str | None, typer.Option("--again", metavar="COMMAND", help="The command that resumes. Default: the same.")
    ] = None,
    html: Html = None,
    json: Json = None,
    verbose: Verbose = False,
) -> None:
    """Run the command, then the command that resumes it, and compare their samples.

    For example: headrace check resume --again "python train.py --resume last.pt" -- python train.py --epochs 1
    """
    from headrace.doctor import checking
    from headrace.doctor.report import Outputs

    outputs = Outputs(html=html, json=json, verbose=verbose)
    command = _command_of(ctx)
    resumes = command if again is None else shlex.split(again)
    raise typer.Exit(_or_failed(lambda: checking.check_resume(command, resumes, outputs)))


def _command_of(ctx: typer.Context) -> list[str]:
    """Return the words after `--`; fail without any."""
    command: list[str] = ctx.meta.get(COMMAND) or []
    if not command:
        ctx.fail(f"expected -- and the command, got none: {ctx.command_path} [options] -- python train.py")
    return command


def _refuse_options_before_command(ctx: typer.Context) -> None:
    for name in ctx.params:
        source = ctx.get_parameter_source(name)
        if source is not None and source.name == "COMMANDLINE":
            option = "--" + name.replace("_", "-")
            ctx.fail(f"expected {option} behind show, got it before: headrace doctor show {option} … session.json")


def _or_failed(work: Any) -> int:
    """Return the status of `work`; an error of ours becomes one readable message."""
    try:
        return int(work())
    except HeadraceError as error:
        typer.echo(f"headrace: {error}", err=True)
        return DOCTOR_FAILED
