"""Weights that are exchanged, drawn again, quantized, spread or on the disk."""

import logging
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from accelerate.hooks import ModelHook, add_hook_to_module
from torch import Tensor, nn
from transformers import LlamaForCausalLM

from conftest import tiny_llama
from layerwise.errors import ModelError, UnsupportedModelError
from layerwise.measure.gradients.proxies import differentiable
from layerwise.measure.interventions.sweep import sweep
from layerwise.measure.weights.deltas import deltas
from layerwise.plan import Plan, Reduction
from layerwise.runner.opening import open_base
from layerwise.stack import Stack, load, weight_hash
from layerwise.stack.executors.capture import Merger
from layerwise.stack.inputs import main_tensor
from layerwise.stack.quantization import quantization_method
from layerwise.stack.weights import apply_with, layer_weights, make_random_init
from measure.interventions.test_sweep_pieces import text
from stack.test_stack import Mixer

PLANS = ("0-5", "0 2-5", "0 4 2 3 1 5", "0 1*3 5*2", "0 (1|2|3):gain=0.5 (2|4) 5")
IDS = torch.arange(3, 27).view(2, 12)
OUTSIDE = ("model.embed_tokens", "model.norm", "model.rotary_emb", "lm_head")
MAP = dict.fromkeys(OUTSIDE, "cpu") | {f"model.layers.{n}": "cpu" if n in (1, 4) else "disk" for n in range(6)}


def _torchao() -> Any:
    pytest.importorskip("torchao", reason="torchao is not installed")
    from torchao.quantization import Int8WeightOnlyConfig

    return transformers.TorchAoConfig(Int8WeightOnlyConfig())


def _quanto(weights: str) -> Any:
    pytest.importorskip("optimum.quanto", reason="optimum-quanto is not installed")
    return transformers.QuantoConfig(weights=weights)


def _bits(**options: Any) -> Any:
    pytest.importorskip("bitsandbytes", reason="bitsandbytes is not installed")
    logging.getLogger("bitsandbytes").setLevel(logging.ERROR)
    return transformers.BitsAndBytesConfig(**options)


QUANTIZED: dict[str, Callable[[], Any]] = {
    **{f"quanto {weights}": partial(_quanto, weights) for weights in ("int8", "float8")},
    "torchao int8": _torchao,
    "bitsandbytes nf4": partial(
        _bits, load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_compute_dtype=torch.float32
    ),
    "bitsandbytes int8": partial(_bits, load_in_8bit=True),
}
ELSEWHERE: dict[str, dict[str, Any]] = {"two at a time": {"resident_layers": 2}, "spread": {"device_map": MAP}}


def quantized(folder: Path, way: str) -> Any:
    return transformers.AutoModelForCausalLM.from_pretrained(
        folder, quantization_config=QUANTIZED[way](), device_map={"": "cpu"}, dtype=torch.float32
    ).eval()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("plain")
    tiny_llama().save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def whole(folder: Path) -> Stack:
    return load(folder, device="cpu")


@pytest.fixture(
    scope="module", params=[*ELSEWHERE, *(pytest.param(name, marks=pytest.mark.slow) for name in QUANTIZED)]
)
def stack(request: pytest.FixtureRequest, folder: Path) -> Stack:
    if request.param in ELSEWHERE:
        return load(folder, **ELSEWHERE[request.param])
    return load(quantized(folder, request.param))


def references(stack: Stack, whole: Stack) -> list[Stack]:
    return [stack] if quantization_method(stack.model) else [stack, whole]


def hooks(stack: Stack) -> list[Any]:
    names = ("_hf_hook", "_old_forward", "forward")
    return [[vars(each).get(name) for name in names] for each in stack.model.modules()]


@torch.no_grad()
def inside(stack: Stack, plan: str) -> Tensor:
    captured = stack.capture(input_ids=IDS)
    stepwise = main_tensor(stack.finish(stack.run(plan, captured), captured.inputs))
    with stack.under(plan):
        output = main_tensor(stack.model(input_ids=IDS))
    assert torch.equal(output, stepwise)
    return output


