"""A robustness run: what survives is decided by intervals; the numbers of its figures, tables and sentences."""

from __future__ import annotations

import json
import math
import re
import statistics
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from layerwise.experiments.summary import summary as run_summary
from layerwise.report import ReportData, render
from layerwise.report.arms import ARMS, arm_slots, in_reading_order
from layerwise.report.derived.robustness import (
    LOSS,
    Cell,
    above,
    chance,
    fates,
    fewest_layers,
    kept,
    node_sentences,
    quantity,
    summary,
    survival,
)  # fmt: skip
from layerwise.report.marks.dots import REACH, swarmed
from layerwise.results.rows import Note, Score
from report import robust
from report.page.test_render import read
from report.robust import row

SECTIONS = ("robustness", "orders", "layers-kept", "nodes", "merging", "position", "inside", "training", "provenance")
SHUFFLED = {"layershuffle", "layershuffle-position", "layershuffle-predict", "layershuffle-layerdrop"}


@pytest.fixture(scope="module")
def data() -> ReportData:
    return robust.run(12)


@pytest.fixture(scope="module")
def html(data: ReportData) -> str:
    return render(data)


@pytest.fixture(scope="module")
def drawn(html: str) -> dict[str, Any]:
    return figures(html)


def figures(html: str) -> dict[str, Any]:
    return dict(json.loads(read(html).json)["figures"])


def sections(html: str) -> list[str]:
    return [name for name in read(html).ids if name in SECTIONS]


def of(*rows: Score) -> ReportData:
    return ReportData({}, (), rows)


def cell(data: ReportData, arm: str, name: str) -> Cell:
    matrix = survival(data)
    return matrix.cells[arm][next(each for each in matrix.conditions if each.name == name)]


# ---- what survives


def test_the_planted_truth_survives(data: ReportData) -> None:
    for arm in robust.IN_ORDER:
        assert cell(data, arm, "all layers, random order").fate == ("survives" if arm in SHUFFLED else "lost")
    assert cell(data, "baseline", "several models, merged").fate == "lost"
    assert cell(data, "layershuffle", "several models, merged").fate == "survives"
    assert cell(data, "retrained", "6 of 12 layers, in order").fate == "survives"
    assert cell(data, "layerdrop", "6 of 12 layers, in order").fate == "in part"
    assert tuple(survival(data).cells) == in_reading_order([*robust.IN_ORDER, "retrained"])


def test_the_colour_is_the_share_of_the_way_from_chance_to_the_best_in_order(data: ReportData, html: str) -> None:
    assert cell(data, "baseline", "all layers, in order").share == 1.0
    share = (robust.RANDOM_ORDER["layershuffle"] - robust.CHANCE) / (robust.IN_ORDER["baseline"] - robust.CHANCE)
    assert cell(data, "layershuffle", "all layers, random order").share == pytest.approx(share)
    assert cell(data, "baseline", "6 of 12 layers, random order").at_chance
    assert not cell(data, "layerdrop", "all layers, random order").at_chance
    table = html[html.index('<table class="toned"') :].partition("</table>")[0]
    cells = dict(re.findall(r'<th scope="row">([^<]+)</th>(.*?)</tr>', table))
    assert f"--left:{share:.3f}" in cells["layershuffle"]
    assert cells["baseline"].count("at-chance") == 3
    assert cells["layershuffle"].count('"number survives"') == 4
    assert cells["retrained"].count("unmeasured") == 4


def one_condition(value: float, half: float, *, language: bool = False) -> Cell:
    metric, best = ("nll", 1.0) if language else ("accuracy", 0.9)
    null = row("robustness", "classes", 1000) if language else row("robustness", "accuracy", 0.1, against="chance")
    run = of(
        row("robustness", "leads", 0.0 if language else 1.0), null,
        row("robustness", metric, best, 0.0, arm="a", condition="sequential"),
        row("robustness", metric, value, half, arm="b", condition="random"),
    )  # fmt: skip
    return cell(run, "b", "all layers, random order")


def test_words_follow_the_ends_of_the_interval_and_not_its_middle() -> None:
    assert one_condition(0.8, 0.01).fate == "survives"
    assert one_condition(0.8, 0.15).fate == one_condition(0.2, 0.15).fate == "in part"
    assert one_condition(0.2, 0.05).fate == "lost"
    assert one_condition(0.12, 0.03).at_chance
    assert not one_condition(0.2, 0.05).at_chance


def test_of_a_loss_less_is_more() -> None:
    assert one_condition(1.05, 0.02, language=True).fate == "survives"
    assert one_condition(5.0, 0.02, language=True).fate == "lost"
    assert one_condition(6.9, 0.1, language=True).at_chance
    assert one_condition(1.05, 0.0, language=True).share > one_condition(1.5, 0.0, language=True).share


