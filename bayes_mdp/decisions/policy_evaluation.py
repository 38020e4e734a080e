"""`policy_value`: how good a policy is and how sure one may be: it is evaluated in draws of the posterior."""

import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key, PRNGKeyArray, PyTree, UInt32

from bayes_mdp.decisions.outcomes import Outcome, OutcomeValue, PairReward, check_outcomes, read_outcomes
from bayes_mdp.decisions.policy_chains import CanSampleEntries, PolicyChains, evaluate_mean, policy_chains, solved
from bayes_mdp.decisions.start import read_start
from bayes_mdp.decisions.unvisited import Unvisited
from bayes_mdp.decisions.value_basis import ValueBasis, value_bases
from bayes_mdp.mdp import (
    MDP,
    AverageReward,
    CanSample,
    Discounted,
    Episodic,
    FirstExit,
    Objective,
    PolicyOrLabels,
    SparseMDP,
    StateActionSpace,
)
from bayes_mdp.mdp.abilities import require_ability
from bayes_mdp.mdp.labelled_arguments import labels_of, policy_of
from bayes_mdp.mdp.objectives import check_objective
from bayes_mdp.numerics.by_numpy.keys import split_key, take_keys
from bayes_mdp.numerics.by_numpy.small_jit import small_jit
from bayes_mdp.planning import evaluate, policy_probs
from bayes_mdp.planning.linear.systems import LISTED_DIRECT
from bayes_mdp.planning.other_rewards import evaluate_reward
from bayes_mdp.planning.outline import draw_shapes, outline
from bayes_mdp.planning.solution import Solution
from bayes_mdp.planning.start_value import value_at_start
from bayes_mdp.utils.amounts import amount, amounts
from bayes_mdp.utils.html_text import shown_as_html
from bayes_mdp.utils.memory import check_memory
from bayes_mdp.utils.typing import AnyArray, InitialLike, IntScalar, RealScalar
from bayes_mdp.utils.validation import (
    ROW_SUM_TOLERANCE,
    check_count,
    check_key,
    check_name,
    check_number,
    first_index,
)

if TYPE_CHECKING:
    import xarray as xr

LEVEL = 0.95
NUMBERS_AT_ONCE = 2**23  # float64 numbers of hypotheses, and of their chains, that are held at once: 64 MiB
CHAINS_AT_ONCE = 2**21  # the same of chains that are drawn alone: a batch runs until its slowest chain is solved
MOST_AT_ONCE = 256  # draws in a chunk: any larger number of draws is evaluated by one compiled program
FEW_DRAWS = 2048  # of a small problem: NumPy takes less for them than a compilation
SECONDS_OF_A_CHUNK = 0.06  # for NumPy
MANY_DRAWS = 32  # worth the inverses of the chains in the mean
MANY_ENTRIES = 2**16  # of a draw: from here on its random numbers are of single precision
COPIES = 8  # of the numbers of a draw that its drawing and planning hold at once

Tree = TypeVar("Tree")

Keys: TypeAlias = Key[Array, "..."] | UInt32[Array, "... _"]
"""Random keys of many draws, typed or raw."""


