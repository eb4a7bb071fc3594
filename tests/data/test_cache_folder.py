from __future__ import annotations

from pathlib import Path

import pytest

from layerwise.data.cache_folder import cache_folder


def test_the_variables_go_before_the_home(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/ada")
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.delenv("LAYERWISE_CACHE")
    assert cache_folder() == Path("/home/ada/.cache/layerwise")
    monkeypatch.setenv("XDG_CACHE_HOME", "/scratch")
    assert cache_folder() == Path("/scratch/layerwise")
    monkeypatch.setenv("LAYERWISE_CACHE", "~/ours")
    assert cache_folder() == Path("/home/ada/ours")
