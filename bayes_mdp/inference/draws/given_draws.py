# pyright: strict, reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownLambdaType=false
# pyright: reportUnknownArgumentType=false, reportUnknownParameterType=false, reportMissingTypeStubs=false
"""A posterior from draws that another program made: PyMC, Stan, NumPyro by hand, R.

`posterior_from_draws` finds the transition probabilities and rewards among the draws (arrays, xarray, ArviZ, NetCDF,
CSV), checks every row, and gives `GivenDraws`: a belief that is these draws, each used once, in their order.
"""

import os
import re
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeAlias, runtime_checkable

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Bool, Float, Int, PRNGKeyArray

from bayes_mdp.inference.draws.chains import MAX_R_HAT, MIN_ESS, effective_size, split_r_hat
from bayes_mdp.inference.draws.weighted_samples import PosteriorSamples
from bayes_mdp.inference.pair_draws import PairDraws, WholeDraws, draws_of_pairs, whole_draws
from bayes_mdp.mdp import StateActionSpace
from bayes_mdp.mdp.labelled_tables import in_order
from bayes_mdp.mdp.labels import names_of_lists
from bayes_mdp.mdp.space import END, check_space, mdps_of_tables
from bayes_mdp.utils.messages import count_of, first_names
from bayes_mdp.utils.typing import ArrayLike
from bayes_mdp.utils.validation import as_real, check_labels, check_shape, check_type, described, first_index

if TYPE_CHECKING:
    import pandas as pd
    import xarray as xr


@runtime_checkable
class HasGroups(Protocol):
    """ArviZ's InferenceData, whose group `posterior` holds draws."""

    def groups(self) -> list[str]:
        """Names of the groups."""
        ...


AnyPath: TypeAlias = str | os.PathLike[str]
Draws: TypeAlias = "Mapping[str, ArrayLike] | xr.Dataset | xr.DataTree | HasGroups | AnyPath | Sequence[AnyPath]"
"""Arrays by name; a dataset; ArviZ's InferenceData or DataTree (its group `posterior`); a NetCDF file of either; a CSV
file of all chains, or one for each."""

ByAction: TypeAlias = Mapping[str, str] | Mapping[Hashable, str]
"""{action: variable}."""

ROWS_SUM = 1e-6
"""By how much the probabilities of a row may miss one: draws in text have six digits."""
_CHAIN, _ITERATION = ("chain", ".chain"), (".iteration", "iteration")
_WEIGHT = (".log_weight", ".weight", "log_weight")