class PolicyValue(eqx.Module):
    """The value of a policy under a posterior; `print` shows it in words.

    Args:
        draws: Float64[num_draws], the value in each draw of the MDP (AverageReward: the gain).
        mean: of the draws of the value.
        sd: standard deviation of the draws: what the data leave open, not the Monte Carlo error of `mean`.
        interval: the central 95 % of the draws of the value.
        gap: the largest bound on a draw's numerical error that the planner proved (see `PolicyEvaluation`).
        initial: Float64[S], distribution of the first state.
        initial_given: whether it was given; if not it is uniform.
        basis: what it rests on (data, prior, own choice); None where the posterior has no data counts, or no mean.
        objective: what was evaluated.
        outcomes: name -> `OutcomeValue` in the same draws, of the outcomes that were asked for.
        start: where `initial` is from, in words; "": not known.
    """

    draws: Float[np.ndarray, " num_draws"]
    mean: float
    sd: float
    interval: tuple[float, float]
    gap: float
    initial: Float[np.ndarray, " S"]
    initial_given: bool
    basis: ValueBasis | None
    objective: Objective
    outcomes: dict[str, OutcomeValue] = eqx.field(default_factory=dict)
    start: str = eqx.field(static=True, default="")

    def net_benefit(
        self, wtp: RealScalar, effect: str = "effect", cost: str = "cost"
    ) -> Float[np.ndarray, " num_draws"]:
        """wtp * effect - cost in each draw.

        Args:
            wtp: willingness to pay: what a unit of the effect is worth, in units of the cost.
            effect, cost: names of the outcomes.

        Raises:
            ValueError: `wtp` is negative or not finite; there is no such outcome. TypeError: `wtp` is no number.
        """
        expected = "a finite number, zero or greater"
        check_number("wtp", wtp, lambda x: np.isfinite(x) & (x >= 0), expected)
        if not self.outcomes:
            raise ValueError("there are no outcomes, expected policy_value(..., outcomes=...) for a net benefit")
        for argument, name in (("effect", effect), ("cost", cost)):
            check_name(argument, name, self.outcomes)
        return float(wtp) * self.outcomes[effect].draws - self.outcomes[cost].draws

    def to_dataset(self) -> "xr.Dataset":
        """`value` [draw] and, where outcomes were asked for, `outcomes` [outcome, draw], labelled by their names."""
        import xarray as xr

        found = xr.Dataset({"value": ("draw", self.draws)}, {"draw": np.arange(len(self.draws))})
        if not self.outcomes:
            return found
        stacked = np.stack([outcome.draws for outcome in self.outcomes.values()])
        return found.assign(outcomes=(("outcome", "draw"), stacked)).assign_coords(outcome=list(self.outcomes))

    @property
    def unvisited(self) -> Unvisited | None:
        """The pairs that the policy uses and the data never tried; None where the posterior has no data counts."""
        return None if self.basis is None else self.basis.unvisited

    _repr_html_ = shown_as_html

    def __str__(self) -> str:
        """A few lines for a person."""
        low, high = self.interval
        error = self.sd / len(self.draws) ** 0.5
        lines = [
            f"Value of the policy, {describe_objective(self.objective)}, {len(self.draws)} draws",
            f"  mean {amount(self.mean, 6)} (Monte Carlo error {amount(error, 2)}), sd {amount(self.sd, 3)}, "
            f"95 % interval {amounts(low, high, 6)}",
            *(f"  {line}" for line in describe_outcomes(self)),
            f"  {describe_start(self)}",
            *(f"  {line}" for line in describe_basis(self.basis)),
            *(f"  {line}" for line in describe_law(self.basis)),
            *(f"  {line}" for line in describe_gap(self)),
        ]
        return "\n".join(lines)


def policy_value(
    key: PRNGKeyArray,
    posterior: CanSample,
    policy: PolicyOrLabels,
    objective: Objective,
    *,
    initial: InitialLike | None = None,
    num_draws: int = 2000,
    outcomes: Mapping[str, Outcome] | None = None,
) -> PolicyValue:
    """The value of `policy` in `num_draws` draws of the posterior. Host-side: compiles itself, works in float64.

    In large problems (more than 65,536 possible outcomes of the pairs that are used) the random numbers of a draw are
    of single precision; its rows, its linear systems and their error bound are of double precision.

    Args:
        key: the draws; the same key gives the same draws to every policy.
        posterior: anything that can `sample`. Pairs that were never visited are named if it also has `visit_counts` and
            `mean_mdp`.
        policy: Int[*H S], Float[*H S A] (action probabilities), a `Policy` object, or by the labels of the posterior's
            space: state -> action, or state -> {action: probability} (see `StateActionSpace.policy`).
        objective: Discounted, Episodic, AverageReward or FirstExit.
        initial: distribution of the first state: [S], a state's label, {label: probability}, or a log (as often as its
            episodes begin in each state); None: that of the drawn MDPs, or else uniform (see `initial_given`).
        num_draws: number of draws, at least 2.
        outcomes: name -> `Outcome`: what else is summed in the same draws of the rows, costs and effects for instance.
            Draws are then whole MDPs, in double precision.

    Raises:
        ValueError, TypeError: one sentence on the argument that cannot be used; also a value that is infinite in some
            draw (FirstExit with a policy that need not end), a gain that depends on the start or draws that can end
            (AverageReward; see `restart_at_ends`).

    Example:
        >>> prior, space = bm.models.dirichlet_bernoulli(), bm.StateActionSpace(1, 2)
        >>> data = bm.Transitions([0] * 20, [0, 1] * 10, [0.0, 1.0] * 10, [0] * 20)
        >>> posterior = bm.infer(jax.random.key(0), prior, data, space=space)
        >>> value = bm.policy_value(jax.random.key(1), posterior, [1], bm.Episodic(1), num_draws=200)
        >>> bool(abs(value.mean - 11 / 12) < 0.05)  # ten rewards of 1, a uniform prior
        True
    """
    return policy_values(key, posterior, {"policy": policy}, objective, initial, num_draws, outcomes)["policy"]


