"""PRIME: routed low-rank experts that correct the Dense logit, averaged over bags, mixed with the
Dense probability.

    h        = LN(z)                                          (9)    LayerNorm without affine
    delta_ge = u_ge . SiLU(V_ge h) + b_ge                     (10)
    r_ge     = softmax over e of (a_ge . h + c_ge) / T        (12)
    p_s      = mean over g of sum over e of r_ge sigmoid(l_d + delta_ge)    (13-15)
    p        = alpha p_d + (1 - alpha) p_s                    (17)

With p_s - p_d taken expert by expert, as sigmoid(l_d + delta) - sigmoid(l_d), the start (u = b = 0)
is p_d bit by bit (Eq. 18, fidelity 14). Load biases c follow the load without a gradient (Eq.
20-22, fidelity 16). With `output = "logit"` p = sigmoid(l_d + mean over g of sum over e of r delta)
(fidelity 32). Controls that change r are keys: `routing` (fidelity 17, 18), `detach_router` (34),
`auxiliary_weight` (21).

Shapes: B rows, d width of z, d' width of the router's input, G bags, M experts a bag, E = G M
experts (bag by bag), q rank. Inside, rows are the last axis: sums over q and M then add whole rows
of numbers, which on a CPU takes a third of the time of sums within a row.
"""

import math
from collections.abc import Mapping
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from prime_bench.base.streams import derive
from prime_bench.plugins.anchor import anchored, log_weight
from prime_bench.plugins.interface import Plugin
from prime_bench.settings.plugins import PrimeConfig


