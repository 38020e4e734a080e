"""ICU-Sepsis: the treatment of sepsis in intensive care as a tabular benchmark ([SEPSIS24]).

Its tables are read by numpy from the files of the package `icu-sepsis`, which is not imported (it would import gym).
Many episodes are simulated at once, in numpy: all that go on make a step together.
"""

from importlib.util import find_spec
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple
from zipfile import BadZipFile

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float, Int, PRNGKeyArray

from bayes_mdp.mdp import MDP, Environment, Log, NormalReward, SparseMDP, StateActionSpace, Transitions
from bayes_mdp.random.host_generator import host_generator
from bayes_mdp.utils.memory import check_memory
from bayes_mdp.utils.messages import install
from bayes_mdp.utils.typing import ArrayLike
from bayes_mdp.utils.validation import (
    as_real,
    check_bool,
    check_count,
    check_index,
    check_initial,
    check_key,
    check_probability_rows,
    check_shape,
    require,
)

PACKAGE = "icu_sepsis"
ASSETS = Path("envs", "assets")
DYNAMICS = "dynamics.npz"
ACTION_LISTS = ("admissible_actions.txt", "allowed_actions.txt")  # the second is its name in 1.0
N_ACTIONS = 25
N_LAST = 3  # death, survival, and the state that both lead to for ever


class SepsisFiles(NamedTuple):
    """What the package has of the MDP, over its own states: N - 3 of patients, death, survival, an absorbing one.

    Args:
        rows: [N A N], probabilities of next states; of an inadmissible action the mean of the admissible ones.
        initial: [N], of the first state.
        expert: [N A], how often clinicians chose each action.
        admissible: [N A].
    """

    rows: Float[np.ndarray, "N A N"]
    initial: Float[np.ndarray, " N"]
    expert: Float[np.ndarray, "N A"]
    admissible: Bool[np.ndarray, "N A"]


def find_assets() -> Path:
    """The folder of the files, in the installed package.

    Raises:
        ImportError: it is not installed.
    """
    spec = find_spec(PACKAGE)  # of a name without dots: nothing is imported
    folders = [] if spec is None else list(spec.submodule_search_locations or ())
    if not folders:
        raise ImportError(f"icu_sepsis needs the files of the package icu-sepsis: {install('health')}")
    return Path(folders[0]) / ASSETS


def read_files(folder: Path) -> SepsisFiles:
    """Read and check the files in a folder.

    Raises:
        FileNotFoundError: one is missing.
        ValueError: one cannot be read, or holds something else: arrays of other shapes, rows that do not sum to one,
            actions that do not exist, a patient who can neither die nor survive nor stay a patient.
    """
    path = folder / DYNAMICS
    lists = next((folder / name for name in ACTION_LISTS if (folder / name).is_file()), None)
    if lists is None or not path.is_file():
        missing = DYNAMICS if not path.is_file() else " or ".join(ACTION_LISTS)
        raise FileNotFoundError(
            f"{PACKAGE} has no file {missing} in {ASSETS.as_posix()}, expected one: {install('health')}"
        )
    rows, initial, expert = _arrays(path)
    size = len(rows) if rows.ndim else 0
    if rows.shape != (size, N_ACTIONS, size) or size <= N_LAST:
        expected = f"(N, {N_ACTIONS}, N) (state, action, next state) with N at least {N_LAST + 1}"
        raise ValueError(f"tx_mat of {DYNAMICS} has shape {rows.shape}, expected {expected}")
    check_probability_rows(f"tx_mat of {DYNAMICS}", rows)
    check_initial(initial, size, f"d_0 of {DYNAMICS}")
    check_shape(f"expert_policy of {DYNAMICS}", expert, (size, N_ACTIONS), "state, action")
    check_probability_rows(f"expert_policy of {DYNAMICS}", expert[:-N_LAST])
    admissible = _admissible(lists, size)
    patients = slice(size - N_LAST)
    beyond = rows[patients, :, -1].max(-1)
    require(
        beyond > 0, f"the probability of the last state in tx_mat of {DYNAMICS}", beyond, "0 from a patient's state"
    )
    late = initial[-N_LAST:].sum()
    require(late > 0, f"d_0 of {DYNAMICS} beyond the patients", late, "0: an episode starts with a patient")
    known = np.where(admissible, expert, 0.0)[patients].sum(-1)
    require(known <= 0, f"expert_policy of {DYNAMICS}, summed over admissible actions,", known, "more than 0")
    return SepsisFiles(rows, initial, expert, admissible)


def _arrays(path: Path) -> list[np.ndarray]:
    """`tx_mat`, `d_0`, `expert_policy` as float64; the rewards are not read, since they are known."""
    try:
        # Opened here: numpy would leave a broken file open.
        with path.open("rb") as opened, np.load(opened) as file:
            stored: dict[str, Any] = {name: file[name] for name in ("tx_mat", "d_0", "expert_policy") if name in file}
    except (OSError, EOFError, ValueError, TypeError, AttributeError, BadZipFile) as error:
        raise ValueError(
            f"{path.name} of {PACKAGE} cannot be read, expected arrays of numpy: {install('health')}"
        ) from error
    arrays = []
    for name in ("tx_mat", "d_0", "expert_policy"):
        if name not in stored:
            raise ValueError(f"{path.name} of {PACKAGE} has no array {name!r}, expected one: {install('health')}")
        if stored[name].dtype.kind not in "biuf":
            raise ValueError(f"{name} of {path.name} has dtype {stored[name].dtype}, expected real numbers")
        arrays.append(stored[name].astype(np.float64, copy=False))
    return arrays