def policy_values(
    key: PRNGKeyArray,
    posterior: CanSample,
    policies: Mapping[str, PolicyOrLabels],
    objective: Objective,
    initial: InitialLike | None,
    num_draws: int,
    outcomes: Mapping[str, Outcome] | None = None,
) -> dict[str, PolicyValue]:
    """`policy_value` of several policies in common draws."""
    require_ability(posterior, CanSample, "policy_value")
    check_key("key", key)
    check_outcomes(outcomes)
    check_num_draws(num_draws, 16 * max(len(policies), 1) * (1 + len(outcomes or ())))
    check_objective(objective)
    with jax.enable_x64(True):
        wide, aim = to_float64(posterior), to_float64(objective)
        keys = split_key(key, num_draws)
        shapes = draw_shapes(key, wide)
        mdp = outline(key, wide, shapes.reward.shape)
        space = labels_of(posterior)
        start, given, words = read_start(mdp, initial, space)
        # Common random numbers: one set of keys for all policies, in chunks that fit the memory.
        probs = _stack([read_action_probs(name, policy, mdp, objective, space) for name, policy in policies.items()])
        can_end = shapes.end_probs is not None
        require_end(can_end, objective)
        others = read_outcomes(outcomes, shapes.reward.shape, can_end, objective)
        # The rows of all outcomes are those of whole draws.
        chains = None if others else policy_chains(wide, probs, aim, ends=can_end)
        if chains is None or not isinstance(wide, CanSampleEntries):
            chunks = in_chunks(keys, shapes, chains=len(policies))
            draws = over_chunks(lambda chunk: _evaluate_draws(chunk, wide, probs, aim, start), chunks)
        else:
            chunks = chunks_of(keys, chains.numbers, _size_in_words(*shapes.reward.shape[-2:]), CHAINS_AT_ONCE)
            mean, mean_probs, mean_reward = evaluate_mean(wide, chains, aim)
            near = chains.with_inverses(mean_probs, mean_reward, aim) if num_draws >= MANY_DRAWS else chains
            if len(chains.entries.pair) > MANY_ENTRIES:
                chains, near = chains.in_single_precision(), near.in_single_precision()

            evaluate_chunk = _evaluate_chains if num_draws <= FEW_DRAWS else _compiled_chains

            def evaluated(chunk: Keys) -> tuple[Array, ...]:
                found = evaluate_chunk(chunk, wide, near, aim, start, mean)
                if near.inverse is None or solved(found[0], found[1], mean.gap):
                    return found
                # Too far from the mean for its inverse: as without it.
                return evaluate_chunk(chunk, wide, chains, aim, start, mean)

            draws = over_chunks(evaluated, chunks)
        values, gaps, excess, ends = (x.reshape(-1, x.shape[-1])[:num_draws] for x in draws)
        if isinstance(objective, AverageReward):
            require_endless(ends)
        require_usable(values, gaps, excess, list(policies), objective)
        beside: dict[str, tuple[np.ndarray, np.ndarray]] = {}
        for name, (reward, other) in others.items():
            chunks = in_chunks(keys, shapes, chains=len(policies))
            wanted = to_float64(other)
            again = over_chunks(lambda chunk: _evaluate_draws(chunk, wide, probs, wanted, start, reward), chunks)  # noqa: B023
            sums, errors, off, _ = (x.reshape(-1, x.shape[-1])[:num_draws] for x in again)
            require_usable(sums, errors, off, [f"{policy}, outcome {name!r}" for policy in policies], other)
            beside[name] = sums, errors
        bases = value_bases(wide, probs, aim, start)
    along = [
        {
            name: OutcomeValue(sums[:, i], *summarise_draws(sums[:, i]), float(errors[:, i].max()))
            for name, (sums, errors) in beside.items()
        }
        for i in range(len(policies))
    ]
    return {
        name: PolicyValue(
            draws, *summarise_draws(draws), float(gap.max()), start, given, basis, objective, found, words
        )
        for name, draws, gap, basis, found in zip(policies, values.T, gaps.T, bases, along, strict=True)
    }


