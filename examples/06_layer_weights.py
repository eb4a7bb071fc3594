"""Let every layer of a trained model read a learned mix of all preceding states.

    python examples/06_layer_weights.py

The weights begin as the identity (DenseFormer), so the model is unchanged at first. Only these weights are
trained here: 91 scalars, one per layer and state that it can read. `layerwise train robust wiring-identity`
also trains the weights of the model.
"""

from __future__ import annotations

import torch

import layerwise
from layerwise import Plan
from layerwise.data.vision.digits import digits
from layerwise.measure.interventions.accuracy import evaluate
from layerwise.stack import Stack
from layerwise.train.layer_mixing import attach
from layerwise.train.methods import LayerMixingOptions

splits = digits("crop")
IN_ORDER = Plan.identity(12)


def loss(stack: Stack) -> float:
    """Return the mean loss on held-out images, in nats."""
    return float(evaluate(stack, IN_ORDER, splits.test, splits.collate).nll.mean())


def main() -> None:
    """Print the loss before and after, and the largest weights that bypass a layer."""
    torch.manual_seed(0)
    stack = layerwise.load("demo-vit")
    print(f"original model:              {loss(stack):.4f} nats/image")
    wiring = attach(stack, LayerMixingOptions("free"))
    print(f"with identity weights:       {loss(stack):.4f}")

    stack.model.requires_grad_(False)
    wiring.requires_grad_(True)
    optimizer = torch.optim.Adam(wiring.parameters(), lr=1e-3)
    for _ in range(3):
        for batch in torch.utils.data.DataLoader(splits.train, batch_size=64, shuffle=True, collate_fn=splits.collate):
            with stack.under(IN_ORDER, single_pass=True):
                stack.model(**batch).loss.backward()
            optimizer.step()
            optimizer.zero_grad()
    print(f"with learned weights:        {loss(stack):.4f}")

    alpha = wiring.edges().matrix()
    past = {
        f"layer {reader} reads {source}": row[source] for reader, row in enumerate(alpha) for source in range(reader)
    }
    strongest = sorted(past, key=lambda edge: abs(past[edge]), reverse=True)[:4]
    print("the strongest edges that bypass a layer: " + ", ".join(f"{edge} {past[edge]:+.3f}" for edge in strongest))
    print("(0 is the embedding, n + 1 the output of layer n; reader 12 is the head)")


if __name__ == "__main__":
    main()
