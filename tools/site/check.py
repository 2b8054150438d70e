"""Checks a folder of HTML: every relative link leads to a file and an anchor, and pages load nothing from elsewhere.

    python3 tools/site/check.py bin/site
"""

import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit


class Page(HTMLParser):
    """Collects the anchors and links of a page. loaded are the files that a browser requests with it."""

    def __init__(self, path):
        super().__init__()
        self.anchors, self.links, self.loaded = set(), [], []
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag, attrs):
        a = dict(attrs)
        self.anchors.update(filter(None, (a.get("id"), a.get("name"))))
        if tag == "a" and a.get("href"):
            self.links.append(a["href"])
        if tag in ("img", "script", "iframe") and a.get("src"):
            self.loaded.append(a["src"])
        if tag == "link" and a.get("href") and a.get("rel") != "canonical":
            self.loaded.append(a["href"])


def faults(folder):
    """Returns the errors in a folder, one line each."""
    pages = {path: Page(path) for path in sorted(folder.rglob("*.html"))}
    wrong = [] if pages else [f"{folder}: no pages"]
    for path, page in pages.items():
        for link in page.links + page.loaded:
            to = urlsplit(link)
            if to.scheme or to.netloc:
                if link in page.loaded and to.scheme != "data":
                    wrong.append(f"{path}: loads {link}")
                continue
            target = path if not to.path else path.parent / unquote(to.path)
            target = (target / "index.html" if target.is_dir() else target).resolve()
            if not target.is_relative_to(folder) or not target.exists():
                wrong.append(f"{path}: {link}: no such file")
            elif to.fragment and target in pages and unquote(to.fragment) not in pages[target].anchors:
                wrong.append(f"{path}: {link}: no such anchor")
    return wrong


def main():
    wrong = faults(Path(sys.argv[1]).resolve())
    print("\n".join(wrong), file=sys.stderr)
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
