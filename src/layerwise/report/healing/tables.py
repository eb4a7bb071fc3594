"""A healing as tables and as sentences: by task, by contrast, by learning rate, and what it cost."""

from __future__ import annotations

from collections.abc import Iterator

from layerwise.report.evidence import Evidence
from layerwise.report.healing.lookup import (
    ALL,
    CONTRAST,
    COST,
    PRUNED,
    RANDOM,
    RATE,
    UNTOUCHED,
    WHOLE,
    WINDOW,
    HealingScores,
)
from layerwise.report.page.number_format import between, is_resolved, probability, tidy
from layerwise.report.page.plain_markdown import bullets
from layerwise.report.page.table import Table
from layerwise.report.page.wording import listed
from layerwise.report.quantity import scaled
from layerwise.results.rows import Score

PERCENT = 100.0


def task_table(run: HealingScores) -> Table:
    """A row for each task and model: loss, accuracy, nats above the whole model, and the shares that came back."""
    head = ("task", "model", "nats a token", "right (%)", "above the whole model", "regained (%)", "net (%)")
    body = []
    for task in run.tasks:
        for name in (UNTOUCHED, PRUNED, *run.arms):
            above = run.score(name, task, "lost" if name == PRUNED else "above_whole")
            body.append(
                (
                    task, name, _text(run.score(name, task, "nll")),
                    _text(run.score(name, task, "accuracy"), PERCENT, bounds=False), _text(above, signed=True),
                    _text(run.score(name, task, "regained_share"), PERCENT),
                    _text(run.score(name, task, "net_share"), PERCENT),
                )
            )  # fmt: skip
    return Table(head, tuple(body), numeric_from=2)


def rate_table(run: HealingScores) -> Table:
    """The validation loss at every learning rate that was tried."""
    body = [
        (arm, rate, tidy(row.value), _choice(run, arm, rate))
        for (measure, arm, rate, metric), row in run.rows.items()
        if (measure, metric) == (RATE, "validation_nll")
    ]
    return Table(("arm", "learning rate", "validation loss", ""), tuple(body), numeric_from=1)


def cost_table(run: HealingScores) -> Table:
    """What the trainings of each arm took, on the mean over seeds."""
    columns = {
        "steps": "steps", "tokens": "tokens", "learning_weights": "weights that learn", "seconds": "seconds",
        "peak_bytes": "peak bytes",
    }  # fmt: skip
    body = []
    for arm in run.arms:
        cells = []
        for metric in columns:
            values = [
                row.value
                for (measure, subject, _, of), row in run.rows.items()
                if (measure, of) == (COST, metric) and subject.rpartition("/")[0] == arm
            ]
            cells.append(tidy(float(round(sum(values) / len(values)))) if values else "–")
        body.append((arm, *cells))
    return Table(("arm", *columns.values()), tuple(body))


def healing_sentences(run: HealingScores) -> Iterator[str]:
    """What was lost and came back, who did better, where healing stops to make up, and which sweeps are not tuned."""
    lost = run.score(PRUNED, ALL, "lost")
    if lost is not None:
        yield f"The plan loses {_text(lost)} nats a token (interval over documents)."
    for arm in run.healings:
        net, share = (run.score(arm, ALL, metric) for metric in ("net_share", "regained_share"))
        if share is None:
            yield f"{arm}: nothing was resolvably lost, so there is no share of it to regain."
            continue
        text = f"{arm} regains {_text(share, PERCENT)} % of it"
        yield text + ("." if net is None else f", {_text(net, PERCENT)} % net of what the whole model gains.")
    for (measure, subject, _, metric), row in run.rows.items():
        if measure == CONTRAST:
            yield _contrast(subject, metric.partition("@")[2], row)
    yield from _window_sentences(run)
    for measure, arm, rate, metric in run.rows:
        if (measure, metric) == (RATE, "chosen_at_end") and _tried(run, arm) > 1:
            yield f"The best learning rate of {arm}, {rate}, is at the end of those tried: it is not tuned."


def healing_lines(run: HealingScores) -> list[str]:
    """The tables and the sentences, for a terminal."""
    if not run.rows:
        return []
    sentences = (f"- {text}" for text in healing_sentences(run))
    return [*task_table(run).lines(), *sentences]


def healing_markdown(evidence: Evidence) -> Iterator[str]:
    """The sentences and every table."""
    run = HealingScores.of(evidence.data.scores)
    yield bullets(healing_sentences(run))
    yield task_table(run).section("Healing by task")
    yield rate_table(run).section("Learning rates")
    yield cost_table(run).section("Cost")


def _contrast(main: str, other: str, row: Score) -> str:
    value = f"{between(row.value, row.low, row.high, signed=True)} nats a token"
    who = "a random plan healed as long" if other == RANDOM else other
    if is_resolved(row, 0.05):
        verdict = "better" if row.value < 0 else "worse"
        return f"{main} is {verdict} than {who}: {value}, adjusted p {probability(row.p_adjusted)}."
    seeds = f"{row.documents} seed{'s' * (row.documents != 1)}"
    above = "" if row.mde is None else f"; above {tidy(row.mde)} it would have been seen"
    return f"{main} against {who}: not resolvable in {seeds}, {value}{above}."


def _window_sentences(run: HealingScores) -> Iterator[str]:
    """Which numbers of skipped layers help and hurt, each by its interval, and up to how many healing makes up."""
    trained = run.window(f"healed@{WHOLE}")
    healed = trained or {count: row for count, row in run.window("healed").items() if count}
    if not healed:
        return
    whole = "the whole model trained as long" if trained else "the untouched whole model"
    row = run.score(f"crossing@{WHOLE}" if trained else "crossing", ALL, "layers", WINDOW)
    if row is None:
        yield f"In some seed a healed model is no worse than {whole} at all of up to {max(healed)} layers skipped."
    else:
        yield f"A healed model is no worse than {whole} up to {_text(row)} middle layers skipped (interval over seeds)."
    helped = [count for count, each in healed.items() if each.high is not None and each.high < 0.0]
    hurt = [count for count, each in healed.items() if each.low is not None and each.low > 0.0]
    unknown = [count for count in healed if count not in (*helped, *hurt)]
    sides = (("helps", helped), ("hurts", hurt), ("is not resolvable", unknown))
    clauses = [f"skipping {listed([str(count) for count in counts])} {what}" for what, counts in sides if counts]
    pattern = ": few help, many hurt" if helped and hurt and max(helped) < min(hurt) and not unknown else ""
    control = "" if trained else " What the text alone gives is not taken off."
    yield f"Beside {whole} {listed(clauses)}{pattern}.{control}"


def _choice(run: HealingScores, arm: str, rate: str) -> str:
    chosen = run.score(arm, rate, "chosen", RATE) or run.score(arm, rate, "chosen_at_end", RATE)
    return "chosen" if chosen is not None else ""


def _tried(run: HealingScores, arm: str) -> int:
    return sum((measure, of, metric) == (RATE, arm, "validation_nll") for measure, of, _, metric in run.rows)


def _text(score: Score | None, scale: float = 1.0, *, bounds: bool = True, signed: bool = False) -> str:
    if score is None:
        return "–"
    shown = scaled(score, scale)
    if not bounds:
        return tidy(shown.value, signed=signed)
    return between(shown.value, shown.low, shown.high, signed=signed)
