"""Checks of what is computed: agreement with the CPU, and equal bits of what should be equal.

Shapes: B rows of a batch.
"""

import hashlib
from collections.abc import Sequence

import torch
from gpu_data import draw, shape_of
from gpu_results import Figures
from gpu_session import ARMS, SEED, Bench, Wrong

from prime_bench.base.streams import derive
from prime_bench.data.schema import Schema
from prime_bench.data.table import Split
from prime_bench.plugins.attach import ArmModel
from prime_bench.probes.arms import Pool, forms_on, forward_of, trainer_of
from prime_bench.recipe.job import Job, ResolvedJob
from prime_bench.training.batches import Batch
from prime_bench.training.optimizer import Optimizer, Penalty

_AGREEMENT_ROWS = 256

# How far equal arithmetic in another order leads apart was measured on a CPU, by permuting the rows
# of each batch: in float64 five steps moved a loss by 1e-15 and a weight, which a step moves by
# 1e-3, by 2e-7. In float32 Adam turns the rounding errors of gradients that are 0 (biases before a
# batch norm) into steps, so there only what comes before counts: 1e-7 of a prediction, 1e-6 of the
# first two losses.
ALLOWED = {
    "float64 prediction": 1e-12,
    "float64 loss": 1e-10,
    "float64 weight": 1e-5,
    "float32 prediction": 1e-5,
    "float32 loss": 1e-5,
    "float32 form": 1e-5,
}
"""Largest absolute difference from the CPU; of `form`, of a CUDA graph from eager."""


def agreement(bench: Bench, part: str) -> Figures:
    """Both arms compute on the device what they compute on the CPU, as a CUDA graph too. Gives the
    largest differences. `part` is `dataset backbone`.
    """
    dataset, backbone = part.split()
    schema = shape_of(dataset, small=True).schema
    rows = draw(schema, 3 * _AGREEMENT_ROWS, seed=SEED, device=torch.device("cpu"))
    worst: Figures = {}
    for plugin in ARMS:
        job = bench.job(backbone, plugin, dataset=dataset, dropout=False)
        here = three_steps(job, schema, rows, device=bench.device)
        there = three_steps(job, schema, rows, device=torch.device("cpu"))
        for name, allowed in ALLOWED.items():
            difference = float((here[name] - there[name]).abs().max())
            worst[name] = max(worst.get(name, 0.0), difference)
            # Not >: a NaN must not pass.
            if not difference <= allowed:
                raise Wrong(f"{plugin}: {name} differs by {difference:.1e}")
    return worst


def three_steps(
    job: Job, schema: Schema, rows: Split, *, device: torch.device
) -> dict[str, torch.Tensor]:
    """What is compared, by the names of ALLOWED, on the CPU in float64."""
    found = {}
    pool = Pool(rows, n_rows=len(rows), seed=SEED, device=device)
    batches = pool.batches(batch_size=_AGREEMENT_ROWS, n=3)
    for dtype, name in ((torch.float64, "float64"), (torch.float32, "float32")):
        trainer = trainer_of(job.resolve(), schema, device=device, dtype=dtype)
        arm = trainer.arm.eval()
        with torch.inference_mode():
            eager = arm(batches[0].ids, batches[0].numerics)
            last = forms_on(device, with_compiled=False)[-1]
            found[f"{name} form"] = forward_of(arm, last, like=batches[0])(batches[0]) - eager
        found[f"{name} prediction"] = eager
        arm.train()
        losses = torch.stack([trainer.optimizer.step(batch) for batch in batches])
        found[f"{name} loss"] = losses if dtype == torch.float64 else losses[:2]
        found[f"{name} weight"] = torch.cat([p.detach().flatten() for p in arm.parameters()])
    return {name: value.double().cpu() for name, value in found.items()}


_EPOCH = 8
"""Whole batches before the partial one."""
_FURTHER = 3
"""Whole batches after it, at a lower learning rate."""


