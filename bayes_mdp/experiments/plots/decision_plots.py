"""Figures of policies and strategies, and of people's choices.

Values, cost-effectiveness plane, acceptability, expected loss, cohort traces; choices over time with predictive bands,
and how a group pulls its persons together.
"""

from collections.abc import Hashable, Mapping, Sequence
from typing import TYPE_CHECKING

import jax
import numpy as np
from jaxtyping import Int, PRNGKeyArray

from bayes_mdp.behaviour import ChoiceLog, predict_choices
from bayes_mdp.behaviour.fit_behaviour import BehaviourPosterior
from bayes_mdp.decisions.choosing.budgets import ParetoFront
from bayes_mdp.decisions.policy_comparison import PolicyComparison
from bayes_mdp.decisions.policy_evaluation import describe_value
from bayes_mdp.decisions.strategies.cost_effectiveness import StrategyDraws
from bayes_mdp.experiments.plots.result_plots import place
from bayes_mdp.mdp import AverageReward
from bayes_mdp.recommend.page import draw_gains, forest_height, gains_of
from bayes_mdp.utils.axis_labels import shorten
from bayes_mdp.utils.figures import number_x, whole_figure
from bayes_mdp.utils.typing import AnyArray, RealScalar
from bayes_mdp.utils.validation import (
    check_count,
    check_dataset,
    check_finite,
    check_name,
    check_number,
    check_type,
    described,
)

if TYPE_CHECKING:
    import xarray as xr
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


MOST_POINTS = 2000
"""Draws that a plane shows."""
MOST_COLUMNS, MOST_LEGEND = 4, 0.7
"""Columns of a legend above, and the share of the height that it may take."""
BINS = 40
"""Of the histograms of values, over the range of all of them."""


def plot_policies(
    comparison: PolicyComparison,
    *,
    baseline: str | None = None,
    truth: "Mapping[str, RealScalar] | None" = None,
    axes: "Axes | Sequence[Axes] | None" = None,
) -> "Figure":
    """Values of policies under one posterior: a histogram of draws for each, its mean as a dashed line.

    The axis says what a value is by the objective: "value: discounted sum of rewards". The legend is above the
    histograms.

    Histograms may overlap where one policy is better in every draw: values are compared draw by draw
    (`comparison.difference`). With a `baseline` a second panel shows these differences: mean and 95 % interval of each
    policy's gain over it, the largest first, and the line of no difference.

    Args:
        comparison: what `compare_policies` returned.
        baseline: name of the policy over which the others gain; None: gains are not drawn.
        truth: name -> true value, where it is known; a solid line of the policy's colour, and a diamond at its gain
            where the baseline's value is known too.
        axes: where to draw, with a baseline two of them: values, gains; None: in a figure of its own.

    Raises:
        TypeError: no comparison; one of the axes is missing. ValueError: a true value that is not finite, or of no
            policy of the comparison; a baseline that is none of its policies, or the only one.

    Example:
        >>> space = bm.StateActionSpace(2, 2)
        >>> posterior = bm.infer(jax.random.key(0), bm.models.dirichlet_bernoulli(), None, space=space)
        >>> policies = {"always 0": np.array([0, 0]), "always 1": np.array([1, 1])}
        >>> compared = bm.compare_policies(jax.random.key(1), posterior, policies, bm.Discounted(0.9), num_draws=50)
        >>> bm.plots.plot_policies(compared).axes[0].get_xlabel()
        'value: discounted sum of rewards'
        >>> bm.plots.plot_policies(compared, baseline="always 0").axes[1].get_xlabel()
        'gain over always 0: discounted sum of rewards'
    """
    check_type("comparison", comparison, PolicyComparison, "what compare_policies returned")
    for name, value in (truth or {}).items():
        check_name("truth", name, tuple(comparison.values))
        check_finite(f"truth[{name!r}]", value)
    if baseline is None:
        figure, panel = place(axes)  # pyright: ignore[reportArgumentType] - one, where there is no baseline
        gains = None
    else:
        figure, panel, gains = _two_panels(comparison, baseline, axes)
    all_draws = np.concatenate([value.draws for value in comparison.values.values()])
    # Common edges: the heights of two histograms can be compared.
    edges = np.histogram_bin_edges(all_draws, BINS)
    for i, (name, value) in enumerate(comparison.values.items()):
        panel.hist(value.draws, edges.tolist(), density=True, alpha=0.4, color=f"C{i}", label=shorten(name))
        panel.axvline(value.mean, color=f"C{i}", linestyle="--", linewidth=1)
        if truth is not None and name in truth:
            panel.axvline(float(truth[name]), color=f"C{i}", linewidth=2, label=f"{shorten(name)}: true value")
    objective = next(iter(comparison.values.values())).objective
    said = describe_value(objective)
    panel.set_xlabel(said if isinstance(objective, AverageReward) else f"value: {said}")
    panel.set_ylabel("posterior density")
    if gains is not None and baseline is not None:
        shown = draw_gains(gains, gains_of(comparison, baseline), f"gain over {shorten(baseline)}: {said}")
        known = {} if truth is None or baseline not in truth else truth
        for height, name in enumerate(reversed(shown)):
            if name in known:
                gains.plot(
                    [float(known[name]) - float(known[baseline])], [height], "D", color="black", fillstyle="none"
                )
        number_x(gains)
    number_x(panel)  # last: the names of the gains leave less room
    _legend_above(panel)
    return figure


