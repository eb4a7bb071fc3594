"""From rows to sentences: what pre-training gave, whether the layer weights are worth it, whether they mean anything.

The same kind of finding as of a sweep: a question, an answer that claims no more than its interval carries, and whether
it is resolved. "Not resolvable" is an answer: the arms differ by less than this many seeds can show.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from layerwise.report.evidence import Evidence
from layerwise.report.finding import Finding, Number, State
from layerwise.report.page.number_format import between, is_resolved, probability
from layerwise.report.page.plain_markdown import answered
from layerwise.report.page.wording import counted, listed
from layerwise.report.pretraining.attribution import attribution_findings
from layerwise.report.pretraining.dynamics import dynamics_findings
from layerwise.report.pretraining.fine_tuning import fine_tuning_findings
from layerwise.report.pretraining.lookup import EDGES, HELD_OUT, SEED_AGREEMENT, STUDY, PretrainingScores, suite_name
from layerwise.report.pretraining.phenomena import phenomenon_findings
from layerwise.report.pretraining.stability import stability_findings
from layerwise.report.pretraining.tables import (
    PARADIGM,
    PHENOMENON,
    TEST,
    benchmark_rows,
    cost_rows,
    difference,
    in_nats,
    outcome_rows,
    studied,
    study_rows,
    suite_rows,
)
from layerwise.report.quantity import ACCURACY
from layerwise.results.rows import Score

LIKE = {
    "seeds": "Do the seeds weigh their layers alike?",
    "seeds beyond the start": "Are they alike beyond the start they share?",
    "grouping": "Do surface and linguistic layers keep to themselves?",
    "grouping beyond distance": "Do they beyond being neighbours?",
}
ELC = "elc - ltg"
"""The difference that the paper is about: it is told first."""

METRICS = ("correlation", "contrast")


def pretraining_findings(run: PretrainingScores) -> tuple[Finding, ...]:
    """Every finding that the rows support, the study first; none for a run without pre-trained models."""
    return (
        *study_findings(run),
        *fine_tuning_findings(run),
        *attribution_findings(run),
        *dynamics_findings(run),
        *outcome_findings(run),
        *seed_agreement_findings(run),
        *stability_findings(run),
        *edge_findings(run),
        *phenomenon_findings(run),
    )


def outcome_findings(run: PretrainingScores) -> tuple[Finding, ...]:
    """What pre-training gave: the held-out loss, and what is known of every suite of minimal pairs."""
    return (*_held_out(run), *_known(run))


def pretraining_lines(run: PretrainingScores) -> tuple[str, ...]:
    """The arms as a table, then a line for each finding: what the terminal shows."""
    return (
        *outcome_rows(run).lines(),
        *(f"- {finding.question} {finding.text}" for finding in pretraining_findings(run)),
    )


def study_findings(run: PretrainingScores) -> Iterator[Finding]:
    """One finding for each pair of arms and each set of terms, then one for what all of them cost."""
    keyed: dict[tuple[str, str], list[tuple[str, str, Score]]] = {}
    costs: dict[str, list[str]] = {}
    bounded = True
    for task in run.tasks_of(STUDY):
        what, terms = studied(task)
        for metric in run.metrics_of(STUDY, task):
            for subject, score in run.subjects(STUDY, metric, task).items():
                if metric == "ratio":
                    costs.setdefault(subject, []).append(f"{what} {difference(task, metric, score)}")
                    bounded = bounded and score.low is not None
                else:
                    keyed.setdefault((subject, terms), []).append((task, metric, score))
    for (subject, terms), rows in sorted(keyed.items(), key=lambda item: item[0][0] != ELC):
        yield _verdict(run, subject, terms, rows)
    if costs:
        shown = "; ".join(f"{subject.partition(' - ')[0]} {listed(of)}" for subject, of in costs.items())
        against = listed(list(dict.fromkeys(subject.partition(" - ")[2] for subject in costs)))
        yield Finding(f"What do they cost against {against}?", (f"{shown}.",), "resolved" if bounded else "described")


def _verdict(run: PretrainingScores, subject: str, terms: str, rows: list[tuple[str, str, Score]]) -> Finding:
    """The first row, the held-out loss where it was compared, gives the answer; the others stand beside it."""
    arm, _, other = subject.partition(" - ")
    seeds = min((len(run.seeds.get(name, ())) for name in (arm, other)), default=0)
    judged = [(task, metric, score, *_judged(run, task, score)) for task, metric, score in rows]
    words, state = judged[0][3:]
    pieces: list[str] = [f"{words[0].upper()}{words[1:]}: "]
    for task, metric, score, verdict, _ in judged:
        pieces += ["; " if len(pieces) > 1 else "", f"{studied(task)[0]} ", Number(difference(task, metric, score))]
        pieces += [f", {verdict}"] if len(judged) > 1 else []
    pieces.append(f" ({counted(seeds, 'seed')})." if seeds else ".")
    return Finding(f"Is {arm} worth it against {other}{f', {terms}' if terms else ''}?", tuple(pieces), state)


def _judged(run: PretrainingScores, task: str, score: Score) -> tuple[str, State]:
    """The verdict on one difference: more loss is worse, more accuracy is better."""
    if score.p is None and score.low is None:
        return "no interval", "described"
    if not is_resolved(score, run.level):
        alone = score.p is not None and score.p < run.level
        corrected = f" among so many arms (corrected p {probability(score.p_adjusted)})" if alone else ""
        return f"not resolvable{corrected}", "unresolved"
    better = (score.value < 0.0) == task.startswith(HELD_OUT)
    return ("better" if better else "worse"), "resolved"


def _held_out(run: PretrainingScores) -> Iterator[Finding]:
    losses = run.by_arm(HELD_OUT, "nll", TEST)
    if not losses:
        return
    ranked = sorted(losses.items(), key=lambda item: item[1].value)
    intervals = all(score.low is not None for _, score in ranked)
    pieces: tuple[str, ...] = ("Held-out loss in nats per masked token: ", *_listing(ranked, in_nats), ".")
    if len(ranked) > 1:
        pieces += (" A study compares arms, seed by seed.",) if STUDY not in run.measures else ()
    yield Finding("What did pre-training give?", pieces, "resolved" if intervals else "described")


def _listing(scores: Iterable[tuple[str, Score]], text: Callable[[Score], str]) -> Iterator[str]:
    """Arms with their numbers, each number set apart."""
    for at, (arm, score) in enumerate(scores):
        yield f"{', ' if at else ''}{arm} "
        yield Number(text(score))


def _known(run: PretrainingScores) -> Iterator[Finding]:
    """Each suite of minimal pairs: which arms are distinguished from chance, and on which side."""
    for suite in run.suites:
        of = run.by_arm(suite, "accuracy")
        if not of:
            continue
        chance = next((score.value for score in run.subjects(suite, "chance").values()), 0.5)
        above = [arm for arm, score in of.items() if score.low is not None and score.low > chance]
        whole = "all" if len(above) == len(of) and len(of) > 1 else listed(above) or "none"
        state: State = "described" if all(score.low is None for score in of.values()) else "resolved"
        below = [arm for arm, score in of.items() if score.high is not None and score.high < chance]
        answer = (
            *_listing(of.items(), ACCURACY.text), f"; above chance ({100 * chance:g} %): {whole}",
            f"; below it: {listed(below)}." if below else ".",
        )  # fmt: skip
        yield Finding(f"What is known of {suite_name(suite)}?", answer, state)


def seed_agreement_findings(run: PretrainingScores) -> Iterator[Finding]:
    """Each question of agreement, answered for all arms at once."""
    for task, question in LIKE.items():
        for metric in METRICS:
            rows = run.subjects(SEED_AGREEMENT, metric, task)
            if rows:
                answers = [_seed_agreement(run, arm, metric, score) for arm, score in rows.items()]
                resolved = all(is_resolved(score, run.level) for score in rows.values())
                yield Finding(question, (f"{'; '.join(answers)}.",), "resolved" if resolved else "unresolved")


def _seed_agreement(run: PretrainingScores, arm: str, metric: str, score: Score) -> str:
    words = "more than chance" if is_resolved(score, run.level) else "not distinguishable from chance"
    value, p = between(score.value, None, None, signed=True), probability(score.p)
    return f"{arm} {words} ({metric} {value}, p {p})"


def edge_findings(run: PretrainingScores) -> Iterator[Finding]:
    """Whether size tells effect, and what the sparse wiring loses beside as many edges cut otherwise."""
    agreed = run.score(EDGES, "rank_correlation", "all")
    if agreed is not None:
        shown = between(agreed.value, agreed.low, agreed.high, signed=True)
        words = "" if is_resolved(agreed, run.level) else " Not distinguished from none at all."
        answer = ("Rank correlation of size with measured effect ", Number(shown), f".{words}")
        yield Finding("Do great weights have great effects?", answer, "resolved" if not words else "unresolved")
    lost, kept = (run.score(EDGES, metric, "pruned") for metric in ("difference", "edges"))
    if lost is not None:
        yield _pruned(run, lost, kept)


def _pruned(run: PretrainingScores, lost: Score, kept: Score | None) -> Finding:
    size, random = (run.score(EDGES, f"difference@{way}", "pruned") for way in ("size", "random"))
    spared = run.score(EDGES, "less_than_by_size", "pruned")
    first = "" if kept is None else f"{counted(int(kept.value), 'edge')} kept: "
    pieces: list[str] = [first, Number(between(lost.value, lost.low, lost.high, signed=True)), " nats"]
    for score, way in ((size, "cut by size"), (random, "cut at random")):
        if score is not None:
            pieces += [f"; as many {way} ", Number(between(score.value, score.low, score.high, signed=True))]
    if spared is not None:
        gain = "better" if spared.value > 0.0 else "worse"
        alike = "not distinguishable from cutting by size"
        pieces.append(f"; {gain} than by size" if is_resolved(spared, run.level) else f"; {alike}")
    state: State = "described" if lost.low is None else "resolved" if is_resolved(lost, run.level) else "unresolved"
    return Finding("What does the sparse wiring lose?", (*pieces, "."), state)


def pretraining_markdown(evidence: Evidence) -> Iterator[str]:
    """The findings, the arms and their differences, what they cost, and every suite."""
    run = evidence.pretraining
    yield answered(pretraining_findings(run))
    yield outcome_rows(run).section("Arms")
    yield study_rows(run).section("Differences")
    yield cost_rows(run).section("Cost")
    for suite in run.suites:
        for prefix in (PHENOMENON, PARADIGM):
            yield suite_rows(run, suite, prefix).section(f"{suite_name(suite)} by {prefix.removesuffix(':')}")
    for suite in run.tasks:
        yield benchmark_rows(run, suite).section(suite_name(suite))
