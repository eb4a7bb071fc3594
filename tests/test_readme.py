"""The README's commands, as a newcomer types them: one after another, in one empty folder.

Every indented line of the README that begins with `layerwise` or `python examples/`, with a `$` before it or not, is a
command. It is run as it stands, and ends with 0 (with 2 where the README shows its error), unless it names what only
its reader has: a word in capitals that stands for something (`MODEL`, `FOLDER`), a name of the hub (`org/name`), or a
file of the reader's own. Of those, and of commands within sentences, the verb and the flags must exist. What takes more
than minutes runs with fewer steps.
"""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import typer

from cli.test_help import commands
from layerwise.cli.app import app
from threads import threaded

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")

SHORTER = {
    "layerwise train elc --size tiny": "--steps 8",
    "layerwise train growth --schedule stacking --seeds 3": "--steps 12",
    "layerwise study layer-weights": "--steps 8 --seeds 2",
    "layerwise study growth": "--steps 16 --seeds 2",
}
"""What is added to a command that takes long."""

READERS = re.compile(r"[A-Z][A-Z0-9_]+|[\w.-]+/[\w.-]+|\./.+|[\w-]+\.(txt|yaml)|texts/")
"""A word that names what only the reader has; a whole word of a command, or what stands behind its `=`."""


def shown() -> list[str]:
    """The commands of the README's indented blocks, without their comments."""
    lines = re.findall(r"^    (?:\$ )?((?:layerwise|python examples/)[^\n]*)$", README, re.MULTILINE)
    return list(dict.fromkeys(re.split(r"\s+#\s", line)[0].strip() for line in lines))


def told() -> list[str]:
    """The commands within sentences; a line may end within one."""
    found = re.findall(r"`(layerwise [^`]+)`", re.sub(r"\n *(?=\S)", " ", README))
    return list(dict.fromkeys(found))


def is_readers_own(command: str) -> bool:
    words = shlex.split(command)[1:]
    return command.startswith("layerwise") and any(READERS.fullmatch(word) or word == "..." for word in words)


def fails(command: str) -> bool:
    """Whether the README shows the error of the command below it."""
    return re.search(rf"^    \$ {re.escape(command)}\n    error: ", README, re.MULTILINE) is not None


RUN = [command for command in shown() if not is_readers_own(command)]
OTHERS = [command for command in (*shown(), *told()) if command not in RUN]


def test_the_first_quarter_of_an_hour_is_run_and_templates_are_not() -> None:
    assert RUN[0] == "python examples/01_first_plan.py"
    assert "layerwise robustness demo-vit --seeds 1" in RUN
    assert len(RUN) >= 15
    assert set(SHORTER) <= set(RUN)
    assert "layerwise sweep MODEL --text FILE_OR_FOLDER" in OTHERS
    assert 'layerwise sweep ./my-checkpoint --text book.txt --plan "0-13 18-29" --plan "0-29 0-29"' in OTHERS
    assert [command for command in RUN if fails(command)] == ['layerwise plan "0-3 (4|5"']


@pytest.mark.parametrize("command", OTHERS)
def test_a_command_that_cannot_be_run_here_has_a_verb_and_flags_that_exist(command: str) -> None:
    verbs = dict(commands(typer.main.get_command(app)))
    words = command.split()[1:]
    group = words[0] in ("train", "study")
    verb = " ".join(words[: 1 + group]) if not group else f"{words[0]} {words[1]}"
    verb = verb if verb in verbs or not group else f"{words[0]} METHODS"
    assert verb in verbs
    known = {flag for parameter in verbs[verb].params for flag in parameter.opts}
    assert {word.partition("=")[0] for word in words if word.startswith("--")} <= known


@pytest.mark.slow
@pytest.mark.exhaustive
def test_the_commands_in_sequence_in_one_empty_folder(tmp_path: Path) -> None:
    environment = threaded(HF_HUB_OFFLINE="1", NO_COLOR="1")
    for command in RUN:
        program, *words = shlex.split(command)
        if program == "python":
            words[0] = str(ROOT / words[0])
        else:
            words = ["-m", "layerwise", *words, *SHORTER.get(command, "").split()]
        ended = subprocess.run(
            [sys.executable, *words], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
        )
        assert ended.returncode == (2 if fails(command) else 0), f"{command}\n{ended.stdout}{ended.stderr}"
        assert "Traceback" not in ended.stderr
    assert {"runs", "shallow"} == {path.name for path in tmp_path.iterdir()}


@pytest.mark.slow
def test_the_first_example_prints_what_the_readme_shows() -> None:
    ended = subprocess.run(
        [sys.executable, ROOT / "examples" / "01_first_plan.py"], env=threaded(HF_HUB_OFFLINE="1"),
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    block = "".join(f"    {line}\n" for line in ended.stdout.splitlines())
    assert f"    $ python examples/01_first_plan.py\n{block}" in README
