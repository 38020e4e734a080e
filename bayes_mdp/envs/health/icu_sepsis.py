"""ICU-Sepsis: the treatment of sepsis in intensive care as a tabular benchmark ([SEPSIS24])."""

from itertools import product

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float, Int, PRNGKeyArray

from bayes_mdp.envs.health.icu_sepsis_files import N_LAST, SepsisFiles, find_assets, read_files
from bayes_mdp.envs.health.table_episodes import simulate_episodes
from bayes_mdp.mdp import MDP, Environment, Log, NormalReward, SparseMDP, StateActionSpace
from bayes_mdp.random.host_generator import host_generator
from bayes_mdp.utils.memory import check_memory
from bayes_mdp.utils.typing import ArrayLike
from bayes_mdp.utils.validation import (
    as_real,
    check_bool,
    check_count,
    check_index,
    check_key,
    check_probability_rows,
    check_shape,
    require,
)

DEATH, SURVIVAL = "death", "survival"
N_OUTCOMES = 2
DOSES = tuple(product(range(5), repeat=2))
"""(fluid, vasopressor) of every action: levels of the dose, from 0, none, to 4."""
MAX_STEPS = 500
BYTES_PER_EPISODE = 2000.0
MOST_IMPROVEMENTS = 100


class ICUSepsis(Environment):
    """See `icu_sepsis`, which makes it: an `Environment` of S states and A = 25 actions, with what is known beside it.

    Args:
        mdp, reward_law, name, optimum, picture: as in `Environment`.
        admissible: Bool[S A], the actions that clinicians took often enough for their effect to be known.
        expert: Float64[S A], how often clinicians took each of them: the benchmark's expert, restricted to admissible
            actions and renormalised. Rows sum to one.
        raw_expert: Float64[S A], the benchmark's expert as it is. 12 of 100 of its decisions are inadmissible actions,
            so that it is a policy of `icu_sepsis(admissible_only=False)` alone.

    Example:
        >>> env = bm.envs.icu_sepsis()  # needs the extra `health`
        >>> log = env.log(jax.random.key(0), 10)  # ten patients, treated by the expert
        >>> int(log.transitions.terminated.sum())
        10

    """

    admissible: Bool[np.ndarray, "S A"] = eqx.field(kw_only=True)
    expert: Float[np.ndarray, "S A"] = eqx.field(kw_only=True)
    raw_expert: Float[np.ndarray, "S A"] = eqx.field(kw_only=True)

    @property
    def uniform(self) -> Float[np.ndarray, "S A"]:
        """The policy that takes all admissible actions equally often: Float64[S A]."""
        admissible = np.asarray(self.admissible, np.float64)
        return admissible / admissible.sum(-1, keepdims=True)

    @property
    def space(self) -> StateActionSpace:
        """What is known without any data, made anew at every call: names, legal actions, which states end an episode.

        `ends` is true. The states are called 0, 1, ..., "death", "survival", the actions (fluid, vasopressor). A
        patient can come to every other state but "end", or, in an environment with `listed`, to those that the truth
        has for the pair.
        """
        size, legal = self.mdp.n_states, self.mdp.legal
        names = (*range(size - N_OUTCOMES), DEATH, SURVIVAL)
        known = {"ends": True, "states": names, "actions": DOSES, "legal": None if legal is None else np.asarray(legal)}
        if isinstance(self.mdp, SparseMDP):
            filled = np.asarray(self.mdp.probability) > 0
            filled = filled if legal is None else filled & np.asarray(legal)[..., None]
            successors = np.where(filled, np.asarray(self.mdp.successor), -1)
            successors[-N_OUTCOMES:, :, 0] = size
            return StateActionSpace(size, len(DOSES), successors=successors, **known)
        support = np.ones((size, len(DOSES), size + 1), bool)
        support[:-N_OUTCOMES, :, -1] = support[-N_OUTCOMES:, :, :-1] = False
        return StateActionSpace(size, len(DOSES), support=support, **known)

    def log(
        self,
        key: PRNGKeyArray,
        num_episodes: int,
        policy: ArrayLike | None = None,
        *,
        max_steps: int = MAX_STEPS,
    ) -> Log:
        """What a policy does with so many patients, episode by episode. On the host: 50,000 episodes take a second.

        Every transition has its reward and its `step`; the last one of an episode leaves "death" or "survival" and
        terminated. One key, one log.

        Args:
            key: of all draws.
            num_episodes: patients, each from the distribution of first states.
            policy: probabilities [S A], or actions [S]; None: `expert`.
            max_steps: most transitions of a patient before the outcome (the benchmark's 500); an episode that has no
                outcome by then is truncated.

        Raises:
            ValueError: a count below 1; a policy of another shape, of rows that do not sum to one, of an action that
                does not exist or is not legal; episodes that do not fit in memory. TypeError: no key, no integer.
        """
        check_key("key", key)
        check_count("num_episodes", num_episodes)
        check_count("max_steps", max_steps)
        check_memory(f"num_episodes is {num_episodes}", BYTES_PER_EPISODE * float(num_episodes))
        chosen = self.expert if policy is None else self._probabilities(policy)
        rng = host_generator(key)
        transitions = simulate_episodes(rng, self.mdp, chosen, num_episodes, max_steps)
        names = self.mdp.n_states - N_OUTCOMES
        return Log(transitions, (*range(names), DEATH, SURVIVAL), DOSES, source=self.name)

    def _probabilities(self, policy: object) -> Float[np.ndarray, "S A"]:
        """A policy [S A] or [S] as probabilities, checked against the legal actions."""
        shape = self.mdp.reward.shape
        array = as_real("policy", policy, "probabilities [state, action] or actions [state]")
        if array.ndim == 1:
            check_shape("policy", array, shape[:1], "state")
            check_index("policy", array, shape[1], "action")
            array = np.eye(shape[1])[array]
        check_shape("policy", array, shape, "state, action")
        check_probability_rows("policy", array)
        if self.mdp.legal is not None:
            require(~np.asarray(self.mdp.legal) & (array > 0), "policy", array, "0 for an action that is not legal")
        return array.astype(np.float64)


