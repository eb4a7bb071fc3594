"""Arguments that cannot be read: the message suggests a fix that never discards results."""

from pathlib import Path

import pytest

from cli.command import layerwise, refused
from layerwise.errors import OptionError
from layerwise.experiments.catalogue import configuration
from layerwise.experiments.option import CONSEQUENTIAL, configured


@pytest.mark.parametrize("verb", ["sweep demo", "diagnose demo", "heal demo --plan 0-10", "evaluate demo", "save demo"])
@pytest.mark.parametrize("flag", ["--verbose", "--over", "--overwrit", "--write", "--trust", "--pus"])
def test_no_near_match_discards_publishes_or_trusts(verb: str, flag: str) -> None:
    message = refused(*verb.split(), flag)
    assert flag in message
    for name in CONSEQUENTIAL:
        assert f"--{name.replace('_', '-')}?" not in message


def test_a_misspelt_name_in_python_is_not_corrected_to_what_discards() -> None:
    with pytest.raises(OptionError, match="there is no option 'overwrit'; Known: "):
        configured(configuration("sweep"), {"model": "demo", "overwrit": True}, "sweep")


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("sweep demo --token 9", "Did you mean --tokens?"),
        ("heal demo --plan 0-10 --tokens 9", "How long it trains is said by --steps or --epochs"),
        ("sweep demo --method full", "sweep has no --method, which is an option of "),
        ("verify demo --plan 0-4 6-11", 'write --plan "0-4 6-11"'),
        ("verify --plan 0-4 6-11 demo", 'write --plan "0-4 6-11"'),
        ("heal demo --plan 0-4 6 8-11 --seeds 2", 'write --plan "0-4 6 8-11"'),
        ("sweep demo --families painters leave_one_out", "join the names of a list with commas"),
    ],
)
def test_a_refusal_says_what_to_write(command: str, said: str) -> None:
    assert said in refused(*command.split())


PLANNED = ("sweep", "verify", "time", "heal", "save --output copy", "serve")


@pytest.mark.parametrize("verb", PLANNED)
def test_a_run_that_is_not_there_is_named(verb: str) -> None:
    said = "nosuchrun is no plan, and there is no run of that name here"
    assert said in refused(*verb.split(), "demo", "--plan", "nosuchrun")


def test_a_model_of_images_is_sent_to_the_verb_that_measures_it(tmp_path: Path) -> None:
    said = "layerwise robustness MODEL --images FOLDER"
    for verb in ("sweep", "diagnose"):
        assert said in refused(*verb.split(), "demo-vit")
    (tmp_path / "words.txt").write_text("some words and more of them")
    assert said in refused("sweep", "demo-vit", "--text", tmp_path / "words.txt")


def test_passes_over_images_are_not_timed() -> None:
    assert "demo-vit reads no tokens" in refused("time", "demo-vit", "--plan", "0-3")


def test_what_takes_long_is_said_on_the_error_stream_and_not_to_the_quiet(model: Path, tmp_path: Path) -> None:
    ended = layerwise("sweep", "demo", "--dry-run", "--tokens", "3000", "--plan", "0-10", "--run", tmp_path / "run")
    assert ended.err.splitlines()[:2] == ["loading demo", "tokenizing demo-heldout"]
    assert "tokenizing" not in ended.out
    said = layerwise("verify", model, "--plan", "0-2").err.splitlines()
    assert [line for line in said if "%" not in line] == [f"loading {model}", "verifying 0-2"]
    assert layerwise("verify", model, "--plan", "0-2", "--quiet").err == ""
