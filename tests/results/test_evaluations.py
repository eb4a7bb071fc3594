"""lm-eval logs: reading, matching, and refusing logs that cannot be compared."""

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from layerwise.errors import RunError
from layerwise.results.evaluations import EvaluationLog, LoggedDocument, TaskLog, disagreements, match
from studies.comparison.evaluation_folders import DATE, Evaluation, hashed, samples_of

RIGHT = {"task": {"acc": [1, 0, 1], "acc_norm": [1.0, 1.0, 0.0]}}
AGAIN = "Copy it again or repeat the evaluation."
SAMPLES = f"samples_task_{DATE}.jsonl"


@pytest.fixture
def evaluation() -> Evaluation:
    return Evaluation(RIGHT)


def text_of(error: pytest.ExceptionInfo[RunError], *folders: Path) -> str:
    text = str(error.value)
    for name, folder in zip("AB", folders, strict=False):
        text = text.replace(str(folder), name)
    return text


def tasks_of(folder: Path, *evaluations: Evaluation) -> list[TaskLog]:
    written = [each.write(folder / name) for name, each in zip("ab", evaluations, strict=False)]
    return [EvaluationLog.read(str(each)).tasks["task"][0] for each in written]


def test_logs_are_read(evaluation: Evaluation, tmp_path: Path) -> None:
    evaluation.samples["task"][2]["doc"] = {"question": "the end of a line \u2028 within"}
    log = EvaluationLog.read(str(evaluation.write(tmp_path / "base")))
    (task,) = log.tasks["task"]
    assert (log.title, log.model, list(log.tasks)) == ("base", {"pretrained": "base"}, ["task"])
    assert task.values == {("acc", "none"): ((1,), (0,), (1,)), ("acc_norm", "none"): ((1.0,), (1.0,), (0.0,))}
    assert task.stated == {("acc", "none"): 2 / 3, ("acc_norm", "none"): 2 / 3}
    assert [document.doc_id for document in task.documents] == [0, 1, 2]


def test_the_parent_folder_of_a_single_evaluation_is_accepted(evaluation: Evaluation, tmp_path: Path) -> None:
    evaluation.write(tmp_path / "output" / "org__base")
    assert EvaluationLog.read(str(tmp_path / "output")).title == "org__base"
    evaluation.write(tmp_path / "output" / "org__other")
    with pytest.raises(RunError) as error:
        EvaluationLog.read(str(tmp_path / "output"))
    assert text_of(error, tmp_path) == "A/output contains 2 evaluations. Pass one of them: org__base, org__other."


def test_named_result_files_are_separate_evaluations(evaluation: Evaluation, tmp_path: Path) -> None:
    folder = evaluation.write(tmp_path)
    for name in ("base", "new_2"):
        shutil.copyfile(folder / f"results_{DATE}.json", folder / f"{name}_{DATE}.json")
    (folder / f"results_{DATE}.json").unlink()
    with pytest.raises(RunError) as error:
        EvaluationLog.read(str(tmp_path))
    listing = f"base_{DATE}.json, new_2_{DATE}.json"
    assert text_of(error, tmp_path) == f"A contains 2 evaluations. Pass one of them: {listing}."
    log = EvaluationLog.read(str(folder / f"new_2_{DATE}.json"))
    assert (log.title, log.tasks["task"][0].values["acc", "none"]) == ("new_2", ((1,), (0,), (1,)))
    (folder / f"base_{DATE}.json").unlink()
    assert EvaluationLog.read(str(tmp_path)).title == "new_2"