class Prime(Plugin):
    """PRIME at width d = `input_width`; its initial values come from `generator` alone (fidelity
    15).

    The router reads what the experts read, z, unless `forward` is given another input, of width
    `router_width`. In train mode every forward pass also moves the buffers `load_average` and
    `load_bias`, (G, M).
    """

    uncompiled = ("_permutation",)
    load_bias: Tensor
    load_average: Tensor
    routed: Tensor
    router: nn.Parameter | None
    """None with uniform routing."""

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
        # Xavier normal, each expert's V and each bag's router on its own (fidelity 15).
        for weight, fan_out in (
            (self.expert_in, config.rank),
            (self.router, config.experts_per_bag),
        ):
            if weight is not None:
                std = math.sqrt(2 / (weight.shape[-1] + fan_out))
                nn.init.normal_(weight, std=std, generator=generator)
        self._seed = self._batches = 0
        self._auxiliary: Tensor | None = None
        self._met: Tensor | None = None
        # Sums over training batches: of a bag's entropy and loads. No part of the model.
        shape = (config.bags, 1 + config.experts_per_bag)
        self.register_buffer("routed", torch.zeros(shape), persistent=False)

    def use_seed(self, seed: int) -> None:
        """Permuted routing takes the permutation of training batch i from the stream
        "permute/<i>", i from 1, and all those of an evaluation from "permute/0", so that a
        checkpoint is scored as its run was.
        """
        self._seed = seed

    def stream_state(self) -> dict[str, Any]:
        """As said in `Plugin`: which permutation comes next."""
        return {"batches": self._batches}

    def load_stream_state(self, state: Mapping[str, Any]) -> None:
        """As said in `Plugin`."""
        self._batches = state["batches"]

    def routing(self, z: Tensor, router_input: Tensor | None = None) -> Tensor:
        """As said in `Plugin`."""
        _, scores = self._read(z, router_input)
        return torch.softmax(scores, dim=1).movedim(2, 0)  # (G, M, B) -> (B, G, M)

    def take_routing(self) -> tuple[Tensor, Tensor] | None:
        """As said in `Plugin`."""
        entropy, load = self.routed[:, 0].clone(), self.routed[:, 1:].clone()
        self.routed.zero_()
        if not load.any():
            return None
        n_batches = load.sum(dim=1)  # the loads of a batch sum to 1 in each bag
        return entropy / n_batches, load / n_batches.unsqueeze(1)

    def auxiliary_loss(self) -> Tensor | None:
        """lambda M sum over e of P_ge^2, mean over bags, with P the load of the last training
        batch (fidelity 21); None where lambda is 0. It is given out once.
        """
        loss, self._auxiliary = self._auxiliary, None
        return loss

    def forward(self, z: Tensor, dense_logit: Tensor, router_input: Tensor | None = None) -> Tensor:
        """z (B, d), l_d (B,), router input (B, d') -> probability (B,)."""
        delta, scores = self._read(z, router_input)
        routing = torch.softmax(scores, dim=1)  # (G, M, B)
        self._follow(routing)
        if self.config.output == "logit":
            return torch.sigmoid(dense_logit + self._mean(routing, delta))
        # Both sigmoids run over contiguous (E, B): a kernel rounds its vector body and its scalar
        # tail differently, so only equal layouts make the difference exactly 0 where delta is 0.
        base = dense_logit.expand_as(delta).contiguous()  # (B,) -> (E, B)
        shifted = torch.sigmoid(base + delta) - torch.sigmoid(base)
        correction = self._mean(routing, shifted)
        return anchored(torch.sigmoid(dense_logit), correction, self.config.dense_weight)

    def log_probabilities(
        self, z: Tensor, dense_logit: Tensor, router_input: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """The same -> (log p, log(1 - p)), (B,) each, by logsumexp over the anchor and all experts
        (fidelity 13).
        """
        delta, scores = self._read(z, router_input)
        log_routing = torch.log_softmax(scores, dim=1)  # (G, M, B)
        routing = log_routing.exp()
        self._follow(routing)
        if self.config.output == "logit":
            logit = dense_logit + self._mean(routing, delta)
            return F.logsigmoid(logit), F.logsigmoid(-logit)
        alpha = self.config.dense_weight
        logits = torch.cat([dense_logit.unsqueeze(0), dense_logit + delta])
        anchor = torch.full_like(dense_logit, log_weight(alpha)).unsqueeze(0)
        experts = log_routing.flatten(0, 1) + log_weight((1 - alpha) / self.config.bags)
        log_weights = torch.cat([anchor, experts])  # (1 + E, B)
        log_p = torch.logsumexp(log_weights + F.logsigmoid(logits), dim=0)
        log_not_p = torch.logsumexp(log_weights + F.logsigmoid(-logits), dim=0)
        return log_p, log_not_p

    def _mean(self, routing: Tensor, values: Tensor) -> Tensor:
        """Mean over bags of the routed sum of `values` (E, B) -> (B,)."""
        return (routing.flatten(0, 1) * values).sum(dim=0) / self.config.bags

    def _read(self, z: Tensor, router_input: Tensor | None) -> tuple[Tensor, Tensor]:
        """Experts' residual logits (E, B) and the routers' scores over T (G, M, B)."""
        experts, rank, width = self.expert_in.shape
        weight = self.expert_in.transpose(0, 1).reshape(rank * experts, width)  # (q E, d)
        read = self._normalise(z).t()  # (d, B)
        if self.router is None:
            hidden = weight @ read
            scores = torch.zeros_like(hidden[:experts])
        elif router_input is None and not self.config.detach_router:
            both = torch.cat([weight, self.router]) @ read  # (q E + E, B)
            hidden, scores = torch.split(both, [rank * experts, experts])
        else:
            hidden = weight @ read
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
            order = self._permutation(len(z))
            biased = biased.index_select(2, order.to(biased.device, non_blocking=True))
        return delta, biased / self.config.temperature

    def _permutation(self, n_rows: int) -> Tensor:
        """This batch's permutation of rows; drawn on the CPU, whatever the device."""
        self._batches += self.training
        name = f"permute/{self._batches if self.training else 0}"
        generator = torch.Generator().manual_seed(derive(self._seed, name))
        return torch.randperm(n_rows, generator=generator)

    def _normalise(self, x: Tensor) -> Tensor:
        return F.layer_norm(x, x.shape[-1:]) if self.config.layer_norm else x

    def _follow(self, routing: Tensor) -> None:
        """Take a training batch's load (G, M) to heart: by the loss on it, and by the bias."""
        if not self.training or self.router is None:
            return
        config, load = self.config, routing.mean(dim=2)  # (G, M, B) -> (G, M)
        if config.auxiliary_weight > 0:
            scale = config.auxiliary_weight * config.experts_per_bag / config.bags
            self._auxiliary = scale * load.square().sum()
        with torch.no_grad():
            entropy = torch.special.entr(routing).sum(dim=1).mean(dim=1)  # (G, M, B) -> (G,)
            self._met = torch.cat([entropy.unsqueeze(1), load], dim=1)  # (G, 1 + M)
        if not torch.compiler.is_compiling():
            self.follow()

    @torch.no_grad()
    def follow(self) -> None:
        """As said in `Plugin`: move the average towards the batch's load, then the bias against the
        average (Eq. 20-22).
        """
        met, self._met = self._met, None
        if met is None:
            return
        self.routed.add_(met)
        load = met[:, 1:]
        config = self.config
        self.load_average.mul_(config.load_ema).add_(load, alpha=1 - config.load_ema)
        self.load_bias.add_(
            1 / config.experts_per_bag - self.load_average, alpha=config.load_bias_step
        )
        self.load_bias.sub_(self.load_bias.mean(dim=1, keepdim=True))
        self.load_bias.clamp_(-config.load_bias_bound, config.load_bias_bound)
