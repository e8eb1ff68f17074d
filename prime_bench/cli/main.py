"""The entry point: imports a command when it is called, turns errors into messages and codes."""

import contextlib
import importlib
import io
import os
import sys
import traceback
from collections.abc import Sequence
from typing import Any, TextIO

import click

from prime_bench import __version__
from prime_bench.base.errors import (
    EXIT_BUG,
    EXIT_INTERRUPTED,
    UsageError,
    UserError,
    did_you_mean,
)
from prime_bench.base.files import environment_fault, not_installed
from prime_bench.cli.output import print_text

COMMANDS = {
    "card": "prime_bench.cli.card:card",
    "prepare": "prime_bench.cli.prepare:prepare",
    "plan": "prime_bench.cli.plan:plan",
    "run": "prime_bench.cli.run:run",
    "study": "prime_bench.cli.study:study",
    "paper": "prime_bench.cli.study:paper",
    "status": "prime_bench.cli.status:status",
    "report": "prime_bench.cli.report:report",
    "pack": "prime_bench.cli.pack:pack",
    "publish": "prime_bench.cli.publish:publish",
    "browse": "prime_bench.cli.browse:browse",
    "profile": "prime_bench.cli.profile:profile",
    "predict": "prime_bench.cli.predict:predict",
    "verify": "prime_bench.cli.verify:verify",
    "compare": "prime_bench.cli.compare:compare",
    "diff": "prime_bench.cli.diff:diff",
    "clean": "prime_bench.cli.clean:clean",
    "doctor": "prime_bench.cli.doctor:doctor",
    "check": "prime_bench.cli.check:check",
    "ls": "prime_bench.cli.ls:ls",
    "show": "prime_bench.cli.show:show",
    "export": "prime_bench.cli.export:export",
}
ADVICE = "`prime-bench --debug ...` prints the traceback, which says where it happened"


class _LazyGroup(click.Group):
    """A group that imports the module of a command when the command is needed."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name not in COMMANDS:
            if ctx.resilient_parsing:
                return None
            ctx.fail(f"no command `{name}`{did_you_mean(name, COMMANDS)}")
        module, _, attribute = COMMANDS[name].partition(":")
        command = getattr(importlib.import_module(module), attribute)
        if not isinstance(command, click.Command):
            raise TypeError(f"{COMMANDS[name]} is not a command")
        return command

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            # The reader (`| head`) has ended. click would exit with 1, which means failed jobs, and
            # Python would print another error when it flushes stdout at exit.
            _drop(sys.stdout)
            ctx.exit(0)
        except SystemExit as left:
            # Not click, which has an exception of its own. It would end with the code of success.
            raise UsageError(
                f"a plug-in or another imported module called sys.exit({left.code!r})", hint=ADVICE
            ) from left


@click.group(cls=_LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="prime-bench")
@click.option("--debug", is_flag=True, help="Show the traceback of an error.")
def cli(debug: bool) -> None:
    """Compare plug-ins for click-through-rate models in paired runs.

    `prepare` data, `run` a recipe, `report` its records: `prime-bench ls recipes` lists the bundled
    recipes. Shell completion: docs/cli.md.
    """


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and exit with its code."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    sys.stdout, sys.stderr = _writing_whole(sys.stdout), _writing_whole(sys.stderr)
    if sys.stdout is None:
        # The next file that is opened would get its number, and with it what is printed.
        hint = "`> FILE` keeps what is printed, `> /dev/null` drops it"
        _print_error(f"error: {UsageError('stdout is closed', hint=hint)}", debug=False)
        sys.exit(UsageError.exit_code)
    sys.exit(_flushed(exit_code(given)))


def _writing_whole(stream: TextIO) -> TextIO:
    """A stream that writes each text as a whole, or raises; None, for a closed one, stays None."""
    if not isinstance(stream, io.TextIOWrapper):
        return stream
    # A letter that the terminal's encoding lacks, such as Δ in cp1252, is printed as `\\u0394`.
    errors = "backslashreplace"
    if isinstance(stream.buffer, io.RawIOBase):
        # Without a buffer (PYTHONUNBUFFERED) a file that is nearly full takes a part of a text,
        # and TextIOWrapper does not ask how much.
        whole = io.BufferedWriter(stream.buffer)
        return io.TextIOWrapper(
            whole, stream.encoding, errors, line_buffering=True, write_through=True
        )
    stream.reconfigure(errors=errors)
    return stream


def _flushed(code: int) -> int:
    """Write what is left of the output; the exit code, which is a fault's where stdout fails."""
    try:
        sys.stdout.flush()
    except OSError as error:
        _drop(sys.stdout)
        fault = None if isinstance(error, BrokenPipeError) else environment_fault(error)
        if code == 0 and fault is not None:
            _print_error(f"error: {fault}", debug=False)
            code = fault.exit_code
    try:
        if sys.stderr is not None:
            sys.stderr.flush()
    except OSError:
        _drop(sys.stderr)
    return code


def _drop(stream: TextIO) -> None:
    """Send a stream nowhere: Python tries again at its end, and would exit with 120."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def exit_code(arguments: list[str]) -> int:
    """Run the command line and return its exit code; `base.errors` has the codes."""
    debug = "--debug" in arguments
    try:
        result = cli.main(arguments, prog_name="prime-bench", standalone_mode=False)
    except click.ClickException as error:
        _print_error(_usage(error), debug=False)
        return UsageError.exit_code
    except (KeyboardInterrupt, click.Abort):
        _print_error("interrupted; run the same command again to continue", debug=debug)
        return EXIT_INTERRUPTED
    except UserError as error:
        _print_error(f"error: {error}", debug=debug)
        return error.exit_code
    except BaseException as error:
        fault = environment_fault(error) or not_installed(error)
        if fault is None and not isinstance(error, Exception):
            raise
        _print_error(f"error: {fault or _bug(error)}", debug=debug)
        return fault.exit_code if fault else EXIT_BUG
    return result if isinstance(result, int) else 0


def _bug(error: BaseException) -> str:
    return f"a bug of prime-bench: {type(error).__name__}: {error}\n\nhint: {ADVICE}"


def _print_error(message: str, *, debug: bool) -> None:
    # Where stderr cannot be written, the exit code still tells.
    with contextlib.suppress(OSError):
        if debug and sys.exc_info()[0] is not None:
            print_text(traceback.format_exc().rstrip("\n"), err=True)
        print_text(message, err=True)


def _usage(error: click.ClickException) -> str:
    """What click prints of an error, with its reference to the help."""
    shown = io.StringIO()
    # Otherwise click would leave ANSI sequences out, so that one name would look like another.
    if isinstance(error, click.UsageError) and error.ctx is not None:
        error.ctx.color = True
    error.show(file=shown)
    return shown.getvalue().rstrip("\n")
