"""Steps and predictions as graphs, on a stand-in for CUDA graphs: equal bits, and what cannot be
one.
"""

import contextlib
import weakref

import pytest
import torch

from prime_bench.assemble import build_arm
from prime_bench.backbones.embedding import FieldEmbedding
from prime_bench.catalog import BACKBONES, PLUGINS
from prime_bench.plugins.attach import ArmModel
from prime_bench.plugins.interface import Plugin
from prime_bench.recipe.job import Job
from prime_bench.settings.training import TrainSpec
from prime_bench.training import graph as graph_module
from prime_bench.training.batches import Batch, Rows
from prime_bench.training.evaluation import predict
from prime_bench.training.graph import CudaCapture, GraphedForward, GraphedStep
from prime_bench.training.optimizer import Optimizer, Penalty

CPU = torch.device("cpu")
PENALTY = Penalty(embedding=0.03, network=0.007)
ROWS, STEPS = 16, 12
PARTIAL, LOWER_RATE = 5, 8
"""The step with fewer rows than the others, and the one from which the rate is lower."""
CONTROLS = [name for name in PLUGINS if name not in ("dense", "prime", "apg")]


def job_of(backbone, plugin, **training):
    own = BACKBONES[backbone].settings().plain()
    small = {key: [12, 9] for key in own if key.endswith("hidden_units") and own[key]}
    small |= {"net_dropout": 0.2} if "net_dropout" in own else {}
    return Job(
        fingerprint="t",
        backbone=backbone,
        backbone_settings=own | small | {"embedding_dim": 4},
        plugin=plugin,
        plugin_settings=PLUGINS[plugin].settings().plain()
        | ({"rank_k": 2} if plugin == "apg" else {}),
        training=TrainSpec(batch_size=ROWS, max_gradient_norm=0.05, **training),
        seed=5,
    ).resolve()


def trained(job, schema, split, step_of):
    """Loss of each step, and everything that the steps have left."""
    arm = build_arm(job, schema).arm
    with torch.no_grad():
        for weight in arm.embedding_parameters():
            weight.mul_(100)  # so that the clip is at work
    torch.manual_seed(3)
    optimizer = Optimizer(arm, job.training, penalty=PENALTY)
    step, losses = step_of(optimizer), []
    for number in range(STEPS):
        if number == LOWER_RATE:
            optimizer.learning_rate = 1e-4
        n_rows = ROWS - 3 if number == PARTIAL else ROWS
        losses.append(step(batch_of(split, number * ROWS, n_rows)).clone())
    left = [*arm.parameters(), *arm.buffers(), *optimizer.tensors(), torch.get_rng_state()]
    return torch.stack(losses), [tensor.detach() for tensor in left], optimizer


def batch_of(split, start, n_rows):
    columns = (split.ids, split.numerics, split.labels)
    return Batch(*(torch.from_numpy(column[start : start + n_rows]) for column in columns))


@pytest.mark.parametrize(
    ("backbone", "plugin"),
    [(b, p) for b in BACKBONES for p in ("dense", "prime")]
    + [("DNN", p) for p in CONTROLS]
    + [("DCNv2", "apg"), ("FiBiNET", "apg")],
)
def test_a_graph_gives_the_bits_of_eager_steps(backbone, plugin, schema, make_split, tape):
    job, split = job_of(backbone, plugin), make_split(STEPS * ROWS)
    eager = trained(job, schema, split, lambda optimizer: optimizer.step)
    steps = []

    def graphed(optimizer):
        steps.append(GraphedStep(optimizer, capture=tape))
        return steps[0]

    found = trained(job, schema, split, graphed)
    assert steps[0].active, steps[0].why
    assert torch.equal(found[0], eager[0])
    for mine, other in zip(found[1], eager[1], strict=True):
        assert torch.equal(mine, other)
    assert found[2].steps == eager[2].steps == STEPS
    assert found[2].take_loss() == eager[0].double().sum()


def test_the_loss_of_the_logit_as_a_graph(schema, make_split, tape):
    job, split = job_of("DNN", "prime", loss="logit"), make_split(STEPS * ROWS)
    eager = trained(job, schema, split, lambda optimizer: optimizer.step)
    found = trained(job, schema, split, lambda optimizer: GraphedStep(optimizer, capture=tape))
    assert torch.equal(found[0], eager[0])


