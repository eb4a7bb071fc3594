"""Commands and snippets of the README and the pages run as written.

Commands that name the reader's own things (`MODEL`, `org/name`, a file) are only parsed.
"""

import io
import re
import shlex
import subprocess
import sys
from contextlib import redirect_stdout
from dataclasses import fields
from itertools import pairwise
from pathlib import Path

import pytest

from cli.command import layerwise
from layerwise.catalogue import VERBS
from layerwise.runner.files import RECIPES, ExperimentFile
from layerwise.runner.verb import load_verb
from layerwise.train.arguments import MeasuredArguments
from threads import threaded

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
PAGES = {
    path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8")
    for path in (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")))
    if path.name != "log.md"
}

READERS = re.compile(r"[A-Z][A-Z0-9_]+|[\w.-]+/[\w.-]+|\./.+|[\w-]+\.(txt|yaml)|texts/")
"""Words that name the reader's own things."""

OTHERS = {
    "plan": {"--depth", "--model", "--from", "--to"},
    "report": {"--output", "--format"},
    "run": {"--quiet", "--dry-run"},
}


def commands(text: str) -> list[str]:
    lines = re.findall(r"^(?:    (?:\$ )?|\$ |```\{command\} |!)(layerwise [^\n]*)$", text, re.MULTILINE)
    return list(dict.fromkeys(re.split(r"\s+#\s", line)[0].strip() for line in lines))


def mentioned(text: str) -> list[str]:
    return list(dict.fromkeys(re.findall(r"`(layerwise [^`]+)`", re.sub(r"\n *(?=\S)", " ", text))))


def is_readers_own(command: str) -> bool:
    return any(READERS.fullmatch(word) or word == "..." for word in shlex.split(command)[1:])


RUN = [command for command in commands(README) if not is_readers_own(command)]
CHECKED = sorted({each for text in PAGES.values() for each in (*commands(text), *mentioned(text))})


def test_the_readme_is_a_page() -> None:
    assert len(README.splitlines()) <= 150
    assert RUN[0] == 'layerwise plan "0-4 (5|6|7) 8-11" --depth 12'
    assert "layerwise robustness demo-vit --seeds 1" in RUN


@pytest.mark.parametrize("command", CHECKED)
def test_a_command_has_a_verb_flags_and_settings_that_exist(command: str) -> None:
    words = shlex.split(command)[1:]
    if words in (["--help"], ["--version"]):
        return
    verb = next(each for each in (" ".join(words[:2]), words[0]) if each in VERBS or each in OTHERS)
    known = set(OTHERS.get(verb, ()))
    kinds = [load_verb(verb)] if verb in VERBS else []
    if verb == "run" and words[1] in RECIPES:
        recipe = ExperimentFile.read(words[1])
        kinds = list(recipe.select([word for word in words[2:] if word in recipe.stages]).load_verbs().values())
    elif verb == "run":  # a file of the page, which may be of any verb
        kinds = [load_verb(each) for each in VERBS]
    for kind in kinds:
        known |= {each.flag for each in kind.listed.values()} | {"--model", "--quiet", "--dry-run"}
        known |= {f"--no-{name.replace('_', '-')}" for name in kind.listed}
    flags = {word.partition("=")[0] for word in words if word.startswith("--")}
    assert flags <= known | {"--help", "--help-all"}
    named = {after.partition("=")[0] for word, after in pairwise(words) if word == "--set"}
    assert named <= {each.name for each in fields(MeasuredArguments)}


def test_what_the_readme_shows_of_a_plan_is_what_is_printed(monkeypatch: pytest.MonkeyPatch) -> None:
    block = README.partition(f"    $ {RUN[0]}\n")[2].partition("\n\n")[0]
    shown = [line.strip() for line in block.splitlines()]
    printed = layerwise("plan", "0-4 (5|6|7) 8-11", "--depth", "12").out
    assert [line.strip() for line in printed.splitlines()][: len(shown)] == shown


@pytest.mark.slow
def test_the_python_of_the_readme_prints_what_it_shows() -> None:
    first, *_ = re.findall(r"```python\n(.*?)```\n\n((?:    [^\n]*\n)+)", README, re.DOTALL)
    code, shown = first
    printed = io.StringIO()
    with redirect_stdout(printed):
        exec(code, {})
    assert printed.getvalue().splitlines() == [line.strip() for line in shown.splitlines()]


@pytest.mark.nightly
def test_the_commands_in_sequence_in_one_empty_folder(tmp_path: Path) -> None:
    environment = threaded(HF_HUB_OFFLINE="1", NO_COLOR="1")
    for command in RUN:
        ended = subprocess.run(
            [sys.executable, "-m", "layerwise", *shlex.split(command)[1:]],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert ended.returncode == 0, f"{command}\n{ended.stdout}{ended.stderr}"
        assert "Traceback" not in ended.stderr
    assert {"runs", "shallow"} == {path.name for path in tmp_path.iterdir()}
