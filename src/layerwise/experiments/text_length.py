"""How much text a measurement reads: as much as N minutes allow, at the pace of the very work on the very model.

    seconds(tokens) = fixed + each * tokens

The pace is measured on a beginning of the text in the order in which it is read, then on as much as that allows, until
what was measured is about what will be read. What is read has a resolution, which a pilot gives: some of the plans on
some of the documents, whose paired differences spread as those of all will. Both are said before the run.

A clock decides how much is read, so the number is kept with the options of the run. The same command finds it there and
reads the same text again; `--tokens` with that number reads it anywhere else.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from statistics import mean
from typing import Any

import numpy as np

from layerwise.data.text.corpus import Corpus
from layerwise.errors import LayerwiseError, MeasureError, OptionError
from layerwise.experiments.cluster.workers import is_spread
from layerwise.experiments.engines.forecast import LIMIT, seconds_of
from layerwise.experiments.engines.steps import Work
from layerwise.experiments.experiment import Experiment
from layerwise.experiments.option import plain
from layerwise.experiments.options.common import DurationOptions
from layerwise.experiments.reporter import Reporter, duration
from layerwise.measure.interventions.sweep import sweep
from layerwise.measure.language.evaluation_data import WINDOW, EvalData, pieces, portion
from layerwise.measure.stats.grid import FEWEST_UNITS, Piece, arrange
from layerwise.measure.stats.statistics import Numbers, minimum_detectable_effect
from layerwise.measure.stats.strata import Strata, shuffled, stratum_parts
from layerwise.plan import Plan
from layerwise.report.text.number_format import tidy
from layerwise.results import Manifest
from layerwise.results.run import MANIFEST, is_run
from layerwise.stack import Stack, weight_hash
from layerwise.stack.max_length import longest_input
from layerwise.train.processes import is_alone

MINUTES = 10.0
"""Minutes that a measurement takes at most, about, unless `--minutes` or `--tokens` says otherwise."""

COMFORTABLE = 0.75
"""Of the minutes, what even a slow processor takes for all of the text where nothing is measured."""

USED = 0.95
"""Of the minutes, what is used: a pace that was measured for some seconds is a little off."""

REST = 4.0
"""Seconds for what has no pace: Python starts, and the report is written."""

ALPHA = 0.05
"""The error rate of what is corrected together."""

SHORTEST = 32
"""Tokens of a window at least, where windows are made shorter so that there are enough of them."""

GROWTH = 16
"""How many times as much text is measured next, at most."""

ROUNDS = 5
LOOK = 0.02
"""Of the minutes, what measuring the pace on one amount of text takes, about."""

PILOT = 0.1
"""Of the seconds of a run, what its pilot takes, about."""

PILOT_PLANS = 24
"""Plans of a pilot, at most; at least two."""

FEWEST_OF_STRATUM = 4
"""Documents or windows of each stratum of a pilot, about, at least."""

SHARED = 2
"""How many times a plan by itself costs what it costs beside many others, about: those share most of their layers."""

SMALL_TEXT = 4_000_000
"""Characters that are tokenized in a moment."""

CHOSEN = ("tokens", "max_length", "parts")
"""The options that are chosen where they are not given."""


@dataclass(frozen=True, slots=True)
class ReadingPace:
    """What a measurement takes: `fixed` seconds, and `each` second more for a token that it scores."""

    fixed: float
    each: float

    @classmethod
    def through(cls, points: Sequence[tuple[int, float]]) -> ReadingPace:
        """The line through the last two (tokens, seconds); what they say is fixed is never negative, nor more than
        either took. One point alone says nothing is fixed.

        >>> ReadingPace.through([(100, 12.0), (300, 32.0)]), ReadingPace.through([(100, 12.0)])
        (ReadingPace(fixed=2.0, each=0.1), ReadingPace(fixed=0.0, each=0.12))
        """
        tokens, seconds = points[-1]
        fixed = 0.0
        if len(points) > 1 and points[-2][0] != tokens:
            before, less = points[-2]
            fixed = seconds - tokens * (seconds - less) / (tokens - before)
            fixed = min(max(0.0, fixed), seconds, less)
        return cls(fixed, (seconds - fixed) / tokens)

    def tokens_within(self, seconds: float, most: int) -> int:
        """The most tokens that take no more than so many seconds, and no more than `most`.

        >>> ReadingPace(2.0, 0.5).tokens_within(10.0, 1_000), ReadingPace(2.0, 0.5).tokens_within(1.0, 1_000)
        (16, 0)
        """
        if seconds < self.fixed:
            return 0
        within = (seconds - self.fixed) / self.each if self.each else math.inf
        return most if within >= most else int(within)


def tokens_that_fit(
    measure: Callable[[int], tuple[int, float]], left: Callable[[], float], least: int, most: int
) -> tuple[int, ReadingPace]:
    """The tokens that are read in the seconds that are `left()`, at most `most`; with the pace that says so.

    `measure(tokens)` gives how many tokens a text of at most so many has, and the seconds that reading it takes: of
    `least` tokens first, then of as many as that allows, until about as many were measured as fit. 0 where even `least`
    do not fit.
    """
    points: list[tuple[int, float]] = []
    tokens = min(least, most)
    for _ in range(ROUNDS):
        points.append(measure(tokens))
        pace = ReadingPace.through(points)
        fits = min(pace.tokens_within(left(), most), GROWTH * tokens)
        near = 4 * abs(fits - tokens) <= tokens or max(fits, least) == tokens
        if (near or fits < least) and (len(points) > 1 or tokens == most):
            break
        # One amount alone does not tell what is fixed.
        tokens = min(2 * tokens, most) if near else max(fits, least)
    return (fits if fits >= min(least, most) else 0), pace


@dataclass(frozen=True)
class TimedText:
    """A verb's text as it can be cut, and what reading it takes.

    `cut(tokens, length)` gives the text, all of it without a number. `works(data)` is everything that is done with it,
    each kind able to measure a piece of itself. `is_short(data)` tells, without a clock, that even a slow processor
    does it in the seconds that are given. `plans` are those whose differences are measured, the model as trained first;
    `compared` says how many of them are corrected together, `share` which share of the text they are measured on.
    `fewest` are the documents or windows that the verb needs. Where one plan is reported in the end, `reported` guesses
    it from what each of `plans` costs.
    """

    stack: Stack
    cut: Callable[[int | None, int | None], EvalData]
    works: Callable[[EvalData], Sequence[Work]]
    is_short: Callable[[EvalData, float], bool]
    plans: Sequence[Plan]
    compared: int
    share: float = 1.0
    fewest: int = FEWEST_UNITS
    reported: Callable[[Mapping[Plan, float]], Plan] | None = None

    @property
    def least_units(self) -> int:
        """The documents or windows of which sign flips can show an effect among all that are corrected together.

        With n of them no p is below 2^(1 - n) (`layerwise.measure.stats.statistics.sign_flips`), and Holm's correction
        multiplies the least by how many are compared: 8 show nothing of one among 30, 11 do.
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


