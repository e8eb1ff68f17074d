"""Every backbone and arm of ours keeps the rules that `prime-bench check` holds yours to."""

import pytest

from prime_bench.catalog import BACKBONES, PLUGINS
from prime_bench.contract.__main__ import check


@pytest.mark.parametrize("name", [*BACKBONES, *PLUGINS])
def test_ours_keeps_every_rule(name):
    faults = {finding.rule: finding.fault for finding in check(name) if finding.fault}

    assert faults == {}
