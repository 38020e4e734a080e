"""Printed results, without the breaks of their lines."""


def unwrapped(shown: object) -> str:
    """What `print` shows, all in one line, one space between two words."""
    return " ".join(str(shown).split())
