"""A study of layer weights: are they worth it, when are they learned, which words decide, and how soon a loss comes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from layerwise.report.arms import arm_slots, in_reading_order
from layerwise.report.data import ReportData
from layerwise.report.finding import Finding, Number, State
from layerwise.report.kind import Beside, Column, Kind, Pivot, Says, Section, Tabled
from layerwise.report.kinds.evaluation import task_metrics
from layerwise.report.marks import Dots, Lines
from layerwise.report.page.number_format import fixed, is_resolved, probability, tidy
from layerwise.report.page.table import Table
from layerwise.report.page.wording import counted, listed
from layerwise.report.show import ABSENT, ACCURACY, NUMBER, Show
from layerwise.report.trained import LOSS, SIGNED, THREE, arms, by_arm, reference, seeds, suite_name, tiles
from layerwise.results.rows import Score
from layerwise.results.selection import PRESENT, Rows
from layerwise.results.vocabulary import (
    ALL,
    AMBIGUOUS,
    ATTRIBUTION,
    BACKBONE,
    CONTROLS,
    CONVERGENCE,
    DATA_SHARE,
    INITIAL_BIAS,
    LAYER_WEIGHTS,
    MASKED_LM,
    OUR_MSGS,
    PAIRS,
    SECONDS,
    SHUFFLED,
    STEPS,
    STUDY,
    TOKENS,
    TUNING_CONVERGENCE,
)

TERMS = {TOKENS: "at equal tokens", SECONDS: "at equal seconds"}
WEIGHTS_IN = {BACKBONE: "neither", "elc-kept": "pretraining", "ltg-rewired": "fine-tuning", LAYER_WEIGHTS: "both"}
"""The four arms that say when layer weights are learned."""
MADE_FROM = {"ltg-rewired": BACKBONE, "elc-kept": LAYER_WEIGHTS}
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
    return "held-out loss" if task == MASKED_LM else suite_name(task)


def quantity(task: str) -> Show:
    """How a value or a difference of a question is written: nats per token, or points."""
    return NATS if task == MASKED_LM else POINTS


def times(row: Score) -> str:
    """A ratio with its interval: `×0.95 [0.88, 1.02]`."""
    return f"×{NUMBER.text(row)}"


def difference(row: Score) -> str:
    """A row of the study with its unit: a ratio, nats per token, or points."""
    return times(row) if row.metric == "ratio" else quantity(row.task).text(row)


def study_findings(data: ReportData) -> Iterator[Finding]:
    """One finding for each pair of arms and the terms on which they were compared, then one for what they cost.

    The difference of the paper's arm from its backbone is the first.
    """
    rows = data.rows.where(measure=STUDY)
    pairs = dict.fromkeys((row.arm, row.against, row.condition) for row in rows.where(metric="difference"))
    for arm, other, terms in sorted(pairs, key=lambda pair: pair[:2] != (LAYER_WEIGHTS, BACKBONE)):
        yield _verdict(data, rows.where(metric="difference", arm=arm, against=other, condition=terms))
    ratios = rows.where(metric="ratio")
    if ratios:
        shown = "; ".join(
            f"{arm} {listed([f'{row.task} {times(row)}' for row in own])}" for arm, own in ratios.by("arm").items()
        )
        state: State = "resolved" if all(row.low is not None for row in ratios) else "described"
        yield Finding(f"What do they cost against {listed(ratios.axis('against'))}?", (f"{shown}.",), state)


def _verdict(data: ReportData, rows: Rows) -> Finding:
    """The first row, the held-out loss where it was compared, gives the answer; the others stand beside it."""
    first = rows[0]
    count = min(len(seeds(data, str(arm))) for arm in (first.arm, first.against))
    judged = [_judged(data, row) for row in rows]
    words, state = judged[0]
    pieces: list[str] = [f"{words[0].upper()}{words[1:]}: "]
    for at, (row, (verdict, _)) in enumerate(zip(rows, judged, strict=True)):
        pieces += ["; " if at else "", f"{question_name(row.task)} ", Number(difference(row))]
        pieces += [f", {verdict}"] if len(rows) > 1 else []
    pieces.append(f" ({counted(count, 'seed')})." if count else ".")
    terms = f", {TERMS[first.condition]}" if first.condition in TERMS else ""
    return Finding(f"Is {first.arm} worth it against {first.against}{terms}?", tuple(filter(None, pieces)), state)


def _judged(data: ReportData, row: Score) -> tuple[str, State]:
    """The verdict on one difference: more loss is worse, more accuracy is better."""
    if row.p is None and row.low is None:
        return "no interval", "described"
    if not is_resolved(row, data.level):
        alone = row.p is not None and row.p < data.level
        corrected = f" among so many arms (corrected p {probability(row.p_adjusted)})" if alone else ""
        return f"not resolvable{corrected}", "unresolved"
    return ("better" if (row.value < 0.0) == (row.task == MASKED_LM) else "worse"), "resolved"


def compared(data: ReportData) -> Iterator[Score]:
    """The rows of the study as they are drawn: what was compared as the task, and a difference from the backbone under
    the name of its arm."""
    for row in data.rows.where(measure=STUDY):
        kind = "ratio" if row.metric == "ratio" else "nats" if row.task == MASKED_LM else "points"
        task = " ".join(filter(None, (question_name(row.task), TERMS.get(row.condition or ""))))
        yield replace(row, task=task, arm=f"{row.arm} - {row.against}", against=None, condition=kind)


def _pair_slots(data: ReportData) -> Callable[[Sequence[str]], Mapping[str, int]]:
    """A difference from the backbone has the colour of the arm that is compared, any other one of its own."""
    named = arms(data)
    end = f" - {reference(data)}"
    return lambda names: {
        name: arm_slots([*named, *(each.removesuffix(end) for each in names)])[name.removesuffix(end)] for name in names
    }


def _compared_mark(kind: str, title: str, show: Show, data: ReportData) -> Dots:
    return Dots(
        name=f"study-{kind}", title=title, derive=compared, where={"condition": kind}, series="arm", words=str,
        slots=_pair_slots(data), legend="Differences", show=show,
    )  # fmt: skip


def every_difference(data: ReportData) -> Table:
    """A line for each difference of two arms: on what, on which terms, with interval and p."""
    body = (
        (
            f"{row.arm} - {row.against}", question_name(row.task), TERMS.get(row.condition or "", ""), difference(row),
            probability(row.p),
        )
        for row in data.rows.where(measure=STUDY)
    )  # fmt: skip
    return Table(("arms", "what", "terms", "difference", "p"), tuple(body), numeric_from=3)


def every_arm(data: ReportData) -> Table:
    """A line for each arm: held-out loss, minimal pairs, and what it makes of mixed signals.

    An arm that is another one until it is fine-tuned has that one's name where it was not evaluated by itself.
    """
    losses = by_arm(data.rows.where(measure=MASKED_LM)).along("arm")
    pairs = by_arm(data.rows.where(measure=PAIRS, metric="accuracy", task=ALL)).along("arm")
    tuned = by_arm(data.rows.where(measure=OUR_MSGS, metric="mcc", against=None, plan=None, condition=None))
    body = []
    for arm in arms(data):
        own = tuned.where(arm=arm)
        cells = [_mean_text(own.where(task=tasks)) for tasks in (CONTROLS, AMBIGUOUS)]
        if "-share-" in arm or not (arm in losses or any(cell != ABSENT for cell in cells)):
            continue
        other = f"as {MADE_FROM[arm]}" if arm in MADE_FROM else ABSENT
        loss, right = losses.get(arm), pairs.get(arm)
        first = (other if loss is None else LOSS.text(loss), other if right is None else ACCURACY.text(right))
        body.append((arm, *first, *cells))
    head = ("arm", "held-out loss (nats)", "minimal pairs", "control tasks", "linguistic generalisation")
    return Table(head, tuple(body))


def _mean_text(rows: Sequence[Score]) -> str:
    """The mean of an arm over tasks; of one task with its interval."""
    if len(rows) == 1:
        return NUMBER.text(rows[0])
    return THREE.number(sum(row.value for row in rows) / len(rows)) if rows else ABSENT


def tuning_findings(data: ReportData) -> Iterator[Finding]:
    """One finding: how many times the steps and the seconds of the backbone each of the other three arms needs."""
    run = data.rows.where(measure=TUNING_CONVERGENCE)
    targets = run.where(metric="score", arm=None)
    if not targets:
        return
    task = ALL if len(targets) > 1 else targets[0].task
    pieces: list[str] = []
    settled = True
    for arm, when in WEIGHTS_IN.items():
        ratios = run.where(metric="ratio", task=task, arm=arm, against=BACKBONE)
        if ratios.one(condition=STEPS) is None:
            continue
        pieces.append(f"{'; ' if pieces else ''}weights in {when if when == 'both' else f'{when} only'}: ")
        for at, ratio in enumerate(ratios):
            censored = run.where(metric="censored", task=targets.axis("task") if task == ALL else task)
            own, known = _ratio_words(data, ratio, censored.where(condition=ratio.condition))
            pieces += [", " if at else "", f"{ratio.condition} ", *own]
            settled = settled and known
    if pieces:
        reached = listed([f"{row.task} {fixed(row.value, 3)}" for row in targets])
        words = f"Against weights in neither, to the selection score that it reaches ({reached}): "
        state: State = "resolved" if settled else "unresolved"
        yield Finding("Do layer weights make fine-tuning sooner?", (words, *filter(None, pieces), "."), state)


def _ratio_words(data: ReportData, ratio: Score, censored: Rows) -> tuple[list[str], bool]:
    """A ratio in words, a bound where trainings never reach what was to be reached; and whether it is told from 1."""
    never = [str(name) for name in (ratio.arm, ratio.against) if censored.where(arm=name)]
    if len(never) > 1:
        return ["not known, as neither always reaches it"], False
    if never:
        own = censored.where(arm=never[0])
        share = f"{fixed(100 * own[0].value, 0)} % of the" if len(own) == 1 and own[0].task == ratio.task else "some"
        sides = {ratio.arm: "at least ", ratio.against: "at most "}
        words = f" ({share} trainings of {never[0]} never reach it)"
        return [sides[never[0]], Number(f"×{fixed(ratio.value, 2)}"), words], False
    known = is_resolved(ratio, data.level)
    p = "" if ratio.p_adjusted is None else f", p {probability(ratio.p_adjusted)}"
    return [Number(times(ratio)), "" if known else f" (not distinguishable{p})"], known


def tuning_table(data: ReportData, named: Iterable[str]) -> Table:
    """A line for each task and arm: its score on test examples, then steps and seconds to the common selection score,
    each with its ratio to the backbone's."""
    run = data.rows.where(measure=TUNING_CONVERGENCE)
    named = tuple(named)
    body = []
    for task in run.where(metric="score", arm=None).axis("task"):
        scores = _scores(data, task)
        for arm in named:
            costs = tuple(
                cell for cost in (STEPS, SECONDS) for cell in _costs(run.where(task=task, condition=cost), arm)
            )
            if arm in scores or any(cell != ABSENT for cell in costs):
                body.append((task, arm, WEIGHTS_IN.get(arm, ABSENT), NUMBER.text(scores.get(arm)), *costs))
    return Table(
        ("task", "arm", "weights in", "score", "steps", "× steps", "seconds", "× seconds"), tuple(body), numeric_from=3
    )