class GivenDraws(PosteriorSamples):
    """A belief that is a fixed number of draws, each used once (built by `posterior_from_draws`).

    Args:
        mdps: an MDP whose arrays have a leading axis N, chain after chain.
        weights: [N], all equal.
        space: sizes, names, masks.
        num_chains: how many chains made the draws.
        worth_each: how many independent draws each is worth at most, below 1 where they were picked by weights.
    """

    space: StateActionSpace
    num_chains: int = eqx.field(static=True, default=1)
    worth_each: float = eqx.field(static=True, default=1.0)

    @property
    def num_held(self) -> int:
        """N, the number of draws (`HoldsDraws`)."""
        return len(self.weights)

    @property
    def method(self) -> str:
        """How it was inferred: not here."""
        return "given draws"

    def take(self, index: Int[np.ndarray, " M"]) -> "GivenDraws":
        """Some of the draws, of equal weight again.

        Args:
            index: which, in the order in which they are used.
        """
        mdps = jax.tree.map(lambda x: np.asarray(x)[index], self.mdps)
        return GivenDraws(mdps, np.full(len(index), 1.0 / len(index)), self.space, worth_each=self.worth_each)

    def _of_each_chain(self, index: Int[np.ndarray, " M"]) -> "GivenDraws":
        """These draws of every chain."""
        # Draws lie chain after chain: the first place of each chain, plus the place within it.
        first = np.arange(self.num_chains)[:, None] * (self.num_held // self.num_chains)
        part = self.take((first + index).ravel())
        return GivenDraws(part.mdps, part.weights, part.space, self.num_chains, self.worth_each)

    def thinned(self, num: int) -> "GivenDraws":
        """`num` of the draws at most, evenly spaced, as many of each chain (`HoldsDraws`); all where there are no more.

        Args:
            num: how many.
        """
        num_held = self.num_held
        if num >= num_held:
            return self
        per_chain, length = num // self.num_chains, num_held // self.num_chains
        # As many of each chain, evenly spaced; with more chains than draws asked for, chains no longer matter.
        return (
            self._of_each_chain(np.arange(per_chain) * length // per_chain)
            if per_chain
            else self.take(np.arange(num) * num_held // num)
        )

    def halves(self) -> "tuple[GivenDraws, GivenDraws]":
        """Every second draw of each chain, and the others: what the one chooses, the other judges (`HoldsDraws`)."""
        # Every second draw, not the first and second half: both halves see the whole run of each chain.
        length = self.num_held // self.num_chains
        if length < 2:  # chains of one draw: every second chain
            return self.take(np.arange(0, self.num_held, 2)), self.take(np.arange(1, self.num_held, 2))
        return self._of_each_chain(np.arange(0, length, 2)), self._of_each_chain(np.arange(1, length, 2))

    def effective_number(self, values: Float[np.ndarray, " N"]) -> float:
        """How many independent draws the mean of these values, one for each draw, is worth (`HoldsDraws`).

        By the autocorrelation of the chains and their spread, as ArviZ's `ess(method="mean")` of chains cut in half
        (Vehtari and others 2021); as many as the weights allow where it cannot be told: fewer than four draws a chain,
        or no change.

        Args:
            values: in the order of the draws.
        """
        length, most = self.num_held // self.num_chains, len(values) * self.worth_each
        if length < 4:
            return most
        chains = np.asarray(values, np.float64).reshape(self.num_chains, length)
        # Chains in halves: one that drifts is not taken for one that mixes.
        cut = length // 2
        # 2 C half-chains [2C, N / 2]; the middle draw of an odd length is left out.
        number = float(effective_size(np.concatenate([chains[:, :cut], chains[:, length - cut :]])))
        return min(number, most) if np.isfinite(number) and number > 0 else most

    def pair_draws(self, key: PRNGKeyArray, needed: Bool[np.ndarray, "*H S A"]) -> PairDraws:
        """The draws of the needed pairs, one after the other; after the last comes the first again.

        Args:
            key: not used: nothing is drawn.
            needed: which pairs.
        """
        del key
        draws, used = whole_draws(self.mdps), 0

        def following(num: int) -> WholeDraws:
            nonlocal used
            # Round and round: draws are given, so that a longer stream repeats them.
            index = np.arange(used, used + num) % self.num_held
            used += num
            return draws.take((index,))

        return draws_of_pairs(following, needed, self.sizes())

    def by_chain(self) -> dict[str, Float[np.ndarray, "C N *axes"]]:
        """The draws, with the axis of the chains.

        Returns:
            "transition_probs", probabilities [C N *H S A O], and "reward_mean", rewards [C N *H S A].
        """
        probs, reward, ends, _ = whole_draws(self.mdps)
        # The end of an episode is the last outcome of a row.
        rows = np.asarray(probs) if ends is None else np.concatenate([probs, np.asarray(ends)[..., None]], -1)
        chains = (self.num_chains, self.num_held // self.num_chains)
        values = {"transition_probs": rows, "reward_mean": np.asarray(reward)}
        return {name: x.reshape(*chains, *x.shape[1:]) for name, x in values.items()}

    def problems(self) -> list[str]:
        """What r-hat and the effective sample size of rows and rewards say against the draws; empty: nothing."""
        r_hat, size = 1.0, np.inf
        for values in self.by_chain().values():
            # Known entries are constant: their r-hat is 0 / 0 and says nothing.
            varies = np.ptp(values, axis=(0, 1)) > 0
            if varies.any() and values.shape[1] >= 4:
                r_hat = max(r_hat, float(np.nanmax(np.asarray(split_r_hat(values))[varies])))
                size = min(size, float(np.nanmin(np.asarray(effective_size(values))[varies])))
        lines = []
        if r_hat > MAX_R_HAT:
            lines.append(f"chains disagree: the largest r-hat of a row or reward is {r_hat:.3f}, expected {MAX_R_HAT}")
        if size < MIN_ESS:
            lines.append(f"few independent draws: the smallest effective sample size is {size:.0f}")
        return lines

    def __str__(self) -> str:
        states, actions = self.space.shape[-2:]
        chains = f"{count_of(self.num_chains, 'chain')} of {self.num_held // self.num_chains}"
        fixed = not np.ptp(np.asarray(self.mdps.reward), axis=0).any()
        lines = [
            f"Posterior over {count_of(states, 'state')} x {count_of(actions, 'action')}, given by "
            f"{self.num_held} draws ({chains})",
            f"  rewards  {'the same in all draws' if fixed else 'drawn with the rows'}",
            "  data     not known: what was tried, and what rests on the prior, cannot be said",
            *(f"  warning  {line}" for line in self.problems()),
        ]
        return "\n".join(lines)


class _Variable(NamedTuple):
    """Values of one variable, chains and draws first.

    Args:
        values: [C N ...].
        dims: names of the axes after these; None: the draws have none.
        labels: {dim: its labels}, where it has any.
    """

    values: np.ndarray
    dims: tuple[str, ...] | None
    labels: Mapping[str, Sequence[Hashable]]


def posterior_from_draws(
    draws: Draws,
    transition: str | ByAction = "P",
    reward: str | ByAction | ArrayLike = "r",
    *,
    space: StateActionSpace | None = None,
    dims: Mapping[str, str] | None = None,
) -> GivenDraws:
    """A posterior from draws of transition probabilities and rewards that any program made.

    Every draw is used once, in its order: `policy_value` of 400 draws has 400 values, whatever `num_draws` is above it;
    of fewer it takes as many of each chain, evenly spaced. `choose` lets every second draw choose and the others judge.
    The Monte Carlo error that is stated is that of the effective number of draws, by the autocorrelation of the values
    in the chains; `problems()` and `print` say where chains disagree.

    Args:
        draws: see `Draws`. Arrays begin with an axis of draws, or with two, of chains and draws. Names of a CSV file
            are those of Stan (`P.1.2.3`) or of R (`P[1,2,3]`), counted from 1 or from 0; `.chain` says the chain of a
            row, and `.iteration` its place in it. Rows of Stan that are no draws are left out: those of its warm-up,
            and the mean, which a variational fit writes first.
        transition: the variable of the probabilities, (step,) state, action, outcome; or {action: variable} with state,
            outcome. The last outcome is the end of an episode where there is one more than states.
        reward: the variable of the mean rewards, (step,) state, action; {action: variable}; or known rewards, [*H S A].
        space: names, legal actions, horizon. None: as the draws have them; names are the coordinates of a dataset.
        dims: {"state": name, "action": name, "outcome": name, "step": name}: which axis of a dataset is which. None:
            those of these names, and the others in this order.

    Raises:
        ValueError: no such variable; a row that does not sum to one (within 1e-6; it is then divided by its sum), is
            negative or not finite, with its chain, draw and pair; chains of unequal length; names that clash with those
            of the space, or of another axis; a file that cannot be read; one of weighted draws, or of Stan's optimiser.
        TypeError: draws of another kind.

    Example:
        >>> rows = np.random.default_rng(0).dirichlet([1.0, 1.0], (2, 100, 2, 1))  # chain, draw, state, action
        >>> posterior = bm.posterior_from_draws({"P": rows}, reward=[[0.0], [1.0]])
        >>> len(bm.policy_value(jax.random.key(0), posterior, [0, 0], bm.Discounted(0.9)).draws)
        200
    """
    if space is not None:
        check_space(space)
    # Rows first: their axes give the sizes of the space, where none is given.
    source = _read(draws)
    steps = space is not None and space.horizon is not None
    axes = (("step",) if steps else ()) + ("state", "action")
    rows = _find(source, "transition", transition, (*axes, "outcome"), dims)
    number, sizes = rows.values.shape[:2], rows.values.shape[2:]
    space = _space_of(rows, sizes) if space is None else space
    _check_listed(source, space)
    words = ", ".join(("chain", "draw", *axes))
    check_shape("transition", rows.values, (*number, *space.shape, space.n_outcomes), f"{words}, outcome")
    _check_names(rows, space)
    # A name is a variable of the draws, anything else the rewards themselves, known and the same in every draw.
    if isinstance(reward, (str, Mapping)):
        paid = _find(source, "reward", reward, axes, dims)
        _check_names(paid, space)
        check_shape("reward", paid.values, (*number, *space.shape), words)
        mean = as_real("reward", paid.values).astype(np.float64)
    else:
        named = in_order("reward", reward, state=space.state_names, action=space.action_names)
        known = as_real("reward", named).astype(np.float64)
        check_shape("reward", known, space.shape, ", ".join(axes))
        mean = np.broadcast_to(known, (*number, *space.shape))
    probs, mean = _check_rows(as_real("transition", rows.values).astype(np.float64), mean, space)
    # Draws in double precision stay so: each is used as it is, none is drawn anew.
    mdps = mdps_of_tables(space, probs.reshape(-1, *probs.shape[2:]), mean.reshape(-1, *mean.shape[2:]))
    count = number[0] * number[1]
    return GivenDraws(mdps, np.full(count, 1.0 / count), space, number[0])


def space_of_draws(
    draws: Draws, transition: str | ByAction = "P", *, dims: Mapping[str, str] | None = None
) -> StateActionSpace:
    """The space of draws of transition probabilities: sizes, and names where the draws have some.

    Args:
        draws, transition, dims: as of `posterior_from_draws`.
    """
    rows = _find(_read(draws), "transition", transition, ("state", "action", "outcome"), dims)
    return _space_of(rows, rows.values.shape[2:])


def _check_listed(source: "_Held", space: StateActionSpace) -> None:
    """Refuse outcomes that are places of listed successors, unless the space lists the same ones.

    Raises:
        ValueError: a dataset that says of every pair which states its outcomes are, and a space that says otherwise.
    """
    # `to_arviz` of such a posterior has a coordinate next_state [S A K] in place of one label for each outcome.
    listed = None if source.dataset is None else source.dataset.coords.get("next_state")
    if listed is None or listed.ndim < 3:
        return
    if space.successors is not None and np.array_equal(listed.values.astype(str), names_of_lists(space)):
        return
    raise ValueError(
        "transition has places of listed successors as outcomes, which are other states in every pair (see the "
        "coordinate 'next_state'), expected space=, with the same successors"
    )


def _check_rows(
    rows: Float[np.ndarray, "C N *H S A O"], reward: Float[np.ndarray, "C N *H S A"], space: StateActionSpace
) -> tuple[np.ndarray, np.ndarray]:
    """Rows that sum to one, of legal pairs; of others nothing is asked."""
    if space.legal is not None:
        legal = np.broadcast_to(np.asarray(space.legal), space.shape)
        # Whatever a program has put there; a uniform row passes the checks below and is never read.
        rows = np.where(legal[..., None], rows, 1.0 / rows.shape[-1])
        reward = np.where(legal, reward, 0.0)

    def refuse(bad: Bool[np.ndarray, "C N *H S A"], name: str, shown: np.ndarray, expected: str) -> None:
        index = first_index(bad)
        if index is not None:
            chain, draw, *step, state, action = index
            place = f"chain {chain}, draw {draw}, " + "".join(f"step {h}, " for h in step)
            place += f"state {space.state_names[state]!r}, action {space.action_names[action]!r}"
            raise ValueError(f"{name} in {place} {shown[index]}, expected {expected}")

    # Finite, not negative, summing to one, rewards finite: the first fault of the earliest kind is named.
    finite = np.asarray(np.isfinite(rows).all(-1))
    refuse(np.asarray(~finite), "transition", np.where(finite, "", "is not finite"), "probabilities")
    least = rows.min(-1)
    refuse(
        np.asarray(least < 0), "transition", np.char.add("has ", least.astype(str)), "probabilities of zero or greater"
    )
    total = rows.sum(-1)
    refuse(
        np.asarray(np.abs(total - 1.0) > ROWS_SUM),
        "transition",
        np.char.add("sums to ", total.astype(str)),
        "a sum of 1",
    )
    refuse(np.asarray(~np.isfinite(reward)), "reward", np.char.add("is ", reward.astype(str)), "a finite number")
    # Exactly one after that: draws in text are rounded.
    return rows / total[..., None], reward


def _space_of(rows: _Variable, sizes: tuple[int, ...]) -> StateActionSpace:
    states, actions, outcomes = sizes
    # Square rows, or one outcome more: the end of an episode.
    if outcomes not in (states, states + 1):
        raise ValueError(
            f"transition has {states} states and {outcomes} outcomes, expected as many, or one more (the end of an "
            "episode)"
        )
    dims = rows.dims or ("state", "action", "outcome")
    # Labels of a dataset become the names of the space; arrays have numbers.
    named = zip(("states", "actions"), dims, strict=False)
    names = {axis: tuple(rows.labels[dim]) for axis, dim in named if dim in rows.labels}
    return StateActionSpace(states, actions, ends=outcomes > states, **names)


def _check_names(variable: _Variable, space: StateActionSpace) -> None:
    """Labels of a dataset are those of the space, in its order; outcomes are the states and perhaps the end."""
    axes = (("step",) if space.horizon is not None else ()) + ("state", "action", "outcome")
    for axis, dim in zip(axes, variable.dims or (), strict=False):
        labels = variable.labels.get(dim)
        if labels is None or axis == "step":
            continue
        known = {"state": space.state_names, "action": space.action_names, "outcome": space.outcome_names}[axis]
        if axis == "outcome" and space.ends and len(labels) == len(known):
            labels = (*labels[:-1], END)  # what the end is called is another program's business
        if _are_numbers(labels) and not _are_numbers(known):
            continue  # coordinates that only count
        check_labels(f"the labels of {dim!r} ({axis})", tuple(labels), tuple(known))


def _are_numbers(names: Sequence[Hashable]) -> bool:
    return list(names) in (list(range(len(names))), list(range(1, len(names) + 1)))


def _find(
    held: "_Held", what: str, name: str | ByAction, axes: tuple[str, ...], dims: Mapping[str, str] | None
) -> _Variable:
    """A variable [C N *axes]; one for each action, put side by side along the axis of the actions."""
    if isinstance(name, Mapping):
        if not name:
            raise ValueError(f"{what} is empty, expected a variable for each action")
        # Variables by action have no axis of actions: each is [C N, state, outcome], say.
        rest = tuple(axis for axis in axes if axis != "action")
        variables = [held.variable(what, part, rest, dims) for part in name.values()]
        shapes = {part.values.shape for part in variables}
        if len(shapes) > 1:
            raise ValueError(f"{what} has variables of shapes {sorted(shapes)}, expected one shape for all actions")
        # C and N are in front, so that the axis of actions is two places further on.
        place = 2 + axes.index("action")
        first = variables[0].dims
        names = axes if first is None else (*first[: place - 2], "action", *first[place - 2 :])
        labels = {**variables[0].labels, "action": tuple(name)}
        return _Variable(np.stack([part.values for part in variables], place), names, labels)
    return held.variable(what, name, axes, dims)


@dataclass(eq=False)
class _Held:
    """Arrays by name, as [C N ...]; `xr.Dataset` keeps its dims and labels."""

    arrays: Mapping[str, ArrayLike] | None = None
    dataset: "xr.Dataset | None" = None

    def variable(self, what: str, name: str, axes: tuple[str, ...], dims: Mapping[str, str] | None) -> _Variable:
        """The variable with these axes after chains and draws.

        Args:
            what: the argument that names it, for messages.
            name: of the variable.
            axes: step, state, action, outcome, or some of them.
            dims: which axis of a dataset is which.
        """
        names = list(self.arrays if self.arrays is not None else self.dataset.data_vars)  # type: ignore[union-attr]
        if name not in names:
            raise ValueError(f"{what} is {name!r}, expected a variable of the draws, which have {first_names(names)}")
        if self.dataset is not None:
            return self._of_dataset(what, name, axes, dims)
        assert self.arrays is not None
        if dims is not None:
            raise ValueError(f"dims names the axes of {name!r}, which has none, expected a dataset (or None)")
        values = np.asarray(self.arrays[name])
        # One leading axis is draws, two are chains and draws; any other number fits no reading.
        leading = values.ndim - len(axes)
        if leading not in (1, 2):
            listed = ", ".join(axes)
            raise ValueError(
                f"{what} is {name!r}, of shape {values.shape}, expected draw, {listed} or chain, draw, {listed}"
                + ("" if "action" not in axes else " (without actions: {action: variable})")
            )
        return _Variable(values if leading == 2 else values[None], None, {})

    def _of_dataset(self, what: str, name: str, axes: tuple[str, ...], dims: Mapping[str, str] | None) -> _Variable:
        assert self.dataset is not None
        array = self.dataset[name]
        if "draw" not in array.dims:
            raise ValueError(f"{what} is {name!r} with dims {array.dims}, expected a dim 'draw'")
        if "chain" not in array.dims:
            array = array.expand_dims("chain")
        rest = [str(dim) for dim in array.dims if dim not in ("chain", "draw")]
        if dims is not None:
            check_type("dims", dims, Mapping, "a mapping from axes to names")
            rest_named = [dims.get(axis, axis) for axis in axes]
            missing = [dim for dim in rest_named if dim not in rest]
            if missing:
                raise ValueError(f"dims names {missing[0]!r}, expected one of {name!r}: {', '.join(rest)}")
            rest = rest_named
        elif len(rest) == len(axes):
            # What has the name of an axis is that axis, wherever it stands; the others are in their order.
            others = iter([dim for dim in rest if dim not in axes])
            rest = [axis if axis in rest else next(others) for axis in axes]
        if len(rest) != len(axes) or array.ndim != len(axes) + 2:
            raise ValueError(f"{what} is {name!r} with dims {array.dims}, expected chain, draw, {', '.join(axes)}")
        # By name, whatever the order in the file.
        array = array.transpose("chain", "draw", *rest)
        labels = {dim: array.coords[dim].values.tolist() for dim in rest if dim in array.coords}
        return _Variable(np.asarray(array.values), tuple(rest), labels)


def _read(draws: object) -> _Held:
    """Whatever holds draws, told apart by what it is, never by what is in it."""
    if isinstance(draws, (str, os.PathLike)):
        return _read_file(Path(draws))
    if isinstance(draws, Sequence) and draws and all(isinstance(path, (str, os.PathLike)) for path in draws):
        return _Held(_of_csv([Path(path) for path in draws]))
    # Duck typing, since xarray and ArviZ are not imported unless somebody has them.
    group = getattr(draws, "posterior", None)  # InferenceData and DataTree
    if hasattr(group, "data_vars") or hasattr(group, "to_dataset"):
        return _Held(dataset=group.to_dataset() if hasattr(group, "to_dataset") else group)  # type: ignore[union-attr]
    if hasattr(draws, "data_vars"):
        return _Held(dataset=draws)  # type: ignore[arg-type]
    if isinstance(draws, Mapping):
        return _Held(draws)
    raise TypeError(
        f"draws is {described(draws)}, expected arrays by name, a dataset, InferenceData or DataTree, or a path"
    )


def _read_file(path: Path) -> _Held:
    if not path.exists():
        raise FileNotFoundError(f"draws is {str(path)!r}, which is not there")
    if path.suffix.lower() in (".csv", ".txt"):
        return _Held(_of_csv([path]))
    import xarray as xr

    try:
        # ArviZ keeps draws in the group `posterior`; a plain dataset has none.
        # A group that is not there raises OSError or KeyError, depending on the version.
        try:
            with xr.open_dataset(path, group="posterior", engine="h5netcdf") as dataset:
                return _Held(dataset=dataset.load())
        except (OSError, KeyError):
            with xr.open_dataset(path, engine="h5netcdf") as dataset:
                return _Held(dataset=dataset.load())
    except Exception as error:  # HDF5 raises errors of many types
        raise ValueError(
            f"draws is {str(path)!r}, expected a NetCDF file of draws, or a name that ends in .csv"
        ) from error


def _of_csv(paths: Sequence[Path]) -> dict[str, np.ndarray]:
    """Arrays [C N ...] of the columns `name.1.2` or `name[1,2]`; one file is all chains, several are one each."""
    import pandas as pd

    # Stan writes a file for each chain, R's posterior package one file with a column for the chain.
    tables = []
    for path in paths:
        table = pd.read_csv(path, comment="#").iloc[_rows_before_draws(path) :]
        weight = next((name for name in _WEIGHT if name in table), None)
        if weight is not None:
            raise ValueError(
                f"{path.name} has the column {weight!r}, expected draws of equal weight (in R: resample_draws)"
            )
        chain = next((name for name in _CHAIN if name in table), None)
        parts = [table] if chain is None else [part for _, part in table.groupby(chain, sort=True)]
        # Autocorrelation is told by the order of the draws; iterations that repeat are of chains without a name.
        iteration = next((name for name in _ITERATION if name in table and parts[0][name].is_unique), None)
        tables += parts if iteration is None else [part.sort_values(iteration) for part in parts]
    lengths = [len(table) for table in tables]
    if len(set(lengths)) > 1:
        odd = next(i for i, length in enumerate(lengths) if length != lengths[0])
        raise ValueError(
            f"draws has {lengths[odd]} in chain {odd + 1} and {lengths[0]} in chain 1, expected as many in each"
        )
    if any(list(table.columns) != list(tables[0].columns) for table in tables):
        raise ValueError("draws has files with differing columns, expected the same variables in each")
    columns: dict[str, dict[tuple[int, ...], str]] = {}
    for column in tables[0].columns:
        # P.1.2.3 (Stan) or P[1,2,3] (R; PyMC and ArviZ from 0).
        match = re.fullmatch(r"(.+?)(?:\.(\d+(?:\.\d+)*)|\[(\d+(?:,\s*\d+)*)\])", str(column))
        if match:
            index = tuple(int(i) for i in re.split(r"[.,]\s*", match[2] or match[3]))
            columns.setdefault(match[1], {})[index] = column
    return {name: _array_of(tables, name, places) for name, places in columns.items()}


def _rows_before_draws(path: Path) -> int:
    """How many rows of a CSV file are no draws, by what Stan says in its comments.

    Raises:
        ValueError: there are none, since it is an optimum; or all, since the run was stopped in its warm-up.
    """
    rows, method, saved = -1, "", False  # the first line that is no comment has the names
    with path.open(encoding="utf-8", errors="replace") as file:
        for line in file:
            if not line.startswith("#"):
                rows += 1
                if not (method == "sample" and saved):
                    break  # draws follow
            elif said := re.match(r"#\s*(method|save_warmup)\s*=\s*(\w+)", line):
                method, saved = (said[2], saved) if said[1] == "method" else (method, said[2] in ("1", "true"))
            elif "Adaptation terminated" in line:
                return max(rows, 0)
    if method == "optimize":
        raise ValueError(f"{path.name} is an optimum, a single point, expected draws (method=sample)")
    if method == "sample" and saved:
        raise ValueError(
            f"{path.name} was written with save_warmup, and does not say where the warm-up ends, expected the draws "
            "after it"
        )
    return 1 if method == "variational" else 0


def _array_of(tables: "Sequence[pd.DataFrame]", name: str, places: Mapping[tuple[int, ...], str]) -> np.ndarray:
    """The array of the columns of one variable, which must be there for every index."""
    alike = len({len(place) for place in places}) == 1
    index = np.array(list(places)) if alike else np.zeros((1, 1), int)
    # From 1, or from 0: an array that is complete tells which.
    index = index - min(int(index.min()), 1)
    shape = tuple(index.max(0) + 1)
    if not alike or len(places) != int(np.prod(shape)):
        raise ValueError(f"draws has {len(places)} columns of {name!r}, expected one for each index from 1 (or from 0)")
    # Columns may come in any order: sorted by their flat index.
    flat = np.ravel_multi_index(tuple(index.T), shape)
    order = [list(places.values())[i] for i in np.argsort(flat)]
    return np.stack([table[order].to_numpy() for table in tables]).reshape(len(tables), -1, *shape)