def check_num_draws(num_draws: IntScalar, bytes_each: float = 24, least: int = 2) -> None:
    """An integer, `least` or greater, of draws that fit into the memory, at `bytes_each` and the key.

    Raises:
        TypeError, ValueError: one sentence.
    """
    check_count("num_draws", num_draws, least)
    check_memory(f"num_draws is {num_draws}", float(num_draws) * (bytes_each + 8), "fewer draws take less")


def describe_objective(objective: Objective) -> str:
    """The objective in words."""
    if isinstance(objective, Discounted):
        return f"discount {float(objective.discount):g}"
    if isinstance(objective, Episodic):
        rate = "" if objective.discount == 1 else f", discount {objective.discount:g}"
        return f"episodes of {objective.horizon} steps{rate}"
    return "reward per step" if isinstance(objective, AverageReward) else "undiscounted until the end"


def describe_value(objective: Objective) -> str:
    """What a value is, in terms of rewards."""
    if isinstance(objective, Discounted):
        return "discounted sum of rewards"
    if isinstance(objective, Episodic):
        return f"{'sum' if objective.discount == 1 else 'discounted sum'} of rewards of an episode"
    return "reward per step" if isinstance(objective, AverageReward) else "sum of rewards until the end"


def describe_unit(objective: Objective) -> str:
    """What a difference of values counts: of one start, or of one step."""
    if isinstance(objective, AverageReward):
        return "per step, in units of the reward"
    start = "a process" if isinstance(objective, Discounted) else "an episode"
    return f"per start of {start}, in units of the value ({describe_value(objective)})"


def describe_start(value: PolicyValue) -> str:
    """Where episodes start, in words."""
    if value.start:
        return f"start: {value.start}"
    if not value.initial_given:
        return f"start: uniform over the {len(value.initial)} states (no initial distribution was given)"
    return f"start: the given distribution over {int((value.initial > 0).sum())} of {len(value.initial)} states"


def describe_outcomes(value: PolicyValue) -> list[str]:
    """A line for each outcome."""
    lines = []
    for name, outcome in value.outcomes.items():
        low, high = outcome.interval
        lines.append(
            f"{name}: mean {outcome.mean:.6g} (Monte Carlo error {outcome.sd / len(outcome.draws) ** 0.5:.2g}), "
            f"sd {outcome.sd:.3g}, 95 % interval [{low:.6g}, {high:.6g}]"
        )
        lines.extend(f"{name}: {line}" for line in describe_gap(outcome))
    return lines


def describe_basis(basis: ValueBasis | None) -> list[str]:
    """What the value rests on, in words."""
    if basis is None:
        return ["data: the posterior has no data counts"]
    lines = [f"data: {basis.unvisited}; {basis}"]
    if basis.untried is not None:
        lines.append(f"{basis.untried_share:.2g} of its time in {basis.untried}")
    if basis.own_optimum:
        lines.append(
            "it is the optimum of this posterior's own mean: if the same data chose it, its value is too high wherever "
            "the prior is wrong"
        )
    return lines


def describe_law(basis: ValueBasis | None) -> list[str]:
    """That the reward law reaches beyond all rewards seen (see `wide_law`), once for all policies of a posterior."""
    return [] if basis is None or basis.wide_law is None else [basis.wide_law]


def describe_gap(value: PolicyValue | OutcomeValue) -> list[str]:
    """A line on the numerical error, where it shows in the printed digits and beside the standard deviation."""
    shows = value.gap > max(0.01 * value.sd, 1e-6 * abs(value.mean))
    return [f"numerical error: up to {value.gap:.2g}"] if shows else []


