"""Verdicts of a rule over many simulated runs of a known truth: true, false, null, or underpowered."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial

import pytest

from layerwise.page import ReportData
from layerwise.page.finding import Finding, Verdict
from layerwise.page.kinds import Judge
from layerwise.results.rows import Score
from layerwise.studies.diagnose import findings as diagnosis
from layerwise.studies.robustness import findings as layershuffle
from layerwise.studies.sweep import painters
from layerwise.studies.train_elc import findings as elc
from layerwise.studies.train_growth import findings as growth
from tier import by_tier

RUNS = by_tier(fast=10, nightly=200)
MIN_RUNS = 60
"""If a verdict has a share below 95 %, 60 runs agree with probability below 5 % (0.95 ** 60 = 0.046)."""
WRONG = 0.05
POWER = 0.75

SUPPORTED, NULL, CONTRADICTED = "supported", "no better than the null", "contradicted"
ANSWERS = {SUPPORTED, NULL, CONTRADICTED}
INCONCLUSIVE, NOT_MEASURED = "inconclusive", "not measured"
NULL_OR_CONTRADICTED = f"{NULL}, {CONTRADICTED}"
SUPPORTED_AND_CONTRADICTED = f"{SUPPORTED}; {CONTRADICTED}"
"""Two wrong verdicts, counted separately."""
Truth = Callable[[int], Iterable[Score]]
"""Run number to rows."""
Table = Mapping[str, Mapping[str, Iterable[Truth]]]
"""Claim to verdict to worlds."""


JUDGES: Mapping[str, Judge] = {
    "trained_order": layershuffle.judge_random_order_cost,
    "collapse": layershuffle.judge_ordinary_model_collapses,
    "pruning": layershuffle.judge_pruning_graceful,
    "positions": layershuffle.judge_layers_know_positions,
    "merging": layershuffle.judge_merging_lossless,
    "same_space": painters.judge_middle_layers_share_space,
    "all_needed": painters.judge_all_layers_needed,
    "predictability": diagnosis.judge_weights_predictable,
    "oscillation": diagnosis.judge_weights_oscillate,
    "core": diagnosis.judge_core_layers,
    "anti_layers": diagnosis.judge_anti_layers,
    "recovery": diagnosis.judge_recovery_follows_importance,
    "scaling": diagnosis.judge_only_scaling_survives,
    "growth_loss": growth.judge_loss,
    "same_function": painters.judge_middle_layers_do_the_same,
    "any_order": painters.judge_order_matters,
    "parallel": painters.judge_layers_run_in_parallel,
    "order_by_task": painters.judge_order_by_task,
    "looping": painters.judge_looping_helps,
    "ranking": painters.judge_strategies_rank_as_published,
    "worth": elc.judge_weights_worth_their_time,
    "grammar": elc.judge_more_grammar_learned,
    "pattern": elc.judge_embedding_and_last_layer_first,
    "alike": elc.judge_weights_alike,
    "uniform": elc.judge_weights_not_uniform,
}
"""Functions that judge, by the name of their contrasts."""
MISSING = Finding("", "", Verdict.NOT_MEASURED)


def judge_rows(rule: str, rows: Iterable[Score], depth: int) -> Finding:
    return JUDGES[rule](ReportData({"depth": depth}, (), tuple(rows))) or MISSING


def count_verdicts(rule: str, truth: Truth, depth: int, runs: int = RUNS) -> Counter[Verdict]:
    return count_runs(lambda run: judge_rows(rule, truth(run), depth).verdict, runs)


def count_runs(verdict: Callable[[int], Verdict], runs: int) -> Counter[Verdict]:
    counts: Counter[Verdict] = Counter()
    for run in range(runs):
        counts[verdict(run)] += 1
        if run + 1 == MIN_RUNS and len(counts) == 1:
            break
    return counts


def list_other_verdicts(right: str) -> str:
    return "; ".join(sorted(ANSWERS - {right}))


def compute_share(counts: Counter[Verdict], *verdicts: str) -> float:
    return sum(count for verdict, count in counts.items() if verdict in verdicts) / counts.total()


def check_verdicts(
    rule: str,
    truth: Truth,
    depth: int,
    right: str | None,
    wrong: Iterable[str],
    least: float = POWER,
    runs: int = RUNS,
) -> None:
    """Check that `right` has a share of at least `least`, and each string of `wrong` one of at most 5 %."""
    counts = count_verdicts(rule, truth, depth, runs)
    assert all(compute_share(counts, *verdicts.split(", ")) <= WRONG for verdicts in wrong), counts
    assert right is None or compute_share(counts, right) >= least, counts


Test = Callable[[Callable[[], None]], None]
"""A test with the parameter `check`."""


def make_simulated_test(
    table: Table,
    *,
    depth: int = 12,
    least: float = POWER,
    runs: int = RUNS,
    wrong: Sequence[str] = (),
    nightly: bool = False,
    together: bool = False,
) -> Test:
    """Return a test that wrong verdicts (default: all others) are rare, one by one or `together`."""

    def other(right: str) -> Sequence[str]:
        answers = sorted(ANSWERS - {right})
        return wrong or ((", ".join(answers),) if together else answers)

    return _make_test(
        table, lambda rule, truth, right: check_verdicts(rule, truth, depth, right, other(right), least, runs), nightly
    )


def make_planted_test(table: Table, *, depth: int = 12, nightly: bool = False) -> Test:
    def check(rule: str, truth: Truth, right: str) -> None:
        claim = judge_rows(rule, truth(0), depth)
        assert claim.verdict == right, claim
        assert claim.answer.endswith(".")
        assert claim.estimate is not None

    return _make_test(table, check, nightly)


def make_rare_test(table: Table, *, depth: int = 12, nightly: bool = True) -> Test:
    return _make_test(
        table, lambda rule, truth, wrong: check_verdicts(rule, truth, depth, None, wrong.split("; ")), nightly
    )


def _make_test(table: Table, check: Callable[[str, Truth, str], None], nightly: bool) -> Test:
    cases = [
        pytest.param(partial(check, rule, world, verdict), id=f"{rule}-{verdict}-{number}")
        for rule, verdicts in table.items()
        for verdict, worlds in verdicts.items()
        for number, world in enumerate(worlds)
    ]

    @(pytest.mark.nightly if nightly else pytest.mark.simulated)
    @pytest.mark.parametrize("check", cases)
    def test(check: Callable[[], None]) -> None:
        check()

    return test
