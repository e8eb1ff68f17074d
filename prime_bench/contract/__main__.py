"""Check a backbone or an arm: `python -m prime_bench.contract NAME`.

The last line that it prints is a JSON object with the result of each rule.
"""

import json
import sys
from collections.abc import Callable

import torch

from prime_bench.base.errors import UserError
from prime_bench.contract import rules
from prime_bench.contract.candidate import Candidate, RuleBroken, find_candidate
from prime_bench.contract.result import RuleResult

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


def main(name: str) -> None:
    """Check `name`, and print the results, or the UserError, as one line of JSON."""
    torch.set_num_threads(1)
    try:
        answer: dict[str, object] = {"results": [vars(result) for result in check(name)]}
    except UserError as error:
        answer = {"error": {"message": error.message, "hint": error.hint}}
    # On a line of its own, after whatever the checked code prints.
    print(f"\n{json.dumps(answer)}")


if __name__ == "__main__":
    main(sys.argv[1])
