"""The examples in the docstrings of the package, each as it stands."""

import ast
import doctest
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


@cache
def examples() -> dict[str, str]:
    """Full name -> docstring, of all that have an example. The source is read: to import all of it takes long."""
    return {name: doc for path in sorted(ROOT.rglob("*.py")) for name, doc in _in_file(path)}


def _in_file(path: Path) -> Iterator[tuple[str, str]]:
    text = path.read_text(encoding="utf-8")
    if ">>> " not in text:
        return
    module = ".".join(path.relative_to(ROOT.parent).with_suffix("").parts).removesuffix(".__init__")
    waiting: list[tuple[str, ast.Module | ast.ClassDef | ast.FunctionDef]] = [(module, ast.parse(text))]
    while waiting:
        name, node = waiting.pop()
        doc = ast.get_docstring(node)
        if doc is not None and ">>> " in doc:
            yield name, doc
        waiting += [(f"{name}.{x.name}", x) for x in node.body if isinstance(x, ast.ClassDef | ast.FunctionDef)]


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
    result = run(name, examples()[name])
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
