"""The examples in the docstrings of the package, each as it stands."""

import ast
import doctest
import re
from collections.abc import Iterator
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import bayes_mdp as bm

ROOT = Path(bm.__file__).parent
FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
NEEDS = {
    "BAMCP": "numba",
    "BayesAdaptivePlan": "numba",
    "plan_bayes_adaptive": "numba",
    "DQN": "optax",
    "train": "optax",
    "Training": "optax",
    "load_training": "optax",
    "evaluate_agent": "optax",
    "plot_training": "optax",
    "plot_visits": "optax",
    "icu_sepsis": "icu_sepsis",
    "ICUSepsis": "icu_sepsis",
    "gymnax_env": "gymnax",
    "GymnaxEnv": "gymnax",
}
"""Name -> the module without which its example is left out."""
LINE = re.compile(r"^(?P<indent> *)(?:(?:class|def) (?P<name>\w+)|>>> )", re.MULTILINE)
"""Where a class or a function begins, or a line of an example."""


@cache
def examples() -> dict[str, Path]:
    """Full name -> file, of all that have an example.

    Lines are read, nothing is parsed or imported: this happens wherever tests are collected, most often for others.
    """
    return {name: path for path in sorted(ROOT.rglob("*.py")) for name in _in_file(path.read_text("utf-8"), path)}


def _in_file(text: str, path: Path) -> Iterator[str]:
    if ">>> " not in text:
        return
    module = ".".join(path.relative_to(ROOT.parent).with_suffix("").parts).removesuffix(".__init__")
    # What the line is inside of: (indentation, name).
    around: list[tuple[int, str]] = []
    for line in LINE.finditer(text):
        indent, name = len(line["indent"]), line["name"]
        around = [outer for outer in around if outer[0] < indent]
        if name is None:
            yield ".".join([module, *(name for _, name in around)])
        else:
            around.append((indent, name))


def doc_of(name: str) -> str:
    """The docstring of a name of `examples`."""
    path = examples()[name]
    node: ast.AST = ast.parse(path.read_text("utf-8"))
    module = ".".join(path.relative_to(ROOT.parent).with_suffix("").parts).removesuffix(".__init__")
    for part in name.removeprefix(module).split(".")[1:]:
        assert isinstance(node, ast.Module | ast.ClassDef)
        # The last one: what stands before it is an overload.
        node = [x for x in node.body if isinstance(x, ast.ClassDef | ast.FunctionDef) and x.name == part][-1]
    assert isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef)
    return ast.get_docstring(node) or ""


def run(name: str, doc: str) -> doctest.TestResults:
    """Run the example of one docstring; pytest shows what it prints where it fails."""
    names = {"bm": bm, "jax": jax, "jnp": jnp, "np": np}
    test = doctest.DocTestParser().get_doctest(doc, names, name, None, 0)
    return doctest.DocTestRunner(optionflags=FLAGS).run(test)


def check(name: str) -> None:
    """Fail where the example of a name does not print what it says."""
    needed = NEEDS.get(name.rpartition(".")[2])
    if needed is not None and find_spec(needed) is None:
        pytest.skip(f"{needed} is not installed")
    result = run(name, doc_of(name))
    assert result.attempted > 0
    assert result.failed == 0


LONG = frozenset(
    {
        "Actor",
        "anchored_values",
        "BAMCP",
        "BayesAdaptivePlan",
        "check",
        "choose",
        "compare",
        "compare_policies",
        "criticise",
        "dataset",
        "decide",
        "DQN",
        "evaluate_agent",
        "expected_regret",
        "KLearning",
        "Laplace",
        "load_result",
        "load_training",
        "loo_pit",
        "next_experiment",
        "Outcome",
        "plot_check",
        "plot_policies",
        "plot_training",
        "plot_visits",
        "policy_value",
        "PolicyStudy",
        "prior_sensitivity",
        "probability_optimal",
        "PSRL",
        "random_environment",
        "run",
        "RunOptions",
        "sbc",
        "split_return_variance",
        "SVI",
        "train",
        "Training",
        "UBE",
        "UCBVI",
    }
)
"""Last parts of the names whose examples take longer than two seconds."""


@pytest.fixture(autouse=True)
def _own_folder(tmp_path, monkeypatch):
    """Files that an example writes do not end up in the checkout."""
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("name", sorted(x for x in examples() if x.rpartition(".")[2] not in LONG))
def test_example(name):
    check(name)


@pytest.mark.parametrize("name", sorted(x for x in examples() if x.rpartition(".")[2] in LONG))
def test_long_example(name):
    check(name)


def test_a_wrong_example_fails(capsys):
    assert run("wrong", "Example:\n    >>> 1 + 1\n    3\n").failed == 1
    assert run("right", "Example:\n    >>> print(np.ones(2))\n    [1. ...]\n") == doctest.TestResults(0, 1)


def test_examples_are_found():
    assert len(examples()) > 150
    for name in ("bayes_mdp.planning.solve.solve", "bayes_mdp.mdp.objectives.Discounted"):
        assert name in examples()
    names = {name.rpartition(".")[2] for name in examples()}
    assert set(LONG) | set(NEEDS) <= names
