"""`tools/words.py`: its figures for a small file, its limits, and the folders that keep them."""

import pytest

from tools import words

SOURCE = '''"""A module."""

LIMIT = 3  # not in a function


def joined(parts):
    """A docstring of
    two lines."""
    found = []
    # Each part once.
    for part in parts:
        found.append(part)

    def back_up(x):
        there = x
        return there

    return back_up(found)


def speed(found, expected):  # a noun in -ed; arguments are not local names
    total = found + expected
    return total


def is_reached():
    return True
'''


@pytest.fixture
def source(tmp_path):
    path = tmp_path / "module.py"
    path.write_text(SOURCE)
    return path


def test_figures_of_a_file(source):
    numbers, places = words.count(source)
    # joined: found, part, there; back_up: there; speed: total.
    assert (numbers["locals"], numbers["words"]) == (5, 3)
    assert (numbers["functions"], numbers["participles"]) == (4, 2)
    assert (numbers["code"], numbers["comments"]) == (14, 3)
    assert [place.split(" ", 1)[1] for place in places] == [
        "joined: found, there", "is_reached: participle", "back_up: there",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("limits", "status"),
    [
        (["--function-words", "60", "--participles", "50", "--comments", "21"], 0),
        (["--function-words", "59"], 1),
        (["--participles", "49"], 1),
        (["--comments", "22"], 1),
    ],
)
def test_limits(source, capsys, limits, status):
    assert words.main([str(source), *limits]) == status
    assert bool(capsys.readouterr().err) == bool(status)


def test_words_of_the_folders_of_algorithms(capsys):
    parts = ("agents", "planning", "experiments", "random", "numerics", "envs/papers", "decisions/information")
    folders = [str(words.ROOT / "bayes_mdp" / part) for part in parts]
    assert words.main([*folders, "--function-words", "1", "--participles", "3"]) == 0, capsys.readouterr().err


@pytest.mark.parametrize("word", ["kept", "joined", "learnt", "unrolled"])
def test_participles(word):
    assert words.is_participle(word)


@pytest.mark.parametrize("word", ["seed", "expected", "known", "join", "embed", "values"])
def test_other_words(word):
    assert not words.is_participle(word)