@pytest.mark.parametrize("processes", [1, 2])
def test_logs_of_older_versions_are_read(processes: int, tmp_path: Path) -> None:
    evaluation = Evaluation({"task": {"acc": [1, 0, 1, 1], "f1": [0.5, 0.5, 0.25, 0.0]}})
    strict = samples_of({"acc": [0, 0, 1, 0], "f1": [0.0, 0.0, 0.25, 0.0]}, filtered="strict")
    flexible = [{**each, "filter": "flexible"} for each in evaluation.samples["task"]]
    new = evaluation.copy()
    new.samples["task"] = [*strict, *flexible]
    lines = [[*strict[first::processes], *flexible[first::processes]] for first in range(processes)]
    evaluation.samples["task"] = [
        {key: value for key, value in each.items() if key not in ("filter", "metrics")}
        for part in lines
        for each in part
    ]
    logs = []
    for name, each in (("old", evaluation), ("new", new)):
        scores = {f"{metric},{kind}": 0.5 for kind in ("strict", "flexible") for metric in ("acc", "acc_stderr", "f1")}
        each.results["n-samples"]["task"]["effective"] = 4
        folder = each.write(tmp_path / name)
        results(lambda content, scores=scores: content["results"].update(task=scores))(folder)
        logs.append(EvaluationLog.read(str(folder)).tasks["task"][0])
    both = match("task", *logs)
    assert both.keys() == {(metric, kind) for metric in ("acc", "f1") for kind in ("strict", "flexible")}
    assert all(old == new for old, new in both.values())


def test_older_files_of_a_task_are_repeated_runs(evaluation: Evaluation, tmp_path: Path) -> None:
    earlier = evaluation.copy()
    earlier.samples["task"][1]["acc"] = 1
    earlier.write(tmp_path, date="2026-01-30T12-00-00.000000")
    newest, before = EvaluationLog.read(str(evaluation.write(tmp_path))).tasks["task"]
    assert newest.values["acc", "none"][1] == (0,)
    assert (disagreements(newest, before), disagreements(newest, newest)) == (1, 0)
    earlier.results["versions"]["task"] = 2.0
    earlier.write(tmp_path, date="2026-01-30T12-00-00.000000")
    newest, before = EvaluationLog.read(str(tmp_path)).tasks["task"]
    assert disagreements(newest, before) == 0, "another version of the task"


def test_documents_are_matched_by_hash_in_any_order(evaluation: Evaluation, tmp_path: Path) -> None:
    other = evaluation.copy()
    for number, sample in enumerate(reversed(other.samples["task"])):
        sample["doc_id"] = number
    other.samples["task"].reverse()
    duplicate = {**evaluation.samples["task"][0], "doc_hash": "duplicate"}
    for each in (evaluation, other):
        each.samples["task"] += [{**duplicate, "doc_id": 3}, {**duplicate, "doc_id": 4, "acc": 0}]
        each.results["n-samples"]["task"]["effective"] = 5
    first, second = tasks_of(tmp_path, evaluation, other)
    both = match("task", first, second)
    assert both["acc", "none"] == (((1,), (0,), (1,), (1,), (0,)),) * 2


def test_duplicate_documents_are_matched_by_their_requests(evaluation: Evaluation, tmp_path: Path) -> None:
    for sample, prompt in zip(evaluation.samples["task"], "bca", strict=True):
        sample |= {"doc_hash": "one", "prompt_hash": prompt}
    other = evaluation.copy()
    other.samples["task"] = [other.samples["task"][at] for at in (2, 0, 1)]
    first, second = tasks_of(tmp_path, evaluation, other)
    assert match("task", first, second)["acc_norm", "none"] == (((1.0,), (1.0,), (0.0,)),) * 2


def test_logs_without_hashes_are_matched_by_number(evaluation: Evaluation, tmp_path: Path) -> None:
    (task,) = EvaluationLog.read(str(evaluation.write(tmp_path))).tasks["task"]
    kept = replace(task, documents=tuple(LoggedDocument(at, "", "", "") for at in (2, 0, 1)))
    assert match("task", task, kept)["acc", "none"] == (((1,), (0,), (1,)), ((0,), (1,), (1,)))


Change = Callable[[Evaluation], object]


def setting(name: str, value: object) -> Change:
    return lambda other: other.results.__setitem__(name, value)


