"""One slot of a node of a cluster: a temporary folder, a worker that stays, and what the caller may
ask of them. It runs on the node; nothing here knows which cluster it is.

The caller asks and never waits inside: `look` returns what is new, the job's files among it, in
pieces. All values that a `NodeSlot` takes and returns before its `check` was passed are plain ones,
since the node may have another version of this package.
"""

import contextlib
import os
import platform
import shutil
import tempfile
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from prime_bench import __version__
from prime_bench.base.errors import EnvironmentFault, UserError
from prime_bench.base.files import environment_fault, write_whole
from prime_bench.base.identity import NUMERICS
from prime_bench.base.sources import package_digest, search_path
from prime_bench.base.temporary import temporary_folder
from prime_bench.recipe.events import CheckedEvent, WorkerEvent, write_event
from prime_bench.recipe.job import JobRequest, MachineCheck
from prime_bench.schedule.child import COMMAND, Child
from prime_bench.schedule.engine import Outcome
from prime_bench.schedule.mirror import Copy, Piece, Source
from prime_bench.schedule.table_copy import TableCopy, TableInfo, TablePiece
from prime_bench.store.runs import RECORD, Runs

DATA_VARIABLE = "PRIME_BENCH_DATA"
_WAIT_S = 1.0
_GATHER_S = 0.05
"""Time that `look` waits for more news after the first, so that one answer has them all."""


@dataclass(frozen=True, kw_only=True)
class News:
    """What has happened in a slot since it was last asked."""

    events: list[str]
    """Events of the worker, each a line of JSON (`recipe.events`)."""
    pieces: list[Piece]
    """Pieces of the job's files that have changed."""
    gone: list[str]
    """Names of files of the job that were deleted."""
    outcome: Outcome | None
    """How the job ended, once all its files were sent."""


def identity() -> dict[str, Any]:
    """Version of this package, of its numerics, and digest of its source files."""
    return {"version": __version__, "numerics": NUMERICS, "code": package_digest("prime_bench")}


