"""The documentation site: `nox -s docs` builds it into build/docs, and a warning is an error."""

from __future__ import annotations

import os
import sys
from pathlib import Path

os.environ["AIOKPROD_PURE"] = "1"  # the compiled form has no docstrings
HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE / "_ext")]

from aiokprod.version import __version__  # noqa: E402 - after the path is set

project = "aiokprod"
author = "The aiokprod authors"
copyright = "The aiokprod authors"
version = release = __version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx_copybutton", "generated"]
exclude_patterns = ["_ext", "_static", "build.py"]
source_suffix = {".md": "markdown"}
nitpicky = False
default_role = "code"  # docstrings are written with single backticks

myst_enable_extensions = ["attrs_inline", "colon_fence"]
myst_heading_anchors = 4
myst_links_external_new_tab = False

toc_object_entries_show_parents = "hide"
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
autodoc_member_order = "bysource"
autodoc_preserve_defaults = True
autodoc_use_legacy_class_based = False
napoleon_google_docstring = True
napoleon_numpy_docstring = False
napoleon_custom_sections = [("Raised by async with", "params_style")]
napoleon_use_rtype = False

html_theme = "furo"
html_title = f"aiokprod {__version__}"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_sourcelink = False
html_theme_options = {"navigation_with_keys": True}
html_search_scorer = str(HERE / "_ext" / "scorer.js")
copybutton_selector = "div:not(.highlight-text) > div.highlight > pre"  # what is printed is not copied

linkcheck_timeout = 30  # seconds
linkcheck_retries = 2
linkcheck_rate_limit_timeout = 60  # seconds
linkcheck_anchors_ignore_for_url = [r"https://github\.com/"]  # its pages make their anchors in the browser
