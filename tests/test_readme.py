"""Commands and snippets in the documentation work as written.

Commands with placeholders (`MODEL`, `org/name`, a file) are only parsed.
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

PLACEHOLDER = re.compile(r"[A-Z][A-Z0-9_]+|[\w.-]+/[\w.-]+|\./.+|[\w-]+\.(txt|yaml)|texts/|\.\.\.")

OTHER_VERBS = {
    "plan": {"--depth", "--model", "--from", "--to"},
    "report": {"--output", "--format"},
    "run": {"--quiet", "--dry-run"},
}


def find_commands(text: str) -> list[str]:
    lines = re.findall(r"^(?:    (?:\$ )?|\$ |```\{command\} |!)(layerwise [^\n]*)$", text, re.MULTILINE)
    return list(dict.fromkeys(re.split(r"\s+#\s", line)[0].strip() for line in lines))


def find_inline_commands(text: str) -> list[str]:
    return list(dict.fromkeys(re.findall(r"`(layerwise [^`]+)`", re.sub(r"\n *(?=\S)", " ", text))))


def has_placeholder(command: str) -> bool:
    return any(PLACEHOLDER.fullmatch(word) for word in shlex.split(command)[1:])


RUNNABLE = [command for command in find_commands(README) if not has_placeholder(command)]
COMMANDS = sorted({each for text in PAGES.values() for each in (*find_commands(text), *find_inline_commands(text))})


def test_the_readme_is_one_page_with_three_commands() -> None:
    assert len(README.splitlines()) <= 120
    assert [command.split()[1] for command in RUNNABLE] == ["plan", "sweep", "save"]


@pytest.mark.parametrize("command", COMMANDS)
def test_the_verb_and_options_of_a_command_exist(command: str) -> None:
    words = shlex.split(command)[1:]
    if words in (["--help"], ["--version"]):
        return
    verb = next(each for each in (" ".join(words[:2]), words[0]) if each in VERBS or each in OTHER_VERBS)
    options = set(OTHER_VERBS.get(verb, ()))
    kinds = [load_verb(verb)] if verb in VERBS else []
    if verb == "run" and words[1] in RECIPES:
        recipe = ExperimentFile.read(words[1])
        kinds = list(recipe.select([word for word in words[2:] if word in recipe.stages]).load_verbs().values())
    elif verb == "run":  # a file on the page, which may use any verb
        kinds = [load_verb(each) for each in VERBS]
    for kind in kinds:
        options |= {each.flag for each in kind.listed.values()} | {"--model", "--quiet", "--dry-run"}
        options |= {f"--no-{name.replace('_', '-')}" for name in kind.listed}
    flags = {word.partition("=")[0] for word in words if word.startswith("--")}
    assert flags <= options | {"--help", "--help-all"}
    settings = {after.partition("=")[0] for word, after in pairwise(words) if word == "--set"}
    assert settings <= {each.name for each in fields(MeasuredArguments)}


def test_plan_prints_the_output_in_the_readme() -> None:
    printed = layerwise(*shlex.split(RUNNABLE[0])[1:]).out
    lines = [line.strip() for line in printed.partition("\n  0 ")[0].splitlines()]
    assert "".join(f"    {line}\n" for line in lines) in README


@pytest.mark.slow
def test_the_python_code_in_the_readme_prints_the_output_shown() -> None:
    (code, output), *_ = re.findall(r"```python\n(.*?)```\n\n((?:    [^\n]*\n)+)", README, re.DOTALL)
    printed = io.StringIO()
    with redirect_stdout(printed):
        exec(code, {})
    assert printed.getvalue().splitlines() == [line.strip() for line in output.splitlines()]


def test_files_named_in_the_description_of_the_code_exist() -> None:
    paths = re.findall(r"`((?:src|tests)/[\w/.]+)`", PAGES["docs/code.md"])
    assert paths
    assert [path for path in paths if not (ROOT / path).exists()] == []


@pytest.mark.nightly
def test_the_commands_of_the_readme_run_in_an_empty_folder(tmp_path: Path) -> None:
    environment = threaded(HF_HUB_OFFLINE="1", NO_COLOR="1")
    for command in RUNNABLE:
        process = subprocess.run(
            [sys.executable, "-m", "layerwise", *shlex.split(command)[1:]],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert process.returncode == 0, f"{command}\n{process.stdout}{process.stderr}"
    assert {"runs", "shallow"} == {path.name for path in tmp_path.iterdir()}
