"""Models as timm, torchvision and torch write them: blocks in an `nn.Sequential`, called as a whole or iterated."""

from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint, checkpoint_sequential

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
