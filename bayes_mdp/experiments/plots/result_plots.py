"""Figures of results: regret, values, a posterior, learning curves, visits. matplotlib is loaded when one is drawn."""

from collections.abc import Hashable, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Float

from bayes_mdp.experiments.results import NORMAL_QUANTILE, half_width
from bayes_mdp.inference.untried_rewards import HasMoments, moments_of
from bayes_mdp.mdp import CanCount, CanMean, SparseMDP
from bayes_mdp.mdp.abilities import require_ability
from bayes_mdp.mdp.space import END, OfSpace
from bayes_mdp.utils.axis_labels import label_axis, shorten
from bayes_mdp.utils.messages import count_of
from bayes_mdp.utils.typing import ArrayLike
from bayes_mdp.utils.validation import as_real, check_count, check_dataset, check_name, check_number, first_index

if TYPE_CHECKING:
    import xarray as xr
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.typing import ColorType

WIDTH, HEIGHT = 2.3, 3.0
"""Inches of one table of a posterior."""
IN_A_ROW = 6
MOST_ACTIONS = 22


def plot_regret(
    results: "xr.Dataset | Mapping[str, xr.Dataset]", *, level: float = 0.95, axes: "Axes | None" = None
) -> "Figure":
    """Cumulative regret over time: the mean over seeds, and the normal interval of that mean.

    Args:
        results: what `run` returned, or several by name.
        level: probability level of the interval, one of 0.9, 0.95, 0.99.
        axes: where to draw; None: in a figure of its own.

    Raises:
        ValueError: another level, no results; a run whose regret is not known, with the reason.
        TypeError: no dataset of `run`.

    Example:
        >>> result = bm.run(
        ...     bm.agents.EpsilonGreedyQ(),
        ...     bm.envs.chain(),
        ...     objective=bm.Discounted(0.9),
        ...     num_steps=10,
        ...     num_seeds=2,
        ...     key=jax.random.key(0),
        ...     options=bm.experiments.RunOptions(progress=False),
        ... )
        >>> bm.plots.plot_regret(result).savefig("regret.png")
    """
    named = by_name(results)
    for name, result in named.items():
        check_dataset(f"results[{name!r}]" if name else "results", result, "regret")
    if level not in NORMAL_QUANTILE:
        raise ValueError(f"level is {level}, expected one of {', '.join(map(str, NORMAL_QUANTILE))}")
    if not named:
        raise ValueError("results is empty, expected at least one result of run")
    for name, result in named.items():
        if not np.isfinite(result["regret"].to_numpy()).any():
            why = str(result.attrs.get("regret_unknown", "it is nan in all rows")).strip('"')
            raise ValueError(
                f"results{f'[{name!r}]' if name else ''} has no known regret ({why}), expected runs in environments "
                "whose optimum is known: plot the rewards instead"
            )
    figure, panel = place(axes)
    for name, result in named.items():
        rows = next((name for name in ("time", "episode") if name in result.coords), str(result["regret"].dims[-1]))
        x = np.asarray(result[rows] + (rows in result.dims))  # coordinates count what is over, dimensions are numbered
        _band(panel, x, result["regret"].to_numpy(), name, level)
        panel.set_xlabel("time (steps)" if rows == "time" else rows)
    seeds = next(iter(named.values())).sizes["seed"]
    title = f"mean of {seeds} seeds, {level:.0%} interval" if seeds > 1 else "1 seed"
    panel.set_ylabel("cumulative regret")
    if set(named) == {""}:
        panel.set_title(title)
    else:
        panel.legend(title=title)
    return figure


def by_name(results: "xr.Dataset | Mapping[str, xr.Dataset]") -> "dict[str, xr.Dataset]":
    """The results by name; a single one has the name ""."""
    import xarray as xr

    # A Dataset is a Mapping too, of its variables.
    if isinstance(results, xr.Dataset) or not isinstance(results, Mapping):
        return {"": results}
    return dict(results)


def place(axes: "Axes | None") -> tuple["Figure", "Axes"]:
    """The figure and axes to draw in."""
    from bayes_mdp.utils import figures

    return figures.place(axes, (6.4, 4.0))


