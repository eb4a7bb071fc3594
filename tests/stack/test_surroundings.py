"""A model that is changed, saved, moved, trained or copied, also under a plan, works as usual, or refuses."""

import copy
import json
import pickle
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import peft
import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor, nn
from transformers import DynamicCache, LlamaConfig, LlamaForCausalLM, LlamaModel, StaticCache, Trainer

import layerwise
from conftest import tiny_llama
from layerwise.checkpoint import save
from layerwise.errors import CheckpointError, ModelError, PlanError, UnsupportedModelError
from layerwise.plan import Plan
from layerwise.stack import Stack, adapters, load
from stack.makers import IDS, bart, gemma
from tier import first_fast
from train.tiny_models import arguments

PLANS = ("(5|4|3) 2-0", "5-0", "0 1*3", "2.mlp 0")


@pytest.fixture
def stack() -> Stack:
    return load(tiny_llama())


def logits(model: nn.Module) -> torch.Tensor:
    with torch.inference_mode():
        found: torch.Tensor = model(IDS).logits
        return found


@pytest.mark.parametrize("text", first_fast(PLANS, 2))
def test_the_model_itself_is_saved(stack: Stack, text: str, tmp_path: Path) -> None:
    model = stack.model
    own, weights = logits(model), {name: value.clone() for name, value in model.state_dict().items()}
    with stack.under(Plan.parse(text)):
        assert list(model.state_dict()) == list(weights)
        assert [name for name, _ in model.named_parameters()] == list(weights)
        model.save_pretrained(tmp_path / "inside")
    model.save_pretrained(tmp_path / "outside")
    described = [json.loads((tmp_path / side / "config.json").read_text()) for side in ("inside", "outside")]
    assert described[0] == described[1]
    inside, outside = (load_file(tmp_path / side / "model.safetensors") for side in ("inside", "outside"))
    assert inside.keys() == outside.keys()
    assert all(torch.equal(inside[name], outside[name]) for name in inside)
    opened = LlamaForCausalLM.from_pretrained(tmp_path / "inside").eval()
    torch.testing.assert_close(logits(opened), own, rtol=1e-5, atol=1e-5)


def test_a_trainers_checkpoint_is_the_model_after_exit(stack: Stack, tmp_path: Path) -> None:
    rows = [{"input_ids": row, "labels": row} for row in IDS]
    options = arguments(tmp_path, max_steps=2, save_strategy="steps", save_steps=2)
    before = {name: value.clone() for name, value in stack.model.state_dict().items()}
    with stack.under(Plan.parse("5-0")):
        Trainer(stack.model, options, train_dataset=rows).train()
    kept = load_file(tmp_path / "checkpoint-2" / "model.safetensors")
    after = stack.model.state_dict()
    assert all(torch.equal(kept[name], after[name]) for name in kept)
    assert not any(torch.equal(before[name], after[name]) for name in before if "proj" in name)
    assert json.loads((tmp_path / "checkpoint-2" / "config.json").read_text())["num_hidden_layers"] == 6


def load_other_weights(model: nn.Module, assign: bool) -> None:
    model.load_state_dict({name: value + 0.01 for name, value in model.state_dict().items()}, assign=assign)


CHANGES: dict[str, Callable[[Any], Any]] = {
    "weights loaded": partial(load_other_weights, assign=False),
    "weights assigned": partial(load_other_weights, assign=True),
    "to float64": lambda model: model.to(torch.float64),
    "a layer is changed": lambda model: nn.init.normal_(model.get_submodule("model.layers.2.mlp.up_proj").weight),
    "a hook is added": lambda model: model.get_submodule("model.layers.2").register_forward_hook(
        lambda module, args, output: output * 1.5
    ),
    "a submodule is exchanged": lambda model: setattr(
        model.get_submodule("model.layers.2.mlp"), "up_proj", nn.Linear(32, 64, bias=False)
    ),
    "adapters": lambda model: add_adapters(model),
}


