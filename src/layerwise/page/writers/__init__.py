"""Writers of all kinds of run: HTML, Markdown and terminal text."""

from layerwise.page.writers.html import write_chapters
from layerwise.page.writers.text import markdown_parts, terminal_lines

__all__ = ["markdown_parts", "terminal_lines", "write_chapters"]
