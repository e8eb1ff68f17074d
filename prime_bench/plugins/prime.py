"""PRIME: routed low-rank experts correct the dense logit; their mean over bags is mixed with the
dense probability.

    h        = LN(z)                                          (9)    LayerNorm without affine
    delta_ge = u_ge . SiLU(V_ge h) + b_ge                     (10)
    r_ge     = softmax over e of (a_ge . h + c_ge) / T        (12)
    p_s      = mean over g of sum over e of r_ge sigmoid(logit(p_d) + delta_ge)    (13-15)
    p        = alpha p_d + (1 - alpha) p_s                    (17)

logit(p_d) is the backbone's logit l_d or, with `anchor = "probability"`, l_d clamped (fidelity 40).
p_s - p_d is computed as a sum of sigmoid(logit(p_d) + delta) - sigmoid(l_d) over experts, so that p
is bitwise p_d at the start, where u = b = 0, unless l_d is clamped (Eq. 18, fidelity 14). The load
biases c are updated without a gradient (Eq. 20-22, fidelity 16). With `output = "logit"`, p =
sigmoid(logit(p_d) + mean over g of sum over e of r delta) (fidelity 32). Controls that change r are
keys of the configuration: `routing` (fidelity 17, 18), `detach_router` (34), `auxiliary_weight`
(21).

Shapes: B rows, d width of z, d' width of the router's input, G bags, M experts of a bag, E = G M
experts (bag by bag), q rank. Inside, rows are the last axis, so that sums over q and M add
contiguous vectors, which takes a third of the time on a CPU.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from prime_bench.base.streams import derive
from prime_bench.plugins.interface import Plugin, StreamValue
from prime_bench.settings.plugins import AnchoredSettings, PrimeConfig


@dataclass(frozen=True)
class _KeptWeight:
    """The factor of the product in `Prime._read`, which an evaluation keeps."""

    state: list[tuple[int, int]]
    """Address and version of each weight that it was made from."""
    sources: list[Tensor]
    weight: Tensor


class Prime(Plugin):
    """PRIME with input width d = `input_width`.

    All initial values are drawn from `generator` (fidelity 15). The router reads z as the experts
    do, unless `forward` is given another input, of width `router_width`. In train mode, each
    forward pass also updates the buffers `load_average` and `load_bias`, (G, M).
    """

    uncompiled = ("_next_permutation", "_evaluation_order")
    load_bias: Tensor
    load_average: Tensor
    routed: Tensor
    router: nn.Parameter | None
    """(E, d'); None with uniform routing."""

    def __init__(
        self,
        input_width: int,
        config: PrimeConfig,
        *,
        router_width: int | None = None,
        generator: torch.Generator,
    ) -> None:
        super().__init__()
        self.config = config
        experts, router_width = config.experts, router_width or input_width
        self.expert_in = nn.Parameter(torch.empty(experts, config.rank, input_width))  # V
        self.expert_out = nn.Parameter(torch.zeros(experts, config.rank))  # u
        self.expert_bias = nn.Parameter(torch.zeros(experts))  # b
        uniform = config.routing == "uniform"
        self.router = None if uniform else nn.Parameter(torch.empty(experts, router_width))  # a
        load = torch.zeros(config.bags, config.experts_per_bag)
        self.register_buffer("load_bias", load)  # c
        self.register_buffer("load_average", torch.full_like(load, 1 / config.experts_per_bag))
        # Xavier normal with the fans of one expert's V and of one bag's router (fidelity 15).
        for weight, fan_out in (
            (self.expert_in, config.rank),
            (self.router, config.experts_per_bag),
        ):
            if weight is not None:
                std = math.sqrt(2 / (weight.shape[-1] + fan_out))
                nn.init.normal_(weight, std=std, generator=generator)
        self._seed = self._batches = 0
        # Permuted routing: the order of a batch's rows by its number of rows, drawn on the CPU.
        self._training_orders: dict[int, Tensor] = {}
        self._evaluation_orders: dict[int, Tensor] = {}
        self._drawn: Tensor | None = None
        self._auxiliary: Tensor | None = None
        self._batch_routing: Tensor | None = None
        self._kept: _KeptWeight | None = None
        # Sums of entropy and loads of each bag over training batches; not part of the state dict.
        shape = (config.bags, 1 + config.experts_per_bag)
        self.register_buffer("routed", torch.zeros(shape), persistent=False)

    def train(self, mode: bool = True) -> Self:
        """Set the mode. What an evaluation has kept is dropped, since a CUDA graph that trains
        leaves the version of a weight as it was.
        """
        self._kept = None
        return super().train(mode)

    def use_seed(self, seed: int) -> None:
        """Set the seed of the permutations of permuted routing.

        Training batch i, from 1, is permuted by the stream "permute/<i>". All batches of an
        evaluation use "permute/0", so that a loaded checkpoint gives the scores of its run.
        """
        self._seed = seed
        self._evaluation_orders.clear()

    def prepare_batch(self, n_rows: int) -> None:
        """Draw the permutation of the next training batch, in which `routing = "permuted"` gives
        its rows their routing.
        """
        if self.config.routing != "permuted":
            return
        drawn, device = self._next_permutation(n_rows), self.load_bias.device
        kept = self._training_orders.get(n_rows)
        if kept is None or kept.device != device:
            kept = self._training_orders[n_rows] = torch.empty_like(drawn, device=device)
        # The host does not wait for the copy of pinned memory.
        kept.copy_(drawn.pin_memory() if device.type == "cuda" else drawn, non_blocking=True)
        self._drawn = kept

    def stream_state(self) -> dict[str, StreamValue]:
        """The number of training batches so far, which determines the next permutation."""
        return {"batches": self._batches}

    def load_stream_state(self, state: Mapping[str, StreamValue]) -> None:
        """Continue with the permutation after those that `state` counts."""
        batches = state["batches"]
        assert isinstance(batches, int), batches
        self._batches = batches

    def routing(self, z: Tensor, router_input: Tensor | None = None) -> Tensor:
        """The weights r of the experts (B, G, M)."""
        _, scores = self._read(z, router_input)
        return torch.softmax(scores, dim=1).movedim(2, 0)  # (G, M, B) -> (B, G, M)

    def take_routing(self) -> tuple[Tensor, Tensor] | None:
        """Mean entropy (G,) and load (G, M) of the training batches since the last call."""
        entropy, load = self.routed[:, 0].clone(), self.routed[:, 1:].clone()
        self.routed.zero_()
        if not load.any():
            return None
        n_batches = load.sum(dim=1)  # in each bag, the loads of a batch sum to 1
        return entropy / n_batches, load / n_batches.unsqueeze(1)

    def auxiliary_loss(self) -> Tensor | None:
        """The mean over bags of lambda M sum over e of P_ge^2 (fidelity 21).

        P is the load of the last training batch. None if lambda is 0, and on a second call.
        """
        loss, self._auxiliary = self._auxiliary, None
        return loss

    def forward(self, z: Tensor, dense_logit: Tensor, router_input: Tensor | None = None) -> Tensor:
        """z (B, d), l_d (B,), router input (B, d') -> probability (B,)."""
        delta, scores = self._read(z, router_input)
        routing = torch.softmax(scores, dim=1)  # (G, M, B)
        self._record_load(routing)
        if self.config.output == "logit":
            corrected = anchor_logit(dense_logit, self.config)
            return torch.sigmoid(corrected + self._mean(routing, delta))
        # Both sigmoids must have the same contiguous layout (E, B). A kernel rounds its vectorised
        # body and its scalar tail differently, and delta = 0 must give a difference of exactly 0.
        base = dense_logit.expand_as(delta).contiguous()  # (B,) -> (E, B)
        shifted = torch.sigmoid(anchor_logit(base, self.config) + delta) - torch.sigmoid(base)
        # Not one factor (1 - alpha) / G: next to p = 0 the division can reach subnormal numbers.
        correction = self._mean(routing, shifted)
        share = 1 - self.config.dense_weight
        return anchored(torch.sigmoid(dense_logit), correction, share)

    def log_probabilities(
        self, z: Tensor, dense_logit: Tensor, router_input: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """As `forward`, but returns (log p, log(1 - p)), (B,) each.

        They are computed by logsumexp over the anchor and all experts (fidelity 13).
        """
        delta, scores = self._read(z, router_input)
        log_routing = torch.log_softmax(scores, dim=1)  # (G, M, B)
        routing = log_routing.exp()
        self._record_load(routing)
        corrected = anchor_logit(dense_logit, self.config)
        if self.config.output == "logit":
            logit = corrected + self._mean(routing, delta)
            return F.logsigmoid(logit), F.logsigmoid(-logit)
        alpha = self.config.dense_weight
        logits = torch.cat([dense_logit.unsqueeze(0), corrected + delta])
        anchor = torch.full_like(dense_logit, log_weight(alpha)).unsqueeze(0)
        experts = log_routing.flatten(0, 1) + log_weight((1 - alpha) / self.config.bags)
        log_weights = torch.cat([anchor, experts])  # (1 + E, B)
        log_p = torch.logsumexp(log_weights + F.logsigmoid(logits), dim=0)
        log_not_p = torch.logsumexp(log_weights + F.logsigmoid(-logits), dim=0)
        return log_p, log_not_p

    def _mean(self, routing: Tensor, values: Tensor) -> Tensor:
        """Weighted sum of `values` (E, B) in each bag, averaged over bags -> (B,)."""
        return (routing.flatten(0, 1) * values).sum(dim=0) / self.config.bags

    def _read(self, z: Tensor, router_input: Tensor | None) -> tuple[Tensor, Tensor]:
        """The residual logits delta (E, B), and the router scores divided by T (G, M, B)."""
        experts, rank, _ = self.expert_in.shape
        read = self._normalise(z).t()  # (d, B)
        if self.router is None:
            hidden = self._weight(None) @ read
            scores = torch.zeros_like(hidden[:experts])
        elif router_input is None and not self.config.detach_router:
            both = self._weight(self.router) @ read  # (q E + E, B)
            hidden, scores = torch.split(both, [rank * experts, experts])
        else:
            hidden = self._weight(None) @ read
            routed = z if router_input is None else router_input
            routed = routed.detach() if self.config.detach_router else routed
            scores = self.router @ self._normalise(routed).t()
        response = F.silu(hidden).view(rank, experts, -1)  # (q E, B) -> (q, E, B)
        delta = (response * self.expert_out.t().unsqueeze(2)).sum(dim=0)  # (E, B)
        delta = delta + self.expert_bias.unsqueeze(1)
        biased = scores.view(*self.load_bias.shape, -1)  # (E, B) -> (G, M, B)
        if self.router is not None:
            biased = biased + self.load_bias.unsqueeze(2)
        if self.config.routing == "permuted":
            biased = biased.index_select(2, self._order(len(z)))
        # A division by 1 changes no bit, and is an operation of each step and of its gradient.
        return delta, biased if self.config.temperature == 1 else biased / self.config.temperature

    def _weight(self, router: Tensor | None) -> Tensor:
        """V (q E, d) and below it, for a router that reads the same input, the router (E, d).

        An evaluation without gradients makes it once for all of its batches, and again when a
        weight has changed. A compiler or a CUDA graph would take it for a constant.
        """
        parts = [self.expert_in] if router is None else [self.expert_in, router]
        if (
            self.training
            or torch.is_grad_enabled()
            or torch.compiler.is_compiling()
            or any(part.is_inference() for part in parts)
            or (parts[0].is_cuda and torch.cuda.is_current_stream_capturing())
        ):
            return self._stacked(router)
        state = [(part.data_ptr(), part._version) for part in parts]
        if self._kept is None or self._kept.state != state:
            # With the weights, so that no other tensor can have their addresses.
            sources = [part.detach() for part in parts]
            self._kept = _KeptWeight(state, sources, self._stacked(router))
        return self._kept.weight

    def _stacked(self, router: Tensor | None) -> Tensor:
        """V (q E, d), and below it the router (E, d) where one is given; made at each call."""
        experts = self.expert_in.transpose(0, 1)  # (E, q, d) -> (q, E, d)
        if router is None:
            return experts.reshape(-1, experts.shape[2])
        return torch.cat([experts, router.unsqueeze(0)]).view(-1, experts.shape[2])

    def _order(self, n_rows: int) -> Tensor:
        """The permutation of the rows of this batch, on the device."""
        if not self.training:
            return self._evaluation_order(n_rows)
        drawn, self._drawn = self._drawn, None
        if drawn is None:  # outside of a training step, which calls `prepare_batch`
            return self._next_permutation(n_rows).to(self.load_bias.device)
        return drawn

    def _next_permutation(self, n_rows: int) -> Tensor:
        """The permutation of the next training batch, on the CPU."""
        self._batches += 1
        return self._permutation(self._batches, n_rows)

    def _evaluation_order(self, n_rows: int) -> Tensor:
        kept, device = self._evaluation_orders.get(n_rows), self.load_bias.device
        if kept is None or kept.device != device:
            # Not an inference tensor: a later forward pass with gradients must be able to read it.
            with torch.inference_mode(False):
                kept = self._permutation(0, n_rows).to(device)
            self._evaluation_orders[n_rows] = kept
        return kept

    def _permutation(self, number: int, n_rows: int) -> Tensor:
        """The permutation of the stream "permute/<number>", drawn on the CPU for every device."""
        generator = torch.Generator().manual_seed(derive(self._seed, f"permute/{number}"))
        return torch.randperm(n_rows, generator=generator)

    def _normalise(self, x: Tensor) -> Tensor:
        return F.layer_norm(x, x.shape[-1:]) if self.config.layer_norm else x

    def _record_load(self, routing: Tensor) -> None:
        """Keep the load of a training batch for the auxiliary loss and for `update_buffers`."""
        if not self.training or self.router is None:
            return
        config, load = self.config, routing.mean(dim=2)  # (G, M, B) -> (G, M)
        if config.auxiliary_weight > 0:
            scale = config.auxiliary_weight * config.experts_per_bag / config.bags
            self._auxiliary = scale * load.square().sum()
        with torch.no_grad():
            entropy = torch.special.entr(routing).sum(dim=1).mean(dim=1)  # (G, M, B) -> (G,)
            self._batch_routing = torch.cat([entropy.unsqueeze(1), load], dim=1)  # (G, 1 + M)
        if not torch.compiler.is_compiling():
            self.update_buffers()

    @torch.no_grad()
    def update_buffers(self) -> None:
        """Update the average load by the load of the last batch, and then the load bias by the
        average (Eq. 20-22).
        """
        routing, self._batch_routing = self._batch_routing, None
        if routing is None:
            return
        self.routed.add_(routing)
        load = routing[:, 1:]
        config = self.config
        self.load_average.mul_(config.load_ema).add_(load, alpha=1 - config.load_ema)
        self.load_bias.add_(
            1 / config.experts_per_bag - self.load_average, alpha=config.load_bias_step
        )
        self.load_bias.sub_(self.load_bias.mean(dim=1, keepdim=True))
        self.load_bias.clamp_(-config.load_bias_bound, config.load_bias_bound)


def anchor_logit(dense_logit: Tensor, settings: AnchoredSettings) -> Tensor:
    """The logit(p_d) of Eq. 13 for l_d, in any shape (fidelity 40).

    The logit of p_d clamped to [eps, 1 - eps] is l_d clamped to the logits of these bounds, since
    the sigmoid is monotone. It is computed so because float32 has few probabilities next to 1.
    """
    if settings.anchor == "logit":
        return dense_logit
    bound = math.log1p(-settings.anchor_epsilon) - math.log(settings.anchor_epsilon)
    return dense_logit.clamp(-bound, bound)


def anchored(dense_probability: Tensor, correction: Tensor, share: float) -> Tensor:
    """The anchor of Eq. 17: alpha p_d + (1 - alpha) p_s, as p_d + (1 - alpha) (p_s - p_d).

    `share` times `correction`, (B,) as p_d, is (1 - alpha) (p_s - p_d). Where it is exactly 0, the
    result is bitwise p_d. Rounding can leave [0, 1] by a unit in the last place, which the cross
    entropy would refuse, so the result is clamped.
    """
    return torch.add(dense_probability, correction, alpha=share).clamp(0, 1)


def log_weight(weight: float) -> float:
    """log(weight), and minus infinity for a component of the mixture with weight 0."""
    return math.log(weight) if weight > 0 else -math.inf