class Scheduled(Plugin):
    """Adds to the logit what depends on a number that Python counts."""

    def __init__(self, width, *, on_host):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(width))
        self.register_buffer("count", torch.zeros(()))
        self.on_host, self.calls = on_host, 0

    def forward(self, z, dense_logit, router_input=None):  # noqa: ARG002
        if self.on_host:
            self.calls += 1
            return torch.sigmoid(dense_logit + (z @ self.weight + 1) / self.calls)
        return torch.sigmoid(dense_logit + (z @ self.weight + 1) / self.count)

    def prepare_batch(self, n_rows):  # noqa: ARG002
        self.count += 1


class ReadsANumber(Scheduled):
    def forward(self, z, dense_logit, router_input=None):
        if float(z.detach().sum()) > 1e9:
            raise ValueError
        return super().forward(z, dense_logit, router_input)


class HidesANumber(Scheduled):
    """Counts where no one looks: in a list."""

    def __init__(self, width):
        super().__init__(width, on_host=False)
        self.hidden = [0]

    def forward(self, z, dense_logit, router_input=None):
        self.hidden[0] += 1
        return super().forward(z, dense_logit * self.hidden[0], router_input)


class ReplacesABuffer(Scheduled):
    """Keeps a mean that only evaluation reads, in another tensor after each batch."""

    def __init__(self, width):
        super().__init__(width, on_host=False)
        self.register_buffer("mean", torch.zeros(()))

    def forward(self, z, dense_logit, router_input=None):
        self.mean = 0.9 * self.mean + 0.1 * z.detach().mean()
        return super().forward(z, dense_logit, router_input)


class ReplacesAnAttribute(Scheduled):
    def __init__(self, width):
        super().__init__(width, on_host=False)
        self.mean = torch.zeros(())

    def forward(self, z, dense_logit, router_input=None):
        self.mean = 0.9 * self.mean + 0.1 * z.detach().mean()
        return super().forward(z, dense_logit, router_input)


class Late(Scheduled):
    """Scales the logit from a batch on that comes after those of the comparison."""

    def __init__(self, width):
        super().__init__(width, on_host=False)
        self.scale, self.batches = 1, 0

    def prepare_batch(self, n_rows):
        super().prepare_batch(n_rows)
        self.batches += 1
        self.scale = 2 if self.batches >= 10 else 1

    def forward(self, z, dense_logit, router_input=None):
        return super().forward(z, dense_logit * self.scale, router_input)


class LateByItself(Late):
    def forward(self, z, dense_logit, router_input=None):
        scale = 2 if self.batches >= 10 else 1
        return Scheduled.forward(self, z, dense_logit * scale, router_input)


class ReplacesAWeight(Scheduled):
    def forward(self, z, dense_logit, router_input=None):
        self.weight = torch.nn.Parameter(self.weight.detach().clone())
        return super().forward(z, dense_logit, router_input)


class Expands(Scheduled):
    """Has a buffer that cannot be written, and so not be put back."""

    def __init__(self, width):
        super().__init__(width, on_host=False)
        self.register_buffer("ones", torch.ones(1).expand(3))


class ChangesAnAttribute(Scheduled):
    """What a graph can do: a tensor that is no buffer, changed in place; a cache that the first
    batch makes, with a number that says so; and a count that the step does not read.
    """

    def __init__(self, width):
        super().__init__(width, on_host=False)
        self.mean, self.rows, self.batches = torch.zeros(()), 0, 0

    def prepare_batch(self, n_rows):
        super().prepare_batch(n_rows)
        self.batches += 1
        if self.rows != n_rows:
            self.rows, self.cache = n_rows, torch.zeros(n_rows)
        self.cache.fill_(1 / self.batches)

    def forward(self, z, dense_logit, router_input=None):
        self.last = z.detach().mean()
        self.mean.mul_(0.9).add_(self.last)
        return super().forward(z, dense_logit * self.cache, router_input)


