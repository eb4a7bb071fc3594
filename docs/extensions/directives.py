"""Directives of the site: commands with their output, files, reports and plans.

    ```{command} layerwise plan "0-3 (4|5"     run when the site is built; `:status: 2` is the expected exit status,
    :status: 2                                 `:last: 4` shows the last four lines of the output
    ```
    ```{file} experiment.yaml                  a file that later commands of the page can use
    ```{report} runs/demo/report.html          a screenshot of a report, linked to a copy of it
    ```{plan} 0-4 (5|6|7) 8-11                 the picture, description and cost of a plan

The commands of a page run in order in one empty folder. With `-D run_commands=0` none is run.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import tempfile
from html import escape
from pathlib import Path
from typing import ClassVar

from docutils import nodes
from docutils.parsers.rst import directives
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.util import logging
from sphinx.util.docutils import SphinxDirective

from forked import run_forked
from layerwise.page import draw_wiring
from layerwise.plan import Plan
from layerwise.plan.explain import explain

MAX_SECONDS = 900
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
THEMES = ("light", "dark")
SIZE = (1200, 760)
DEMO_DEPTH = 12

_LOG = logging.getLogger(__name__)
_SOURCE_LINK = re.compile(r"\]\(((?:\.\./)+src/[^)]+\.md)\)")


def work_folder(environment: BuildEnvironment) -> Path:
    """Return the folder in which the commands of the current page run."""
    return Path(environment.doctreedir).parent / "docs-work" / environment.docname


class Command(SphinxDirective):
    """A command line and its output."""

    required_arguments = 1
    final_argument_whitespace = True
    option_spec: ClassVar = {"status": directives.nonnegative_int, "last": directives.nonnegative_int}

    def run(self) -> list[nodes.Node]:
        expected = self.options.get("status", 0)
        command, folder = self.arguments[0], work_folder(self.env)
        folder.mkdir(parents=True, exist_ok=True)
        status, output = run_command(command, folder) if self.config.run_commands else (expected, "")
        if status != expected:
            text = "%s ended with status %d:\n%s"
            _LOG.warning(text, command, status, output, location=self.get_location())
        text = f"$ {command}\n{last_lines(output, self.options.get('last'))}".rstrip()
        return [nodes.literal_block(text, text, language="console", classes=["command"])]


def run_command(command: str, folder: Path) -> tuple[int, str]:
    """Run a shell command, and return its exit status and output."""
    words = shlex.split(command)
    if words[0] == "layerwise":
        status, output = run_forked(words, folder, MAX_SECONDS)
        return status, output.rstrip()
    process = subprocess.run(
        command,
        shell=True,
        cwd=folder,
        timeout=MAX_SECONDS,
        check=False,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    return process.returncode, process.stdout.rstrip()


def last_lines(output: str, count: int | None) -> str:
    r"""Return the last lines of an output after an ellipsis.

    >>> last_lines("a\nb\nc", 2)
    '...\nb\nc'
    """
    lines = output.splitlines()
    return output if count is None or len(lines) <= count else "\n".join(["...", *lines[len(lines) - count :]])


class File(SphinxDirective):
    """A file for the commands of the page; its suffix is its language."""

    required_arguments = 1
    has_content = True

    def run(self) -> list[nodes.Node]:
        path = work_folder(self.env) / self.arguments[0]
        path.parent.mkdir(parents=True, exist_ok=True)
        text = "\n".join(self.content)
        path.write_text(f"{text}\n", encoding="utf-8")
        block = nodes.literal_block(text, text, language=path.suffix.removeprefix("."))
        return [nodes.container("", nodes.paragraph("", "", nodes.literal("", path.name)), block, classes=["file"])]


class Report(SphinxDirective):
    """A screenshot of a report in both themes, or only a link if there is no Chromium."""

    required_arguments = 1
    has_content = True
    option_spec: ClassVar = {"title": directives.unchanged_required}

    def run(self) -> list[nodes.Node]:
        source = work_folder(self.env) / self.arguments[0]
        if not self.config.run_commands:
            return self.parse_content_to_nodes()
        if not source.is_file():
            _LOG.warning("there is no report %s", source, location=self.get_location())
            return []
        name = source.parent.name
        folder = Path(self.env.app.outdir) / "reports"
        folder.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, folder / f"{name}.html")
        browser = next((path for each in BROWSERS if (path := shutil.which(each))), None)
        if browser:
            html = source.read_text(encoding="utf-8")
            for theme in THEMES:
                take_screenshot(browser, html, theme, folder / f"{name}-{theme}.png")
        path = f"{'../' * self.env.docname.count('/')}reports/{name}"
        pictures = "".join(
            f'<img class="only-{theme}" src="{path}-{theme}.png" width="{SIZE[0]}" height="{SIZE[1]}" alt="" />'
            for theme in THEMES
            if browser
        )
        title = escape(self.options.get("title", name))
        link = f'<p class="report"><a href="{path}.html">{pictures}<span>{title}: full report</span></a></p>'
        return [nodes.raw("", link, format="html"), *self.parse_content_to_nodes()]


def take_screenshot(browser: str, html: str, theme: str, picture: Path) -> None:
    """Save the top of a report as a picture."""
    with tempfile.TemporaryDirectory() as folder:
        page = Path(folder) / "page.html"
        page.write_text(html.replace("<html ", f'<html data-theme="{theme}" ', 1), encoding="utf-8")
        subprocess.run(
            [
                browser,
                "--headless=new",
                "--no-sandbox",
                "--disable-gpu",
                "--disable-dev-shm-usage",
                "--hide-scrollbars",
                "--virtual-time-budget=30000",
                f"--window-size={SIZE[0]},{SIZE[1]}",
                f"--user-data-dir={folder}/profile",
                f"--screenshot={picture}",
                page.as_uri(),
            ],
            check=True,
            capture_output=True,
            timeout=120,
            env={**os.environ, "HOME": folder},
        )


class PlanPicture(SphinxDirective):
    """The wiring of a plan, its description and its cost, followed by prose."""

    required_arguments = 1
    final_argument_whitespace = True
    has_content = True
    option_spec: ClassVar = {"depth": directives.positive_int}

    def run(self) -> list[nodes.Node]:
        plan = Plan.parse(self.arguments[0])
        depth = self.options.get("depth", DEMO_DEPTH)
        picture = nodes.raw("", draw_wiring(plan, depth, title=f"The wiring of {plan}"), format="html")
        title = nodes.paragraph("", "", nodes.literal(str(plan), str(plan)))
        steps = (nodes.list_item("", nodes.paragraph("", line)) for line in explain(plan, depth).splitlines())
        cost = nodes.paragraph("", describe_cost(plan), classes=["plan-cost"])
        words = nodes.container("", title, nodes.bullet_list("", *steps), cost, classes=["plan-words"])
        words += self.parse_content_to_nodes()
        return [nodes.container("", nodes.container("", picture, classes=["plan-drawn"]), words, classes=["plan"])]


def describe_cost(plan: Plan) -> str:
    """Return the cost of a plan in one line.

    >>> describe_cost(Plan.parse("0-4 (5|6|7) 8-11"))
    '12 layer evaluations in 10 sequential stages; 12 layers of weights; 12 KV slots'
    """
    cost = plan.cost()
    return (
        f"{cost.evaluations} layer evaluations in {cost.stages} sequential stages;"
        f" {cost.weights} layers of weights; {cost.slots} KV slots"
    )


def _start_page(app: Sphinx, docname: str, content: list[str]) -> None:
    """Empty the work folder, and link Markdown files outside the site, such as model cards, as files."""
    shutil.rmtree(work_folder(app.env), ignore_errors=True)
    content[0] = _SOURCE_LINK.sub(r"](path:\1)", content[0])


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("source-read", _start_page)
    app.add_directive("command", Command)
    app.add_directive("file", File)
    app.add_directive("report", Report)
    app.add_directive("plan", PlanPicture)
    app.add_config_value("run_commands", True, "env", bool)
    return {"parallel_read_safe": True}