def _two_panels(
    comparison: PolicyComparison, baseline: str, axes: "Axes | Sequence[Axes] | None"
) -> "tuple[Figure, Axes, Axes]":
    """The histograms' axes, and below them those of the gains."""
    check_name("baseline", baseline, tuple(comparison.values))
    if len(comparison.values) < 2:
        raise ValueError(f"baseline is {baseline!r}, the only policy, expected another one that is compared with it")
    if axes is None:
        from bayes_mdp.utils.figures import NotebookFigure

        low = forest_height(len(comparison.values) - 1)
        figure = NotebookFigure(figsize=(6.4, 4.0 + low), layout="constrained")
        panel, gains = figure.subplots(2, 1, height_ratios=(4.0, low))
        return figure, panel, gains
    if not isinstance(axes, Sequence | np.ndarray) or len(axes) != 2:
        raise TypeError(f"axes is {described(axes)}, expected two axes where a baseline is named: values, gains")
    figure, panel = place(axes[0])
    return figure, panel, axes[1]


def _legend_above(axes: "Axes") -> None:
    """The legend at the top, in as many columns as the axes are wide; what is drawn from zero upwards ends below it."""
    figure, entries = whole_figure(axes), len(axes.get_legend_handles_labels()[0])
    # The highest value that is drawn, before the limits are changed.
    peak = axes.dataLim.y1
    box = whole = axes.get_window_extent()
    for columns in range(min(entries, MOST_COLUMNS), 0, -1):
        legend = axes.legend(loc="upper center", ncols=columns, fontsize="small")
        legend.set_in_layout(False)  # it is inside, and must not narrow the axes
        figure.draw_without_rendering()
        box, whole = legend.get_window_extent(), axes.get_window_extent()
        if box.width <= whole.width:
            break
    # Room for the legend, and as much again as it is away from the upper edge.
    taken = min((whole.y1 - box.y0) / whole.height + 0.03, MOST_LEGEND)
    axes.set_ylim(0.0, peak / (1 - taken))


def plot_cost_effectiveness(
    draws: StrategyDraws, *, reference: str | None = None, wtp: float | None = None, axes: "Axes | None" = None
) -> "Figure":
    """The cost-effectiveness plane: cost and effect of each draw, and their means.

    Args:
        draws: of costs and effects.
        reference: strategy from which the others are measured; None: plain costs and effects.
        wtp: willingness to pay, drawn as a line through the reference; None: no line.
        axes: where to draw; None: in a figure of its own.

    Raises:
        TypeError: no draws of strategies. ValueError: other outcomes; no such strategy.

    Example:
        >>> costs_effects = np.array([[[10.0, 1.0], [30.0, 1.5]], [[10.0, 1.0], [30.0, 1.1]]])
        >>> draws = bm.strategies.StrategyDraws(("usual", "new"), ("cost", "effect"), costs_effects)
        >>> bm.plots.plot_cost_effectiveness(draws, wtp=50.0).savefig("plane.png")
    """
    check_type("draws", draws, StrategyDraws, "draws of strategies")
    cost, effect = draws.outcome("cost"), draws.outcome("effect")
    if reference is not None:
        check_name("reference", reference, draws.strategies)
        column = [draws.strategies.index(reference)]
        cost, effect = cost - cost[:, column], effect - effect[:, column]
    figure, panel = place(axes)
    for i, name in enumerate(draws.strategies):
        if name == reference:
            continue
        panel.scatter(effect[:MOST_POINTS, i], cost[:MOST_POINTS, i], s=6, alpha=0.25, linewidths=0, color=f"C{i}")
        panel.scatter(effect[:, i].mean(), cost[:, i].mean(), s=50, color=f"C{i}", edgecolor="black", label=name)
    if reference is not None:
        panel.axhline(0, color="grey", linewidth=0.8)
        panel.axvline(0, color="grey", linewidth=0.8)
    if wtp is not None:
        check_number("wtp", wtp, lambda x: x >= 0, "a number of at least 0")
        # The limits before the line are restored after it: an infinite line must not widen the axes.
        limits = panel.get_xlim(), panel.get_ylim()
        middle = (0.0, 0.0) if reference is not None else (float(effect[:, 0].mean()), float(cost[:, 0].mean()))
        panel.axline(middle, slope=wtp, color="black", linestyle="--", linewidth=1, label=f"willingness to pay {wtp:g}")
        panel.set_xlim(*limits[0])
        panel.set_ylim(*limits[1])
    suffix = "" if reference is None else f" more than {reference}"
    panel.set_xlabel(f"effect{suffix}")
    panel.set_ylabel(f"cost{suffix}")
    panel.legend()
    return figure


