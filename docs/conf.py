"""The documentation site. Law: the built pages load nothing from another host (offline.py checks it)."""

import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE.parent / "src"), str(HERE)]  # the package of this tree, and plain_docstrings

from weft import __version__  # noqa: E402

project = "Weft"
author = "The Weft authors"
version = release = __version__

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx_copybutton",
    "sphinx_design",
    "plain_docstrings",
    "reference_tables",
]
exclude_patterns = ["pictures"]
nitpicky = False  # annotations name types that have no page of their own

# Pages are Markdown with headings as link targets: [Limits](guides/filters.md#limits).
myst_heading_anchors = 3
myst_enable_extensions = ["attrs_block", "colon_fence", "deflist"]

# Docstrings are plain text with doctests; a name in backquotes is code.
default_role = "code"
autodoc_member_order = "bysource"
autodoc_default_options = {"members": True}
autodoc_preserve_defaults = True
python_use_unqualified_type_names = True
python_maximum_signature_line_length = 180
add_module_names = False
toc_object_entries_show_parents = "hide"

# A copied example can be pasted: prompts and outputs stay behind.
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True
copybutton_only_copy_prompt_lines = True
copybutton_copy_empty_lines = False

html_theme = "furo"
html_title = f"Weft {version}"
html_copy_source = False
html_show_sphinx = False
html_show_copyright = False
html_static_path = ["static"]
html_css_files = ["weft.css"]
html_theme_options = {
    "navigation_with_keys": True,
    "light_css_variables": {"color-brand-primary": "#1f6f8b", "color-brand-content": "#1f6f8b"},
    "dark_css_variables": {"color-brand-primary": "#6cc0dc", "color-brand-content": "#6cc0dc"},
}
pygments_style = "tango"
pygments_dark_style = "github-dark"
