"""Tasks as a cluster has them, in this process: the sweep is opened anew, and only plain values reach it."""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from layerwise.studies.sweep import cluster


class Neighbours:
    opened: int = 0
    carried_out: list[Any]

    def __init__(self, address: str, count: int | None, *, accelerators: bool = False) -> None:
        self.count = count or 2
        Neighbours.carried_out = []

    def map(self, opens: str, shared: Mapping[str, Any], pieces: Sequence[Any]) -> Iterator[tuple[int, Any]]:
        assert opens == cluster.OPENS
        Neighbours.opened += 1
        function = cluster.open_piece_function(copied(shared))
        for number, piece in reversed(list(enumerate(pieces))):
            Neighbours.carried_out.append(piece)
            yield number, copied(function(copied(piece)))

    def close(self) -> None: ...


def copied(value: Any) -> Any:
    if isinstance(value, Mapping):
        assert all(isinstance(key, str) for key in value)
        return {key: copied(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(copied(each) for each in value) if type(value) in (list, tuple) else _refuse(value)
    if value is None or type(value) in (bool, int, float, str, bytes):
        return value if type(value) is not float else float(json.loads(json.dumps(value)))
    return _refuse(value)


def _refuse(value: Any) -> Any:
    raise AssertionError(f"{type(value).__name__} is no plain value: {value!r}")
