"""The verbs in Python, YAML and on the command line are one configuration, one run and the same rows."""

import inspect
import json
import pydoc
import re
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from transformers import AutoModelForCausalLM

import layerwise
from cli.command import layerwise as command
from layerwise.catalogue import VERBS
from layerwise.cli import command as cli
from layerwise.data.text.corpus import Corpus
from layerwise.errors import LayerwiseError
from layerwise.plan import Plan
from layerwise.runner.files import ExperimentFile
from layerwise.runner.reporter import Silent
from layerwise.runner.verb import VerbCall, load_verb, write_command


@pytest.fixture(scope="module")
def result(model: Path, texts: Path, tmp_path_factory: pytest.TempPathFactory) -> layerwise.Result:
    stack, corpus = layerwise.load(model), layerwise.read_corpus(texts)
    folder = tmp_path_factory.mktemp("runs") / "run"
    return layerwise.sweep(stack, corpus, families=("leave_one_out",), similarity=False, run=folder, reporter=Silent())


def test_a_result_has_rows_a_table_a_report_and_shows_itself(result: layerwise.Result, tmp_path: Path) -> None:
    rows = result.rows
    table = result.table()
    assert table.layer.tolist() == [0, 1, 2, 3]
    assert table.plan.tolist() == ["1-3", "0 2 3", "0 1 3", "0-2"]
    assert set(table.metric) == {"delta_nll"}
    assert table.notna().any().all()
    assert len(result.table("all")) == len(rows) > len(table)
    assert set(result.table("effect").measure) == {"effect"}
    assert all({"low", "high"} <= set(result.table(measure)) for measure in {row.measure for row in rows})
    assert {row.plan for row in result.losses} == {"0-3", "1-3", "0 2 3", "0 1 3", "0-2"}
    page = result.report(tmp_path / "page.html")
    assert page.read_text().startswith("<!doctype html>")
    shown = result._repr_html_()
    assert str(result.folder) in shown
    assert shown.count("<li>") == len(result.findings) > 0


def test_a_sweep_of_own_plans_says_what_they_cost_first_and_has_no_empty_section(
    model: Path, texts: Path, tmp_path: Path
) -> None:
    plans = ["0 1 3", "0 3"]
    result = layerwise.sweep(model, texts, families=(), plans=plans, run=tmp_path / "run", reporter=Silent())
    effects = {row.plan: row for row in result.table().itertuples()}
    first = result.findings[0]
    for number, plan in enumerate(plans):
        low, high = effects[plan].low, effects[plan].high
        verb = "gains" if high < 0 else "costs" if low > 0 else "changes the loss by"
        assert f"{'plan' if number else 'Plan'} {plan} {verb} " in first
    assert first.count("nats/token (perplexity ") == 2
    page = result.report(tmp_path / "page.html").read_text()
    sections = re.findall(r"<section.*?</section>", page, flags=re.DOTALL)
    assert [
        each for each in sections if re.fullmatch(r"<section[^>]*><h2>.*?</h2>(<p[^>]*>[^<]*</p>)?</section>", each)
    ] == []


def test_a_result_draws_the_figures_of_its_report(result: layerwise.Result) -> None:
    drawn = result.plot("layers-0")._repr_mimebundle_()["application/vnd.plotly.v1+json"]
    assert {"data", "layout"} <= json.loads(json.dumps(drawn, allow_nan=False)).keys()
    drawn_html = result.plot("layers-0")._repr_mimebundle_()["text/html"]
    assert "Plotly.newPlot" in drawn_html
    assert "http" not in drawn_html.partition("srcdoc=")[0]
    assert repr(Corpus.of(["a text"] * 3)) == "Corpus('texts', 3 documents, 18 characters)"
    assert {"train", "swarm"} <= set(dir(layerwise))
    assert "budget: Maximum cost of a plan" in pydoc.render_doc(layerwise.search)
    assert "budget" in inspect.signature(layerwise.search).parameters
    assert result.plot().name in (result.folder / "report.html").read_text()
    with pytest.raises(LayerwiseError, match="has no figure 'layers'; did you mean layers-0"):
        result.plot("layers")


