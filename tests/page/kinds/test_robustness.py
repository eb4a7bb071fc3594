"""Robustness verdicts follow intervals; golden/robustness-planted and robustness-language-planted freeze the texts."""

import json
import math
import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from layerwise.page import ReportData, markdown, render
from layerwise.page.derived.robustness import Cell, fates, fewest_layers, node_sentences, summary, survival
from layerwise.page.figures.palette import VARIANT_COLORS, assign_colors, sort_variants
from layerwise.results.rows import Score
from layerwise.runner.summary import summary as run_summary
from page.page.test_render import read
from page.planted import ROBUSTNESS, of, only, row, without

GUESS = row("robustness", "accuracy", 0.1, against="chance")


def cell(data: ReportData, variant: str, name: str) -> Cell:
    matrix = survival(data)
    return matrix.cells[variant][next(each for each in matrix.conditions if each.name == name)]


def one_condition(value: float, half: float, *, language: bool = False) -> Cell:
    metric, best = ("nll", 1.0) if language else ("accuracy", 0.9)
    run = of(
        row("robustness", "leads", 0.0 if language else 1.0),
        row("robustness", "classes", 1000) if language else GUESS,
        row("robustness", metric, best, 0.0, variant="a", order="sequential"),
        row("robustness", metric, value, half, variant="b", order="random"),
    )
    return cell(run, "b", "all layers, random order")


@pytest.mark.parametrize(
    ("value", "half", "language", "fate", "at_chance"),
    [
        (0.8, 0.01, False, "survives", False),
        (0.8, 0.099, False, "survives", False),
        (0.8, 0.101, False, "inconclusive", False),
        (0.5, 0.199, False, "in part", False),
        (0.5, 0.201, False, "inconclusive", False),
        (0.2, 0.099, False, "lost", False),
        (0.2, 0.101, False, "inconclusive", True),
        (0.12, 0.03, False, "lost", True),
        (1.05, 0.02, True, "survives", False),
        (5.0, 0.02, True, "lost", False),
        (6.9, 0.1, True, "lost", True),
    ],
)
def test_words_follow_the_ends_of_the_interval_and_of_a_loss_less_is_more(
    value: float, half: float, language: bool, fate: str, at_chance: bool
) -> None:
    found = one_condition(value, half, language=language)
    assert (found.fate, found.at_chance) == (fate, at_chance)


def test_the_color_is_the_share_of_the_way_from_chance_to_the_best_in_order() -> None:
    assert one_condition(0.5, 0.0).share == pytest.approx(0.5)
    assert one_condition(1.05, 0.0, language=True).share > one_condition(1.5, 0.0, language=True).share
    html = render(only(ROBUSTNESS, "robustness", "merging"))
    table = html[html.index('<table class="toned"') :].partition("</table>")[0]
    cells = dict(re.findall(r'<th scope="row">([^<]+)</th>(.*?)</tr>', table))
    assert f"--left:{(0.921 - 0.103) / (0.968 - 0.103):.3f}" in cells["layershuffle"]
    assert [cells["baseline"].count("at-chance"), cells["layerdrop"].count("at-chance")] == [4, 2]
    assert cells["layershuffle"].count('"number survives"') == 4
    assert cells["retrained"].count("unmeasured") == 4


@given(st.floats(0.0, 1.0), st.floats(0.0, 0.5), st.floats(0.0, 0.5))
def test_a_wider_interval_never_says_more(value: float, half: float, more: float) -> None:
    narrow, wide = one_condition(value, half), one_condition(value, half + more)
    assert wide.fate in (narrow.fate, "inconclusive")
    assert wide.share == narrow.share
    assert narrow.at_chance <= wide.at_chance


@pytest.mark.parametrize(("value", "low"), [(math.nan, 0.1), (0.5, math.nan), (0.5, None)])
def test_what_is_not_finite_or_has_half_an_interval_decides_nothing(value: float, low: float | None) -> None:
    score = replace(row("robustness", "accuracy", 0.5, 0.1, variant="a", order="random"), value=value, low=low)
    assert not survival(of(score)).cells


def variant(name: str, in_order: tuple[float, float], shuffled: tuple[float, float]) -> list[Score]:
    """A variant by its value and half of its interval in order and in random order."""
    orders = (("sequential", in_order), ("random", shuffled))
    return [row("robustness", "accuracy", *at, variant=name, order=order) for order, at in orders]


GUESSES, LEARNED = (0.11, 0.05), (0.9, 0.05)


@pytest.mark.parametrize(
    ("variants", "said"),
    [
        (
            {"a": (GUESSES, GUESSES)},
            "No variant is distinguishable from chance even in order, so random",
        ),
        ({"a": (LEARNED, GUESSES)}, "Random order is not survived by a."),
        ({"a": (LEARNED, (0.23, 0.23))}, "Inconclusive: no variant is distinguishable from chance in random order."),
        ({"a": (LEARNED, (0.4, 0.2))}, "It is inconclusive which variants survive random order"),
        (
            {
                "a": (LEARNED, (0.23, 0.23)),
                "b": (LEARNED, LEARNED),
                "c": (LEARNED, (0.5, 0.1)),
                "d": (GUESSES, GUESSES),
            },
            "Random order is survived by b; survived in part by c; inconclusive for a and d.",
        ),
        ({"a": (GUESSES, LEARNED), "b": (LEARNED, GUESSES)}, "Random order is survived by a; not survived by b."),
    ],
)
def test_every_word_of_the_answer_is_shown_by_an_interval(
    variants: dict[str, tuple[tuple[float, float], tuple[float, float]]], said: str
) -> None:
    scores = (each for name, values in variants.items() for each in variant(name, *values))
    assert summary(of(GUESS, *scores)).startswith(said)


