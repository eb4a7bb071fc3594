from functools import cache
from typing import Any

import pytest
import torch
import transformers
from torch import Tensor, nn
from transformers import LlamaConfig, LlamaForCausalLM
from transformers.integrations import moe

from contracts import specimen
from contracts.zoo import SUPPORTED
from layerwise.errors import MeasureError
from layerwise.measure.cost import flops
from layerwise.measure.cost.flops import OperationCounter, model_cost
from layerwise.stack import Stack, load
from tier import first_fast
from train.tiny_models import VOCABULARY, WIDTH, tiny_llama, tiny_vit


def matrices(module: nn.Module) -> int:
    return sum(weight.numel() for weight in module.parameters() if weight.ndim > 1)


@pytest.mark.parametrize("length", [1, 6, 17])
def test_layer_flops_match_weights_and_attention(length: int) -> None:
    model = tiny_llama()
    attention = 2 * 2 * length * WIDTH  # scores, and the mean of the values; a multiply-add is two operations
    cost = model_cost(load(model), length)
    assert cost.layers == (2 * matrices(model.model.layers[0]) + attention,) * 3
    assert cost.head == 2 * VOCABULARY * WIDTH
    assert cost.embedding == 0


def test_layers_are_counted_separately() -> None:
    torch.manual_seed(0)
    model = LlamaForCausalLM(LlamaConfig(**tiny_llama().config.to_dict()))
    mlp = model.model.layers[1].mlp
    mlp.gate_proj, mlp.up_proj, mlp.down_proj = nn.Linear(16, 80), nn.Linear(16, 80), nn.Linear(80, 16)
    cost = model_cost(load(model), 4)
    assert cost.layers[0] == cost.layers[2]
    assert cost.layers[1] - cost.layers[0] == 2 * 3 * 16 * (80 - 24)


def test_image_model_cost_is_per_image() -> None:
    model = tiny_vit()
    cost = model_cost(load(model))
    tokens, patches = 5, 4
    linear = 2 * matrices(model.vit.layers[0]) * tokens
    assert cost.layers == (linear + 2 * 2 * tokens * tokens * WIDTH,) * 3
    assert cost.embedding == 2 * matrices(model.vit.embeddings.patch_embeddings) * patches
    assert cost.head == 2 * 10 * WIDTH


def test_uncounted_layer_costs_twice_its_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    stack = load(tiny_llama())
    weights = sum(weight.numel() for weight in stack.block(0).parameters())
    own = Stack.apply

    def unseen(self: Stack, layer: int, *args: object) -> Tensor:
        return args[0] * 1.0 if layer == 1 else own(self, layer, *args)  # type: ignore[operator, return-value, arg-type]

    monkeypatch.setattr(Stack, "apply", unseen)
    cost = model_cost(stack, 6)
    assert cost.layers[1] == 2 * weights
    assert cost.layers[0] == cost.layers[2] > cost.layers[1]


def test_unknown_inputs_are_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    stack = load(tiny_llama())
    monkeypatch.setattr(flops, "example_inputs", lambda model, length: None)
    with pytest.raises(MeasureError, match="Pass a ModelCost"):
        model_cost(stack, 6)


LENGTH = 6
HEADS, KEY_HEADS, HEAD_WIDTH = 4, 2, 4
EXPERTS, CHOSEN, INNER, SHARED = 8, 2, 24, 40
WORDS = 50

ATTENTION = (
    2 * WIDTH * HEADS * HEAD_WIDTH  # queries
    + 2 * 2 * WIDTH * KEY_HEADS * HEAD_WIDTH  # keys and values
    + 2 * 2 * LENGTH * HEADS * HEAD_WIDTH  # scores, and the mean of the values
    + 2 * HEADS * HEAD_WIDTH * WIDTH  # what goes out
)
ROUTER = 2 * WIDTH * EXPERTS
ROUTED = CHOSEN * 3 * 2 * WIDTH * INNER  # gate, up and down of every expert that a token is sent to
SHARED_EXPERT = 3 * 2 * WIDTH * SHARED + 2 * WIDTH  # and its gate, one number

