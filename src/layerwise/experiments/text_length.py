"""How much text a measurement reads: as much as N minutes allow, by one timed batch of the model.

    tokens = seconds / (seconds of a token in one pass * passes of the whole model)

The number is stored in the run, so that the same command reads the same text; `--tokens` reproduces it elsewhere.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from statistics import mean
from typing import Any

from layerwise.data.text.corpus import Corpus
from layerwise.errors import LayerwiseError, OptionError
from layerwise.experiments.engines.price import count_tokens, is_within, time_passes
from layerwise.experiments.experiment import Experiment
from layerwise.experiments.option import plain
from layerwise.experiments.options.common import ClusterOptions, DurationOptions
from layerwise.experiments.reporter import duration
from layerwise.measure.interventions.sweep import CostEstimate
from layerwise.measure.language.evaluation_data import WINDOW, EvalData
from layerwise.measure.stats.grid import FEWEST_UNITS
from layerwise.results import Manifest
from layerwise.results.run import MANIFEST, is_run
from layerwise.stack import Stack, weight_hash
from layerwise.stack.max_length import longest_input

MINUTES = 10.0
"""Minutes that a measurement takes at most, about, unless `--minutes` or `--tokens` says otherwise."""

USED = 0.75
"""Of the minutes, what passes of the model may take: intervals, the page and the start of Python take the rest."""

ALPHA = 0.05
"""The error rate of what is corrected together."""

SHORTEST = 32
"""Tokens of a window at least, where windows are made shorter so that there are enough of them."""

ROUNDS = 5
"""How often the amount of text is corrected: what is computed need not grow with it in proportion."""

SMALL_TEXT = 4_000_000
"""Characters that are tokenized in a moment."""

CHOSEN = ("tokens", "max_length", "parts")
"""The options that are chosen where they are not given."""


@dataclass(frozen=True)
class TimedText:
    """A verb's text as it can be cut, and the cost of reading it.

    `cut(tokens, length)` returns the text, all of it without a number; `cost(data)` counts layers and heads. `compared`
    plans are corrected together, on a `share` of the text; `fewest` documents or windows are needed.
    """

    stack: Stack
    cut: Callable[[int | None, int | None], EvalData]
    cost: Callable[[EvalData], CostEstimate]
    compared: int
    share: float = 1.0
    fewest: int = FEWEST_UNITS

    @property
    def least_units(self) -> int:
        """Return the least documents or windows for sign flips to show an effect after Holm's correction.

        With n units p >= 2^(1 - n): 8 show nothing among 30 comparisons, 11 do.
        """
        least = 1 + math.log2(max(1, self.compared) / ALPHA)
        return max(self.fewest, math.ceil(least / self.share))


@dataclass(frozen=True, slots=True)
class ChosenText:
    """The text that is read, with the options that were chosen for it and what is said of it; none where the command
    says it itself."""

    data: EvalData
    options: Mapping[str, Any]
    says: tuple[str, ...] = ()

    def amount(self, config: DurationOptions) -> tuple[int | None, int | None]:
        """The tokens of the text at most, and of a window, as `TimedText.cut` takes them."""
        tokens = self.options.get("tokens", config.tokens)
        return tokens if isinstance(tokens, int) else None, self.options.get("max_length", config.max_length)


def chosen_text(config: Experiment, timed: TimedText, corpus: Corpus, began: float) -> ChosenText:
    """Return the text by the options, an earlier run of the same command, or the minutes since `began`.

    Demo text and text passed in Python are read whole unless minutes are given; a sweep shared by several processes
    reads all of its text. `began` is on `time.monotonic`. Raises `OptionError` for too few minutes to conclude
    anything.
    """
    assert isinstance(config, DurationOptions)
    if isinstance(config, ClusterOptions) and config.ray is not None:
        if config.minutes is not None:
            raise OptionError("--minutes is for one process, which knows its pace; of several give --tokens")
        return ChosenText(timed.cut(config.limit, config.max_length), {})
    unnamed = config.text is None  # the demo's own, which is short, or one that a caller in Python has cut
    if config.tokens is not None or (unnamed and config.minutes is None):
        return ChosenText(timed.cut(config.limit, config.max_length), {})
    recorded = next(_recorded(config, timed), None)
    if recorded is not None:
        return recorded
    minutes, most = config.minutes or MINUTES, sum(len(each.text) for each in corpus.documents)
    if most <= SMALL_TEXT:
        whole = timed.cut(None, config.max_length)
        if is_within(timed.stack, timed.cost(whole), whole, 60 * USED * minutes):
            return ChosenText(whole, {} if config.minutes is None else {"tokens": "all"})
        most = whole.tokens
    return _that_fits(config, timed, corpus, most, began)


def _that_fits(config: DurationOptions, timed: TimedText, corpus: Corpus, most: int, began: float) -> ChosenText:
    minutes, units = config.minutes or MINUTES, timed.least_units
    length = config.max_length or min(WINDOW, longest_input(timed.stack.model) or WINDOW)
    first = timed.cut(units * length, config.max_length)
    spans = [each.scored_until - each.scored_from for each in first.windows]
    dense = first.tokens / sum(spans)  # a masked model is scored on few of the tokens of a window
    shortens = config.max_length is None and not any(each.answer_start is not None for each in corpus.documents)
    of_window = min(SHORTEST, mean(spans)) if shortens else mean(spans)
    least = min(first.tokens, math.ceil(units * of_window * dense))

    def shorter(tokens: int) -> int | None:
        within = int(tokens / dense / units)
        return max(SHORTEST, within) if shortens and within < max(spans) else config.max_length

    while timed.cut(least, shorter(least)).units < units and least < first.tokens:
        least = min(first.tokens, 2 * least)
    each = time_passes(timed.stack, first)

    def read(tokens: int) -> tuple[EvalData, float]:
        data = timed.cut(tokens, shorter(tokens))
        return data, each * count_tokens(timed.stack, timed.cost(data))

    tokens = tokens_within(60 * minutes * USED - (time.monotonic() - began), read, least, most)
    if tokens is None:
        if config.minutes is not None:
            needed = math.ceil((read(least)[1] + time.monotonic() - began) / 60 / USED)
            raise OptionError(
                f"--minutes {minutes:g} is too little: {units} documents or windows of {least // units} "
                f"tokens, the least that anything is concluded from, take about {needed:,}; give --minutes {needed}, "
                "or measure less (fewer plans or parts)"
            )
        tokens = least
    options: dict[str, Any] = {"tokens": tokens}
    if shorter(tokens) != config.max_length:
        options["max_length"] = shorter(tokens)
    data, seconds = read(tokens)
    if tokens >= most or data.tokens < tokens - length:
        options, data = {"tokens": "all"}, timed.cut(None, config.max_length)
    return ChosenText(data, {"minutes": minutes, **options}, (_sentence(config, data, options, seconds),))


def tokens_within(seconds: float, read: Callable[[int], tuple[EvalData, float]], least: int, most: int) -> int | None:
    """Return the tokens, `least` to `most`, that fit so many seconds, or None; `read(tokens)` returns text and time."""
    tokens = min(least, most)
    data, taken = read(tokens)
    if taken > seconds:
        return None
    for _ in range(ROUNDS):
        further = min(most, int(data.tokens * seconds / taken))
        if further <= 1.02 * tokens:
            break
        tokens = further
        data, taken = read(tokens)
    return tokens


def _sentence(config: DurationOptions, data: EvalData, options: Mapping[str, Any], seconds: float) -> str:
    why = "no --minutes were given" if config.minutes is None else f"--minutes {config.minutes:g}"
    amount = f"{'all, ' if options['tokens'] == 'all' else ''}{data.tokens:,} tokens"
    flags = " ".join(f"--{name.replace('_', '-')} {value}" for name, value in options.items())
    return (
        f"text: {amount} in {data.units:,} documents or windows, for about {duration(seconds)} ({why}); "
        f"{flags} reads the same again"
    )


def _recorded(config: DurationOptions, timed: TimedText) -> Iterator[ChosenText]:
    assert isinstance(config, Experiment)
    if config.overwrite:
        return
    folders = [config.run] if config.run is not None else sorted(Path("runs").glob("*"))
    requested = _request({"experiment": config.VERB, **plain(config), "minutes": config.minutes or MINUTES}, config)
    weights = ""
    for folder in filter(is_run, folders):
        with suppress(LayerwiseError, OSError, UnicodeDecodeError):
            manifest = Manifest.from_json((folder / MANIFEST).read_text(encoding="utf-8"))
            kept = manifest.experiment
            if "tokens" not in kept or _request(kept, config) != requested:
                continue
            weights = weights or weight_hash(timed.stack.model)
            options = {name: kept[name] for name in ("minutes", *CHOSEN) if name in kept and name not in plain(config)}
            limit = kept["tokens"] if isinstance(kept["tokens"], int) else None
            data = timed.cut(limit, options.get("max_length", config.max_length))
            if manifest.weight_hash == weights and (config.run or manifest.corpus_hash == data.digest):
                yield ChosenText(data, options, (f"text: as much as {folder} has read, {data.tokens:,} tokens",))


def _request(options: Mapping[str, Any], config: DurationOptions) -> dict[str, Any]:
    chosen = [name for name in CHOSEN if name not in plain(config)]
    return {name: value for name, value in options.items() if name not in (*chosen, "run", "overwrite")}
