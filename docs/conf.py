"""Sphinx: Markdown pages by MyST, the Furo theme; `make docs` treats warnings as errors."""

from pygments.lexers.special import TextLexer
from sphinx.application import Sphinx

project = "Nexus"
project_copyright = "The Nexus authors, Apache License 2.0"
extensions = ["myst_parser"]
source_suffix = {".md": "markdown"}
exclude_patterns = ["_build"]
myst_heading_anchors = 3
html_theme = "furo"
html_title = "Nexus"


def setup(app: Sphinx) -> None:
    """Diagrams are fenced as `mermaid`, which code hosts draw; here they stay readable text."""
    app.add_lexer("mermaid", TextLexer)
