"""Choose the amount of text that fits a time budget, by timing one batch.

    tokens = seconds / (seconds per token of a forward pass * number of forward passes)

The minimum detectable effect is predicted from the effect of skipping one layer on a sample of the text. The amount of
text is stored in the run, so that the same command reads the same text again. With `--tokens`, it can be reproduced on
another machine.
"""

from __future__ import annotations

import math
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from statistics import mean, stdev
from typing import Any, Literal

from layerwise.data.text.corpus import Corpus
from layerwise.errors import LayerwiseError, MeasureError, OptionError, UnsupportedModelError
from layerwise.measure.interventions.sweep import CostEstimate, sweep
from layerwise.measure.language.evaluation_data import CONTEXT, WINDOW, EvalData, sample
from layerwise.measure.stats.grid import MIN_UNITS
from layerwise.measure.stats.statistics import ALPHA, minimum_detectable_effect
from layerwise.page.formatting import format_count, format_number
from layerwise.plan import Plan, edits
from layerwise.results import Manifest
from layerwise.results.run import MANIFEST, is_run
from layerwise.runner.price import count_tokens, fits_in, time_passes
from layerwise.runner.reporter import format_duration
from layerwise.runner.verb import current_call
from layerwise.stack import Stack, weight_hash
from layerwise.stack.max_length import longest_input

MINUTES = 10.0
"""Default time budget in minutes."""

USED = 0.75
"""Share of the time budget for forward passes. The rest is for starting Python, intervals and the page."""

ROUNDS = 5
"""Maximum number of corrections of the amount of text, which are needed because the cost is not proportional to it."""

SMALL_TEXT = 4_000_000

SAMPLED_TOKENS = 1024

CHOSEN = ("tokens", "max_length", "parts", "families", "method", "width")


@dataclass(frozen=True)
class TimedText:
    """The text of a verb, and the cost of running the model on it.

    `cut(tokens, length)` returns that many tokens of the text (None: all of it) in windows of `length` tokens.
    `cost(data)` counts the layer evaluations. `compared` is the number of plans whose p-values are corrected together,
    and `share` the share of the text on which they are compared. At least `fewest` documents or windows are needed.
    """

    stack: Stack
    cut: Callable[[int | None, int | None], EvalData]
    cost: Callable[[EvalData], CostEstimate]
    compared: int
    share: float = 1.0
    fewest: int = MIN_UNITS

    @property
    def least_units(self) -> int:
        """Return the minimum number of documents or windows with which a sign-flip test can be significant.

        With n units, p is at least 2^(1 - n). For example, if 30 comparisons are corrected together, a test on 8 units
        is never significant, and a test on 11 units can be.
        """
        least = 1 + math.log2(max(1, self.compared) / ALPHA)
        return max(self.fewest, math.ceil(least / self.share))


@dataclass(frozen=True, slots=True)
class ChosenText:
    """The chosen text, the options that reproduce it, notes for the user (`says`), and the seconds per token."""

    data: EvalData
    options: Mapping[str, Any]
    says: tuple[str, ...] = ()
    seconds: float | None = None

    def amount(self, request: TextRequest) -> tuple[int | None, int | None]:
        tokens = self.options.get("tokens", request.tokens)
        return tokens if isinstance(tokens, int) else None, self.options.get("max_length", request.max_length)


@dataclass(frozen=True, slots=True, kw_only=True)
class TextRequest:
    """The amount of text that a verb is asked to read, and the options by which an earlier run of this call is found.

    Args:
        minutes: Time budget, if given.
        tokens: Number of tokens, if given.
        max_length: Maximum window length in tokens, if given.
        is_named: Whether the text was given by its name or path.
        verb: Name of the verb.
        given: Options that differ from their defaults.
        values: All options.
        began: Value of `time.monotonic()` when the call began.
        is_shared: Whether the work is shared by several processes.
    """

    minutes: float | None
    tokens: int | Literal["all"] | None
    max_length: int | None
    is_named: bool
    verb: str
    given: Mapping[str, Any]
    values: Mapping[str, Any]
    began: float
    is_shared: bool = False

    @classmethod
    def of_call(cls, text: object) -> TextRequest:
        call = current_call()
        defaults = {name: argument.default for name, argument in call.verb.arguments.items()}
        options = {**defaults, **call.options}
        return cls(
            minutes=options["minutes"],
            tokens=options["tokens"],
            max_length=options["max_length"],
            is_named=isinstance(text, str | Path),
            verb=call.verb.name,
            given=call.verb.given(call.options),
            values=options,
            began=call.began,
        )

    def identify(self, options: Mapping[str, Any]) -> dict[str, Any]:
        """Return the options by which an earlier run of the same call is recognized.

        They exclude the options in `CHOSEN` that were not given, and a model that was passed as an object.
        """
        excluded = [name for name in (*CHOSEN, "model") if name not in self.given]
        return {name: value for name, value in options.items() if name not in (*excluded, "run", "overwrite")}


