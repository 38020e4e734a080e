"""`bayes-mdp list`: what comes with the package, read from its sources, so that nothing is loaded to be named.

`explain`: how a prior would be inferred, and what prevents a better method; how a stored posterior was.
"""

import argparse
import ast
import re
from pathlib import Path

import bayes_mdp
from bayes_mdp.cli.options import METHODS, Commands, add_command, is_stored

REGISTRIES = {
    "agents": [("agents/agents_by_name.py", "AGENTS")],
    "environments": [("envs/envs_by_name.py", "ENVS"), ("envs/envs_by_name.py", "SIMULATED")],
    "priors": [("models/__init__.py", "PRIORS")],
    "deep agents (train)": [("agents/neural/__init__.py", "NEURAL_AGENTS")],
    "environments of deep agents (train)": [("envs/envs_by_name.py", "OBSERVED")],
    "behaviour models": [("behaviour/models_by_name.py", "DESCRIPTIONS")],
}
"""Title -> (file of the package, its dictionary: name -> text, or a class or function that has a docstring)."""
_PACKAGE = Path(bayes_mdp.__file__).parent


def add_list(commands: Commands) -> None:
    """The parser."""
    add_command(
        commands,
        "list",
        _list,
        "name the agents, environments, priors, behaviour models and inference methods that come with the package",
    )


def _list(arguments: argparse.Namespace) -> None:
    for title, registries in REGISTRIES.items():
        _print_lines(title, {name: line for registry in registries for name, line in descriptions(*registry).items()})
    _print_lines("methods", METHODS)


def _print_lines(title: str, lines: dict[str, str]) -> None:
    print(f"{title}:")
    for name, line in lines.items():
        print(f"  {name:<24} {line}")


def descriptions(file: str, registry: str) -> dict[str, str]:
    """Name -> line of every entry of a dictionary that is written out in a file of the package.

    The line is the entry where that is a text, else the first one of the docstring of the class or function.
    """
    module = ast.parse((_PACKAGE / file).read_text(encoding="utf-8"))
    imported = [node for node in module.body if isinstance(node, ast.ImportFrom)]
    origins = {alias.name: node.module or "" for node in imported for alias in node.names}
    assigned = [node for node in module.body if isinstance(node, ast.Assign | ast.AnnAssign)]
    (entries,) = (node.value for node in assigned if _target(node) == registry)
    assert isinstance(entries, ast.Dict)
    lines = {}
    for key, entry in zip(entries.keys, entries.values, strict=True):
        assert isinstance(key, ast.Constant)
        is_text = isinstance(entry, ast.Constant)
        lines[key.value] = entry.value if is_text else _summary(origins[ast.unparse(entry)], ast.unparse(entry))
    return lines


def _target(node: ast.Assign | ast.AnnAssign) -> str:
    return ast.unparse(node.targets[0] if isinstance(node, ast.Assign) else node.target)


def _summary(module: str, name: str) -> str:
    """First line of the docstring of a class or function, by its text: Python's parser takes ten times as long."""
    text = _PACKAGE.joinpath(*module.split(".")[1:]).with_suffix(".py").read_text(encoding="utf-8")
    match = re.search(rf'^(?:class|def) {name}\b.*?^    r?"""(.*?)(?:"""|\n)', text, re.MULTILINE | re.DOTALL)
    assert match is not None
    return match[1].strip()


def add_explain(commands: Commands) -> None:
    """The parser."""
    parser = add_command(commands, "explain", _explain, "say how a prior would be inferred, without data")
    parser.add_argument(
        "prior", help="a name of `list`, or MODULE:FUNCTION; or a stored posterior: how it was inferred, and from what"
    )
    parser.add_argument("--states", type=int, help="number of states of the space (default: 3)")
    parser.add_argument("--actions", type=int, help="number of actions of the space (default: 2)")
    parser.add_argument("--horizon", type=int, help="steps of an episode")
    parser.add_argument("--ends", action="store_true", help="episodes can end")


def _explain(arguments: argparse.Namespace) -> None:
    import bayes_mdp as bm
    from bayes_mdp.experiments.registry_names import find_prior

    if is_stored(arguments.prior):
        option = next((name for name in ("states", "actions", "horizon", "ends") if getattr(arguments, name)), None)
        if option is not None:
            raise ValueError(
                f"--{option} is given with {arguments.prior}, a stored posterior, expected it with a prior alone"
            )
        print(bm.load(arguments.prior))
        return
    sizes = (default if size is None else size for size, default in ((arguments.states, 3), (arguments.actions, 2)))
    space = bm.StateActionSpace(*sizes, horizon=arguments.horizon, ends=arguments.ends)
    print(bm.explain(find_prior(arguments.prior), space))
