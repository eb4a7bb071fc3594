"""A model whose prompts are answered each under its own plan: prompts with the same plan run together."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from typing import Any

import torch

from layerwise.errors import ModelError
from layerwise.plan import Plan
from layerwise.search.routing.features import prompt_features
from layerwise.search.routing.router import PlanRouter
from layerwise.stack import Stack
from layerwise.stack.inputs import evaluating


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
        return [self.router.plans[choice] for choice in self._choices(self.encoded(prompts))]

    def generate(self, prompts: Sequence[str], *, batch_size: int = 8, **options: Any) -> list[str]:
        """What the model writes after each prompt, each under its own plan; `options` are those of `generate`.

        Prompts of one plan run together, at most `batch_size` at once and of like length, padded on the left.
        """
        ids = self.encoded(prompts)
        texts = [""] * len(prompts)
        with evaluating(self.stack.model), torch.inference_mode():
            for choice, batches in groupby(grouped(ids, self._choices(ids), batch_size), key=itemgetter(0)):
                with self.stack.under(self.router.plans[choice]):
                    for _, rows in batches:
                        for row, text in zip(
                            rows, written(self.stack, [ids[row] for row in rows], options), strict=True
                        ):
                            texts[row] = text
        return texts

    def encoded(self, prompts: Sequence[str]) -> list[list[int]]:
        """Token ids as questions are tokenized: the start token, where there is one, and the text."""
        tokenizer: Any = self.stack.tokenizer
        start = [] if tokenizer.bos_token_id is None else [tokenizer.bos_token_id]
        return [[*start, *tokenizer(prompt, add_special_tokens=False)["input_ids"]] for prompt in prompts]

    def _choices(self, ids: Sequence[Sequence[int]]) -> list[int]:
        return [int(choice) for choice in self.router.choices(prompt_features(self.stack, ids, self.router.prefix))]


def grouped(ids: Sequence[Sequence[int]], choices: Sequence[int], size: int) -> Iterator[tuple[int, list[int]]]:
    """Batches of at most `size` rows of one choice and like length, choice after choice: the choice, and the rows."""
    groups: dict[int, list[int]] = defaultdict(list)
    for row, choice in enumerate(choices):
        groups[choice].append(row)
    for choice, rows in groups.items():
        rows.sort(key=lambda row: len(ids[row]))
        for start in range(0, len(rows), size):
            yield choice, rows[start : start + size]


def written(stack: Stack, ids: Sequence[Sequence[int]], options: Mapping[str, Any]) -> list[str]:
    """What the model, under the plan that it runs, writes after prompts side by side, padded on the left."""
    tokenizer: Any = stack.tokenizer
    padding = next((i for i in (tokenizer.pad_token_id, tokenizer.eos_token_id) if isinstance(i, int)), 0)
    width = max(map(len, ids))
    rows = torch.tensor([[*[padding] * (width - len(row)), *row] for row in ids], device=stack.device)
    mask = torch.tensor([[0] * (width - len(row)) + [1] * len(row) for row in ids], device=stack.device)
    model: Any = stack.model
    texts = model.generate(rows, attention_mask=mask, **{"pad_token_id": padding, **options})
    decoded: list[str] = tokenizer.batch_decode(texts[:, width:], skip_special_tokens=True)
    return decoded
