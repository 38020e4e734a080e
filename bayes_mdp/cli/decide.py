"""`bayes-mdp decide`: policies against the one in use by a log; `evaluate-decision`: strategies of a decision model."""

import argparse
import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from bayes_mdp.cli.covariates import (
    OF_CONTEXTS,
    add_covariates,
    add_for_whom,
    decide_in_contexts,
    refuse_without_covariates,
)
from bayes_mdp.cli.options import (
    LABELS,
    METHODS,
    Commands,
    add_columns,
    add_command,
    add_labels,
    add_objective,
    check_outputs,
    count,
    holds_draws,
    labels_of,
    list_of_names,
    log_of,
    refuse_posterior_file,
    require_objective,
    save_figure,
    seed,
)
from bayes_mdp.cli.problem import (
    BEHAVIOUR,
    add_choice,
    add_prior,
    add_problem,
    baseline_of,
    initial_of,
    known_rewards_of,
    policies_of,
    prior_of,
    space_of,
)
from bayes_mdp.cli.stored import OF_A_LOG, PAIR, refuse_options, require_columns
from bayes_mdp.utils.layout import Section, Table
from bayes_mdp.utils.messages import count_of

if TYPE_CHECKING:
    import numpy as np
    from jaxtyping import Float, PRNGKeyArray

    from bayes_mdp.decisions import Budget
    from bayes_mdp.decisions.information.site_information import Study
    from bayes_mdp.decisions.strategies.cost_effectiveness import StrategyDraws
    from bayes_mdp.decisions.strategies.decision_model import DecisionModel
    from bayes_mdp.inference.draws.given_draws import GivenDraws
    from bayes_mdp.mdp import StateActionSpace
    from bayes_mdp.recommend.decision import Decision
    from bayes_mdp.recommend.subgroups import SubgroupDecision

STRATEGIES = "compare strategies of a decision model: costs, effects, acceptability, value of information"
GRID = 51
"""Willingnesses to pay of a range."""
ROWS = 11
"""Of these, how many are printed."""
_SHOWN = 50
"""States at most whose actions are printed."""


def add_decide(commands: Commands) -> None:
    """The parser."""
    parser = add_command(
        commands,
        "decide",
        _decide,
        "judge policies against the one in use by a log, the best one that it supports among them, and recommend one",
    )
    parser.add_argument(
        "log",
        nargs="?",
        help="CSV or Parquet file, one transition per row, in the order of time; or a file of draws (as --draws FILE)",
    )
    add_columns(parser, required=False)
    add_labels(parser)
    add_covariates(parser)
    add_for_whom(parser)
    add_prior(parser)
    text = "how the posterior of a log with covariates is inferred (without: the best route)"
    parser.add_argument("--method", choices=tuple(METHODS), default="auto", help=text)
    add_objective(parser)
    add_problem(parser)
    add_choice(parser)
    parser.add_argument(
        "--trial",
        action="store_true",
        help="the log's actions were drawn by chance, so that nothing unrecorded moved them: no tipping points",
    )
    parser.add_argument(
        "--baseline",
        default=BEHAVIOUR,
        help="the policy in use: 'behaviour' (what the log did), one action, STATE=ACTION,..., or a CSV file with the "
        "log's columns of state and action (and 'probability', where an action is random)",
    )
    parser.add_argument(
        "--policy",
        action="append",
        default=[],
        metavar="FILE",
        help="a policy that was fixed before anyone saw these data, in the forms of --baseline; several times for "
        "several",
    )
    parser.add_argument(
        "--criterion",
        default="mean",
        help="mean, cvar:LEVEL, percentile:LEVEL, soft-robust:LEVEL, regret:LEVEL, probability-optimal, "
        "robust:CONFIDENCE",
    )
    parser.add_argument("--confidence", type=float, default=0.95, help="of being no worse than the baseline")
    parser.add_argument("--slack", type=float, default=0.0, help="loss of value that still counts as no worse")
    parser.add_argument(
        "--split", type=float, default=0.0, help="share of the episodes that chooses and does not judge (default: 0)"
    )
    parser.add_argument(
        "--bootstrap-below",
        type=count,
        metavar="N",
        help="actions that the data that choose have less often in the state keep the baseline's probability "
        "(default: 5, or 0 with --min-count)",
    )
    parser.add_argument(
        "--budget",
        action="append",
        default=[],
        metavar="COLUMN=LIMIT",
        help="most that may be expected of a column of --outcomes (of a file of draws: a variable), summed as the "
        "objective sums rewards; several times for several",
    )
    parser.add_argument(
        "--budget-probability",
        type=float,
        default=0.95,
        metavar="P",
        help="probability with which every budget is kept (default: 0.95)",
    )
    parser.add_argument("--stochastic", action="store_true", help="allow mixtures of actions")
    parser.add_argument("--no-checks", action="store_true", help="leave out the checks of the belief")
    parser.add_argument(
        "--draws",
        action="append",
        default=[],
        metavar="N or FILE",
        help="number of posterior draws of the search, and of the judgement (default: 400); or a file of draws that "
        "another program made, in place of a log: NetCDF of ArviZ, or CSV of Stan or R (several times: one a chain). "
        "Then --state, --action and --next-state name axes of a NetCDF file, --reward the variable of rewards "
        "(default: r)",
    )
    parser.add_argument(
        "--transition", metavar="NAME", help="variable of the transition probabilities of a file of draws (default: P)"
    )
    parser.add_argument("--seed", type=seed, default=0, help="seed of the split and of the draws")
    parser.add_argument("--report", type=Path, metavar="FILE", help="write a page (HTML)")