def chosen_text(config: Experiment, timed: TimedText, corpus: Corpus, reporter: Reporter, began: float) -> ChosenText:
    """The text that the options say, that an earlier run of the same command read, or that the minutes allow. A demo's
    own text, and one that is handed over in Python, are read whole unless minutes are given.

    `began` is when the command did, on `time.monotonic`. A measurement that several processes share reads all of its
    text, since one alone does not know their pace. Raises `OptionError` for minutes in which nothing can be concluded.
    """
    assert isinstance(config, DurationOptions)
    if is_spread(config) or not is_alone():
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
        if timed.is_short(whole, 60 * COMFORTABLE * minutes):
            return ChosenText(whole, {} if config.minutes is None else {"tokens": "all"})
        most = whole.tokens
    return _that_fits(config, timed, corpus, most, reporter, began)


def _that_fits(
    config: DurationOptions, timed: TimedText, corpus: Corpus, most: int, reporter: Reporter, began: float
) -> ChosenText:
    """The text that the minutes allow, of which there are `most` tokens at most: no token is less than a character."""
    minutes, units = config.minutes or MINUTES, timed.least_units
    length = config.max_length or min(WINDOW, longest_input(timed.stack.model) or WINDOW)
    end = began + 60 * minutes * USED - REST - min(LIMIT, LOOK * 60 * minutes)

    def left() -> float:
        return (end - time.monotonic()) / (1 + 1.5 * PILOT)  # a pilot of the fewest plans takes a little more

    first = timed.cut(units * length, config.max_length)
    spans = [each.scored_until - each.scored_from for each in first.windows]
    dense = first.tokens / sum(spans)  # a masked model is scored on few of the tokens of a window
    shortens = config.max_length is None and not any(each.answer_start is not None for each in corpus.documents)
    of_window = min(SHORTEST, mean(spans)) if shortens else mean(spans)
    least = min(first.tokens, math.ceil(units * of_window * dense))

    def shorter(tokens: int) -> int | None:
        """The length of the windows, so that there are enough of them; `None` where they stay as they are."""
        within = int(tokens / dense / units)
        return max(SHORTEST, within) if shortens and within < max(spans) else config.max_length

    while timed.cut(least, shorter(least)).units < units and least < first.tokens:
        least = min(first.tokens, 2 * least)

    def measure(tokens: int) -> tuple[int, float]:
        data = timed.cut(tokens, shorter(tokens))
        return data.tokens, seconds_of(timed.works(data), min(LIMIT, LOOK * 60 * minutes), reporter.progress)

    tokens, pace = tokens_that_fit(measure, left, least, most)
    if not tokens:
        if config.minutes is not None:
            needed = math.ceil((pace.fixed + pace.each * least + time.monotonic() - began + REST) / 60 / USED)
            raise OptionError(
                f"--minutes {minutes:g} is too little: {units} documents or windows of {least // units} "
                f"tokens, the least that anything is concluded from, take about {needed:,}; give --minutes {needed}, "
                "or measure less (fewer plans or parts)"
            )
        tokens = least
    options: dict[str, Any] = {"tokens": tokens}
    if shorter(tokens) != config.max_length:
        options["max_length"] = shorter(tokens)
    data = timed.cut(tokens, shorter(tokens))
    if tokens >= most or data.tokens < tokens - length:
        options, data = {"tokens": "all"}, timed.cut(None, config.max_length)
    seconds = pace.fixed + pace.each * data.tokens
    says = _sentences(config, timed, data, options, seconds)
    return ChosenText(data, {"minutes": minutes, **options}, tuple(says))


