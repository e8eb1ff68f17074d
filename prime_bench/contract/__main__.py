"""Check a backbone or an arm: `python -m prime_bench.contract NAME`.

Prints a line for each rule. The exit code is 1 if a rule is broken.
"""

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
    """The result of checking one rule."""

    rule: str
    fault: str | None
    """How the rule is broken; None if it is kept."""


def check(name: str) -> list[RuleResult]:
    """Check every rule for the arm or backbone `name`. Raises UsageError for an unknown name."""
    candidate = find_candidate(name)
    results = []
    for rule, keep in (_OF_BACKBONES if candidate.is_backbone else _OF_ARMS).items():
        try:
            keep(candidate)
        except RuleBroken as broken_rule:
            fault: str | None = str(broken_rule)
        except Exception as error:  # noqa: BLE001  # a user's model may raise anything
            fault = f"{type(error).__name__}: {error}"
        else:
            fault = None
        results.append(RuleResult(rule=rule, fault=fault))
    return results


def main(name: str) -> int:
    """Print a line for each rule; returns the exit code: 0 if all are kept, 1 if not, or that of a
    UserError.
    """
    torch.set_num_threads(1)
    try:
        results = check(name)
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    for result in results:
        print(
            f"pass  {result.rule}" if not result.fault else f"FAIL  {result.rule}: {result.fault}"
        )
    broken = sum(result.fault is not None for result in results)
    print(f"{name}: {len(results) - broken} of {len(results)} rules kept")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