def test_variants_that_were_trained_less_are_named_first_and_a_curve_of_one_point_is_a_point() -> None:
    trained = [
        row("training", "epochs", each, variant=variant, seed=0) for variant, each in (("baseline", 1.0), ("a", 20.0))
    ]
    losses = [
        row("training", "validation_loss", 0.5, variant=variant, seed=0, step=step)
        for variant, steps in (("baseline", (17,)), ("a", (17, 34)))
        for step in steps
    ]
    scores = [GUESS, *variant("baseline", LEARNED, GUESSES), *variant("a", LEARNED, LEARNED)]
    data = of(*scores, *trained, *losses)
    assert next(fates(data)) == "The variants were trained for different numbers of epochs: baseline 1 and a 20."
    assert next(fates(of(*scores, *trained[:1]))).startswith("baseline: 90.0 %")
    (figure,) = json.loads(read(render(data)).json)["figures"]["training"]["variants"].values()
    traces = figure["data"]
    assert {len(each["x"]): each["mode"] for each in traces if each.get("x")} == {1: "markers", 2: "lines"}


def test_the_plan_to_copy_is_that_of_the_fewest_layers_that_survive() -> None:
    values = {
        ("a", "first", 3): 0.9,
        ("a", "last", 2): 0.9,
        ("b", "even", 3): 0.9,
        ("b", "even", 2): 0.75,
        ("a", "random", 1): 0.9,
        ("retrained", "even", 1): 0.9,
    }
    shared = {"order": "sequential"}
    rows = [row("robustness", "accuracy", 0.9, 0.05, variant="a", **shared)]
    rows += [
        row("robustness", "accuracy", value, 0.05, variant=variant, strategy=rule, kept=count, **shared)
        for (variant, rule, count), value in values.items()
    ]
    found = fewest_layers(replace(of(GUESS, *rows), manifest={"depth": 4}))
    assert (found[0], str(found[1])) == ("a", "2 3")
    assert fewest_layers(only(ROBUSTNESS, "training")) is None


@pytest.mark.parametrize(
    ("low", "high", "words"),
    [
        (-0.019, 0.019, "as much as"),
        (-0.021, 0.019, "more or less than"),
        (-0.019, 0.021, "more or less than"),
        (0.001, 0.021, "more than"),
        (-0.021, -0.001, "less than"),
    ],
)
def test_the_loss_of_nodes_is_judged_by_its_intervals(low: float, high: float, words: str) -> None:
    lost: dict[str, object] = {"variant": "a", "layout": "blocks", "nodes": 4, "failed": 1, "order": "random"}
    compared = row("nodes", "accuracy_lost_above", (low + high) / 2, (high - low) / 2, **lost, against="scattered")
    (said,) = node_sentences(of(row("nodes", "accuracy_lost", 0.1, 0.02, **lost), compared))
    assert f" block costs {words} the same number of random layers" in said


def test_orders_of_several_seeds_are_dots_of_their_own() -> None:
    own = ROBUSTNESS.rows.where(measure="orders", variant="layerdrop")
    html = render(of(*own, *(replace(each, seed=1) for each in own)))
    dots, _ = (
        trace
        for trace in json.loads(read(html).json)["figures"]["robustness-fixed-orders"]["variants"][""]["data"]
        if trace.get("name") == "layerdrop" and "markers" in trace.get("mode", "")
    )
    assert len(dots["x"]) == 2 * len(own.where(metric="accuracy"))


def test_after_training_alone_the_terminal_says_how_to_go_on_and_what_is_unfinished_is_named() -> None:
    trained = only(ROBUSTNESS, "training")
    html = render(trained)
    assert 'id="training"' in html
    assert 'id="robustness"' not in html
    assert "not complete" not in html
    assert "| retrained | 2 | 400 |" in markdown(trained)
    lines = run_summary(trained).splitlines()
    assert lines[0].split() == ["variant", "seeds", "last", "step", "best", "validation", "loss"]
    assert lines[-1].endswith("layerwise robustness RUN")
    assert lines[-2].startswith("baseline has the smallest validation loss of any seed: 0.1")
    begun = tuple(
        each for each in ROBUSTNESS.scores if (each.variant, each.seed, each.metric) != ("layerdrop", 1, "steps")
    )
    text = read(render(without(replace(ROBUSTNESS, scores=begun), "position", "merging"))).text
    assert "1 training run (layerdrop/1) and 2 parts (position and merging) are incomplete" in text


@given(st.lists(st.text("abc-", min_size=1) | st.sampled_from(sorted(VARIANT_COLORS)), max_size=9))
def test_known_variants_keep_their_colors_whoever_else_is_there(variants: list[str]) -> None:
    slots = assign_colors(sort_variants(variants))
    assert set(slots) == set(variants)
    assert all(slots[variant] == VARIANT_COLORS[variant] for variant in variants if variant in VARIANT_COLORS)
    assert not {slots[variant] for variant in slots if variant not in VARIANT_COLORS} & set(VARIANT_COLORS.values())
