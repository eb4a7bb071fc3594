"""Push to the hub with a fake client: requests and error messages."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest
from huggingface_hub import HfApi
from huggingface_hub.errors import HfHubHTTPError

from layerwise.checkpoint.push import check_push, check_repository, push
from layerwise.errors import CheckpointError


@dataclass
class FakeHub:
    files: dict[str, set[str]] = field(default_factory=dict)
    fault: Exception | None = None
    calls: list[tuple[str, dict[str, Any]]] = field(default_factory=list)

    def whoami(self) -> dict[str, str]:
        self._raise()
        return {"name": "org"}

    def repo_exists(self, repo_id: str) -> bool:
        return repo_id in self.files

    def file_exists(self, repo_id: str, filename: str) -> bool:
        return filename in self.files[repo_id]

    def create_repo(self, repo_id: str, **options: Any) -> str:
        self._raise()
        self.calls.append(("create_repo", {"repo_id": repo_id, **options}))
        self.files.setdefault(repo_id, set())
        return f"https://huggingface.co/{repo_id}"

    def upload_folder(self, **options: Any) -> None:
        self.calls.append(("upload_folder", options))
        self.files[options["repo_id"]] |= {path.name for path in Path(options["folder_path"]).iterdir()}

    def _raise(self) -> None:
        if self.fault is not None:
            raise self.fault


@pytest.fixture(autouse=True)
def hub(monkeypatch: pytest.MonkeyPatch) -> FakeHub:
    made = FakeHub({"org/full": {"config.json"}, "org/empty": set()})
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    monkeypatch.setattr("huggingface_hub.HfApi", lambda: made)
    return made


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("config.json", "model.safetensors", "README.md"):
        (tmp_path / name).write_text(name)
    return tmp_path


def http_error(status: int) -> HfHubHTTPError:
    request = httpx.Request("GET", "https://huggingface.co")
    return HfHubHTTPError("it failed", response=httpx.Response(status, request=request))  # type: ignore[arg-type]


def test_a_folder_becomes_a_repository(folder: Path, hub: FakeHub) -> None:
    check_push("org/it")
    assert push(folder, "org/it", private=True) == "https://huggingface.co/org/it"
    (create, options), (upload, sent) = hub.calls
    assert (create, options) == ("create_repo", {"repo_id": "org/it", "private": True, "exist_ok": True})
    assert (upload, sent["folder_path"], sent["delete_patterns"]) == ("upload_folder", folder, None)
    assert hub.files["org/it"] == {"config.json", "model.safetensors", "README.md"}


def test_a_repository_with_a_model_is_replaced_only_when_asked(folder: Path, hub: FakeHub) -> None:
    refusal = r"org/full already has a model\. Choose another name, or"
    with pytest.raises(CheckpointError, match=refusal):
        check_push("org/full")
    check_push("org/empty")
    check_push("org/full", overwrite=True)
    push(folder, "org/full", overwrite=True)
    assert hub.calls[-1][1]["delete_patterns"] == ["*.safetensors", "*.safetensors.index.json"]


@pytest.mark.parametrize(
    "name", ["it", "a/b/c", "/it", "org/", "org/..", "org/a--b", "org/it.git", "https://x/y", "", "o rg/it"]
)
def test_a_name_that_is_none_is_refused(name: str) -> None:
    with pytest.raises(CheckpointError, match="--push must be ORG/NAME"):
        check_repository(name)


def test_nothing_is_pushed_offline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(CheckpointError, match="while HF_HUB_OFFLINE is set"):
        check_push("org/it")


def test_without_a_token_nothing_is_asked_of_the_network(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.HfApi", HfApi)
    monkeypatch.setattr("huggingface_hub.utils._headers.get_token", lambda: None)
    refusal = r"the hub requires a token\. Run `hf auth login`, or set"
    with pytest.raises(CheckpointError, match=refusal):
        check_push("org/it")


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        (http_error(403), r"the hub refused org/it \(403\): it failed. Check that the token may write there"),
        (httpx.ConnectError("no route"), r"the hub cannot be reached for org/it \(ConnectError\). Push the folder"),
        (ConnectionError("no route"), r"cannot be reached for org/it \(ConnectionError\)"),
    ],
)
def test_refusals_say_what_to_do(fault: Exception, reason: str, folder: Path, hub: FakeHub) -> None:
    hub.fault = fault
    with pytest.raises(CheckpointError, match=reason):
        check_push("org/it")
    with pytest.raises(CheckpointError, match=reason):
        push(folder, "org/it")
