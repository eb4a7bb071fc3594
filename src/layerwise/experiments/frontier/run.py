"""The steps of a frontier: plans are chosen on one part of the text, and everything is measured on the other.

The choice is a function of losses, so a run that was killed goes on with the same plans.

The rows that are no verdicts are arms and losses.

Measure `frontier`, of what was timed (`plan`):

    size        of its `arm`, and of its kind there (`part`): how many layers the plan leaves out, joins or repeats
    delta_nll   task `report`: nats per token above the model as trained on fresh text, paired by document; interval, p,
                Holm's p over all
    delta_nll   task `choose`: the same on the text that chose the plans, without an interval
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from layerwise.data.text.corpus import Corpus
from layerwise.errors import OptionError, PlanError, UnsupportedModel
from layerwise.experiments.engines.losses import KeptLosses, LossesUnit
from layerwise.experiments.engines.steps import Completed, Outline, Steps
from layerwise.experiments.experiment import Inputs
from layerwise.experiments.healing.arms import RATES
from layerwise.experiments.healing.config import Healing
from layerwise.experiments.opening import (
    divided_sentence,
    open_model,
    open_named,
    provenance,
    size_row,
    tokenized,
)
from layerwise.experiments.options.common import BATCH_TOKENS, LoadingOptions
from layerwise.experiments.reporter import Reporter, Silent, describe_data, describe_model
from layerwise.experiments.runner import perform
from layerwise.experiments.timing.config import LatencyFrontier
from layerwise.experiments.timing.run import timed_rounds, timed_settings, times_of, timing_settings
from layerwise.measure.cost.latency_verdict import LatencyPoint, verdict_rows
from layerwise.measure.cost.pass_time import TimedPlan, rows_of_rounds
from layerwise.measure.language.evaluation_data import EvalData
from layerwise.measure.stats.effects import ArmLosses, differences
from layerwise.plan import Plan
from layerwise.results import Loss, Run, Score
from layerwise.results.run import is_run
from layerwise.results.training_record import MODEL
from layerwise.results.vocabulary import CHOOSE, DELTA, FRONTIER, FUSED, IDENTITY, PARALLEL, REPORT
from layerwise.search.latency_arms import ArmPlan, candidates, least, skip_sets, skip_sizes, spread
from layerwise.search.rungs import divided_text, mean_losses
from layerwise.stack import Stack, weight_hash
from layerwise.train.heal.options import Method

HEALED = "healed"
SIZES = 3
"""Sizes of the plans that are healed here."""

METHOD: Method = "lora"


def given_models(config: LatencyFrontier, stack: Stack) -> tuple[dict[str, Stack], dict[str, str]]:
    """The models of `--healed` by name, and for those that lie in a run the text that they were healed on.

    Raises `OptionError` for a model of another vocabulary, which the text is not cut for.
    """
    models: dict[str, Stack] = {}
    texts: dict[str, str] = {}
    for location in config.healed:
        folder = Path(location).expanduser()
        run = next((each for each in (folder, folder.parent) if is_run(each)), None)
        path = folder / MODEL if run == folder else folder
        name = f"{HEALED} {path.parent.name if path.name == MODEL else path.name}"
        if name in models:
            name = f"{HEALED} {location}"
        models[name] = opened(config, str(path), stack)
        if run is not None:
            with Run.open(run) as opened_run:
                texts[name] = opened_run.manifest.corpus
    return models, texts


def opened(config: LatencyFrontier, location: str, stack: Stack) -> Stack:
    """A healed model. Raises `OptionError` for one of another vocabulary than that of `stack`."""
    options = LoadingOptions(device=config.device)
    healed = open_model(options, model=location, dtype=config.dtype, trust_remote_code=config.trust_remote_code)
    sizes = [int(each.text_config.vocab_size) for each in (stack, healed)]
    if sizes[0] != sizes[1]:
        raise OptionError(
            f"--healed {location} has a vocabulary of {sizes[1]:,}, and {stack.source.name} one of {sizes[0]:,}: give "
            "models that were made of this one"
        )
    return healed


def plans_to_heal(kept: Sequence[ArmPlan]) -> list[Plan]:
    """Of the plans that skip layers one of each of three sizes: the first of its size."""
    by_size: dict[int, Plan] = {}
    for each in kept:
        if each.arm == "skip":
            by_size.setdefault(each.size, each.plan)
    return [by_size[size] for size in spread(sorted(by_size), SIZES)]


def healed_here(
    config: LatencyFrontier, stack: Stack, plans: Sequence[Plan], corpus: Corpus, folder: Path, reporter: Reporter
) -> Mapping[str, Path]:
    """Each of `plans` healed on `corpus` with the recipe of `layerwise heal`, in a run of its own: name to model.

    What is finished is not trained again. A model that no checkpoint can hold is left out.
    """
    models = {}
    for plan in plans:
        path = folder / HEALED / str(plan).replace(" ", "_")
        if not (path / MODEL / "config.json").is_file():
            reporter.log(f"healing {plan}: {config.heal_steps} steps")
            healing = Healing(
                model=config.model,
                device=config.device,
                plan=str(plan),
                method=METHOD,
                steps=config.heal_steps,
                seeds=1,
                controls=(),
                learning_rates=(RATES[METHOD][0],),
                run=path,
                seed=config.seed,
            )
            perform(healing, Silent(), Inputs(stack, corpus))
        if (path / MODEL / "config.json").is_file():
            models[f"{HEALED} {plan}"] = path / MODEL
    return models


def documents_of(corpus: Corpus, part: EvalData) -> Corpus:
    """The documents of which `part` reads a window, as a corpus of their own."""
    read = {window.document for window in part.windows}
    kept = tuple(document for document in corpus.documents if document.id in read)
    return Corpus(f"{corpus.name}, the part that chooses", kept)


SHARES: Mapping[str, float] = {CHOOSE: 0.4, REPORT: 0.6}
"""The part of the text that chooses plans, and the part that says what they lose."""

LEAST_DEPTH = 4


@dataclass(frozen=True)
class Contenders:
    """What is measured beside the model as trained, `whole`: plans, and healed models by name."""

    whole: Plan
    kept: Sequence[ArmPlan]
    healed: Mapping[str, Stack]
    unfused: Mapping[Plan, str]
    """Plans with groups that cannot run as one, with the reason."""

    def points(self) -> list[ArmPoint]:
        """Everything that is timed, the model as trained first."""
        whole = self.whole
        points = [
            ArmPoint(LatencyPoint(str(TimedPlan(whole, fused)), IDENTITY, str(whole)), "as trained", 0)
            for fused in (False, True)
        ]
        for each in self.kept:
            for timed in self._ways(each):
                point = LatencyPoint(str(timed), each.arm, str(each.plan))
                points.append(ArmPoint(point, each.kind, each.size, timed.fused))
        points += [
            ArmPoint(LatencyPoint(name, HEALED, name), "checkpoint", len(whole.steps()) - healed.depth)
            for name, healed in self.healed.items()
        ]
        return points

    def timed(self) -> list[TimedPlan]:
        """What is timed."""
        plans = [TimedPlan(self.whole), TimedPlan(self.whole, fused=True)]
        plans += [timed for each in self.kept for timed in self._ways(each)]
        healed = self.healed.items()
        return [*plans, *(TimedPlan(Plan.identity(stack.depth), fused=True, model=name) for name, stack in healed)]

    def _ways(self, plan: ArmPlan) -> list[TimedPlan]:
        """How a plan is timed: fused, so that all arms have what fusing gives, and a parallel plan in turn as well."""
        fused = [] if plan.plan in self.unfused else [TimedPlan(plan.plan, fused=True)]
        return [TimedPlan(plan.plan), *fused] if plan.arm == PARALLEL else fused


def frontier(config: LatencyFrontier, reporter: Reporter, inputs: Inputs) -> Steps:
    """Choose plans, measure what they lose on fresh text, time everything in turns, and judge.

    Raises `DataError` for too little text, and `PlanError` for fewer than 4 layers.
    """
    corpus = inputs.corpus or config.corpus(config.model)
    stack = inputs.stack or open_named(config, reporter)
    whole, tried = Plan.identity(stack.depth), _tried(config, stack)
    every = list(dict.fromkeys([whole, *(each.plan for each in tried)]))
    text = tokenized(config, stack, corpus, reporter, config.seed)
    parts = divided_text(text, config.seed, SHARES)
    healed, healed_on = given_models(config, stack)
    settings = timed_settings(stack, config)
    batches = config.batch_tokens or BATCH_TOKENS
    manifest = provenance(
        stack,
        text,
        families=_families(config, healed),
        tasks=tuple(map(str, settings)),
        seed=config.seed,
        settings={"batch_tokens": batches, **timing_settings(stack, config)},
    )

    def says() -> Iterator[str]:
        yield describe_model(stack)
        yield describe_data(text)
        yield divided_sentence(text, parts)
        arms = {arm: sum(each.arm == arm for each in tried) for arm in dict.fromkeys(each.arm for each in tried)}
        counted = ", ".join(f"{count} of {arm}" for arm, count in arms.items())
        yield f"plans to choose from: {counted}; of each kind and size the best is measured on the other part"
        yield f"{config.rounds} rounds of everything in turns: {'; '.join(map(str, settings))}"
        if config.heal_steps is not None:
            yield f"plans of three sizes are healed on the part that chooses, {config.heal_steps:,} steps each"

    # Which plans are kept is not known yet: one of each kind and size is, and removals lead to depth squared more.
    likely = list({(each.arm, each.kind, each.size): each for each in tried}.values())
    tokens = {name: sum(batch.size for batch in part.batches) for name, part in parts.items()}
    passes = (len(every) + stack.depth**2) * tokens[CHOOSE] + len(likely) * tokens[REPORT]
    losses = LossesUnit(stack, every, parts[CHOOSE], passes, others=HEALED)
    likely_timed = Contenders(whole, likely, healed, {}).timed()
    ahead = (losses, timed_rounds({"": stack, **healed}, likely_timed, settings, config, config.rounds))
    session = yield Outline(
        manifest, says, ahead=ahead, discard=lambda folder: shutil.rmtree(folder / HEALED, ignore_errors=True)
    )

    kept_losses = yield from losses
    reporter.log(f"choosing among {len(tried)} plans and sets of layers")
    choose = kept_losses.evaluator(stack, CHOOSE, [parts[CHOOSE]])
    mean_losses(choose, every, whole)
    sets = list(skip_sets(stack, choose, parts[CHOOSE], skip_sizes(stack.depth, config.sizes)))
    mean_losses(choose, list(dict.fromkeys(each.plan for each in [*tried, *sets])), whole)
    means = choose.complete()
    kept = least([*tried, *sets], means)
    if config.heal_steps is not None:
        plans = plans_to_heal(sorted(kept, key=lambda each: means[each.plan]))
        documents = documents_of(corpus, parts[CHOOSE])
        models = healed_here(config, stack, plans, documents, session.folder, reporter)
        healed = {**healed, **{name: opened(config, str(path), stack) for name, path in models.items()}}
    chosen_on = {str(plan): loss for plan, loss in means.items()}
    chosen_on |= {name: _of_model(kept_losses, name, each, CHOOSE, parts)[1] for name, each in healed.items()}
    unfused = dict(_unfused(stack, [each.plan for each in kept if each.arm == PARALLEL]))
    contenders = Contenders(whole, kept, healed, unfused)
    fresh = _fresh(kept_losses, stack, contenders, parts, reporter)

    rounds = timed_rounds({"": stack, **healed}, contenders.timed(), settings, config, config.rounds, config.seed)
    times = times_of((yield from rounds), settings)
    points = contenders.points()
    rows = [
        *rows_of_rounds([each.point.name for each in points], settings, times),
        size_row(stack),
        *point_rows(points, fresh, chosen_on, str(whole), seed=config.seed),
        *verdict_rows([each.point for each in points], fresh, chosen_on, times, settings, seed=config.seed),
    ]
    notes = [
        f"{name} was healed on a text of the same name ({text.name}), and may have learned from documents that are "
        "reported on: what it loses may be flattered"
        for name, on in healed_on.items()
        if on == text.name
    ]
    notes += [f"{plan} was not timed with its members as one: {why}" for plan, why in unfused.items()]
    return Completed(rows, {FRONTIER: notes})


def _tried(config: LatencyFrontier, stack: Stack) -> list[ArmPlan]:
    if stack.depth < LEAST_DEPTH:
        raise PlanError(
            f"{stack.source.name} has {stack.depth} layers, and a frontier needs {LEAST_DEPTH}: what it compares "
            "are ways of leaving some out and of joining others"
        )
    tried = list(candidates(stack.depth, config.sizes))
    for each in tried:
        stack.check(each.plan)
    return tried


def _families(config: LatencyFrontier, healed: Mapping[str, Stack]) -> tuple[str, ...]:
    options = {name: getattr(config, name) for name in ("sizes", "heal_steps")}
    own = [f"{name}:{value}" for name, value in options.items() if value is not None]
    return (FRONTIER, *own, *(f"{name}:{weight_hash(stack.model)[:16]}" for name, stack in healed.items()))


def _unfused(stack: Stack, plans: Sequence[Plan]) -> Iterator[tuple[Plan, str]]:
    """Plans whose groups cannot run as one, with the reason."""
    for plan in plans:
        try:
            with stack.under(plan, fused=True):
                pass
        except UnsupportedModel as refused:
            yield plan, str(refused)


def _fresh(
    losses: KeptLosses, stack: Stack, contenders: Contenders, parts: Mapping[str, EvalData], reporter: Reporter
) -> list[Loss]:
    """The losses of everything on the part that chose nothing."""
    plans = [contenders.whole, *(each.plan for each in contenders.kept)]
    reporter.log(f"measuring {len(plans)} plans on the other part")
    fresh = losses.evaluator(stack, REPORT, [parts[REPORT]])
    mean_losses(fresh, plans, contenders.whole)
    rows = fresh.losses(plans)
    for name, healed in contenders.healed.items():
        rows += _of_model(losses, name, healed, REPORT, parts)[0]
    return rows


def _of_model(
    losses: KeptLosses, name: str, stack: Stack, part: str, parts: Mapping[str, EvalData]
) -> tuple[list[Loss], float]:
    """A healed model as it is on a part of the text, its rows under its own name, and their mean."""
    own = Plan.identity(stack.depth)
    evaluator = losses.evaluator(stack, part, [parts[part]], model=name)
    mean = mean_losses(evaluator, [own], own)[own]
    return [replace(row, plan=name) for row in evaluator.losses([own])], mean


@dataclass(frozen=True, slots=True)
class ArmPoint:
    """A point with its kind within the arm, its size in layers, and whether groups of layers run as one."""

    point: LatencyPoint
    kind: str
    size: int
    fused: bool = False

    @property
    def arm(self) -> str:
        """The arm that it is shown as: parallel layers are two, by how they run."""
        return FUSED if self.fused and self.point.arm == PARALLEL else self.point.arm


def point_rows(
    points: Sequence[ArmPoint], losses: Iterable[Loss], chosen_on: Mapping[str, float], whole: str, *, seed: int
) -> list[Score]:
    """The rows of every point; `losses` are those on fresh text, of the model as trained too."""
    rows = list(losses)
    keys = dict.fromkeys(each.point.losses for each in points if each.point.losses != whole)
    arms = [ArmLosses(key, DELTA, {"plan": key}) for key in keys]
    compared = differences(FRONTIER, rows, whole, arms, seed=seed, by_task=False)
    measured = (row for row in compared if row.against is None)
    deltas: dict[str | None, Score] = {row.plan: replace(row, plan=None, task=REPORT) for row in measured}
    tokens = sum(row.tokens for row in rows if row.plan == whole)
    deltas[whole] = Score(FRONTIER, DELTA, 0.0, 0.0, 0.0, task=REPORT, tokens=tokens)
    made = []
    for each in points:
        name, losses_of = each.point.name, each.point.losses
        above = chosen_on[losses_of] - chosen_on[whole]
        made += [
            Score(FRONTIER, "size", float(each.size), plan=name, arm=each.arm, part=each.kind),
            replace(deltas[losses_of], plan=name),
            Score(FRONTIER, DELTA, above, task=CHOOSE, plan=name),
        ]
    return made
