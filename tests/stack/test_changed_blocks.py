"""Blocks that a user changes: the next plan runs them, also with adapters of peft."""

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import peft
import pytest
import torch
from torch import Tensor, nn
from transformers import DynamicCache, LlamaForCausalLM, StaticCache

import layerwise
from conftest import tiny_llama
from layerwise.checkpoint import save
from layerwise.errors import CheckpointError, ModelError, PlanError, UnsupportedModelError
from layerwise.plan import Plan
from layerwise.stack import adapters, load
from stack.makers import IDS, gemma
from tier import first_fast


def replace_list(model: Any) -> None:
    model.model.layers = nn.ModuleList(copy.deepcopy(list(model.model.layers[::-1])))


def delete_one(model: Any) -> None:
    del model.model.layers[3]


def replace_entry(model: Any) -> None:
    other = tiny_llama(seed=5).model.layers[2]
    model.model.layers[1] = other


def append_one(model: Any) -> None:
    model.model.layers.append(copy.deepcopy(model.model.layers[0]))
    model.config.num_hidden_layers = 7


class Adapted(nn.Module):
    def __init__(self, base: nn.Linear) -> None:
        super().__init__()
        self.base, self.down, self.up = base, nn.Linear(base.in_features, 2), nn.Linear(2, base.out_features)

    def forward(self, x: Tensor) -> Tensor:
        return self.base(x) + self.up(self.down(x))


def adapt(model: Any) -> None:
    for layer in model.model.layers:
        layer.self_attn.q_proj = Adapted(layer.self_attn.q_proj)


def by_hand(model: Any, order: list[int]) -> tuple[Tensor, Tensor]:
    made = copy.deepcopy(model)
    made.model.layers = nn.ModuleList(copy.deepcopy(model.model.layers[layer]) for layer in order)
    for slot, block in enumerate(made.model.layers):
        block.self_attn.layer_idx = slot
    made.config.num_hidden_layers = len(order)
    if getattr(made.config, "layer_types", None):
        made.config.layer_types = [made.config.layer_types[layer] for layer in order]
    return made(IDS, use_cache=False).logits, decode(made)


def decode(model: Any) -> Tensor:
    return model.generate(IDS, max_new_tokens=6, min_new_tokens=6, do_sample=False)


CHANGES: list[Callable[[Any], None]] = [replace_list, delete_one, replace_entry, append_one, adapt]


@pytest.mark.parametrize("change", CHANGES)
@torch.no_grad()
def test_the_next_plan_runs_the_blocks_that_the_model_has_now(change: Callable[[Any], None]) -> None:
    model = tiny_llama()
    stack = load(model)
    captured = stack.capture(input_ids=IDS)
    stack.branches()
    torch.manual_seed(1)
    change(model)
    depth = len(model.model.layers)
    assert stack.depth == depth
    for order in ([0, 2, 2, depth - 1], [*range(depth)][::-1]):
        text = " ".join(map(str, order))
        logits, tokens = by_hand(model, order)
        torch.testing.assert_close(stack.logits(text, input_ids=IDS), logits, rtol=1e-4, atol=1e-4)
        with stack.under(text):
            torch.testing.assert_close(model(IDS, use_cache=False).logits, logits, rtol=1e-4, atol=1e-4)
            assert torch.equal(decode(model), tokens)
    with pytest.raises(PlanError, match=f"{depth}"):
        stack.check(f"0-{depth}")
    if depth != 6:
        with pytest.raises(ModelError, match=f"{depth} layers, got 6"):
            stack.run("0", captured)


@pytest.mark.parametrize("keep", first_fast([(3, 1, 0, 1), (0, 1, 4, 5), (2, 3, 4)]))
@pytest.mark.parametrize("make", [tiny_llama, gemma])
@torch.no_grad()
def test_a_list_put_together_by_hand_runs_plans_whatever_the_configuration_counts(
    make: Callable[[], Any], keep: tuple[int, ...]
) -> None:
    whole = make().eval()
    for is_counted in (False, True) if len(set(keep)) == len(keep) else (True,):
        cut = copy.deepcopy(whole)
        cut.model.layers = nn.ModuleList(copy.deepcopy(whole.model.layers[layer]) for layer in keep)
        if is_counted:
            cut.config.num_hidden_layers = len(keep)
            if getattr(cut.config, "layer_types", None):
                cut.config.layer_types = [whole.config.layer_types[layer] for layer in keep]
        stack = load(cut)
        for order in ([*range(len(keep))], [2, 1, 0, 0], [0, 2]):
            logits, tokens = by_hand(whole, [keep[layer] for layer in order])
            with stack.under(" ".join(map(str, order))):
                torch.testing.assert_close(cut(IDS, use_cache=False).logits, logits, rtol=1e-4, atol=1e-4)
                assert torch.equal(decode(cut), tokens)


def test_a_list_of_other_kinds_than_the_configuration_describes_is_refused_with_the_numbers_of_its_blocks() -> None:
    model = gemma().eval()
    model.model.layers = nn.ModuleList(model.model.layers[layer] for layer in (0, 2, 3, 5))
    with pytest.raises(UnsupportedModelError, match="Its blocks have layer_idx 0, 2, 3, 5"):
        load(model)


def test_blocks_that_cannot_run_plans_are_refused_at_the_next_plan() -> None:
    model = tiny_llama()
    stack = load(model)
    model.model.layers[2] = model.model.layers[1]
    with pytest.raises(UnsupportedModelError, match="blocks 1 and 2 share parameters"), stack.under("0-3"):
        pass


@pytest.mark.parametrize("cache", [DynamicCache, lambda config: StaticCache(config, max_cache_len=32)])
def test_a_captured_batch_takes_no_cache(cache: Callable[..., Any]) -> None:
    model = gemma().eval()
    stack = load(model)
    with torch.no_grad():
        filled = model(IDS, past_key_values=cache(config=model.config)).past_key_values
    for run in (stack.capture, stack.inspect, lambda **inputs: stack.logits("0", **inputs)):
        with pytest.raises(ModelError, match="past_key_values must not be among the inputs"):
            run(input_ids=IDS, past_key_values=filled)


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
        with pytest.raises(UnsupportedModelError, match=r"has peft adapters.*merge_and_unload"):
            save(stack, "0 3", tmp_path / "refused")


def test_an_adapter_that_cannot_be_opened_says_what_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _, _, folder = adapted("lora of two layers", tmp_path)
    described = json.loads((folder / "adapter_config.json").read_text())

    def describe(**changes: Any) -> None:
        (folder / "adapter_config.json").write_text(json.dumps({**described, **changes}))

    for base in (None, "", str(tmp_path / "nowhere")):
        describe(base_model_name_or_path=base)
        with pytest.raises(CheckpointError, match=r"is an adapter whose base model .* cannot be found"):
            layerwise.load(folder)
    describe(base_model_name_or_path="demo")
    with pytest.raises(UnsupportedModelError, match="is an adapter that cannot be merged into its base model"):
        load(folder)
    describe()
    monkeypatch.setattr(adapters, "find_spec", lambda name: None)
    with pytest.raises(ModelError, match="merging the adapter"):
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
    with pytest.raises(UnsupportedModelError, match=r"cannot be merged.*Attach it to the model"):
        load(tmp_path / "adapter")
