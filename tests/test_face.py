"""The face: light to import, complete, lazy."""

import dataclasses
import importlib
import inspect
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import bayes_mdp as bm
from bayes_mdp.renamed import MOVED, PLACES, RENAMED, UNLISTED, accepts_moved, new_argument
from tools.public_names import find, public_names

CHECKED = os.environ.get("BAYES_MDP_TYPES", "off") != "off"
"""Whether annotations are checked: by a call around each function, before the function says anything."""
HEAVY = ("cvxpy", "arviz", "gymnasium", "numpyro", "matplotlib", "pandas", "xarray")


def test_importing_the_package_loads_nothing_heavy():
    code = f"import sys, bayes_mdp; print([m for m in {HEAVY} if m in sys.modules])"
    assert (
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip() == "[]"
    )


def test_agents_and_planning_load_neither_numpyro_nor_arviz_nor_cvxpy():
    code = "import sys, bayes_mdp.agents, bayes_mdp.planning; print([m for m in %r if m in sys.modules])"
    shown = subprocess.run(
        [sys.executable, "-c", code % (HEAVY[:4],)], capture_output=True, text=True, check=True
    ).stdout
    assert shown.strip() == "[]"


def test_who_names_a_prior_loads_neither_agents_nor_plots():
    code = """
import sys
from bayes_mdp.experiments.registry_names import find_prior
find_prior("sticky")
print([m for m in ("matplotlib", "xarray", "gymnasium", "bayes_mdp.agents", "bayes_mdp.inference") if m in sys.modules])
"""
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert shown.stdout.strip() == "[]"


def test_no_file_of_experiments_has_the_name_of_what_is_listed():
    """Python would bind the module where the function is expected, once the file is loaded."""
    folder = Path(bm.experiments.__path__[0])
    listed = re.findall(r"^from .* import .* as (\w+)$", (folder / "__init__.pyi").read_text(), re.MULTILINE)
    assert "run" in listed and not {path.stem for path in folder.iterdir()} & set(listed)


def test_every_public_name_is_there():
    assert [name for name in bm.__all__ if not hasattr(bm, name)] == []
    assert set(bm.__all__) <= set(dir(bm))


def test_the_face_is_one_screen():
    """About forty names: what is added here takes the place of something."""
    assert len(bm.__all__) <= 45 and not set(bm.__all__) & set(RENAMED)


@pytest.mark.parametrize("name", sorted(PLACES))
def test_a_name_of_the_last_version_works_and_says_the_new_one(name):
    package, _, attribute = f"bayes_mdp.{name}".rpartition(".")
    module, _, new = f"bayes_mdp.{PLACES[name]}".rpartition(".")
    says = f"is bm.{RENAMED[name]} since" if name in RENAMED else f"is not listed since .*import {new} from {module}"
    with pytest.warns(FutureWarning, match=rf"^bm\.{name} {says}") as told:
        thing = getattr(importlib.import_module(package), attribute)
    assert len(told) == 1 and (CHECKED or told[0].filename == __file__)
    assert thing is getattr(importlib.import_module(module), new)


def test_a_name_of_the_last_version_is_listed_nowhere():
    """And what a table sends to is listed, or defined by the module that is named."""
    for name in PLACES:
        package, _, attribute = f"bayes_mdp.{name}".rpartition(".")
        assert attribute not in importlib.import_module(package).__dict__.get("__all__", []), name
    assert not RENAMED.keys() & {name for names in UNLISTED.values() for name in names.split()}
    for place in RENAMED.values():
        module, _, attribute = f"bayes_mdp.{place}".rpartition(".")
        assert attribute in importlib.import_module(module).__all__, place


def test_what_was_never_there_is_an_attribute_error():
    with pytest.raises(AttributeError, match="module 'bayes_mdp' has no attribute 'no_such_name'"):
        getattr(bm, "no_such_name")  # noqa: B009 (a type checker knows that there is none)
    assert not hasattr(bm, "no_such_name") and bm.mdp.Posterior is not None
    for package in (bm.mdp, bm.agents):
        with pytest.raises(AttributeError, match="no_such_name"):
            getattr(package, "no_such_name")  # noqa: B009


def test_documented_names_are_few():
    """What a person can type: a new name takes the place of something, or says why it cannot."""
    assert len(public_names()) <= 350


def test_the_page_of_changes_is_the_table():
    page = (Path(__file__).parent.parent / "docs/reference/from-0-2-to-0-3.md").read_text()
    assert dict(re.findall(r"^\| `bm\.(\S+)` \| `bm\.(\S+)` \|$", page, re.MULTILINE)) == RENAMED
    rows = re.findall(r"^\| `(?!bm\.)([a-z_.]+)` \| ((?:`\S+`(?:, )?)+) \|$", page, re.MULTILINE)
    assert {module: " ".join(re.findall(r"`(\S+)`", names)) for module, names in rows} == UNLISTED


def test_the_page_of_changes_has_every_argument():
    page = (Path(__file__).parent.parent / "docs/reference/from-0-2-to-0-3.md").read_text()
    rows = re.findall(r"^\| `bm\.(\S+)\((\w+)=\.\.\.\)` \| `(\S+)` \|$", page, re.MULTILINE)
    assert rows == [(door, name, new_argument(door, name)) for door in MOVED for name in MOVED[door].fields]


