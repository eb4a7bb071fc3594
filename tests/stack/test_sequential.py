"""Blocks in an `nn.Sequential`, as in all of timm, run plans in every executor and train."""

import copy
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint, checkpoint_sequential
from transformers import PretrainedConfig, PreTrainedModel

from layerwise.checkpoint import save
from layerwise.errors import ModelError, UnsupportedModelError
from layerwise.plan import Plan
from layerwise.stack import load, verify
from layerwise.stack.executors.graph import GraphExecutor, build

DEPTH, WIDTH = 6, 16


class Attention(nn.Module):
    def __init__(self, width: int = WIDTH) -> None:
        super().__init__()
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x: Tensor, attn_mask: Tensor | None = None) -> Tensor:
        query, key, value = self.qkv(x).chunk(3, dim=-1)
        return self.proj(nn.functional.scaled_dot_product_attention(query, key, value, attn_mask))


class Block(nn.Module):
    def __init__(self, width: int = WIDTH) -> None:
        super().__init__()
        self.norm1, self.attn = nn.LayerNorm(width), Attention(width)
        self.norm2 = nn.LayerNorm(width)
        self.mlp = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))

    def forward(self, x: Tensor, attn_mask: Tensor | None = None) -> Tensor:
        x = x + self.attn(self.norm1(x), attn_mask)
        return x + self.mlp(self.norm2(x))


class Timm(nn.Module):
    """`timm.models.vision_transformer.VisionTransformer`, its ways of running its blocks."""

    def __init__(self) -> None:
        super().__init__()
        self.patch_embed = nn.Linear(12, WIDTH)
        self.blocks = nn.Sequential(*[Block() for _ in range(DEPTH)])
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 5)
        self.way = "whole"

    def forward_features(self, x: Tensor, attn_mask: Tensor | None = None) -> Tensor:
        x = self.patch_embed(x)
        if self.way == "checkpoint_seq":  # timm._manipulate.checkpoint_seq
            for module in tuple(self.blocks.children()):
                x = checkpoint(module, x, use_reentrant=False)
        elif self.way == "checkpoint_sequential":
            x = checkpoint_sequential(self.blocks, 2, x, use_reentrant=False)
        elif self.way == "loop":
            for block in self.blocks:
                x = block(x, attn_mask=attn_mask)
        else:
            x = self.blocks(x)
        return self.norm(x)

    def forward(self, x: Tensor, attn_mask: Tensor | None = None) -> Tensor:
        return self.head(self.forward_features(x, attn_mask).mean(1))

    def forward_intermediates(self, x: Tensor) -> list[Tensor]:
        x, found = self.patch_embed(x), []
        for block in self.blocks[: len(self.blocks)]:
            x = block(x)
            found.append(x)
        return found


class Torchvision(nn.Module):
    """`torchvision.models.VisionTransformer`: an encoder whose layers have names."""

    def __init__(self) -> None:
        super().__init__()
        self.conv_proj = nn.Linear(12, WIDTH)
        self.encoder = nn.Module()
        self.encoder = Encoder()
        self.heads = nn.Sequential(OrderedDict(head=nn.Linear(WIDTH, 5)))

    def forward(self, x: Tensor) -> Tensor:
        return self.heads(self.encoder(self.conv_proj(x)).mean(1))


class Encoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(OrderedDict((f"encoder_layer_{n}", Block()) for n in range(DEPTH)))
        self.ln = nn.LayerNorm(WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        return self.ln(self.layers(x))


class Torch(nn.Module):
    """`torch.nn.TransformerEncoder`."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.head = nn.Linear(12, WIDTH), nn.Linear(WIDTH, 5)
        layer = nn.TransformerEncoderLayer(WIDTH, 2, 2 * WIDTH, dropout=0.0, batch_first=True, norm_first=True)
        self.encoder = nn.TransformerEncoder(layer, DEPTH, enable_nested_tensor=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.encoder(self.embed(x)).mean(1))


class Stage(nn.Module):
    def __init__(self, width: int, wider: int, depth: int) -> None:
        super().__init__()
        self.downsample = nn.Linear(width, wider)
        self.blocks = nn.Sequential(*[Block(wider) for _ in range(depth)])

    def forward(self, x: Tensor) -> Tensor:
        return self.blocks(self.downsample(x))


class Stages(nn.Module):
    """Swin and ConvNeXt of timm: stages of blocks, each stage wider than the one before it."""

    def __init__(self) -> None:
        super().__init__()
        self.stages = nn.Sequential(Stage(12, 8, 2), Stage(8, WIDTH, DEPTH), Stage(WIDTH, 24, 2))
        self.head = nn.Linear(24, 5)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.stages(x).mean(1))


MAKERS: dict[str, tuple[Callable[[], Any], str]] = {
    "timm": (Timm, "blocks"),
    "torchvision": (Torchvision, "encoder.layers"),
    "torch": (Torch, "encoder.layers"),
    "stages": (Stages, "stages.1.blocks"),
}


def made(name: str) -> Any:
    kind, _ = MAKERS[name]
    torch.manual_seed(0)
    model = kind()
    with torch.no_grad():  # every block differs, and matters
        for parameter in model.parameters():
            parameter.copy_(torch.randn_like(parameter) / max(1, parameter.shape[-1]) ** 0.5)
    return model.eval()


X = torch.randn(2, 7, 12, generator=torch.Generator().manual_seed(1))
PLANS = ("0 2 2 5", "5-0", "0-5 3", "1")
WAYS = ("whole", "loop", "checkpoint_seq", "checkpoint_sequential")


def by_hand(model: Any, path: str, order: tuple[int, ...]) -> Tensor:
    built = copy.deepcopy(model)
    parent, _, name = path.rpartition(".")
    blocks = list(built.get_submodule(path))
    setattr(built.get_submodule(parent), name, nn.Sequential(*(blocks[layer] for layer in order)))
    if isinstance(built.get_submodule(parent), nn.TransformerEncoder):
        built.get_submodule(parent).layers = nn.ModuleList(blocks[layer] for layer in order)
    return built(X)


@pytest.mark.parametrize("name", MAKERS)
@torch.no_grad()
def test_every_executor_gives_the_model_put_together_by_hand(name: str) -> None:
    model, path = made(name), MAKERS[name][1]
    stack = load(model, layers=path if name == "stages" else None)
    assert (stack.path, stack.depth) == (path, DEPTH)
    names, own = list(model.state_dict()), model(X)
    stack.inspect(x=X)
    plans = [Plan.parse(text) for text in PLANS]
    captured, graph = stack.capture(x=X), build(plans)
    apply = lambda layer, state, part, source: stack.apply(layer, state, captured, part, source)  # noqa: E731
    states = dict(GraphExecutor(graph, apply, captured.state).states())
    for plan in plans:
        expected = by_hand(model, path, plan.order())
        torch.testing.assert_close(stack.logits(plan, x=X), expected)
        torch.testing.assert_close(stack.finish(states[graph.ends[plan]], captured.inputs), expected)
        for single_pass in (False, True):
            with stack.under(plan, single_pass=single_pass):
                torch.testing.assert_close(model(X), expected)
                assert list(model.state_dict()) == names
        assert (expected - own).abs().max() > 1e-3, "another plan would be seen"
    assert torch.equal(model(X), own)
    assert all(law.holds is not False for law in verify(stack, "0 (1|2) 3.mlp 5", {"x": X}))


@pytest.mark.parametrize("way", WAYS)
def test_every_way_in_which_timm_runs_its_blocks_computes_the_plan_and_its_gradients(way: str) -> None:
    model = made("timm")
    stack, plan = load(model), Plan.parse("4 1 1 0")
    expected = by_hand(model, "blocks", plan.order())
    (wanted,) = torch.autograd.grad(by_hand_in_place(model, plan).square().mean(), model.blocks[1].mlp[0].weight)
    model.way = way
    model.train()
    for single_pass in (False, True):
        model.zero_grad()
        with stack.under(plan, single_pass=single_pass):
            found = model(X)
            found.square().mean().backward()
            torch.testing.assert_close(model.forward_features(X), model.norm(model.forward_intermediates(X)[-1]))
        torch.testing.assert_close(found, expected)
        torch.testing.assert_close(model.blocks[1].mlp[0].weight.grad, wanted)
        assert model.blocks[2].mlp[0].weight.grad is None, "a skipped block is not trained"


def by_hand_in_place(model: Any, plan: Plan) -> Tensor:
    x = model.patch_embed(X)
    for layer in plan.order():
        x = model.blocks[layer](x)
    return model.head(model.norm(x).mean(1))


def test_changes_to_the_tree_reach_the_blocks_and_not_the_visits() -> None:
    model = made("timm")
    stack = load(model)
    with stack.under("0 0 3"):
        model.train()
        model.to(torch.float64)
        model.blocks.requires_grad_(False)
        assert [name for name, _ in model.named_children()] == ["patch_embed", "blocks", "norm", "head"]
        assert len(list(model.blocks.named_children())) == DEPTH
        assert isinstance(model.blocks[:2], nn.Sequential)
        assert model(X.double()).dtype == torch.float64
        with pytest.raises(ModelError, match="change the list of blocks"):
            model.blocks.append(nn.Identity())
    assert all(block.training for block in model.blocks)
    assert type(model.blocks) is nn.Sequential
    assert {parameter.dtype for parameter in model.parameters()} == {torch.float64}
    assert not any(parameter.requires_grad for parameter in model.blocks.parameters())


def test_stages_that_change_the_shape_name_the_blocks_of_a_stage() -> None:
    with pytest.raises(UnsupportedModelError, match=r"layers='stages\.1\.blocks'"):
        load(made("stages")).inspect(x=X)


class VisionConfig(PretrainedConfig):
    model_type = "vision-like"

    def __init__(self, num_hidden_layers: int = DEPTH, numbered: bool = True, **settings: Any) -> None:
        super().__init__(**settings)
        self.num_hidden_layers, self.numbered = num_hidden_layers, numbered


class Vision(PreTrainedModel):
    config_class = VisionConfig
    main_input_name = "x"

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        names = ("{}", "encoder_layer_{}")[not config.numbered]
        self.embed, self.head = nn.Linear(12, WIDTH), nn.Linear(WIDTH, 5)
        self.blocks = nn.Sequential(OrderedDict((names.format(n), Block()) for n in range(config.num_hidden_layers)))
        self.post_init()

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.blocks(self.embed(x)).mean(1))


@pytest.mark.parametrize("numbered", [True, False])
@torch.no_grad()
def test_a_sequence_is_saved_under_the_names_of_the_class(numbered: bool, tmp_path: Path) -> None:
    model = Vision(VisionConfig(numbered=numbered)).eval()
    stack, plan = load(model), "3 1 0 0"
    save(stack, plan, tmp_path / "planned", inputs={"x": X})
    loaded = Vision.from_pretrained(tmp_path / "planned").eval()
    assert len(loaded.blocks) == 4
    torch.testing.assert_close(loaded(X), by_hand(model, "blocks", (3, 1, 0, 0)))
