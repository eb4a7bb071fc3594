"""Which drafts are kept: the model's own tokens in greedy decoding, the model's own distribution in sampling."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chisquare
from torch import Tensor

from layerwise.stack.speculation.acceptance import accept_greedy, accept_sampled

VOCABULARY = 5


def scores_for(tokens: list[list[int]]) -> Tensor:
    """Scores whose arg-max are `tokens`."""
    return torch.nn.functional.one_hot(torch.tensor(tokens), VOCABULARY).float()


@given(st.data())
def test_greedy_keeps_what_every_unfinished_text_would_have_written(data: st.DataObject) -> None:
    rows, length = data.draw(st.integers(1, 3)), data.draw(st.integers(0, 4))
    token = st.integers(0, VOCABULARY - 1)
    own = data.draw(st.lists(st.lists(token, min_size=length + 1, max_size=length + 1), min_size=rows, max_size=rows))
    drafted = data.draw(st.lists(st.lists(token, min_size=length, max_size=length), min_size=rows, max_size=rows))
    unfinished = data.draw(st.lists(st.booleans(), min_size=rows, max_size=rows).filter(any))
    expected = 0
    while expected < length and all(
        not open_ or draft[expected] == mine[expected]
        for open_, draft, mine in zip(unfinished, drafted, own, strict=True)
    ):
        expected += 1
    found = accept_greedy(
        torch.tensor(drafted, dtype=torch.long).view(rows, length), scores_for(own), torch.tensor(unfinished)
    )
    assert found.count == expected
    assert found.tokens.tolist() == [mine[: expected + 1] for mine in own]


def drawn(model: Tensor, draft: Tensor, rows: int) -> tuple[Tensor, Tensor]:
    """One draft from `draft` for each of many texts, each accepted for itself; its token, and whether it was kept."""
    torch.manual_seed(0)
    drafts = torch.multinomial(draft, rows, replacement=True)
    scores = model.log().expand(1, 2, -1)
    tokens, kept = [], []
    for one in drafts.split(1):
        accepted = accept_sampled(one.view(1, 1), draft.view(1, 1, -1), scores, torch.tensor([True]))
        tokens.append(accepted.tokens[0, 0])
        kept.append(accepted.count)
    return torch.stack(tokens), torch.tensor(kept)


@pytest.mark.parametrize(
    "draft", [[0.2, 0.2, 0.2, 0.2, 0.2], [0.0, 0.9, 0.1, 0.0, 0.0], [0.4, 0.3, 0.15, 0.1, 0.05]], ids=str
)
def test_sampled_tokens_are_distributed_as_the_model_says(draft: list[float]) -> None:
    model, other = torch.tensor([0.4, 0.3, 0.15, 0.1, 0.05]), torch.tensor(draft)
    rows = 1500
    tokens, kept = drawn(model, other, rows)
    observed = torch.bincount(tokens, minlength=VOCABULARY)
    assert chisquare(observed.numpy(), (rows * model.double() / model.double().sum()).numpy()).pvalue > 0.001
    overlap = float(torch.minimum(model, other).sum())
    assert abs(float(kept.float().mean()) - overlap) < 0.05
    if overlap < 0.99:  # keeping every draft would be seen
        wrong = torch.bincount(torch.multinomial(other, rows, replacement=True), minlength=VOCABULARY)
        assert chisquare(wrong.numpy(), (rows * model.double() / model.double().sum()).numpy()).pvalue < 1e-6


def test_a_text_that_keeps_more_than_the_batch_goes_on_with_its_own_draft() -> None:
    certain = torch.tensor([0.0, 1.0, 0.0, 0.0, 0.0])
    other = torch.tensor([0.0, 0.0, 1.0, 0.0, 0.0])
    scores = torch.stack([torch.stack([certain, certain]), torch.stack([other, other])]).log()
    drafts = torch.tensor([[1], [1]])
    found = accept_sampled(drafts, certain.expand(2, 1, -1), scores, torch.tensor([True, True]))
    assert (found.count, found.tokens.tolist()) == (0, [[1], [2]])


def test_a_finished_text_holds_nobody_up() -> None:
    found = accept_greedy(torch.tensor([[1], [1]]), scores_for([[1, 2], [3, 3]]), torch.tensor([True, False]))
    assert found.count == 1