@given(st.floats(0.0, 1.0), st.floats(0.0, 0.5), st.floats(0.0, 0.5))
def test_a_wider_interval_never_says_more(value: float, half: float, more: float) -> None:
    narrow, wide = one_condition(value, half), one_condition(value, half + more)
    assert wide.fate in (narrow.fate, "in part")
    assert wide.share == narrow.share
    assert narrow.at_chance <= wide.at_chance


def test_what_is_not_finite_or_has_half_an_interval_decides_nothing() -> None:
    whole = {"arm": "a", "condition": "random"}
    for value, low in ((math.nan, 0.1), (0.5, math.nan)):
        score = replace(row("robustness", "accuracy", 0.5, 0.1, **whole), value=value, low=low)
        assert not survival(of(score)).cells


def test_sentences_say_what_the_matrix_shows(data: ReportData) -> None:
    said = dict(sentence.split(": ", 1) for sentence in fates(data))
    assert said["baseline"].startswith("96.8 % in order, 12.4 % in random order. Does not survive random order, ")
    assert "Survives random order, merging and an ensemble in random order" in said["layershuffle"]
    assert "Against the baseline in random order: +79.7 [+" in said["layershuffle"]
    assert "baseline" not in said["baseline"]
    assert said["retrained"].startswith("Survives the loss of 6 layers; does not survive")
    assert summary(data).startswith("Random order is survived by layershuffle, ")
    assert summary(data).endswith("not survived by baseline, layerdrop and layerdrop-scratch.")
    merged = robust.only(data, "merging", "merges")
    assert "Merged from any layers layershuffle has 89.1 % [87.9, 90.3], its members" in summary(merged)


def test_arms_that_learned_nothing_are_said_to_have_learned_nothing() -> None:
    guesses = {
        condition: row("robustness", "accuracy", 0.11, 0.05, arm="a", condition=condition)
        for condition in ("sequential", "random")
    }
    null = row("robustness", "accuracy", 0.1, against="chance")
    assert summary(of(null, *guesses.values())).startswith("No arm is distinguishable from chance even in order. ")
    better = replace(guesses["sequential"], value=0.9, low=0.85, high=0.95)
    assert summary(of(null, better, guesses["random"])) == "Random order is not survived by a."


def test_a_language_model_leads_with_nats_and_its_chance_is_a_uniform_guess_where_its_size_is_known() -> None:
    run = robust.run(8, language=True)
    assert quantity(run) is LOSS
    assert above(run)[0] == "nll_above"
    assert chance(run) is None
    sized = (*(r for r in run.scores if r.metric != "classes"), row("robustness", "classes", robust.VOCABULARY))
    assert chance(replace(run, scores=sized)) == pytest.approx(math.log(robust.VOCABULARY))
    assert chance(robust.run(8)) == robust.CHANCE


def test_layers_kept_end_with_all_of_them_and_arms_without_a_rule_have_none(data: ReportData) -> None:
    rows = list(kept(data, "sequential"))
    counts = {
        (arm, rule): sorted(r.amount for r in rows if (r.arm, r.part) == (arm, rule) and r.amount is not None)
        for arm, rule in (("baseline", "even"), ("retrained", "even"), ("retrained", "first"))
    }
    assert counts == {
        ("baseline", "even"): list(range(1, 13)), ("retrained", "even"): list(range(1, 12)), ("retrained", "first"): [],
    }  # fmt: skip


def test_the_plan_to_copy_is_that_of_the_fewest_layers_that_survive(data: ReportData) -> None:
    found = fewest_layers(data)
    assert found is not None
    arm, plan = found
    assert arm == "layershuffle-layerdrop"
    surviving = [
        r.amount for r in kept(data, "sequential")
        if r.part != "random" and r.arm != "retrained"
        and ((r.low or 0) - robust.CHANCE) / (robust.IN_ORDER["baseline"] - robust.CHANCE) >= 0.75
    ]  # fmt: skip
    assert len(plan.order()) == min(count for count in surviving if count is not None)
    assert f'--plan "{plan}"' in run_summary(data)
    assert fewest_layers(robust.only(data, "training")) is None


# ---- nodes


def test_the_loss_of_nodes_is_judged_by_its_intervals(data: ReportData) -> None:
    said = {sentence.split(":")[0]: sentence for sentence in node_sentences(data)}
    assert "One of 4 nodes lost in random order costs 6.0 [4.0, 8.0] points in blocks and 4.8" in said["baseline"]
    assert "The layers of a block cost more together than one by one." in said["baseline"]
    assert "Round robin costs as much as blocks" not in said["baseline"]


