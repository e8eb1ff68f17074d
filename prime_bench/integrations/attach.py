"""Attach PRIME to any model of FuxiCTR 2.3.10 by hooks on two of its layers.

The output of the model's embedding layer is z, after flattening. The input of the sigmoid that
computes `y_pred` is the logit, and its output is replaced by PRIME's probability. So the model's
own `forward`, `fit`, `evaluate`, `predict` and checkpoints work unchanged. Nothing of FuxiCTR is
imported: layers are recognised by the names of their classes and by their output on one batch.
A model may call that sigmoid elsewhere too, as FinalNet does in its loss: PRIME takes part in the
call that computes `y_pred` alone.

Shapes: B rows, F fields, k embedding width, d = F k.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from prime_bench.base.errors import UsageError
from prime_bench.base.streams import derive
from prime_bench.plugins.prime import Prime
from prime_bench.settings.plugins import PrimeConfig

NAME = "prime"
"""Name of the submodule, and so the prefix of PRIME's tensors in checkpoints."""
_EMBEDDING_CLASSES = ("FeatureEmbedding", "FeatureEmbeddingDict")
_PROBE_ROWS = 2
_RECIPE = "a recipe trains such a PRIME on one of this package's backbones"
_POOLED = (
    'embedding="..." names a layer that is called once a batch and gives (B, F, k) or (B, d), '
    "such as the one after the sequences are pooled"
)


def attach_prime(
    model: nn.Module,
    config: PrimeConfig | None = None,
    *,
    seed: int = 2021,
    embedding: str | None = None,
    batch: Mapping[str, Tensor] | None = None,
) -> Prime:
    """Attach PRIME to `model`, a FuxiCTR `BaseModel` on its device, and return the PRIME module.

    PRIME becomes the submodule `prime`, and its parameters are added to the model's optimizer with
    the same options. Before the first update, the model's predictions are bitwise the same as
    without PRIME. To load a checkpoint of a model with PRIME, attach PRIME first.

    Args:
        model: The model. It is run once in evaluation and once in training mode, without gradients
            and with its buffers restored, to find the two layers.
        config: Settings of PRIME; None for those of the paper.
        seed: Determines PRIME's initial values and its permutations. torch's global generators are
            not used.
        embedding: Name of the layer whose output PRIME reads, if it is not `embedding_layer`. A
            model with several embedding layers (FFM, HOFM, ONN) needs it.
        batch: A batch for these runs, as the data loader gives it. None for a batch of zeros, made
            from the model's feature map.

    Raises UsageError if the model has no embedding layer, or several and none is named, or no
    sigmoid that computes `y_pred`, or if `config` needs more than these two layers.
    """
    config = PrimeConfig() if config is None else config
    _refuse(model, config)
    embeddings = _embeddings(model, embedding)
    sigmoids = {n: m for n, m in model.named_modules() if isinstance(m, nn.Sigmoid)}
    given = _zeros(model) if batch is None else batch
    found = {
        mode: _probe(model, {**embeddings, **sigmoids}, given, training=mode == "training")
        for mode in ("evaluation", "training")
    }
    layer = _layer(embeddings, found["evaluation"])
    output, call = _output(sigmoids, layer, found)
    tap = _Embeddings(call)
    z = tap.flatten(embeddings[layer], found["evaluation"].outputs(layer)[0])
    prime = Prime(
        z.shape[1],
        config,
        generator=torch.Generator().manual_seed(derive(seed, "plugin-init")),
    )
    prime.use_seed(seed)
    model.add_module(NAME, prime.to(z).train(model.training))
    _add_to_optimizer(model, prime)
    embeddings[layer].register_forward_hook(tap)
    sigmoids[output].register_forward_hook(_Mixture(tap, prime))
    return prime


