"""A search that is ready to run: the texts divided, the model open, and what it costs at most counted.

The search, the choice among its finalists and the report each read a text of their own. Every loss is stored as soon as
it is computed, and a search is a function of losses and seeds: one that was killed goes through the same rounds again,
reads what is stored, and computes the rest.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from layerwise.data.text.corpus import Corpus, read_corpus
from layerwise.errors import OptionError
from layerwise.experiments.experiment import Prepared
from layerwise.experiments.options.text import BATCH_TOKENS
from layerwise.experiments.provenance import provenance, size_row
from layerwise.experiments.reporter import Reporter
from layerwise.experiments.search import rows as made
from layerwise.experiments.search.config import Search
from layerwise.experiments.sentences import describe_data, describe_model, duration
from layerwise.measure.cost.pass_time import Setting
from layerwise.measure.language.evaluation_data import EvalData, tokenize
from layerwise.plan import Plan
from layerwise.results import Manifest, Run
from layerwise.results.rows import Loss, Score
from layerwise.results.vocabulary import CHOSEN, LATENCY, SEARCH, SEARCH_ROUND
from layerwise.search import timing
from layerwise.search.averaging import foreign, with_averages
from layerwise.search.budget import UNITS, Budget, Unit
from layerwise.search.confirm import against_arms, losses_above, winners_curse
from layerwise.search.cost import Spent, WorstCase
from layerwise.search.evaluator import GraphEvaluator
from layerwise.search.evolve import evolve
from layerwise.search.front import front, thinned
from layerwise.search.greedy import SearchStep, Space, greedy, winners
from layerwise.search.moves import CHEAPER, check_moves
from layerwise.search.nsga import nsga
from layerwise.search.one_shot import RANDOM_SETS, one_shot_plans, random_sets, skip_effects, turning
from layerwise.search.prices import PlanPrices
from layerwise.search.rungs import Evaluator, Round, RungSettings, mean_losses
from layerwise.search.texts import by_document, divided_text, grown
from layerwise.stack import Stack, weight_hash

REPORTED = 12
"""Plans of a front that are measured on the report text, for each unit."""

WORST = RungSettings(alpha=0.0)
"""How rounds are run that only count what they cost: no test sends a candidate away."""


@dataclass(frozen=True)
class Finalists:
    """What a search ended with: its steps, the plans that it leaves to be chosen among, and the arms beside them."""

    steps: Sequence[SearchStep]
    plans: Sequence[Plan]
    arms: Mapping[str, Plan]
    random: Sequence[Plan]


class PreparedSearch(Prepared):
    """A search whose model is open and whose text is divided.

    Raises `DataError` for too little text, and `OptionError` for a budget that leaves nothing to search.
    """

    def __init__(self, config: Search, stack: Stack, corpus: Corpus) -> None:
        self.config = config
        self.moves = check_moves(config.moves)
        self.budget = Budget.parse(config.budget)
        self.stack = with_averages(stack) if "merge" in self.moves else stack
        self.text = self._tokenized(corpus)
        self.parts = divided_text(self.text, config.seed)
        self.rungs = grown(self.parts["search"], config.seed)
        self.second = None if config.second_text is None else self._tokenized(read_corpus(config.second_text))
        self.setting = Setting(config.phase, config.latency_batch, config.context)
        self.manifest = self._manifest()
        self._most: Spent | None = None
        if self.budget.unit != "ms":
            self._space(PlanPrices.of(self.stack))

    def _tokenized(self, corpus: Corpus) -> EvalData:
        config = self.config
        return tokenize(
            self.stack, corpus, length=config.max_length, tokens=config.tokens,
            batch_tokens=config.batch_tokens or BATCH_TOKENS, seed=config.seed,
        )  # fmt: skip

    def _manifest(self) -> Manifest:
        config = self.config
        second = () if self.second is None else (f"second:{self.second.digest[:16]}",)
        timed = (str(self.setting),) if config.times else ()
        return provenance(
            self.stack, self.text,
            families=(
                "search", str(self.budget), *self.moves, config.method, f"width:{config.width}", *timed,
                *(f"{name}:{weight_hash(self.stack.sources[name].model)[:16]}" for name in foreign(self.stack)),
            ),
            tasks=second, seed=config.seed, settings={"batch_tokens": config.batch_tokens or BATCH_TOKENS},
        )  # fmt: skip

    def _space(self, prices: PlanPrices) -> Space:
        """What may be searched. Raises `OptionError` for a budget that the whole model keeps already."""
        unit, depth = self.budget.unit, self.stack.depth
        whole = prices.of_plan(Plan.identity(depth), unit)
        limit = self.budget.limit(whole)
        others = foreign(self.stack)
        if limit >= whole and set(self.moves) <= set(CHEAPER) and not others:
            raise OptionError(
                f"--budget {self.budget} leaves room for the whole model, which costs {whole:g} {unit}: nothing has to "
                "be left out; give less"
            )
        return Space(depth, self.moves, lambda plan: prices.of_plan(plan, unit), limit, others)

    def describe(self) -> Iterator[str]:
        """The model, the text and its parts, and what the search costs at most."""
        yield describe_model(self.stack)
        yield describe_data(self.text)
        what = "document" if by_document(self.text) else "window"
        parts = ", ".join(f"{name} {part.tokens:,}" for name, part in self.parts.items())
        yield f"texts, disjoint by {what}, in scored tokens: {parts}; rungs of the search text: {len(self.rungs)}"
        if self.second is not None:
            yield f"second corpus: {describe_data(self.second)}"
        if self.config.method == "greedy" and self.budget.unit != "ms":
            bound = self.worst_case(self._space(PlanPrices.of(self.stack)))
            seconds = bound.at_rates(self._pace())
            assert seconds is not None, "the pace was measured"
            yield (
                f"search: at most {bound.layer_tokens:,} layer evaluations x tokens and {bound.head_tokens:,} heads x "
                f"tokens, at most {duration(seconds)} at the pace of this machine"
            )

    def worst_case(self, space: Space) -> Spent:
        """What the greedy search costs at most, in layer evaluations and heads times tokens."""
        evaluator = GraphEvaluator(self.stack, self.rungs)
        worst = WorstCase(evaluator.tokens, evaluator.batch_tokens)
        for _ in greedy(worst, space, width=self.config.width, settings=WORST):
            pass
        skip_effects(worst, space)
        return worst.spent

    def _pace(self) -> Spent:
        """The pace of this machine: the whole model on the first batch of the search, the second time that it runs."""
        first = self.rungs[0]
        for _ in range(2):
            evaluator = GraphEvaluator(self.stack, [_of_batches(first, 1)])
            evaluator.evaluate([Plan.identity(self.stack.depth)], 0, Plan.identity(self.stack.depth))
        return evaluator.spent

    def measure(self, run: Run, reporter: Reporter) -> None:
        """Search, choose and confirm; what is stored is not computed again."""
        if run.store.scores(SEARCH, metric=CHOSEN):
            return
        fresh = run.store.count_losses() == 0
        known = list(run.store.losses())
        prices = self._prices(run, reporter)
        began = time.perf_counter()
        space = self._space(prices)
        self._most = self.worst_case(space) if self.config.method == "greedy" else None
        search = self._evaluator(run, reporter, known, "search", self.rungs)
        finalists = self._finalists(search, space, reporter)
        spent, seconds = search.spent, time.perf_counter() - began
        select = self._evaluator(run, reporter, known, "select", [self.parts["select"]])
        chosen = self._choose(select, space, finalists, reporter)
        fronts = self._fronts(search, prices)
        rows = made.search_rows(search.complete(), prices, self.units, space.whole)
        rows += losses_above(select.losses([space.whole, *_selected(space, finalists)]), space.whole, "select", seed=0)
        texts = {"report": self.parts["report"]} | ({} if self.second is None else {"second": self.second})
        rows += self._confirmed(run, reporter, known, search, space, chosen, finalists, fronts, texts)
        rows += made.member_rows(chosen, self.budget, fronts, finalists.arms, finalists.random)
        run.store.replace_scores(SEARCH_ROUND, made.round_rows(finalists.steps))
        if self.config.times:
            self._check_times(run, reporter, prices, chosen)
        run.store.replace_scores("run", [size_row(self.stack)] + (made.cost_rows(spent, seconds) if fresh else []))
        reporter.log(made.cost_sentence(spent, seconds))
        # Last, because these rows say that the search is complete.
        run.store.replace_scores(SEARCH, rows)

    @property
    def units(self) -> tuple[Unit, ...]:
        """The units in which plans are priced."""
        return tuple(unit for unit in UNITS if unit != "ms" or self.config.times)

    def _prices(self, run: Run, reporter: Reporter) -> PlanPrices:
        """The prices of the model; milliseconds are measured once in the life of a run, and stored."""
        if not self.config.times:
            return PlanPrices.of(self.stack)
        stored = run.store.scores(LATENCY)
        if not stored:
            reporter.log(f"timing every layer: {self.setting}")
            table, _ = timing.measured(self.stack, self.setting)
            run.store.replace_scores(LATENCY, made.latency_rows(table, str(self.setting)))
            stored = run.store.scores(LATENCY)
        return PlanPrices.of(self.stack, made.table_of(stored))

    def _evaluator(
        self, run: Run, reporter: Reporter, known: Sequence[Loss], name: str, rungs: Sequence[EvalData]
    ) -> GraphEvaluator:
        most = self._most if name == "search" else None
        due = None if most is None else most.layer_tokens + most.head_tokens

        def watch(spent: Spent) -> None:
            done = spent.layer_tokens + spent.head_tokens
            left = None if most is None else most.at_rates(spent)
            reporter.progress(
                name, min(1.0, done / due) if due else 0.0, None if left is None else max(0.0, left - spent.seconds)
            )

        own = [row for row in known if row.task.startswith(f"{name}/")]
        return GraphEvaluator(self.stack, rungs, run.store.add_losses, own, f"{name}/", watch)

    def _finalists(self, search: GraphEvaluator, space: Space, reporter: Reporter) -> Finalists:
        """Run the rounds, and what stands beside them."""
        shrinks = not space.allows(space.whole)
        mean_losses(search, [space.whole], space.whole)
        arms: dict[str, Plan] = {}
        if shrinks:
            scores = turning(self.stack, self.rungs)
            arms = one_shot_plans(space, scores, skip_effects(search, space))
            mean_losses(search, [*arms.values(), space.whole], space.whole)
        steps = []
        for step in self._rounds(search, space, tuple(arms.values())):
            steps.append(step)
            reporter.log(made.round_sentence(len(steps), step, search.complete().get(space.whole)))
        best = list(winners(steps, space))
        return Finalists(
            steps, best[: self.config.width], arms, random_sets(space, RANDOM_SETS, self.config.seed) if shrinks else []
        )

    def _rounds(self, search: Evaluator, space: Space, arms: Sequence[Plan]) -> Iterator[SearchStep]:
        config = self.config
        if config.method == "greedy":
            yield from greedy(search, space, width=config.width)
        elif config.method == "evolve":
            yield from evolve(search, space, seed=config.seed)
        elif config.method == "optuna":
            yield from nsga(search, space, [space.whole, *arms], seed=config.seed)
        else:
            losses = mean_losses(search, arms, space.whole)
            yield SearchStep(
                "one-shot", Round(dict(sorted(losses.items(), key=lambda each: each[1])), len(losses), 0, 0)
            )

    def _choose(self, select: GraphEvaluator, space: Space, finalists: Finalists, reporter: Reporter) -> Plan:
        """The finalist that loses least on the selection text; of equals the first."""
        losses = mean_losses(select, [*_selected(space, finalists), space.whole], space.whole)
        del losses[space.whole]
        chosen = min(losses, key=lambda plan: losses[plan])
        reporter.log(f"chosen on the selection text among {len(losses)} plans: {chosen}")
        return chosen

    def _fronts(self, search: GraphEvaluator, prices: PlanPrices) -> dict[Unit, list[Plan]]:
        losses, fronts = search.complete(), {}
        for unit in self.units:
            points = front(losses, partial(prices.of_plan, unit=unit))
            fronts[unit] = [point.plan for point in thinned(points, REPORTED)]
        return fronts

    def _confirmed(
        self, run: Run, reporter: Reporter, known: Sequence[Loss], search: GraphEvaluator, space: Space, chosen: Plan,
        finalists: Finalists, fronts: Mapping[Unit, Sequence[Plan]], texts: Mapping[str, EvalData],
    ) -> list[Score]:  # fmt: skip
        """One measurement on each text that chose nothing: the chosen plan, the fronts, the arms, the random sets."""
        rows: list[Score] = []
        own = [chosen, *(plan for plans in fronts.values() for plan in plans), *finalists.arms.values()]
        plans = list(dict.fromkeys([space.whole, *own]))
        for name, data in texts.items():
            reporter.log(f"confirming on {name}: {len(plans)} plans and {len(finalists.random)} random sets")
            fresh = self._evaluator(run, reporter, known, name, [data])
            mean_losses(fresh, list(dict.fromkeys([*plans, *finalists.random])), space.whole)
            rows += losses_above(fresh.losses(plans), space.whole, name, seed=self.config.seed)
            rows += against_arms(
                fresh.losses([chosen, *finalists.arms.values(), *finalists.random]), chosen, finalists.arms,
                finalists.random, name, seed=self.config.seed,
            )  # fmt: skip
            if name == "report":
                complete = search.complete()
                for plan in plans[1:]:
                    if plan in complete:
                        pair = [space.whole, plan]
                        rows += winners_curse(search.losses(pair), fresh.losses(pair), space.whole, plan)
        return rows

    def _check_times(self, run: Run, reporter: Reporter, prices: PlanPrices, chosen: Plan) -> None:
        """The milliseconds of the chosen plan, measured whole, beside what the table says."""
        whole = Plan.identity(self.stack.depth)
        if any(step.sublayer is not None or step.source is not None for step in chosen.steps()):
            reporter.log("milliseconds of the chosen plan are predicted: halves and averages run no faster here")
            return
        _, times = timing.measured(self.stack, self.setting, [whole, chosen])
        rows = [row for row in run.store.scores(LATENCY) if row.plan is None]
        rows += made.checked_latency_rows(times, prices, str(self.setting))
        run.store.replace_scores(LATENCY, rows)


def _selected(space: Space, finalists: Finalists) -> list[Plan]:
    """The plans that are chosen among: those of the search and of the arms that are within the limit."""
    return [plan for plan in dict.fromkeys([*finalists.plans, *finalists.arms.values()]) if space.allows(plan)]


def _of_batches(data: EvalData, count: int) -> EvalData:
    return replace(data, batches=data.batches[:count])