def _scores(data: ReportData, task: str) -> Mapping[str, Score]:
    """The first metric of a task by arm, whichever suite it is of."""
    for suite, name, metric in task_metrics(data):
        if name == task:
            return by_arm(
                data.rows.where(measure=suite, task=task, metric=metric, against=None, plan=None, condition=None)
            ).along("arm")
    return {}


def _costs(run: Rows, arm: str) -> Iterator[str]:
    """What an arm needs to the common score, and its ratio to the backbone's; a bound where one of them never does."""
    spent, ratio = run.one(metric="cost", arm=arm), run.one(metric="ratio", arm=arm, against=BACKBONE)
    bound = "≥ " if run.where(metric="censored", arm=arm) else ""
    never = bool(run.where(metric="censored", arm=BACKBONE))
    yield ABSENT if spent is None else f"{bound}{tidy(spent.value)}"
    yield ABSENT if ratio is None or (never and bound) else f"{'≤ ' if never else bound}{times(ratio)}"


def attribution_findings(data: ReportData) -> Iterator[Finding]:
    """One finding for each task: what every arm prefers, with its null, and which arms differ from the backbone."""
    run = by_arm(data.rows.where(measure=ATTRIBUTION, metric="preference"))
    differences = data.rows.where(measure=STUDY, metric="difference", task="linguistic attribution", condition=TOKENS)
    differences = differences.where(against=reference(data))
    for task in run.axis("task"):
        pieces: list[str] = ["Attribution on linguistic minus surface words, beyond their share of the tokens: "]
        show = SIGNED.but(scale=100.0)
        null = run.where(task=task, against=SHUFFLED).along("arm")
        for at, row in enumerate(run.where(task=task, against=None)):
            pieces += ["; " if at else "", f"{row.arm} ", Number(show.text(row))]
            if row.arm in null:
                pieces += [" (shuffled labels ", Number(show.text(null[str(row.arm)])), ")"]
        differ = [str(row.arm) for row in differences if is_resolved(row, data.level)]
        if differences:
            others = listed(differ) if differ else "none, at this many seeds"
            pieces.append(f". Different from {reference(data)}: {others}")
        state: State = "described" if not differences else "resolved" if differ else "unresolved"
        yield Finding(f"Which words decide ({task})?", (*filter(None, pieces), "."), state)


