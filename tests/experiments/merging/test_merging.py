"""`layerwise robustness merge`: which models are merged, what they are compared with, and what is refused."""

import shutil
from pathlib import Path

import pytest
import transformers

from cli.command import layerwise
from experiments.merging.trained_vit import save_vit
from layerwise.data.model_location import location_of
from layerwise.data.vision.digits import digits


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    home, data = tmp_path_factory.mktemp("trained"), digits().digest
    one, two = (save_vit(home / str(seed), seed, "arm", data=data) for seed in (0, 1))
    return one, two


def test_the_hub_is_not_asked_about_a_demo_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copytree(location_of("demo-vit"), tmp_path / "copy")
    asked: list[str] = []
    monkeypatch.setattr(transformers.utils, "cached_file", lambda where, *_, **__: asked.append(where))
    ended = layerwise("robustness", "merge", "demo-vit", tmp_path / "copy", "--images", "digits", "--dry-run")
    assert (ended.code, asked) == (0, []), ended.err
