"""What several folders of tests share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import settings

from tests.integration.server import Server, serving

# an example's first one may load what all others use, and the machine may be busy
settings.register_profile("octavo", deadline=None)
settings.load_profile("octavo")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--long", action="store_true", help="many more random scenarios of the property tests"
    )


@pytest.fixture(scope="session")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """One real server with the default model and default flags, for all tests that leave it as it
    was: started when the first one asks for it."""
    with serving(tmp_path_factory.mktemp("live") / "log") as server:
        yield server
