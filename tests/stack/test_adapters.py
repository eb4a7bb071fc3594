"""Adapters of peft: a folder that holds one is a model, and models with adapters run plans and are not written."""

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import peft
import pytest
import torch
from transformers import LlamaForCausalLM

import layerwise
from conftest import tiny_llama
from layerwise.checkpoint import save
from layerwise.errors import CheckpointError, ModelError, UnsupportedModel
from layerwise.plan import Plan
from layerwise.stack import adapters, load
from stack.makers import IDS
from stack.test_changed_blocks import by_hand
from tier import first_fast

PROJECTIONS = ["q_proj", "v_proj"]
KINDS: dict[str, Callable[[], Any]] = {
    "lora of two layers": lambda: peft.LoraConfig(
        r=4, target_modules=["q_proj", "down_proj"], layers_to_transform=[1, 3], init_lora_weights=False
    ),
    "dora and a head": lambda: peft.LoraConfig(
        r=2, target_modules=PROJECTIONS, use_dora=True, modules_to_save=["lm_head"], init_lora_weights=False
    ),
    "ia3": lambda: peft.IA3Config(
        target_modules=["k_proj", "down_proj"], feedforward_modules=["down_proj"], init_ia3_weights=False
    ),
    "loha": lambda: peft.LoHaConfig(r=2, target_modules=PROJECTIONS, init_weights=False),
}


def adapted(kind: str, tmp_path: Path) -> tuple[Any, Any, Path]:
    """A model with the adapter, the same with it merged, and the folder of the adapter."""
    tiny_llama().save_pretrained(tmp_path / "base")
    base = LlamaForCausalLM.from_pretrained(tmp_path / "base")
    torch.manual_seed(1)
    model = peft.get_peft_model(base, KINDS[kind]()).eval()
    model.save_pretrained(tmp_path / "adapter")
    return model, copy.deepcopy(model).merge_and_unload().eval(), tmp_path / "adapter"


@pytest.mark.parametrize("kind", first_fast(KINDS))
@torch.no_grad()
def test_an_adapter_runs_plans_attached_and_from_its_folder_and_is_saved_merged(kind: str, tmp_path: Path) -> None:
    model, merged, folder = adapted(kind, tmp_path)
    attached, opened = load(model), load(folder)
    assert opened.source.name == str(folder)
    for text in ("0 3", "3 1 0", "0 1 1 3"):
        expected = by_hand(merged, list(Plan.parse(text).order()))[0]
        with attached.under(text):
            torch.testing.assert_close(model(input_ids=IDS).logits, expected, rtol=1e-4, atol=1e-4)
        torch.testing.assert_close(opened.logits(text, input_ids=IDS), expected, rtol=1e-4, atol=1e-4)
    save(folder, "0 1 1 3", tmp_path / "saved")
    saved = LlamaForCausalLM.from_pretrained(tmp_path / "saved").eval()
    torch.testing.assert_close(saved(IDS).logits, expected, rtol=1e-4, atol=1e-4)
    for stack in (attached, load(model.base_model.model)):
        with pytest.raises(UnsupportedModel, match=r"has adapters of peft.*merge_and_unload"):
            save(stack, "0 3", tmp_path / "refused")


def test_an_adapter_that_cannot_be_opened_says_what_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _, _, folder = adapted("lora of two layers", tmp_path)
    described = json.loads((folder / "adapter_config.json").read_text())

    def describe(**changes: Any) -> None:
        (folder / "adapter_config.json").write_text(json.dumps({**described, **changes}))

    for base in (None, "", str(tmp_path / "nowhere")):
        describe(base_model_name_or_path=base)
        with pytest.raises(CheckpointError, match=r"is an adapter, and its base model .* cannot be found"):
            layerwise.load(folder)
    describe(base_model_name_or_path="demo")
    with pytest.raises(UnsupportedModel, match="is an adapter that cannot be merged into its base model"):
        load(folder)
    describe()
    monkeypatch.setattr(adapters, "find_spec", lambda name: None)
    with pytest.raises(ModelError, match=r"which the package peft merges: pip install 'layerwise\[heal\]'"):
        load(folder)
    monkeypatch.undo()
    (folder / "adapter_model.safetensors").rename(folder / "adapter_model.bin")
    with pytest.raises(CheckpointError, match="Pickled weights are refused"):
        load(folder)


def test_prompts_are_not_merged(tmp_path: Path) -> None:
    tiny_llama().save_pretrained(tmp_path / "base")
    base = LlamaForCausalLM.from_pretrained(tmp_path / "base")
    prompts = peft.PromptTuningConfig(task_type="CAUSAL_LM", num_virtual_tokens=2)
    peft.get_peft_model(base, prompts).save_pretrained(tmp_path / "adapter")
    with pytest.raises(UnsupportedModel, match=r"cannot be merged.*Attach it to the model"):
        load(tmp_path / "adapter")
