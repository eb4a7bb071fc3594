"""The router: linear scores of plans from the state of a prompt, and the plan of the greatest score less its price.

    choice(x) = argmax over plans p of  (x . weights[:, p] + intercept[p]) - penalty * layers[p]

The weights are ridge regressions of every plan's score on standardised features (Hoerl and Kennard 1970). Scores are
taken as differences to the question's mean over plans: what makes a prompt hard for all plans alike says nothing about
which to choose. The strength of the ridge is the one that predicts best when each question is left out; those
predictions also set the penalty, so that mean layers meet a limit on questions that the weights have not seen.

What it reads is the state of a prompt where the candidates part, as its mean over tokens and its last token. The pass
ends there: it takes the layers that all candidates keep, on the prompt alone, and no head; where they keep none, the
embeddings of the tokens are read and the model is not run. The router is timed whole: tokens in, plan out, with the
layers that it runs. Generation runs those again under the plan, so nothing of it is got back there, and all of it is
counted.
"""

from __future__ import annotations

import json
import math
import warnings
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save
from scipy.linalg import LinAlgWarning
from sklearn.linear_model import RidgeCV

from layerwise.bounded import parse_json
from layerwise.errors import DataError, ModelError, PlanError
from layerwise.measure.activations.padding import side_by_side, token_mean
from layerwise.measure.cost.pass_time import PassClock, Setting
from layerwise.measure.stats.estimate import median_interval
from layerwise.measure.stats.float64 import exact_on_cpu
from layerwise.measure.stats.statistics import Numbers
from layerwise.plan import Plan
from layerwise.results.rows import Score
from layerwise.results.run import write_whole
from layerwise.results.vocabulary import MILLISECONDS, ROUTE_TIME, ROUTER
from layerwise.search.prices import measured
from layerwise.stack import Stack
from layerwise.stack.inputs import evaluating

STRENGTHS = np.logspace(0, 6, 7)
"""Ridge penalties that are tried, for features of unit variance: up to those that leave little but the mean."""

FORMAT = "layerwise-router-1"


@dataclass(frozen=True, eq=False)
class PlanRouter:
    """A fitted router. `plans` begin with the layers 0 to `prefix` - 1 and stand in the order of their cost.

    `weights` are (features, plans), `intercept` (plans,), `penalty` is in units of the score for each layer.
    """

    plans: tuple[Plan, ...]
    prefix: int
    weights: Numbers
    intercept: Numbers
    penalty: float = 0.0

    @cached_property
    def layers(self) -> Numbers:
        """The layer evaluations of every plan, (plans,)."""
        return layers_of(self.plans)

    def choices(self, features: Numbers) -> Numbers:
        """The number of the chosen plan for each row of features (questions, features), of equals the cheapest."""
        return np.asarray((features @ self.weights + self.intercept - self.penalty * self.layers).argmax(axis=1))

    def choose(self, stack: Stack, prompts: Sequence[Sequence[int]]) -> list[Plan]:
        """The plan for each prompt, given as token ids."""
        return [self.plans[choice] for choice in self.choices(prompt_features(stack, prompts, self.prefix))]

    def save(self, path: Path | str) -> None:
        """Write the router as one safetensors file, the plans in its header."""
        header = {"plans": list(map(str, self.plans)), "prefix": self.prefix, "penalty": self.penalty}
        tensors = {"weights": self.weights, "intercept": self.intercept}
        write_whole(Path(path), save(tensors, metadata={"format": FORMAT, "router": json.dumps(header)}))

    @classmethod
    def load(cls, path: Path | str) -> PlanRouter:
        """Read a router that `save` wrote. Raises `DataError` for any other file."""
        try:
            with safe_open(path, framework="numpy") as file:
                metadata = file.metadata() or {}
                if metadata.get("format") != FORMAT:
                    raise SafetensorError("of another kind")
                tensors = {name: file.get_tensor(name) for name in ("weights", "intercept")}
            header = parse_json(metadata["router"])
            plans = tuple(map(Plan.parse, header["plans"]))
            return cls(plans, int(header["prefix"]), **tensors, penalty=float(header["penalty"]))
        except (SafetensorError, PlanError, KeyError, TypeError, ValueError) as error:
            raise DataError(
                f"{path} is no router of layerwise ({error}); give the router.safetensors of a run of route"
            ) from error
        except OSError as error:
            raise DataError(f"there is no router at {path} ({error}); layerwise search route writes one") from error


