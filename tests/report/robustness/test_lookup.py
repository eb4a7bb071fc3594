"""The report of a robustness run: rows looked up, what survives decided by intervals, tables, page and figures."""

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
from layerwise.report import ReportData, markdown, render
from layerwise.report.arms import ARMS, arm_slots, in_reading_order
from layerwise.report.figures.strip_plot import REACH, swarmed
from layerwise.report.quantity import ACCURACY, LOSS
from layerwise.report.robustness.findings import Cell, sentence, summary, survival
from layerwise.report.robustness.lookup import IN_ORDER, MEASURES, RANDOM_ORDER, RobustnessScores, depth_of
from layerwise.results.rows import Note, Score
from report import diagnosed, robust, synthetic
from report.page.test_render import read
from report.robust import row

CHAPTERS = ("robustness", "orders", "layers-kept", "nodes", "merging", "position", "inside", "training", "provenance")
MISSING = {
    ("robustness", "orders", "merging", "merges"): (
        "No arm was tested",
        "No order was tried",
        "No layers were left out",
        "No models were merged",
    ),
    ("merging", "merges"): ("No models were merged",),
    ("position",): ("No layer predicts its position",),
    ("nodes",): ("No node was lost",),
    ("branches", "attention", "contribution", "worth", "embedding"): ("Nothing was measured inside",),
    ("training",): ("No training is part of this run",),
}
EVERY_MISSING = {text for texts in MISSING.values() for text in texts}
SHUFFLED = {"layershuffle", "layershuffle-position", "layershuffle-predict", "layershuffle-layerdrop"}


@pytest.fixture(scope="module")
def data() -> ReportData:
    return robust.run(12)


@pytest.fixture(scope="module")
def found(data: ReportData) -> RobustnessScores:
    return RobustnessScores.of(data.scores)


@pytest.fixture(scope="module")
def html(data: ReportData) -> str:
    return render(data)


@pytest.fixture(scope="module")
def drawn(html: str) -> dict[str, Any]:
    return figures(html)


def figures(html: str) -> dict[str, Any]:
    return dict(json.loads(read(html).json)["figures"])


def chapters(html: str) -> list[str]:
    return [name for name in read(html).ids if name in CHAPTERS]


def looked_up(*rows: Score) -> RobustnessScores:
    return RobustnessScores.of(rows)


def cell(found: RobustnessScores, arm: str, group: str, name: str) -> Cell:
    matrix = survival(found)
    condition = next(condition for condition in matrix.conditions if (condition.group, condition.name) == (group, name))
    return matrix.cells[arm][condition]


# ---- rows looked up


def test_arms_seeds_and_depth_are_read_from_the_rows(found: RobustnessScores) -> None:
    assert found.arms == in_reading_order([*robust.IN_ORDER, "retrained"])
    assert found.seeds["layerdrop"] == robust.SEEDS
    assert found.depth == depth_of(robust.scores(12)) == 12
    assert found.measures == MEASURES
    assert found.examples == robust.IMAGES


def test_a_model_with_a_slash_in_its_name_is_an_arm_and_no_seed() -> None:
    found = looked_up(row("robustness", "google/vit-base", "sequential", "accuracy", 0.9))
    assert found.arms == ("google/vit-base",)
    assert not found.seeds["google/vit-base"]


def test_an_arm_is_looked_up_with_its_seeds(found: RobustnessScores) -> None:
    assert set(found.seeded("training", "train_loss", "layerdrop")) == {f"layerdrop/{seed}" for seed in robust.SEEDS}
    assert list(found.seeded("training", "train_loss", "retrained")) == ["retrained-3/0", "retrained-10/0"]
    assert found.lead("baseline", IN_ORDER) == found.score("robustness", "accuracy", "baseline", IN_ORDER)


def test_layers_kept_end_with_all_of_them_and_arms_without_a_rule_have_none(found: RobustnessScores) -> None:
    assert sorted(found.kept("baseline", "even", IN_ORDER)) == list(range(1, 13))
    assert sorted(found.kept("retrained", "even", IN_ORDER)) == list(range(1, 12))
    assert found.kept("retrained", "first", IN_ORDER) == {}
    whole = found.kept("layerdrop", "last", RANDOM_ORDER)[12]
    assert (whole.task, whole.subject) == (RANDOM_ORDER, "layerdrop")


def test_what_is_not_finite_was_not_measured_and_half_an_interval_is_none() -> None:
    found = looked_up(
        row("robustness", "a", "sequential", "accuracy", math.nan),
        replace(row("robustness", "b", "sequential", "accuracy", 0.5, 0.1), low=math.nan),
    )
    assert found.arms == ("b",)
    score = found.lead("b", IN_ORDER)
    assert score is not None
    assert (score.low, score.high) == (None, None)