def _decide(arguments: argparse.Namespace) -> None:
    import jax

    import bayes_mdp as bm
    from bayes_mdp.decisions import PolicyLimits
    from bayes_mdp.mdp.contexts import ContextSpace
    from bayes_mdp.recommend import DecideOptions

    draws, files = _draws_of(arguments.draws)
    if not files and arguments.log is not None and holds_draws(arguments.log):
        files, arguments.log = [arguments.log], None
    if files:
        _decide_by_draws(arguments, draws, files)
        return
    if arguments.log is None:
        raise ValueError("no log is given, expected the name of one, or --draws FILE")
    if arguments.transition is not None:
        raise ValueError("--transition is given with a log, expected --draws FILE")
    refuse_posterior_file(arguments.log)  # before its columns are asked for: it has none
    require_columns(arguments, [arguments.log])
    check_outputs(arguments, "report", inputs=[arguments.log])
    objective = require_objective(arguments)
    log = log_of(arguments)
    space = space_of(arguments, log)
    if isinstance(space, ContextSpace):
        num_draws = None if not arguments.draws else draws
        by_subgroup = decide_in_contexts(arguments, jax.random.key(arguments.seed), log, space, objective, num_draws)
        print(by_subgroup)
        _report(arguments, by_subgroup)
        return
    refuse_without_covariates(arguments)
    if arguments.method != "auto":
        raise ValueError(f"--method is {arguments.method!r} without covariates, expected it with --covariates alone")
    decision = bm.decide(
        jax.random.key(arguments.seed),
        prior_of(arguments, space, log),
        log,
        objective,
        policies=policies_of(arguments, space),
        baseline=baseline_of(arguments, space),
        options=DecideOptions(
            limits=PolicyLimits(
                min_count=arguments.min_count,
                bootstrap_below=arguments.bootstrap_below,
                stochastic=arguments.stochastic,
                budgets=_budgets(arguments),
            ),
            slack=arguments.slack,
            num_draws=draws,
            confidence=arguments.confidence,
            space=space,
            criterion=arguments.criterion,
            split=arguments.split,
            initial=initial_of(arguments, space, log),
            value_range=None if arguments.value_range is None else tuple(arguments.value_range),
            checks=not arguments.no_checks,
            observational=not arguments.trial,
        ),
    )
    print(decision)
    _report(arguments, decision)