MIXTURES: dict[str, tuple[dict[str, Any], int]] = {
    "Mixtral": ({"intermediate_size": INNER, "num_local_experts": EXPERTS}, ATTENTION + ROUTER + ROUTED),
    "Qwen2Moe": (
        {"moe_intermediate_size": INNER, "shared_expert_intermediate_size": SHARED, "num_experts": EXPERTS},
        ATTENTION + ROUTER + ROUTED + SHARED_EXPERT,
    ),
    "Qwen3Moe": ({"moe_intermediate_size": INNER, "num_experts": EXPERTS}, ATTENTION + ROUTER + ROUTED),
    "Olmoe": ({"intermediate_size": INNER, "num_experts": EXPERTS}, ATTENTION + ROUTER + ROUTED),
    "GptOss": ({"intermediate_size": INNER, "num_local_experts": EXPERTS}, ATTENTION + ROUTER + ROUTED),
}
"""Settings, and FLOPs of a layer per token."""


@cache
def mixture(name: str) -> Stack:
    torch.manual_seed(0)
    settings = {
        "vocab_size": WORDS,
        "hidden_size": WIDTH,
        "num_hidden_layers": 2,
        "num_attention_heads": HEADS,
        "num_key_value_heads": KEY_HEADS,
        "head_dim": HEAD_WIDTH,
        "num_experts_per_tok": CHOSEN,
        "max_position_embeddings": 4096,
        "pad_token_id": 0,
        "bos_token_id": 1,
        "eos_token_id": 2,
        **MIXTURES[name][0],
    }
    return load(getattr(transformers, f"{name}ForCausalLM")(getattr(transformers, f"{name}Config")(**settings)))


@pytest.mark.parametrize("kernel", ["eager", "grouped_mm", "batched_mm", "fallback"])
@pytest.mark.parametrize("name", MIXTURES)
def test_mixture_of_experts_costs_its_active_experts(name: str, kernel: str, monkeypatch: pytest.MonkeyPatch) -> None:
    stack = mixture(name)
    if kernel == "fallback":  # where torch's grouped product does not run: older GPUs, half-compiled models
        monkeypatch.setattr(moe, "_can_use_grouped_mm", lambda *_, **__: False)
    stack.model.set_experts_implementation("grouped_mm" if kernel == "fallback" else kernel)
    cost = model_cost(stack, LENGTH)
    assert cost.layers == pytest.approx((MIXTURES[name][1],) * 2, rel=1e-12)
    assert (cost.embedding, cost.head) == (0, 2 * WORDS * WIDTH)