Candidate = tuple[Mapping[str, Any], TimedText]
"""Options that differ from the request, and the text that would be read with these options."""


def choose_text(request: TextRequest, candidates: Sequence[Candidate], corpus: Corpus) -> ChosenText:
    """Return the text of the first candidate that fits the time budget, or the text of an earlier run of this call.

    The first candidate is the request, and the others are cheaper. All of the text is read if several processes share
    the work, or if the text was not given by its name and no minutes were given.
    """
    _, timed = candidates[0]
    if request.is_shared and request.minutes is not None:
        raise OptionError("--minutes requires a single process. Pass --tokens instead.")
    # Unnamed text is that of the demo, or cut by a caller in Python.
    is_whole = request.is_shared or (not request.is_named and request.minutes is None)
    if is_whole or request.tokens is not None:
        return ChosenText(
            timed.cut(request.tokens if isinstance(request.tokens, int) else None, request.max_length), {}
        )
    recorded = next(_find_recorded(request, timed), None)
    if recorded is not None:
        return recorded
    minutes, most = request.minutes or MINUTES, sum(len(each.text) for each in corpus.documents)
    if most <= SMALL_TEXT:
        full_text = timed.cut(None, request.max_length)
        if fits_in(timed.stack, timed.cost(full_text), full_text, 60 * USED * minutes):
            if request.minutes is None:
                return ChosenText(full_text, {})
            spread = measure_spread(timed.stack, full_text)
            return ChosenText(full_text, {"tokens": "all"}, tuple(_describe_resolution(timed, full_text, spread)))
        most = full_text.tokens
    return _fit_minutes(request, candidates, corpus, most)


def _fit_minutes(request: TextRequest, candidates: Sequence[Candidate], corpus: Corpus, most: int) -> ChosenText:
    _, timed = candidates[0]
    minutes = request.minutes or MINUTES
    cut = _Cut.of(request, timed, corpus, most)
    pace = time_passes(timed.stack, cut.first)
    spread = measure_spread(timed.stack, cut.first)
    needed = cut.read(pace, cut.least)[1]
    tokens, changed = None, candidates[0][0]
    for changed, smaller in candidates:  # noqa: B007  (the last one is used)
        cut = cut if smaller is timed else _Cut.of(request, smaller, corpus, most)
        allowed = 60 * minutes * USED - (time.monotonic() - request.began)
        tokens = fit_tokens(allowed, partial(cut.read, pace), cut.least, most)
        if tokens is not None:
            break
    seconds = cut.read(pace, cut.least)[1] if tokens is None else 0.0
    if tokens is None and request.minutes is not None:
        least = _minutes(seconds, request)
        raise OptionError(
            f"--minutes must be at least {least:,}, got {minutes:g}: conclusions need {cut.units} documents or windows "
            f"of {cut.least // cut.units} tokens. Pass more minutes, or measure fewer plans or parts."
        )
    choice = cut.chosen(tokens or cut.least, most)
    notes = [_sentence(request, choice), *_describe_resolution(cut.timed, choice.data, spread)]
    if tokens is None:
        notes.append(
            f"this takes about {format_duration(seconds)}, because less text would not allow any conclusion; fewer "
            "plans or parts take less time"
        )
    if changed:
        notes.append(_describe_smaller(request, changed, _minutes(needed, request)))
    return replace(choice, options={**choice.options, **changed}, says=tuple(notes), seconds=pace)


@dataclass(frozen=True, slots=True)
class _Cut:
    """A text that must have at least `units` windows and `least` tokens, of which the share `dense` is scored."""

    timed: TimedText
    request: TextRequest
    first: EvalData
    units: int
    least: int
    dense: float
    shortens: bool

    @classmethod
    def of(cls, request: TextRequest, timed: TimedText, corpus: Corpus, most: int) -> _Cut:
        units = timed.least_units
        length = request.max_length or min(WINDOW, longest_input(timed.stack.model) or WINDOW)
        first = timed.cut(units * length, request.max_length)
        spans = [each.scored_until - each.scored_from for each in first.windows]
        dense = first.tokens / sum(spans)  # a masked model is scored on few tokens of a window
        shortens = request.max_length is None and not any(each.answer_start is not None for each in corpus.documents)
        of_window = min(CONTEXT, mean(spans)) if shortens else mean(spans)
        least = min(first.tokens, math.ceil(units * of_window * dense))
        cut = cls(timed, request, first, units, least, dense, shortens)
        while timed.cut(least, cut.length(least)).units < units and least < first.tokens:
            least = min(first.tokens, 2 * least)
        return replace(cut, least=least)

    def length(self, tokens: int) -> int | None:
        longest = max(each.scored_until - each.scored_from for each in self.first.windows)
        if self.shortens and tokens / self.dense < self.units * longest:
            return min(CONTEXT, self.first.length)  # more documents are better than longer windows
        return self.request.max_length

    def read(self, pace: float, tokens: int) -> tuple[EvalData, float]:
        data = self.timed.cut(tokens, self.length(tokens))
        return data, pace * count_tokens(self.timed.stack, self.timed.cost(data))

    def chosen(self, tokens: int, most: int) -> ChosenText:
        max_length = self.request.max_length
        options: dict[str, Any] = {"minutes": self.request.minutes or MINUTES, "tokens": tokens}
        if self.length(tokens) != max_length:
            options["max_length"] = self.length(tokens)
        data = self.timed.cut(tokens, self.length(tokens))
        if tokens < most and data.tokens >= tokens - self.first.length:
            return ChosenText(data, options)
        return ChosenText(self.timed.cut(None, max_length), {"minutes": options["minutes"], "tokens": "all"})


