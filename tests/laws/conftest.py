"""Every file of the package, parsed once per process."""

import pytest

from package_sources import trees


@pytest.fixture(scope="session", autouse=True)
def _parsed(request: pytest.FixtureRequest) -> None:
    if any(item.path.stem in ("test_names", "test_architecture") for item in request.session.items):
        trees()
