"""Streaming from file to file writes the same bytes as saving from memory, or is refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM

from conftest import tiny_llama
from contracts.specimen import Specimen, build, inputs
from contracts.tiers import every_type
from contracts.zoo import SUPPORTED
from layerwise.checkpoint import save, stream
from layerwise.checkpoint.config_process import without_torch
from layerwise.checkpoint.stored_config import visit_config
from layerwise.errors import CheckpointError, PlanError, UnsupportedModel
from layerwise.plan import Plan
from layerwise.stack import load
from tier import first_fast

KINDS = ("llama", "mixtral", "vit", "bert", "gemma3_text")


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "without_torch", visit_config)


@pytest.mark.usefixtures("quick")
@every_type(fast=KINDS)
@pytest.mark.parametrize("text", first_fast(["4 0*2 3 1", "0-3"]))
def test_streamed_files_are_those_of_the_way_through_memory(one: Specimen, text: str, tmp_path: Path) -> None:
    model = build(one)
    model.save_pretrained(tmp_path / "home")
    batch = inputs(one, model)
    try:
        save(load(model), text, tmp_path / "memory", inputs=batch)
    except UnsupportedModel as refusal:
        with pytest.raises(UnsupportedModel):
            save(tmp_path / "home", text, tmp_path / "streamed", inputs=batch)
        pytest.skip(str(refusal))
    origin = save(tmp_path / "home", text, tmp_path / "streamed", inputs=batch, prove=False)
    assert origin.note == ""
    for name in ("model.safetensors", "config.json"):
        assert (tmp_path / "streamed" / name).read_bytes() == (tmp_path / "memory" / name).read_bytes()


def test_logits_are_compared_and_the_tokenizer_goes_along(home: Path, tmp_path: Path) -> None:
    origin = save(home, "0 2*2 5", tmp_path / "m")
    assert (origin.proof, origin.gap, origin.note) == ("logits", 0.0, "")
    assert json.loads((tmp_path / "m" / "plan.json").read_text())["plan"] == "0 2*2 5"
    for name in ("tokenizer.json", "tokenizer_config.json", "generation_config.json"):
        assert (tmp_path / "m" / name).read_bytes() == (home / name).read_bytes()
    loaded = AutoModelForCausalLM.from_pretrained(tmp_path / "m")
    assert loaded.num_parameters() == origin.parameters


@pytest.mark.slow
def test_the_configuration_is_the_same_without_torch(home: Path, tmp_path: Path) -> None:
    model = build(next(one for one in SUPPORTED if one.model_type == "gemma3_text"))
    for settings in (json.loads((home / "config.json").read_text()), json.loads(model.config.to_json_string())):
        depth = settings["num_hidden_layers"]
        task = (settings, {"model.layers.": depth}, (4, 0, 0, 2), None)
        assert without_torch(*task) == visit_config(*task)
    asked_of_the_package = ({"model_type": "layoutlm", "num_hidden_layers": 3}, {"encoder.layer.": 3}, (2, 0), None)
    assert without_torch(*asked_of_the_package) == visit_config(*asked_of_the_package)
    refused = ({"model_type": "nothing"}, {"h.": 2}, (0,), None)
    with pytest.raises(CheckpointError, match="no configuration of its own for models of type nothing"):
        without_torch(*refused)


@pytest.mark.usefixtures("quick")
def test_several_models_of_one_form_are_streamed(models: dict[str, Path], tmp_path: Path) -> None:
    origin = save(models, "a:0-2 b:3 5", tmp_path / "m", prove=False)
    assert origin.models == {"shell": str(models["a"]), "a": str(models["a"]), "b": str(models["b"])}
    written, b = (load_file(folder / "model.safetensors") for folder in (tmp_path / "m", models["b"]))
    key = "model.layers.{}.mlp.up_proj.weight"
    assert torch.equal(written[key.format(3)], b[key.format(3)])
    assert not torch.equal(written[key.format(4)], b[key.format(5)])


@pytest.mark.usefixtures("quick")
def test_shards_are_read_and_written(home: Path, tmp_path: Path) -> None:
    AutoModelForCausalLM.from_pretrained(home).save_pretrained(tmp_path / "sharded", max_shard_size="20KB")
    assert len(list((tmp_path / "sharded").glob("*.safetensors"))) > 2
    save(tmp_path / "sharded", "0 5 3", tmp_path / "one", prove=False)
    save(home, "0 5 3", tmp_path / "many", prove=False, max_shard_size=20_000)
    assert len(list((tmp_path / "many").glob("*.safetensors"))) > 2
    one, many = (AutoModelForCausalLM.from_pretrained(tmp_path / name).state_dict() for name in ("one", "many"))
    assert all(torch.equal(one[name], many[name]) for name in one | many)


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("opened", [str, load])
def test_tied_weights_are_written_once(tmp_path: Path, opened: Callable[[str], Any]) -> None:
    model = tiny_llama()
    model.config.tie_word_embeddings = True
    model.tie_weights()
    model.save_pretrained(tmp_path / "home")
    save(opened(str(tmp_path / "home")), "0 1", tmp_path / "m", prove=False)
    assert "lm_head.weight" not in load_file(tmp_path / "m" / "model.safetensors")
    loaded = AutoModelForCausalLM.from_pretrained(tmp_path / "m")
    assert loaded.lm_head.weight is loaded.model.embed_tokens.weight


@pytest.fixture
def quantised(home: Path, tmp_path: Path) -> Path:
    folder = tmp_path / "quantised"
    folder.mkdir()
    tensors = {}
    for name, tensor in load_file(home / "model.safetensors").items():
        if name.endswith("_proj.weight") and ".0." not in name:
            tensors[name] = tensor.to(torch.float8_e4m3fn)
            tensors[f"{name}_scale_inv"] = torch.ones(1)
        else:
            tensors[name] = tensor
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    settings = json.loads((home / "config.json").read_text())
    settings["quantization_config"] = {
        "quant_method": "fp8",
        "modules_to_not_convert": ["lm_head", "model.layers.0.mlp", "model.layers.2.self_attn"],
    }
    (folder / "config.json").write_text(json.dumps(settings))
    return folder


def test_quantised_tensors_are_bytes_and_their_exceptions_follow(quantised: Path, tmp_path: Path) -> None:
    origin = save(quantised, "3 0*2 5", tmp_path / "m")
    assert origin.proof == "keys"
    before, after = (load_file(folder / "model.safetensors") for folder in (quantised, tmp_path / "m"))
    key = "model.layers.{}.mlp.up_proj.weight"
    assert after[key.format(0)].dtype == torch.float8_e4m3fn
    assert torch.equal(after[key.format(0)].view(torch.uint8), before[key.format(3)].view(torch.uint8))
    assert f"{key.format(3)}_scale_inv" in after
    settings = json.loads((tmp_path / "m" / "config.json").read_text())
    assert settings["quantization_config"]["modules_to_not_convert"] == [
        "lm_head",
        "model.layers.1.mlp",
        "model.layers.2.mlp",
    ]


@pytest.mark.parametrize("opened", [str, load])
@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("0 (1|2) 3", r"has a group: .* in turn, as in 0-3"),
        ("0 (1):gain=0.5", "has a group"),
        ("0 1.attn 2", r"the plan runs 1\.attn"),
        ("0 7", "visits layer 7"),
        ("b:0", "'b'"),
    ],
)
def test_what_no_checkpoint_can_say_is_refused(
    home: Path, text: str, reason: str, tmp_path: Path, opened: Callable[[str], Any]
) -> None:
    with pytest.raises(PlanError, match=reason):
        save(opened(str(home)), text, tmp_path / "m")
    assert list(tmp_path.iterdir()) == []


def test_a_wrong_layer_is_noticed_by_logits_and_a_missing_one_by_keys(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    planned = stream.planned_tensors
    monkeypatch.setattr(
        stream, "planned_tensors", lambda models, names, plan: planned(models, names, Plan.parse("1 0 2"))
    )
    with pytest.raises(UnsupportedModel, match="and the plan's are apart by"):
        save(home, "0-2", tmp_path / "m")
    monkeypatch.setattr(stream, "planned_tensors", lambda *task: dict(list(planned(*task).items())[:-2]))
    origin = save(home, "0-2", tmp_path / "m")
    assert "transformers would not load it: model.layers.2.self_attn.v_proj.weight is missing" in origin.note
    assert [path.name for path in tmp_path.iterdir()] == ["m"]


def test_what_cannot_be_taken_apart_is_built_in_memory(home: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    AutoModelForCausalLM.from_pretrained(home).save_pretrained(copy)
    tensors = load_file(copy / "model.safetensors")
    save_file(
        {**tensors, "more.0.w": torch.ones(1), **{f"more.{n}.w": torch.ones(1) for n in range(6)}},
        copy / "model.safetensors",
        metadata={"format": "pt"},
    )
    origin = save(copy, "0 5", tmp_path / "m")
    assert "the stack of layers cannot be told from the names on the disk" in origin.note
    assert origin.gap == 0.0
    assert AutoModelForCausalLM.from_pretrained(tmp_path / "m").config.num_hidden_layers == 2


def test_a_position_that_settings_do_not_say_is_refused_by_keys(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream, "PROVED_SIZE", 0)
    build(next(one for one in SUPPORTED if one.model_type == "diffllama")).save_pretrained(tmp_path / "home")
    with pytest.raises(UnsupportedModel, match=r"in slot 1, .*lambda_init would be"):
        save(tmp_path / "home", "0 2 4", tmp_path / "m")
    assert save(tmp_path / "home", "0-3", tmp_path / "m").proof == "keys"


@pytest.mark.usefixtures("quick")
def test_no_progress_bar_is_shown(home: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    transformers.utils.logging.enable_progress_bar()
    save(home, "0 1", tmp_path / "streamed")
    save(load(tiny_llama()), "0 1", tmp_path / "memory")
    assert "%|" not in capfd.readouterr().err
    assert transformers.utils.logging.is_progress_bar_enabled()
