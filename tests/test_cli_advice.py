"""Options that messages of the library advise for the shell: the commands that read a log have them."""

import argparse
import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pandas as pd
import pytest

import bayes_mdp
from bayes_mdp.cli import build_parser
from tests.test_cli import refused

ADVICE = re.compile(r"in the shell[^);]*|--[^();]*in the shell")
OPTION = re.compile(r"--([a-z-]+)")
PLACE = "{}"


def texts(source: str) -> Iterator[str]:
    """Every string of a module, in one piece; what is formatted into it is `PLACE`."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value
        elif isinstance(node, ast.JoinedStr):
            yield "".join(str(part.value) if isinstance(part, ast.Constant) else PLACE for part in node.values)


def advised(source: str) -> set[str]:
    """The options that are advised for the shell."""
    said = [advice for text in texts(source) for advice in ADVICE.findall(text)]
    # `--{role}s`: of states and of actions.
    filled = [advice.replace(PLACE, role) for advice in said for role in ("state", "action")]
    return {option for advice in filled for option in OPTION.findall(advice)}


def options_of(command: str) -> set[str]:
    """The long options of a command."""
    commands = next(x for x in build_parser()._actions if isinstance(x, argparse._SubParsersAction))
    return {x.removeprefix("--") for action in commands.choices[command]._actions for x in action.option_strings}


def test_options_that_are_advised_are_there():
    package = Path(bayes_mdp.__file__).parent
    found = set().union(*(advised(path.read_text("utf-8")) for path in package.rglob("*.py")))
    assert {"missing-reward", "states", "actions", "allow-duplicates", "support", "min-count", "next-state"} <= found
    known = options_of("decide") | options_of("fit")
    # What `read_choices` advises is for the command that reads choices.
    of_choices = {"missing"}
    assert of_choices <= options_of("behaviour") and not of_choices & known
    assert found - of_choices <= known, found - known


def test_an_option_that_is_not_there_is_found():
    source = 'x = f"name all labels ({role}s=[...]; in the shell --{role}s A,B or " "--no-such-option)"'
    assert advised(source) == {"states", "actions", "no-such-option"}


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--reward", "r", "--next-state", "s2"), "in the shell --missing-reward ignore"),
        (("--reward", "r"), "(in the shell --next-state or --episode)"),
    ],
)
def test_errors_of_a_log_name_the_option(capsys, tmp_path, options, said):
    path = tmp_path / "log.csv"
    pd.DataFrame({"s": [0, 1], "a": [0, 1], "r": [1.0, None], "s2": [1, 0]}).to_csv(path, index=False)
    refused(capsys, said, "fit", path, "--state", "s", "--action", "a", *options)