class _Embeddings:
    """A forward hook that keeps z for the sigmoid's call number `call`, counted from 0.

    It is an object and not a closure, so that a deep copy of the model copies it too.
    """

    def __init__(self, call: int) -> None:
        self._call, self._calls = call, 0
        self._z: Tensor | None = None

    def __call__(self, module: nn.Module, inputs: Any, output: Any) -> None:  # noqa: ARG002
        """Called by torch after the embedding layer's forward."""
        self._z, self._calls = self.flatten(module, output), 0

    def take(self) -> Tensor | None:
        """Count a call of the sigmoid. Returns z (B, d) if it computes `y_pred`, else None.

        z is forgotten then, so that no graph stays alive between forward passes.
        """
        number, self._calls = self._calls, self._calls + 1
        if number != self._call:
            return None
        z, self._z = self._z, None
        if z is None:
            raise UsageError(
                "attach_prime: the model computes y_pred without its embedding layer, so there is "
                "no z for PRIME to read",
                hint='embedding="..." names a layer that is called in every forward pass',
            )
        return z

    def flatten(self, module: nn.Module, output: Any) -> Tensor:
        """(B, F, k), (B, d), or field -> vector in the order of the feature map, to (B, d)."""
        if isinstance(output, Mapping):
            for field, vectors in output.items():
                if vectors.ndim != 2:
                    raise UsageError(
                        f"attach_prime: the embedding of `{field}` has the shape "
                        f"{tuple(vectors.shape)}; PRIME reads one vector per row",
                        hint=_POOLED,
                    )
            output = module.dict2tensor(output, flatten_emb=True)  # type: ignore[operator]
        z: Tensor = output.flatten(1)
        return z


class _Mixture:
    """A forward hook that replaces the output of the sigmoid by PRIME's probability."""

    def __init__(self, tap: _Embeddings, prime: Prime) -> None:
        self._tap, self._prime = tap, prime

    def __call__(
        self,
        module: nn.Module,  # noqa: ARG002
        inputs: tuple[Tensor, ...],
        output: Tensor,
    ) -> Tensor | None:
        """Logits (B, 1) or (B,) -> probabilities of the same shape; None for another call."""
        z = self._tap.take()
        if z is None:
            return None
        probability: Tensor = self._prime(z, inputs[0].reshape(-1))
        return probability.view(output.shape)


def _refuse(model: nn.Module, config: PrimeConfig) -> None:
    if not hasattr(model, "feature_map"):
        raise UsageError(
            f"attach_prime: {type(model).__name__} is not a BaseModel of FuxiCTR: "
            "it has no feature_map",
            hint="derive it from fuxictr.pytorch.models.BaseModel, or write it as a backbone of "
            "prime-bench (docs/your-own-plugin.md)",
        )
    if hasattr(model, NAME):
        raise UsageError(
            f"attach_prime: the model has a `{NAME}` already",
            hint="attach once; for other settings or another seed build the model again",
        )
    for key in ("expert_input", "router_input"):
        if getattr(config, key) != "embedding":
            raise UsageError(
                f"attach_prime: {key} = `{getattr(config, key)}`: "
                "a FuxiCTR model has no sites, PRIME reads its embeddings",
                hint=f"leave {key} out; {_RECIPE}",
            )
    if config.auxiliary_weight > 0:
        raise UsageError(
            "attach_prime: auxiliary_weight cannot be added to FuxiCTR's loss",
            hint=f"leave it at 0; {_RECIPE}",
        )


def _embeddings(model: nn.Module, named: str | None) -> dict[str, nn.Module]:
    """The layers that PRIME may read; only one if it is named or has FuxiCTR's usual name."""
    layers = {
        name: module
        for name, module in model.named_modules()
        if any(base.__name__ in _EMBEDDING_CLASSES for base in type(module).__mro__)
    }
    if named is None and "embedding_layer" in layers:
        named = "embedding_layer"
    if named is not None and named in dict(model.named_modules()):
        return {named: model.get_submodule(named)}
    if named is not None or not layers:
        what = f"no layer `{named}`" if named else f"no {' or '.join(_EMBEDDING_CLASSES)}"
        raise UsageError(
            f"attach_prime: {type(model).__name__} has {what}, so there is no z for PRIME to read",
            hint='embedding="..." names a layer whose output is (B, F, k) or (B, d)',
        )
    # A FeatureEmbedding contains a FeatureEmbeddingDict; the outer one is meant.
    return {n: m for n, m in layers.items() if n.rpartition(".")[0] not in layers}


def _zeros(model: nn.Module) -> dict[str, Tensor]:
    """A batch of zeros with the fields of the feature map."""
    batch: dict[str, Tensor] = {}
    for field, spec in model.feature_map.features.items():  # type: ignore[operator,union-attr]
        shape: tuple[int, ...] = (_PROBE_ROWS,)
        if spec["type"] == "sequence":
            shape = (_PROBE_ROWS, spec["max_len"])
        elif spec["type"] == "embedding":
            shape = (_PROBE_ROWS, spec.get("pretrain_dim", spec.get("embedding_dim", 1)))
        whole = spec["type"] in ("categorical", "sequence", "meta")
        batch[field] = torch.zeros(shape, dtype=torch.int64 if whole else torch.float32)
    for label in model.feature_map.labels:  # type: ignore[union-attr]
        batch[label] = torch.zeros(_PROBE_ROWS)
    return batch