def test_a_language_model_leads_with_nats_and_its_chance_is_a_uniform_guess_where_its_size_is_known() -> None:
    rows = robust.scores(8, language=True)
    found = RobustnessScores.of(rows)
    assert found.quantity is LOSS
    assert found.above.metric == "nll_above@baseline"
    assert found.chance is None
    sized = RobustnessScores.of([*rows, row("robustness", "model", "all", "classes", robust.VOCABULARY)])
    assert sized.chance == pytest.approx(math.log(robust.VOCABULARY))
    assert not found.arms_with("robustness", "accuracy_top5")
    assert RobustnessScores.of(robust.scores(8)).chance == robust.CHANCE


def test_a_sweep_and_a_diagnosis_have_no_arms() -> None:
    assert RobustnessScores.of(synthetic.run(6).scores).measures == ()
    assert RobustnessScores.of(diagnosed.scores(6)).arms == ()


@given(st.lists(st.text("abc-", min_size=1) | st.sampled_from(sorted(ARMS)), max_size=9))
def test_known_arms_keep_their_colours_whoever_else_is_there(arms: list[str]) -> None:
    slots = arm_slots(in_reading_order(arms))
    assert set(slots) == set(arms)
    assert all(slots[arm] == ARMS[arm].slot for arm in arms if arm in ARMS)
    assert not {slots[arm] for arm in slots if arm not in ARMS} & {arm.slot for arm in ARMS.values()}


# ---- what survives


def test_the_planted_truth_survives(found: RobustnessScores) -> None:
    for arm in robust.IN_ORDER:
        fate = cell(found, arm, "all layers", "random order").fate
        assert fate == ("survives" if arm in SHUFFLED else "lost")
    assert cell(found, "baseline", "several models", "merged").fate == "lost"
    assert cell(found, "layershuffle", "several models", "merged").fate == "survives"
    assert cell(found, "retrained", "6 of 12 layers", "in order").fate == "survives"
    assert cell(found, "layerdrop", "6 of 12 layers", "in order").fate == "in part"


def test_the_colour_is_the_share_of_the_way_from_chance_to_the_best_in_order(found: RobustnessScores) -> None:
    assert cell(found, "baseline", "all layers", "in order").share == 1.0
    share = (robust.RANDOM_ORDER["layershuffle"] - robust.CHANCE) / (robust.IN_ORDER["baseline"] - robust.CHANCE)
    assert cell(found, "layershuffle", "all layers", "random order").share == pytest.approx(share)
    assert cell(found, "baseline", "6 of 12 layers", "random order").at_chance
    assert not cell(found, "layerdrop", "all layers", "random order").at_chance


def one_condition(value: float, half: float, *, language: bool = False) -> Cell:
    metric, best = ("nll", 1.0) if language else ("accuracy", 0.9)
    chance = row("robustness", "model", "all", "classes" if language else "accuracy@chance", 1000 if language else 0.1)
    found = looked_up(
        row("robustness", "model", "all", "leads", 0.0 if language else 1.0),
        chance,
        row("robustness", "a", IN_ORDER, metric, best, 0.0),
        row("robustness", "b", RANDOM_ORDER, metric, value, half),
    )
    return cell(found, "b", "all layers", "random order")


def test_words_follow_the_ends_of_the_interval_and_not_its_middle() -> None:
    assert one_condition(0.8, 0.01).fate == "survives"
    assert one_condition(0.8, 0.15).fate == "in part"
    assert one_condition(0.2, 0.05).fate == "lost"
    assert one_condition(0.2, 0.15).fate == "in part"
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


def test_sentences_say_what_the_matrix_shows(found: RobustnessScores) -> None:
    matrix = survival(found)
    told = {arm: "".join(sentence(found, matrix, arm)) for arm in matrix.cells}
    assert told["baseline"].startswith("96.8 % in order, 12.4 % in random order. Does not survive random order, ")
    assert "Survives random order, merging and an ensemble in random order" in told["layershuffle"]
    assert "Against the baseline in random order: +79.7 [+" in told["layershuffle"]
    assert "baseline" not in told["baseline"]
    assert told["retrained"].startswith("Survives the loss of 6 layers; does not survive")
    assert summary(matrix).startswith("Random order is survived by layershuffle, ")
    assert summary(matrix).endswith("not survived by baseline, layerdrop and layerdrop-scratch.")


# ---- the page


