"""Describe the text that was read, and the amount that is needed to detect an effect."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from statistics import median

from layerwise.page.data import ReportData
from layerwise.page.formatting import format_count, format_number
from layerwise.results import vocabulary as vocab
from layerwise.results.estimate import estimate_tokens_needed
from layerwise.results.rows import Score

DEFAULT_EFFECT = 0.01

BEYOND_REASON = 1_000
"""If more than this multiple of the text is needed, only "more than 1,000 times as much" is reported."""

ON_TEXT = (vocab.EFFECT, vocab.SEARCH, *vocab.DIAGNOSED)

MOST = 100
"""If more than this multiple of the text is needed, no `--minutes` are proposed."""


def describe_tokens_needed(rows: Iterable[Score], wanted: float | None = None) -> str:
    """Describe how much text is needed to detect each effect in `rows`, as the end of a sentence; empty if unknown.

    >>> describe_tokens_needed([Score("effect", "delta_nll", 0.0, mde=0.04, tokens=1000)], wanted=0.01)
    '; about 16,000 tokens would be needed to detect an effect of 0.01 nats/token'
    >>> describe_tokens_needed([Score("search", "above_chosen", 0.01, mde=0.02, tokens=1000)])
    '; about 4,000 tokens would be needed to detect this difference'
    """
    numbers = {number: row for row in rows if (number := estimate_tokens_needed(row, wanted)) is not None}
    if not numbers:
        return ""
    what = "this difference" if wanted is None else f"an effect of {wanted:g} nats/token"
    if max(numbers) > BEYOND_REASON * (numbers[max(numbers)].tokens or 0):
        return f"; more than {BEYOND_REASON:,} times as much text would be needed to detect {what}"
    return f"; about {float(f'{max(numbers):.2g}'):,.0f} tokens would be needed to detect {what}"


def describe_text(data: ReportData) -> Iterator[str]:
    """Describe the amount of text; if a time budget chose it, also how to repeat it and what more text would show."""
    manifest = data.manifest
    documents, read, window = (manifest.get(key) for key in ("documents", "tokens", "window"))
    if not isinstance(read, int) or not isinstance(documents, int) or not data.rows.where(measure=ON_TEXT):
        return
    windows = f" in windows of at most {window} tokens" if isinstance(window, int) and window > 1 else ""
    yield f"Text: {format_count(documents, 'document')}, {read:,} scored tokens{windows}."
    experiment = manifest.get("experiment")
    options = experiment if isinstance(experiment, Mapping) else {}
    if "minutes" not in options or "tokens" not in options:
        return
    reproducing = {name: options[name] for name in ("tokens", "max_length") if name in options}
    flags = " ".join(f"--{name.replace('_', '-')} {value}" for name, value in reproducing.items())
    minutes = float(options["minutes"])
    yield f"The text fits a time budget of {minutes:g} minutes; to reproduce it, pass {flags}."
    skipped = data.rows.where(measure=vocab.ABLATION, metric=vocab.SKIPPING, task=vocab.ALL, part=None)
    measured = skipped or (*data.rows.where(measure=vocab.EFFECT), *data.rows.where(measure=vocab.VERDICT))
    rows = [row for row in measured if row.mde is not None and row.tokens == read]
    if not rows or options["tokens"] == "all":
        return
    margin = data.rows.value(measure=vocab.VERDICT, metric=vocab.MARGIN) or DEFAULT_EFFECT
    seen = median(row.mde for row in rows if row.mde is not None)
    resolved = f"Median minimum detectable effect: {format_number(seen)} nats"
    needed = estimate_tokens_needed(Score("run", "mde", 0.0, mde=seen, tokens=rows[0].tokens), margin)
    if needed is None:
        yield f"{resolved}."
        return
    if needed > MOST * int(rows[0].tokens or 0):
        yield f"{resolved}. To halve it, use four times as much text."
        return
    needed_minutes = math.ceil(minutes * needed / int(rows[0].tokens or 1))
    yield (
        f"{resolved}. To detect an effect of {margin:g} nats/token, use about {needed:,} tokens "
        f"(--minutes {needed_minutes})."
    )
