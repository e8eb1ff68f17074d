"""Settings that hold for every test."""

import sys

import pytest


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
