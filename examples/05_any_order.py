"""Train with random layer orders in a plain PyTorch loop: one line draws a plan, one `with` block runs it.

Two copies of the demo are trained briefly, one in order and one shuffled, and evaluated under random orders.
"""

import torch

import layerwise
from layerwise.data.vision.digits import digits
from layerwise.measure.interventions.accuracy import evaluate
from layerwise.plan.samplers import Fixed, SeededSampler, Shuffle

splits = digits("crop")
train = torch.utils.data.DataLoader(splits.train, batch_size=64, shuffle=True, collate_fn=splits.collate)


def refined(sampler, epochs):
    torch.manual_seed(0)
    stack = layerwise.load("demo-vit")
    draws = SeededSampler(sampler, stack.depth, seed=0)
    optimizer = torch.optim.AdamW(stack.model.parameters(), lr=1e-3, weight_decay=0.0)
    stack.model.train()
    for epoch in range(epochs):
        for number, batch in enumerate(train):
            with stack.under(draws.at(epoch, number), single_pass=True):
                stack.model(**batch).loss.backward()
            optimizer.step()
            optimizer.zero_grad()
    return stack


orders = SeededSampler(Shuffle(), depth=12, seed=1)
for name, sampler in {"in order": Fixed(), "shuffled": Shuffle()}.items():
    stack = refined(sampler, epochs=3)
    found = evaluate(stack, orders.at, splits.test, splits.collate, batch_size=20)
    print(f"trained {name}: {found.accuracy:.0%} right when the layers run in random orders")
