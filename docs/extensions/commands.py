"""A command on a page, run when the site is built, with what it prints; a file on a page, written for its commands.

    ```{command} layerwise plan "0-3 (4|5"
    :status: 2
    ```

The commands of a page run one after another in one folder, which is the page's own, so a command can use what an
earlier one wrote, and the files that the page itself shows:

    ```{file} experiment.yaml
    experiment: sweep
    ```

A command that ends with another status than the one that is named is a warning, and a warning fails
the build. With `-D run_commands=0` the pages show the commands and run none, which is quick.
"""

from __future__ import annotations

import shlex
import shutil
import subprocess
from pathlib import Path
from typing import ClassVar

from docutils import nodes
from docutils.parsers.rst import directives
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.util import logging
from sphinx.util.docutils import SphinxDirective

from forked import forked

LIMIT = 900  # seconds; a busy machine takes several times as long as a quiet one


def work_folder(environment: BuildEnvironment) -> Path:
    """Where the commands of the page that is read run; empty when the reading of the page begins."""
    return Path(environment.doctreedir).parent / "docs-work" / environment.docname


def ended(command: str, folder: Path) -> tuple[int, str]:
    """The status of a command as a shell runs it, and all that it prints."""
    words = shlex.split(command)
    if words[0] == "layerwise":
        status, printed = forked(words, folder, LIMIT)
        return status, printed.rstrip()
    done = subprocess.run(
        command,
        shell=True,
        cwd=folder,
        timeout=LIMIT,
        check=False,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    return done.returncode, done.stdout.rstrip()


class Command(SphinxDirective):
    """The directive; its argument is a command line. `last` shows so many lines of what it prints, from the end."""

    required_arguments = 1
    final_argument_whitespace = True
    option_spec: ClassVar = {"status": directives.nonnegative_int, "last": directives.nonnegative_int}

    def run(self) -> list[nodes.Node]:
        expected = self.options.get("status", 0)
        command, folder = self.arguments[0], work_folder(self.env)
        folder.mkdir(parents=True, exist_ok=True)
        status, printed = ended(command, folder) if self.config.run_commands else (expected, "")
        if status != expected:
            text = "%s ended with status %d:\n%s"
            logging.getLogger(__name__).warning(text, command, status, printed, location=self.get_location())
        text = f"$ {command}\n{shortened(printed, self.options.get('last'))}".rstrip()
        return [nodes.literal_block(text, text, language="console", classes=["command"])]


class File(SphinxDirective):
    """A file that the reader is to write; its argument is the name, whose ending says the language."""

    required_arguments = 1
    has_content = True

    def run(self) -> list[nodes.Node]:
        path = work_folder(self.env) / self.arguments[0]
        path.parent.mkdir(parents=True, exist_ok=True)
        text = "\n".join(self.content)
        path.write_text(f"{text}\n", encoding="utf-8")
        shown = nodes.literal_block(text, text, language=path.suffix.removeprefix("."))
        return [nodes.container("", nodes.paragraph("", "", nodes.literal("", path.name)), shown, classes=["file"])]


def shortened(printed: str, last: int | None) -> str:
    """The last lines, below three dots where lines are left out.

    >>> shortened("a\\nb\\nc", 2)
    '...\\nb\\nc'
    """
    lines = printed.splitlines()
    return printed if last is None or len(lines) <= last else "\n".join(["...", *lines[len(lines) - last :]])


def _empty(app: Sphinx, docname: str, content: list[str]) -> None:
    shutil.rmtree(work_folder(app.env), ignore_errors=True)


def setup(app: Sphinx) -> dict[str, bool]:
    """Called by Sphinx."""
    app.connect("source-read", _empty)
    app.add_directive("command", Command)
    app.add_directive("file", File)
    app.add_config_value("run_commands", True, "env", bool)
    return {"parallel_read_safe": True}
