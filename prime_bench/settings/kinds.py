"""The kinds of jobs beside training, and what configures each."""

from typing import Literal

from prime_bench.settings.cost import CostSettings
from prime_bench.settings.gradients import GradientsSettings
from prime_bench.settings.probe import ProbeSettings
from prime_bench.settings.routing import RoutingSettings
from prime_bench.settings.subgroups import SubgroupsSettings

Kind = Literal["train", "gradients", "routing", "subgroups", "cost"]

PROBES: dict[Kind, type[ProbeSettings]] = {
    "gradients": GradientsSettings,
    "routing": RoutingSettings,
    "subgroups": SubgroupsSettings,
    "cost": CostSettings,
}
