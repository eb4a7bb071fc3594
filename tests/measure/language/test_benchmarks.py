"""Benchmarks from local files: a plan in place scores what a model rebuilt in that order scores."""

import copy
import json
import os
import random
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from layerwise.errors import MeasureError
from layerwise.measure.language.benchmarks import CHANCE, Benchmarks, chance_of, find_benchmarks, normalised
from layerwise.plan import Plan
from layerwise.results.rows import Score
from layerwise.stack import Stack, load
from measure.language.local_tasks import asked, write_task
from tier import first_fast
from tiny_tokenizers import character_tokenizer

DEPTH = 4
PLANS = [Plan.parse(text) for text in ("0-3", "3-0", "0 2 3", "0 1*2 2 3")]
CHOICE = """
doc_to_text: "{{question}}"
num_fewshot: 2
doc_to_target: "{{gold}}"
doc_to_choice: "{{choices}}"
metric_list:
  - {metric: acc, aggregation: mean, higher_is_better: true}
  - {metric: acc_norm, aggregation: mean, higher_is_better: true}
"""
WRITING = """
doc_to_text: "{{question}}"
num_fewshot: 0
doc_to_target: "{{answer}}"
generation_kwargs: {until: ["z"], max_gen_toks: 5, do_sample: false}
metric_list:
  - {metric: exact_match, aggregation: mean, higher_is_better: true}
filter_list:
  - {name: first, filter: [{function: regex, regex_pattern: "(.)"}, {function: take_first}]}
"""
LAST_WORD = """
doc_to_text: "{{question}}"
num_fewshot: 0
doc_to_target: "{{answer}}"
metric_list:
  - {metric: perplexity, aggregation: perplexity, higher_is_better: false}
  - {metric: acc, aggregation: mean, higher_is_better: true}
"""


@pytest.fixture(scope="module")
def tokenizer() -> PreTrainedTokenizerFast:
    return character_tokenizer()


@pytest.fixture(scope="module")
def stack(tokenizer: PreTrainedTokenizerFast) -> Stack:
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=DEPTH,
        num_attention_heads=4,
        max_position_embeddings=256,
        initializer_range=0.3,
        bos_token_id=1,
        eos_token_id=2,
    )
    return load(LlamaForCausalLM(config).eval(), tokenizer=tokenizer)


@pytest.fixture(scope="module")
def first_letters(stack: Stack, tokenizer: PreTrainedTokenizerFast) -> list[str]:
    with torch.no_grad():
        ids = [tokenizer(f"{number}+1=", return_tensors="pt")["input_ids"] for number in range(12)]
        return [tokenizer.decode(int(stack.model(each).logits[0, -1].argmax())) for each in ids]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, first_letters: list[str]) -> Path:
    pytest.importorskip("lm_eval", reason="needs layerwise[eval]")
    folder = tmp_path_factory.mktemp("tasks")
    draw = random.Random(1)
    with (folder / "questions.jsonl").open("w") as file:
        for number, letter in enumerate(first_letters):
            choices = ["".join(draw.choices("abcdefgh", k=draw.randint(1, 4))) for _ in range(3)]
            answer = letter if number % 2 else "no"
            row = {"question": f"{number}+1=", "choices": choices, "gold": number % 3, "answer": answer}
            file.write(json.dumps(row) + "\n")
    write_task(folder, "tiny_choice", "multiple_choice", CHOICE)
    write_task(folder, "tiny_writing", "generate_until", WRITING)
    write_task(folder, "tiny_last_word", "loglikelihood", LAST_WORD)
    return folder


@pytest.fixture(scope="module")
def benchmarks(folder: Path) -> Benchmarks:
    return find_benchmarks(["tiny_choice", "tiny_writing", "tiny_last_word"], folder)


@pytest.fixture(scope="module")
def scores(stack: Stack, benchmarks: Benchmarks) -> list[Score]:
    return asked(stack, PLANS, benchmarks)