@pytest.mark.parametrize("door", MOVED)
def test_an_argument_that_moved_is_a_field_of_the_record_of_options(door):
    parameters = inspect.signature(public(f"bayes_mdp.{door}")).parameters
    if not MOVED[door].record:
        assert parameters.keys() >= set(MOVED[door].fields.values()) and parameters.keys().isdisjoint(
            MOVED[door].fields
        )
        return
    record = public(f"bayes_mdp.{MOVED[door].record}")
    assert MOVED[door].argument in parameters
    assert parameters.keys().isdisjoint(MOVED[door].fields)
    assert {field.name for field in dataclasses.fields(record)} >= set(MOVED[door].fields.values())


def public(name):
    module, _, attribute = name.rpartition(".")
    return getattr(importlib.import_module(module), attribute)


@pytest.mark.skipif(CHECKED, reason="the checks stand before the function")
def test_an_argument_of_the_last_version_works_and_says_its_place():
    record = bm.calibration.CheckOptions
    call: Any = accepts_moved("check")(lambda *args, **kwargs: (args, kwargs))
    with pytest.warns(FutureWarning) as told:
        assert call(1, num_draws=50, path="x") == ((1,), {"path": "x", "options": record(num_draws=50)})
    assert [warning.filename for warning in told] == [__file__]
    assert str(told[0].message) == (
        "bm.check(num_draws=...) is bm.check(options=bm.calibration.CheckOptions(num_draws=...)) since 0.3; "
        "the old one goes in 0.4"
    )
    with pytest.warns(FutureWarning):
        both = call(options=record(num_draws=50), quantity="chosen policy", quantities=None)
    assert both == ((), {"options": record(num_draws=50, quantities="chosen policy")})
    given = record(num_draws=50)
    assert call(options=given)[1]["options"] is given and call(2) == ((2,), {})  # no warning


@pytest.mark.skipif(CHECKED, reason="the checks stand before the function")
@pytest.mark.parametrize("door", MOVED)
def test_each_argument_of_the_last_version_warns_at_its_door(door):
    """The door itself says so, before it sees that the rest of the call is missing."""
    for name in MOVED[door].fields:
        says = rf"^bm\.{door}\({name}=\.\.\.\) is bm\.{door}\({re.escape(new_argument(door, name))}\) since 0\.3"
        with pytest.warns(FutureWarning, match=says), pytest.raises((TypeError, ValueError)):
            public(f"bayes_mdp.{door}")(**{name: None})


def test_arguments_of_the_last_version_that_cannot_be_are_refused():
    call: Any = accepts_moved("check")(lambda *args, **kwargs: (args, kwargs))
    with pytest.warns(FutureWarning), pytest.raises(ValueError, match="quantity is 'chosen policy' with quantities"):
        call(quantities={"x": len}, quantity="chosen policy")
    with pytest.warns(FutureWarning), pytest.raises(TypeError, match="options is 3, expected CheckOptions"):
        call(options=3, num_draws=50)
    with pytest.warns(FutureWarning), pytest.raises(ValueError, match="num_draws is 3"):
        call(num_draws=3)


MANY = {
    "read_log": "the columns of a table, and how it is written",
    "behaviour.read_choices": "the columns of a table, and how it is written",
    "run": "an experiment: who plays what, for how long (in steps or in episodes), how often",
    "compare": "an experiment, and the problems of environments without a task",
    "sweeps.sweep": "an experiment, for all cells",
    "policy_value": "what is valued, in which draws, and for whom",
    "check": "what is checked, where, about which data, by how many simulations, and their file",
    "information.next_experiment": "what may be observed, how often, at which cost, and what it is worth",
    "information.net_benefit_of_sampling": "what `evsi` takes, and the sizes and the economics of the study",
    "information.value_of_covariates": "what is known, which policies there are, and for whom",
}
"""Functions with eight arguments or more, and what these are."""


def test_a_function_has_a_handful_of_arguments():
    """What seldom changes goes into a record of options (`MOVED`); what every call says stays an argument."""
    functions: dict[str, Any] = {name: find(name) for name in public_names() if inspect.isroutine(find(name))}
    numbers = {name.removeprefix("bayes_mdp."): len(inspect.signature(f).parameters) for name, f in functions.items()}
    assert {name for name, number in numbers.items() if number >= 8} == set(MANY) and len(MANY) <= 10
    assert sum(number > 8 for number in numbers.values()) <= 5


@pytest.mark.parametrize(("chosen", "level"), [(None, "3"), ("0", "0")])
def test_alarms_of_the_compiler_are_off_unless_asked_for(chosen, level):
    """Set before JAX is loaded, which reads it then; what a user has chosen stays."""
    env = {name: value for name, value in os.environ.items() if name != "TF_CPP_MIN_LOG_LEVEL"}
    env |= {} if chosen is None else {"TF_CPP_MIN_LOG_LEVEL": chosen}
    code = "import os, sys, bayes_mdp; print(os.environ['TF_CPP_MIN_LOG_LEVEL'], 'jax' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True)
    assert done.stdout.split() == [level, "False"]
