"""Processes that do not outlive the one that started them."""

import os
import signal
import threading
import time

LOOK_S = 0.5


def end_with_parent() -> None:
    """Kill this process soon after its parent is gone, however that ended.

    For a worker in the middle of a job: it would hold its device until the job's end, for nobody.
    """
    threading.Thread(target=_watch, args=(os.getppid(),), daemon=True).start()


def _watch(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(LOOK_S)
    os.kill(os.getpid(), signal.SIGKILL)
