"""`python -m prime_bench.contract NAME`: a line a rule, exit code 1 where one is broken."""

import sys
from collections.abc import Callable
from dataclasses import dataclass

import torch

from prime_bench.base.errors import UserError
from prime_bench.contract import rules
from prime_bench.contract.candidate import Candidate, RuleBroken, find_candidate

_OF_ARMS: dict[str, Callable[[Candidate], None]] = {
    "class": rules.derived,
    "building": rules.building,
    "probabilities": rules.probabilities,
    "logarithms": rules.logarithms,
    "evaluation": rules.evaluation,
    "random streams": rules.random_streams,
    "neutral start": rules.start,
    "gradients": rules.gradients,
    "budget": rules.budget,
    "state dict": rules.state_dict,
}
_OF_BACKBONES: dict[str, Callable[[Candidate], None]] = {
    "class": rules.derived,
    "building": rules.building,
    "probabilities": rules.probabilities,
    "evaluation": rules.evaluation,
    "random streams": rules.only_dropout,
    "sites": rules.sites,
    "Top-NN": rules.top_nn,
    "gradients": rules.gradients,
    "budget": rules.budget,
    "state dict": rules.state_dict,
    "PRIME around it": rules.prime_fits,
}


@dataclass(frozen=True, kw_only=True)
class RuleResult:
    """What came of one rule."""

    rule: str
    fault: str | None
    """Why it is broken; None: it is kept."""


def check(name: str) -> list[RuleResult]:
    """Hold the arm or the backbone `name` to every rule. Raises UsageError for an unknown name."""
    candidate = find_candidate(name)
    findings = []
    for rule, keep in (_OF_BACKBONES if candidate.is_backbone else _OF_ARMS).items():
        try:
            keep(candidate)
        except RuleBroken as broken_rule:
            fault: str | None = str(broken_rule)
        except Exception as error:  # noqa: BLE001  # Somebody's model may raise anything.
            fault = f"{type(error).__name__}: {error}"
        else:
            fault = None
        findings.append(RuleResult(rule=rule, fault=fault))
    return findings


def main(name: str) -> int:
    """Print a line a rule; 0 where all are kept, 1 otherwise, as a UserError's code for one."""
    torch.set_num_threads(1)
    try:
        findings = check(name)
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    for finding in findings:
        print(
            f"pass  {finding.rule}"
            if not finding.fault
            else f"FAIL  {finding.rule}: {finding.fault}"
        )
    broken = sum(finding.fault is not None for finding in findings)
    print(f"{name}: {len(findings) - broken} of {len(findings)} rules kept")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
