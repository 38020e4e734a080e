"""`bayes-mdp behaviour`: which learner, with which parameters, made the choices of a log?"""

import argparse
import sys
import time
import warnings
from pathlib import Path
from typing import TYPE_CHECKING

from bayes_mdp.cli.options import (
    LABELS,
    Commands,
    add_command,
    add_dialect,
    add_labels,
    check_outputs,
    count,
    dialect_of,
    labels_of,
    refuse_posterior_file,
    save_figure,
    seed,
    warnings_in_one_line,
)
from bayes_mdp.utils.messages import count_of

if TYPE_CHECKING:
    from jaxtyping import PRNGKeyArray

    from bayes_mdp.behaviour import BehaviourModel, ChoiceLog
    from bayes_mdp.behaviour.fit_behaviour import BehaviourPosterior
    from bayes_mdp.inference import NUTS

COLUMNS = {
    "subject": ("who chose", True),
    "action": ("what was chosen", True),
    "reward": ("what followed, larger is better (or --cost)", False),
    "cost": ("costs, in place of rewards: rewards are minus the cost", False),
    "state": ("what was seen (none: there is one state, a bandit)", False),
    "next_state": ("what was seen next (none: the state of the subject's next row)", False),
    "terminated": ("whether the row ended an episode", False),
    "trial": ("a whole number that orders the rows of a subject (none: they are in order)", False),
}


def add_behaviour(commands: Commands) -> None:
    """The parser."""
    parser = add_command(
        commands, "behaviour", _behaviour, "fit a learner to the choices of persons, compare it with others"
    )
    parser.add_argument("log", help="CSV or Parquet file, one choice per row")
    for name, (words, needed) in COLUMNS.items():
        parser.add_argument(f"--{name.replace('_', '-')}", required=needed, metavar="COLUMN", help=f"column of {words}")
    add_labels(parser)
    parser.add_argument("--agent", required=True, help="the learner: a behaviour model of `list`")
    parser.add_argument(
        "--against", nargs="+", default=[], metavar="AGENT", help="rivals, compared by leave-one-out prediction"
    )
    parser.add_argument("--unit", choices=("choice", "subject"), default="choice", help="what LOO leaves out")
    parser.add_argument("--pooling", choices=("partial", "none", "complete"), default="partial", help="among subjects")
    parser.add_argument(
        "--discount", type=float, help="of learners that look ahead (default: 0 where there is one state, else 0.9)"
    )
    parser.add_argument(
        "--missing", choices=("error", "ignore"), default="error", help="rows without action, reward, cost or state"
    )
    add_dialect(parser)
    parser.add_argument("--seed", type=seed, default=0, help="seed of the chains")
    parser.add_argument("--warmup", type=count, default=500, help="steps of each chain that are not kept")
    parser.add_argument("--samples", type=count, default=500, help="draws of each chain")
    parser.add_argument("--chains", type=count, default=4, help="number of chains")
    parser.add_argument("--table", type=Path, metavar="FILE", help="write the estimates of every subject, as CSV")
    parser.add_argument("--netcdf", type=Path, metavar="FILE", help="write draws and likelihoods for ArviZ")
    parser.add_argument(
        "--figure", type=Path, metavar="FILE", help="draw choices over time with predictions, and estimates by subject"
    )


def _behaviour(arguments: argparse.Namespace) -> int | None:
    refuse_posterior_file(arguments.log)
    import jax

    from bayes_mdp.behaviour import read_choices
    from bayes_mdp.behaviour.models_by_name import MODELS, ready_model
    from bayes_mdp.inference import NUTS
    from bayes_mdp.mdp import Discounted
    from bayes_mdp.utils.validation import check_name

    for name in (arguments.agent, *arguments.against):
        check_name("agent", name, MODELS)
    check_outputs(arguments, "table", "netcdf", "figure", inputs=[arguments.log])
    columns = {name: getattr(arguments, name) for name in COLUMNS}
    columns |= dialect_of(arguments) | {name: labels_of(arguments, name) for name in LABELS}
    with warnings_in_one_line():
        log = read_choices(arguments.log, **columns, missing=arguments.missing)
    names = list(dict.fromkeys([arguments.agent, *arguments.against]))
    objective = None if arguments.discount is None else Discounted(arguments.discount)
    models = {name: ready_model(name, log, objective) for name in names}
    sampler, key = NUTS(arguments.warmup, arguments.samples, arguments.chains), jax.random.key(arguments.seed)
    fits = {name: _fit(key, name, model, log, arguments.pooling, sampler) for name, model in models.items()}
    posterior = fits[arguments.agent]
    print(posterior)
    if len(fits) > 1:
        from bayes_mdp.calibration.arviz.behaviour_export import compare_behaviour

        print(f"\nLeave-one-out comparison, unit: {arguments.unit}")
        print(compare_behaviour(fits, unit=arguments.unit).to_string())
    if arguments.table:
        from bayes_mdp.utils.files import write_beside

        write_beside(arguments.table, lambda beside: posterior.table().to_csv(beside, index=False))
        print(f"table: {arguments.table}")
    if arguments.netcdf:
        import bayes_mdp as bm

        bm.save(bm.to_arviz(posterior), arguments.netcdf)
        print(f"draws: {arguments.netcdf}")
    if arguments.figure:
        _draw(arguments, key, models[arguments.agent], posterior, sampler)
    return 0


def _fit(
    key: "PRNGKeyArray", name: str, model: "BehaviourModel", log: "ChoiceLog", pooling: str, sampler: "NUTS"
) -> "BehaviourPosterior":
    from bayes_mdp.behaviour import fit
    from bayes_mdp.inference import SamplingWarning

    said = f"{name}: {count_of(log.num_subjects, 'subject')}, {count_of(log.num_choices, 'choice')}, pooling {pooling}"
    print(said, end=" ... ", file=sys.stderr, flush=True)
    start = time.monotonic()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SamplingWarning)
        posterior = fit(key, model, log, pooling=pooling, sampler=sampler)  # type: ignore[arg-type]
    print(f"{time.monotonic() - start:.0f} s", file=sys.stderr)
    for problem in posterior.problems():
        print(f"{name}, pooling {pooling}: {problem}", file=sys.stderr)
    return posterior


def _draw(
    arguments: argparse.Namespace,
    key: "PRNGKeyArray",
    model: "BehaviourModel",
    posterior: "BehaviourPosterior",
    sampler: "NUTS",
) -> None:
    """The learning curve, and beside it every parameter by subject: within the group and alone."""
    from bayes_mdp.experiments.plots.decision_plots import plot_learning_curve, plot_shrinkage
    from bayes_mdp.utils.figures import NotebookFigure

    shown = list(model.parameters) if arguments.pooling == "partial" else []
    figure = NotebookFigure((4.5 * (1 + len(shown)), 4.5), layout="constrained")
    first, *marginals = figure.subplots(1, 1 + len(shown), squeeze=False)[0]
    plot_learning_curve(posterior, key=key, axes=first)
    if shown:
        alone = _fit(key, arguments.agent, model, posterior.log, "none", sampler)
        for name, axes in zip(shown, marginals, strict=True):
            plot_shrinkage(posterior, alone, parameter=name, axes=axes)
    save_figure(figure, arguments.figure)