@pytest.mark.parametrize("form", [lambda each: each, str])
def test_names_paths_and_texts_stand_for_what_they_lead_to(
    result: layerwise.Result, model: Path, texts: Path, tmp_path: Path, form: Callable[[Path], str | Path]
) -> None:
    again = layerwise.sweep(
        form(model),
        form(texts),
        families=["leave_one_out"],
        similarity=False,
        run=form(tmp_path / "run"),
        reporter=Silent(),
    )
    assert again.folder == tmp_path / "run"
    assert again.table("effect").equals(result.table("effect"))
    ended = command("run", again.folder)
    assert ended.code == 0, ended.err
    assert "resumed: " in ended.err


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("families: [painters]", "must name a verb"),
        ("experiment: swep\nmodel: demo", "Unknown verb 'swep'; did you mean sweep?"),
        ("experiment: sweep", "MODEL is required"),
        ("experiment: [", "is not YAML"),
    ],
)
def test_a_file_that_cannot_be_run_is_refused(text: str, message: str, tmp_path: Path) -> None:
    file = tmp_path / "experiment.yaml"
    file.write_text(text)
    ended = command("run", file)
    assert ended.code == 2
    assert message in ended.err


def test_a_table_that_is_not_there_is_refused_with_those_that_are(result: layerwise.Result) -> None:
    with pytest.raises(LayerwiseError, match=r"has no rows of 'efect'; did you mean effect\? Known: effect, "):
        result.table("efect")


def test_a_module_and_a_list_of_texts_are_opened(result: layerwise.Result, model: Path, tmp_path: Path) -> None:
    stack = layerwise.load(model, dtype=torch.float64, device=torch.device("cpu"))
    assert stack.dtype == torch.float64
    module = AutoModelForCausalLM.from_pretrained(model, trust_remote_code=False).eval()
    texts = [f"the text of the number {number}, " * 8 for number in range(9)]
    options = {"families": (), "plans": [Plan.parse("0-2")], "similarity": False, "reporter": Silent()}
    opened = layerwise.sweep(module, texts, run=tmp_path / "module", **options)
    named = layerwise.sweep(layerwise.load(model), Corpus.of(texts), run=tmp_path / "named", **options)
    assert opened.table("effect").equals(named.table("effect"))


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: layerwise.sweep(12, ["a"], reporter=Silent()), "model must be a name, a folder, .* got int"),
        (lambda: layerwise.sweep("demo", {"a": 1}, reporter=Silent()), "a list of strings, got dict"),
        (lambda: layerwise.sweep("demo", ["a", 1], reporter=Silent()), "a list of strings, got list"),
        (lambda: layerwise.search("demo", [], "layers=9", reporter=Silent()), "must have at least one document"),
        (lambda: layerwise.diagnose("demo", dtype="int8", reporter=Silent()), "dtype must be .* got 'int8'"),
        (lambda: layerwise.load("demo", dtype=torch.int8), "unknown dtype 'int8'"),
        (lambda: Corpus(["a"]), "Corpus.of"),
        (lambda: Corpus("texts", ("a",)), "Corpus.of"),
    ],
)
def test_what_is_no_model_or_text_is_refused(call: Callable[[], object], said: str) -> None:
    with pytest.raises(LayerwiseError, match=said):
        call()


SETTINGS = [
    ("train robust", "layershuffle,layerdrop --model demo-vit --set compile=true --set weight_decay=0.5"),
]

EXAMPLES = [
    pytest.param(verb, example, id=f"{verb} {example}")
    for verb, example in [*((verb, each) for verb in VERBS for each in load_verb(verb).examples), *SETTINGS]
]


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., VerbCall]:
    monkeypatch.chdir(tmp_path)
    Path("my_pairs.jsonl").touch()
    Path("mergekit.yml").write_text("0-3")
    calls: list[VerbCall] = []

    def keep(call: VerbCall, **_: Any) -> int:
        calls.append(call)
        return 0

    monkeypatch.setattr(cli, "run_call", keep)

    def read_words(*words: str) -> VerbCall:
        calls.clear()
        ended = command(*words)
        assert ended.code == 0, ended.err
        return calls[0]

    return read_words


@pytest.mark.parametrize(("verb", "example"), EXAMPLES)
def test_a_command_and_a_file_are_one_call(
    verb: str, example: str, read: Callable[..., VerbCall], tmp_path: Path
) -> None:
    call = read(*verb.split(), *shlex.split(example))
    assert call.verb is load_verb(verb)
    assert read(*shlex.split(write_command(call.verb, call.options))[1:]) == call
    file, options = tmp_path / "experiment.yaml", call.verb.given(call.options)
    written = yaml.safe_dump({"experiment": call.verb.name, **options}, sort_keys=False, allow_unicode=True)
    for text in (written, re.sub(r"^\w+:", lambda name: name[0].replace("_", "-"), written, flags=re.MULTILINE)):
        file.write_text(text)
        (stage,) = ExperimentFile.read(file).list_calls()
        assert stage.call == call