def _attributed(data: ReportData) -> Rows:
    return by_arm(data.rows.where(measure=ATTRIBUTION))


def attribution_notes(data: ReportData) -> Iterator[str]:
    """The most that is missing from completeness, over all models."""
    gaps = data.rows.where(measure=ATTRIBUTION, metric="gap")
    if gaps:
        yield f"At most {fixed(100 * max(row.value for row in gaps), 2)} % is missing from completeness."


def bias_findings(data: ReportData) -> Iterator[Finding]:
    """One finding for the grid of biases."""
    pieces: list[str] = []
    settled = False
    for slope in data.rows.where(measure=INITIAL_BIAS, metric="slope"):
        differ = data.rows.one(measure=INITIAL_BIAS, metric="differ", task=slope.task)
        known = is_resolved(slope, data.level)
        any_form = differ is not None and is_resolved(differ, data.level)
        settled = settled or known or any_form
        words = "" if known else ", arms differ without a slope" if any_form else ", not resolvable"
        show = quantity(slope.task)
        text = show.but(unit=f"{show.unit} per unit").text(slope)
        pieces += ["; " if pieces else "", f"{question_name(slope.task)} ", Number(text), words]
    if pieces:
        state: State = "resolved" if settled else "unresolved"
        yield Finding(
            "Does the initial weight of the previous layer matter?", (*filter(None, pieces), "."), state
        )  # fmt: skip