def measure_spread(stack: Stack, data: EvalData) -> float | None:
    """Return the standard deviation per token of the loss change when the middle layer is skipped.

    It is estimated from the windows of a sample. Return None if the model cannot run without this layer.
    """
    if stack.depth < 2:
        return None
    skipped = edits.skip(Plan.identity(stack.depth), stack.depth // 2)
    try:
        losses = sweep(stack, [skipped], sample(data, SAMPLED_TOKENS, 0))
    except (MeasureError, UnsupportedModelError):
        return None
    changes: defaultdict[tuple[str, str, int], float] = defaultdict(float)
    for row in losses:
        sign = 1 if row.plan == str(skipped) else -1
        changes[row.task, row.document, row.window] += sign * row.nll / row.tokens
    return stdev(changes.values()) * math.sqrt(mean(row.tokens for row in losses)) if len(changes) > 1 else None


def _describe_resolution(timed: TimedText, data: EvalData, spread: float | None) -> Iterator[str]:
    units = int(timed.share * data.units)
    if spread is not None and units >= MIN_UNITS:
        error = spread / math.sqrt(timed.share * data.tokens)
        effect = float(minimum_detectable_effect(error, units, comparisons=timed.compared))
        yield (
            f"minimum detectable effect: about {format_number(effect)} nats/token (80 % power, "
            f"{format_count(timed.compared, 'comparison')}; estimated with layer {timed.stack.depth // 2} on a sample)"
        )


def _minutes(seconds: float, request: TextRequest) -> int:
    return math.ceil((seconds + time.monotonic() - request.began) / 60 / USED)


def _describe_smaller(request: TextRequest, changed: Mapping[str, Any], minutes: int) -> str:
    clauses = []
    for name, value in changed.items():
        value_before = request.values[name]
        if isinstance(value_before, list | tuple):
            clauses.append(f"without the {name} {', '.join(each for each in value_before if each not in value)}")
        else:
            clauses.append(f"with --{name} {value}")
    return f"{' and '.join(clauses)}, to save time; to measure everything, pass --minutes {minutes}"


def fit_tokens(seconds: float, read: Callable[[int], tuple[EvalData, float]], least: int, most: int) -> int | None:
    """Return the largest number of tokens that takes at most `seconds`, or None if even `least` tokens take longer.

    `read(tokens)` returns a text of that many tokens, and how many seconds it takes.
    """
    tokens = min(least, most)
    data, duration = read(tokens)
    if duration > seconds:
        return None
    for _ in range(ROUNDS):
        further = min(most, int(data.tokens * seconds / duration))
        if further <= 1.02 * tokens:
            break
        tokens = further
        data, duration = read(tokens)
    return tokens


def _sentence(request: TextRequest, choice: ChosenText) -> str:
    budget = "10 minutes by default" if request.minutes is None else f"--minutes {request.minutes:g}"
    flags = " ".join(
        f"--{name.replace('_', '-')} {value}" for name, value in choice.options.items() if name != "minutes"
    )
    units = f"{choice.data.units:,} documents or windows"
    return f"text within the time budget ({budget}): {units}; to reproduce it, pass {flags}"


def _find_recorded(request: TextRequest, timed: TimedText) -> Iterator[ChosenText]:
    if request.values.get("overwrite"):
        return
    run = request.values.get("run")
    folders = [Path(run)] if run is not None else sorted(Path("runs").glob("*"))
    minutes = request.minutes or MINUTES
    request_options = request.identify({"experiment": request.verb, **request.given, "minutes": minutes})
    weights = ""
    for folder in filter(is_run, folders):
        with suppress(LayerwiseError, OSError, UnicodeDecodeError):
            manifest = Manifest.from_json((folder / MANIFEST).read_text(encoding="utf-8"))
            recorded = manifest.experiment
            if "tokens" not in recorded or request.identify(recorded) != request_options:
                continue
            weights = weights or weight_hash(timed.stack.model)
            names = [name for name in ("minutes", *CHOSEN) if name in recorded and name not in request.given]
            options = {name: recorded[name] for name in names}
            limit = recorded["tokens"] if isinstance(recorded["tokens"], int) else None
            data = timed.cut(limit, options.get("max_length", request.max_length))
            if manifest.weight_hash == weights and (run or manifest.corpus_hash == data.digest):
                note = f"text: the {data.tokens:,} tokens of {folder}"
                yield ChosenText(data, options, (note,))