def of_task(name: str, value: object) -> Change:
    return lambda other: other.results[name].__setitem__("task", value)


def configured(name: str, value: object) -> Change:
    return lambda other: other.results["configs"]["task"].__setitem__(name, value)


def sample(name: str, value: object, at: int = 1) -> Change:
    return lambda other: other.samples["task"][at].__setitem__(name, value)


def all_samples(name: str, value: object) -> Change:
    return lambda other: [each.__setitem__(name, value) for each in other.samples["task"]]


def short(other: Evaluation) -> None:
    other.samples["task"].pop()
    other.results["n-samples"]["task"]["effective"] = 2


def longer(other: Evaluation) -> None:
    other.samples["task"].append({**other.samples["task"][0], "doc_id": 3, "doc": "new", "doc_hash": "new"})
    other.results["n-samples"]["task"]["effective"] = 4


def templated(**settings: object) -> Change:
    return lambda other: other.results.update({"chat_template_sha": "5d41402a", "chat_template": "{{x}}", **settings})


BOTH = "of task in A and B differ"
ONE = "Use the same for both."
DATA = "Evaluate both models on the same version of the data."
SAME = "Use the same version, prompt and --seed for both."
ON_ONE = "on document 1, {'question': 'task 1?'}"
MISMATCHES: dict[str, tuple[Change, str]] = {
    "version": (of_task("versions", 2.0), f"version {BOTH}s: 1.0 and 2.0. {ONE}"),
    "shots": (of_task("n-shot", 5), f"--num_fewshot {BOTH}s: 0 and 5. {ONE}"),
    "limit": (setting("config", {"limit": 3.0}), f"--limit {BOTH}s: None and 3.0. {ONE}"),
    "template": (templated(), f"--apply_chat_template {BOTH}s: None and '5d41402a'. {ONE}"),
    "system": (setting("system_instruction", "Hi."), f"--system_instruction {BOTH}s: None and 'Hi.'. {ONE}"),
    "generation": (configured("generation_kwargs", {"k": 1}), f"--gen_kwargs {BOTH}s: None and {{'k': 1}}. {ONE}"),
    "type of task": (
        configured("output_type", "generate_until"),
        f"output_type {BOTH}s: '\"multiple_choice\"' and '\"generate_until\"'. {ONE}",
    ),
    "filter of answers": (configured("filter_list", ["a"]), f"filter_list {BOTH}s: 'null' and '[\"a\"]'. {ONE}"),
    "scoring": (configured("process_results", "f"), f"process_results {BOTH}s: 'null' and '\"f\"'. {ONE}"),
    "repeats": (configured("repeats", 4), f"repeats {BOTH}s: '1' and '4'. {ONE}"),
    "filters": (all_samples("filter", "strict"), f"filters {BOTH}s: ['none'] and ['strict']. {ONE}"),
    "metrics": (all_samples("metrics", ["acc"]), f"metrics {BOTH}s: ['acc', 'acc_norm'] and ['acc']. {ONE}"),
    "missing document": (
        short,
        f"Documents {BOTH}: the second evaluation does not have document 2, {{'question': 'task 2?'}}. {DATA}",
    ),
    "further document": (longer, f"Documents {BOTH}: the first evaluation does not have document 3, 'new'. {DATA}"),
    "other document": (
        sample("doc_hash", hashed("edited")),
        f"Documents {BOTH}: the second evaluation does not have document 1, {{'question': 'task 1?'}}. {DATA}",
    ),
    "right answer": (sample("target_hash", hashed("1")), f"Right answer {BOTH}s {ON_ONE}. {SAME}"),
    "prompt": (sample("prompt_hash", hashed("Q:")), f"Prompt {BOTH}s {ON_ONE}. {SAME}"),
    "requests": (sample("arguments", {"gen_args_0": {"arg_0": "Q"}}), f"Prompt {BOTH}s {ON_ONE}. {SAME}"),
}