class Adapter(nn.Module):
    def __init__(self, base: nn.Linear) -> None:
        super().__init__()
        self.base = base
        self.down, self.up = nn.Linear(base.in_features, 1, bias=False), nn.Linear(1, base.out_features, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.base(x) + self.up(self.down(x))


def add_adapters(model: nn.Module) -> None:
    for name, module in list(model.named_modules()):
        if name.endswith("q_proj"):
            parent, _, own = name.rpartition(".")
            setattr(model.get_submodule(parent), own, Adapter(module))  # type: ignore[arg-type]


@pytest.mark.parametrize("single_pass", first_fast([False, True]))
@pytest.mark.parametrize("change", CHANGES)
def test_a_change_inside_counts_at_once_and_stays(stack: Stack, change: str, single_pass: bool) -> None:
    plan = Plan.parse("1*2 (2|3) 2 0")
    before = logits(stack.model)
    torch.manual_seed(4)
    with stack.under(plan, single_pass=single_pass):
        untouched = logits(stack.model)
        CHANGES[change](stack.model)
        inside = logits(stack.model)
    with torch.inference_mode():
        afterwards = stack.logits(plan, input_ids=IDS)
    assert (inside - untouched).abs().max() > 1e-9
    torch.testing.assert_close(inside, afterwards, rtol=1e-5, atol=1e-5)
    assert inside.dtype == afterwards.dtype == next(stack.model.parameters()).dtype
    assert (logits(stack.model) - before).abs().max() > 1e-9


@pytest.mark.parametrize("single_pass", [True, False])
def test_the_mode_of_training_and_checkpointing_reach_every_visit(stack: Stack, single_pass: bool) -> None:
    model = stack.model
    seen: list[bool] = []
    for layer in model.model.layers:
        layer.self_attn.register_forward_hook(lambda module, *_: seen.append(module.training))
    with stack.under(Plan.parse("0*2 (1|2) 3"), single_pass=single_pass):
        model.train()
        model(IDS)
        model.eval()
        model(IDS)
        assert seen == [True] * 5 + [False] * 5
        model.train()
        model.gradient_checkpointing_enable({"use_reentrant": False})
        model(IDS, labels=IDS).loss.backward()
        assert len(seen) == 20, "five visits, and five recomputed"
    assert model.training
    assert model.model.layers[0].gradient_checkpointing


COPIES: dict[str, Callable[[Any], Any]] = {
    "deepcopy": copy.deepcopy,
    "pickle": pickle.dumps,
    "a visit is copied": lambda model: copy.deepcopy(model.model.layers[0]),
    "a visit is pickled": lambda model: pickle.dumps(model.model.layers[0]),
    "a layer is added": lambda model: model.model.layers.append(nn.Identity()),
}


@pytest.mark.parametrize("attempt", COPIES)
def test_copies_are_refused_with_what_to_do_instead(stack: Stack, attempt: str) -> None:
    with stack.under(Plan.parse("5 (0|1)")), pytest.raises(ModelError, match=r"[Ll]eave `with"):
        COPIES[attempt](stack.model)
    assert torch.equal(logits(copy.deepcopy(stack.model)), logits(stack.model))


def test_models_built_from_the_classes_of_a_running_model_are_ordinary(stack: Stack, tmp_path: Path) -> None:
    body: Any = load(stack.model.model)  # its own class is exchanged, not only those of its modules
    model, config = body.model, stack.model.config
    model.save_pretrained(tmp_path / "whole")
    with body.under("5 0"):
        made = [type(model)(config), type(model).from_pretrained(tmp_path / "whole"), type(model)(model.config)]
        layer, blocks = type(model.layers[0])(config, 0), type(model.layers)([nn.Identity()])
    assert {type(each) for each in made} == {LlamaModel}
    assert [len(each.layers) for each in made] == [each.config.num_hidden_layers for each in made] == [6, 6, 2]
    assert [type(layer), type(blocks)] == [type(model.layers[0]), nn.ModuleList]
    for each in made:
        each.eval().save_pretrained(tmp_path / "again")
        copies = [copy.deepcopy(each), pickle.loads(pickle.dumps(each)), LlamaModel.from_pretrained(tmp_path / "again")]
        with torch.inference_mode(), load(each).under("1 0*3"):
            expected = each(IDS).last_hidden_state
        for other in copies:
            assert type(other.config) is LlamaConfig
            with torch.inference_mode():
                assert torch.equal(load(other.eval()).output("1 0*3", input_ids=IDS).last_hidden_state, expected)


def test_an_encoder_decoders_cache_is_as_deep_as_the_plan() -> None:
    model = bart()
    stack = Stack(model, "model.decoder.layers")
    asked = {"max_new_tokens": 4, "min_new_tokens": 4, "do_sample": False, "num_beams": 1}
    with stack.under(Plan.parse("2 0*3 (1|0)")):
        assert model.config.get_text_config(decoder=True).num_hidden_layers == 6
        cached = model.generate(IDS, use_cache=True, **asked)
        recomputed = model.generate(IDS, use_cache=False, **asked)
    assert torch.equal(cached, recomputed)


HOOKED = ("0 (1|2 3) 4 5", "0 (1 2|3):sum 4", "[(1|3)*2 1]*2 5", "3 1")


@pytest.mark.parametrize("single_pass", [True, False])
@pytest.mark.parametrize("text", first_fast(HOOKED, 2))
def test_hooks_see_in_place_what_they_see_step_by_step(stack: Stack, text: str, single_pass: bool) -> None:
    plan = Plan.parse(text)
    seen: list[tuple[str, torch.Tensor]] = []
    for layer in (1, 3):
        block = stack.block(layer)
        block.register_forward_pre_hook(lambda module, args, layer=layer: seen.append((f"into {layer}", args[0])))
        block.register_forward_hook(lambda module, args, output, layer=layer: seen.append((f"from {layer}", output)))
    with torch.inference_mode():
        captured = stack.capture(input_ids=IDS)
        seen.clear()
        stack.run(plan, captured)
        stepwise = list(seen)
        seen.clear()
        with stack.under(plan, single_pass=single_pass):
            stack.model(IDS)
    assert [name for name, _ in seen] == [name for name, _ in stepwise]
    for (name, inside), (_, reference) in zip(seen, stepwise, strict=True):
        torch.testing.assert_close(inside, reference, rtol=1e-5, atol=1e-5, msg=name)


def test_what_a_hook_returns_is_what_is_merged(stack: Stack) -> None:
    plan = Plan.parse("0 (1|2 3) 4 5")
    stack.block(1).register_forward_hook(lambda module, args, output: output * 2)
    stack.block(3).register_forward_pre_hook(lambda module, args: (args[0] / 2, *args[1:]))
    with torch.inference_mode():
        stepwise = stack.logits(plan, input_ids=IDS)
        with stack.under(plan):
            torch.testing.assert_close(stack.model(IDS).logits, stepwise, rtol=1e-5, atol=1e-5)


def test_forwards_replaced_or_called_alone_under_a_plan_are_refused(stack: Stack) -> None:
    block = stack.block(2)
    with stack.under(Plan.parse("2 0")):
        block.forward = partial(type(block).forward, block)
        with pytest.raises(ModelError, match="was replaced while"):
            stack.model(IDS)

    with stack.under(Plan.parse("(0|1) 2")), pytest.raises(ModelError, match="called outside a forward pass"):
        next(iter(stack.model.model.layers))(torch.zeros(1, 2, 32), position_embeddings=(torch.ones(1, 2, 8),) * 2)


def test_a_forward_that_was_replaced_before_is_run_at_the_position_of_the_visit(stack: Stack) -> None:
    expected = {}
    plan = Plan.parse("5 0*2 (1|2)")
    ask = {"max_new_tokens": 4, "do_sample": False, "min_new_tokens": 4}
    with stack.under(plan):
        expected["tokens"] = stack.model.generate(IDS, **ask)
    for module in stack.model.model.layers.modules():
        if hasattr(module, "layer_idx") or module in list(stack.model.model.layers):
            module._old_forward = module.forward
            module.forward = partial(lambda self, *args, **kwargs: self._old_forward(*args, **kwargs), module)
    with stack.under(plan):
        assert torch.equal(stack.model.generate(IDS, **ask), expected["tokens"])


def test_a_single_pass_refuses_a_cache(stack: Stack) -> None:
    ask = {"max_new_tokens": 3, "min_new_tokens": 3, "do_sample": False}
    plan = Plan.parse("5 0 1")
    with stack.under(plan):
        expected = stack.model.generate(IDS, **ask)
    with stack.under(plan, single_pass=True):
        with pytest.raises(ModelError, match="caches are not supported with single_pass=True"):
            stack.model.generate(IDS, **ask)
        assert torch.equal(stack.model.generate(IDS, use_cache=False, **ask), expected)


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


BLOCK_CHANGES: list[Callable[[Any], None]] = [replace_list, delete_one, replace_entry, append_one, add_adapters]


@pytest.mark.parametrize("change", BLOCK_CHANGES)
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