def share_findings(data: ReportData) -> Iterator[Finding]:
    """One finding for the held-out loss, and one for minimal pairs: the difference on each share of the text."""
    for task, rows in data.rows.where(measure=DATA_SHARE, against=PRESENT).by("task").items():
        what, show = question_name(task), quantity(task)
        pieces: list[str] = [f"{what} with layer weights minus that without: "]
        for at, gap in enumerate(rows.where(metric="difference")):
            share = fixed(100 * (gap.amount or 0.0), 1).removesuffix(".0")
            pieces += ["; " if at else "", f"on {share} % of the text ", Number(show.text(gap))]
        halving = rows.one(metric="by_halving")
        settled = halving is not None and is_resolved(halving, data.level)
        if halving is not None:
            pieces += ["; each halving adds ", Number(show.text(halving)), "" if settled else ", not resolvable"]
        state: State = "resolved" if settled else "unresolved"
        yield Finding(f"Are layer weights worth more with less text ({what})?", (*filter(None, pieces), "."), state)


def convergence_findings(data: ReportData) -> Iterator[Finding]:
    """One finding for steps, and one for seconds, to the loss that the backbone reaches."""
    run = data.rows.where(measure=CONVERGENCE)
    target = run.one(metric="loss")
    for cost, ratios in run.where(metric="ratio").by("condition").items():
        pieces: list[str] = []
        settled = True
        for ratio in ratios:
            own, known = _ratio_words(data, ratio, run.where(metric="censored", condition=cost))
            pieces += ["; " if pieces else "", f"{ratio.arm} ", *own]
            settled = settled and known
        reach = "" if target is None else f" (validation loss {fixed(target.value, 3)})"
        words = f"Times those of {reference(data) or 'the backbone'}: "
        question = f"How many {cost} to the loss that the backbone reaches{reach}?"
        yield Finding(question, (words, *filter(None, pieces), "."), "resolved" if settled else "unresolved")


def dynamics_findings(data: ReportData) -> Iterator[Finding]:
    """The grid of biases, the shares of the text, and each cost of a loss."""
    yield from bias_findings(data)
    yield from share_findings(data)
    yield from convergence_findings(data)


def _values_mark(name: str, measure: str, task: str, across: str, at: str, data: ReportData) -> Lines:
    """The value of a question along a grid, in nats or in points."""
    named = in_reading_order(data.rows.where(measure=measure, metric="value", task=task).axis("arm"))
    of = arm_slots([*arms(data), *named])
    biases = measure == INITIAL_BIAS
    return Lines(
        name=name, title=f"By {across}: {question_name(task)}", x="amount", across=across, at=at, height=300,
        where={"measure": measure, "metric": "value", "task": task}, series=None if biases else "arm",
        slots=lambda names: {each: of.get(each, 0) for each in names}, words=str, sizes=not biases, named=not biases,
        show=quantity(task).but(axis=LOSS.axis if task == MASKED_LM else "points", unit="", reference=None),
    )  # fmt: skip


