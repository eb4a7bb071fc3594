"""What is known of the models that a checkpoint is made of: their ids on the hub, their licences, what they are for.

A model's own card says it, in the metadata at its head. Nothing is guessed: what no card says is unknown.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from layerwise.bounded import Unreadable, decoded, read_bytes
from layerwise.data.model_location import EMBEDDED, location_of

CARD = "README.md"
SIZE = 2**20
"""Bytes of the longest card that is read."""

_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*(/[\w.-]+)?")


@dataclass(frozen=True, slots=True)
class BaseModelInfo:
    """One of the models: its name in the plan, where it lies, and what its card says.

    `hub_ids` are its id on the hub or, for a folder, those that its card names. `metadata` are the entries of its card
    that hold for a model made of it: `license` and its name and link, `language`, `pipeline_tag`.
    """

    name: str | None
    location: str
    hub_ids: tuple[str, ...]
    metadata: Mapping[str, Any]

    @property
    def license(self) -> str | None:
        """The licence that its card states."""
        stated = self.metadata.get("license_name") or self.metadata.get("license")
        return str(stated) if stated else None


def base_model_info(name: str | None, location: str) -> BaseModelInfo:
    """What the card of the model at `location` says; a card that cannot be read says nothing."""
    metadata = _metadata(location)
    if is_hub_id(location):
        hub_ids: tuple[str, ...] = (location,)
    else:
        stated = metadata.get("base_model") or ()
        hub_ids = tuple(str(each) for each in (stated if isinstance(stated, list | tuple) else (stated,)))
    wanted = ("license", "license_name", "license_link", "language", "pipeline_tag")
    return BaseModelInfo(name, location, hub_ids, {key: metadata[key] for key in wanted if metadata.get(key)})


def is_hub_id(location: str) -> bool:
    """Whether a location is an id on the hub, and no folder and none of the models of the package.

    >>> is_hub_id("org/name"), is_hub_id("./folder"), is_hub_id("demo")
    (True, False, False)
    """
    return location not in EMBEDDED and _HUB_ID.fullmatch(location) is not None and not Path(location).exists()


def _metadata(location: str) -> Mapping[str, Any]:
    from huggingface_hub import ModelCard

    path = _fetched(location) if is_hub_id(location) else Path(location_of(location)) / CARD
    if path is None:
        return {}
    try:
        return ModelCard(decoded(read_bytes(path, SIZE)), ignore_metadata_errors=True).data.to_dict()  # type: ignore[no-untyped-call]
    except (Unreadable, ValueError, TypeError):
        return {}


def _fetched(hub_id: str) -> Path | None:
    """The card of a model on the hub: from the cache, or else fetched; `None` where neither can be."""
    from huggingface_hub import hf_hub_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError, OfflineModeIsEnabled

    try:
        return Path(hf_hub_download(hub_id, CARD))
    except (HfHubHTTPError, HFValidationError, LocalEntryNotFoundError, OfflineModeIsEnabled, OSError):
        return None
