"""`prime-bench doctor`: check whether this machine can run jobs."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from prime_bench.cli import options

if TYPE_CHECKING:
    from prime_bench.schedule.doctor import HealthCheck

DOCTOR_SCHEMA = 1
_MARKS = {"ok": "ok", "note": "note", "fault": "FAULT"}


@click.command()
@options.data_dir
@options.runs_dir
@options.as_json
@click.pass_context
def doctor(ctx: click.Context, data_dir: Path, runs_dir: Path, as_json: bool) -> None:
    """Check this machine: versions, memory, disk, devices.

    Also the compiler, the prepared tables, and a second of training on each device. Versions are
    compared with those that this release was tested with. The exit code is 4 where something does
    not work.
    """
    from prime_bench import api
    from prime_bench.base.errors import EnvironmentFault
    from prime_bench.cli.output import print_json, print_line

    def show(finding: "HealthCheck") -> None:
        advice = f" -> {finding.advice}" if finding.advice else ""
        print_line(f"{_MARKS[finding.state]:<6}{finding.topic:<17}{finding.found}{advice}")

    findings = api.doctor(data_dir=data_dir, runs_dir=runs_dir, on_check=None if as_json else show)
    if as_json:
        print_json(DOCTOR_SCHEMA, {"findings": [finding.plain() for finding in findings]})
    ctx.exit(EnvironmentFault.exit_code if any(f.state == "fault" for f in findings) else 0)