def _report(arguments: argparse.Namespace, decision: "Decision | SubgroupDecision") -> None:
    """The page, where one was asked for."""
    if arguments.report is not None:
        from bayes_mdp.recommend import write_report

        write_report(decision, arguments.report, command=arguments.line)
        print(f"report: {arguments.report}")


def _draws_of(given: list[str]) -> tuple[int, list[str]]:
    """How many draws, and files of them.

    Raises:
        ValueError: two numbers.
    """
    numbers = [text for text in given if text.lstrip("-").isdigit()]
    if len(numbers) > 1:
        raise ValueError(f"--draws is given as {' and '.join(numbers)}, expected one number")
    return (count(numbers[0]) if numbers else 400), [text for text in given if text not in numbers]


_NOT_WITH_DRAWS = (
    "split",
    "min_count",
    "bootstrap_below",
    "report",
    "value_range",
    "no_checks",
    "trial",
    *OF_CONTEXTS,
)
"""Options of `decide` that need a log, beside those of every command."""


def _decide_by_draws(arguments: argparse.Namespace, num_draws: int, files: list[str]) -> None:
    """Choose by draws of another program. There are no data that could judge the choice: every second draw does.

    Raises:
        ValueError: an option that only a log takes; as `posterior_from_draws`, `choose` and `compare_policies`.
    """
    import jax

    import bayes_mdp as bm
    from bayes_mdp.decisions import ChooseOptions, PolicyLimits

    if arguments.log is not None:
        raise ValueError(f"log is {arguments.log!r} with --draws {files[0]}, expected one of them")
    named = ("state", "action", "next_state", "reward", "outcomes", *LABELS, "known_reward")
    only_logs = (name for name in (*OF_A_LOG, *_NOT_WITH_DRAWS) if name not in named)
    refuse_options(arguments, only_logs, f"--draws {files[0]}")
    objective = require_objective(arguments)
    axes = {"state": arguments.state, "action": arguments.action, "outcome": arguments.next_state}
    dims = {axis: name for axis, name in axes.items() if name is not None} or None
    source = files[0] if len(files) == 1 else files
    rows = "P" if arguments.transition is None else arguments.transition
    posterior = _draws_in(arguments, source, rows, dims)
    space = posterior.space
    baseline = baseline_of(arguments, space)
    policies = policies_of(arguments, space)
    initial = initial_of(arguments, space, None)
    key = jax.random.key(arguments.seed)
    budgets = _budgets(arguments)
    if arguments.outcomes and budgets is None:
        raise ValueError(f"--outcomes is given with --draws {files[0]}, expected --budget with it")
    if budgets is not None:
        # The variable of each outcome, draw by draw beside the same rows.
        paid = {name: bm.posterior_from_draws(source, rows, name, dims=dims, space=space) for name in budgets}
        budgets = {name: replace(budget, outcome=paid[name]) for name, budget in budgets.items()}
    choice = bm.choose(
        key,
        posterior,
        objective,
        arguments.criterion,
        baseline=baseline,
        initial=initial,
        options=ChooseOptions(
            limits=PolicyLimits(stochastic=arguments.stochastic, budgets=budgets),
            slack=arguments.slack,
            num_draws=num_draws,
            confidence=arguments.confidence,
        ),
    )
    print(posterior, "", choice, *_policy_lines(choice.policy, space), sep="\n")
    if policies:
        # In all draws: policies that were fixed beforehand, and the one that half of the draws chose.
        policies |= {} if baseline is None else {"baseline": baseline}
        policies |= {} if choice.abstained else {"chosen": choice.policy}
        print(f"\n{bm.compare_policies(key, posterior, policies, objective, initial=initial)}")


