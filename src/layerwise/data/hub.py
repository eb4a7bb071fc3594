"""The hub, asked once: where it does not answer, the cache is read, and no request is tried again."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def without_retries(location: str | Path | None) -> Iterator[None]:
    """Within the context nothing is requested from a hub that does not answer.

    A folder, a file and no location at all need no hub, so it is not asked. huggingface_hub tries each request six
    times, which takes half a minute where there is no network.
    """
    from huggingface_hub import constants, get_session

    before = constants.HF_HUB_OFFLINE
    if not before and location is not None and not Path(location).exists():
        try:
            get_session().head(constants.ENDPOINT, timeout=constants.HF_HUB_ETAG_TIMEOUT)
        except Exception:  # the errors of its client, which is not ours to choose
            constants.HF_HUB_OFFLINE = True
    try:
        yield
    finally:
        constants.HF_HUB_OFFLINE = before
