"""`bayes-mdp next-experiment`: after a log, or by a stored posterior, what is worth observing more."""

import argparse
from collections.abc import Hashable
from pathlib import Path
from typing import TYPE_CHECKING

from bayes_mdp.cli.options import (
    Commands,
    add_columns,
    add_command,
    add_labels,
    add_objective,
    check_outputs,
    count,
    log_of,
    require_objective,
    say_log,
    seed,
)
from bayes_mdp.cli.problem import add_problem, initial_of, prior_of, space_of, table_of_pairs
from bayes_mdp.cli.stored import load_stored, posterior_file_of

if TYPE_CHECKING:
    import numpy as np
    from jaxtyping import Float, PRNGKeyArray

    from bayes_mdp.inference.route import InferredPosterior
    from bayes_mdp.mdp import Log, StateActionSpace

PRICE = "price"  # the column of what observing costs; 'cost' is what the log may call minus the reward


def add_next_experiment(commands: Commands) -> None:
    """The parser."""
    parser = add_command(
        commands,
        "next-experiment",
        _next_experiment,
        "after a log, rank states and actions by what observing them more is expected to add to the best policy",
    )
    parser.add_argument(
        "log", help="CSV or Parquet file, one transition per row, in the order of time; or a stored posterior (.bmdp)"
    )
    add_columns(parser, required=False)
    add_labels(parser)
    parser.add_argument(
        "--prior",
        help="a name of `list`, or MODULE:FUNCTION, whose posterior has a closed form, or a mixture of such (default: "
        "as of `fit`)",
    )
    add_objective(parser)
    add_problem(parser)
    parser.add_argument(
        "--candidates",
        metavar="FILE",
        help="CSV file of the pairs to rank, in the log's columns of state and action (for a stored posterior: 'state' "
        "and 'action'); a column 'price' holds what the observations of a pair cost, all of them together (default: "
        "all pairs, each at the same price)",
    )
    parser.add_argument("--observations", type=count, default=1, help="of the pair; they are valued together")
    parser.add_argument(
        "--data-sets", type=count, default=1000, help="that are simulated for each pair, if more are possible"
    )
    parser.add_argument("--seed", type=seed, default=0, help="seed of the data sets")
    parser.add_argument("--csv", type=Path, metavar="FILE", help="write the table, of all pairs")


def _next_experiment(arguments: argparse.Namespace) -> None:
    path = posterior_file_of(arguments)
    import jax

    import bayes_mdp as bm
    from bayes_mdp.inference.context_posterior import ContextPosterior
    from bayes_mdp.utils.files import write_beside
    from bayes_mdp.utils.validation import check_count

    check_count("--observations", arguments.observations)
    check_count("--data-sets", arguments.data_sets, 2)
    inputs = [path for path in (arguments.log, arguments.candidates) if path is not None]
    check_outputs(arguments, "csv", inputs=inputs)
    objective = require_objective(arguments)
    infer_key, key = jax.random.split(jax.random.key(arguments.seed))
    if path is None:
        log = log_of(arguments)
        posterior = _infer(arguments, infer_key, log)
    else:
        log, posterior = None, load_stored(path)
        if isinstance(posterior, ContextPosterior):
            raise ValueError(
                f"{path} is a posterior in contexts, expected one of a single context (in Python: "
                "bm.load(path).at(pattern), then bm.information.next_experiment)"
            )
    space = posterior.space
    initial = initial_of(arguments, space, log)
    pairs, prices = (None, 1.0) if arguments.candidates is None else _candidates(arguments, space)
    answer = bm.information.next_experiment(
        key,
        posterior,
        objective,
        pairs,
        n=arguments.observations,
        cost=prices,
        initial=initial,
        num_data_sets=arguments.data_sets,
    )
    if log is not None:
        say_log(log)
    print(answer)
    if arguments.csv is not None:
        table = answer.to_dataset().to_dataframe()
        write_beside(arguments.csv, lambda beside: table.to_csv(beside, index=False))
        print(f"table: {arguments.csv}")


def _infer(arguments: argparse.Namespace, key: "PRNGKeyArray", log: "Log") -> "InferredPosterior":
    """The posterior of the log, where the prior has one in closed form."""
    import bayes_mdp as bm

    space = space_of(arguments, log)
    prior = prior_of(arguments, space, log)
    route = bm.explain(prior, space=space).route
    if route not in ("exact", "mixture"):
        raise ValueError(
            f"--prior is {arguments.prior!r}, whose posterior has no closed form (route {route}), expected a prior "
            "that has one (`bayes-mdp explain` says what is in the way)"
        )
    return bm.infer(key, prior, log, space=space)


def _candidates(
    arguments: argparse.Namespace, space: "StateActionSpace"
) -> "tuple[list[tuple[Hashable, Hashable]], float | Float[np.ndarray, ' C']]":
    """The pairs of --candidates by label, and what observing each costs.

    Raises:
        ValueError: no such file; a label that the log does not have; no pair; a price that is no positive number.
    """
    import numpy as np

    from bayes_mdp.utils.validation import as_real, check_positive

    option = "--candidates"
    table, pairs = table_of_pairs(option, arguments.candidates, arguments, space)
    if not pairs:
        raise ValueError(f"{option}: {arguments.candidates!r} has no rows, expected one pair each")
    if PRICE not in table.columns:
        return pairs, 1.0
    prices = np.asarray(as_real(f"{option}: {PRICE}", table[PRICE].to_numpy(), "a number greater than 0"), np.float64)
    check_positive(f"{option}: {PRICE}", prices)
    return pairs, prices