def _admissible(path: Path, size: int) -> Bool[np.ndarray, "N A"]:
    """The lists as a mask. The first line says how many actions each state has, line 1 + s which those of s are."""
    lines = path.read_text(errors="replace").splitlines()
    if len(lines) < size + 1:
        raise ValueError(
            f"{path.name} has {len(lines)} lines, expected {size + 1}: a line of counts, one for each state"
        )
    mask = np.zeros((size, N_ACTIONS), bool)
    counts = _integers(path.name, 1, lines[0], 2**31)
    if len(counts) != size:
        raise ValueError(f"{path.name}, line 1 has {len(counts)} counts, expected {size}, one for each state")
    for state, line in enumerate(lines[1 : size + 1]):
        actions = _integers(path.name, state + 2, line, N_ACTIONS)
        if not actions or len(set(actions)) != counts[state]:
            expected = f"{counts[state]}, as line 1 says," if counts[state] else "at least one"
            raise ValueError(f"{path.name}, line {state + 2} has {len(set(actions))} actions, expected {expected}")
        mask[state, actions] = True
    return mask


def _integers(name: str, number: int, line: str, most: int) -> list[int]:
    """The whole numbers below `most` of a line."""
    words = line.split()
    wrong = next((word for word in words if not (word.isdecimal() and int(word) < most)), None)
    if wrong is not None:
        raise ValueError(f"{name}, line {number} has {wrong[:20]!r}, expected whole numbers from 0 to {most - 1}")
    return [int(word) for word in words]


GRID = 2**32


class Inversion:
    """Draws from the rows of a table [N K] of probabilities, any row each time; an entry of zero is never drawn."""

    def __init__(self, rows: Float[np.ndarray, "N K"]) -> None:
        cumulative = np.cumsum(rows, -1)
        cumulative /= cumulative[:, -1:]
        self.width = rows.shape[1]
        # Row i, raised by i: all rows are one ascending list, and one search finds any of them.
        self.ascending = (cumulative + np.arange(len(rows))[:, None]).ravel()

    def draw(self, rng: np.random.Generator, row: Int[np.ndarray, " n"]) -> Int[np.ndarray, " n"]:
        """A column of each of these rows."""
        # On a grid of 2^-32, row + u is exact: it never rounds up into the next row.
        u = rng.integers(GRID, size=len(row)) / GRID
        return np.searchsorted(self.ascending, row + u, side="right") - row * self.width


def simulate_episodes(
    rng: np.random.Generator, mdp: MDP | SparseMDP, policy: Float[np.ndarray, "S A"], num_episodes: int, max_steps: int
) -> Transitions:
    """Episodes of a stationary MDP whose rewards are those of the pairs, one after the other.

    Args:
        rng: numpy's.
        mdp: with an initial distribution; its rewards are paid without noise.
        policy: probabilities of legal actions.
        num_episodes: how many.
        max_steps: an episode in which so many transitions came to pass is truncated, unless an end is all that can
            follow.
    """
    taken = policy > 0
    number = np.cumsum(taken).reshape(taken.shape) - 1  # of each pair that can occur, among those
    rows = np.asarray(mdp.row_probs)[taken].astype(np.float64)
    ends = np.zeros(taken.shape) if mdp.end_probs is None else np.asarray(mdp.end_probs, np.float64)
    outcomes = Inversion(np.concatenate([rows, ends[taken][:, None]], -1))  # the last one is the end
    listed = np.asarray(mdp.successor)[taken] if isinstance(mdp, SparseMDP) else None
    reward = np.asarray(mdp.reward, np.float64)
    absorbed = np.all((ends >= 1.0) | ~taken, -1)
    actions, first = Inversion(policy), Inversion(np.asarray(mdp.initial, np.float64)[None])
    episode = np.arange(num_episodes)
    state, step, parts = first.draw(rng, np.zeros(num_episodes, int)), 0, []
    while len(episode):
        action = actions.draw(rng, state)
        pair = number[state, action]
        place = outcomes.draw(rng, pair)
        ended = place == rows.shape[-1]
        after = place if listed is None else listed[pair, np.minimum(place, rows.shape[-1] - 1)]
        after = np.where(ended, state, after)
        cut = ~ended & ~absorbed[after] & (step + 1 >= max_steps)
        parts.append((episode, state, action, after, ended, cut, np.full(len(episode), step)))
        goes_on = ~(ended | cut)
        episode, state, step = episode[goes_on], after[goes_on], step + 1
    episode, *columns = (np.concatenate(column) for column in zip(*parts, strict=True))
    order = np.argsort(episode, kind="stable")
    state, action, after, ended, cut, steps = (column[order] for column in columns)
    return Transitions(
        state.astype(np.int32),
        action.astype(np.int32),
        reward[state, action],
        after.astype(np.int32),
        ended,
        cut if cut.any() else None,
        steps.astype(np.int32),
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