@dataclass(frozen=True, eq=False)
class RoutingTable:
    """What a router is fitted to: scores (questions, plans), features (questions, features), and each one's task."""

    plans: tuple[Plan, ...]
    tasks: Any
    scores: Numbers
    features: Numbers
    prefix: int

    def part(self, rows: Any) -> RoutingTable:
        """Some of the questions."""
        return replace(self, tasks=self.tasks[rows], scores=self.scores[rows], features=self.features[rows])

    @cached_property
    def fit(self) -> tuple[PlanRouter, Numbers]:
        """The router without a penalty, and its predictions (questions, plans) for each question from all others."""
        centre, scale = self.features.mean(axis=0), self.features.std(axis=0)
        scale = np.where(scale > 0, scale, 1.0)
        ridge = RidgeCV(STRENGTHS, scoring="neg_mean_squared_error", store_cv_results=True)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", LinAlgWarning)  # features may repeat one another: the ridge is for that
            ridge.fit((self.features - centre) / scale, self.scores - self.scores.mean(axis=1, keepdims=True))
        left_out = ridge.cv_results_[:, :, int(np.argmin(np.abs(STRENGTHS - ridge.alpha_)))]
        weights = ridge.coef_.T / scale[:, None]
        return PlanRouter(self.plans, self.prefix, weights, ridge.intercept_ - centre @ weights), left_out

    def router(self, limit: float = math.inf) -> PlanRouter:
        """The router with the least penalty whose mean layers, on questions left out, are `limit` at most.

        Where even the cheapest plan has more, it is the penalty at which that is always chosen; found by bisection.
        """
        router, left_out = self.fit

        def exceeds(penalty: float) -> bool:
            chosen = (left_out - penalty * router.layers).argmax(axis=1)
            return float(router.layers[chosen].mean()) > limit

        # Costs differ by a layer at least: at the last price nothing makes up for a layer.
        low, high = 0.0, 2.0 * float(np.ptp(left_out, axis=1).max()) + 1e-9
        if not exceeds(low):
            return router
        for _ in range(60):
            middle = (low + high) / 2
            low, high = (middle, high) if exceeds(middle) else (low, middle)
        return replace(router, penalty=high)


def layers_of(plans: tuple[Plan, ...]) -> Numbers:
    """The layer evaluations of plans, (plans,)."""
    return np.array([plan.cost().evaluations for plan in plans], dtype=np.float64)


BATCH = 32
"""Prompts that run together."""


def prompt_features(stack: Stack, prompts: Sequence[Sequence[int]], prefix: int) -> Numbers:
    """The state after the layers 0 to `prefix` - 1, or the token embeddings, of each prompt: (prompts, 2 * width).

    First the mean over tokens, then the last token. Raises `ModelError` while the model runs a plan.
    """
    if stack.running is not None:
        raise ModelError(f"the model runs {stack.running}: choose plans outside stack.under(...)")
    model: Any = stack.model
    features: dict[int, Numbers] = {}
    # Embeddings are looked up; only layers can be in a mode of training.
    with evaluating(model) if prefix else nullcontext(), torch.inference_mode():
        for rows in of_like_length(prompts, BATCH):
            inputs = side_by_side([prompts[row] for row in rows], stack.device)
            if prefix:
                states = stack.run(Plan.identity(prefix), stack.capture(**inputs)).float()
            else:
                states = model.get_input_embeddings()(inputs["input_ids"]).float()
            mask = inputs["attention_mask"]
            last = states[torch.arange(len(rows)), mask.sum(dim=1) - 1]
            both = exact_on_cpu(torch.cat([token_mean(states, mask > 0), last], dim=1))
            features.update(zip(rows, both.numpy(), strict=True))
    return np.stack([features[row] for row in range(len(prompts))])


def of_like_length(rows: Sequence[Sequence[int]], size: int) -> Iterator[list[int]]:
    """The numbers of all rows, at most `size` at once, the shortest rows first."""
    order = sorted(range(len(rows)), key=lambda number: len(rows[number]))
    return (order[start : start + size] for start in range(0, len(order), size))


PROMPTS = 40
"""Prompts of which each is routed once, alone; the first few warm up."""

_WARM_UP = 5