def values(scores: list[Score], plan: Plan) -> dict[tuple[str, str], float]:
    return {(score.task, score.metric): score.value for score in scores if score.plan == str(plan)}


def built(stack: Stack, plan: Plan) -> LlamaForCausalLM:
    config = copy.deepcopy(stack.model.config)
    config.num_hidden_layers = len(plan.order())
    model = LlamaForCausalLM(config).eval()
    model.load_state_dict(
        {key: value for key, value in stack.model.state_dict().items() if ".layers." not in key}, strict=False
    )
    model.model.layers = nn.ModuleList(copy.deepcopy(stack.model.model.layers[layer]) for layer in plan.order())
    for index, layer in enumerate(model.model.layers):
        layer.self_attn.layer_idx = index
    return model


@pytest.mark.parametrize("plan", first_fast(PLANS), ids=str)
def test_a_plan_in_place_scores_as_the_model_built_in_that_order(
    stack: Stack, folder: Path, scores: list[Score], plan: Plan
) -> None:
    import lm_eval
    from lm_eval.models.huggingface import HFLM
    from lm_eval.tasks import TaskManager

    names = ["tiny_choice", "tiny_writing", "tiny_last_word"]
    asker = HFLM(pretrained=built(stack, plan), tokenizer=copy.deepcopy(stack.tokenizer), batch_size=8)
    expected = lm_eval.simple_evaluate(
        asker,
        tasks=names,
        task_manager=TaskManager(include_path=str(folder), include_defaults=False),
        fewshot_random_seed=0,
        bootstrap_iters=0,
    )["results"]
    found = values(scores, plan)
    assert len(found) == 5
    assert found["tiny_choice", "acc"] == expected["tiny_choice"]["acc,none"]
    assert found["tiny_choice", "acc_norm"] == expected["tiny_choice"]["acc_norm,none"]
    assert found["tiny_writing", "exact_match/first"] == expected["tiny_writing"]["exact_match,first"]
    assert found["tiny_last_word", "acc"] == expected["tiny_last_word"]["acc,none"]
    assert found["tiny_last_word", "perplexity"] == pytest.approx(
        expected["tiny_last_word"]["perplexity,none"], rel=1e-4
    )


def test_data_files_are_found_next_to_their_task_file(folder: Path) -> None:
    write_task(folder, "tiny_near", "loglikelihood", LAST_WORD, questions=Path("questions.jsonl"))
    assert find_benchmarks(["tiny_near"], folder).names == ("tiny_near",)


def test_the_plans_really_differ(scores: list[Score]) -> None:
    perplexities = {values(scores, plan)["tiny_last_word", "perplexity"] for plan in PLANS}
    assert len(perplexities) == len(PLANS)
    written = [values(scores, plan)["tiny_writing", "exact_match/first"] for plan in PLANS[:2]]
    assert written[0] > written[1]


def test_rows_carry_the_standard_error_and_the_questions(scores: list[Score]) -> None:
    (row,) = [score for score in scores if score.plan == "0-3" and score.metric == "exact_match/first"]
    assert (row.measure, row.task, row.documents) == ("benchmark", "tiny_writing", 12)
    assert 0 < row.value < 1
    error = (row.value * (1 - row.value) / 11) ** 0.5  # of a mean of 12 questions
    assert (row.low, row.high) == (pytest.approx(row.value - 1.96 * error), pytest.approx(row.value + 1.96 * error))
    assert all(score.low is not None for score in scores)


def test_asking_twice_gives_the_same_answers(stack: Stack, benchmarks: Benchmarks, scores: list[Score]) -> None:
    assert asked(stack, PLANS[1:2], benchmarks) == [score for score in scores if score.plan == str(PLANS[1])]


CHANCE_UTILS = """
import random
import numpy
import torch

def choices(doc):
    return [f"{random.random():.6f}", f"{numpy.random.random():.6f}", f"{torch.rand(1).item():.6f}"]

def shuffled(dataset):
    return dataset.select(random.sample(range(len(dataset)), len(dataset)))
"""


