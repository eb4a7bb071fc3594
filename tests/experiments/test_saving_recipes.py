"""`layerwise save --from`, and the card and the push that it may end with."""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from cli.command import layerwise, refused
from conftest import tiny_llama
from layerwise.plan.dialects import write_mergekit


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("recipes")
    for seed, name in enumerate(("one", "two")):
        tiny_llama(4, seed=seed).save_pretrained(home / name)
    return home


@pytest.fixture
def file(home: Path, tmp_path: Path) -> Path:
    models = {"x": str(home / "one"), "y": str(home / "two")}
    (tmp_path / "m.yml").write_text(write_mergekit("x:0-2 y:1-3", models, head="y"))
    return tmp_path / "m.yml"


def weights(folder: Path) -> dict[str, torch.Tensor]:
    return load_file(folder / "model.safetensors")


def test_a_file_of_mergekit_says_everything(home: Path, file: Path, tmp_path: Path) -> None:
    ended = layerwise("save", "--from", file, "--output", tmp_path / "m")
    assert ended.code == 0, ended.err
    assert ended.out.startswith(f"{tmp_path / 'm'}: 6 layers, ")
    assert "the same logits" in ended.out
    record = json.loads((tmp_path / "m" / "plan.json").read_text())
    assert (record["plan"], record["head"], record["note"]) == ("x:0-2 y:1-3", "y", "")
    written, two = weights(tmp_path / "m"), weights(home / "two")
    assert torch.equal(written["model.layers.5.mlp.up_proj.weight"], two["model.layers.3.mlp.up_proj.weight"])
    assert torch.equal(written["lm_head.weight"], two["lm_head.weight"])


def test_the_data_type_of_the_file_is_written(file: Path, tmp_path: Path) -> None:
    file.write_text("dtype: float32\n" + file.read_text())
    assert "built in memory" not in layerwise("save", "--from", file, "--output", tmp_path / "same").out
    file.write_text(file.read_text().replace("float32", "bfloat16"))
    ended = layerwise("save", "--from", file, "--output", tmp_path / "half")
    assert ended.code == 0, ended.err
    assert {tensor.dtype for tensor in weights(tmp_path / "half").values()} == {torch.bfloat16}
    assert "says bfloat16 and --dtype float16" in refused(
        "save", "--from", file, "--output", tmp_path / "m", "--dtype", "float16", "--quiet"
    )


def test_a_plan_is_about_the_model_that_is_named(home: Path, tmp_path: Path) -> None:
    ended = layerwise("save", home / "one", "--from", "0-1 3", "--output", tmp_path / "m")
    assert ended.code == 0, ended.err
    assert json.loads((tmp_path / "m" / "plan.json").read_text())["plan"] == "0 1 3"


def test_what_is_missing_or_said_twice_is_refused(home: Path, file: Path, tmp_path: Path) -> None:
    output = ("--output", tmp_path / "m", "--quiet")
    assert "say which layers by --plan PLAN or by --from" in refused("save", home / "one", *output)
    assert "by one of them" in refused("save", home / "one", "--plan", "0", "--from", "0", *output)
    assert "a model is needed: layerwise save MODEL --from 0-1" in refused("save", "--from", "0-1", *output)
    assert "a model is needed" in refused("save", "--plan", "0-1", *output)
    assert "the file names its models" in refused("save", home / "one", "--from", file, *output)
    file.write_text(file.read_text().replace("passthrough", "slerp"))
    assert f"{file}, line 1: the merge method slerp" in refused("save", "--from", file, *output)
    assert not (tmp_path / "m").exists()


def test_one_revision_is_opened(home: Path, tmp_path: Path) -> None:
    (tmp_path / "m.yml").write_text(write_mergekit("a:0 b:1", {"a": "org/one@x", "b": "org/two@y"}))
    assert "one revision of one model can be opened" in refused(
        "save", "--from", tmp_path / "m.yml", "--output", tmp_path / "m", "--quiet"
    )


def test_a_card_is_written_and_pushed(home: Path, file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checked: list[tuple[str, bool]] = []
    monkeypatch.setattr(
        "layerwise.checkpoint.push.check_push", lambda name, *, overwrite: checked.append((name, overwrite))
    )
    monkeypatch.setattr(
        "layerwise.checkpoint.push.push", lambda folder, name, **options: f"https://huggingface.co/{name} {options}"
    )
    ended = layerwise("save", "--from", file, "--output", tmp_path / "m", "--push", "org/it", "--private")
    assert ended.code == 0, ended.err
    assert checked == [("org/it", False)]
    assert "https://huggingface.co/org/it {'private': True, 'overwrite': False}: pushed, private" in ended.out
    card = (tmp_path / "m" / "README.md").read_text()
    assert "(the last norm, the head) that of two." in " ".join(card.split())
    assert "Nothing was measured for this card" in card


def test_a_push_that_would_be_refused_is_refused_before_anything_is_written(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    output = ("--output", tmp_path / "m", "--plan", "0-1", "--quiet")
    assert "ORG/NAME" in refused("save", home / "one", *output, "--push", "it")
    assert "--private does nothing here" in refused("save", home / "one", *output, "--private")
    assert "while HF_HUB_OFFLINE is set" in refused("save", home / "one", *output, "--push", "org/it")
    assert not (tmp_path / "m").exists()


def test_a_run_of_another_model_is_no_evidence(home: Path, tmp_path: Path) -> None:
    output = ("--output", tmp_path / "m", "--plan", "0-1", "--quiet")
    assert "manifest" in refused("save", home / "one", *output, "--evidence", tmp_path)
    assert not (tmp_path / "m").exists()