@pytest.mark.parametrize("kind", MISMATCHES)
def test_different_evaluations_are_refused(kind: str, evaluation: Evaluation, tmp_path: Path) -> None:
    change, message = MISMATCHES[kind]
    other = evaluation.copy()
    change(other)
    first, second = tasks_of(tmp_path, evaluation, other)
    with pytest.raises(RunError) as error:
        match("task in A and B", first, second)
    assert str(error.value) == message


def test_multiturn_examples_matter_only_with_a_template(evaluation: Evaluation, tmp_path: Path) -> None:
    def task(**settings: object) -> Any:
        other = evaluation.copy()
        other.results.update(settings)
        return EvaluationLog.read(str(other.write(tmp_path))).tasks["task"][0]

    assert match("task", task(fewshot_as_multiturn=True), task(fewshot_as_multiturn=None))
    sha = "5d41402a"
    with pytest.raises(RunError, match="--fewshot_as_multiturn of task differs: True and False"):
        match("task", task(chat_template_sha=sha, fewshot_as_multiturn=True), task(chat_template_sha=sha))


def test_function_addresses_are_ignored(evaluation: Evaluation, tmp_path: Path) -> None:
    logs = []
    for address in ("0x7f01", "0x7f02"):
        evaluation.results["configs"]["task"]["process_results"] = f"<function f at {address}>"
        logs.append(EvaluationLog.read(str(evaluation.write(tmp_path / address))).tasks["task"][0])
    assert match("task", *logs)


Damage = Callable[[Path], object]
RESULTS = f"results_{DATE}.json"


def remove(name: str) -> Damage:
    return lambda folder: (folder / name).unlink()


def write(name: str, content: bytes) -> Damage:
    return lambda folder: (folder / name).write_bytes(content)


def results(change: Callable[[Any], object]) -> Damage:
    def damage(folder: Path) -> None:
        path = folder / RESULTS
        content = json.loads(path.read_text())
        change(content)
        path.write_text(json.dumps(content))

    return damage


def line(text: str) -> Damage:
    def damage(folder: Path) -> None:
        lines = (folder / SAMPLES).read_text().splitlines()
        (folder / SAMPLES).write_text("\n".join([lines[0], text, *lines[2:]]) + "\n")

    return damage


def cut(folder: Path) -> None:
    content = (folder / SAMPLES).read_text()
    (folder / SAMPLES).write_text(content[:-40])


def whole_lines(folder: Path) -> None:
    (folder / SAMPLES).write_text("".join((folder / SAMPLES).read_text().splitlines(keepends=True)[:2]))


def twice(folder: Path) -> None:
    (folder / SAMPLES).write_text((folder / SAMPLES).read_text() * 2)


def second_filter(folder: Path) -> None:
    more = samples_of({"acc": [1, 0]}, filtered="strict")
    (folder / SAMPLES).write_text((folder / SAMPLES).read_text() + "".join(json.dumps(each) + "\n" for each in more))


def huge(folder: Path) -> None:
    with (folder / SAMPLES).open("rb+") as file:
        file.truncate(2**30 + 1)


