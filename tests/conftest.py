"""Settings that hold for every test."""

import os
import sys

import pytest
from hypothesis import HealthCheck, settings

# No test fails because a machine is slow; in CI the examples are the same every time.
settings.register_profile(
    "suite",
    deadline=None,
    derandomize=bool(os.environ.get("CI")),
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("suite")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--slow", action="store_true", help="run the tests marked slow, too")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("--slow"):
        return
    skip = pytest.mark.skip(reason="slow; run with --slow")
    for item in items:
        if "slow" in item.keywords:
            item.add_marker(skip)


@pytest.fixture(autouse=True)
def _seed_torch() -> None:
    """What a test draws from torch's global generator does not depend on the tests before it."""
    # Looked up, not imported: layers without torch are tested without it.
    if "torch" in sys.modules:
        sys.modules["torch"].manual_seed(0)
