"""The command `bayes-mdp`: demo, fit, decide, evaluate-decision, next-experiment, update, behaviour, explain,
calibrate, run, compare, sweep, status, results, train, evaluate, list.

Wrong input: one sentence on stderr, code 2. Compiled programs are kept between commands, in the user's cache folder:
the second command starts sooner. JAX writes and finds them by what they compute and by its own version. They hold
machine code, so each kind of processor has a folder of its own. Only the process of a command is changed, and the
processes that it starts.

Two commands stand here themselves. `list` says what comes with the package, read from its sources, so that nothing is
loaded to be named. `explain` says how a prior would be inferred, and what prevents a better method; how a stored
posterior was.
"""

import argparse
import ast
import contextlib
import hashlib
import logging
import os
import platform
import re
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

import bayes_mdp
from bayes_mdp.cli.options import METHODS, Commands, add_command, check_inputs, is_stored

ERRORS = (ValueError, TypeError, OSError, ImportError)
USER_ERROR, INTERRUPTED = 2, 130
MOVED = {
    "reproduce": "reproductions NAME",
    "scorecard": "benchmarks.validation scorecard",
    "levels": "benchmarks.validation levels",
}
"""Commands of the repository, not of the installed package: name -> the program that runs them."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run `bayes-mdp`; returns the exit code.

    0; 1 for a posterior that `calibrate` or `fit --check` finds not calibrated, and for a sweep with cells that are not
    finished; 2 for wrong input (one sentence on
    stderr); 130 after Ctrl-C. With `argv` None the arguments are those of the process, which Ctrl-C ends here.
    """
    return run_command(build_parser(), argv)


def run_command(parser: argparse.ArgumentParser, argv: Sequence[str] | None = None) -> int:
    """Run the command that the arguments name; the errors of wrong input become one sentence on stderr.

    Args:
        parser: sets `command` (a function of the arguments), `resumes` and `verbose`.
        argv: as for `main`.
    """
    arguments = parser.parse_args(argv)
    arguments.line = shlex.join([parser.prog, *(sys.argv[1:] if argv is None else argv)])  # for reports
    if argv is None and arguments.verbose:
        # What the package keeps off the screen (see `bayes_mdp`). Read when JAX is loaded, which no command has done.
        os.environ["TF_CPP_MIN_LOG_LEVEL"] = "1"
    if argv is None and getattr(arguments, "keep_compiled", False):
        # The process is ours: what the command compiles is there for the next one.
        keep_compiled_programs()
    logging.basicConfig(format="%(message)s", level=logging.INFO if arguments.verbose else logging.WARNING)
    try:
        check_inputs(arguments)
        return arguments.command(arguments) or 0
    except BrokenPipeError:
        # The reader (`head`, say) has all it wants. Nothing may be written to the closed pipe at exit either.
        if argv is None:
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except ERRORS as error:
        if arguments.verbose:
            logging.getLogger(__name__).exception("traceback")
        print(f"{parser.prog}: error: {error}", file=sys.stderr)
        return USER_ERROR
    except KeyboardInterrupt:
        resumable = arguments.resumes and arguments.out is not None
        rest = "; the same command resumes from what was finished" if resumable else ""
        print(f"{parser.prog}: interrupted{rest}", file=sys.stderr, flush=True)
        if argv is None:
            # Threads of XLA may still compile; an orderly exit frees what they use, and the process crashes.
            sys.stdout.flush()
            os._exit(INTERRUPTED)
        return INTERRUPTED


class Parser(argparse.ArgumentParser):
    """As argparse, with the nearest valid word in the message about an invalid one."""

    def _check_value(self, action: argparse.Action, value: object) -> None:
        try:
            super()._check_value(action, value)
        except argparse.ArgumentError as error:
            from bayes_mdp.utils.messages import did_you_mean

            raise argparse.ArgumentError(action, error.message + did_you_mean(value, action.choices or ())) from None