def test_what_a_task_draws_is_fixed_by_the_seed_and_the_caller_s_chance_is_left_alone(
    stack: Stack, folder: Path, tmp_path: Path
) -> None:
    """The task draws from the generators of Python, numpy and torch, and shuffles its questions."""
    (tmp_path / "chance_utils.py").write_text(CHANCE_UTILS)
    drawn = CHOICE.replace("num_fewshot: 2", "num_fewshot: 0").replace(
        'doc_to_choice: "{{choices}}"', "doc_to_choice: !function chance_utils.choices"
    )
    rest = drawn + "process_docs: !function chance_utils.shuffled"
    write_task(tmp_path, "drawn", "multiple_choice", rest, folder / "questions.jsonl")

    def seen(seed: int, luck: int) -> list[list[int]]:
        random.seed(luck)
        np.random.seed(luck)
        torch.manual_seed(luck)
        before = (random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state().tolist())
        found: list[list[int]] = []
        handle = stack.model.register_forward_pre_hook(
            lambda model, args, kwargs: found.extend((args[0] if args else kwargs["input_ids"]).tolist()),
            with_kwargs=True,
        )
        try:
            asked(stack, PLANS[:1], ["drawn"], folder=tmp_path, seed=seed)
        finally:
            handle.remove()
        after = (random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state().tolist())
        assert [one == other for one, other in zip(before, after, strict=True)] == [True] * 3
        return found

    first = seen(0, luck=1)
    assert seen(0, luck=2) == first
    assert seen(1, luck=1) != first


def test_a_limit_asks_fewer_questions(stack: Stack, folder: Path) -> None:
    (row,) = asked(stack, PLANS[:1], ["tiny_writing"], limit=4, folder=folder)
    assert row.documents == 4


def test_nothing_of_the_caller_is_changed(
    stack: Stack, benchmarks: Benchmarks, capsys: pytest.CaptureFixture[str]
) -> None:
    stack.tokenizer.pad_token = None
    stack.model.train()
    torch.manual_seed(5)
    before = torch.get_rng_state()
    asked(stack, PLANS[:1], benchmarks, limit=2)
    assert torch.equal(torch.get_rng_state(), before)
    assert stack.tokenizer.pad_token is None
    assert stack.model.training
    assert not stack.model._forward_hooks
    assert "DISABLE_MULTIPROC" not in os.environ
    assert capsys.readouterr().out == ""
    stack.model.eval()
    stack.tokenizer.pad_token = "</s>"


def test_broken_logits_name_the_plan(stack: Stack, folder: Path) -> None:
    damaged, written = load(copy.deepcopy(stack.model), tokenizer=stack.tokenizer), ["tiny_writing"]
    with torch.no_grad():
        damaged.model.model.layers[2].mlp.down_proj.weight[0, 0] = float("nan")
    assert asked(damaged, [Plan.parse("0 1 3")], written, limit=2, folder=folder)
    with pytest.raises(MeasureError, match=r"plan 0-3 gives logits that are not finite"):
        asked(damaged, [Plan.parse("0-3")], written, limit=2, folder=folder)


def test_a_missing_extra_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "lm_eval", None)
    monkeypatch.setitem(sys.modules, "lm_eval.tasks", None)
    with pytest.raises(MeasureError, match=r"pip install 'layerwise\[eval\]'"):
        find_benchmarks(["hellaswag"])


def test_a_missing_folder_and_no_names_are_refused(tmp_path: Path) -> None:
    with pytest.raises(MeasureError, match="no folder"):
        find_benchmarks(["hellaswag"], tmp_path / "nowhere")
    with pytest.raises(MeasureError, match="no benchmark was named"):
        find_benchmarks([])