def test_plans_in_place_are_plans_step_by_step_and_those_of_the_model_in_memory(stack: Stack, whole: Stack) -> None:
    before = hooks(stack)
    outputs = [[inside(each, plan) for plan in PLANS] for each in references(stack, whole)]
    assert all(map(torch.equal, outputs[0], outputs[-1]))
    assert torch.equal(outputs[0][0], main_tensor(stack.model(input_ids=IDS)))
    assert not any(torch.equal(outputs[0][0], other) for other in outputs[0][1:])
    assert hooks(stack) == before


@pytest.mark.slow
@pytest.mark.parametrize("way", ELSEWHERE)
def test_sublayers_run_with_weights_elsewhere(folder: Path, whole: Stack, way: str) -> None:
    assert torch.equal(inside(load(folder, **ELSEWHERE[way]), "3 5.attn 0 4.mlp"), inside(whole, "3 5.attn 0 4.mlp"))


@torch.no_grad()
def test_generation_with_a_cache_is_recomputation(stack: Stack, whole: Stack) -> None:
    for plan in ("0 4 (1|2) 3*2 5", "3 1"):
        written = []
        for each in references(stack, whole):
            with each.under(plan):
                for cached in (True, False):
                    options = {"max_new_tokens": 3, "do_sample": False, "eos_token_id": None, "use_cache": cached}
                    written.append(each.model.generate(IDS, **options))
        assert all(torch.equal(written[0], each) for each in written[1:])


def test_rows_and_hash_are_those_of_the_model_in_memory_or_of_one_plan_at_a_time(stack: Stack, whole: Stack) -> None:
    rows = sweep(stack, PLANS, text(1))
    assert {row.plan for row in rows} == {str(Plan.parse(plan)) for plan in PLANS}
    if quantization_method(stack.model):
        alone = sweep(stack, PLANS[2:3], text(1))
        assert [row for row in rows if row.plan == PLANS[2]] == [row for row in alone if row.plan == PLANS[2]]
        assert len(weight_hash(stack.model)) == 64
    else:
        assert sorted(rows, key=repr) == sorted(sweep(whole, PLANS, text(1)), key=repr)
        assert weight_hash(stack.model) == weight_hash(whole.model)


def _differentiate(stack: Stack) -> None:
    with differentiable(stack):
        pass


NEED_ALL: tuple[Callable[[Stack], Any], ...] = (lambda stack: make_random_init(stack, 0),)
NEED_NUMBERS: tuple[Callable[[Stack], Any], ...] = (lambda stack: deltas(stack, seed=0), open_base, _differentiate)


def test_verbs_that_need_loaded_weights_are_refused(stack: Stack) -> None:
    is_quantized = quantization_method(stack.model)
    reason = (
        r"cannot .* is quantized \(\w+.*use the checkpoint before quantization"
        if is_quantized
        else "cannot draw a randomly initialized model: it requires all layers of"
    )
    for asks in (*NEED_ALL, *NEED_NUMBERS) if is_quantized else NEED_ALL:
        with pytest.raises(UnsupportedModelError, match=reason):
            asks(stack)


def test_a_spread_layer_is_read_where_it_is_in_memory_and_one_way_is_enough(folder: Path) -> None:
    spread = load(folder, device_map=MAP)
    assert sum(each.is_meta for each in spread.model.parameters()) == 4 * 9
    assert len(layer_weights(spread, 1)) == 9
    with pytest.raises(UnsupportedModelError, match="without a device map that offloads"):
        layer_weights(spread, 0)
    with pytest.raises(ModelError, match="--resident-layers and --device-map are mutually exclusive"):
        load(folder, device_map=MAP, resident_layers=2)


