"""The way to Ray: a cluster whose processes were not ready in time is started once more."""

from types import SimpleNamespace

import pytest

from layerwise.errors import SwarmError
from layerwise.swarm.cluster import connection
from layerwise.swarm.cluster.connection import Connection

LATE = "The current node timed out during startup. This could happen because the GCS has become overloaded."


@pytest.mark.parametrize(
    ("failures", "starts", "is_refused"), [([LATE], 2, False), ([LATE, LATE], 2, True), (["no memory"], 1, True)]
)
def test_a_cluster_that_is_late_is_started_twice(
    failures: list[str], starts: int, is_refused: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: list[dict[str, object]] = []

    def init(**options: object) -> None:
        begun.append(options)
        if len(begun) <= len(failures):
            raise RuntimeError(failures[len(begun) - 1])

    fake = SimpleNamespace(init=init, shutdown=lambda: None, is_initialized=lambda: False)
    monkeypatch.setattr(connection, "ray_module", lambda: fake)
    monkeypatch.setattr(connection, "is_connected", lambda: False)
    for name in ("_hush", "_lighten", "_close_to_others"):
        monkeypatch.setattr(Connection, name, lambda self: None)
    if is_refused:
        with pytest.raises(SwarmError, match="Ray could not be started on this machine"):
            Connection("local", 2)
    else:
        Connection("local", 2).close()
    assert len(begun) == starts
