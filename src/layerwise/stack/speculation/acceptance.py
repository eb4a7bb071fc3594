"""Which drafted tokens a model keeps, such that what is generated is what the model alone would generate.

Greedy: a draft is kept if it is the arg-max of the model's scores. Sampling: the draft x was drawn from q; it is kept
with probability min(1, p(x) / q(x)), else another token is drawn from max(0, p - q), normalised. Either way the token
is distributed as p says (Leviathan et al. 2023, arXiv:2211.17192, appendix A.1; Chen et al. 2023, arXiv:2302.01318).

The texts of a batch go on in step: so many drafts are kept as every unfinished text keeps. That count depends on no
token behind it, so that each text is still distributed as by itself.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True)
class Accepted:
    """The tokens (batch, count + 1) of a round: `count` drafts, and the one that the model itself adds."""

    tokens: Tensor
    count: int


def accept_greedy(drafted: Tensor, scores: Tensor, unfinished: Tensor) -> Accepted:
    """The drafts `(batch, k)` that are the arg-max of `scores` `(batch, k + 1, vocabulary)`, and the next arg-max."""
    best = scores.argmax(dim=-1)
    count = _least(best[:, :-1] == drafted, unfinished)
    return Accepted(best[:, : count + 1], count)


def accept_sampled(drafted: Tensor, draft: Tensor, scores: Tensor, unfinished: Tensor) -> Accepted:
    """The drafts `(batch, k)` that rejection sampling keeps, and one token that is drawn.

    `draft` `(batch, k, vocabulary)` are the probabilities that the drafts were drawn from, `scores`
    `(batch, k + 1, vocabulary)` those of the model, before softmax.
    """
    model = scores.softmax(dim=-1)
    length = drafted.shape[1]
    chosen = drafted.unsqueeze(-1)
    wanted = model[:, :length].gather(-1, chosen).squeeze(-1)
    given = draft.gather(-1, chosen).squeeze(-1)
    kept = torch.rand_like(given) * given < wanted
    count = _least(kept, unfinished)
    last = model[:, count]
    if count < length:
        drawn = _drawn(_residual(last, draft[:, count]))
        last_token = torch.where(kept[:, count], drafted[:, count], drawn)
    else:
        last_token = _drawn(last)
    return Accepted(torch.cat([drafted[:, :count], last_token.unsqueeze(-1)], dim=-1), count)


def _least(kept: Tensor, unfinished: Tensor) -> int:
    """The drafts before the first that an unfinished text rejects; a finished text rejects none."""
    everywhere = (kept | ~unfinished.unsqueeze(-1)).all(dim=0)
    return int(everywhere.long().cumprod(dim=0).sum())


def _residual(model: Tensor, draft: Tensor) -> Tensor:
    """max(0, p - q) of every text, which `multinomial` normalises; p itself where rounding leaves nothing of it."""
    left = (model - draft).clamp_(min=0)
    return torch.where(left.sum(dim=-1, keepdim=True) > 0, left, model)


def _drawn(weights: Tensor) -> Tensor:
    return torch.multinomial(weights, num_samples=1).squeeze(-1)