def router_time(stack: Stack, router: PlanRouter, prompts: Sequence[Sequence[int]]) -> list[Score]:
    """What choosing takes, medians over some of the prompts, one at a time: rows of measure `route_time`.

    Milliseconds of choosing a plan, with their interval, and of one layer on a prompt of the median length (`tokens`);
    the first by the second is the router's time in `layers`.
    """
    clock = PassClock(stack.device)
    some = [prompts[number % len(prompts)] for number in range(_WARM_UP + PROMPTS)]
    times = [1000 * clock.seconds(partial(router.choose, stack, [prompt])) for prompt in some][_WARM_UP:]
    tokens = max(2, int(median(map(len, prompts))))
    table, _ = measured(stack, Setting("prefill", 1, tokens))
    layer = median(table.pieces[number, None] for number in range(stack.depth))
    return [
        Score(ROUTE_TIME, MILLISECONDS, median(times), *median_interval(times), arm=ROUTER),
        Score(ROUTE_TIME, "layer_ms", layer),
        Score(ROUTE_TIME, "layers", median(times) / layer, arm=ROUTER),
        Score(ROUTE_TIME, "tokens", float(tokens), arm=ROUTER),
    ]


@dataclass(frozen=True, slots=True)
class RoutedStack:
    """A model and the router of its prompts.

    Raises `ModelError` for a router of another model: of other layers, or another width.
    """

    stack: Stack
    router: PlanRouter

    def __post_init__(self) -> None:
        if self.stack.tokenizer is None:
            raise ModelError(f"{self.stack.source.name} has no tokenizer, so it reads no prompt; load it with one")
        for plan in self.router.plans:
            self.stack.check(plan)
        width = prompt_features(self.stack, [[0, 0]], self.router.prefix).shape[1]
        if width != len(self.router.weights):
            raise ModelError(
                f"the router reads {len(self.router.weights)} features and {self.stack.source.name} has {width}: it "
                "was fitted to another model; run layerwise search route on this one"
            )

    def plan_of(self, prompt: str) -> Plan:
        """The plan for one prompt."""
        return self.plans_of([prompt])[0]

    def plans_of(self, prompts: Sequence[str]) -> list[Plan]:
        """The plan for each prompt."""
        return self.router.choose(self.stack, self.encoded(prompts))

    def generate(self, prompts: Sequence[str], *, batch_size: int = 8, **options: Any) -> list[str]:
        """What the model writes after each prompt, each under its own plan; `options` are those of `generate`.

        Prompts of one plan run together, at most `batch_size` at once and of like length, padded on the left.
        """
        ids, texts = self.encoded(prompts), dict[int, str]()
        plans = self.router.choose(self.stack, ids)
        for plan in dict.fromkeys(plans):
            rows = [row for row, own in enumerate(plans) if own == plan]
            new = written(self.stack, plan, [ids[row] for row in rows], batch_size, **options)
            texts.update(zip(rows, new, strict=True))
        return [texts[row] for row in range(len(prompts))]

    def encoded(self, prompts: Sequence[str]) -> list[list[int]]:
        """Token ids as questions are tokenized: the start token, where there is one, and the text."""
        tokenizer: Any = self.stack.tokenizer
        start = [] if tokenizer.bos_token_id is None else [tokenizer.bos_token_id]
        return [[*start, *tokenizer(prompt, add_special_tokens=False)["input_ids"]] for prompt in prompts]


def written(stack: Stack, plan: Plan, prompts: Sequence[Sequence[int]], size: int, **options: Any) -> list[str]:
    """What the model writes under a plan after each prompt (token ids), at most `size` of them at once."""
    model: Any = stack.model
    tokenizer: Any = stack.tokenizer
    padding = next((i for i in (tokenizer.pad_token_id, tokenizer.eos_token_id) if isinstance(i, int)), 0)
    texts: dict[int, str] = {}
    with evaluating(model), torch.inference_mode(), stack.under(plan):
        for rows in of_like_length(prompts, size):
            inputs = side_by_side([prompts[row] for row in rows], stack.device, padding=padding, left=True)
            ids = model.generate(**inputs, **{"pad_token_id": padding, **options})
            new = tokenizer.batch_decode(ids[:, inputs["input_ids"].shape[1] :], skip_special_tokens=True)
            texts.update(zip(rows, new, strict=True))
    return [texts[row] for row in range(len(prompts))]