def _draws_in(
    arguments: argparse.Namespace, source: str | list[str], rows: str, dims: dict[str, str] | None
) -> "GivenDraws":
    """The posterior of the files, with the labels and rewards that were given; --reward names a variable."""
    import bayes_mdp as bm
    from bayes_mdp.inference.draws.given_draws import space_of_draws

    paid = "r" if arguments.reward is None else arguments.reward
    # Tables of policies and rewards call their columns so.
    arguments.state, arguments.action, arguments.reward = *PAIR, None
    space = None
    if arguments.known_reward is not None or any(getattr(arguments, name) is not None for name in LABELS):
        # Sizes are those of the rows; rewards come once labels are known.
        unnamed = space_of_draws(source, rows, dims=dims)
        states, actions = labels_of(arguments, "states"), labels_of(arguments, "actions")
        for name, labels, size in (("states", states, unnamed.n_states), ("actions", actions, unnamed.n_actions)):
            if labels is not None and len(labels) != size:
                raise ValueError(f"--{name} has {len(labels)} labels, expected {size} (those of {rows!r})")
        space = bm.StateActionSpace(
            unnamed.n_states,
            unnamed.n_actions,
            ends=unnamed.ends,
            states=unnamed.state_names if states is None else states,
            actions=unnamed.action_names if actions is None else actions,
        )
    if arguments.known_reward is not None:
        assert space is not None
        return bm.posterior_from_draws(source, rows, known_rewards_of(arguments, space), dims=dims, space=space)
    return bm.posterior_from_draws(source, rows, paid, dims=dims, space=space)


def _policy_lines(policy: "np.ndarray", space: "StateActionSpace") -> list[str]:
    """A line for each state, of at most so many."""
    lines = []
    if policy.shape == (space.n_states,):
        lines = [f"  {name}: {space.action_names[a]}" for name, a in zip(space.state_names, policy, strict=True)]
    elif policy.shape == (space.n_states, space.n_actions):
        for name, chances in zip(space.state_names, policy, strict=True):
            mixed = (f"{space.action_names[a]} {chances[a]:.3g}" for a in range(space.n_actions) if chances[a] > 0)
            lines.append(f"  {name}: {', '.join(mixed)}")
    remainder = [f"  ... ({count_of(len(lines) - _SHOWN, 'more state')})"] if len(lines) > _SHOWN else []
    return ["  the policy:", *lines[:_SHOWN], *remainder] if lines else []


def _budgets(arguments: argparse.Namespace) -> "dict[str, Budget] | None":
    """The budgets of "COLUMN=LIMIT".

    Raises:
        ValueError: it is written in another way; a column twice, or none of --outcomes.
    """
    from bayes_mdp.decisions import Budget
    from bayes_mdp.utils.validation import check_name

    budgets: dict[str, Budget] = {}
    for text in arguments.budget:
        name, equals, number = text.rpartition("=")
        try:
            limit = float(number)
        except ValueError:
            equals, limit = "", 0.0
        if not equals:
            raise ValueError(f"--budget is {text!r}, expected COLUMN=LIMIT, such as cost=22")
        check_name("--budget", name, arguments.outcomes or [], " (columns of --outcomes)")
        if name in budgets:
            raise ValueError(f"--budget {name!r} is given twice, expected each column once")
        budgets[name] = Budget(limit, probability=arguments.budget_probability)
    return budgets or None


def add_evaluate_decision(commands: Commands) -> None:
    """The parser."""
    parser = add_command(commands, "evaluate-decision", _evaluate, STRATEGIES)
    parser.add_argument(
        "model",
        help="FILE.py:FUNCTION or MODULE:FUNCTION, a NumPyro program that returns strategy -> outcomes ('cost' and "
        "'effect', or one number). The file's code is run",
    )
    parser.add_argument("--strategies", metavar="A,B,...", help="some of the strategies (default: all)")
    parser.add_argument(
        "--wtp",
        metavar="K or LOW:HIGH",
        help="willingness to pay for a unit of effect, or a range; needed where there are costs and effects",
    )
    parser.add_argument(
        "--sites", metavar="A,B;C;...", help="groups of sites whose EVPPI is wanted; 'each': every site (default: none)"
    )
    parser.add_argument(
        "--study",
        action="append",
        default=[],
        metavar="SITE=N[/SD],...",
        help="a study whose EVSI is wanted: so many observations of each site; SD of one measurement of a normal site. "
        "May be given several times",
    )
    parser.add_argument("--draws", type=count, default=10_000, help="draws of the belief")
    parser.add_argument("--points", type=count, help="outer points of these values (default: 65,536, or 4,096)")
    parser.add_argument("--inner", type=count, help="inner points of nested ones (default: 64)")
    parser.add_argument("--seed", type=seed, default=0, help="seed of every random number")
    parser.add_argument("--out", type=Path, metavar="FOLDER", help="write draws (NetCDF) and figures there")


