from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def working_folder(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Run in a temporary folder, where a comparison writes its page."""
    folder = tmp_path_factory.mktemp("here")
    monkeypatch.chdir(folder)
    return folder