def summarise_draws(draws: Float[np.ndarray, " N"]) -> tuple[float, float, tuple[float, float]]:
    """Mean, standard deviation and central 95 % interval."""
    low, high = np.quantile(draws, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return float(draws.mean()), float(draws.std(ddof=1)), (float(low), float(high))


def to_float64(tree: Tree) -> Tree:
    """Every array and number of `tree` as a JAX array, floats in float64; call it inside `jax.enable_x64(True)`."""

    def widen(leaf: object) -> object:
        if isinstance(leaf, float) or (eqx.is_array_like(leaf) and jnp.issubdtype(jnp.result_type(leaf), jnp.floating)):
            return jnp.asarray(leaf, jnp.float64)
        return jnp.asarray(leaf) if isinstance(leaf, np.ndarray) else leaf

    return jax.tree.map(widen, tree)


def in_chunks(keys: Keys, draw: PyTree, chains: int = 1) -> Keys:
    """`keys` as [number of chunks, keys in a chunk]; the last chunk is filled up with keys of the first.

    A chunk holds a power of two of keys, at most 256 and as many as memory allows: a program that is compiled for a
    chunk serves any number of them.

    Args:
        keys: of the draws.
        draw: the shapes of one.
        chains: how many policies are evaluated in it at once.

    Raises:
        ValueError: one draw would not fit in memory.
    """
    leaves = jax.tree.leaves(draw)
    n_states, n_actions = max(leaves, key=lambda leaf: len(leaf.shape)).shape[-3:-1]
    # A chain is solved directly where it is dense, or small.
    listed = isinstance(draw, SparseMDP) and n_states > LISTED_DIRECT
    numbers = sum(math.prod(leaf.shape) for leaf in leaves) + (0 if listed else chains * n_states**2)
    return chunks_of(keys, numbers, _size_in_words(n_states, n_actions), NUMBERS_AT_ONCE)


def _size_in_words(n_states: int, n_actions: int) -> str:
    return f"posterior has draws of {n_states} states and {n_actions} actions"


def chunks_of(keys: Keys, numbers: int, what: str, at_once: int) -> Keys:
    """`in_chunks` for draws of so many numbers each, `at_once` held at most; `what` names them in the error."""
    check_memory(what, 8.0 * COPIES * numbers, "sparse draws, or fewer policies at once, take less")
    most = min(MOST_AT_ONCE, max(1, at_once // numbers), len(keys))
    chunk = 1 << (most - 1).bit_length()
    chunk = chunk if chunk * numbers <= at_once and chunk <= MOST_AT_ONCE else max(1, chunk // 2)
    rounds = -(-len(keys) // chunk)
    chunks: Any = take_keys(keys, (np.arange(rounds * chunk) % len(keys)).reshape(rounds, chunk))
    return chunks


def over_chunks(function: Callable[..., tuple[Array, ...]], *chunks: AnyArray) -> tuple[np.ndarray, ...]:
    """`function` of the chunks, one after the other, its answers stacked as numpy arrays. Host side."""
    answers = [
        jax.tree.map(np.asarray, function(*(take_keys(chunk, i) for chunk in chunks))) for i in range(len(chunks[0]))
    ]
    return jax.tree.map(lambda *parts: np.stack(parts), *answers)


@eqx.filter_jit
def _evaluate_draws(
    keys: Keys,
    posterior: CanSample,
    policies: Float[Array, "P *H S A"],
    objective: Objective,
    start: Float[AnyArray, " S"],
    reward: PairReward | None = None,
) -> tuple[Float[Array, "C P"], Float[Array, "C P"], Float[Array, "C 1"], Float[Array, "C 1"]]:
    """Values and error bounds of every policy in every draw, for its own rewards or other ones.

    Then, of the draw: how far its rows are from summing to one, and the largest probability of an end.
    """

    def one(key: PRNGKeyArray) -> tuple[Array, ...]:
        mdp = posterior.sample(key)
        # One batch: where a program holds several independent LU solves, XLA's thread pool on few cores can deadlock.
        if reward is None:
            answers = jax.vmap(lambda policy: evaluate(mdp, policy, objective))(policies)
        else:
            paid = reward.expected(mdp)
            answers = jax.vmap(lambda policy: evaluate_reward(mdp, paid, policy, objective))(policies)
        return value_at_start(answers, objective, start), answers.gap, *row_faults(mdp)

    values, gaps, excess, ends = jax.vmap(one)(keys)
    return values, gaps, excess, ends


def _evaluate_each_chain(
    keys: Keys,
    posterior: CanSampleEntries,
    chains: PolicyChains,
    objective: Objective,
    start: Float[AnyArray, " S"],
    mean: Solution,
) -> tuple[Float[Array, "C P"], Float[Array, "C P"], Float[Array, "C 1"], Float[Array, "C 1"]]:
    """`_evaluate_draws` by the chains of the policies, from the values in the mean of the posterior."""

    def one(key: PRNGKeyArray) -> tuple[Array, ...]:
        probs, reward = chains.draw(posterior, key)
        found = chains.values(probs, reward, objective, mean)
        return value_at_start(found, objective, start), found.gap, *chains.faults(probs)

    values, gaps, excess, ends = jax.vmap(one)(keys)
    return values, gaps, excess, ends


_compiled_chains = eqx.filter_jit(_evaluate_each_chain)
_evaluate_chains = small_jit(_evaluate_each_chain, most=SECONDS_OF_A_CHUNK, compiled=_compiled_chains)


def row_faults(mdp: MDP | SparseMDP) -> tuple[Float[Array, " 1"], Float[Array, " 1"]]:
    """How far the rows are from summing to one, and the largest probability of an end."""
    rows = mdp.row_probs
    ends = jnp.zeros_like(mdp.reward) if mdp.end_probs is None else mdp.end_probs
    possible = ends if mdp.legal is None else jnp.where(mdp.legal, ends, 0.0)
    return jnp.max(jnp.abs(rows.sum(-1) + ends - 1.0))[None], jnp.max(possible)[None]


def _stack(policies: list[Float[Array, "... S A"]]) -> Float[Array, "P *H S A"]:
    """Policies side by side; one that does not depend on the step is repeated where another does."""
    return jnp.asarray(np.stack(np.broadcast_arrays(*map(np.asarray, policies))))


def read_action_probs(
    name: str,
    policy: PolicyOrLabels,
    mdp: MDP | SparseMDP,
    objective: Objective,
    space: StateActionSpace | None = None,
) -> Float[Array, "*H S A"]:
    """`policy` as action probabilities; `space` has the labels, where there are any; errors name it by `name`."""
    try:
        array = policy_of(policy, space, objective)
        return policy_probs(array, mdp, horizon=objective.horizon if isinstance(objective, Episodic) else None)
    except (TypeError, ValueError) as error:
        raise type(error)(f"{name}: {error}") from None


def require_end(can_end: bool, objective: Objective) -> None:
    """Refuse MDPs in which no transition ends an episode, where values are sums of rewards until the end."""
    if isinstance(objective, FirstExit) and not can_end:
        raise ValueError(
            "objective is FirstExit, and no transition of the posterior ends an episode (ends=False), expected another "
            "objective, or a space with ends=True (that of a log read with terminated=)"
        )


def require_endless(ends: np.ndarray) -> None:
    """Refuse draws that can end, where the objective is the average reward."""
    draw = first_index(ends[:, 0] > 0)
    if draw is not None:
        raise ValueError(
            f"posterior gave an MDP with end probability {ends[draw][0]:.2g} in draw {draw[0]}, expected MDPs that "
            "never end (AverageReward): let it draw restart_at_ends(mdp)"
        )


def require_usable(
    values: np.ndarray, gaps: np.ndarray, excess: np.ndarray, names: list[str], objective: Objective
) -> None:
    """Refuse rows that do not sum to one, and values that are not finite."""
    bad_rows = first_index(excess[:, 0] > ROW_SUM_TOLERANCE["float32"])
    if bad_rows is not None:
        off = excess[bad_rows][0]
        raise ValueError(
            f"posterior gave a row that is {off:.2g} off in draw {bad_rows[0]}, expected rows that sum to 1"
        )
    index = first_index(~np.isfinite(values) | ~np.isfinite(gaps))
    if index is not None:
        draw, policy = index
        expected = "a policy that ends with probability one" if isinstance(objective, FirstExit) else "a finite value"
        if isinstance(objective, AverageReward):
            expected = "one gain, whatever the start"
        raise ValueError(
            f"{names[policy]}: its value in draw {draw} is {values[index]:g} with error bound {gaps[index]:g}, "
            f"expected {expected} ({describe_objective(objective)})"
        )