class NodeSlot:
    """Runs one job at a time in a worker process. `stop` and `look` may be called meanwhile."""

    def __init__(self, variables: Mapping[str, str], *, command: tuple[str, ...] = COMMAND) -> None:
        """Nothing is started or written yet; `check` does.

        Args:
            variables: Environment variables of the worker.
            command: The command that starts a worker.
        """
        self._variables, self._command = dict(variables), command
        self._resources = contextlib.ExitStack()
        self._folder: Path | None = None
        self._child: Child | None = None
        self._ending = contextlib.ExitStack()
        self._changed = threading.Condition()
        self._events: list[str] = []
        self._outcome: Outcome | None = None
        self._source: Source | None = None
        self._tables: dict[str, TableInfo] = {}

    def hello(self) -> dict[str, Any]:
        """`identity`, and the name of this host."""
        return {**identity(), "host": platform.node()}

    def take_tables(self, tables: dict[str, TableInfo]) -> TablePiece | tuple[str, str] | None:
        """Begin to take the tables that this node lacks.

        Args:
            tables: The caller's path of each -> what it is.

        Returns:
            The piece that is wanted first, without its content; None if no table is lacking; or
            what is wrong and what to do.
        """
        self._tables = tables
        return self.take_piece(None)

    def take_piece(self, piece: TablePiece | None) -> TablePiece | tuple[str, str] | None:
        """Write a piece of a table. Returns what `take_tables` does."""
        try:
            for table, info in self._tables.items():
                copy = TableCopy(_table_here(table), info)
                mine = piece if piece is not None and piece.table == table else None
                if (wanted := copy.next_piece(mine)) is not None:
                    return TablePiece(table=table, name=wanted[0], offset=wanted[1])
        except (OSError, UserError) as error:
            fault = _as_fault(error)
            return fault.message, fault.hint
        return None

    def check(
        self, check: Mapping[str, Any], sources: Mapping[str, bytes], *, free_bytes: int
    ) -> dict[str, Any]:
        """Make the folder, start the worker, and have it look for all that the jobs need.

        Args:
            check: A `MachineCheck`; its tables have the caller's paths.
            sources: Path -> content of source files that the worker shall import.
            free_bytes: What has to be free in the temporary folder.

        Returns:
            `faults`: pairs of what is wrong and what to do; `torch`, `device` and `gpu_bytes`, as
            in `CheckedEvent`, if the worker could be asked.
        """
        try:
            folder = self._own_folder(free_bytes=free_bytes)
            for name, content in sources.items():
                write_whole(folder / "sources" / name, content)
            if sources:
                path = os.pathsep.join([str(folder / "sources"), search_path()])
                self._variables["PYTHONPATH"] = path
            wanted = MachineCheck.parse(check, where="check")
            here = {str(_table_here(path)): digest for path, digest in wanted.tables.items()}
            answer = self._worker().check(wanted.model_copy(update={"tables": here}))
        except (OSError, UserError) as error:
            fault = _as_fault(error)
            answer = CheckedEvent(faults=[(fault.message, fault.hint)], torch="", device="")
        return answer.model_dump(exclude={"event"})

    def receive(self, job_id: str, pieces: list[Piece]) -> None:
        """Write pieces of files of a job which the caller has. Raises EnvironmentFault."""
        copy = Copy(self._runs().path(job_id))
        for piece in pieces:
            copy.add(piece)

    def begin(
        self, request: Mapping[str, Any], *, present: tuple[str, ...], timeout_s: float | None
    ) -> None:
        """Start a job, which `look` then follows.

        Args:
            request: A `JobRequest`; its table has the caller's path.
            present: Names of the files in the caller's folder of the job.
            timeout_s: Seconds after which the job is killed.
        """
        asked = JobRequest.parse(request, where="request")
        runs = self._runs()
        here = {"table": str(_table_here(asked.table)), "runs": str(runs.folder)}
        self._outcome, self._events = None, []
        self._source = Source(runs.path(asked.job.id), present=present, last=RECORD)
        threading.Thread(
            target=self._do, args=(asked.model_copy(update=here), timeout_s), daemon=True
        ).start()

    def look(self) -> News:
        """Wait about a second for news of the running job, and return what there is."""
        source = self._source
        if source is None:
            raise RuntimeError("no job was begun")
        with self._changed:
            if self._changed.wait_for(lambda: self._events or self._outcome, timeout=_WAIT_S):
                self._changed.wait_for(lambda: self._outcome, timeout=_GATHER_S)
            # Before the files are looked at: after the outcome nobody writes any.
            outcome = self._outcome
            events, self._events = self._events, []
        pieces, gone, all_sent = source.news(whole=outcome is not None)
        if outcome is None or not all_sent:
            return News(events=events, pieces=pieces, gone=gone, outcome=None)
        shutil.rmtree(self._runs().folder, ignore_errors=True)
        return News(events=events, pieces=pieces, gone=gone, outcome=outcome)

    def stop(self) -> None:
        """End the running job after its next validation."""
        if self._child is not None:
            self._child.terminate()

    def close(self) -> None:
        """End the worker, and delete the folder."""
        if self._child is not None:
            self._child.kill()
        self._resources.close()

    def _do(self, request: JobRequest, timeout_s: float | None) -> None:
        try:
            outcome = self._worker().do(request, on_event=self._post, timeout_s=timeout_s)
        except (OSError, UserError) as error:
            why = _as_fault(error).message
            outcome = Outcome(request=request, state="failed", why=why, machine=True)
        except Exception as error:  # noqa: BLE001  # else the caller would wait for ever
            why = f"{type(error).__name__}: {error}"
            outcome = Outcome(request=request, state="failed", why=why)
        runs = self._runs()
        if outcome.state == "failed":
            # The disk may be full, and the caller gets the outcome anyway.
            with contextlib.suppress(EnvironmentFault, OSError):
                runs.fail(request.job.id, outcome.why)
            if outcome.out_of_memory:
                self._end_worker()  # gives all memory of the worker back
        with self._changed:
            self._outcome = outcome
            self._changed.notify_all()

    def _post(self, event: WorkerEvent) -> None:
        with self._changed:
            self._events.append(write_event(event))
            self._changed.notify_all()

    def _worker(self) -> Child:
        if self._child is None or not self._child.alive:
            self._end_worker()
            child = Child(self._command, variables=self._variables)
            self._child = self._ending.enter_context(child)
        return self._child

    def _end_worker(self) -> None:
        self._child = None
        self._ending.close()

    def _runs(self) -> Runs:
        if self._folder is None:
            raise RuntimeError("`check` comes first")
        return Runs(self._folder / "runs")

    def _own_folder(self, *, free_bytes: int) -> Path:
        """Make this slot's folder, if there is none; delete those of slots that were killed.

        Raises EnvironmentFault if there is too little space, or nothing can be written.
        """
        place = Path(tempfile.gettempdir())
        if self._folder is None:
            self._folder = self._resources.enter_context(temporary_folder())
            self._resources.callback(self._end_worker)
        if (free := shutil.disk_usage(place).free) < free_bytes:
            raise EnvironmentFault(
                f"{place}: {free / 1e6:,.0f} MB are free, a job may need "
                f"{free_bytes / 1e6:,.0f} MB",
                hint="free some space there, or name another folder with TMPDIR where that "
                "node's `ray start` runs",
            )
        write_whole(self._folder / "try", bytes(1 << 16))
        return self._folder


def _table_here(path: str) -> Path:
    """The folder in which this node has the table that the caller has at `path`."""
    data = os.environ.get(DATA_VARIABLE)
    return Path(data) / Path(path).name if data else Path(path)


def _as_fault(error: OSError | UserError) -> UserError:
    if isinstance(error, UserError):
        return error
    return environment_fault(error) or EnvironmentFault(f"{type(error).__name__}: {error}")
