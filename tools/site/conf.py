"""Sphinx configuration for `make site`: builds a site from this repository's Markdown documents."""

import re
import shutil
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
SOURCES = "https://github.com/vprof/vprof/blob/main/"
project = "vprof"
extensions = ["myst_parser"]
root_doc = "README"
include_patterns = ["README.md", "ARCHITECTURE.md", "CHANGELOG.md", "CONTRIBUTING.md", "docs/**/*.md", "docs/*.md"]
html_theme = "furo"
html_title = "vprof"
html_copy_source = False
html_show_sphinx = False
templates_path = [str(HERE / "templates")]
html_favicon = str(ROOT / "web" / "icon.svg")
html_sidebars = {"**": ["sidebar/brand.html", "ask.html", "sidebar/search.html", "sidebar/scroll-start.html",
                        "sidebar/navigation.html", "sidebar/scroll-end.html"]}
html_theme_options = {"navigation_with_keys": True}
myst_heading_anchors = 6
# These warnings are not about links: languages that Pygments lacks, and heading levels.
suppress_warnings = ["misc.highlighting_failure", "myst.header"]


def to_sources(match, folder, pages):
    """Points links to folders, and to files that are no pages, to the repository on GitHub."""
    target = (folder / match["path"]).resolve()
    if not target.is_relative_to(ROOT) or not target.exists() or target.suffix in (".svg", ".png"):
        return match[0]
    if target.suffix == ".md" and target.relative_to(ROOT).with_suffix("").as_posix() in pages:
        return match[0]
    return f"]({SOURCES}{target.relative_to(ROOT).as_posix()})"


def prepare(app, docname, source):
    """Lists all pages on the first one: Sphinx requires every page in a table of contents."""
    folder = Path(app.env.doc2path(docname)).parent
    source[0] = re.sub(r"\]\((?P<path>[^()#:\s]+)\)", lambda m: to_sources(m, folder, app.env.found_docs), source[0])
    if docname == root_doc:
        source[0] += "\n```{toctree}\n:hidden:\n:glob:\n\ndocs/README\ndocs/**\n*\n```\n"


def add_index(app, failed):
    """Copies the first page, made from the README, to index.html."""
    if not failed:
        shutil.copy(Path(app.outdir) / "README.html", Path(app.outdir) / "index.html")


def setup(app):
    app.connect("source-read", prepare)
    app.connect("build-finished", add_index)
