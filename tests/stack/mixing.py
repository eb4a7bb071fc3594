"""A small model whose layers read weighted sums of all earlier states, with and without one more for its output."""

from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn

from layerwise.stack.history.depth_history import DepthHistory, Missing

VOCABULARY = 31
WIDTH = 16


class MixingLayer(nn.Module):
    def __init__(self, number: int, missing: Missing) -> None:
        super().__init__()
        self.number = number
        self.missing: Missing = missing
        self.scalars = nn.Parameter(torch.randn(number + 1))
        self.linear = nn.Linear(WIDTH, WIDTH)

    def forward(self, hidden_states: Tensor, record: DepthHistory) -> Tensor:
        read = record.read(self.scalars.softmax(0), self.missing)
        return torch.tanh(self.linear(read)) + read.mean(dim=1, keepdim=True)


class MixingEncoder(nn.Module):
    def __init__(self, depth: int, missing: Missing, mixes_output: bool) -> None:
        super().__init__()
        self.layers = nn.ModuleList(MixingLayer(number, missing) for number in range(depth))
        self.scalars = nn.Parameter(torch.randn(depth + 1)) if mixes_output else None
        self.missing: Missing = missing

    def forward(self, hidden: Tensor) -> Tensor:
        record = DepthHistory.of(hidden)
        for layer in self.layers:
            hidden = layer(hidden, record=record)
            record = record.then(layer.number, hidden)
        return hidden if self.scalars is None else record.read(self.scalars.softmax(0), self.missing)


class MixingModel(nn.Module):
    main_input_name = "input_ids"

    def __init__(self, depth: int = 5, missing: Missing = "renormalise", mixes_output: bool = False) -> None:
        super().__init__()
        torch.manual_seed(7)
        self.config: Any = SimpleNamespace(vocab_size=VOCABULARY, num_hidden_layers=depth)
        self.config.get_text_config = lambda: self.config
        self.embedding = nn.Embedding(VOCABULARY, WIDTH)
        self.encoder = MixingEncoder(depth, missing, mixes_output)
        self.head = nn.Linear(WIDTH, VOCABULARY)
        self.eval()

    def forward(self, input_ids: Tensor) -> Any:
        return {"logits": self.head(self.encoder(self.embedding(input_ids)))}


def inputs(seed: int = 3) -> dict[str, Tensor]:
    return {"input_ids": torch.randint(0, VOCABULARY, (2, 9), generator=torch.Generator().manual_seed(seed))}
