"""`training.compile`: the same numbers up to rounding, the same streams, and an error without a
compiler. What the compiled step computes is in `test_optimizer.py`, against an oracle.
"""

import os
import subprocess
import sys

import pytest
import torch

from prime_bench.assemble import build_arm
from prime_bench.settings.training import TrainSpec
from prime_bench.training.batches import Batch
from prime_bench.training.optimizer import Optimizer, Penalty

pytestmark = pytest.mark.filterwarnings("ignore")  # torch's own, while it compiles
PENALTY = Penalty(embedding=0.1, network=0.01)


def batches(split, sizes):
    start = 0
    for size in sizes:
        rows = slice(start, start + size)
        yield Batch(*(torch.from_numpy(a[rows]) for a in (split.ids, split.numerics, split.labels)))
        start += size


def run(job, schema, split, *, compile_, sizes):
    """Losses, states of the dropout stream after each step, and the weights."""
    arm = build_arm(job.resolve(), schema).arm
    optimizer = Optimizer(arm, TrainSpec(compile=compile_), penalty=PENALTY)
    torch.manual_seed(5)
    losses, states = [], []
    for batch in batches(split, sizes):
        losses.append(optimizer.step(batch).item())
        states.append(torch.get_rng_state())
    return losses, states, arm.state_dict()


@pytest.mark.parametrize(
    ("plugin", "sizes"),
    [
        # It has all that Dense and PRIME compute, and draws random numbers of its own besides.
        pytest.param("permuted_routing", (20, 20, 20), marks=pytest.mark.long),
        # A batch of another size is compiled anew, which takes as long as the first.
        pytest.param("dense", (20, 20, 13), marks=pytest.mark.slow),
        *(
            pytest.param(plugin, (20, 20, 20), marks=pytest.mark.slow)
            for plugin in ("dense", "prime", "auxiliary_loss")
        ),
    ],
)
def test_a_compiled_run_has_the_masks_of_a_plain_one_whatever_the_arm(
    plugin, sizes, schema, make_split, make_job
):
    """With other dropout masks the losses would differ in the second digit. A plug-in starts
    neutral, so that the first loss shows that its masks are the Dense arm's.
    """
    torch._dynamo.reset()
    split = make_split(100)
    settings = {"hidden_units": [8], "net_dropout": 0.3, "batch_norm": True}
    plain = run(make_job("DNN", **settings), schema, split, compile_=False, sizes=sizes)
    expected = run(make_job("DNN", plugin, **settings), schema, split, compile_=False, sizes=sizes)
    found = run(make_job("DNN", plugin, **settings), schema, split, compile_=True, sizes=sizes)
    assert found[0][0] == pytest.approx(plain[0][0], abs=1e-6)
    assert found[0] == pytest.approx(expected[0], abs=1e-5)
    for one, two, dense in zip(found[1], expected[1], plain[1], strict=True):
        assert torch.equal(one, two)
        assert torch.equal(one, dense)
    for name, value in expected[2].items():
        torch.testing.assert_close(found[2][name], value, rtol=0, atol=2.1e-3, msg=name)


@pytest.mark.long
def test_without_a_compiler_there_is_an_error_at_once():
    code = (
        "import torch\n"
        "from prime_bench.base.errors import EnvironmentFault\n"
        "from prime_bench.training.device import require_compiler\n"
        "try: require_compiler(torch.device('cpu'))\n"
        "except EnvironmentFault as error: print(error)\n"
    )
    hidden = {**os.environ, "PATH": "/nowhere", "CXX": "no-such-compiler"}
    done = subprocess.run(
        [sys.executable, "-c", code], env=hidden, capture_output=True, text=True, check=False
    )
    assert "training.compile: torch.compile does not work on cpu" in done.stdout, done.stderr
    assert "hint: install a C++ compiler" in done.stdout