def test_the_chapters_stand_in_order_and_every_element_is_closed(html: str) -> None:
    page = read(html)
    assert chapters(html) == list(CHAPTERS)
    assert page.open == []
    assert len(page.ids) == len(set(page.ids))
    assert not any(text in page.text for text in EVERY_MISSING)


def test_other_runs_have_no_chapter_of_a_robustness_run() -> None:
    assert chapters(render(synthetic.run(6))) == ["provenance"]
    assert chapters(render(diagnosed.diagnosis(6))) == ["provenance"]


def test_the_matrix_holds_every_arm_with_value_and_interval(html: str) -> None:
    table = html[html.index('<table class="survival"') :]
    table = table[: table.index("</table>")]
    rows = re.findall(r'<th scope="row"><i [^>]*></i>([^<]+)</th>(.*?)</tr>', table)
    assert [arm for arm, _ in rows] == [*in_reading_order([*robust.IN_ORDER, "retrained"])]
    assert all(cells.count("<td") == 6 for _, cells in rows)
    assert "<b>96.8</b><small>[94.6, 99.0]</small>" in dict(rows)["baseline"]
    assert dict(rows)["baseline"].count("at-chance") == 3
    assert dict(rows)["layershuffle"].count('"survives"') == 4
    assert dict(rows)["retrained"].count("unmeasured") == 4


def test_every_figure_has_its_slot_and_its_data(html: str, drawn: dict[str, Any]) -> None:
    assert set(re.findall(r'class="plot" data-figure="([^"]+)"', html)) == set(drawn)
    assert all(figure["leader"] in drawn and figure["variants"] for figure in drawn.values())
    for figure in drawn.values():
        assert figure["choices"] == drawn[figure["leader"]]["choices"]
        assert set(figure["variants"]) <= set(drawn[figure["leader"]]["variants"])


def texts(value: object) -> list[str]:
    """Every text that plotly would show from a figure, but for the keys by which the page finds a line."""
    if isinstance(value, dict):
        shown = (inner for key, inner in value.items() if key != "legendgroup")
        return [text for inner in shown for text in texts(inner)]
    if isinstance(value, list):
        return [text for inner in value for text in texts(inner)]
    return [value] if isinstance(value, str) else []


def trace(figure: dict[str, Any], name: str) -> dict[str, Any]:
    return next(found for found in figure["data"] if found.get("name") == name and "markers" in found.get("mode", ""))


def test_figures_show_the_rows(drawn: dict[str, Any], found: RobustnessScores) -> None:
    pair = drawn["robustness-orders"]["variants"][""]
    assert trace(pair, "in random order")["x"][0] == pytest.approx(100 * robust.RANDOM_ORDER["baseline"])
    assert any(shape["x0"] == pytest.approx(100 * robust.CHANCE) for shape in pair["layout"]["shapes"])
    kept = trace(drawn["kept-random"]["variants"]["0"], "layerdrop")
    assert kept["x"] == list(range(1, 13))
    assert kept["y"][5] == pytest.approx(100 * robust.accuracy("layerdrop", RANDOM_ORDER, 12, 6))
    assert drawn["kept-random"]["variants"]["0"]["layout"]["xaxis"]["range"][0] > 12
    names = [{line["name"] for line in drawn["kept-sequential"]["variants"][rule]["data"]} for rule in "01"]
    assert ["retrained" in drawn for drawn in names] == [True, False]
    grid = drawn["branches-mlp"]["variants"]["0"]["data"][0]
    assert grid["z"][3][7] == pytest.approx(found.pairs("branches", "mlp", "baseline")[3, 7].value)
    assert "layer 3 at position 7" in grid["text"][3][7]
    lost = drawn["nodes-random"]["variants"]["0.0"]  # the baseline, four nodes
    block = found.score("nodes", "accuracy_lost", "baseline", "4 blocks 2 random")
    assert block is not None
    assert trace(lost, "in blocks")["x"] == [1, 2, 3]
    assert trace(lost, "in blocks")["y"][1] == pytest.approx(100 * block.value)
    points = drawn["embedding"]["variants"]["1.0"]["data"][0]
    assert len(points["x"]) == 4 * 12 * 12
    assert points["text"][13] == "image 0, layer 1 at position 1"
    assert len(set(drawn["embedding"]["variants"]["1.1"]["data"][0]["marker"]["color"])) == 12


