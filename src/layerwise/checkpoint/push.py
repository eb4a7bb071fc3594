"""Push a checkpoint folder to the Hugging Face hub."""

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
        is_valid = "/" in name
    except HFValidationError:
        is_valid = False
    if not is_valid:
        raise CheckpointError(f"--push must be ORG/NAME, as in org/shallow, got {name[:60]!r}.")


def check_push(name: str, *, overwrite: bool = False) -> None:
    """Check name, token, network and existing models before a long run."""
    check_repository(name)
    if constants.is_offline_mode():
        raise CheckpointError(f"cannot push to {name} while HF_HUB_OFFLINE is set. Unset it, or omit --push.")
    api = huggingface_hub.HfApi()
    with _explained(name):
        api.whoami()
        if not overwrite and api.repo_exists(name) and api.file_exists(name, "config.json"):
            raise CheckpointError(f"{name} already has a model. Choose another name, or replace it with --overwrite.")


def push(folder: Path, name: str, *, private: bool = False, overwrite: bool = False) -> str:
    """Upload the folder to the repository `name` in one commit, and return its URL.

    If `overwrite`, weights that the folder lacks are removed from the repository. Raises `CheckpointError` with the
    message of the hub.
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
        raise CheckpointError("the hub requires a token. Run `hf auth login`, or set HF_TOKEN.") from error
    except HfHubHTTPError as error:
        reason = error.server_message or str(error).splitlines()[0]
        raise CheckpointError(
            f"the hub refused {name} ({error.response.status_code}): {reason}. Check that the token may write there."
        ) from error
    except Exception as error:  # the hub's client may use any HTTP library
        if not isinstance(error, OSError) and not type(error).__module__.startswith(("httpx", "requests")):
            raise
        raise CheckpointError(
            f"the hub cannot be reached for {name} ({type(error).__name__}). Push the folder later."
        ) from error
