"""The report of a run on a page: a picture of how it begins, linked to the whole.

    ```{report} runs/demo/report.html
    :title: A sweep of the demo model
    ```

The path is one of the folder in which the commands of the page run (`commands`). The report is copied beside the site
as it is. The picture takes a Chromium; a build without one shows the link alone.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from html import escape
from pathlib import Path
from typing import ClassVar

from docutils import nodes
from docutils.parsers.rst import directives
from sphinx.application import Sphinx
from sphinx.util import logging
from sphinx.util.docutils import SphinxDirective

from commands import work_folder

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
THEMES = ("light", "dark")
SIZE = (1200, 760)


def browser() -> str | None:
    """A Chromium of this machine."""
    return next((path for name in BROWSERS if (path := shutil.which(name))), None)


def photographed(html: str, theme: str, picture: Path) -> None:
    """Draw the beginning of a report in one of its two themes."""
    with tempfile.TemporaryDirectory() as folder:
        page = Path(folder) / "page.html"
        page.write_text(html.replace("<html ", f'<html data-theme="{theme}" ', 1), encoding="utf-8")
        subprocess.run(
            [
                str(browser()),
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


class Report(SphinxDirective):
    """The directive; its argument is the path of a report, its content is prose."""

    required_arguments = 1
    has_content = True
    option_spec: ClassVar = {"title": directives.unchanged_required}

    def run(self) -> list[nodes.Node]:
        source = work_folder(self.env) / self.arguments[0]
        if not self.config.run_commands:
            return self.parse_content_to_nodes()
        if not source.is_file():
            logging.getLogger(__name__).warning("there is no report %s", source, location=self.get_location())
            return []
        name = source.parent.name
        folder = Path(self.env.app.outdir) / "reports"
        folder.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, folder / f"{name}.html")
        if browser():
            html = source.read_text(encoding="utf-8")
            for theme in THEMES:
                photographed(html, theme, folder / f"{name}-{theme}.png")
        return [nodes.raw("", self._link(name), format="html"), *self.parse_content_to_nodes()]

    def _link(self, name: str) -> str:
        beside = f"{'../' * self.env.docname.count('/')}reports/{name}"
        title = escape(self.options.get("title", name))
        pictures = "".join(
            f'<img class="only-{theme}" src="{beside}-{theme}.png" width="{SIZE[0]}" height="{SIZE[1]}" alt="" />'
            for theme in THEMES
            if browser()
        )
        return f'<p class="report"><a href="{beside}.html">{pictures}<span>{title}: the whole report</span></a></p>'


def setup(app: Sphinx) -> dict[str, bool]:
    """Called by Sphinx."""
    app.add_directive("report", Report)
    return {"parallel_read_safe": True}
