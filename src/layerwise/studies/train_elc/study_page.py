"""A study of layer weights: are they worth it, when are they learned, which words decide, and how soon a loss comes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial

from layerwise.page.arms import arm_slots, in_reading_order
from layerwise.page.data import ReportData
from layerwise.page.finding import Effect, Finding, firmness, judged, settle
from layerwise.page.kind import Beside, Column, Kind, Pivot, Says, Section, Tabled, opening
from layerwise.page.marks import Dots, Lines, Slots
from layerwise.page.sections.fine_tuned import taught
from layerwise.page.show import ABSENT, ACCURACY, NUMBER, SIGNED, Show, adjusted_p, p_value
from layerwise.page.text.number_format import fixed, is_resolved, tidy
from layerwise.page.text.table import Table
from layerwise.page.text.wording import counted, listed, sentence
from layerwise.page.trained import LOSS, THREE, arms, by_arm, reference, seeds, suite_name, tiles
from layerwise.results import vocabulary as vocab
from layerwise.results.rows import Score
from layerwise.results.selection import PRESENT, Rows

TERMS = {vocab.TOKENS: "at equal tokens", vocab.SECONDS: "at equal seconds"}
WEIGHTS_IN = {
    vocab.BACKBONE: "neither",
    "elc-kept": "pretraining",
    "ltg-rewired": "fine-tuning",
    vocab.LAYER_WEIGHTS: "both",
}
"""The four arms that say when layer weights are learned."""
MADE_FROM = {"ltg-rewired": vocab.BACKBONE, "elc-kept": vocab.LAYER_WEIGHTS}
"""Arms that differ in fine-tuning alone, and the arm whose pretrained model they are fine-tuned from."""

NATS = Show(axis="nats per token; left is better", unit=" nats per token", signed=True, reference=0.0)
POINTS = Show(axis="points; right is better", scale=100.0, unit=" points", signed=True, reference=0.0)
RATIO = Show(axis="ratio; left is cheaper", reference=1.0)
PER_CENT = Show(scale=100.0)


def question_name(task: str) -> str:
    """What was compared, as it is read.

    >>> question_name("masked_lm"), question_name("control tasks")
    ('held-out loss', 'control tasks')
    """
    return "held-out loss" if task == vocab.MASKED_LM else suite_name(task)


def quantity(task: str) -> Show:
    """How a value or a difference of a question is written: nats per token, or points."""
    return NATS if task == vocab.MASKED_LM else POINTS


def times(row: Score) -> str:
    """A ratio with its interval: `×0.95 [0.88, 1.02]`."""
    return f"×{NUMBER.text(row)}"


def difference(row: Score) -> str:
    """A row of the study with its unit: a ratio, nats per token, or points."""
    return times(row) if row.metric == "ratio" else quantity(row.task).text(row)


def study_findings(data: ReportData) -> Iterator[Finding]:
    rows = data.rows.where(measure=vocab.STUDY)
    pairs = dict.fromkeys((row.arm, row.against, row.condition) for row in rows.where(metric="difference"))
    for arm, other, terms in sorted(pairs, key=lambda pair: pair[:2] != (vocab.LAYER_WEIGHTS, vocab.BACKBONE)):
        yield _verdict(data, rows.where(metric="difference", arm=arm, against=other, condition=terms))
    ratios = rows.where(metric="ratio")
    if ratios:
        shown = (
            f"{arm} {listed([f'{row.task} {times(row)}' for row in own])}" for arm, own in ratios.by("arm").items()
        )
        known = True if all(row.low is not None for row in ratios) else None
        question = f"What do they cost against {listed(ratios.axis('against'))}?"
        yield Finding(question, f"{'; '.join(shown)}.", settle(known))


def _verdict(data: ReportData, rows: Rows) -> Finding:
    first = rows[0]
    count = min(len(seeds(data, str(arm))) for arm in (first.arm, first.against))
    verdicts = [_in_words(data, row) for row in rows]
    several = len(rows) > 1
    differences = "; ".join(
        f"{question_name(row.task)} {difference(row)}{f', {verdict}' if several else ''}"
        for row, verdict in zip(rows, verdicts, strict=True)
    )
    over = f" ({counted(count, 'seed')})." if count else "."
    terms = f", {TERMS[first.condition]}" if first.condition in TERMS else ""
    question = f"Is {first.arm} worth it against {first.against}{terms}?"
    answer = sentence(f"{verdicts[0]}: {differences}{over}")
    return Finding(question, answer, firmness(_effect(data, first)))


def _effect(data: ReportData, row: Score) -> Effect:
    return judged(row, data.level, more_is_better=row.task != vocab.MASKED_LM)


def _in_words(data: ReportData, row: Score) -> str:
    effect = _effect(data, row)
    alone = effect == "open" and row.p is not None and row.p < data.level
    corrected = f" among so many arms (corrected p {adjusted_p(row)})" if alone else ""
    return {"bare": "no interval", "open": "inconclusive"}.get(effect, effect) + corrected


def compared(data: ReportData) -> Iterator[Score]:
    for row in data.rows.where(measure=vocab.STUDY):
        kind = "ratio" if row.metric == "ratio" else "nats" if row.task == vocab.MASKED_LM else "points"
        task = " ".join(filter(None, (question_name(row.task), TERMS.get(row.condition or ""))))
        yield replace(row, task=task, arm=f"{row.arm} - {row.against}", against=None, condition=kind)


def _pair_slots(data: ReportData) -> Slots:
    end = f" - {reference(data)}"

    def slots(names: Sequence[str]) -> Mapping[str, int]:
        of = arm_slots([*arms(data), *(each.removesuffix(end) for each in names)])
        return {name: of[name.removesuffix(end)] for name in names}

    return slots


def _compared_mark(kind: str, show: Show, data: ReportData) -> Dots:
    return Dots(
        name=f"study-{kind}",
        derive=compared,
        where={"condition": kind},
        series="arm",
        words=str,
        slots=_pair_slots(data),
        legend="Differences",
        show=show,
    )


def differences(data: ReportData) -> Iterator[Score]:
    for row in data.rows.where(measure=vocab.STUDY):
        terms = TERMS.get(row.condition or "", "")
        yield replace(row, arm=f"{row.arm} - {row.against}", part=question_name(row.task), condition=terms)


def every_arm(data: ReportData) -> Table:
    """Return a line for each variant: held-out loss, minimal pairs, and scores on mixed signals.

    A variant that equals another until fine-tuning names that one if it was not evaluated itself.
    """
    losses = by_arm(data.rows.where(measure=vocab.MASKED_LM)).along("arm")
    pairs = by_arm(data.rows.where(measure=vocab.PAIRS, metric="accuracy", task=vocab.ALL)).along("arm")
    tuned = by_arm(data.rows.where(measure=vocab.OUR_MSGS, metric="mcc", against=None, plan=None, condition=None))
    body = []
    for arm in arms(data):
        own = tuned.where(arm=arm)
        cells = [_mean_text(own.where(task=tasks)) for tasks in (vocab.CONTROLS, vocab.AMBIGUOUS)]
        if "-share-" in arm or not (arm in losses or any(cell != ABSENT for cell in cells)):
            continue
        other = f"as {MADE_FROM[arm]}" if arm in MADE_FROM else ABSENT
        loss, right = losses.get(arm), pairs.get(arm)
        first = (other if loss is None else LOSS.text(loss), other if right is None else ACCURACY.text(right))
        body.append((arm, *first, *cells))
    head = ("arm", "held-out loss (nats)", "minimal pairs", "control tasks", "linguistic generalisation")
    return Table(head, tuple(body))


def _mean_text(rows: Sequence[Score]) -> str:
    if len(rows) == 1:
        return NUMBER.text(rows[0])
    return THREE.number(sum(row.value for row in rows) / len(rows)) if rows else ABSENT


def tuning_findings(data: ReportData) -> Iterator[Finding]:
    run = data.rows.where(measure=vocab.TUNING_CONVERGENCE)
    targets = run.where(metric="score", arm=None)
    task = vocab.ALL if len(targets) > 1 else "".join(targets.axis("task"))
    clauses, settled_of = [], []
    for arm, when in WEIGHTS_IN.items():
        ratios = run.where(metric="ratio", task=task, arm=arm, against=vocab.BACKBONE)
        if ratios.one(condition=vocab.STEPS) is None:
            continue
        censored = run.where(metric="censored", task=targets.axis("task") if task == vocab.ALL else task)
        words = [_ratio_words(data, ratio, censored.where(condition=ratio.condition)) for ratio in ratios]
        costs = ", ".join(f"{ratio.condition} {text}" for ratio, (text, _) in zip(ratios, words, strict=True))
        clauses.append(f"weights in {when if when == 'both' else f'{when} only'}: {costs}")
        settled_of += [known for _, known in words]
    if clauses:
        reached = listed([f"{row.task} {fixed(row.value, 3)}" for row in targets])
        answer = (
            f"Compared with weights in neither, to the selection score that both reach (at most {reached}): "
            f"{'; '.join(clauses)}."
        )
        yield Finding("Do layer weights make fine-tuning sooner?", answer, settle(all(settled_of)))


def _ratio_words(data: ReportData, ratio: Score, censored: Rows) -> tuple[str, bool]:
    never = [str(name) for name in (ratio.arm, ratio.against) if censored.where(arm=name)]
    if len(never) > 1:
        return "not known, as neither always reaches it", False
    if never:
        own = censored.where(arm=never[0])
        share = f"{fixed(100 * own[0].value, 0)} % of the" if len(own) == 1 and own[0].task == ratio.task else "some"
        side = "at least" if never[0] == ratio.arm else "at most"
        return f"{side} ×{fixed(ratio.value, 2)} ({share} trainings of {never[0]} never reach it)", False
    known = is_resolved(ratio, data.level)
    p = "" if ratio.p_adjusted is None else f", p {adjusted_p(ratio)}"
    return times(ratio) + ("" if known else f" (not distinguishable{p})"), known


def tuning_table(data: ReportData, named: Iterable[str]) -> Table:
    run = data.rows.where(measure=vocab.TUNING_CONVERGENCE)
    named = tuple(named)
    body = []
    for task in run.where(metric="score", arm=None).axis("task"):
        scores = _scores(data, task).along("arm")
        for arm in named:
            costs = tuple(
                cell
                for cost in (vocab.STEPS, vocab.SECONDS)
                for cell in _costs(run.where(task=task, condition=cost), arm)
            )
            if arm in scores or any(cell != ABSENT for cell in costs):
                body.append((task, arm, WEIGHTS_IN.get(arm, ABSENT), NUMBER.text(scores.get(arm)), *costs))
    return Table(
        ("task", "arm", "weights in", "score", "steps", "× steps", "seconds", "× seconds"), tuple(body), numeric_from=3
    )


def _scores(data: ReportData, task: str) -> Rows:
    rows = Rows(taught(data)).where(task=task, against=None)
    return rows.where(measure=rows.axis("measure")[:1], metric=rows.axis("metric")[:1])


def _costs(run: Rows, arm: str) -> Iterator[str]:
    spent, ratio = run.one(metric="cost", arm=arm), run.one(metric="ratio", arm=arm, against=vocab.BACKBONE)
    bound = "≥ " if run.where(metric="censored", arm=arm) else ""
    never = bool(run.where(metric="censored", arm=vocab.BACKBONE))
    yield ABSENT if spent is None else f"{bound}{tidy(spent.value)}"
    yield ABSENT if ratio is None or (never and bound) else f"{'≤ ' if never else bound}{times(ratio)}"


def attribution_findings(data: ReportData) -> Iterator[Finding]:
    run = by_arm(data.rows.where(measure=vocab.ATTRIBUTION, metric="preference"))
    differences = data.rows.where(
        measure=vocab.STUDY, metric="difference", task="linguistic attribution", condition=vocab.TOKENS
    )
    rows = differences.where(against=reference(data))
    show = SIGNED.but(scale=100.0)
    for task in run.axis("task"):
        null = run.where(task=task, against=vocab.SHUFFLED).along("arm")
        shares = "; ".join(
            f"{row.arm} {show.text(row)}"
            + (f" (shuffled labels {show.text(null[str(row.arm)])})" if row.arm in null else "")
            for row in run.where(task=task, against=None)
        )
        differ = [str(row.arm) for row in rows if is_resolved(row, data.level)]
        others = f". Different from {reference(data)}: {listed(differ) or 'none, at this many seeds'}" if rows else ""
        answer = f"Attribution on linguistic minus surface words, beyond their share of the tokens: {shares}{others}."
        yield Finding(f"Which words decide ({task})?", answer, settle(bool(differ) if rows else None))


def attribution_notes(data: ReportData) -> Iterator[str]:
    gaps = data.rows.where(measure=vocab.ATTRIBUTION, metric="gap")
    if gaps:
        yield f"At most {fixed(100 * max(row.value for row in gaps), 2)} % is missing from completeness."


def bias_findings(data: ReportData) -> Iterator[Finding]:
    clauses, known = [], False
    for slope in data.rows.where(measure=vocab.INITIAL_BIAS, metric="slope"):
        differ = data.rows.one(measure=vocab.INITIAL_BIAS, metric="differ", task=slope.task)
        sloped, any_form = (row is not None and is_resolved(row, data.level) for row in (slope, differ))
        known = known or sloped or any_form
        words = "" if sloped else ", arms differ without a slope" if any_form else ", inconclusive"
        show = quantity(slope.task)
        clauses.append(f"{question_name(slope.task)} {show.but(unit=f'{show.unit} per unit').text(slope)}{words}")
    if clauses:
        yield Finding("Does the initial weight of the previous layer matter?", f"{'; '.join(clauses)}.", settle(known))


def share_findings(data: ReportData) -> Iterator[Finding]:
    for task, rows in data.rows.where(measure=vocab.DATA_SHARE, against=PRESENT).by("task").items():
        what, show = question_name(task), quantity(task)
        clauses = [
            f"on {fixed(100 * (gap.amount or 0.0), 1).removesuffix('.0')} % of the text {show.text(gap)}"
            for gap in rows.where(metric="difference")
        ]
        halving = rows.one(metric="by_halving")
        known = halving is not None and is_resolved(halving, data.level)
        if halving is not None:
            clauses.append(f"each halving adds {show.text(halving)}{'' if known else ', inconclusive'}")
        question = f"Are layer weights worth more with less text ({what})?"
        yield Finding(question, f"{what} with layer weights minus that without: {'; '.join(clauses)}.", settle(known))


def convergence_findings(data: ReportData) -> Iterator[Finding]:
    run = data.rows.where(measure=vocab.CONVERGENCE)
    target = run.one(metric="loss", arm=None)
    reach = "" if target is None else f" (validation loss {fixed(target.value, 3)} or above)"
    for cost, ratios in run.where(metric="ratio").by("condition").items():
        censored = run.where(metric="censored", condition=cost)
        words = [_ratio_words(data, ratio, censored) for ratio in ratios]
        shown = "; ".join(f"{ratio.arm} {text}" for ratio, (text, _) in zip(ratios, words, strict=True))
        question = f"How many {cost} to the loss that an arm and the backbone both reach{reach}?"
        answer = f"Times those of {reference(data) or 'the backbone'}: {shown}."
        yield Finding(question, answer, settle(all(known for _, known in words)))


def dynamics_findings(data: ReportData) -> Iterator[Finding]:
    yield from bias_findings(data)
    yield from share_findings(data)
    yield from convergence_findings(data)


def _grids(data: ReportData) -> Iterator[Lines]:
    grids = {
        vocab.INITIAL_BIAS: ("bias", "initial bias", "initial scalar of the previous layer", "bias {}"),
        vocab.DATA_SHARE: ("shares", "share of the text", "share of the text", "{} of the text"),
    }
    for measure, (name, what, across, at) in grids.items():
        rows, biases = data.rows.where(measure=measure, metric="value"), measure == vocab.INITIAL_BIAS
        for number, task in enumerate(rows.axis("task")):
            axis = LOSS.axis if task == vocab.MASKED_LM else "points"
            yield Lines(
                name=f"{name}-{number}",
                title=f"By {what}: {question_name(task)}",
                x="amount",
                across=across,
                at=at,
                where={"measure": measure, "metric": "value", "task": task},
                series=None if biases else "arm",
                arms=_all_arms,
                words=str,
                sizes=not biases,
                named=not biases,
                height=300,
                show=quantity(task).but(axis=axis, unit="", reference=None),
            )


def _all_arms(data: ReportData) -> tuple[str, ...]:
    return (*arms(data), *in_reading_order(data.rows.where(measure=vocab.DATA_SHARE, metric="value").axis("arm")))


def _sooner(data: ReportData) -> Show:
    return RATIO.but(axis=f"ratio to {reference(data) or 'the backbone'}; left is sooner")


def _cell(metric: str, head: str, against: str | None = None) -> Column:
    show = PER_CENT.but(signed=metric == "preference", bounds=against != vocab.TOKENS)
    return Column(head, metric, show, where={"against": against})


STUDY_KIND = Kind(
    name="layer_weights_study",
    measures=(vocab.STUDY,),
    claims=True,
    tiles=tiles,
    answer=opening(study_findings),
    sections=(
        Section(
            anchor=vocab.STUDY,
            parts=lambda data: (
                Beside(
                    (
                        _compared_mark("nats", NATS, data),
                        _compared_mark("points", POINTS, data),
                        _compared_mark("ratio", RATIO, data),
                    )
                ),
                Says(study_findings, note="terms"),
                Tabled(name="arms", table=every_arm, folded=True, terminal=False),
                Pivot(
                    name="differences",
                    derive=differences,
                    folded=True,
                    terminal=False,
                    rows={"arms": "arm", "what": "part", "terms": "condition"},
                    columns=(Column("difference", show=difference), Column("p", show=p_value)),
                ),
            ),
        ),
        Section(
            anchor="fine-tuning",
            needs={"measure": vocab.TUNING_CONVERGENCE, "metric": "score"},
            parts=(
                Says(tuning_findings),
                Tabled(table=partial(tuning_table, named=WEIGHTS_IN), terminal=False, note="costs"),
                Tabled(name="arms", table=lambda data: tuning_table(data, arms(data)), folded=True, terminal=False),
            ),
        ),
        Section(
            anchor=vocab.ATTRIBUTION,
            parts=(
                Says(attribution_findings),
                Pivot(
                    name="attribution",
                    derive=lambda data: by_arm(data.rows.where(measure=vocab.ATTRIBUTION)),
                    rows={"arm": "arm"},
                    split="task",
                    terminal=False,
                    columns=(
                        _cell("linguistic", "linguistic words"),
                        _cell("linguistic", "of tokens", vocab.TOKENS),
                        _cell("linguistic", "shuffled labels", vocab.SHUFFLED),
                        _cell("surface", "surface words"),
                        _cell("surface", "of tokens", vocab.TOKENS),
                        _cell("surface", "shuffled labels", vocab.SHUFFLED),
                        _cell("preference", "preference"),
                        _cell("preference", "shuffled labels", vocab.SHUFFLED),
                    ),
                ),
                Says(attribution_notes, terminal=False),
            ),
        ),
        Section(
            anchor="dynamics",
            needs={"measure": (vocab.INITIAL_BIAS, vocab.DATA_SHARE, vocab.CONVERGENCE)},
            parts=lambda data: (
                Beside(
                    (
                        *_grids(data),
                        Dots(
                            name="convergence",
                            y="condition",
                            where={"measure": vocab.CONVERGENCE, "metric": "ratio"},
                            series="arm",
                            arms=arms,
                            words=str,
                            show=_sooner(data),
                        ),
                    )
                ),
                Says(dynamics_findings),
            ),
        ),
    ),
)