def test_rows_of_an_unknown_layout_draw_nothing_and_the_section_says_so() -> None:
    lost = row("nodes", "accuracy_lost", 0.1, 0.02, arm="a", part="rings", other=4, amount=1.0, condition="random")
    data = robust.without(robust.run(6), "nodes")
    assert "No node was lost in this run" in render(replace(data, scores=(*data.scores, lost)))


# ---- figures and tables


def trace(figure: dict[str, Any], name: str) -> dict[str, Any]:
    return next(found for found in figure["data"] if found.get("name") == name and "markers" in found.get("mode", ""))


def test_orders_of_several_seeds_are_dots_of_their_own(data: ReportData) -> None:
    again = tuple(replace(r, seed=1) for r in data.rows.where(measure="orders", arm="layerdrop"))
    both = figures(render(replace(data, scores=(*data.scores, *again))))["robustness-fixed-orders"]["variants"][""]
    assert len(trace(both, "layerdrop")["x"]) == 2 * robust.ORDERS


@given(st.lists(st.floats(0.0, 100.0), max_size=200))
@example([50.0] * 12)
def test_a_swarm_stays_in_its_row_and_hides_no_dot(values: list[float]) -> None:
    moved = swarmed(values, 1.0)
    assert all(abs(offset) <= REACH + 1e-9 for offset in moved)
    assert len({(round(value), offset) for value, offset in zip(values, moved, strict=True)}) == len(values)


def test_thin_lines_are_seeds_and_the_bold_one_their_mean(drawn: dict[str, Any]) -> None:
    lines = drawn["training"]["variants"]["1"]["data"]
    own = [line for line in lines if line["legendgroup"] == "baseline"]
    assert [line["name"] for line in own] == [*(f"baseline/{seed}" for seed in robust.SEEDS), "baseline"]
    assert own[-1]["y"][0] == pytest.approx(statistics.fmean(line["y"][0] for line in own[:-1]))
    assert own[-1]["line"]["width"] > 2 * own[0]["line"]["width"]
    refined = [line["name"] for line in lines if line["legendgroup"] == "retrained"]
    assert refined == ["retrained, 3 layers/0", "retrained, 10 layers/0"]  # of models of different size is no mean


# ---- the page, the terminal, Markdown


def test_after_training_alone_the_terminal_says_how_to_go_on() -> None:
    html = render(robust.trained())
    assert sections(html) == ["training", "provenance"]
    assert "not complete" not in html
    lines = run_summary(robust.trained()).splitlines()
    assert lines[0].split() == ["arm", "seeds", "last", "step", "best", "validation", "loss"]
    assert lines[-1].endswith("layerwise robustness RUN")
    assert lines[-2].startswith("The least validation loss of any seed is that of baseline: 0.1")


def test_what_is_unfinished_is_named() -> None:
    data = robust.run(8)
    begun = tuple(r for r in data.scores if (r.arm, r.seed, r.metric) != ("layerdrop", 1, "steps"))
    text = read(render(robust.without(replace(data, scores=begun), "position", "merging"))).text
    assert "1 training (layerdrop/1) and 2 parts (position and merging) are not complete" in text


def test_what_had_to_be_left_out_stands_in_its_section() -> None:
    data = replace(robust.run(6), notes=(Note("embedding", "Said of the layout."), Note("orders", "Said of orders.")))
    html = render(data)
    assert "Said of the layout." in html[html.index('id="inside"') : html.index('id="training"')]
    assert "Said of orders." in html[html.index('id="orders"') : html.index('id="layers-kept"')]


@pytest.mark.parametrize("language", [False, True])
def test_the_terminal_gets_a_table_of_at_most_100_columns_and_the_answer(language: bool) -> None:
    data = robust.run(12, language=language)
    lines = run_summary(data).splitlines()
    table = lines[: 2 + len(robust.IN_ORDER)]
    assert max(map(len, table)) <= 100
    assert table[1].split("  ")[0] == "arm"
    shuffled = next(line for line in table if line.startswith("layershuffle "))
    pattern = r"−4\.\d\d \[−4\.\d\d, −4\.\d\d\]$" if language else r"\+79\.7 \[\+\d\d\.\d, \+\d\d\.\d\]$"
    assert re.search(pattern, shuffled)
    assert lines[len(table)] == summary(data)


@given(st.lists(st.text("abc-", min_size=1) | st.sampled_from(sorted(ARMS)), max_size=9))
def test_known_arms_keep_their_colours_whoever_else_is_there(arms: list[str]) -> None:
    slots = arm_slots(in_reading_order(arms))
    assert set(slots) == set(arms)
    assert all(slots[arm] == ARMS[arm] for arm in arms if arm in ARMS)
    assert not {slots[arm] for arm in slots if arm not in ARMS} & set(ARMS.values())