def with_plugin(plugin, schema, split, tape, *, steps=3, partial=None):
    job, lines = job_of("DNN", "dense"), []
    torch.manual_seed(3)
    arm = ArmModel(build_arm(job, schema).arm.backbone, plugin)
    step = GraphedStep(
        Optimizer(arm, job.training, penalty=PENALTY), capture=tape, log=lines.append
    )
    for number in range(steps):
        n_rows = ROWS - 3 if number == partial else ROWS
        step(batch_of(split, number * ROWS, n_rows))
    return step, lines, arm


@pytest.mark.parametrize(
    ("plugin", "why"),
    [
        (lambda: Scheduled(20, on_host=True), "plugin.calls is a Python number"),
        (lambda: ReadsANumber(20, on_host=False), "not permitted when stream is capturing"),
        (lambda: HidesANumber(20), "steps of the graph and eager ones differ"),
        (lambda: ReplacesABuffer(20), "another tensor in the place of plugin.mean"),
        (lambda: ReplacesAWeight(20, on_host=False), "another tensor in the place of plugin.we"),
        (lambda: ReplacesAnAttribute(20), "steps of the graph and eager ones differ"),
        (lambda: Late(20), "plugin.scale, a Python number, has changed"),
        (lambda: LateByItself(20), "a training step reads plugin.batches"),
        (lambda: Expands(20), "unsupported operation"),
    ],
    ids=["number", "waits", "hidden", "buffer", "weight", "attribute", "late", "count", "expanded"],
)
def test_what_a_graph_would_get_wrong_is_stepped_eagerly(plugin, why, schema, make_split, tape):
    split = make_split(STEPS * ROWS)
    step, lines, arm = with_plugin(plugin(), schema, split, tape, steps=STEPS)
    assert not step.active
    assert why in step.why
    assert len(lines) == 1
    assert why in lines[0]
    assert step._optimizer.steps == STEPS
    assert arm.plugin.count == STEPS
    if not isinstance(arm.plugin, HidesANumber):  # nobody can put back what is in its list
        _, _, twin = with_plugin(plugin(), schema, split, None, steps=STEPS)
        assert_same(arm, twin)


def assert_same(arm, twin):
    """Parameters, buffers and the plug-in's numbers and tensors."""
    for mine, other in zip(arm.state_dict().values(), twin.state_dict().values(), strict=True):
        assert torch.equal(mine, other)
    for name, value in vars(twin.plugin).items():
        if isinstance(value, (int, float, torch.Tensor)):
            assert vars(arm.plugin)[name] == value, name


def test_a_failed_capture_leaves_no_memory_to_the_eager_step(schema, make_split, monkeypatch):
    class Fails:
        def stream(self, use):  # noqa: ARG002
            return contextlib.nullcontext()

        def __call__(self, function, use):  # noqa: ARG002
            raise torch.OutOfMemoryError("CUDA out of memory")

    copies, alive, job = [], [], job_of("DNN", "dense")
    copy, step = graph_module._State.copy, Optimizer.step

    def copied(state):
        saved = copy(state)
        copies.append(weakref.ref(saved))
        return saved

    def stepped(optimizer, batch):
        alive.append([made for made in copies if made() is not None])
        return step(optimizer, batch)

    monkeypatch.setattr(graph_module._State, "copy", copied)
    monkeypatch.setattr(Optimizer, "step", stepped)
    optimizer = Optimizer(build_arm(job, schema).arm, job.training, penalty=PENALTY)
    graphed = GraphedStep(optimizer, capture=Fails())
    graphed(batch_of(make_split(ROWS), 0, ROWS))
    assert "out of memory" in graphed.why
    assert copies
    assert alive == [[]]


def test_after_a_capture_that_fails_the_earlier_graph_steps_no_more(schema, make_split, tape):
    """It would go on with the learning rate of before."""
    captured = []

    class Once:
        stream = tape.stream

        def __call__(self, function, use):
            captured.append(use)
            if len(captured) > 1:
                raise RuntimeError("out of memory")
            return tape(function, use)

    job, split = job_of("DNN", "dense"), make_split(STEPS * ROWS)
    found = trained(job, schema, split, lambda optimizer: GraphedStep(optimizer, capture=Once()))
    assert captured == ["step", "step"]
    eager = trained(job, schema, split, lambda optimizer: optimizer.step)
    for mine, other in zip(found[1], eager[1], strict=True):
        assert torch.equal(mine, other)