def test_a_quantized_checkpoint_opens_as_it_was_saved(tmp_path: Path, folder: Path) -> None:
    model = quantized(folder, "torchao int8")
    model.save_pretrained(tmp_path)
    opened = load(tmp_path, device="cpu")
    assert quantization_method(opened.model) == "torchao"
    assert quantization_method(tiny_llama()) is None
    with torch.no_grad():
        assert torch.equal(main_tensor(opened.model(input_ids=IDS)), main_tensor(model(input_ids=IDS)))
    with pytest.raises(
        UnsupportedModelError, match="is quantized, and the layers of such a model cannot be read one by on"
    ):
        load(tmp_path, resident_layers=2)


def test_a_hook_of_any_kind_is_run_for_the_visit() -> None:
    called: list[object] = []

    class Noting(ModelHook):
        def pre_forward(self, module: Any, *args: Any, **kwargs: Any) -> Any:
            called.append(module.self_attn.layer_idx)
            return args, kwargs

    model = tiny_llama()
    add_hook_to_module(model.model.layers[1], Noting())
    stack = load(model)
    called.clear()
    with stack.under("0 3 1 2"), torch.no_grad():
        model(input_ids=IDS)
    assert called == [2]  # the visit's own slot, and not the block's


def test_branches_are_merged_where_their_group_began() -> None:
    merger = Merger(torch.zeros(2, 3, device="meta"))
    merger.add(torch.ones(2, 3))
    assert merger.result(Reduction("mean")).device == torch.device("meta")


def test_a_layer_runs_with_given_weights_which_are_not_copied(llama: LlamaForCausalLM, ids: torch.Tensor) -> None:
    stack = load(llama)
    with torch.inference_mode():
        captured = stack.capture(input_ids=ids)
        expected = stack.apply(4, captured.state, captured)
        found = apply_with(stack, 1, layer_weights(stack, 4), captured.state, captured)
        own = apply_with(stack, 1, {}, captured.state, captured)
        same = stack.apply(1, captured.state, captured)
    assert torch.equal(found, expected)
    assert torch.equal(own, same)

    stack = load(llama)
    own = llama.model.layers[2].self_attn.q_proj.weight
    assert layer_weights(stack, 2)["self_attn.q_proj.weight"].data_ptr() == own.data_ptr()


def test_a_random_init_is_another_draw_of_the_same_model(
    llama: LlamaForCausalLM, monkeypatch: pytest.MonkeyPatch
) -> None:
    stack = load(llama)
    state = torch.random.get_rng_state()
    seeded: list[int] = []
    for accelerator in (torch.cuda, torch.xpu, torch.mps):
        monkeypatch.setattr(accelerator, "manual_seed_all", seeded.append, raising=False)
        monkeypatch.setattr(accelerator, "manual_seed", seeded.append)
    first, again, other = make_random_init(stack, 3), make_random_init(stack, 3), make_random_init(stack, 4)
    assert torch.equal(torch.random.get_rng_state(), state)
    assert seeded == []
    assert weight_hash(first.model) == weight_hash(again.model)
    assert len({weight_hash(each.model) for each in (stack.model, first.model, other.model)}) == 3
    assert first.depth == stack.depth
    shapes = [{name: value.shape for name, value in layer_weights(each, 0).items()} for each in (stack, first)]
    assert shapes[0] == shapes[1]


def test_models_that_cannot_be_drawn_again_have_no_random_init(llama: LlamaForCausalLM) -> None:
    with pytest.raises(UnsupportedModelError, match="Mixer is not a transformers model"):
        make_random_init(load(Mixer(), layers="encoder.blocks"), 0)

    llama.model.layers[2].mlp.gate_proj = nn.Linear(32, 96, bias=False)
    llama.model.layers[2].mlp.up_proj = nn.Linear(32, 96, bias=False)
    llama.model.layers[2].mlp.down_proj = nn.Linear(96, 32, bias=False)
    with pytest.raises(
        UnsupportedModelError, match="LlamaForCausalLM has weights whose shapes differ from its configuration"
    ):
        make_random_init(load(llama), 0)