@dataclass(frozen=True, kw_only=True)
class _Look:
    """What one forward pass called."""

    calls: list[tuple[str, Any]]
    """Name of the layer and its output, in order."""
    y_pred: Tensor

    def outputs(self, name: str) -> list[Any]:
        """The outputs of a layer."""
        return [output for called, output in self.calls if called == name]


def _probe(
    model: nn.Module,
    layers: Mapping[str, nn.Module],
    batch: Mapping[str, Tensor],
    *,
    training: bool,
) -> _Look:
    """One forward pass. Modes, buffers and random generators are as before it."""
    calls: list[tuple[str, Any]] = []
    handles = [
        module.register_forward_hook(lambda *call, name=name: calls.append((name, call[2])))
        for name, module in layers.items()
    ]
    modes = {module: module.training for module in model.modules()}
    buffers = {buffer: buffer.clone() for buffer in model.buffers()}
    devices = [tensor.device for tensor in model.parameters() if tensor.is_cuda]
    model.train(training)
    try:
        with torch.no_grad(), torch.random.fork_rng(list(dict.fromkeys(devices))):
            y_pred = model.forward(batch)["y_pred"]
    except (KeyError, TypeError, IndexError, ValueError, RuntimeError) as error:
        raise UsageError(
            f"attach_prime: {type(model).__name__} does not take a batch of zeros: {error!r}",
            hint="batch=... is one as your data loader gives it",
        ) from error
    finally:
        for handle in handles:
            handle.remove()
        for module, mode in modes.items():
            module.training = mode
        for buffer, values in buffers.items():
            buffer.copy_(values)
    return _Look(calls=calls, y_pred=y_pred)


def _layer(embeddings: Mapping[str, nn.Module], found: _Look) -> str:
    used = [name for name in embeddings if found.outputs(name)]
    if len(used) != 1:
        widest = max(used, key=lambda name: _width(found.outputs(name)[0]), default="")
        raise UsageError(
            f"attach_prime: which embedding does PRIME read? The model uses {used or 'none'}",
            hint=f'embedding="{widest}" names one' if used else "",
        )
    if (times := len(found.outputs(used[0]))) > 1:
        raise UsageError(
            f"attach_prime: the model calls `{used[0]}` {times} times a batch, so it has no "
            "single z",
            hint=_POOLED,
        )
    return used[0]


def _width(output: Any) -> int:
    """Numbers a row of an embedding layer's output."""
    parts = output.values() if isinstance(output, Mapping) else [output]
    return sum(part[0].numel() for part in parts)


def _output(
    sigmoids: Mapping[str, nn.Module], layer: str, found: Mapping[str, _Look]
) -> tuple[str, int]:
    """The sigmoid that computes `y_pred`, and which of its calls after that of `layer` does so."""
    places = {mode: _place(sigmoids, layer, seen) for mode, seen in found.items()}
    place = places["evaluation"]
    if place is None or places["training"] is None:
        raise UsageError(
            "attach_prime: y_pred is not the output of an nn.Sigmoid of the model, "
            "so there is no logit for PRIME to read",
            hint="FuxiCTR's `self.output_activation` is one, with task binary_classification",
        )
    if places["training"] != place:
        told = ", ".join(f"call {p[1] + 1} of `{p[0]}` in {m}" for m, p in places.items() if p)
        raise UsageError(
            f"attach_prime: y_pred is {told}, so it is not clear which logit PRIME should read",
            hint="give y_pred an nn.Sigmoid of its own",
        )
    return place


def _place(sigmoids: Mapping[str, nn.Module], layer: str, found: _Look) -> tuple[str, int] | None:
    numbers = dict.fromkeys(sigmoids, 0)
    for name, output in found.calls:
        if name == layer:
            numbers = dict.fromkeys(sigmoids, 0)
        elif name in sigmoids:
            if output.data_ptr() == found.y_pred.data_ptr():
                return name, numbers[name]
            numbers[name] += 1
    return None


def _add_to_optimizer(model: nn.Module, prime: Prime) -> None:
    """Add PRIME's parameters to the model's optimizer, which keeps the state of its parameters.

    A model without an optimizer gets them when it is compiled.
    """
    optimizer = getattr(model, "optimizer", None)
    if optimizer is not None:
        # With the options of the first group.
        options = {k: v for k, v in optimizer.param_groups[0].items() if k != "params"}
        optimizer.add_param_group({"params": list(prime.parameters()), **options})
