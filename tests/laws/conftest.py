"""Every file of the package, parsed once per process."""

import pytest

from package_sources import trees


@pytest.fixture(scope="module", autouse=True)
def _parsed(request: pytest.FixtureRequest) -> None:
    if request.path.stem in ("test_names", "test_architecture"):
        trees()