def plot_acceptability(table: "xr.Dataset", *, axes: "Axes | None" = None) -> "Figure":
    """Acceptability curves by willingness to pay, and the frontier: the curve of the strategy with the best mean.

    Args:
        table: what `acceptability` returned.
        axes: where to draw; None: in a figure of its own.

    Raises:
        TypeError, ValueError: no such table.

    Example:
        >>> costs_effects = np.array([[[10.0, 1.0], [30.0, 1.5]], [[10.0, 1.0], [30.0, 1.1]]])
        >>> draws = bm.strategies.StrategyDraws(("usual", "new"), ("cost", "effect"), costs_effects)
        >>> figure = bm.plots.plot_acceptability(bm.strategies.acceptability(draws, [10.0, 100.0]))
        >>> figure.savefig("acceptability.png")
    """
    check_dataset("table", table, "prob_best", "frontier")
    figure, panel = _curves(table, "prob_best", "frontier", "frontier", axes)
    panel.set_ylabel("probability of being the best")
    panel.set_ylim(-0.02, 1.02)
    return figure


def plot_expected_loss(table: "xr.Dataset", *, axes: "Axes | None" = None) -> "Figure":
    """Expected loss of each strategy by willingness to pay; the lowest curve is the EVPI.

    Args:
        table, axes: as in `plot_acceptability`.

    Raises:
        TypeError, ValueError: no such table.

    Example:
        >>> costs_effects = np.array([[[10.0, 1.0], [30.0, 1.5]], [[10.0, 1.0], [30.0, 1.1]]])
        >>> draws = bm.strategies.StrategyDraws(("usual", "new"), ("cost", "effect"), costs_effects)
        >>> figure = bm.plots.plot_expected_loss(bm.strategies.acceptability(draws, [10.0, 100.0]))
        >>> figure.savefig("loss.png")
    """
    check_dataset("table", table, "expected_loss", "evpi")
    figure, panel = _curves(table, "expected_loss", "evpi", "EVPI", axes)
    panel.set_ylabel("expected loss")
    # The losses of the worst strategies would hide the others.
    top = float(table["expected_loss"].min("strategy").max())
    panel.set_ylim(0, 5 * top if top > 0 else None)
    return figure


def _curves(table: "xr.Dataset", of_each: str, of_best: str, label: str, axes: "Axes | None") -> "tuple[Figure, Axes]":
    """By willingness to pay: a line for each strategy, and a dotted one for the best."""
    figure, panel = place(axes)
    for name in table["strategy"].values:
        panel.plot(table["wtp"], table[of_each].sel(strategy=name), label=str(name))
    panel.plot(table["wtp"], table[of_best], color="black", linestyle=":", linewidth=2.5, label=label)
    panel.set_xlabel("willingness to pay")
    panel.legend()
    return figure, panel


def plot_cohort(table: "xr.Dataset", *, strategy: str | None = None, axes: "Axes | None" = None) -> "Figure":
    """Where the cohort is after each cycle: a line for each state, a style for each strategy.

    Args:
        table: what `trace_dataset` returned.
        strategy: one strategy; None: all.
        axes: where to draw; None: in a figure of its own.

    Raises:
        TypeError, ValueError: no such table or strategy.

    Example:
        >>> trace = bm.strategies.cohort_trace([[0.9, 0.1], [0.0, 1.0]], [1.0, 0.0], 5)
        >>> table = bm.strategies.trace_dataset({"usual": trace}, ("alive", "dead"))
        >>> bm.plots.plot_cohort(table).savefig("cohort.png")
    """
    check_dataset("table", table, "occupancy")
    names = [str(name) for name in table["strategy"].values]
    if strategy is not None:
        check_name("strategy", strategy, names)
        names = [strategy]
    figure, panel = place(axes)
    styles = ("-", "--", ":", "-.")
    for i, name in enumerate(names):
        for k, state in enumerate(table["state"].values):
            label = str(state) if i == 0 else None
            line = table["occupancy"].sel(strategy=name, state=state)
            panel.plot(table["cycle"], line, color=f"C{k}", linestyle=styles[i % len(styles)], label=label)
    for i, name in enumerate(names) if len(names) > 1 else ():
        panel.plot([], [], color="black", linestyle=styles[i % len(styles)], label=name)
    panel.set_xlabel("cycle")
    panel.set_ylabel("share of the cohort")
    panel.legend()
    return figure