def test_data_that_cannot_be_loaded_points_to_the_folder_option(tmp_path: Path) -> None:
    pytest.importorskip("lm_eval", reason="needs layerwise[eval]")
    write_task(tmp_path, "far", "multiple_choice", CHOICE)
    with pytest.raises(MeasureError, match=r"data of far could not be loaded .* --task-folder"):
        find_benchmarks(["far"], tmp_path)


@pytest.mark.parametrize("names", [list(CHANCE), ["arc_easy"], ["mmlu_astronomy", "piqa"]])
def test_benchmarks_are_found_where_lm_eval_keeps_them_and_nothing_else_is_indexed(names: list[str]) -> None:
    pytest.importorskip("lm_eval", reason="needs layerwise[eval]")
    import layerwise.measure.language.benchmarks as room

    indexed = set(room._manager(names, None).task_index)
    assert indexed >= set(names)
    assert len(indexed) < 1_000  # of more than ten thousand


@pytest.mark.slow
def test_an_unknown_benchmark_gets_near_matches(folder: Path) -> None:
    with pytest.raises(MeasureError, match=r"unknown benchmark 'helaswag'; did you mean hellaswag"):
        find_benchmarks(["tiny_choice", "helaswag"], folder)


def score(plan: str, task: str, metric: str, value: float, reach: float | None = None) -> Score:
    low, high = (None, None) if reach is None else (value - reach, value + reach)
    return Score("benchmark", metric, value, low, high, task=task, plan=plan)


def test_normalised_is_zero_at_chance_and_one_at_the_full_model() -> None:
    raw = [
        score("0-3", "hellaswag", "acc", 0.75, 0.05),
        score("3-0", "hellaswag", "acc", 0.25, 0.05),
        score("0 2", "hellaswag", "acc", 0.5),
    ]
    found = {row.plan: row for row in normalised(raw, "0-3")}
    assert {(row.metric, row.condition) for row in found.values()} == {("acc", "normalised")}
    assert {plan: row.value for plan, row in found.items()} == {"0-3": 1.0, "3-0": 0.0, "0 2": 0.5}
    assert (found["3-0"].low, found["3-0"].high) == (pytest.approx(-0.1), pytest.approx(0.1))
    assert found["0 2"].low is None


def test_normalised_uses_each_benchmarks_own_chance_and_metric() -> None:
    raw = [
        score("0-3", "gsm8k", "exact_match/strict-match", 0.2, 0.05),
        score("3-0", "gsm8k", "exact_match/strict-match", 0.1),
        score("0-3", "mine", "acc", 0.9, 0.05),
        score("3-0", "mine", "acc", 0.8),
    ]
    assert [row.value for row in normalised(raw, "0-3")] == [1.0, 0.5]
    own = normalised(raw, "0-3", {"mine": 0.7})
    assert [row.value for row in own] == [pytest.approx(1.0), pytest.approx(0.5)]


@pytest.mark.parametrize(
    "full",
    [
        score("0-3", "winogrande", "acc", 0.52, 0.03),  # chance lies in its interval
        score("0-3", "winogrande", "acc", 0.5),
        score("0-3", "winogrande", "perplexity", 9.0, 0.1),  # no share of right answers
        score("0-2", "winogrande", "acc", 0.9, 0.1),  # not the full model
    ],
)
def test_what_has_no_position_on_the_scale_gets_none(full: Score) -> None:
    assert normalised([full, replace(full, plan="3-0", value=0.4)], "0-3") == []


@pytest.mark.parametrize(("aggregation", "guessing"), [({}, (1 / 3 + 1 / 2) / 2), ({"acc_mutual_info": 1}, 5 / 6)])
def test_guessing_is_right_once_in_as_many_choices_as_a_question_has(
    aggregation: dict[str, int], guessing: float
) -> None:
    asked_of = [SimpleNamespace(doc_id=document) for document in (0, 0, 0, 1, 1)]
    task = SimpleNamespace(OUTPUT_TYPE="multiple_choice", aggregation=lambda: aggregation, instances=asked_of)
    assert chance_of("mine", task) == pytest.approx(guessing)