def _evaluate(arguments: argparse.Namespace) -> None:
    import jax

    import bayes_mdp as bm
    from bayes_mdp.decisions.information.expected_gain import check_sizes
    from bayes_mdp.experiments.registry_names import import_function
    from bayes_mdp.utils.files import new_folder
    from bayes_mdp.utils.validation import check_names

    key = jax.random.key(arguments.seed)
    check_sizes(arguments.points, arguments.inner)
    wtp = _wtp(arguments.wtp)
    studies = [_study(text) for text in arguments.study]
    what = "a function without arguments that returns strategy -> outcomes"
    model = bm.strategies.decision_model(import_function("model", arguments.model, what), key=key)
    if arguments.strategies is not None:
        model = model.select([name.strip() for name in arguments.strategies.split(",")])
    groups = _groups(arguments.sites, model)
    for names in groups:
        check_names("--sites", tuple(names))
        model.check_sites("--sites", names)
    for study in studies:
        study.sites_of(model)
    draws = model.sample(key, model.at_most(arguments.draws))
    # Wrong combinations of outcomes and --wtp are refused before anything is printed.
    draws.net_benefit(None if wtp is None else float(wtp[0]))
    print(model)
    print()
    if wtp is None:
        _print_values(draws)
        _print_information(arguments, key, model, groups, studies, None)
    else:
        print(bm.strategies.cost_effectiveness(draws))
        print()
        _print_curves(draws, wtp)
        for value in [float(wtp[0])] if len(wtp) == 1 else [float(wtp[0]), float(wtp[len(wtp) // 2]), float(wtp[-1])]:
            _print_information(arguments, key, model, groups, studies, value)
    if arguments.out is not None:
        with new_folder(arguments.out, "--out") as folder:
            _write(arguments, folder, draws, wtp)


def _print_values(draws: "StrategyDraws") -> None:
    import numpy as np

    from bayes_mdp.decisions.verdict import shares_of_best

    benefit = draws.net_benefit()
    shares = shares_of_best(benefit)
    rows = [
        (draws.strategies[i], f"{benefit[:, i].mean():.6g}", f"{benefit[:, i].std():.4g}", f"{shares[i]:.3f}")
        for i in np.argsort(-benefit.mean(0))
    ]
    table = Table(("strategy", "mean", "sd", "P(best)"), rows)
    print(Section(f"Values of the strategies in {draws.num_draws:,} draws", [table]).text(), end="\n\n")


def _print_curves(draws: "StrategyDraws", wtp: "Float[np.ndarray, ' wtp']") -> None:
    import bayes_mdp as bm

    shown = wtp[:: max((len(wtp) - 1) // (ROWS - 1), 1)]
    table = bm.strategies.acceptability(draws, shown)
    rows = [
        (
            f"{value:g}",
            str(row["best"].values),
            f"{float(row['evpi']):.6g}",
            f"{float(row['evpi_error']):.2g}",
            *(f"{float(p):.3f}" for p in row["prob_best"]),
        )
        for value in table["wtp"].values
        for row in [table.sel(wtp=value)]
    ]
    head = ("willingness", "best mean", "EVPI", "error", *(f"P({name} best)" for name in draws.strategies))
    print(Section("By willingness to pay", [Table(head, rows, words=(1,))]).text(), end="\n\n")


def _print_information(
    arguments: argparse.Namespace,
    key: "PRNGKeyArray",
    model: "DecisionModel",
    groups: list[list[str]],
    studies: "list[Study]",
    wtp: float | None,
) -> None:
    import bayes_mdp as bm

    points, inner = arguments.points, arguments.inner
    if groups or studies or wtp is None:
        print(bm.information.evpi(key, model, wtp, num_draws=points))
    for names in groups:
        print(bm.information.evppi(key, model, names, wtp, num_draws=points, num_inner=inner))
    for study in studies:
        print(bm.information.evsi(key, model, study, wtp, num_draws=points, num_inner=inner))


def _write(
    arguments: argparse.Namespace, folder: Path, draws: "StrategyDraws", wtp: "Float[np.ndarray, ' wtp'] | None"
) -> None:
    import bayes_mdp as bm
    from bayes_mdp.experiments.describe import versions
    from bayes_mdp.experiments.plots.decision_plots import (
        plot_acceptability,
        plot_cost_effectiveness,
        plot_expected_loss,
    )
    from bayes_mdp.experiments.results import DECISION_FORMAT
    from bayes_mdp.utils.files import write_netcdf

    settings = {"model": arguments.model, "strategies": list(draws.strategies), "wtp": arguments.wtp}
    configuration = {**settings, "draws": draws.num_draws, "seed": arguments.seed}
    path = folder / "strategies.nc"
    described = {"configuration": json.dumps(configuration), "versions": json.dumps(versions())}
    write_netcdf(draws.to_dataset().assign_attrs(format=DECISION_FORMAT, **described), path)
    print(f"draws: {path}")
    if wtp is None:
        return
    if len(wtp) > 1:
        table = bm.strategies.acceptability(draws, wtp)
        save_figure(plot_acceptability(table), folder / "acceptability.png")
        save_figure(plot_expected_loss(table), folder / "expected_loss.png")
    reference = str(bm.strategies.cost_effectiveness(draws).table["strategy"].values[0])
    plane = plot_cost_effectiveness(draws, reference=reference, wtp=float(wtp[len(wtp) // 2]))
    save_figure(plane, folder / "plane.png")


def _wtp(text: str | None) -> "Float[np.ndarray, ' wtp'] | None":
    """One willingness to pay, or `GRID` of a range.

    Raises:
        ValueError: no numbers, negative ones, a range that falls.
    """
    import numpy as np

    if text is None:
        return None
    parts = text.split(":")
    try:
        numbers = [float(part) for part in parts]
    except ValueError:
        numbers = []
    good = all(np.isfinite(x) and x >= 0 for x in numbers)
    if len(numbers) not in (1, 2) or not good or (len(numbers) == 2 and numbers[0] >= numbers[1]):
        raise ValueError(f"--wtp is {text!r}, expected a number of at least 0, or LOW:HIGH with LOW below HIGH")
    return np.array(numbers) if len(numbers) == 1 else np.linspace(numbers[0], numbers[1], GRID)


def _groups(text: str | None, model: "DecisionModel") -> list[list[str]]:
    """Groups of sites."""
    if text is None:
        return []
    if text == "each":
        return [[name] for name in model.sites]
    return [list_of_names(group) for group in text.split(";")]


def _study(text: str) -> "Study":
    """A study of "SITE=N/SD,SITE=N".

    Raises:
        ValueError: it is written in another way; a site twice.
    """
    import bayes_mdp as bm

    numbers, sds = {}, {}
    for part in text.split(","):
        name, equals, rest = part.partition("=")
        number, slash, sd = rest.partition("/")
        if name.strip() in numbers:
            raise ValueError(f"--study is {text!r}, which has {name.strip()!r} twice, expected each site once")
        try:
            numbers[name.strip()] = float(number)
            if slash:
                sds[name.strip()] = float(sd)
        except ValueError:
            equals = ""
        if not equals:
            raise ValueError(f"--study is {text!r}, expected SITE=N or SITE=N/SD, several with commas between")
    return bm.information.Study(numbers, sds)