_BAND = (0.05, 0.95)


def plot_learning_curve(
    posterior: BehaviourPosterior,
    *,
    better: Mapping[Hashable, Hashable] | None = None,
    key: PRNGKeyArray | None = None,
    num_blocks: int = 12,
    num_draws: int = 200,
    axes: "Axes | None" = None,
) -> "Figure":
    """How often each action was chosen over time, and a 90 % band of what the model predicts one step ahead.

    In the state with the most choices, mean over persons, in blocks of choices of equal length. Where you say which
    action is the better one, its share is drawn, over all states that you name: it rises as persons learn.

    Args:
        posterior: what `behaviour.fit` returned.
        better: state -> the better action there, both by label, as only you know it; None: every action has a line.
        key: of the predictions; None: `jax.random.key(0)`.
        num_blocks, num_draws: blocks of time; draws of the posterior.
        axes: where to draw; None: in a figure of its own.

    Raises:
        TypeError, ValueError: no fit, a number that is no positive integer; a state or an action that the log has not.
    """
    check_type("posterior", posterior, BehaviourPosterior, "what bayes_mdp.behaviour.fit returns")
    check_count("num_blocks", num_blocks)
    log = posterior.log
    state, action, observed = (np.asarray(x) for x in (log.state, log.action, log.observed))
    busiest = int(np.bincount(state[observed]).argmax())
    targets = None if better is None else _better_actions(better, log)
    # What is shown: the choices in the busiest state, or those in states with a better action.
    chosen = observed & (state == busiest if targets is None else (targets >= 0)[state])
    if not chosen.any():
        raise ValueError("better names states without a choice in the log, expected a state in which somebody chose")
    # The place of a choice among the person's choices that are shown.
    nth = np.where(chosen, np.cumsum(chosen, axis=1) - 1, 0)
    longest = int(chosen.sum(1).max())
    num_blocks = min(num_blocks, longest)
    block = np.minimum(nth * num_blocks // longest, num_blocks - 1)[chosen]
    number = np.bincount(block, minlength=num_blocks)
    drawn = predict_choices(jax.random.key(0) if key is None else key, posterior, num_draws=num_draws)[:, chosen]
    # Each line is the share of the choices that are its target, an action for each choice.
    lines: list[tuple[str, AnyArray | int]]
    if targets is None:
        lines = [(str(log.actions[a]), a) for a in (range(1, 2) if len(log.actions) == 2 else range(len(log.actions)))]
    else:
        lines = [("the better action", targets[state][chosen])]
    figure, panel = place(axes)
    middle = (np.arange(num_blocks) + 0.5) * longest / num_blocks
    for label, target in lines:
        # The first share is that of the persons, the others those of each draw.
        share, *of_draws = (
            np.bincount(block, made == target, minlength=num_blocks) / number for made in (action[chosen], *drawn)
        )
        (line,) = panel.plot(middle, share, "o-", label=label)
        low, high = np.quantile(of_draws, _BAND, axis=0)
        panel.fill_between(middle, low, high, alpha=0.25, linewidth=0, color=line.get_color())
    if targets is not None:
        panel.axhline(1 / len(log.actions), color="0.6", linestyle=":", linewidth=1, label="chance")
    title = "" if len(log.states) == 1 or targets is not None else f" in state {log.states[busiest]}"
    panel.set(xlabel=f"choices of a person{title}", ylabel="share of the choices", ylim=(0, 1))
    panel.legend(title="action; band: predicted", loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=4, frameon=False)
    return figure


def _better_actions(better: Mapping[Hashable, Hashable], log: ChoiceLog) -> Int[np.ndarray, " S"]:
    """The index of the better action in every state; -1 where none is named."""
    check_type("better", better, Mapping, "state -> the better action there")
    targets = np.full(len(log.states), -1)
    for state, action in better.items():
        for name, label, known in (("better", state, log.states), (f"better[{state!r}]", action, log.actions)):
            if label not in known:
                raise ValueError(f"{name} is {label!r}, expected one of {', '.join(map(repr, known))}")
        targets[log.states.index(state)] = log.actions.index(action)
    return targets


def plot_shrinkage(
    posterior: BehaviourPosterior,
    alone: BehaviourPosterior | None = None,
    *,
    parameter: str | None = None,
    axes: "Axes | None" = None,
) -> "Figure":
    """Estimates of one parameter, person by person: from the group, and alone.

    Args:
        posterior: a fit with partial pooling.
        alone: the fit of the same log with pooling "none"; None: not drawn.
        parameter: its name; None: the first.
        axes: where to draw; None: in a figure of its own.

    Raises:
        TypeError, ValueError: no fits, another pooling, no such parameter.
    """
    for name, fit, pooling in (("posterior", posterior, "partial"), ("alone", alone, "none")):
        if fit is None and name == "alone":
            continue
        check_type(name, fit, BehaviourPosterior, "what bayes_mdp.behaviour.fit returns")
        assert fit is not None
        if fit.pooling != pooling:
            raise ValueError(f"{name}.pooling is {fit.pooling!r}, expected {pooling!r}")
    names = list(posterior.model.parameters)
    chosen = names[0] if parameter is None else parameter
    check_name("parameter", chosen, names)
    draws = np.asarray(posterior.params[chosen])
    # Chains and draws are one axis, persons the last.
    draws = draws.reshape(-1, draws.shape[-1])
    # Persons by their estimate: shrinkage is seen as arrows that point to the middle.
    order = np.argsort(draws.mean(0))
    figure, panel = place(axes)
    y = np.arange(len(order))
    low, high = np.quantile(draws, _BAND, axis=0)[:, order]
    panel.hlines(y, low, high, color="C0", linewidth=1)
    panel.plot(draws.mean(0)[order], y, "o", color="C0", label="within the group, 90 % interval")
    if alone is not None:
        separate = np.asarray(alone.params[chosen]).reshape(-1, len(order)).mean(0)[order]
        panel.plot(separate, y, "x", color="C1", label="alone")
        # An arrow from the estimate alone to that within the group.
        for row, start, end in zip(y, separate, draws.mean(0)[order], strict=True):
            panel.annotate("", (end, row), (start, row), arrowprops={"arrowstyle": "->", "color": "0.7"})
    group = posterior.group()[chosen].ravel()
    panel.axvspan(*np.quantile(group, _BAND), color="0.9", zorder=0)
    panel.axvline(group.mean(), color="0.6", zorder=0, label="mean of the group")
    panel.set(xlabel=chosen, ylabel="subject")
    panel.set_yticks(y, [str(posterior.log.subjects[i]) for i in order] if len(order) <= 30 else [""] * len(order))
    panel.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=2, fontsize="small", frameon=False)
    return figure


