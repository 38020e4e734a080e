"""A stored posterior (`fit --save`, `bm.save`) in place of a log; `bayes-mdp update` learns more logs into it."""

import argparse
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from bayes_mdp.cli.options import (
    ABOUT,
    COLUMNS,
    LABELS,
    MISSING,
    WHOLE_LOG,
    Commands,
    add_chunks,
    add_columns,
    add_command,
    add_objective,
    check_outputs,
    count,
    fold_logs,
    is_stored,
    objective_of,
    refuse_draws,
    say_log,
    seed,
)
from bayes_mdp.cli.problem import add_initial, initial_of
from bayes_mdp.utils.messages import count_of

if TYPE_CHECKING:
    from bayes_mdp.inference import ConjugatePosterior
    from bayes_mdp.inference.context_posterior import ContextPosterior
    from bayes_mdp.inference.mixtures import Mixture
    from bayes_mdp.inference.route import InferredPosterior
    from bayes_mdp.mdp import Objective
    from bayes_mdp.utils.typing import InitialLike


_NOT_GIVEN = {
    **dict.fromkeys(MISSING, ("error",)),
    "method": ("auto",),
    "decimal": (".",),
    "reward_at": ("step",),
    "budget": ([],),
}
"""What an option is where nobody has given it, if not None, False or zero."""
OF_A_LOG = (
    *ABOUT,
    "terms",
    "reference",
    *COLUMNS,
    *LABELS,
    *WHOLE_LOG,
    *MISSING,
    "chain",
    "sep",
    "encoding",
    "decimal",
    "chunksize",
    "allow_duplicates",
    "prior",
    "method",
    "successors",
    "legal",
    "support",
    "known_reward",
)
PAIR = ("state", "action")


def posterior_file_of(arguments: argparse.Namespace, *more: str) -> str | None:
    """The file of a posterior that is named in place of `log`; None: it is a log (or several), with its columns.

    Of a stored posterior the columns of other tables (--candidates, --baseline) are called state and action.

    Args:
        arguments: with `log`; columns that the parser does not require are looked for here.
        more: options of the command that only a log takes.

    Raises:
        ValueError: a stored posterior with another file, or with an option that only a log takes; a log without the
            names of its columns of state and action.
    """
    paths: Sequence[str] = arguments.log if isinstance(arguments.log, list) else [arguments.log]
    path = next((path for path in paths if is_stored(path)), None)
    if path is None:
        refuse_draws(*paths)
        require_columns(arguments, paths)
        return None
    if len(paths) > 1:
        raise ValueError(
            f"{path} is a stored posterior, expected it alone: `bayes-mdp update` learns more logs into it"
        )
    refuse_options(arguments, (*OF_A_LOG, *more), f"{path}, a stored posterior")
    arguments.state, arguments.action = PAIR
    return path


def require_columns(arguments: argparse.Namespace, paths: Sequence[str]) -> None:
    """Require the names of the columns of state and action, where the parser does not.

    Args:
        arguments: of the command.
        paths: of the logs, for the message.

    Raises:
        ValueError: one of them is missing.
    """
    for name in PAIR:
        if getattr(arguments, name) is None and not (name == "action" and getattr(arguments, "chain", False)):
            chain = " (or --chain: there are none)" if name == "action" and hasattr(arguments, "chain") else ""
            raise ValueError(
                f"--{name} is missing, expected the name of the column of the {name} in {', '.join(paths)}{chain}"
            )


def refuse_options(arguments: argparse.Namespace, names: Iterable[str], source: str) -> None:
    """Refuse options that only a log takes.

    Args:
        arguments: of the command.
        names: of these options.
        source: what is given in place of a log.

    Raises:
        ValueError: one of them is given.
    """
    for name in names:
        if getattr(arguments, name, None) not in (None, False, *_NOT_GIVEN.get(name, ())):
            raise ValueError(f"--{name.replace('_', '-')} is given with {source}, expected it with a log alone")


def load_stored(path: str) -> "InferredPosterior | ContextPosterior":
    """The posterior of a file.

    Args:
        path: of the file.

    Raises:
        ValueError, OSError: as `bm.load`; draws of MDPs alone, which no command writes.
    """
    from bayes_mdp.inference.draws.weighted_samples import PosteriorSamples
    from bayes_mdp.inference.storage import load

    posterior = load(path)
    if isinstance(posterior, PosteriorSamples):
        raise ValueError(f"{path} holds draws of MDPs without labels, expected a posterior as `fit --save` stores it")
    return posterior