def test_every_draw_is_a_dot_and_the_median_a_tick(drawn: dict[str, Any], found: RobustnessScores) -> None:
    orders = drawn["robustness-fixed-orders"]["variants"][""]
    values = [100 * score.value for score in found.conditions("orders", "accuracy", "layerdrop/0").values()]
    assert sorted(trace(orders, "layerdrop")["x"]) == pytest.approx(sorted(values))
    ticks = trace(orders, "median of the draws")
    assert ticks["x"][found.arms_with("orders").index("layerdrop")] == pytest.approx(statistics.median(values))
    merged = drawn["merging-draws"]["variants"]["0"]
    assert len(trace(merged, "layershuffle")["x"]) == robust.DRAWS
    assert trace(merged, "the members in random order, mean")["x"][0] == pytest.approx(
        100 * robust.RANDOM_ORDER["baseline"]
    )


@given(st.lists(st.floats(0.0, 100.0), max_size=200))
@example([50.0] * 12)
def test_a_swarm_stays_in_its_row_and_hides_no_dot(values: list[float]) -> None:
    moved = swarmed(values, 1.0)
    assert all(abs(offset) <= REACH + 1e-9 for offset in moved)
    assert len({(round(value), offset) for value, offset in zip(values, moved, strict=True)}) == len(values)


def test_thin_lines_are_seeds_and_the_bold_one_their_mean(drawn: dict[str, Any], found: RobustnessScores) -> None:
    lines = [line for line in drawn["training"]["variants"]["1"]["data"] if line["legendgroup"] == "baseline"]
    assert [line["name"] for line in lines] == [*(f"baseline/{seed}" for seed in robust.SEEDS), "baseline"]
    assert lines[-1]["y"][0] == pytest.approx(statistics.fmean(line["y"][0] for line in lines[:-1]))
    assert lines[-1]["line"]["width"] > 2 * lines[0]["line"]["width"]
    refined = [
        line["name"] for line in drawn["training"]["variants"]["1"]["data"] if line["legendgroup"] == "retrained"
    ]
    assert refined == ["retrained-3/0", "retrained-10/0"]  # of models of different size there is no mean


def test_identity_draws_are_told_apart_and_the_published_table_is_named(html: str) -> None:
    text = read(html).text
    assert "Draws that changed nothing" in text
    assert "148" in text
    assert "LayerShuffle paper, ViT-B/16 on ImageNet" in text
    assert "62.77" in text
    assert "Does a baseline merged at its own depth survive too? Merged it scores 71.0 %" in text
    language = read(render(robust.run(8, language=True))).text
    assert "62.77" not in language
    assert "nats per token, lower is better" in language
    assert "top-5" not in language.split("Provenance")[-2]


@pytest.mark.parametrize("measures", MISSING)
def test_a_measure_that_was_not_taken_is_one_line_at_the_end(measures: tuple[str, ...]) -> None:
    html = render(robust.without(robust.run(8), *measures))
    assert len(chapters(html)) == len(CHAPTERS) - len(MISSING[measures])
    end = html[html.index('id="provenance"') :]
    assert all(text in end for text in MISSING[measures])
    assert {text for text in EVERY_MISSING if text in read(html).text} == set(MISSING[measures])


@pytest.mark.parametrize("measure", MEASURES)
def test_any_one_measure_alone_makes_a_page(measure: str) -> None:
    html = render(robust.only(robust.run(6), measure))
    page = read(html)
    assert 2 <= len(chapters(html)) < len(CHAPTERS)
    assert page.open == []
    assert all(figure["leader"] in figures(html) for figure in figures(html).values())


def test_after_training_alone_the_training_leads_and_the_others_say_how_to_get_them() -> None:
    html = render(robust.trained())
    assert chapters(html) == ["training", "provenance"]
    assert html.count("<code>layerwise robustness RUN</code>") == len(CHAPTERS) - 2
    assert "not complete" not in html


def test_the_masthead_counts_arms_seeds_and_images(html: str) -> None:
    header = html[html.index("<header>") : html.index("</header>")]
    tiles = {"layers": "12", "arms": "8", "seeds": "3", "images": "360"}
    assert re.findall(r"<dd>([^<]*)</dd><dt>([^<]*)</dt>", header) == [(value, name) for name, value in tiles.items()]
    assert "banner" not in header
    assert "<dt>documents</dt>" in render(robust.run(6, language=True))


def test_what_is_unfinished_is_named() -> None:
    data = robust.run(8)
    begun = tuple(score for score in data.scores if not (score.subject == "layerdrop/1" and score.metric == "steps"))
    text = read(render(robust.without(replace(data, scores=begun), "position", "merging"))).text
    assert "1 training (layerdrop/1) and 2 parts (position and merging) are not complete" in text
    done = tuple(Score("part", name, "all", "done", 1.0) for name in ("position", "merging"))
    finished = robust.without(data, "position", "merging")
    assert "not complete" not in read(render(replace(finished, scores=(*finished.scores, *done)))).text


