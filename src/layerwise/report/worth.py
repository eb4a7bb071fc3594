"""From rows to sentences: what pre-training gave, whether the layer weights are worth it, whether they mean anything.

The same kind of finding as of a sweep: a question, an answer that claims no more than its interval carries, and whether
it is resolved. "Not resolvable" is an answer: the arms differ by less than this many seeds can show.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from layerwise.report.accounts import TEST, difference, in_nats, outcome_rows, studied
from layerwise.report.headline import Finding, Number, State
from layerwise.report.notation import between, is_resolved, probability
from layerwise.report.pretraining import EDGES, HELD_OUT, LIKENESS, STUDY, Pretraining, suite_name
from layerwise.report.quantity import ACCURACY
from layerwise.report.standings import aligned
from layerwise.report.wording import counted, listed
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


def worth(found: Pretraining) -> tuple[Finding, ...]:
    """Every finding that the rows support, the study first; none for a run without pre-trained models."""
    return (*study_findings(found), *outcome_findings(found), *likeness_findings(found), *edge_findings(found))


def outcome_findings(found: Pretraining) -> tuple[Finding, ...]:
    """What pre-training gave: the held-out loss, and what is known of every suite of minimal pairs."""
    return (*_held_out(found), *_known(found))


def worth_lines(found: Pretraining) -> tuple[str, ...]:
    """The arms as a table, then a line for each finding: what the terminal shows."""
    rows = outcome_rows(found)
    return (
        *(aligned(rows) if rows.body else ()),
        *(f"- {finding.question} {finding.text}" for finding in worth(found)),
    )


def study_findings(found: Pretraining) -> Iterator[Finding]:
    """One finding for each pair of arms and each set of terms, then one for what all of them cost."""
    keyed: dict[tuple[str, str], list[tuple[str, str, Score]]] = {}
    costs: dict[str, list[str]] = {}
    bounded = True
    for task in found.tasks_of(STUDY):
        what, terms = studied(task)
        for metric in found.metrics_of(STUDY, task):
            for subject, score in found.subjects(STUDY, metric, task).items():
                if metric == "ratio":
                    costs.setdefault(subject, []).append(f"{what} {difference(task, metric, score)}")
                    bounded = bounded and score.low is not None
                else:
                    keyed.setdefault((subject, terms), []).append((task, metric, score))
    for (subject, terms), rows in sorted(keyed.items(), key=lambda item: item[0][0] != ELC):
        yield _verdict(found, subject, terms, rows)
    if costs:
        told = "; ".join(f"{subject.partition(' - ')[0]} {listed(of)}" for subject, of in costs.items())
        against = listed(list(dict.fromkeys(subject.partition(" - ")[2] for subject in costs)))
        yield Finding(f"What do they cost against {against}?", (f"{told}.",), "resolved" if bounded else "described")


def _verdict(found: Pretraining, subject: str, terms: str, rows: list[tuple[str, str, Score]]) -> Finding:
    """The first row, the held-out loss where it was compared, gives the answer; the others stand beside it."""
    arm, _, other = subject.partition(" - ")
    seeds = min((len(found.seeds.get(name, ())) for name in (arm, other)), default=0)
    judged = [(task, metric, score, *_judged(found, task, score)) for task, metric, score in rows]
    words, state = judged[0][3:]
    pieces: list[str] = [f"{words[0].upper()}{words[1:]}: "]
    for task, metric, score, verdict, _ in judged:
        pieces += ["; " if len(pieces) > 1 else "", f"{studied(task)[0]} ", Number(difference(task, metric, score))]
        pieces += [f", {verdict}"] if len(judged) > 1 else []
    pieces.append(f" ({counted(seeds, 'seed')})." if seeds else ".")
    return Finding(f"Is {arm} worth it against {other}{f', {terms}' if terms else ''}?", tuple(pieces), state)


def _judged(found: Pretraining, task: str, score: Score) -> tuple[str, State]:
    """The verdict on one difference: more loss is worse, more accuracy is better."""
    if score.p is None and score.low is None:
        return "no interval", "described"
    if not is_resolved(score, found.level):
        alone = score.p is not None and score.p < found.level
        corrected = f" among so many arms (corrected p {probability(score.p_adjusted)})" if alone else ""
        return f"not resolvable{corrected}", "unresolved"
    better = (score.value < 0.0) == task.startswith(HELD_OUT)
    return ("better" if better else "worse"), "resolved"


def _held_out(found: Pretraining) -> Iterator[Finding]:
    losses = found.by_arm(HELD_OUT, "nll", TEST)
    if not losses:
        return
    ranked = sorted(losses.items(), key=lambda item: item[1].value)
    intervals = all(score.low is not None for _, score in ranked)
    pieces: tuple[str, ...] = ("Held-out loss in nats per masked token: ", *_listing(ranked, in_nats), ".")
    if len(ranked) > 1:
        pieces += (" Whether arms differ is asked in a study, seed by seed.",) if STUDY not in found.measures else ()
    yield Finding("What did pre-training give?", pieces, "resolved" if intervals else "described")


def _listing(scores: Iterable[tuple[str, Score]], told: Callable[[Score], str]) -> Iterator[str]:
    """Arms with their numbers, each number set apart."""
    for at, (arm, score) in enumerate(scores):
        yield f"{', ' if at else ''}{arm} "
        yield Number(told(score))


def _known(found: Pretraining) -> Iterator[Finding]:
    """Each suite of minimal pairs: which arms are told apart from chance, and on which side."""
    for suite in found.suites:
        of = found.by_arm(suite, "accuracy")
        if not of:
            continue
        chance = next((score.value for score in found.subjects(suite, "chance").values()), 0.5)
        above = [arm for arm, score in of.items() if score.low is not None and score.low > chance]
        whole = "all" if len(above) == len(of) and len(of) > 1 else listed(above) or "none"
        state: State = "described" if all(score.low is None for score in of.values()) else "resolved"
        below = [arm for arm, score in of.items() if score.high is not None and score.high < chance]
        answer = (
            *_listing(of.items(), ACCURACY.told), f"; above chance ({100 * chance:g} %): {whole}",
            f"; below it: {listed(below)}." if below else ".",
        )  # fmt: skip
        yield Finding(f"What is known of {suite_name(suite)}?", answer, state)


def likeness_findings(found: Pretraining) -> Iterator[Finding]:
    """Each question of likeness, answered for all arms at once."""
    for task, question in LIKE.items():
        for metric in METRICS:
            rows = found.subjects(LIKENESS, metric, task)
            if rows:
                told = [_likeness(found, arm, metric, score) for arm, score in rows.items()]
                resolved = all(is_resolved(score, found.level) for score in rows.values())
                yield Finding(question, (f"{'; '.join(told)}.",), "resolved" if resolved else "unresolved")


def _likeness(found: Pretraining, arm: str, metric: str, score: Score) -> str:
    told = "more than chance" if is_resolved(score, found.level) else "not told apart from chance"
    value, p = between(score.value, None, None, signed=True), probability(score.p)
    return f"{arm} {told} ({metric} {value}, p {p})"


def edge_findings(found: Pretraining) -> Iterator[Finding]:
    """Whether size tells effect, and what the sparse wiring loses beside as many edges cut otherwise."""
    agreed = found.score(EDGES, "rank_correlation", "all")
    if agreed is not None:
        told = between(agreed.value, agreed.low, agreed.high, signed=True)
        words = "" if is_resolved(agreed, found.level) else " Not told apart from none at all."
        answer = ("Rank correlation of size with measured effect ", Number(told), f".{words}")
        yield Finding("Do great weights have great effects?", answer, "resolved" if not words else "unresolved")
    lost, kept = (found.score(EDGES, metric, "pruned") for metric in ("difference", "edges"))
    if lost is not None:
        yield _pruned(found, lost, kept)


def _pruned(found: Pretraining, lost: Score, kept: Score | None) -> Finding:
    size, random = (found.score(EDGES, f"difference@{way}", "pruned") for way in ("size", "random"))
    spared = found.score(EDGES, "less_than_by_size", "pruned")
    first = "" if kept is None else f"{counted(int(kept.value), 'edge')} kept: "
    pieces: list[str] = [first, Number(between(lost.value, lost.low, lost.high, signed=True)), " nats"]
    for score, way in ((size, "cut by size"), (random, "cut at random")):
        if score is not None:
            pieces += [f"; as many {way} ", Number(between(score.value, score.low, score.high, signed=True))]
    if spared is not None:
        gain = "better" if spared.value > 0.0 else "worse"
        told = f"{gain} than by size" if is_resolved(spared, found.level) else "not told apart from cutting by size"
        pieces.append(f"; {told}")
    state: State = "described" if lost.low is None else "resolved" if is_resolved(lost, found.level) else "unresolved"
    return Finding("What does the sparse wiring lose?", (*pieces, "."), state)