class FailsOnce(torch.autograd.Function):
    """Fails in the backward pass of a graph's capture, as what waits for the device does."""

    @staticmethod
    def forward(ctx, x):  # noqa: ARG004
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):  # noqa: ARG004
        if torch.utils._python_dispatch._get_current_dispatch_mode() is not None:
            raise RuntimeError("not permitted")
        return gradient


def test_a_backward_pass_that_fails_leaves_no_gradient_behind(schema, make_split, tape):
    def run(capture):
        job = job_of("DNN", "dense")
        arm = build_arm(job, schema).arm
        embedding = next(m for m in arm.modules() if isinstance(m, FieldEmbedding))
        torch.manual_seed(3)

        def hook(module, inputs, output):  # looks up other ids as well
            ids, _ = inputs
            output = FailsOnce.apply(output)  # its backward pass comes after that of the other ids
            other = module.table.index_select(0, (ids + module.offsets).flatten())
            return output + other.view(*ids.shape, -1).sum(1, keepdim=True)

        embedding.register_forward_hook(hook)
        step = GraphedStep(Optimizer(arm, job.training, penalty=PENALTY), capture=capture)
        split = make_split(3 * ROWS)
        for number in range(3):
            step(batch_of(split, number * ROWS, ROWS))
        assert not step.active
        return arm

    eager, failed = run(None), run(tape)
    for mine, other in zip(failed.parameters(), eager.parameters(), strict=True):
        assert torch.equal(mine, other)


def test_what_prepare_batch_puts_into_a_buffer_reaches_the_graph(schema, make_split, tape):
    split = make_split(3 * ROWS)
    step, _, arm = with_plugin(Scheduled(20, on_host=False), schema, split, tape)
    other, _, same = with_plugin(Scheduled(20, on_host=False), schema, split, None)
    assert step.active
    assert not other.active
    assert arm.plugin.count == 3
    assert_same(arm, same)


@pytest.mark.parametrize("partial", [None, PARTIAL], ids=["whole", "partial"])
def test_what_a_plugin_keeps_outside_of_buffers_and_changes_in_place(
    partial, schema, make_split, tape
):
    split = make_split(STEPS * ROWS)
    plugins = [ChangesAnAttribute(20) for _ in range(2)]
    step, _, arm = with_plugin(plugins[0], schema, split, tape, steps=STEPS, partial=partial)
    _, _, twin = with_plugin(plugins[1], schema, split, None, steps=STEPS, partial=partial)
    # After a batch of another size the plug-in has made another cache.
    assert step.active is (partial is None)
    assert ("plugin.cache is another tensor" in step.why) is (partial is not None)
    assert arm.plugin.batches == STEPS
    for own in plugins:
        assert torch.equal(own.cache, torch.full((ROWS,), 1 / STEPS))
        del own.cache
    assert_same(arm, twin)


@pytest.mark.parametrize("plugin", ["dense", "prime", "permuted_routing"])
def test_predictions_by_a_graph(plugin, schema, make_split, tape):
    arm = build_arm(job_of("DNN", plugin), schema).arm
    with torch.no_grad():
        for weight in arm.parameters():  # PRIME starts with experts that add exactly 0
            weight.normal_()
    rows = Rows(make_split(5 * ROWS + 3), device=CPU)
    eager = predict(arm, rows, batch_size=ROWS)
    assert torch.equal(predict(arm, rows, batch_size=ROWS, capture=tape), eager)
    assert tape.last.calls
    with torch.no_grad():
        next(arm.backbone.mlp.parameters()).mul_(2)
    changed = predict(arm, rows, batch_size=ROWS)
    assert torch.equal(predict(arm, rows, batch_size=ROWS, capture=tape), changed)
    assert not torch.equal(changed, eager)