def _sentences(
    config: DurationOptions, timed: TimedText, data: EvalData, options: Mapping[str, Any], seconds: float
) -> Iterator[str]:
    why = "no --minutes were given" if config.minutes is None else f"--minutes {config.minutes:g}"
    amount = f"{'all, ' if options['tokens'] == 'all' else ''}{data.tokens:,} tokens"
    flags = " ".join(f"--{name.replace('_', '-')} {value}" for name, value in options.items())
    yield (
        f"text: {amount} in {data.units:,} documents or windows, for about {duration(seconds)} ({why}); "
        f"{flags} reads the same again"
    )
    seen = resolution(timed, data, PILOT * seconds)
    if seen is not None:
        yield (
            f"resolution: about {tidy(seen)} nats a token, the effect that 80 of 100 such runs find under the median "
            f"plan; half of it takes four times the text, --minutes {math.ceil(4 * seconds / 60)}"
        )


def resolution(timed: TimedText, data: EvalData, seconds: float) -> float | None:
    """The minimum detectable effect that the plans will have on `data`, in nats a token: the median over some of them.

        mde = (t[1 - alpha / (2 plans)] + t[power]) * error(pilot) * sqrt(units of the pilot / units)

    The pilot takes the fewest units that have an interval, some of each stratum among them, and as many plans on those
    as there is time for; then as many units. `None` where no unit has a finite loss, and without another plan than the
    model as trained.
    """
    whole, *others = timed.plans
    lengths = pieces(data, FEWEST_UNITS)
    order = shuffled(lengths, 0)
    if not others or len(order) < FEWEST_UNITS:
        return None
    share = order[: max(FEWEST_UNITS, round(timed.share * len(order)))]
    strata = Strata.of({piece: lengths[piece] for piece in share})
    units = min(len(share), max(FEWEST_UNITS, FEWEST_OF_STRATUM * len(strata.weight)))
    count = max(2, min(PILOT_PLANS, int(PILOT * len(others) * len(order) / (SHARED * units))))
    chosen = [others[(2 * number + 1) * len(others) // (2 * count)] for number in range(count)]
    with suppress(MeasureError):
        if timed.reported is not None:
            costs, _ = _pilot(timed.stack, [whole, *others], data, share[:units], strata)
            chosen = [timed.reported(costs)]
        begun = time.monotonic()
        _, errors = _pilot(timed.stack, [whole, *chosen], data, share[:units], strata)
        taken = time.monotonic() - begun
        more = min(len(share), int(units * (seconds - taken) / max(taken, 1e-9)))
        if more > units:
            units, (_, errors) = more, _pilot(timed.stack, [whole, *chosen], data, share[:more], strata)
        of_all = errors * math.sqrt(units / len(share))
        return float(np.median(minimum_detectable_effect(of_all, len(share), comparisons=timed.compared)))
    return None


def _pilot(
    stack: Stack, plans: Sequence[Plan], data: EvalData, units: Sequence[Piece], strata: Strata
) -> tuple[dict[Plan, float], Numbers]:
    """What each plan costs above the first, and the standard errors of that, stratified as on the whole text will be,
    as far as there are units of each stratum."""
    grid = arrange(sweep(stack, plans, portion(data, units)))
    others = list(dict.fromkeys(plans[1:]))
    own = strata.at_most(max(1, len(units) // FEWEST_OF_STRATUM))
    parts = stratum_parts(grid, str(plans[0]), [str(plan) for plan in others], own)
    values, variances = sum(part.value for part in parts), sum(part.variance for part in parts)
    return dict(zip(others, np.asarray(values).tolist(), strict=True)), np.sqrt(variances)


def _recorded(config: DurationOptions, timed: TimedText) -> Iterator[ChosenText]:
    """What runs of the very same command have read, where their model and text are the same."""
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
    """What a command asks for, without what is chosen for it and where its rows go."""
    chosen = [name for name in CHOSEN if name not in plain(config)]
    return {name: value for name, value in options.items() if name not in (*chosen, "run", "overwrite")}
