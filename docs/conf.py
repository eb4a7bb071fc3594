"""Configuration of the site (`make docs`). Nothing is downloaded, and every command and cell is run."""

from __future__ import annotations

import os
import sys
from importlib import metadata
from pathlib import Path

from jupyter_client.manager import KernelManager

sys.path.insert(0, str(Path(__file__).parent / "extensions"))
os.environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"  # commands use this layerwise
os.environ["COLUMNS"] = "88"
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
os.environ.setdefault("NO_COLOR", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")  # more threads do not help small models
os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
os.environ.setdefault("PYTHONWARNINGS", "ignore:IProgress not found")  # progress bars of notebooks are off
KernelManager.transport_encryption.default_value = "auto"  # otherwise each page warns

project = "layerwise"
author = "the layerwise contributors"
project_copyright = author
release = version = metadata.version("layerwise")

extensions = [
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx.ext.duration",  # prints the slowest pages
    "sphinx_copybutton",
    "sphinx_design",
    "api_pages",
    "directives",
]
exclude_patterns = ["extensions", "static"]
templates_path: list[str] = []
suppress_warnings = ["mystnb.unknown_mime_type"]  # results are shown as HTML, their text is for terminals
nitpicky = True
nitpick_ignore = [("py:obj", "layerwise.manifest")]  # a key in a Parquet file
nitpick_ignore_regex = [
    ("py:class", ".*"),  # types of other projects, whose inventories need a network, and aliases
    ("py:obj", r"(?!layerwise\.).*"),
    ("py:exc", r"\w+"),  # short names in sections on errors
]

myst_enable_extensions = ["colon_fence", "deflist", "fieldlist"]
myst_heading_anchors = 3
nb_execution_mode = "force"
nb_execution_in_temp = True
nb_execution_timeout = 900
nb_execution_show_tb = True
nb_merge_streams = True

autodoc_member_order = "bysource"
autodoc_inherit_docstrings = False
autodoc_class_signature = "mixed"
autodoc_typehints_format = "short"
python_maximum_signature_line_length = 80
python_use_unqualified_type_names = True

html_theme = "furo"
html_title = f"layerwise {version}"
html_static_path = ["static"]
html_css_files = ["site.css"]
html_show_sourcelink = False
html_use_index = False  # use the search or the API pages
html_domain_indices = False
html_copy_source = False
smartquotes_action = "qe"  # quotes and ellipses, but not the two hyphens of options
pygments_style = "default"
pygments_dark_style = "monokai"
copybutton_prompt_text = r"^\$ "
copybutton_prompt_is_regexp = True
copybutton_only_copy_prompt_lines = True
html_theme_options = {
    "light_css_variables": {"color-brand-primary": "#3b3f9e", "color-brand-content": "#3b3f9e"},
    "dark_css_variables": {"color-brand-primary": "#b3b6ff", "color-brand-content": "#b3b6ff"},
}