@pytest.mark.parametrize("fallback", [False, True])
def test_training_step_of_grouped_products_costs_three_passes(fallback: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(moe, "_can_use_grouped_mm", lambda *_, **__: not fallback)
    rows, weights = torch.randn(10, 4, requires_grad=True), torch.randn(3, 4, 8, requires_grad=True)
    ends = torch.tensor([2, 2, 10], dtype=torch.int32)
    with OperationCounter() as forward:
        product = moe._grouped_mm(rows, weights, ends)
    with OperationCounter() as backward:
        product.backward(torch.ones_like(product))
    assert (forward.operations, backward.operations) == (2 * 10 * 4 * 8, 2 * 2 * 10 * 4 * 8)
    assert forward.unknown == backward.unknown == []


def cost_of(model_type: str) -> tuple[float, ...]:
    (one,) = (each for each in SUPPORTED if each.model_type == model_type)
    return model_cost(load(specimen.build(one)), LENGTH).layers


@pytest.mark.parametrize(("model_type", "inner"), [("bert", 48), ("gpt2", 4 * specimen.WIDTH)])
def test_dense_layer_flops_match_its_formula(model_type: str, inner: int) -> None:
    width = specimen.WIDTH
    expected = 2 * 4 * width**2 + 2 * 2 * LENGTH * width + 2 * 2 * width * inner
    assert cost_of(model_type) == (expected,) * specimen.DEPTH


def test_mamba_layer_flops_match_its_formula() -> None:
    """The convolution runs over padded text; only the scan's matrix products are counted."""
    (one,) = (each for each in SUPPORTED if each.model_type == "mamba")
    config = specimen.build(one).config
    width, inner, states, rank = config.hidden_size, config.intermediate_size, config.state_size, config.time_step_rank
    kernel = config.conv_kernel
    expected = (
        2 * width * 2 * inner  # in, with the gate
        + 2 * inner * kernel * (LENGTH + kernel - 1) / LENGTH
        + 2 * inner * (rank + 2 * states)  # the step, and how it writes and reads
        + 2 * rank * inner
        + 2 * inner * states  # what is read of the states
        + 2 * inner * width
    )
    assert cost_of("mamba") == pytest.approx((expected,) * specimen.DEPTH, rel=1e-12)


@pytest.mark.parametrize("model_type", first_fast(["deberta", "dbrx", "trocr", "longformer", "olmo_hybrid"], 3, slow=0))
def test_unusual_weights_are_counted(model_type: str) -> None:
    """Torch's counter fails on the first two without gradients; the others have projections that nothing reads."""
    assert min(cost_of(model_type)) > 0


@pytest.mark.parametrize(
    ("run", "operations"),
    [
        (lambda: torch.ones(3, 4) @ torch.ones(4), 2 * 3 * 4),
        (lambda: torch.ones(4) @ torch.ones(4), 2 * 4),
        (lambda: torch.addmv(torch.ones(3), torch.ones(3, 4), torch.ones(4)), 2 * 3 * 4),
        (lambda: nn.Linear(4, 3)(torch.ones(4)), 2 * 3 * 4),
        (
            lambda: torch.linalg.solve_triangular(torch.eye(5).expand(2, 5, 5), torch.ones(2, 5, 3), upper=False),
            2 * 3 * 5 * 5,
        ),
        (lambda: torch.linalg.solve_triangular(torch.eye(5), torch.ones(3, 5), upper=False, left=False), 3 * 5 * 5),
        (lambda: torch.ops.aten._grouped_mm(torch.ones(3, 8, 4), torch.ones(3, 4, 8)), 2 * 3 * 8 * 4 * 8),
        (lambda: torch.relu(torch.ones(3, 4) * torch.ones(3, 4)).softmax(-1), 0),
        (lambda: torch.cat([torch.ones(3, 4), torch.ones(3, 4)]).index_add_(0, torch.arange(3), torch.ones(3, 4)), 0),
    ],
)
def test_kernel_is_counted_by_its_formula(run: Any, operations: int) -> None:
    with torch.no_grad(), OperationCounter() as count:
        run()
    assert (count.operations, count.unknown) == (operations, [])


def test_inference_mode_does_not_change_the_count() -> None:
    with torch.inference_mode(), OperationCounter() as count:
        torch.einsum("ij,jk->ik", torch.ones(3, 4), torch.ones(4, 5)) @ torch.ones(5, 2)
    assert (count.operations, count.unknown) == (2 * 3 * 4 * 5 + 2 * 3 * 5 * 2, [])


def test_kernel_without_a_formula_is_recorded() -> None:
    with OperationCounter() as count:
        torch.cdist(torch.ones(3, 4), torch.ones(5, 4))
    assert count.operations == 0
    assert count.unknown == ["aten._cdist_forward.default of (3, 4) and (5, 4)"]


@torch.library.custom_op("layerwise_tests::mixed", mutates_args=())
def mixed(left: Tensor, right: Tensor) -> Tensor:
    return left @ right


def test_kernel_without_a_formula_is_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    model = tiny_llama()
    down = model.model.layers[1].mlp.down_proj
    monkeypatch.setattr(down, "forward", lambda state: mixed(state.flatten(0, 1), down.weight.T).view(2, -1, 16))
    with pytest.raises(MeasureError, match=r"the kernel layerwise_tests\.mixed.*of \(12, 24\) and.*in layer 1"):
        model_cost(load(model), LENGTH)


def out_of_sight(experts: Any, hidden: Tensor, chosen: Tensor, shares: Tensor) -> Tensor:
    weights = experts.down_proj.permute(1, 2, 0)
    return hidden * float(weights.data_ptr() > 0)


def test_invisible_experts_are_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(moe.ALL_EXPERTS_FUNCTIONS._global_mapping, "out of sight", out_of_sight)
    stack = mixture.__wrapped__("Mixtral")
    stack.model.set_experts_implementation("out of sight")
    with pytest.raises(
        MeasureError, match=r"which reads mlp\.experts\.gate_up_proj.*in layer 0.*experts_implementation"
    ):
        model_cost(stack, LENGTH)
