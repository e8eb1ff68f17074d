import signal
import subprocess
import sys
import time
from pathlib import Path

# The parent starts a child that would work for a minute, says its number, and waits.
PARENT = """
import subprocess, sys, time
child = subprocess.Popen(
    [sys.executable, "-c", sys.argv[1]], start_new_session=True, stdout=subprocess.PIPE, text=True
)
child.stdout.readline()
print(child.pid, flush=True)
time.sleep(60)
"""
CHILD = """
import time
from prime_bench.base.process import end_with_parent
end_with_parent()
print("ready", flush=True)
time.sleep(60)
"""


def _alive(pid):
    """Whether the process runs; one that nobody has waited for (Z) does not."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"


def test_a_worker_ends_soon_after_its_parent_was_killed():
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT, CHILD], stdout=subprocess.PIPE, text=True
    )
    with parent:
        child = int(parent.stdout.readline())
        assert _alive(child)
        parent.send_signal(signal.SIGKILL)
    deadline = time.monotonic() + 20
    while _alive(child) and time.monotonic() < deadline:
        time.sleep(0.05)

    assert not _alive(child)
