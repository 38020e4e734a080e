"""Figures of behaviour: choices over time with predictive bands, and how a group pulls its persons together."""

from typing import TYPE_CHECKING

import jax
import numpy as np
from jaxtyping import PRNGKeyArray

from bayes_mdp.behaviour import BehaviourPosterior, predict_choices
from bayes_mdp.experiments.plots.result_plots import place
from bayes_mdp.utils.validation import check_count, check_name, check_type

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_BAND = (0.05, 0.95)


def plot_learning_curve(
    posterior: BehaviourPosterior,
    *,
    key: PRNGKeyArray | None = None,
    num_blocks: int = 12,
    num_draws: int = 200,
    axes: "Axes | None" = None,
) -> "Figure":
    """How often each action was chosen over time, and a 90 % band of what the model predicts one step ahead.

    In the state with the most choices, mean over persons, in blocks of choices of equal length.

    Args:
        posterior: what `behaviour.fit` returned.
        key: of the predictions; None: `jax.random.key(0)`.
        num_blocks, num_draws: blocks of time; draws of the posterior.
        axes: where to draw; None: in a figure of its own.

    Raises:
        TypeError, ValueError: no fit, a number that is no positive integer.
    """
    check_type("posterior", posterior, BehaviourPosterior, "what bayes_mdp.behaviour.fit returns")
    check_count("num_blocks", num_blocks)
    log = posterior.log
    state, observed = np.asarray(log.state), np.asarray(log.observed)
    most = int(np.bincount(state[observed]).argmax())
    here = observed & (state == most)
    # The place of a choice among the person's choices in this state.
    nth = np.where(here, np.cumsum(here, axis=1) - 1, 0)
    longest = int(here.sum(1).max())
    num_blocks = min(num_blocks, longest)
    block = np.minimum(nth * num_blocks // longest, num_blocks - 1)[here]
    number = np.bincount(block, minlength=num_blocks)
    drawn = predict_choices(jax.random.key(0) if key is None else key, posterior, num_draws=num_draws)[:, here]

    def share(actions: np.ndarray, action: int) -> np.ndarray:
        return np.bincount(block, actions == action, minlength=num_blocks) / number

    figure, where = place(axes)
    middle = (np.arange(num_blocks) + 0.5) * longest / num_blocks
    for action in range(1, 2) if len(log.actions) == 2 else range(len(log.actions)):
        of_draws = np.stack([share(one, action) for one in drawn])
        low, high = np.quantile(of_draws, _BAND, axis=0)
        (line,) = where.plot(middle, share(np.asarray(log.action)[here], action), "o-", label=str(log.actions[action]))
        where.fill_between(middle, low, high, alpha=0.25, linewidth=0, color=line.get_color())
    title = "" if len(log.states) == 1 else f" in state {log.states[most]}"
    where.set(xlabel=f"choices of a person{title}", ylabel="share of the choices", ylim=(0, 1))
    where.legend(title="action; band: predicted", loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=4, frameon=False)
    return figure


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
    draws = draws.reshape(-1, draws.shape[-1])
    order = np.argsort(draws.mean(0))
    figure, where = place(axes)
    y = np.arange(len(order))
    low, high = np.quantile(draws, _BAND, axis=0)[:, order]
    where.hlines(y, low, high, color="C0", linewidth=1)
    where.plot(draws.mean(0)[order], y, "o", color="C0", label="within the group, 90 % interval")
    if alone is not None:
        own = np.asarray(alone.params[chosen]).reshape(-1, len(order)).mean(0)[order]
        where.plot(own, y, "x", color="C1", label="alone")
        for row, start, end in zip(y, own, draws.mean(0)[order], strict=True):
            where.annotate("", (end, row), (start, row), arrowprops={"arrowstyle": "->", "color": "0.7"})
    group = posterior.group()[chosen].ravel()
    where.axvspan(*np.quantile(group, _BAND), color="0.9", zorder=0)
    where.axvline(group.mean(), color="0.6", zorder=0, label="mean of the group")
    where.set(xlabel=chosen, ylabel="subject")
    where.set_yticks(y, [str(posterior.log.subjects[i]) for i in order] if len(order) <= 30 else [""] * len(order))
    where.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=2, fontsize="small", frameon=False)
    return figure