def bits(bench: Bench, backbone: str) -> Figures:
    """Steps of a full-size batch on a full-size table, a partial batch and a lower learning rate
    among them, give the same bits again, as a CUDA graph, and in another process.
    """
    (peer,) = bench.start_peers(1)
    for plugin in ARMS:
        peer.tell("digests", backbone=backbone, plugin=plugin, forms=["other process"])
    forms = ["eager", "repeated", *(["graph"] if bench.on_cuda else [])]
    found: Figures = {"steps": _EPOCH + 1 + _FURTHER}
    if not bench.on_cuda:
        found["note"] = "graph: needs CUDA"
    for plugin in ARMS:
        digests_here = digests(bench, backbone=backbone, plugin=plugin, forms=forms)
        found[plugin] = {**digests_here, **peer.answer()}
        unlike = [
            form for form, digest in found[plugin].items() if digest != found[plugin]["eager"]
        ]
        if unlike:
            raise Wrong(f"{plugin}: {', '.join(unlike)} differ from the first eager run")
    return found


def digests(bench: Bench, *, backbone: str, plugin: str, forms: Sequence[str]) -> dict[str, str]:
    """SHA-256 of losses, weights and buffers after the steps, each time from the same state."""
    job = bench.job(backbone, plugin).resolve()
    arm = trainer_of(job, bench.shape("avazu").schema, device=bench.device).arm
    initial = {name: value.clone() for name, value in arm.state_dict().items()}
    found = {}
    for form in forms:
        arm.load_state_dict(initial)
        found[form] = _digest(bench, job, arm, graph=form in ("graph", "other process"))
    return found


def _digest(bench: Bench, job: ResolvedJob, arm: ArmModel, *, graph: bool) -> str:
    torch.manual_seed(derive(SEED, "dropout"))
    optimizer = Optimizer(arm, job.training, penalty=Penalty.of(job.backbone))
    batches = bench.pool("avazu").batches(batch_size=bench.batch_size, n=_EPOCH + _FURTHER)
    graphed = bench.graphed(optimizer)
    step = graphed if graph else optimizer.step
    losses = [step(batch).clone() for batch in [*batches[:_EPOCH], _part(batches[-1])]]
    optimizer.learning_rate *= job.training.learning_rate_factor
    losses += [step(batch).clone() for batch in batches[_EPOCH:]]
    if graph and bench.on_cuda and graphed.why:
        raise Wrong(f"{job.job.plugin}: the step is no graph: {graphed.why}")
    seen = hashlib.sha256()
    for value in (torch.stack(losses), *arm.state_dict().values()):
        if not bool(value.isfinite().all()):
            raise Wrong(f"{job.job.plugin}: losses or weights are not finite")
        seen.update(value.detach().cpu().contiguous().numpy().data)
    return seen.hexdigest()


def _part(batch: Batch) -> Batch:
    """A third of the batch."""
    n_rows = len(batch.labels) // 3
    return Batch(
        ids=batch.ids[:n_rows], numerics=batch.numerics[:n_rows], labels=batch.labels[:n_rows]
    )


_PAIRED_STEPS = 3


def pairs(bench: Bench, backbone: str) -> Figures:
    """Dense and PRIME start with bitwise the same predictions, in training with the same dropout
    masks, and draw equally often from torch's generators in each step.
    """
    batches = bench.pool("avazu").batches(batch_size=bench.batch_size, n=_PAIRED_STEPS)
    found: dict[str, list[torch.Tensor]] = {"evaluation": [], "training": [], "generator": []}
    for plugin in ARMS:
        job = bench.job(backbone, plugin).resolve()
        trainer = trainer_of(job, bench.shape("avazu").schema, device=bench.device)
        with torch.no_grad():
            found["evaluation"].append(trainer.arm.eval()(batches[0].ids, batches[0].numerics))
            trainer.arm.train()
            torch.manual_seed(derive(SEED, "dropout"))
            found["training"].append(trainer.arm(batches[0].ids, batches[0].numerics))
        for batch in batches:
            trainer.optimizer.step(batch)
        found["generator"].append(_generator_state(bench))
    for what, (dense, prime) in found.items():
        if not torch.equal(dense, prime):
            gap = float((dense.double() - prime.double()).abs().max())
            raise Wrong(f"{what}: PRIME differs from Dense by up to {gap:.2g}")
    return {"steps": _PAIRED_STEPS}


def _generator_state(bench: Bench) -> torch.Tensor:
    """The state of torch's generator on the device, from which dropout draws."""
    return torch.cuda.get_rng_state(bench.device) if bench.on_cuda else torch.get_rng_state()