def build_parser() -> argparse.ArgumentParser:
    """The argument parser, help with defaults."""
    from bayes_mdp.cli import behaviour, calibrate, decide, fit, next_experiment, run, stored, train

    parser = Parser(prog="bayes-mdp", description="Bayesian reinforcement learning in MDPs.")
    parser.add_argument("--version", action="version", version=f"%(prog)s {bayes_mdp.__version__}")
    parser.add_argument("--verbose", action="store_true", help="show log messages, and the traceback of an error")
    parser.add_argument(
        "--no-cache",
        dest="keep_compiled",
        action="store_false",
        help="do not keep compiled programs for the next command (the environment variable BAYES_MDP_CACHE names the "
        "folder, or is 'off')",
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    run.add_demo(commands)
    fit.add_fit(commands)
    decide.add_decide(commands)
    decide.add_evaluate_decision(commands)
    next_experiment.add_next_experiment(commands)
    stored.add_update(commands)
    behaviour.add_behaviour(commands)
    add_explain(commands)
    calibrate.add_calibrate(commands)
    run.add_run(commands)
    run.add_compare(commands)
    run.add_sweep(commands)
    run.add_status(commands)
    run.add_results(commands)
    train.add_train(commands)
    train.add_evaluate(commands)
    add_list(commands)
    for name, program in MOVED.items():
        _add_pointer(commands, name, program)
    return parser


def _add_pointer(commands: Commands, name: str, program: str) -> None:
    """A command that only says where it is run; whatever its arguments are."""

    def refuse(arguments: argparse.Namespace) -> None:
        raise ValueError(
            f"{name} is not in the installed package, run `python -m {program}` in a checkout of bayes-mdp"
        )

    # No argument begins with this prefix: options are taken as plain words.
    parser = commands.add_parser(name, prefix_chars="\0", add_help=False)
    parser.add_argument("words", nargs="*")
    parser.set_defaults(command=refuse, resumes=False)


VARIABLE = "BAYES_MDP_CACHE"
"""A folder, or "off"."""
LARGEST = 2**30
"""Bytes that are kept; the programs that were used least recently go first."""
SECONDS = 0.0
"""Programs that compile in less are not kept: all are, 400 of them take 4 MB."""
_FOLDER, _LEAST = "JAX_COMPILATION_CACHE_DIR", "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"
_CPU = Path("/proc/cpuinfo")


def keep_compiled_programs() -> Path | None:
    """Switch JAX's compilation cache on for this process, before JAX is loaded; returns the folder.

    None: it is switched off, the user has set JAX's own variable, JAX is loaded already, or nothing can be written.
    """
    setting = os.environ.get(VARIABLE, "")
    if setting == "off" or _FOLDER in os.environ or "jax" in sys.modules:
        return None
    folder = _user_folder(setting) / _processor()
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        return None
    if not os.access(folder, os.W_OK):
        return None
    trim(folder, LARGEST)
    os.environ[_FOLDER] = str(folder)
    os.environ.setdefault(_LEAST, str(SECONDS))
    return folder


def trim(folder: Path, largest: int) -> None:
    """Remove the files that were used least recently until the rest has at most `largest` bytes."""
    entries = []
    for path in folder.iterdir():
        # Another command may remove the same file: what is gone needs no removal.
        with contextlib.suppress(OSError):
            status = path.stat()
            entries.append((max(status.st_atime, status.st_mtime), status.st_size, path))
    total = sum(size for _, size, _ in entries)
    for _, size, path in sorted(entries):
        if total <= largest:
            return
        with contextlib.suppress(OSError):
            path.unlink()
        total -= size


def _user_folder(given: str) -> Path:
    if given:
        return Path(given)
    import platformdirs

    return Path(platformdirs.user_cache_dir("bayes_mdp", appauthor=False))


def _processor() -> str:
    """A name for what machine code this processor can run."""
    features = ""
    with contextlib.suppress(OSError):
        features = next((line for line in _CPU.read_text().splitlines() if line.startswith(("flags", "Features"))), "")
    text = f"{platform.system()} {platform.machine()} {platform.processor()} {features}"
    return hashlib.sha256(text.encode()).hexdigest()[:16]


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
    targets = [node.targets[0] if isinstance(node, ast.Assign) else node.target for node in assigned]
    entries = {ast.unparse(target): node.value for target, node in zip(targets, assigned, strict=True)}[registry]
    assert isinstance(entries, ast.Dict)
    lines = {}
    for key, entry in zip(entries.keys, entries.values, strict=True):
        assert isinstance(key, ast.Constant)
        is_text = isinstance(entry, ast.Constant)
        lines[key.value] = entry.value if is_text else _summary(origins[ast.unparse(entry)], ast.unparse(entry))
    return lines


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
