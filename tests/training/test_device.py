"""The arithmetic that a worker fixes."""

import subprocess
import sys


def test_subnormal_numbers_are_zeros_in_every_thread():
    """In a process of its own: the mode belongs to threads, and stays."""
    code = (
        "import torch\n"
        "from prime_bench.training.device import fix_arithmetic\n"
        "fix_arithmetic(threads=2)\n"
        "x = torch.full((2_000_000,), 1.5e-38)\n"
        "print(int((x * 0.1).count_nonzero()), int((x * 1.0).count_nonzero()))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["0", "2000000"]
