"""A kind of run as HTML, as Markdown and for a terminal: one function an output, for all kinds."""

from layerwise.report.writers.html import chapters
from layerwise.report.writers.text import markdown_parts, terminal_lines

__all__ = ["chapters", "markdown_parts", "terminal_lines"]