def _grids(data: ReportData) -> Iterator[Lines]:
    for at, task in enumerate(data.rows.where(measure=INITIAL_BIAS, metric="value").axis("task")):
        across = "initial scalar of the previous layer"
        yield replace(_values_mark(f"bias-{at}", INITIAL_BIAS, task, across, "bias {}", data),
                      title=f"By initial bias: {question_name(task)}")  # fmt: skip
    for at, task in enumerate(data.rows.where(measure=DATA_SHARE, metric="value").axis("task")):
        yield _values_mark(f"shares-{at}", DATA_SHARE, task, "share of the text", "{} of the text", data)


def _ratio_slots(data: ReportData) -> Callable[[Sequence[str]], Mapping[str, int]]:
    named = arms(data)
    return lambda names: {name: slot for name, slot in arm_slots([*named, *names]).items() if name in names}


def _sooner(data: ReportData) -> Show:
    return RATIO.but(axis=f"ratio to {reference(data) or 'the backbone'}; left is sooner")


def _cell(metric: str, head: str, against: str | None = None) -> Column:
    show = PER_CENT.but(signed=metric == "preference", bounds=against != TOKENS)
    return Column(head, metric, show, where={"against": against})


STUDY_KIND = Kind(
    name="layer_weights_study",
    measures=(STUDY,),
    claims=True,
    tiles=tiles,
    answer=lambda data: next((f"{each.question} {each.text}" for each in study_findings(data)), ""),
    sections=(
        Section(
            anchor=STUDY, title="Are the layer weights worth it", short="Worth",
            missing="No arms were compared in this run (study).",
            parts=lambda data: (
                Beside(
                    (
                        _compared_mark("nats", "Held-out loss", NATS, data),
                        _compared_mark("points", "Accuracy", POINTS, data),
                        _compared_mark("ratio", "Cost", RATIO, data),
                    )
                ),
                Says(study_findings, note="terms"),
                Tabled(title="Every arm", table=every_arm, folded=True, terminal=False),
                Tabled(title="Every difference", table=every_difference, folded=True, terminal=False),
            ),
        ),
        Section(
            anchor="fine-tuning", title="Weights in pretraining and in fine-tuning", short="Fine-tuning",
            needs={"measure": TUNING_CONVERGENCE, "metric": "score"},
            missing=(
                "No learning curves of fine-tuning are part of this run (tuning_convergence): layerwise train "
                "elc-study --glue FOLDER, with --set tuning_evals above 0."
            ),
            parts=(
                Says(tuning_findings),
                Tabled(table=lambda data: tuning_table(data, WEIGHTS_IN), terminal=False, note="costs"),
                Tabled(
                    title="Every arm", table=lambda data: tuning_table(data, arms(data)), folded=True, terminal=False
                ),
            ),
        ),
        Section(
            anchor=ATTRIBUTION, title="Words that decide", short="Attribution",
            missing="No decision was attributed to words (attribution): layerwise train elc-study.",
            parts=(
                Says(attribution_findings),
                Pivot(
                    derive=_attributed, rows={"arm": "arm"}, split="task", terminal=False, note="shares",
                    columns=(
                        _cell("linguistic", "linguistic words"), _cell("linguistic", "of tokens", TOKENS),
                        _cell("linguistic", "shuffled labels", SHUFFLED), _cell("surface", "surface words"),
                        _cell("surface", "of tokens", TOKENS), _cell("surface", "shuffled labels", SHUFFLED),
                        _cell("preference", "preference"), _cell("preference", "shuffled labels", SHUFFLED),
                    ),
                ),
                Says(attribution_notes, terminal=False),
            ),
        ),
        Section(
            anchor="dynamics", title="Beginnings, data and speed", short="Dynamics",
            needs={"measure": (INITIAL_BIAS, DATA_SHARE, CONVERGENCE)},
            missing=(
                "No grid of biases, no share of the text and no steps to a loss are part of this run (initial_bias, "
                "data_share, convergence): layerwise train elc-study --bias 0,0.5,1,2,4 --shares 1/8,1/4,1/2,1."
            ),
            parts=lambda data: (
                Beside(
                    (
                        *_grids(data),
                        Dots(
                            name="convergence", title="Steps and seconds to the same loss", y="condition",
                            where={"measure": CONVERGENCE, "metric": "ratio"}, series="arm", slots=_ratio_slots(data),
                            words=str, show=_sooner(data),
                            note="intervals",
                        ),
                    )
                ),
                Says(dynamics_findings),
            ),
        ),
    ),
)  # fmt: skip