def icu_sepsis(*, listed: bool = False, admissible_only: bool = True) -> ICUSepsis:
    """ICU-Sepsis [SEPSIS24]: does a patient with sepsis survive? Meant for `FirstExit()`.

    States 0 to 712 are conditions of patients, made from the records of MIMIC-III; an episode ends with the one step
    that leaves "death", 713, for nothing, or "survival", 714, for a reward of 1. Rewards are thus known, and a value is
    a probability to survive. The 25 actions are five levels of intravenous fluid and five of vasopressor, action
    5 * fluid + vasopressor. Of those, 1 to 13 are admissible in a state, 2,238 pairs in all; "death" and "survival"
    have one action. `optimum` is the largest probability to survive. It is a benchmark for algorithms, no basis for
    medical practice.

    The benchmark pays on *entering* survival, this environment one step later. Without discount values are the same;
    with `Discounted(g)` they are g times those of the benchmark.

    Exact values at g = 1: optimum .8751, `expert` .7820, `uniform` .7801, worst admissible policy .6330.

    The data come with the package icu-sepsis (extra `health`; versions 1.0 and 2.0), of which two files are read and
    nothing is imported. The package does not say which level is which: the second is called the vasopressor here,
    because clinicians leave it at zero in 84 of 100 decisions.

    Args:
        listed: whether the MDP is a `SparseMDP`, and its `space` lists the 3 to 189 next states of every admissible
            pair. Then a prior over `space` knows the truth's support, which no log tells.
        admissible_only: whether inadmissible actions are illegal. False: they lead where the mean of the admissible
            ones does, the default of the benchmark.

    Raises:
        ImportError: icu-sepsis is not installed. FileNotFoundError: it lacks a file.
        ValueError: a file that holds something else. TypeError: an option that is neither True nor False.

    Example:
        >>> env = bm.envs.icu_sepsis()  # needs the extra `health`
        >>> env.mdp.n_states, round(env.optimum, 3)  # probability to survive
        (715, 0.875)
    """
    check_bool("listed", listed)
    check_bool("admissible_only", admissible_only)
    files = _with_outcomes(read_files(find_assets()))
    legal = files.admissible if admissible_only else None
    reward, ends = np.zeros(files.admissible.shape), np.zeros(files.admissible.shape)
    reward[-1], ends[-N_OUTCOMES:] = 1.0, 1.0
    if listed:
        shown = np.ones_like(files.admissible) if legal is None else legal
        successor, probability = _lists(files.rows, shown)
        # Made JAX's here: a conversion by dtype would compile a program for every shape.
        probability, reward, ends, initial = map(jnp.asarray, (probability, reward, ends, files.initial))
        mdp = SparseMDP(successor, probability, reward, end_probs=ends, legal=legal, initial=initial)
    else:
        mdp = MDP(files.rows, reward, end_probs=ends, legal=legal, initial=files.initial)
    allowed = np.where(files.admissible, files.expert, 0.0)
    return ICUSepsis(
        mdp,
        NormalReward(mdp.reward),
        name="icu_sepsis",
        optimum=_optimum(files),
        admissible=files.admissible,
        expert=allowed / allowed.sum(-1, keepdims=True),
        raw_expert=files.expert,
    )


