"""Pages of the documentation that messages name."""

DOCS = "docs/"
"""Where they are: in the checkout. A public address takes its place when there is one."""


def see(page: str) -> str:
    """What a message ends with: "(see docs/how-to/read-a-log.md)".

    Args:
        page: its path in the documentation, without an ending.
    """
    return f"(see {DOCS}{page}.md)"