def plot_values(
    values: ArrayLike,
    *,
    truth: ArrayLike | None = None,
    names: Sequence[Hashable] | None = None,
    level: float = 0.95,
    axes: "Axes | None" = None,
) -> "Figure":
    """Values of states: medians and central intervals over draws.

    Args:
        values: Float[N S], draws (of a posterior, or of seeds).
        truth: Float[S], marked where given.
        names: names of the states.
        level: probability of the interval.
        axes: where to draw; None: in a figure of its own.

    Raises:
        ValueError: another shape, a value that is not finite, a level outside (0, 1).
        TypeError: values that are no numbers.

    Example:
        >>> draws = np.array([[0.0, 1.0], [0.5, 2.0], [0.2, 1.2]])  # draw, state
        >>> bm.plots.plot_values(draws, truth=[0.2, 1.5]).savefig("values.png")
    """
    draws = as_real("values", values)
    if draws.ndim != 2:
        raise ValueError(f"values has shape {draws.shape}, expected (draw, state)")
    bad = first_index(~np.isfinite(draws))
    if bad is not None:
        raise ValueError(f"values{list(bad)} is {draws[bad]}, expected a finite number")
    check_number("level", level, lambda x: 0 < x < 1, "a number between 0 and 1")
    low, middle, high = np.quantile(draws, [(1 - level) / 2, 0.5, (1 + level) / 2], axis=0)
    figure, panel = place(axes)
    x = np.arange(draws.shape[1])
    panel.errorbar(x, middle, yerr=[middle - low, high - middle], fmt="o", label=f"median, {level:.0%} interval")
    if truth is not None:
        panel.plot(x, np.asarray(truth), "k_", markersize=14, label="true value")
    label_axis(panel.xaxis, list(names) if names is not None else list(x), 5.0)
    panel.set_xlabel("state")
    panel.set_ylabel("value")
    panel.legend()
    return figure


@runtime_checkable
class HasTables(OfSpace, CanMean, CanCount, Protocol):
    """A belief with a mean and counts over a space."""


