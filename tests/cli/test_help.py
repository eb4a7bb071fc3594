"""The verbs of the command, its help and start-up cost, and the fixes that its errors suggest."""

import subprocess
import sys
from importlib import metadata
from itertools import pairwise
from pathlib import Path
from typing import get_args

import pytest

from cli.command import layerwise, refused
from layerwise.catalogue import VERBS
from layerwise.cli.app import GROUPS
from layerwise.errors import OptionError
from layerwise.runner.arguments import Device, Dtype
from layerwise.runner.verb import CONSEQUENTIAL, load_verb
from layerwise.stack.load import DEVICES, DTYPES

OTHERS = ("plan", "report", "run")
SCREEN = 45

LISTED = {*(verb.split()[0] for verb in VERBS), *OTHERS}


def test_verbs_and_options_are_few() -> None:
    """An option that verbs share counts once, and one name with two meanings twice."""
    options = {
        (each.flag, each.help)
        for verb in map(load_verb, VERBS)
        for each in verb.listed.values()
        if not each.is_positional
    }
    of_others = {"plan": 4, "report": 2, "all": 6}  # of all: help, help-all, version, completion, quiet, dry run
    assert len(LISTED) <= 16
    assert len(options) + sum(of_others.values()) <= 180


@pytest.mark.parametrize("verb", [*VERBS, *OTHERS])
def test_help_has_examples_and_fits_the_terminal(verb: str) -> None:
    ended = layerwise(*verb.split(), "--help")
    assert ended.code == 0
    lines = ended.out.splitlines()
    assert any(line.strip().startswith(f"layerwise {verb} ") for line in lines[2:])
    assert max(map(len, lines)) <= 80
    assert "…" not in ended.out
    if verb in OTHERS:
        return
    shown, _, parameters = ended.out.partition("╭")
    assert len(lines) <= SCREEN
    lines = [line.rstrip() for line in shown.splitlines()]
    assert all(f"layerwise {verb} {example}".rstrip() in lines for example in load_verb(verb).examples)
    for line, following in pairwise(lines[2:]):
        if line and following and not line.startswith("layerwise "):
            assert len(line) + 1 + len(following.split()[0]) > 80, line
    assert "default: False" not in parameters


def test_no_verb_shows_the_help() -> None:
    ended = layerwise()
    assert ended.code == 0
    assert all(f" {verb} " in ended.out for verb in LISTED)
    positions = [ended.out.index(f"─ {group} ─") for group in GROUPS]
    assert positions == sorted(positions)
    assert layerwise("-h").out == ended.out == layerwise("help").out
    assert layerwise("help", "sweep").out == layerwise("sweep", "--help").out


def test_the_version_and_the_choices_of_the_loader_are_shown() -> None:
    ended = layerwise("--version")
    assert (ended.code, ended.out, ended.err) == (0, f"layerwise {metadata.version('layerwise')}\n", "")

    assert (get_args(Device), get_args(Dtype)) == (DEVICES, DTYPES)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["swep"], 'Unknown command "swep". Did you mean "sweep"?'),
        (["sweep"], "layerwise sweep needs MODEL."),
        (["search", "demo"], "layerwise search needs --budget BUDGET."),
        (["search", "demo", "--budget"], "--budget must be followed by a value. Write --budget BUDGET."),
        (["serve", "demo", "--nodes", "2", "--replicas", "5"], "--replicas must be at most --nodes (2)"),
        (["report"], "layerwise report requires a run directory"),
        (["sweep", "demo", "--famlies", "painters"], "Unknown option: --famlies. Did you mean --families?"),
    ],
)
def test_typos_get_suggestions(arguments: list[str], message: str) -> None:
    assert message in refused(*arguments)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["plan", "0-3", "--depth", "0"], "--depth must be at least 1, got 0."),
        (["plan"], "a plan"),
        (["sweep", "demo", "--task-limit", "3"], "--task-limit requires --tasks."),
        (["sweep", "demo", "--tokenizer", ""], "--tokenizer must not be empty."),
        (["sweep", "demo", "--device", "gpu"], "--device must be one of auto, cpu, cuda, mps, xpu, got 'gpu'."),
        (["sweep", "demo", "--dtype", "float23"], "--dtype must be one of auto, stored, float32, float16, bfloat16"),
        (["report", "one", "two"], "--format html requires a single run, got 2"),
    ],
)
def test_invalid_values_are_refused_before_loading(arguments: list[str], message: str) -> None:
    assert message in refused(*arguments)


