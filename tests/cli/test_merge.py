"""`layerwise merge`: who is merged with whom, what is written, what is judged, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from transformers import AutoModelForImageClassification, ViTConfig, ViTForImageClassification

from cli.command import layerwise, refused
from layerwise.data.digits import digits
from layerwise.results import Run
from layerwise.results.pedigree import Pedigree

DEPTH = 3


def save_vit(
    folder: Path, seed: int, arm: str | None, *, base: str = "base", data: str = "", depth: int = DEPTH
) -> Path:
    """A model of digits with random weights; with an `arm` also the pedigree of a trained one."""
    torch.manual_seed(seed)
    config = ViTConfig(
        image_size=8, patch_size=4, num_channels=1, hidden_size=16, intermediate_size=32, num_hidden_layers=depth,
        num_attention_heads=2, num_labels=10, initializer_range=0.3,
    )  # fmt: skip
    ViTForImageClassification(config).save_pretrained(folder)
    if arm is not None:
        recipe = {"variant": "plain"}
        Pedigree(arm, seed, base, data, "digits", recipe, 1, 1.0, 1, 1.0, 1).write(folder)
    return folder


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Two models of one arm, as a training on digits would have left them."""
    home, data = tmp_path_factory.mktemp("trained"), digits().digest
    one, two = (save_vit(home / str(seed), seed, "arm", data=data) for seed in (0, 1))
    return one, two


def test_two_models_are_judged_into_a_run_with_a_report(trained: tuple[Path, Path], tmp_path: Path) -> None:
    ended = layerwise("merge", *trained, "--draws", "3", "--run", tmp_path / "run")
    assert ended.code == 0, ended.err
    assert f"arm:\n  a  {trained[0]}\n  b  {trained[1]}" in ended.err
    assert "merged" in ended.out
    assert (tmp_path / "run" / "report.html").is_file()
    with Run.open(tmp_path / "run") as run:
        tasks = {score.task for score in run.store.scores("merging")}
        drawn = run.store.scores("merges")
    assert {"members sequential", "merged own-depth", "merged arbitrary", "ensemble arbitrary"} <= tasks
    assert {score.metric for score in drawn} == {"accuracy.own-depth", "accuracy.arbitrary"}
    assert all(score.task.startswith(("a:", "b:")) for score in drawn)


def test_one_merged_model_is_written_without_images(trained: tuple[Path, Path], tmp_path: Path) -> None:
    ended = layerwise("merge", *trained, "--save", tmp_path / "m", "--plan", "a:0 b:1*2", "--quiet")
    assert ended.code == 0
    assert f"{tmp_path / 'm'}: 3 layers" in ended.out
    assert "1 of its layers is a copy" in ended.out
    assert ended.err == ""
    merged = AutoModelForImageClassification.from_pretrained(tmp_path / "m")
    lent = AutoModelForImageClassification.from_pretrained(trained[1])
    name = "vit.layers.1.mlp.fc1.weight"
    assert torch.equal(merged.state_dict()[name], lent.state_dict()[name])
    assert "holds a model already" in refused("merge", *trained, "--save", tmp_path / "m", "--plan", "a:0", "--quiet")


def test_one_model_without_names_loses_layers(trained: tuple[Path, Path], tmp_path: Path) -> None:
    ended = layerwise("merge", trained[0], "--save", tmp_path / "m", "--plan", "2 0")
    assert ended.code == 0
    assert ": 2 layers" in ended.out


def test_models_that_do_not_belong_together_are_refused(trained: tuple[Path, Path], tmp_path: Path) -> None:
    stranger = save_vit(tmp_path / "stranger", 2, "arm", base="another")
    assert "are of different base" in refused("merge", trained[0], stranger)
    deeper = save_vit(tmp_path / "deeper", 2, "arm", depth=4)
    told = refused("merge", trained[0], deeper, "--save", tmp_path / "m", "--plan", "a:0 b:1")
    assert "the number of layers is 4, not 3" in told
    other = save_vit(tmp_path / "other", 2, "arm", data="other splits")
    assert "may have learned from their test examples" in refused("merge", trained[0], other)
    unlike = save_vit(tmp_path / "unlike", 2, "another-arm")
    assert "found 1 of arm, 1 of another-arm" in refused("merge", trained[0], unlike)
    told = refused("merge", trained[0], unlike, "--save", tmp_path / "m", "--plan", "a:0")
    assert "--arm arm or --arm another-arm" in told
    assert "did you mean arm" in refused("merge", *trained, "--arm", "arn")
    assert not (tmp_path / "m").exists()


def test_models_of_unknown_base_get_a_note(tmp_path: Path) -> None:
    one, two = (save_vit(tmp_path / str(seed), seed, None) for seed in (0, 1))
    ended = layerwise("merge", one, two, "--save", tmp_path / "m", "--plan", "a:0 b:1")
    assert ended.code == 0
    assert "note: nothing says what a, b were refined from" in ended.err


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (("--save", "m"), "--save FOLDER and --plan PLAN together"),
        (("--plan", "a:0"), "--save FOLDER and --plan PLAN together"),
        (("--save", "m", "--plan", "a:0-"), "a range ends in a layer"),
        (("--save", "m", "--plan", "a:0 c:1"), "from 'c'"),
        (("--save", "m", "--plan", "a:0 (a:1|b:1)"), "has a group"),
        (("--save", "m", "--plan", "a:0 b:7"), "visits layer 7"),
    ],
)
def test_plans_that_cannot_be_written_are_refused(
    trained: tuple[Path, Path], options: tuple[str, ...], reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert reason in refused("merge", *trained, *options)
    assert list(tmp_path.iterdir()) == []
