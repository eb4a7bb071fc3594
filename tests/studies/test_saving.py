"""Models written by `layerwise save`, from plans and mergekit files."""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, AutoModelForImageClassification, AutoTokenizer

import layerwise as library
from cli.command import layerwise, refused
from conftest import tiny_llama
from layerwise.plan.dialects import write_mergekit
from layerwise.results.training_record import TrainingRecord
from studies.merging.trained_vit import save_vit


def test_transformers_loads_a_saved_plan(model: Path, tmp_path: Path) -> None:
    folder = tmp_path / "shallow"
    ended = layerwise("save", model, "--plan", "0 2-3", "--output", folder, "--quiet")
    assert (ended.code, ended.err) == (0, "")
    first, proved, *how = ended.out.splitlines()
    assert first.startswith(f"{folder}: 3 layers, ")
    assert first.endswith(" parameters, with its tokenizer")
    assert proved == "loaded again with plain transformers: identical logits"
    loaded: dict[str, torch.nn.Module] = {}
    exec("\n".join(line.strip() for line in how[1:]), loaded)  # the lines that it prints
    ids = AutoTokenizer.from_pretrained(folder)("a layer", return_tensors="pt")["input_ids"]
    stack = library.load(model)
    with stack.under("0 2-3"), torch.inference_mode():
        assert torch.equal(loaded["model"](ids).logits, stack.model(ids).logits)
    assert json.loads((folder / "plan.json").read_text())["plan"] == "0 2 3"


def test_repeated_layers_are_copied_and_folders_are_kept_without_overwrite(model: Path, tmp_path: Path) -> None:
    once = ("save", model, "--output", tmp_path / "m", "--plan")
    assert "; 1 of its layers is a copy" in layerwise(*once, "0-3 3").out
    assert "already has a model" in refused(*once, "0-2")
    assert ": 3 layers" in layerwise(*once, "0-2", "--overwrite").out
    assert AutoModelForCausalLM.from_pretrained(tmp_path / "m").config.num_hidden_layers == 3


@pytest.mark.parametrize(("asked", "written"), [((), "bfloat16"), (("--dtype", "float32"), "float32")])
def test_the_stored_data_type_is_the_default(tmp_path: Path, asked: tuple[str, ...], written: str) -> None:
    tiny_llama(3).to(torch.bfloat16).save_pretrained(tmp_path / "half")
    ended = layerwise("save", tmp_path / "half", "--plan", "0 2", "--output", tmp_path / "m", *asked)
    assert ended.code == 0, ended.err
    assert "tokenizer" not in ended.out
    assert str(AutoModelForCausalLM.from_pretrained(tmp_path / "m", dtype="auto").dtype) == f"torch.{written}"


@pytest.mark.parametrize(
    ("plan", "reason"),
    [
        ("0 (1|2) 3", "a checkpoint runs its layers in sequence, but the plan has a group"),
        ("0 Q4_0:1 2-3", "cannot save a model under a plan with Q4_0:1, whose weights are quantized on"),
    ],
)
def test_plans_that_no_checkpoint_can_store_are_rejected(model: Path, tmp_path: Path, plan: str, reason: str) -> None:
    assert reason in refused("save", model, "--plan", plan, "--output", tmp_path / "m")
    assert list(tmp_path.iterdir()) == []


def test_layers_trained_with_a_position_encoding_are_rejected(tmp_path: Path) -> None:
    options = ("--plan", "0-1", "--output", tmp_path / "m")
    told = save_vit(tmp_path / "told", 0, None)
    TrainingRecord("variant", 0, "b", "d", "digits", {"extension": "position"}, 1, 1.0, 1, 1.0, 1).write(told)
    assert "trained with a position encoding" in refused("save", told, *options)
    assert not (tmp_path / "m").exists()


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    home = tmp_path_factory.mktemp("trained")
    one, two = (save_vit(home / str(seed), seed, "variant") for seed in (0, 1))
    return one, two


def test_layers_of_two_models_are_merged(trained: tuple[Path, Path], tmp_path: Path) -> None:
    ended = layerwise("save", *trained, "--output", tmp_path / "m", "--plan", "a:0 b:1*2")
    assert ended.code == 0, ended.err
    assert f"variant:\n  a  {trained[0]}\n  b  {trained[1]}" in ended.err
    assert f"{tmp_path / 'm'}: 3 layers" in ended.out
    assert "1 of its layers is a copy" in ended.out
    merged, source = (AutoModelForImageClassification.from_pretrained(path) for path in (tmp_path / "m", trained[1]))
    name = "vit.layers.1.mlp.fc1.weight"
    assert torch.equal(merged.state_dict()[name], source.state_dict()[name])
    assert "already has a model" in refused("save", *trained, "--output", tmp_path / "m", "--plan", "a:0", "--quiet")


