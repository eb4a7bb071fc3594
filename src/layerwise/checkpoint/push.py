"""A written checkpoint on the Hugging Face hub: its folder becomes a repository.

What would be refused at the end of a long run is refused before it: `check_push` asks for the name, the token and the
network, and for a repository that is not there yet.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from layerwise.errors import CheckpointError

if TYPE_CHECKING:
    from huggingface_hub import HfApi

_REPOSITORY = re.compile(r"[A-Za-z0-9][\w.-]{0,95}/[A-Za-z0-9][\w.-]{0,95}")
_ON = ("1", "true", "yes", "on")


def check_repository(name: str) -> None:
    """Raise `CheckpointError` unless `name` is that of a repository: `ORG/NAME`. Nothing is asked of the network."""
    if _REPOSITORY.fullmatch(name) is None or ".." in name or "--" in name or name.endswith((".git", ".", "-")):
        raise CheckpointError(
            f"a repository of the hub is ORG/NAME, of letters, digits, ., _ and -, as in org/shallow; not {name[:60]!r}"
        )


def check_push(name: str, *, overwrite: bool = False, api: HfApi | None = None) -> None:
    """Raise `CheckpointError` unless a folder can be pushed to `name` now, with what to do instead.

    A repository that holds a model already is refused without `overwrite`.
    """
    check_repository(name)
    if any(os.environ.get(variable, "").lower() in _ON for variable in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE")):
        raise CheckpointError(
            f"nothing can be pushed to {name} while HF_HUB_OFFLINE is set: unset it, or leave --push out and push the "
            "folder later"
        )
    api = _api() if api is None else api
    with _explained(name):
        api.whoami()
        if not overwrite and api.repo_exists(name) and api.file_exists(name, "config.json"):
            raise CheckpointError(f"{name} holds a model already; choose another name, or replace it with --overwrite")


def push(folder: Path, name: str, *, private: bool = False, overwrite: bool = False, api: HfApi | None = None) -> str:
    """Make the repository `name`, if need be, and upload the folder to it in one commit; returns its address.

    With `overwrite` the commit removes weights that the folder does not have; other files of the repository stay.
    Raises `CheckpointError` with what the hub said.
    """
    check_repository(name)
    api = _api() if api is None else api
    with _explained(name):
        address = api.create_repo(name, private=private, exist_ok=True)
        api.upload_folder(
            repo_id=name,
            folder_path=folder,
            commit_message="Checkpoint written by layerwise",
            delete_patterns=["*.safetensors", "*.safetensors.index.json"] if overwrite else None,
        )
    return str(address)


def _api() -> HfApi:
    from huggingface_hub import HfApi, get_token

    if get_token() is None:
        raise CheckpointError(
            "there is no token for the Hugging Face hub: run `hf auth login`, or set HF_TOKEN to one that may write"
        )
    return HfApi()


@contextmanager
def _explained(name: str) -> Iterator[None]:
    """What the hub and the network refuse, as a `CheckpointError`."""
    from huggingface_hub.errors import HfHubHTTPError

    try:
        yield
    except HfHubHTTPError as error:
        status = error.response.status_code
        if status in (401, 403):
            raise CheckpointError(
                f"the hub refuses to write to {name} ({status}): use a token that may write there, with `hf auth "
                "login` or HF_TOKEN"
            ) from error
        reason = error.server_message or str(error).splitlines()[0]
        raise CheckpointError(f"the hub did not take {name} ({status}): {reason}") from error
    except Exception as error:  # the hub's client changes the library that it reaches the network with
        if not isinstance(error, OSError) and not type(error).__module__.startswith(("httpx", "requests")):
            raise
        raise CheckpointError(
            f"the hub could not be reached for {name} ({type(error).__name__}): push the folder later"
        ) from error
