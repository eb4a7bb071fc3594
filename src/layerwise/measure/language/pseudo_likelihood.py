"""Sentence scores in nats: pseudo-log-likelihood of masked models, log-likelihood of causal ones.

For temperature T (default 1), without length normalization (Wang and Cho 2019; Salazar et al. 2020):

    masked   PLL(w) = sum_t log softmax(logits(w with w_t masked)_t / T)[w_t]
    causal   sum_t log softmax(logits(w_<t) / T)[w_t], the first token after the start token where there is one

A masked model runs on n copies of a sentence of n tokens; shared copies run once, copies of one length together.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from transformers import PreTrainedTokenizerBase

from layerwise.data.text.passages import EncodedPassage, Passage, encode
from layerwise.data.text.tokenizer import masking_id
from layerwise.data.text.tokens import Objective
from layerwise.errors import DataError, MeasureError
from layerwise.measure.stats.float64 import exact_on_cpu
from layerwise.stack.inputs import accepted, evaluating, main_tensor
from layerwise.stack.max_length import longest_input
from layerwise.stack.placement import device_of

Numbers = NDArray[np.float64]
TooLong = Literal["refuse", "skip"]

BATCH_TOKENS = 8192

ENTRIES = 1 << 25
"""Logits that are held together: 128 MiB as float32."""

COPIES = 1 << 22  # tokens of masked copies that are held together: 100 MiB while equal ones are searched for

_UNLIMITED = 1_000_000


@dataclass(frozen=True, slots=True, eq=False)
class SentenceScorer:
    """A language model with its tokenizer and training objective.

    `body` is the module whose last states can be narrowed to the masked positions; `None` computes all logits.
    """

    model: nn.Module
    tokenizer: PreTrainedTokenizerBase
    objective: Objective
    body: nn.Module | None

    @classmethod
    def of(cls, model: nn.Module, tokenizer: PreTrainedTokenizerBase | None) -> SentenceScorer:
        name = type(model).__name__
        if tokenizer is None:
            raise MeasureError(f"{name} must have a tokenizer to score sentences; give one with --tokenizer PATH")
        if name.endswith("ForMaskedLM"):
            masking_id(tokenizer)
            return cls(model, tokenizer, "masked_token", _proved_body(model))
        if name.endswith(("ForCausalLM", "LMHeadModel", "LMHead")):
            return cls(model, tokenizer, "next_token", None)
        raise MeasureError(
            f"{name} has no language head, so no sentence is likely under it; give a ...ForMaskedLM or "
            "...ForCausalLM checkpoint"
        )

    @property
    def positions(self) -> int | None:
        known = [longest_input(self.model), getattr(self.tokenizer, "model_max_length", None)]
        return min((each for each in known if isinstance(each, int) and 0 < each < _UNLIMITED), default=None)

    @property
    def vocabulary(self) -> int:
        config: Any = self.model.config
        return int(config.get_text_config().vocab_size)


def log_likelihoods(
    scorer: SentenceScorer,
    passages: Sequence[Passage],
    *,
    temperature: float = 1.0,
    too_long: TooLong = "refuse",
    progress: Callable[[float], None] | None = None,
) -> Numbers:
    """Return the (pseudo-)log-likelihood in nats of every passage; see the module for the formula.

    With `too_long="skip"` it is `nan` for passages beyond the model's positions; `progress` receives the share that is
    done. Raises `MeasureError` for non-finite logits, and `DataError` for passages that are too long and for unknown
    tokens.
    """
    lines = encode(scorer.tokenizer, passages, scorer.objective)
    kept = _within(lines, passages, scorer.positions, too_long)
    _check_vocabulary(kept, scorer.vocabulary)
    score = _masked if scorer.objective == "masked_token" else _causal
    by_line: dict[EncodedPassage, float] = {}
    total = sum(len(line.ids) for line in kept)
    with evaluating(scorer.model), torch.inference_mode(), _narrowed(scorer.body) as read_at:
        for group in _by_length(kept):
            values = score(_Pass(scorer, read_at, temperature), group)
            by_line |= dict(zip(group, values.tolist(), strict=True))
            if progress is not None:
                progress(sum(len(line.ids) for line in by_line) / total)
    values = np.array([by_line.get(line, np.nan) for line in lines])
    if np.isnan([by_line[line] for line in kept]).any() or np.isinf(values).any():
        raise MeasureError("some sentences have a likelihood that is not finite; run the model in float32")
    return values


def _within(
    lines: Sequence[EncodedPassage], passages: Sequence[Passage], positions: int | None, too_long: TooLong
) -> tuple[EncodedPassage, ...]:
    beyond = [index for index, line in enumerate(lines) if positions is not None and len(line.ids) > positions]
    if beyond and too_long == "refuse":
        worst = max(beyond, key=lambda index: len(lines[index].ids))
        raise DataError(
            f"{len(beyond):,} of {len(lines):,} sentences are longer than the model's {positions} positions: the "
            f"longest has {len(lines[worst].ids)} tokens ({passages[worst].text[:60]!r}...); skip them (--too-long "
            "skip), or take a model with more positions"
        )
    left_out = set(beyond)
    return tuple(dict.fromkeys(line for index, line in enumerate(lines) if index not in left_out))


def _check_vocabulary(lines: Sequence[EncodedPassage], vocabulary: int) -> None:
    largest = max((max(line.ids) for line in lines), default=0)
    if largest >= vocabulary:
        raise DataError(
            f"the tokenizer gives token id {largest}, but the model's vocabulary has {vocabulary}: "
            "give the tokenizer that belongs to the model"
        )


def _by_length(lines: Sequence[EncodedPassage]) -> Iterator[tuple[EncodedPassage, ...]]:
    groups: dict[int, list[EncodedPassage]] = defaultdict(list)
    for line in lines:
        groups[len(line.ids)].append(line)
    for length, group in sorted(groups.items()):
        most = max(2, COPIES // length**2 // 2 * 2)
        yield from (tuple(group[start : start + most]) for start in range(0, len(group), most))


@dataclass(frozen=True, slots=True, eq=False)
class _Pass:
    scorer: SentenceScorer
    read_at: list[Tensor]
    temperature: float

    def rows(self, length: int, logits: int) -> int:
        return max(1, min(BATCH_TOKENS // length, ENTRIES // (logits * self.scorer.vocabulary)))

    def logits(self, ids: Tensor) -> Tensor:
        model = self.scorer.model
        device = device_of(model)
        return main_tensor(model(**accepted(model, {"input_ids": ids.to(device)})))

    def log_probabilities(self, logits: Tensor, rows: Tensor, targets: Tensor) -> Tensor:
        scaled = logits.float() / self.temperature if self.temperature != 1.0 else logits.float()
        normaliser = scaled.logsumexp(dim=-1)
        rows, targets = rows.to(scaled.device), targets.to(scaled.device)
        return exact_on_cpu(scaled[rows, targets] - normaliser[rows])


def _masked(work: _Pass, lines: Sequence[EncodedPassage]) -> Numbers:
    length = len(lines[0].ids)
    owners = np.repeat(np.arange(len(lines)), [len(line.scored) for line in lines])
    masked_at = np.concatenate([np.array(line.scored, dtype=np.int32) for line in lines])
    copies = np.array([line.ids for line in lines], dtype=np.int32)[owners]
    each = np.arange(len(owners))
    targets = copies[each, masked_at].copy()
    copies[each, masked_at] = masking_id(work.scorer.tokenizer)
    # The position is part of what makes a copy: a text may hold the mask token itself.
    different, copy_of = np.unique(np.column_stack([copies, masked_at]), axis=0, return_inverse=True)
    order = np.argsort(copy_of, kind="stable")
    sorted_copies = copy_of[order]
    nats = np.empty(len(owners))
    step = work.rows(length, 1 if work.scorer.body is not None else length)
    for start in range(0, len(different), step):
        batch = torch.from_numpy(different[start : start + step].astype(np.int64))
        here = slice(*np.searchsorted(sorted_copies, (start, start + len(batch))))
        logits = _logits_at(work, batch[:, :-1], batch[:, -1])
        rows = torch.from_numpy(sorted_copies[here] - start)
        wanted = torch.from_numpy(targets[order[here]].astype(np.int64))
        nats[order[here]] = work.log_probabilities(logits, rows, wanted).numpy()
    sums = np.zeros(len(lines))
    np.add.at(sums, owners, nats)
    return sums


def _logits_at(work: _Pass, ids: Tensor, positions: Tensor) -> Tensor:
    if work.scorer.body is not None:
        work.read_at[:] = [positions]
        return work.logits(ids)[:, 0]
    logits = work.logits(ids)
    return logits[torch.arange(len(ids), device=logits.device), positions.to(logits.device)]


def _causal(work: _Pass, lines: Sequence[EncodedPassage]) -> Numbers:
    length = len(lines[0].ids)
    step = work.rows(length, length)
    values = []
    for start in range(0, len(lines), step):
        some = lines[start : start + step]
        ids = torch.tensor([line.ids for line in some], device="cpu")
        rows = torch.tensor([row for row, line in enumerate(some) for _ in line.scored], device="cpu")
        positions = torch.tensor([position for line in some for position in line.scored], device="cpu")
        # The logits at a position are of the token that follows it.
        flat = work.logits(ids).flatten(0, 1)
        nats = work.log_probabilities(flat, rows * length + positions - 1, ids[rows, positions])
        values.append(torch.zeros(len(some), dtype=torch.float64, device="cpu").index_add_(0, rows, nats))
    return torch.cat(values).numpy()


@contextmanager
def _narrowed(body: nn.Module | None) -> Iterator[list[Tensor]]:
    read_at: list[Tensor] = []
    if body is None:
        yield read_at
        return
    handle = body.register_forward_hook(lambda module, arguments, output: _narrow(output, read_at[0]))
    try:
        yield read_at
    finally:
        handle.remove()


def _narrow(output: Any, positions: Tensor) -> Any:
    states = main_tensor(output)
    rows = torch.arange(len(states), device=states.device)
    chosen = states[rows, positions.to(states.device)].unsqueeze(1)
    if isinstance(output, Tensor):
        return chosen
    if isinstance(output, tuple):
        return (chosen, *output[1:])
    return type(output)(last_hidden_state=chosen)


def _proved_body(model: nn.Module) -> nn.Module | None:
    body = getattr(model, "base_model", None)
    if not isinstance(body, nn.Module) or body is model:
        return None
    config: Any = model.config
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(0, int(config.get_text_config().vocab_size), (3, 7), generator=generator, device="cpu")
    positions = torch.tensor([0, 3, 6], device="cpu")
    ids = ids.to(device_of(model))
    with evaluating(model), torch.inference_mode():
        whole = main_tensor(model(input_ids=ids))
        try:
            with _narrowed(body) as read_at:
                read_at[:] = [positions]
                narrow = main_tensor(model(input_ids=ids))
        # A head that needs every position fails in its own way; then all logits are computed.
        except (RuntimeError, IndexError, TypeError, ValueError, KeyError, AttributeError):
            return None
    wanted = whole[torch.arange(3, device=whole.device), positions.to(whole.device)].unsqueeze(1)
    return body if narrow.shape == wanted.shape and torch.allclose(narrow, wanted, atol=1e-4, rtol=1e-4) else None
