# SPDX-License-Identifier: GPL-2.0
"""Sphinx's configuration. `make htmldocs` runs it (scripts/htmldocs)."""

import pathlib
import re

from docutils import nodes

project = "ib_xrc_rcv"
project_copyright = "the ib_xrc_rcv maintainers"
release = (pathlib.Path(__file__).parent.parent / "VERSION").read_text(encoding="ascii").strip()
nitpicky = True
exclude_patterns = ["html"]
html_theme = "alabaster"
html_theme_options = {"page_width": "1100px"}
html_show_sourcelink = False


def link_pages(_app, doctree, _page):
    """Pages link to each other's source, for a web view of the repository."""
    for node in doctree.findall(nodes.reference):
        uri = node.get("refuri", "")
        if not re.match("[a-z]+:", uri):
            node["refuri"] = re.sub(r"^([a-z0-9]+)\.rst(#|$)", r"\1.html\2", uri)


def setup(app):
    """Called by Sphinx."""
    app.connect("doctree-resolved", link_pages)
