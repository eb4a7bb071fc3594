"""Run plans on your own torch module, whose blocks are in a ModuleList. Here it is a small classifier.

    python examples/03_your_own_module.py

The classifier learns the colors of a chessboard. Which of its blocks matter?
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

import layerwise
from layerwise import Plan, families

WIDTH, BLOCKS = 32, 6


class Block(nn.Module):
    """One residual block."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Sequential(nn.LayerNorm(WIDTH), nn.Linear(WIDTH, WIDTH), nn.GELU(), nn.Linear(WIDTH, WIDTH))

    def forward(self, state: Tensor) -> Tensor:
        return state + self.inner(state)


class Classifier(nn.Module):
    """A map from points (batch, 2) to the logits of two classes (batch, 2)."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Linear(2, WIDTH)
        self.encoder = nn.ModuleDict({"blocks": nn.ModuleList(Block() for _ in range(BLOCKS))})
        self.head = nn.Linear(WIDTH, 2)

    def forward(self, points: Tensor) -> Tensor:
        state = self.embed(points)
        for block in self.encoder["blocks"]:
            state = block(state)
        return self.head(state)


def chessboard(count: int) -> tuple[Tensor, Tensor]:
    """Draw points of the plane and the color of their squares."""
    points = 4 * torch.rand(count, 2) - 2
    return points, points.floor().sum(dim=1).long() % 2


def main() -> None:
    """Train the classifier, then print its accuracy without each of its blocks."""
    torch.manual_seed(0)
    model = Classifier()
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for _ in range(300):
        points, colors = chessboard(256)
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(points), colors).backward()
        optimizer.step()

    stack = layerwise.load(model, layers="encoder.blocks")
    points, colors = chessboard(2000)
    for plan in [Plan.identity(stack.depth), *(member.plan for member in families.leave_one_out(stack.depth))]:
        right = stack.output(plan, points=points).argmax(dim=1) == colors
        print(f"{plan!s:10} {right.float().mean():6.1%} right")


if __name__ == "__main__":
    main()
