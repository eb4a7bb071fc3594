"""Push a checkpoint folder to the Hugging Face hub; `check_push` finds before a long run what would be refused."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import huggingface_hub
from huggingface_hub import constants
from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalTokenNotFoundError
from huggingface_hub.utils import validate_repo_id  # type: ignore[attr-defined]

from layerwise.errors import CheckpointError


def check_repository(name: str) -> None:
    try:
        validate_repo_id(name)
    except HFValidationError:
        is_valid = False
    else:
        is_valid = "/" in name
    if not is_valid:
        raise CheckpointError(
            f"a repository of the hub is ORG/NAME, of letters, digits, ., _ and -, as in org/shallow; not {name[:60]!r}"
        )


def check_push(name: str, *, overwrite: bool = False) -> None:
    check_repository(name)
    if constants.is_offline_mode():
        raise CheckpointError(
            f"nothing can be pushed to {name} while HF_HUB_OFFLINE is set: unset it, or leave --push out and push the "
            "folder later"
        )
    api = huggingface_hub.HfApi()
    with _explained(name):
        api.whoami()
        if not overwrite and api.repo_exists(name) and api.file_exists(name, "config.json"):
            raise CheckpointError(f"{name} holds a model already; choose another name, or replace it with --overwrite")


def push(folder: Path, name: str, *, private: bool = False, overwrite: bool = False) -> str:
    """Upload the folder to the repository `name` in one commit, and return its address.

    `overwrite` removes weights that the folder lacks. Raises `CheckpointError` with the hub's message.
    """
    check_repository(name)
    api = huggingface_hub.HfApi()
    with _explained(name):
        address = api.create_repo(name, private=private, exist_ok=True)
        api.upload_folder(
            repo_id=name,
            folder_path=folder,
            commit_message="Checkpoint written by layerwise",
            delete_patterns=["*.safetensors", "*.safetensors.index.json"] if overwrite else None,
        )
    return str(address)


@contextmanager
def _explained(name: str) -> Iterator[None]:
    try:
        yield
    except LocalTokenNotFoundError as error:
        raise CheckpointError(
            "there is no token for the Hugging Face hub: run `hf auth login`, or set HF_TOKEN to one that may write"
        ) from error
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