def add_update(commands: Commands) -> None:
    """The parser."""
    parser = add_command(commands, "update", _update, "learn more logs into a saved posterior, each log once")
    parser.add_argument("posterior", type=Path, help="file that `fit --save` wrote")
    parser.add_argument("log", nargs="+", help="CSV or Parquet files, one transition per row, with its labels")
    add_columns(parser, required=True)
    add_chunks(parser)
    parser.add_argument("--discount-data", type=float, help="factor by which earlier data count from now on")
    add_objective(parser)
    add_initial(parser)
    parser.add_argument("--seed", type=seed, default=0, help="seed of the draws")
    parser.add_argument("--draws", type=count, default=2000, help="number of posterior draws for the policies' values")
    parser.add_argument("--save", type=Path, metavar="FILE", required=True, help="where the posterior is written")


def _update(arguments: argparse.Namespace) -> None:
    import bayes_mdp as bm
    from bayes_mdp.inference import ConjugatePosterior
    from bayes_mdp.inference.mixtures import Mixture
    from bayes_mdp.utils.validation import check_count

    refuse_draws(arguments.posterior)
    check_outputs(arguments, "save", inputs=[arguments.posterior, *arguments.log])
    check_count("--draws", arguments.draws, 2)
    objective = objective_of(arguments)
    before = bm.load(arguments.posterior)
    if not isinstance(before, ConjugatePosterior | Mixture):
        raise TypeError(
            f"{arguments.posterior} is a {type(before).__name__}, expected a posterior in closed form or a mixture of "
            "such, which learn from sufficient statistics"
        )
    log = fold_logs(arguments, before.space)
    initial = initial_of(arguments, before.space, log)
    duplicates = arguments.allow_duplicates
    after = before.update(log, discount_data=arguments.discount_data, allow_duplicates=duplicates)
    say_log(log)
    print(after)
    names = ", ".join(source.name for source in log.sources)
    seen = [float(posterior.visit_counts().sum()) for posterior in (before, after)]
    print(f"\nRows added: {log.n_rows:,} of {names}, with {count_of(log.n_transitions, 'transition', ',')}")
    print(f"  transitions that the posterior rests on: {seen[0]:,.10g} before, {seen[1]:,.10g} after")
    if objective is None:
        print("  no values before and after: no objective was given (--discount, --horizon or --first-exit)")
    else:
        _print_values(arguments, before, after, objective, initial)
    bm.save(after, arguments.save)
    print(f"posterior: {arguments.save}")


def _print_values(
    arguments: argparse.Namespace,
    before: "ConjugatePosterior | Mixture",
    after: "ConjugatePosterior | Mixture",
    objective: "Objective",
    initial: "InitialLike | None",
) -> None:
    """The same policies by both posteriors: what was done in all logs, and the best ones in both mean MDPs."""
    import jax
    import numpy as np

    import bayes_mdp as bm
    from bayes_mdp.decisions.policy_evaluation import describe_objective, describe_start
    from bayes_mdp.utils.layout import Table
    from bayes_mdp.utils.messages import amount, amounts

    best, next_best = (bm.greedy(posterior, objective) for posterior in (before, after))
    policies = {"logged": bm.behaviour_policy(after), "greedy before": best, "greedy after": next_best}
    if np.array_equal(best, next_best):
        policies = {"logged": policies["logged"], "greedy (the same)": best}
    key, draws = jax.random.key(arguments.seed), arguments.draws
    compared = [
        bm.compare_policies(key, posterior, policies, objective, initial=initial, num_draws=draws)
        for posterior in (before, after)
    ]
    first = compared[0].values["logged"]
    print(f"Values before and after, mean and 95 % interval, {describe_objective(objective)}; {describe_start(first)}")
    rows = []
    for name in policies:
        pair = [result.values[name] for result in compared]
        old, new = (f"{amount(value.mean)} {amounts(*value.interval)}" for value in pair)
        rows.append((name, old, new))
    print(*Table(("policy", "before", "after"), rows).lines("  "), sep="\n")
    print("  logged: as in all logs of the updated posterior; greedy: best in the mean MDP before, and after")
