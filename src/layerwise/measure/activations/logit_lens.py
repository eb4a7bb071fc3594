"""The logit lens: what the model would say if it stopped after each layer.

Every hidden state is sent through the model's own last norm and head (nostalgebraist 2020, "interpreting GPT: the logit
lens"), and scored as the model itself is:

    logit_lens[j] = nats per scored token of the state after j layers; j = 0 is the embedding, j = depth the model

States of early layers are written in another basis than the head reads, so a high loss there does not say that nothing
is known yet (Belrose et al. 2023, arXiv 2303.08112, train a translator for each layer). The null, against `uniform`,
is the loss of a guess at random, log of the vocabulary. One head a state makes this the dear one of the proxies.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from layerwise.errors import MeasureError
from layerwise.measure.language.evaluation_data import EvalData
from layerwise.measure.language.loss import window_losses
from layerwise.measure.stats.window_sums import WindowSums
from layerwise.plan import Plan
from layerwise.results.rows import Score
from layerwise.results.vocabulary import LOGIT_LENS, PROXIES, UNIFORM_GUESS
from layerwise.stack import Stack
from layerwise.stack.inputs import evaluating


def logit_lens(stack: Stack, data: EvalData) -> list[Score]:
    """The loss of every hidden state of `stack` on `data`: one row a state (`amount`), with Student's interval over
    documents.

    Raises `MeasureError` where a loss is not finite, naming state and document.
    """
    plan = Plan.identity(stack.depth)
    sums = WindowSums()
    with evaluating(stack.model), torch.inference_mode():
        for batch in data.batches:
            captured = stack.capture(**{name: value.to(stack.device) for name, value in batch.inputs.items()})
            losses = [window_losses(stack, state, batch) for state in stack.states(plan, captured)]
            nlls = torch.tensor([[loss.nll for loss in state] for state in losses], dtype=torch.float64)
            for state, window in (~nlls.isfinite()).nonzero().tolist()[:1]:
                raise MeasureError(
                    f"the loss of hidden state {state} is not finite in document {batch.windows[window].document!r}; "
                    "load the model in float32, or leave that document out"
                )
            sums.add(nlls, torch.tensor([loss.tokens for loss in losses[0]]), batch.windows)
    states = [{"amount": float(state)} for state in range(stack.depth + 1)]
    return [*sums.scores(PROXIES, LOGIT_LENS, states), *_uniform(stack, data, states)]


def _uniform(stack: Stack, data: EvalData, states: Sequence[Mapping[str, Any]]) -> list[Score]:
    """The loss of guessing at random; nothing where no vocabulary is known."""
    if data.objective is None:
        return []
    guess = math.log(int(stack.text_config.vocab_size))
    return [Score(PROXIES, LOGIT_LENS, guess, guess, guess, against=UNIFORM_GUESS, **state) for state in states]
