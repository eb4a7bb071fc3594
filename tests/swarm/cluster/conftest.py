"""One Ray cluster per test process, since it takes six seconds to start."""

import warnings
from collections.abc import Iterator

import pytest


@pytest.fixture(scope="session")
def ray() -> Iterator[None]:
    from layerwise.swarm.cluster.connection import Connection

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        connection = Connection("local", 4)
    yield
    connection.close()


@pytest.fixture
def trials(ray: None) -> None:
    from ray import cloudpickle

    from swarm.cluster import trial

    cloudpickle.register_pickle_by_value(trial)