def test_predictions_of_what_cannot_be_captured(schema, make_split, tape):
    arm = ArmModel(
        build_arm(job_of("DNN", "dense"), schema).arm.backbone, ReadsANumber(20, on_host=False)
    )
    arm.plugin.count += 1
    rows = Rows(make_split(3 * ROWS), device=CPU)
    assert torch.equal(
        predict(arm, rows, batch_size=ROWS, capture=tape), predict(arm, rows, batch_size=ROWS)
    )


def test_the_graph_of_a_forward_pass_reads_the_weights_where_they_are(schema, make_split, tape):
    arm = build_arm(job_of("DNN", "prime"), schema).arm.eval()
    split = make_split(2 * ROWS)
    first, second = (batch_of(split, start, ROWS) for start in (0, ROWS))
    with torch.inference_mode():
        forward = GraphedForward(arm, first, capture=tape)
        assert torch.equal(forward(second), arm(second.ids, second.numerics))


def test_the_graph_of_a_forward_pass_leaves_the_batch_that_it_was_made_for(
    schema, make_split, tape
):
    """On a GPU that batch is a part of the split's own rows."""
    arm = build_arm(job_of("DNN", "dense"), schema).arm.eval()
    split = make_split(2 * ROWS)
    first, second = (batch_of(split, start, ROWS) for start in (0, ROWS))
    before = [column.clone() for column in (first.ids, first.numerics, first.labels)]
    with torch.inference_mode():
        GraphedForward(arm, first, capture=tape)(second)
    for column, own in zip((first.ids, first.numerics, first.labels), before, strict=True):
        assert torch.equal(column, own)


class FakeStream:
    def __init__(self, device=None):
        self.device, self.waited = device, []

    def wait_stream(self, other):
        self.waited.append(other)


class FakeGraph:
    """In place of `torch.cuda.CUDAGraph`: repeats what a tape has recorded."""

    def replay(self):
        self.tape.repeat()


@pytest.fixture
def fake_cuda(monkeypatch, tape):
    """torch's functions for CUDA graphs, on the CPU; `used` lists the streams of captures."""
    main, used, current = FakeStream(), [], []

    @contextlib.contextmanager
    def graph(made, *, stream, capture_error_mode):
        assert capture_error_mode == "thread_local"
        used.append(stream)
        made.tape = type(tape).Tape()
        with made.tape:
            yield

    for name, value in {
        "Stream": FakeStream,
        "CUDAGraph": FakeGraph,
        "graph": graph,
        "stream": lambda _: contextlib.nullcontext(),
        "current_stream": lambda _: main,
        "set_stream": current.append,
    }.items():
        monkeypatch.setattr(torch.cuda, name, value)
    monkeypatch.setattr(
        torch.autograd.graph, "set_override_stale_capture_stream", lambda _: None, raising=False
    )
    graph_module._stream_for.cache_clear()
    yield used, current, main
    graph_module._stream_for.cache_clear()


def test_steps_and_predictions_are_captured_on_streams_of_their_own(fake_cuda, schema, make_split):
    used, current, main = fake_cuda
    capture, job, split = CudaCapture(CPU), job_of("DNN", "prime"), make_split(STEPS * ROWS)
    eager = trained(job, schema, split, lambda optimizer: optimizer.step)
    found = trained(job, schema, split, lambda optimizer: GraphedStep(optimizer, capture=capture))
    assert torch.equal(found[0], eager[0])
    arm, rows = build_arm(job, schema).arm, Rows(split, device=CPU)
    predict(arm, rows, batch_size=ROWS, capture=capture)
    first, again, forward = used  # the step is captured again for the lower rate
    assert first is again
    assert forward is not first
    assert main in first.waited
    assert first in main.waited
    assert current == [main] * 3


def test_a_failed_capture_gives_the_stream_back(fake_cuda):
    _, current, main = fake_cuda
    with pytest.raises(RuntimeError, match="not permitted"):
        CudaCapture(CPU)(lambda: torch.ones(()).item(), "step")
    assert current == [main]


def test_what_follows_a_step_that_failed_waits_for_its_stream(fake_cuda):
    *_, main = fake_cuda
    with pytest.raises(RuntimeError, match="half-way"), CudaCapture(CPU).stream("step"):
        raise RuntimeError("half-way")
    assert graph_module._stream_for(CPU, "step") in main.waited