def test_incompatible_models_are_rejected(trained: tuple[Path, Path], tmp_path: Path) -> None:
    written = ("--output", tmp_path / "m", "--plan", "a:0 b:1")
    deeper = save_vit(tmp_path / "deeper", 2, "variant", depth=4)
    assert "the number of layers is 4, not 3" in refused("save", trained[0], deeper, *written)
    unlike = save_vit(tmp_path / "unlike", 2, "another-variant")
    assert "--variant variant or --variant another-variant" in refused("save", trained[0], unlike, *written)
    stranger = save_vit(tmp_path / "stranger", 2, "variant", base="another")
    assert "were trained from different base models" in refused("save", trained[0], stranger, *written)
    assert not (tmp_path / "m").exists()


@pytest.mark.parametrize(
    ("plan", "reason"), [("a:0 c:1", "from 'c'"), ("a:0 (a:1|b:1)", "has a group"), ("a:0 b:7", "visits layer 7")]
)
def test_invalid_merged_plans_are_rejected(trained: tuple[Path, Path], plan: str, reason: str, tmp_path: Path) -> None:
    assert reason in refused("save", *trained, "--output", tmp_path / "m", "--plan", plan)
    assert list(tmp_path.iterdir()) == []


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


def test_a_mergekit_file_is_saved(home: Path, file: Path, tmp_path: Path) -> None:
    ended = layerwise("save", "--from", file, "--output", tmp_path / "m")
    assert ended.code == 0, ended.err
    assert ended.out.startswith(f"{tmp_path / 'm'}: 6 layers, ")
    assert "identical logits" in ended.out
    record = json.loads((tmp_path / "m" / "plan.json").read_text())
    assert (record["plan"], record["head"], record["note"]) == ("x:0-2 y:1-3", "y", "")
    written, two = weights(tmp_path / "m"), weights(home / "two")
    assert torch.equal(written["model.layers.5.mlp.up_proj.weight"], two["model.layers.3.mlp.up_proj.weight"])
    assert torch.equal(written["lm_head.weight"], two["lm_head.weight"])


def test_the_data_type_of_a_mergekit_file_is_used(file: Path, tmp_path: Path) -> None:
    file.write_text("dtype: float32\n" + file.read_text())
    assert "built in memory" not in layerwise("save", "--from", file, "--output", tmp_path / "same").out
    file.write_text(file.read_text().replace("float32", "bfloat16"))
    ended = layerwise("save", "--from", file, "--output", tmp_path / "half")
    assert ended.code == 0, ended.err
    assert {tensor.dtype for tensor in weights(tmp_path / "half").values()} == {torch.bfloat16}
    assert "--dtype must be bfloat16" in refused(
        "save", "--from", file, "--output", tmp_path / "m", "--dtype", "float16", "--quiet"
    )


def test_from_accepts_a_plan_of_the_model(home: Path, tmp_path: Path) -> None:
    ended = layerwise("save", home / "one", "--from", "0-1 3", "--output", tmp_path / "m")
    assert ended.code == 0, ended.err
    assert json.loads((tmp_path / "m" / "plan.json").read_text())["plan"] == "0 1 3"


def test_missing_and_conflicting_options_are_rejected(home: Path, file: Path, tmp_path: Path) -> None:
    output = ("--output", tmp_path / "m", "--quiet")
    assert "exactly one of --plan and --from is required" in refused("save", home / "one", *output)
    assert "Pass one of them" in refused("save", home / "one", "--plan", "0", "--from", "0", *output)
    assert "a model is required" in refused("save", "--from", "0-1", *output)
    assert "a model is required" in refused("save", "--plan", "0-1", *output)
    assert "--model cannot be combined with a file" in refused("save", home / "one", "--from", file, *output)
    file.write_text(file.read_text().replace("passthrough", "slerp"))
    assert f"{file}, line 1: merge_method must be passthrough, got slerp" in refused("save", "--from", file, *output)
    assert not (tmp_path / "m").exists()


def test_revisions_of_several_models_are_rejected(home: Path, tmp_path: Path) -> None:
    (tmp_path / "m.yml").write_text(write_mergekit("a:0 b:1", {"a": "org/one@x", "b": "org/two@y"}))
    assert "a revision can be given only once" in refused(
        "save", "--from", tmp_path / "m.yml", "--output", tmp_path / "m", "--quiet"
    )


def test_an_invalid_push_is_rejected_before_writing(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    output = ("--output", tmp_path / "m", "--plan", "0-1", "--quiet")
    assert "ORG/NAME" in refused("save", home / "one", *output, "--push", "it")
    assert "--private requires --push" in refused("save", home / "one", *output, "--private")
    assert "while HF_HUB_OFFLINE is set" in refused("save", home / "one", *output, "--push", "org/it")
    assert not (tmp_path / "m").exists()


def test_evidence_must_be_a_run_of_the_model(home: Path, tmp_path: Path) -> None:
    output = ("--output", tmp_path / "m", "--plan", "0-1", "--quiet")
    assert "manifest" in refused("save", home / "one", *output, "--evidence", tmp_path)
    assert not (tmp_path / "m").exists()
