"""The errors that layerwise raises on purpose; catch `LayerwiseError` for all of them."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from difflib import get_close_matches


class LayerwiseError(Exception):
    """Base class of all errors that layerwise raises on purpose."""


class PlanError(LayerwiseError):
    """A plan that is invalid or cannot run.

    If `text` and `position` are given, the message ends with the text and a caret under the character at `position`.
    """

    def __init__(self, message: str, *, text: str | None = None, position: int | None = None) -> None:
        self.reason = message
        self.text = text
        self.position = position
        if text is not None and position is not None:
            start = max(0, position - 60)
            excerpt = text[start : position + 40].replace("\n", " ").replace("\t", " ")
            message = f"{message}\n  {excerpt}\n  {' ' * (position - start)}^"
        super().__init__(message)


class ModelError(LayerwiseError):
    """A model that cannot be loaded or analyzed."""


class CheckpointError(ModelError):
    """Model files that are missing, damaged or pickled, or that cannot be written."""


class UnsupportedModelError(ModelError):
    """A model whose layers cannot be rearranged; the message gives the reason."""


class DataError(LayerwiseError):
    """Data that is missing, invalid or insufficient."""


class RunError(LayerwiseError):
    """A run directory that is locked, read-only, full, or holds another run."""


class MeasureError(LayerwiseError):
    """A measurement without a valid result: non-finite values, unknown tasks, too little data."""


class SwarmError(LayerwiseError):
    """A swarm that cannot start, or cannot answer a request."""


class BelowQuorumError(SwarmError):
    """A request that is refused because too few layers are live to meet the quorum."""


class OverloadedError(SwarmError):
    """Too many concurrent requests; retry after `retry_after` seconds."""

    def __init__(self, message: str, retry_after: float = 1.0) -> None:
        self.retry_after = retry_after
        super().__init__(message)


class OptionError(LayerwiseError):
    """An invalid option or value."""


class TrainError(LayerwiseError):
    """A training run that cannot start or has to stop, for example because the loss is not finite."""


_MAX_LISTED = 60


def near_matches(word: str, known: Iterable[str], unsuggested: Collection[str] = ()) -> str:
    """Return the end of an "unknown name" message: close matches (never any in `unsuggested`), then all names.

    >>> near_matches("painter", ["painters", "leave_one_out"])
    'did you mean painters? Known: leave_one_out, painters'
    >>> near_matches("x", ["painters", "leave_one_out"])
    'known: leave_one_out, painters'
    """
    names = sorted(known)
    close = get_close_matches(word, [name for name in names if name not in unsuggested], n=3, cutoff=0.6)
    more = f", ... ({len(names):,} in total)" if len(names) > _MAX_LISTED else ""
    listing = f"{', '.join(names[:_MAX_LISTED])}{more}"
    return f"did you mean {' or '.join(close)}? Known: {listing}" if close else f"known: {listing}"
