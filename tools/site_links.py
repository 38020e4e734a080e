"""Every link and picture inside a built site leads to a file, and every `#anchor` to an id in it.

    python tools/site_links.py build/docs

Prints each that does not, with the page, and ends with exit code 1. Links to other sites are not followed.
"""

import sys
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit


class Page(HTMLParser):
    """Links, pictures and ids of a page.

    Args:
        text: HTML.

    Attributes:
        targets: addresses of links, pictures, scripts and style sheets, in order.
        ids: what `#anchor` may name.
    """

    def __init__(self, text: str) -> None:
        super().__init__()
        self.targets: list[str] = []
        self.ids: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Called by the parser for each tag."""
        named = dict(attrs)
        self.ids.update(value for name in ("id", "name") if (value := named.get(name)))
        for name in ("href", "src"):
            if value := named.get(name):
                self.targets.append(value)


@cache
def read(path: Path) -> Page:
    """The page at `path`, read once."""
    return Page(path.read_text(encoding="utf-8"))


def broken(site: Path) -> list[str]:
    """One sentence for each link that leads nowhere, by page.

    Raises:
        ValueError: `site` holds no HTML page.
    """
    site = site.resolve()
    pages = sorted(site.rglob("*.html"))
    if not pages:
        raise ValueError(f"{site} holds no HTML page, expected the folder of a built site")
    return [
        f"{page.relative_to(site)}: {target!r} {why}"
        for page in pages
        for target in dict.fromkeys(read(page).targets)
        if (why := _trouble(site, page, target))
    ]


def _trouble(site: Path, page: Path, target: str) -> str | None:
    """What is wrong with a link of a page; None: nothing."""
    parts = urlsplit(target)
    if parts.scheme or parts.netloc:
        return None
    path = (page.parent / unquote(parts.path)).resolve() if parts.path else page
    if path.is_dir():
        path = path / "index.html"
    if not path.is_relative_to(site):
        return "leaves the site"
    if not path.is_file():
        return "is no file of the site"
    if parts.fragment and path.suffix == ".html" and unquote(parts.fragment) not in read(path).ids:
        return f"names no id of {path.relative_to(site)}"
    return None


def main(arguments: list[str]) -> int:
    """Check the site in the folder that is named; returns the exit code."""
    if len(arguments) != 1:
        sys.stderr.write("usage: python tools/site_links.py FOLDER\n")
        return 2
    try:
        found = broken(Path(arguments[0]))
    except ValueError as error:
        sys.stderr.write(f"site_links: {error}\n")
        return 2
    sys.stdout.write("".join(f"{line}\n" for line in found))
    sys.stdout.write(f"{len(found)} links lead nowhere\n")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