def _with_outcomes(files: SepsisFiles) -> SepsisFiles:
    """Without the absorbing state: rows of death and survival are empty, and both have the first action alone."""
    size = len(files.initial) - 1
    last = slice(size + 1 - N_LAST, size)
    rows, expert, admissible = files.rows[:size, :, :size].copy(), files.expert[:size].copy(), files.admissible[:size]
    admissible = admissible.copy()
    rows[last] = 0.0
    admissible[last], expert[last] = False, 0.0
    admissible[last, 0], expert[last, 0] = True, 1.0
    return SepsisFiles(rows, files.initial[:size], expert, admissible)


def _lists(
    rows: Float[np.ndarray, "S A S"], shown: Bool[np.ndarray, "S A"]
) -> tuple[Int[np.ndarray, "S A K"], Float[np.ndarray, "S A K"]]:
    """(next states, probabilities) of the pairs that are shown; the others stay where they are."""
    size = len(rows)
    state, action = np.nonzero(shown)
    pair, after = np.nonzero(rows[state, action])
    number = np.bincount(pair, minlength=len(state))
    place = np.arange(len(pair)) - np.repeat(np.cumsum(number) - number, number)
    shape = (*shown.shape, int(number.max()))
    successor, probability = np.zeros(shape, np.int32), np.zeros(shape)
    successor[state[pair], action[pair], place] = after
    probability[state[pair], action[pair], place] = rows[state[pair], action[pair], after]
    hidden = np.nonzero(~shown)
    successor[(*hidden, 0)], probability[(*hidden, 0)] = hidden[0], 1.0
    first_outcome = size - N_OUTCOMES
    probability[first_outcome:] = 0.0  # they end
    return successor, probability


def _optimum(files: SepsisFiles) -> float | None:
    """The largest probability to survive, by policy iteration; None where patients may stay for ever."""
    patients = slice(len(files.initial) - N_OUTCOMES)
    rows, legal = files.rows[patients], files.admissible[patients]
    moves, survival = rows[..., patients], rows[..., -1]
    state, policy = np.arange(len(rows)), legal.argmax(-1)
    for _ in range(MOST_IMPROVEMENTS):
        try:
            value = np.linalg.solve(np.eye(len(rows)) - moves[state, policy], survival[state, policy])
        except np.linalg.LinAlgError:
            return None
        q = np.where(legal, survival + moves @ value, -np.inf)
        better = q.max(-1) > q[state, policy] + 1e-12
        if not better.any():
            return float(files.initial[patients] @ value)
        policy = np.where(better, q.argmax(-1), policy)
    return None