def test_what_had_to_be_left_out_stands_in_its_chapter() -> None:
    data = replace(robust.run(6), notes=(Note("embedding", "Said of the layout."), Note("orders", "Said of orders.")))
    html = render(data)
    inside = html[html.index('id="inside"') : html.index('id="training"')]
    assert "Said of the layout." in inside
    assert "Said of orders." in html[html.index('id="orders"') : html.index('id="layers-kept"')]


def test_hostile_names_stay_text_and_wild_values_leave_the_page_whole() -> None:
    hostile = "<script>alert('a')</script>\"&|%{x}"
    rows = tuple(
        replace(
            score,
            subject=score.subject.replace("layerdrop", hostile),
            value=math.inf if number % 7 == 0 else score.value,
            low=math.nan if number % 5 == 0 else score.low,
        )
        for number, score in enumerate(robust.scores(6))
    )
    html = render(replace(robust.run(6), scores=rows))
    page = read(html)
    assert "<script>alert" not in html
    assert page.names.count("script") == 3
    assert page.open == []
    assert not any("<script" in text for text in texts(figures(html)))
    json.loads(page.json, parse_constant=lambda name: pytest.fail(name))
    markdown(replace(robust.run(6), scores=rows))


# ---- terminal and Markdown


@pytest.mark.parametrize("language", [False, True])
def test_the_terminal_gets_a_table_of_at_most_100_columns(language: bool) -> None:
    lines = run_summary(robust.run(12, language=language)).splitlines()
    assert max(map(len, lines)) <= 100
    assert len(lines) == 2 + len(robust.IN_ORDER)
    assert lines[1].split("  ")[0] == "arm"
    shuffled = next(line for line in lines if line.startswith("layershuffle "))
    pattern = r"−4\.\d\d \[−4\.\d\d, −4\.\d\d\]$" if language else r"\+79\.7 \[\+\d\d\.\d, \+\d\d\.\d\]$"
    assert re.search(pattern, shuffled)
    assert ("92.1 % [" in shuffled) is not language


def test_long_names_are_shortened_in_the_terminal_alone() -> None:
    name = "a-very-long-name-of-a-model-that-somebody-chose"
    rows = tuple(replace(score, subject=score.subject.replace("layerdrop", name)) for score in robust.scores(6))
    data = replace(robust.run(6), scores=rows)
    assert max(map(len, run_summary(data).splitlines())) <= 100
    assert name in markdown(data)


def test_the_terminal_of_a_training_says_how_to_go_on() -> None:
    lines = run_summary(robust.trained()).splitlines()
    assert lines[0].split() == ["arm", "seeds", "last", "step", "best", "validation", "loss"]
    assert lines[-1].endswith("layerwise robustness RUN")
    assert run_summary(synthetic.run(6)).startswith("- ")


def test_the_terminal_of_a_merge_tells_members_and_merged() -> None:
    lines = run_summary(robust.only(robust.run(6), "merging", "merges")).splitlines()
    assert max(map(len, lines)) <= 100
    assert any(line.startswith("baseline") and "merged own-depth" in line and "71.0 %" in line for line in lines)


def test_markdown_has_the_matrix_the_sentences_and_the_tables(data: ReportData) -> None:
    text = markdown(data)
    for title in ("Who survives what", "Order", "Layers kept, evenly spaced, in order", "Merging", "Training"):
        assert f"## {title}\n" in text
    assert "| layershuffle | 94.2 % [91.3, 97.1] | 92.1 % [88.8, 95.4] |" in text
    assert "- **layershuffle** 94.2 % in order" in text
    assert "No finding" not in text
    for block in re.findall(r"(?:^\|.*\n)+", text, re.MULTILINE):
        assert len({len(re.split(r"(?<!\\)\|", line)) for line in block.splitlines()}) == 1
    assert "## Training" in markdown(robust.trained())
    assert "## Who survives what" not in markdown(robust.trained())


def test_an_accuracy_is_told_in_percent_and_a_loss_in_nats() -> None:
    score = row("robustness", "a", IN_ORDER, "accuracy", 0.5, 0.1)
    assert ACCURACY.text(score) == "50.0 % [40.0, 60.0]"
    assert LOSS.text(score) == "0.50 [0.40, 0.60]"
    assert ACCURACY.text(None) == "–"
    assert ACCURACY.shown(score).high == pytest.approx(60.0)