def plot_posterior(posterior: HasTables, *, step: int = 0) -> "Figure":
    """A posterior over an MDP: mean transition probabilities by action, mean rewards, visits; below, how sure they are.

    The lower tables are standard deviations over the posterior, of each probability and of each mean reward; a
    posterior that cannot say them (one of your own) has the upper tables alone. Where steps can end an episode, the
    last column is the end. A standard deviation that does not exist is blank. Names are shortened, turned or thinned
    so that they do not overlap. Of more than 22 actions the first 22 have a table of probabilities.

    Args:
        posterior: anything with `space`, `mean_mdp` and `visit_counts`.
        step: which step, where rows depend on it.

    Raises:
        ValueError: the posterior has no such step.
        TypeError: an index that is no integer, a posterior without the means that are plotted.

    Example:
        >>> prior, space = bm.models.dirichlet_normal(), bm.StateActionSpace(2, 2)
        >>> posterior = bm.infer(jax.random.key(0), prior, space=space)
        >>> bm.plots.plot_posterior(posterior).savefig("posterior.png")
    """
    for ability in (CanMean, CanCount):
        require_ability(posterior, ability, "plot_posterior")
    space = posterior.space
    check_count("step", step, 0)
    if not 0 <= step < (space.horizon or 1):
        raise ValueError(f"step is {step}, expected an index from 0 to {(space.horizon or 1) - 1}")
    mean = posterior.mean_mdp().at(step)
    rows = np.asarray(mean.to_dense().transition_probs if isinstance(mean, SparseMDP) else mean.transition_probs)
    if mean.end_probs is not None:
        rows = np.concatenate([rows, np.asarray(mean.end_probs)[..., None]], axis=-1)
    outcomes = [*space.state_names, END][: rows.shape[-1]]
    visits = np.asarray(posterior.visit_counts())
    visits = visits if space.horizon is None else visits[step]
    shown = space.action_names[:MOST_ACTIONS]
    spread = _standard_deviations(posterior, step) if isinstance(posterior, HasMoments) else None
    num_blocks = 1 if spread is None else 2
    figure, axes, columns = _axes(len(shown) + 2, num_blocks)
    needed = 0.0
    # Means with the visits in the first block, standard deviations in the second.
    for first, words, probs, rewards in (
        (0, ("P(next)", "mean reward"), rows, mean.reward),
        (len(shown) + 2, ("sd of P(next)", "sd of the mean reward"), *(spread or (None, None))),
    ):
        if probs is None or rewards is None:
            continue
        for panel, a in zip(axes[first:], range(len(shown)), strict=False):
            across = _table(panel, probs[:, a], f"{words[0]}\naction {shorten(shown[a])}", "next state", outcomes)
            panel.images[0].set_clim(0.0, 1.0 if first == 0 else max(float(np.nanmax(probs)), 1e-12))
            needed = max(needed, across)
        needed = max(needed, _table(axes[first + len(shown)], rewards, words[1], "action", space.action_names))
    needed = max(needed, _table(axes[len(shown) + 1], visits, "visits", "action", space.action_names))
    # The states are named at the left of each row of tables.
    left = 0.0
    upper = len(shown) + 2
    for i, panel in enumerate(axes):
        panel.set_yticks([])
        if i % upper % columns == 0:
            left = label_axis(panel.yaxis, space.state_names, HEIGHT)
            panel.set_ylabel("state")
    if len(shown) < space.n_actions:
        figure.suptitle(f"the first {len(shown)} of {space.n_actions} actions", fontsize=10)
    figure.set_size_inches(left + (WIDTH + 0.9) * columns, (HEIGHT + 0.9 + needed) * -(-upper // columns) * num_blocks)
    return figure


def _standard_deviations(
    posterior: HasMoments, step: int
) -> tuple[Float[np.ndarray, "S A O"], Float[np.ndarray, "S A"]]:
    """Of each transition probability, next states in their order and then the end, and of each mean reward."""
    space, moments = posterior.space, moments_of(posterior)
    variances = (np.asarray(x, float) for x in (moments.probs_variance, moments.reward_variance))
    rows, rewards = (x if space.horizon is None else x[step] for x in variances)
    if space.successors is not None:
        # Listed outcomes to their columns; the number of states is the end, -1 fills up a list.
        listed = np.broadcast_to(np.asarray(space.successors), rows.shape)
        dense = np.zeros((*rows.shape[:-1], space.n_states + 2))
        np.put_along_axis(dense, np.where(listed < 0, space.n_states + 1, listed), rows, -1)
        rows = dense[..., : space.n_states + bool(space.ends)]
    # Rounding may leave a variance below zero; one that does not exist is infinite or nan.
    rows, rewards = (np.sqrt(np.where(np.isfinite(x), np.maximum(x, 0.0), np.nan)) for x in (rows, rewards))
    return rows, rewards


def _axes(number: int, blocks: int) -> tuple["Figure", "list[Axes]", int]:
    """A figure of its own with blocks of so many axes, one below the other, and how many are in a row.

    The last block has one less: nothing stands below the visits. pyplot's global state is not changed.
    """
    from bayes_mdp.utils.figures import NotebookFigure

    rows = -(-number // IN_A_ROW)
    columns = -(-number // rows)
    figure = NotebookFigure(layout="constrained")
    grid = figure.subplots(rows * blocks, columns, squeeze=False).reshape(blocks, rows * columns)
    lower = number - (blocks - 1)
    panels = [*grid[0, :number], *grid[1:, :lower].ravel()]
    for unused in [*grid[0, number:], *grid[1:, lower:].ravel()]:
        unused.remove()
    return figure, panels, columns


def _table(axes: "Axes", values: ArrayLike, title: str, xlabel: str, names: Sequence[Hashable]) -> float:
    """A table as colours; returns the inches that the names below it need."""
    image = axes.imshow(np.asarray(values), aspect="auto", cmap="viridis")
    axes.figure.colorbar(image, ax=axes, fraction=0.05)
    axes.set_title(title, fontsize=10)
    axes.set_xlabel(xlabel)
    return label_axis(axes.xaxis, names, WIDTH)


def plot_training(
    results: "xr.Dataset | Mapping[str, xr.Dataset]",
    *,
    show: str = "score",
    axes: "Axes | None" = None,
) -> "Figure":
    """Learning curves: the mean over seeds, and its 95 % interval; evaluations as points.

    Args:
        results: the dataset of a `Training` (`curves.nc`), or several by name.
        show: a variable [seed, checkpoint]: "score", "length", "loss", "q", "u_loss", ...
        axes: where to draw; None: in a figure of its own.

    Raises:
        ValueError: no results, or no such variable.
        TypeError: no dataset of `train`.

    Example:
        >>> from bayes_mdp.agents.neural import DQN
        >>> options = bm.deep.TrainOptions(num_envs=4, replay_size=64, progress=False)
        >>> env = bm.envs.deep_sea_observed(4)
        >>> training = bm.deep.train(DQN(), env, num_steps=16, options=options)
        >>> bm.plots.plot_training(training.dataset).savefig("training.png")
    """
    named = by_name(results)
    if not named:
        raise ValueError("results is empty, expected at least one dataset of train")
    for name, result in named.items():
        check_dataset(f"results[{name!r}]" if name else "results", result)
    figure, panel = place(axes)
    for name, result in named.items():
        curves = [str(x) for x, values in result.data_vars.items() if values.dims == ("seed", "checkpoint")]
        check_name("show", show, curves)
        x, line = result["step"].to_numpy(), result[show].to_numpy()
        drawn = _band(panel, x, line, name)
        if show == "score" and "evaluation_score" in result:
            _points(panel, result, drawn)
    panel.set_xlabel("environment steps")
    panel.set_ylabel(f"{show} (mean of the episodes that ended)" if show in ("score", "length") else show)
    seeds = next(iter(named.values())).sizes["seed"]
    title = f"mean of {count_of(seeds, 'seed')}" + (", 95 % interval" if seeds > 1 else "")
    if set(named) == {""}:
        panel.set_title(title)
    else:
        panel.legend(title=title)
    return figure  # pyright: ignore[reportReturnType]


def _band(where: "Axes", x: np.ndarray, values: np.ndarray, name: str, level: float = 0.95) -> "ColorType":
    """Mean over the seeds and, of several, the normal interval of that mean; the colour of the line."""
    known = np.isfinite(values).any(0)
    mean = np.nanmean(values[:, known], 0)
    (line,) = where.plot(x[known], mean, label=name or None)
    if len(values) > 1:
        half = np.apply_along_axis(_half, 0, values[:, known], level)
        where.fill_between(x[known], mean - half, mean + half, alpha=0.25, linewidth=0, color=line.get_color())
    return line.get_color()


def _half(values: np.ndarray, level: float) -> float:
    values = values[np.isfinite(values)]
    return float(half_width(values, level)) if len(values) > 1 else 0.0


def _points(where: "Axes", result: "xr.Dataset", color: "ColorType") -> None:
    scores = result["evaluation_score"].to_numpy()
    known = np.isfinite(scores).any(0)
    where.plot(
        result["evaluation_step"].to_numpy()[known],
        np.nanmean(scores[:, known], 0),
        linestyle="none",
        marker="o",
        markersize=4,
        markerfacecolor="none",
        color=color,
    )


def plot_visits(result: "xr.Dataset", *, seed: int | None = None) -> "Figure":
    """A film strip: how often each place was visited, in each eighth of the training.

    Args:
        result: the dataset of a `Training` in an environment with a map (DeepSea).
        seed: of which seed; None: the mean of all.

    Raises:
        ValueError: the dataset has no visits, or no such seed.
        TypeError: no dataset.

    Example:
        >>> from bayes_mdp.agents.neural import DQN
        >>> options = bm.deep.TrainOptions(num_envs=4, replay_size=64, progress=False)
        >>> env = bm.envs.deep_sea_observed(4)
        >>> training = bm.deep.train(DQN(), env, num_steps=16, options=options)
        >>> bm.plots.plot_visits(training.dataset).savefig("visits.png")
    """
    check_dataset("result", result)
    from matplotlib.colors import LogNorm

    from bayes_mdp.utils.figures import NotebookFigure

    if "visits" not in result:
        raise ValueError("result has no visits, expected a training in an environment with a map, such as deep_sea")
    visits = result["visits"]
    if seed is not None and not 0 <= seed < visits.sizes["seed"]:
        raise ValueError(f"seed is {seed}, expected an index from 0 to {visits.sizes['seed'] - 1}")
    shown = visits.mean("seed") if seed is None else visits.isel(seed=seed)
    frames = [frame for frame in shown.to_numpy() if frame.any()]
    figure = NotebookFigure(figsize=(1.9 * len(frames) + 0.8, 2.5), layout="constrained")
    axes = figure.subplots(1, len(frames))
    norm = LogNorm(1.0, max(float(max(frame.max() for frame in frames)), 2.0))
    image = None
    for number, (panel, frame) in enumerate(zip(np.atleast_1d(axes), frames, strict=True)):
        image = panel.imshow(np.where(frame > 0, frame, np.nan), norm=norm, cmap="viridis")
        panel.set_title(f"{number + 1} / {len(frames)}", fontsize=9)
        panel.set_xticks([])
        panel.set_yticks([])
        panel.set_facecolor("0.9")
    figure.colorbar(image, ax=axes, label="visits")  # pyright: ignore[reportArgumentType]
    figure.suptitle("where the agent was, part by part of the training", fontsize=10)
    return figure
