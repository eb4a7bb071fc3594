"""`layerwise robustness merge`: which models are merged, what they are compared with, and what is refused."""

import shutil
from pathlib import Path

import pytest
import transformers

from cli.command import layerwise, refused
from experiments.merging.trained_vit import save_vit
from layerwise.data.model_location import location_of
from layerwise.data.vision.digits import digits


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    home, data = tmp_path_factory.mktemp("trained"), digits().digest
    one, two = (save_vit(home / str(seed), seed, "arm", data=data) for seed in (0, 1))
    return one, two


@pytest.mark.slow
def test_models_that_do_not_belong_together_are_refused(
    trained: tuple[Path, Path], model: Path, tmp_path: Path
) -> None:
    stranger = save_vit(tmp_path / "stranger", 2, "arm", base="another")
    assert "are of different base" in refused("robustness", "merge", trained[0], stranger)
    other = save_vit(tmp_path / "other", 2, "arm", data="other splits")
    assert "its test examples may have been learned from" in refused("robustness", "merge", trained[0], other)
    unlike = save_vit(tmp_path / "unlike", 2, "another-arm")
    assert "found 1 of arm, 1 of another-arm" in refused("robustness", "merge", trained[0], unlike)
    assert "did you mean arm" in refused("robustness", "merge", *trained, "--arm", "arn")
    assert "the number of layers is 4, not 12; layers of two models" in refused(
        "robustness", "merge", "demo", model, "--dry-run"
    )


def test_the_hub_is_not_asked_about_a_demo_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copytree(location_of("demo-vit"), tmp_path / "copy")
    asked: list[str] = []
    monkeypatch.setattr(transformers.utils, "cached_file", lambda where, *_, **__: asked.append(where))
    ended = layerwise("robustness", "merge", "demo-vit", tmp_path / "copy", "--images", "digits", "--dry-run")
    assert (ended.code, asked) == (0, []), ended.err
