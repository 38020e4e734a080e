"""The templates of CONTRIBUTING.md work: the files run, their tests pass, the registries take their lines."""

import re
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from bayes_mdp import agents, envs, models
from bayes_mdp.mdp import Episodic
from tests.agents.common import test_contract as contract

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "CONTRIBUTING.md").read_text()
REGISTRIES = {"PRIORS": models.PRIORS, "AGENTS": agents.AGENTS, "ENVS": envs.ENVS}
HEADINGS = r"^## Add an? (prior|agent|environment)\n(.*?)(?=^## |\Z)"
SECTIONS = dict(re.findall(HEADINGS, TEXT, re.M | re.S))


def _run(file: str, code: str, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The module of a block, importable as if its file were there."""
    module = ModuleType(file.removesuffix(".py").replace("/", "."))
    monkeypatch.setitem(sys.modules, module.__name__, module)
    exec(compile(code, file, "exec"), vars(module))
    return module


@pytest.fixture
def template(request, monkeypatch):
    """(name in the registry, the object, the module of its tests) of one section."""
    section = SECTIONS[request.param]
    (file, code), (test_file, tests) = re.findall(r"`([\w/]+\.py)`:\n\n```python\n(.*?)```", section, re.S)
    module = _run(file, code, monkeypatch)
    ((name, attribute, registry),) = re.findall(r'one line `"(\w+)": (\w+)`\s+in\s+`(\w+)`', section)
    assert name not in REGISTRIES[registry], "the template is a new one"
    assert Path(file).stem == name and Path(test_file).name == f"test_{name}.py"
    assert Path(test_file).parent == Path("tests", *Path(file).parts[1:-1]), "tests has the folders of bayes_mdp"
    monkeypatch.setitem(REGISTRIES[registry], name, getattr(module, attribute))
    return name, module, _run(test_file, tests, monkeypatch)


def _listed(section: str, folder: Path) -> str:
    """What `bayes-mdp list` prints in a copy of the package that has the file of a section, and its two lines."""
    shutil.copytree(ROOT / "bayes_mdp", folder / "bayes_mdp", ignore=shutil.ignore_patterns("__pycache__"))
    (file, code), _ = re.findall(r"`([\w/]+\.py)`:\n\n```python\n(.*?)```", section, re.S)
    (folder / file).write_text(code)
    lines = r"In `(\S+)`: the import, and one line `(\S+ (\w+))`\s+in\s+`(\w+)`"
    ((place, line, name, registry),) = re.findall(lines, section)
    entries = re.sub(rf"^{registry}\b.* = {{$", rf"\g<0>\n    {line},", (folder / place).read_text(), flags=re.M)
    (folder / place).write_text(f"from {file.removesuffix('.py').replace('/', '.')} import {name}\n{entries}")
    command = [sys.executable, "-m", "bayes_mdp.cli", "list"]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True).stdout


def test_every_kind_is_explained():
    assert list(SECTIONS) == ["prior", "agent", "environment"]


@pytest.mark.parametrize("template", list(SECTIONS), indirect=True)
def test_a_template_passes_the_tests_that_it_brings(template):
    _, module, tests = template
    found = [test for key, test in vars(tests).items() if key.startswith("test_")]
    assert len(found) >= 2
    for test in found:
        test()
    assert (module.__doc__ or "").count("\n") == 0


@pytest.mark.parametrize("section", SECTIONS.values(), ids=list(SECTIONS))
def test_the_command_lists_what_has_its_lines_in_a_registry(section, tmp_path):
    (name,) = re.findall(r'one line `"(\w+)": ', section)
    assert f"\n  {name} " in _listed(section, tmp_path)


@pytest.mark.parametrize("template", ["agent"], indirect=True)
def test_the_agent_keeps_the_contract(template):
    name = template[0]
    contract.test_shapes(name)
    contract.test_probabilities(name)
    contract.test_one_key_one_plan_and_nothing_is_compiled_again(name)
    contract.test_rows_shared_by_the_steps(name, Episodic(contract.HORIZON))


def test_the_templates_are_formatted_and_linted(tmp_path):
    """By the rules of pyproject.toml. (The order of imports is left out: ruff looks whether the files are there.)"""
    for number, block in enumerate(re.findall(r"```python\n(.*?)```", TEXT, re.S)):
        (tmp_path / f"block_{number}.py").write_text(block)
    for command in (["check", "--ignore", "I001"], ["format", "--check"]):
        ruff = [sys.executable, "-m", "ruff", *command, "--no-cache", "--config", str(ROOT / "pyproject.toml")]
        done = subprocess.run([*ruff, str(tmp_path)], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