GOOD = samples_of(RIGHT["task"])[1]
LINE = f"line 2 of A/{SAMPLES}"
NOT_FINITE = f"{LINE} has a value of acc that is not finite. {AGAIN}"
UNLIKE = "is not an lm-eval log"
DAMAGES: dict[str, tuple[Damage, str]] = {
    "without samples": (remove(SAMPLES), f"A has no {SAMPLES}. Evaluate task again with --log_samples."),
    "cut line": (cut, f"line 3 of A/{SAMPLES} is not JSON (*). {AGAIN}"),
    "cut file": (whole_lines, f"A/{SAMPLES} has 2 of 3 documents. {AGAIN}"),
    "appended": (twice, f"line 4 of A/{SAMPLES} repeats document 0. {AGAIN}"),
    "filters of other documents": (
        second_filter,
        f"A/{SAMPLES} has different documents for the filter strict than for others. {AGAIN}",
    ),
    "not a number": (line(json.dumps({**GOOD, "acc": float("nan")})), NOT_FINITE),
    "infinite": (line(json.dumps({**GOOD, "acc": float("inf")})), NOT_FINITE),
    "beyond any number": (line(json.dumps({**GOOD, "acc": 10**400})), NOT_FINITE),
    "a name that is a path": (
        results(lambda content: content["configs"].update({"../../etc/passwd\0": {}})),
        "A/*\0 again with --log_samples.",
    ),
    "too deep": (line("[" * 100_000), f"{LINE} is nested too deeply. {AGAIN}"),
    "long number": (line("1" * 5_000), f"{LINE} contains a number of more than 4,300 digits. {AGAIN}"),
    "empty line": (line(""), f"{LINE} is not JSON (Expecting value at column 1). {AGAIN}"),
    "a list": (line("[1]"), f"{LINE} {UNLIKE} (Expected `object`, got `array`). {AGAIN}"),
    "without a hash": (
        line(json.dumps({key: each for key, each in GOOD.items() if key != "doc_hash"})),
        f"{LINE} {UNLIKE} (Object missing required field `doc_hash`). {AGAIN}",
    ),
    "not text": (write(SAMPLES, b"\xff\n"), f"A/{SAMPLES} is not UTF-8 text: byte 0 is 0xff. {AGAIN}"),
    "huge": (huge, f"A/{SAMPLES} must have at most 1.1 GB, got 1.1 GB. {AGAIN}"),
    "empty samples": (write(SAMPLES, b""), f"line 1 of A/{SAMPLES} is not JSON (*). {AGAIN}"),
    "results cut": (write(RESULTS, b"{"), f"A/{RESULTS} is not JSON (*). {AGAIN}"),
    "results of another shape": (
        results(lambda content: content.update(configs=[])),
        f"A/{RESULTS} {UNLIKE} (Expected `object`, got `array` - at `$.configs`). {AGAIN}",
    ),
    "results of nothing": (
        results(lambda content: content.clear()),
        f"A/{RESULTS} {UNLIKE} (Object missing required field `results`). {AGAIN}",
    ),
    "before 0.4.3": (
        lambda folder: (folder / RESULTS).rename(folder / "results.json"),
        "A was written by lm-eval before 0.4.3, whose samples have no document hashes. Evaluate again with a newer "
        "version.",
    ),
    "no evaluation": (
        remove(RESULTS),
        "A has no results_DATE.json. Pass a run directory or the --output_path of lm-eval.",
    ),
}


@pytest.mark.parametrize("kind", DAMAGES)
def test_damaged_logs_are_refused(kind: str, evaluation: Evaluation, tmp_path: Path) -> None:
    damage, message = DAMAGES[kind]
    folder = evaluation.write(tmp_path / "a")
    damage(folder)
    with pytest.raises(RunError) as error:
        EvaluationLog.read(str(folder))
    before, _, after = message.partition("*")
    text = text_of(error, folder)
    assert text == message if not after else text.startswith(before) and text.endswith(after)


@pytest.mark.parametrize("place", ["nothing", "file"])
def test_missing_folders_are_refused(place: str, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(RunError) as error:
        EvaluationLog.read(str(tmp_path / place))
    assert (
        text_of(error, tmp_path) == f"A/{place} is not a folder. Pass a run directory or the --output_path of lm-eval."
    )


def test_text_values_are_not_numbers(evaluation: Evaluation, tmp_path: Path) -> None:
    for each, value in zip(
        evaluation.samples["task"], ("True", ["a reference", "an answer"], [1, "False"]), strict=True
    ):
        each["acc"] = value
    (task,) = EvaluationLog.read(str(evaluation.write(tmp_path))).tasks["task"]
    assert task.values["acc", "none"] == ((1.0,), None, (1.0, 0.0))