def test_help_does_not_import_torch() -> None:
    script = f"""
import sys
from layerwise.cli.app import main
for words in (["--help"], ["plan", "0-13 18-31"], ["sweep", "x", "--families", "painter"],
              *([*verb.split(), "--help"] for verb in {[*VERBS]!r})):
    sys.argv = ["layerwise", *words]
    try:
        main()
    except SystemExit:
        pass
heavy = {{"torch", "transformers", "plotly", "scipy", "pyarrow", "numpy"}} & set(sys.modules)
assert not heavy, heavy
"""
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr


def test_misspelled_families_are_refused_before_loading() -> None:
    assert "did you mean painters?" in refused("sweep", "no-such-model", "--text", "none", "--families", "painter")


@pytest.mark.parametrize("verb", ["sweep demo", "diagnose demo", "heal demo --plan 0-10", "evaluate demo", "save demo"])
@pytest.mark.parametrize("flag", ["--verbose", "--over", "--overwrit", "--write", "--trust", "--pus"])
def test_dangerous_options_are_never_suggested(verb: str, flag: str) -> None:
    message = refused(*verb.split(), flag)
    assert flag in message
    for name in CONSEQUENTIAL:
        assert f"--{name.replace('_', '-')}?" not in message


def test_dangerous_options_are_never_suggested_in_python() -> None:
    with pytest.raises(OptionError, match="sweep has no option 'overwrit'; known: "):
        load_verb("sweep")(model="demo", overwrit=True)


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("sweep demo --token 9", "Did you mean --tokens?"),
        ("heal demo --plan 0-10 --tokens 9", "Set the length of training with --steps or --epochs"),
        ("sweep demo --method full", "layerwise sweep has no option --method; it belongs to "),
        ("verify demo --plan 0-4 6-11", 'Write --plan "0-4 6-11"'),
        ("heal demo --plan 0-4 6 8-11 --seeds 2", 'Write --plan "0-4 6 8-11"'),
        ("sweep demo --families painters leave_one_out", "separate the names of a list with commas"),
    ],
)
def test_misuse_is_explained_with_the_fix(command: str, said: str) -> None:
    assert said in refused(*command.split())


PLANNED = ("sweep", "verify", "heal", "save --output copy", "serve")


@pytest.mark.parametrize("verb", PLANNED)
def test_missing_runs_are_reported(verb: str) -> None:
    said = "nosuchrun is neither a plan nor a run directory"
    assert said in refused(*verb.split(), "demo", "--plan", "nosuchrun")


def test_image_models_are_directed_to_robustness(tmp_path: Path) -> None:
    said = "layerwise robustness MODEL --images FOLDER"
    for verb in ("sweep", "diagnose"):
        assert said in refused(*verb.split(), "demo-vit", "--run", tmp_path / "run")
    (tmp_path / "words.txt").write_text("some words and more of them")
    assert said in refused("sweep", "demo-vit", "--text", tmp_path / "words.txt")


def test_progress_goes_to_stderr_unless_quiet(model: Path, tmp_path: Path) -> None:
    ended = layerwise("sweep", "demo", "--dry-run", "--tokens", "3000", "--plan", "0-10", "--run", tmp_path / "run")
    assert ended.err.splitlines()[:2] == ["loading demo", "tokenizing demo-heldout"]
    assert "tokenizing" not in ended.out
    said = layerwise("verify", model, "--plan", "0-2").err.splitlines()
    assert [line for line in said if "%" not in line] == [f"loading {model}", "verifying 0-2"]
    assert layerwise("verify", model, "--plan", "0-2", "--quiet").err == ""