def plot_pareto(front: ParetoFront, *, limit: RealScalar | None = None, axes: "Axes | None" = None) -> "Figure":
    """Value against budget: the best policy of the mean MDP for every budget, with 95 % of the draws around its value.

    The slope is the shadow price: what one more unit of the budget adds.

    Args:
        front: what `pareto_front` returned.
        limit: a budget to be marked, in units of the outcome; None: none.
        axes: where to draw; None: in a figure of its own.

    Raises:
        TypeError: no front. ValueError: a limit that is not finite.

    Example:
        >>> space = bm.StateActionSpace(1, 2)
        >>> posterior = bm.infer(jax.random.key(0), bm.models.dirichlet_bernoulli(), None, space=space)
        >>> front = bm.decisions.pareto_front(
        ...     jax.random.key(1), posterior, bm.Episodic(2), {"cost": [[1.0, 3.0]]}, points=3
        ... )
        >>> bm.plots.plot_pareto(front).axes[0].get_xlabel()
        'cost: what may be spent on average'
    """
    check_type("front", front, ParetoFront, "what pareto_front returned")
    figure, panel = place(axes)
    table = front.table()
    panel.fill_between(table["budget"], table["value_low"], table["value_high"], alpha=0.2, label="95 % of the draws")
    panel.plot(table["budget"], table["value"], label="mean over the draws")
    if limit is not None:
        check_finite("limit", limit)
        panel.axvline(float(limit), color="black", linestyle="--", linewidth=1, label="the budget")
    panel.set_xlabel(f"{shorten(front.name)}: what may be spent on average")
    panel.set_ylabel(f"value: {describe_value(front.objective)}")
    panel.legend(fontsize="small")
    number_x(panel)
    return figure
