"""Chains, loops and DeepSea: what pays most is far away, and only who tries it knows.

States in a line:

* Chain (Strens 2000; Dearden, Friedman and Russell 1998; [OIM08]).
* RiverSwim (Strehl and Littman 2008; [OIM08]) and its episodic variant (Osband, TabulaRL).
* The chains of TabulaRL ([RLSVI19]).
* Continuing DeepSea of [BMRL19] (Markou and Rasmussen 2019).
* The two-action chain of [UBE18] (O'Donoghue et al. 2018), figure 1, truncated.

Loops from one state, which of them pays most must be tried:

* Loop, also called double loop (Dearden, Friedman and Russell 1998; [OIM08]).
* SixArms (Strehl and Littman 2008; [OIM08]).
* WideNarrow of [BMRL19] (Markou and Rasmussen 2019): a ring of states with many actions and states with one, in turn.

DeepSea, a grid that is descended, one row a step: that of [KL21] (O'Donoghue 2021), and bsuite's ([BSUITE20]).
"""

from typing import Literal

import jax.numpy as jnp
import numpy as np

from bayes_mdp.mdp import MDP, Environment, NormalReward, Picture, SparseMDP
from bayes_mdp.utils.memory import check_memory
from bayes_mdp.utils.validation import check_bool, check_count, check_name, check_number

LEFT, RIGHT = 0, 1
CHAIN_STATES = 5
FORWARD, RESET = 0, 1
PAPER_SLIP, PAPER_GAIN = 0.2, 3.6768


def chain(slip: float = PAPER_SLIP) -> Environment:
    """Chain: 5 states, action 0 goes forward (10 for staying at the end), action 1 resets to state 0 (2); continuing.

    With probability `slip` the other action's move and reward happen. The first state is 0. The problem is that of
    [PSRL00]. `optimum` is the optimal gain at the paper's slip 0.2, exactly 3.6768 (always forward; 3677 per phase of
    1000 steps), and None at any other.

    Raises:
        ValueError: `slip` is no probability.
        TypeError: no number.

    Example:
        >>> env = bm.envs.chain()
        >>> env.mdp.n_states, env.optimum  # reward per step
        (5, 3.6768)
    """
    check_number("slip", slip, lambda x: 0.0 <= x <= 1.0, "a probability")
    # Both moves as rows; a slip exchanges them.
    forward = np.eye(CHAIN_STATES)[np.minimum(np.arange(CHAIN_STATES) + 1, CHAIN_STATES - 1)]
    reset = np.eye(CHAIN_STATES)[np.zeros(CHAIN_STATES, int)]
    rows = np.stack([(1 - slip) * forward + slip * reset, slip * forward + (1 - slip) * reset], axis=1)
    paid = np.zeros((CHAIN_STATES, 2, CHAIN_STATES))  # the next state tells which move happened
    paid[:, :, 0], paid[-1, :, -1] = 2.0, 10.0
    mdp = MDP(rows, (rows * paid).sum(-1), initial=np.eye(CHAIN_STATES)[0])
    optimum = PAPER_GAIN if slip == PAPER_SLIP else None
    law = NormalReward(jnp.asarray(paid, float), by_outcome=True)
    return Environment(mdp, law, name="chain", optimum=optimum, picture=in_a_line(CHAIN_STATES))


RIVER_STATES = 6


def riverswim() -> Environment:
    """RiverSwim: 6 states in a line, action 0 swims left (downstream), action 1 right; continuing.

    Rewards are paid on (state, action, next state): 5 for staying at the left bank by swimming left, 10000 for
    staying at the right end by swimming right. The first state is 1 or 2. `optimum` is the optimal gain, 668.807
    (always right); the expected total of 5000 steps is 3.3365e6. Source: [OIM08], checked against four
    public implementations.

    Example:
        >>> env = bm.envs.riverswim()
        >>> env.mdp.n_states, env.mdp.n_actions
        (6, 2)
    """
    rows = _rows(first=(0.7, 0.3), middle=(0.1, 0.6, 0.3), last=(0.7, 0.3))
    paid = np.zeros((RIVER_STATES, 2, RIVER_STATES))
    paid[0, LEFT, 0], paid[-1, RIGHT, -1] = 5.0, 10_000.0
    initial = np.array([0.0, 0.5, 0.5, 0.0, 0.0, 0.0])
    mdp = MDP(rows, (rows * paid).sum(-1), initial=initial)
    # Birth-death chain of always-right: pi_5 = 243 / 1090, paid 3000 in the mean.
    law = NormalReward(jnp.asarray(paid, float), by_outcome=True)
    return Environment(mdp, law, name="riverswim", optimum=729_000 / 1_090, picture=in_a_line(RIVER_STATES))


def riverswim_episodic() -> Environment:
    """Osband's RiverSwim: rewards on (state, action), without noise, first state 0; meant for `Episodic(20)`.

    After [MBIE08]. The MDP does not depend on the step. `optimum` is the optimal value of an episode of 20 steps,
    3.397264 (optimal gain 0.42862). Source: `make_riverSwim` of TabulaRL.

    Example:
        >>> env = bm.envs.riverswim_episodic()
        >>> bm.solve(env.mdp, bm.Episodic(20)).policy.shape  # step, state
        (20, 6)
    """
    rows = _rows(first=(0.4, 0.6), middle=(0.05, 0.6, 0.35), last=(0.4, 0.6))
    reward = np.zeros((RIVER_STATES, 2))
    reward[0, LEFT], reward[-1, RIGHT] = 0.005, 1.0
    mdp = MDP(rows, reward, initial=np.eye(RIVER_STATES)[0])
    law, picture = NormalReward(mdp.reward), in_a_line(RIVER_STATES)
    return Environment(mdp, law, name="riverswim_episodic", optimum=3.397264, picture=picture)


def _rows(first: tuple[float, ...], middle: tuple[float, ...], last: tuple[float, ...]) -> np.ndarray:
    """Float64[S A S']: left always moves; right: `first` (stay, up), `middle` (down, stay, up), `last` (down, stay)."""
    rows = np.zeros((RIVER_STATES, 2, RIVER_STATES))
    rows[np.arange(RIVER_STATES), LEFT, np.maximum(np.arange(RIVER_STATES) - 1, 0)] = 1.0
    rows[0, RIGHT, :2] = first
    for s in range(1, RIVER_STATES - 1):
        rows[s, RIGHT, s - 1 : s + 2] = middle
    rows[-1, RIGHT, -2:] = last
    return rows


def osband_chain(n_states: int = 10, *, horizon: int | None = None, stochastic: bool = False) -> Environment:
    """A chain that pays at its far end: n = `n_states` states in a line, first state 0; meant for `Episodic(horizon)`.

    From [RLSVI19]. Action 0 moves left (clipped), action 1 right (clipped); `stochastic`: right succeeds with
    probability 1 - 1/n, else it moves left (clipped). Left in state 0 pays N(0, 1), right in state n - 1 pays N(1,
    1) whether or not it succeeds, everything else pays exactly 0. The MDP does not depend on the step. Source:
    `make_deterministicChain` and `make_stochasticChain` of TabulaRL.

    `optimum` is the optimal value of an episode of `horizon` steps: max(0, H - n + 1), and (1 - 1/n)^(n - 1) in a
    stochastic chain with H = n.

    Args:
        n_states: n.
        horizon: H, for `optimum` alone; None: n, that of the stochastic chain of TabulaRL.
        stochastic: see above.

    Raises:
        ValueError: `n_states` below 2, `horizon` below 1. TypeError: one of them is no integer.

    Example:
        >>> env = bm.envs.osband_chain(5)
        >>> env.mdp.n_states, env.mdp.n_actions
        (5, 2)
    """
    check_count("n_states", n_states, 2)
    check_bool("stochastic", stochastic)
    check_memory(f"n_states is {n_states}", 100.0 * n_states)
    horizon = n_states if horizon is None else horizon
    check_count("horizon", horizon)
    state = np.arange(n_states)
    down, up = np.maximum(state - 1, 0), np.minimum(state + 1, n_states - 1)
    fails = 1 / n_states if stochastic else 0.0
    successor = np.stack([np.stack([down, down], -1), np.stack([up, down], -1)], 1)
    probability = np.broadcast_to([[1.0, 0.0], [1 - fails, fails]], successor.shape)
    if not stochastic:
        successor, probability = successor[..., :1], probability[..., :1]
    reward, noise = np.zeros((n_states, 2)), np.zeros((n_states, 2))
    reward[-1, RIGHT] = noise[-1, RIGHT] = noise[0, LEFT] = 1.0
    v = np.zeros(n_states)
    for _ in range(horizon):
        v = (reward + (probability * v[successor]).sum(-1)).max(-1)
    mdp = SparseMDP(successor, probability, reward, initial=np.eye(1, n_states)[0])
    law = NormalReward(mdp.reward, jnp.asarray(noise, mdp.reward.dtype))
    name = f"osband_chain{'_stochastic' if stochastic else ''}_{n_states}"
    return Environment(mdp, law, name=name, optimum=float(v[0]), picture=in_a_line(n_states))


LARGEST_CHECKED = 40


def deep_sea_continuing(n_states: int = 4, *, noise: Literal["none", "delta"] = "none") -> Environment:
    """Continuing DeepSea: N = `n_states` states in a line, action 0 left (reward 0), action 1 right; first state 0.

    From [BMRL19]. Right moves up with probability 1 - 1/N, else down (clipped), and costs delta = 0.1 exp(-N / 4)
    either way; from the last state it returns to state 0 with reward +1, or else moves down at the same cost.
    `noise="delta"` adds N(0, delta^2) to every reward, as the published code does; the paper's text has none.
    `optimum` is the optimal gain, that of always right (optimal for every N checked, up to 40), and None beyond.

    Raises:
        ValueError: `n_states` below 3 (with 2 the two rewards of the last state have one next state), unknown
            `noise`.
        TypeError: no number.

    Example:
        >>> env = bm.envs.deep_sea_continuing(4)
        >>> env.mdp.n_states, env.mdp.n_actions
        (4, 2)
    """
    check_count("n_states", n_states, 3)
    check_memory(f"n_states is {n_states}", 60.0 * n_states**2)
    check_name("noise", noise, ("none", "delta"))
    delta, success = 0.1 * np.exp(-n_states / 4), 1 - 1 / n_states
    state = np.arange(n_states)
    down = np.eye(n_states)[np.maximum(state - 1, 0)]
    up = np.eye(n_states)[(state + 1) % n_states]
    rows = np.stack([down, success * up + (1 - success) * down], axis=1)
    paid = np.zeros(rows.shape)
    paid[:, RIGHT, :] = -delta
    paid[-1, RIGHT, 0] = 1.0
    mdp = MDP(rows, (rows * paid).sum(-1), initial=np.eye(n_states)[0])
    law = NormalReward(
        jnp.asarray(paid, float), jnp.asarray(delta, float) if noise == "delta" else None, by_outcome=True
    )
    optimum = _gain(rows[:, RIGHT], (rows * paid).sum(-1)[:, RIGHT]) if n_states <= LARGEST_CHECKED else None
    name, picture = f"deep_sea_continuing_{n_states}", in_a_line(n_states)
    return Environment(mdp, law, name=name, optimum=optimum, picture=picture)


def _gain(rows: np.ndarray, reward: np.ndarray) -> float:
    """Reward per step of an irreducible chain with `rows` [S S'] and mean rewards [S]."""
    n = len(reward)
    balance = np.vstack([rows.T - np.eye(n), np.ones(n)])
    return float(np.linalg.lstsq(balance, np.eye(n + 1)[-1], rcond=None)[0] @ reward)


STOP, CHAIN = 0, 1


def two_action_chain(
    depth: int = 100,
    *,
    discount: float = 0.9,
    mean_stop: float = 1.0,
    mean_chain: float = 0.0,
    scale: float = 1.0,
) -> Environment:
    """A root with two actions whose values are equally uncertain, though one is a single reward and one a long chain.

    From [UBE18], figure 1. State 0 is the root. Its action 0 pays N(mean_stop, scale^2) and ends the episode. Its
    action 1 pays the first of `depth` independent rewards N(mean_chain, scale^2 (1 - discount^2)) and leads to state 1;
    states 1 .. depth - 1 pay one each by their only legal action 0 and lead to the next state, the last one ends.
    Transitions are deterministic.

    For `Discounted(discount)`, an episode of the chain has the variance sum_h discount^(2 h) scale^2 (1 - discount^2) =
    scale^2 (1 - discount^(2 depth)): that of action 0 but for the truncation, which is never a self-loop, because the
    rewards of a state that is met again are not independent. `optimum` is the optimal value of an episode under
    `Episodic(depth)`, without discount.

    Args:
        depth: length of the chain.
        discount: that of the objective under which both values are equally uncertain.
        mean_stop, mean_chain: mean of the reward of action 0 of the root, and of those of the chain.
        scale: standard deviation of the reward of action 0 of the root.

    Raises:
        ValueError: `depth` below 2, `discount` outside [0, 1), a mean that is not finite, a scale that is not positive.
        TypeError: `depth` is no integer.

    Example:
        >>> env = bm.envs.two_action_chain(depth=5)
        >>> env.mdp.n_states, env.mdp.n_actions
        (5, 2)
    """
    check_count("depth", depth, 2)
    check_memory(f"depth is {depth}", 32.0 * depth**2)
    check_number("discount", discount, lambda x: 0.0 <= x < 1.0, "a number from 0 up to, but not including, 1")
    for name, value in {"mean_stop": mean_stop, "mean_chain": mean_chain}.items():
        check_number(name, value, np.isfinite, "a finite number")
    check_number("scale", scale, lambda x: 0.0 < x < np.inf, "a finite number greater than zero")
    rows = np.broadcast_to(np.eye(depth, k=1)[:, None, :], (depth, 2, depth)).copy()
    rows[0, STOP] = 0.0
    mean = np.full((depth, 2), float(mean_chain))
    noise = np.full((depth, 2), scale * np.sqrt(1.0 - discount**2))
    mean[0, STOP], noise[0, STOP] = mean_stop, scale
    legal = np.tile([True, False], (depth, 1))
    legal[0, CHAIN] = True
    mdp = MDP(rows, mean, end_probs=1.0 - rows.sum(-1), legal=legal, initial=np.eye(depth)[0])
    law = NormalReward(mdp.reward, jnp.asarray(noise, mdp.reward.dtype))
    optimum = max(float(mean_stop), depth * float(mean_chain))
    return Environment(mdp, law, name=f"two_action_chain_{depth}", optimum=optimum, picture=in_rows(depth))


def in_a_line(n_states: int) -> Picture:
    """The states side by side, from left to right."""
    return Picture(tuple((float(x), 0.0) for x in range(n_states)))


def in_rows(n_states: int, columns: int = 10) -> Picture:
    """The states one after the other, to the right and back again in the row beneath."""
    rows = (divmod(state, columns) for state in range(n_states))
    return Picture(tuple((float(x if y % 2 == 0 else columns - 1 - x), float(y)) for y, x in rows))


LOOP_STATES = 9
INTO_LEFT_LOOP = 1
PAID_RIGHT, PAID_LEFT = 1.0, 2.0


def loop() -> Environment:
    """Loop: two loops of 5 steps that meet in state 0, deterministic; continuing.

    Action 0 enters the right loop, 1, 2, 3, 4, which leads back to state 0 whatever is done and pays 1 on the way from
    4. Action 1 enters the left loop, 5, 6, 7, 8: in 5, 6 and 7 action 1 goes on, action 0 falls back to state 0,
    unpaid; from 8 both actions lead to state 0 and pay 2. The first state is 0. `optimum` is the optimal gain, 0.4 (400
    per phase of 1000 steps). Source: [OIM08], checked against three public implementations.

    Example:
        >>> env = bm.envs.loop()
        >>> env.mdp.n_states, env.mdp.n_actions
        (9, 2)
    """
    after = np.zeros((LOOP_STATES, 2), int)
    after[0] = 1, 5
    after[1:4] = [[2], [3], [4]]
    after[5:8, INTO_LEFT_LOOP] = 6, 7, 8
    reward = np.zeros((LOOP_STATES, 2))
    reward[4], reward[8] = PAID_RIGHT, PAID_LEFT
    mdp = MDP(np.eye(LOOP_STATES)[after], reward, initial=np.eye(LOOP_STATES)[0])
    right = ((3.0, 0.0), (4.0, 0.0), (4.0, 2.0), (3.0, 2.0))
    picture = Picture(((2.0, 1.0), *right, *((4.0 - x, y) for x, y in right)))
    return Environment(mdp, NormalReward(mdp.reward), name="loop", optimum=PAID_LEFT / 5, picture=picture)


WIN_PROBS = (1.0, 0.15, 0.10, 0.05, 0.03, 0.01)
PAYS = (50.0, 133.0, 300.0, 800.0, 1660.0, 6000.0)
LEAVE_FIRST = 4
"""The one action that leads back from the state of the first arm."""


def six_arms() -> Environment:
    """SixArms: from state 0 action k - 1 pulls arm k, which leads to state k, or nowhere; continuing.

    Arm k wins with probability 1, .15, .1, .05, .03, .01 (otherwise the state stays 0); it pays nothing. In state k
    action k - 1 stays and pays 50, 133, 300, 800, 1660, 6000; every other action leads back to state 0, unpaid. State 1
    is the exception: all actions but action 4 stay and pay 50. The first state is 0. `optimum` is the optimal gain,
    6000; the expected total of 5000 steps is 2.94e7. Source: [OIM08], checked against three public
    implementations.

    Example:
        >>> env = bm.envs.six_arms()
        >>> env.mdp.n_states, env.mdp.n_actions
        (7, 6)
    """
    n_arms = len(PAYS)
    arm = np.arange(n_arms)
    rows, reward = np.zeros((n_arms + 1, n_arms, n_arms + 1)), np.zeros((n_arms + 1, n_arms))
    rows[0, arm, arm + 1] = WIN_PROBS
    rows[0, arm, 0] += 1.0 - np.array(WIN_PROBS)
    stays = np.eye(n_arms, dtype=bool)
    stays[0] = arm != LEAVE_FIRST
    home, action = np.nonzero(stays)
    rows[1:, :, 0] = ~stays
    rows[home + 1, action, home + 1] = 1.0
    reward[1:] = np.where(stays, np.array(PAYS)[:, None], 0.0)
    mdp = MDP(rows, reward, initial=np.eye(n_arms + 1)[0])
    turn = 2 * np.pi * arm / n_arms
    around = zip((2.2 * np.sin(turn)).tolist(), (-2.2 * np.cos(turn)).tolist(), strict=True)
    picture = Picture(((0.0, 0.0), *around))
    return Environment(mdp, NormalReward(mdp.reward), name="six_arms", optimum=max(PAYS), picture=picture)


GOOD = 0


def wide_narrow(
    width: int = 6,
    num_pairs: int = 1,
    *,
    mean_high: float = 0.5,
    mean_low: float = 0.0,
    scale_high: float = 1.0,
    scale_low: float = 1.0,
) -> Environment:
    """WideNarrow [BMRL19]: a deterministic ring of 2 N + 1 states, N = `num_pairs`, W = `width` actions; continuing.

    Counted from 0, states 0, 2, .., 2 N - 2 are wide: action 0 pays N(mean_high, scale_high^2), actions 1 .. W - 1 pay
    N(mean_low, scale_low^2). States 1, 3, .., 2 N - 1 are narrow: one action, N(mean_low, scale_low^2). Each leads to
    the next state; state 2 N, narrow too, pays exactly 0 and leads to state 0, the first one. Narrow states have the
    legal action 0 alone (`mdp.legal`); the row of an illegal action is that of action 0.

    `optimum` is the optimal gain, N mean_high / (2 N + 1) in the paper's setting.

    Args:
        width: W, actions of a wide state.
        num_pairs: N, pairs of a wide and a narrow state.
        mean_high, mean_low: means of the rewards of action 0 of a wide state, and of the others (see above).
        scale_high, scale_low: their standard deviations.

    Raises:
        ValueError: `width` below 2, `num_pairs` below 1, a mean that is not finite, a scale that is negative or not
            finite.
        TypeError: a count that is no integer.

    Example:
        >>> env = bm.envs.wide_narrow()
        >>> env.mdp.n_states, env.mdp.n_actions
        (3, 6)
    """
    check_count("width", width, 2)
    check_count("num_pairs", num_pairs)
    check_memory(f"num_pairs is {num_pairs}", 16.0 * (2 * num_pairs + 1) ** 2 * width)
    for name, value in {"mean_high": mean_high, "mean_low": mean_low}.items():
        check_number(name, value, np.isfinite, "a finite number")
    for name, value in {"scale_high": scale_high, "scale_low": scale_low}.items():
        check_number(name, value, lambda x: 0.0 <= x < np.inf, "a finite number, zero or greater")
    n = 2 * num_pairs + 1
    wide_cells = np.arange(0, n - 1, 2)
    mean, scale = np.full((n, width), float(mean_low)), np.full((n, width), float(scale_low))
    mean[wide_cells, GOOD], scale[wide_cells, GOOD] = mean_high, scale_high
    mean[-1], scale[-1] = 0.0, 0.0
    legal = np.zeros((n, width), bool)
    legal[:, 0], legal[wide_cells] = True, True
    mean, scale = (np.where(legal, x, x[:, :1]) for x in (mean, scale))
    rows = np.broadcast_to(np.roll(np.eye(n), 1, axis=1)[:, None, :], (n, width, n))
    mdp = MDP(rows, mean, legal=legal, initial=np.eye(n)[0])
    gain = num_pairs * (max(mean_high, mean_low) + mean_low) / n
    law = NormalReward(mdp.reward, jnp.asarray(scale, mdp.reward.dtype))
    return Environment(mdp, law, name=f"wide_narrow_{width}", optimum=gain)


COST = 0.01


def deep_sea(size: int = 10, *, noise: float = 0.1) -> Environment:
    """DeepSea: `size` x `size` grid, L = `size` steps from the top-left column; meant for `Episodic(size)`.

    Every step goes down a row and one column left (action 0, clipped) or right (action 1). State = column, step =
    row: a time-inhomogeneous `SparseMDP` with arrays [L, L, 2] and one listed successor (dense rows:
    `mdp.to_dense()`). Rewards are N(m, noise^2) on every (row, column, action) with m = 0 (left) or -0.01 / L
    (right), plus 1 for right in the bottom-right cell; nothing follows the last row's action. `optimum` is 0.99.

    [KL21] gives neither the law of the noise nor its scale nor the cost: those are ours; a standard deviation `noise`
    of 0.1 is what reproduces its figure 2. Columns beyond the row cannot be reached, see `reachable`.

    Raises:
        ValueError: `size` below 2, `noise` negative or not finite.
        TypeError: no number.

    Example:
        >>> env = bm.envs.deep_sea(5)
        >>> env.mdp.transition_probs.shape[:2], round(env.optimum, 2)  # of Episodic(5)
        ((5, 5), 0.99)
    """
    check_count("size", size, 2)
    check_memory(f"size is {size}", 100.0 * size**2)
    check_number("noise", noise, lambda x: 0.0 <= x < np.inf, "a finite number, zero or greater")
    column = np.arange(size)
    moves = np.stack([np.maximum(column - 1, 0), np.minimum(column + 1, size - 1)], axis=-1)
    successor = np.broadcast_to(moves[None, :, :, None], (size, size, 2, 1))
    reward = np.zeros((size, size, 2))
    reward[:, :, RIGHT] = -COST / size
    reward[-1, -1, RIGHT] += 1.0
    mdp = SparseMDP(successor, np.ones(successor.shape), reward, initial=np.eye(size)[0])
    law = NormalReward(mdp.reward, None if noise == 0 else jnp.asarray(noise, mdp.reward.dtype))
    return Environment(mdp, law, name=f"deep_sea_{size}", optimum=1.0 - COST, picture=in_a_line(size))


def reachable(size: int) -> np.ndarray:
    """Bool[L L] over (row, column): the L (L + 1) / 2 cells that can be reached, of the L^2 cells of the grid.

    Of `deep_sea` [KL21]. Which of the two numbers stands for "the number of states" enters the temperature of
    K-learning.

    Raises:
        ValueError: `size` is below 1. TypeError: no integer.

    Example:
        >>> from bayes_mdp.envs.papers.chain_mdps import reachable
        >>> reachable(3).sum(axis=1).tolist()  # cells of each row
        [1, 2, 3]
    """
    check_count("size", size)
    return np.tri(size, dtype=bool)


def bsuite_deep_sea(size: int = 10, *, stochastic: bool = False, mapping_seed: int | None = None) -> Environment:
    """DeepSea as in bsuite: `size` x `size` grid, N = `size` steps from the top-left column; meant for `Episodic(N)`.

    From [BSUITE20]. Every step goes down a row and one column left or right (clipped). Which action means right is
    drawn for every cell (`action_mapping`). Right costs 0.01 / N, and pays 1 in column N - 1, whether or not it
    succeeds. `stochastic`: right succeeds with probability 1 - 1/N, else the column stays; in the last row, columns
    0 and N - 1, both actions have noise N(0, 1). State = column, step = row, as in `deep_sea`: arrays [N, N, 2] and
    one listed successor, or two.

    `optimum` is the optimal value of an episode: 0.99; stochastic, with p = 1 - 1/N, p^(N - 1) - 0.01 (1 - p^N), which
    goes left, for nothing, once a right has failed. bsuite reports p^(N - 1) - 0.01, where every right is paid for.

    Args:
        size: N.
        stochastic: see above.
        mapping_seed: of the meaning of the actions, drawn as bsuite does (the same cells for the same number); None:
            action 1 is right everywhere (`randomize_actions=False` there).

    Raises:
        ValueError: `size` below 2, `mapping_seed` negative. TypeError: one of them is no integer.

    Example:
        >>> env = bm.envs.bsuite_deep_sea(5)
        >>> env.mdp.n_states, round(env.optimum, 2)
        (5, 0.99)
    """
    check_count("size", size, 2)
    check_bool("stochastic", stochastic)
    check_memory(f"size is {size}", 100.0 * size**2)
    rows = columns = np.arange(size)
    right = action_right(size, mapping_seed)[..., None] == np.arange(2)  # [N, N, 2]
    up, down = np.minimum(columns + 1, size - 1), np.maximum(columns - 1, 0)
    moved = np.where(right, up[:, None], down[:, None])
    successor, probability = moved[..., None], np.ones((*right.shape, 1))
    if stochastic:
        successor = np.stack([moved, np.broadcast_to(columns[:, None], right.shape)], -1)
        probability = np.stack([1.0 - right / size, right / size], -1)
    corner = (columns == size - 1)[:, None]
    reward = np.where(right, corner - COST / size, 0.0)
    mdp = SparseMDP(successor, probability, reward, initial=np.eye(size)[0])
    noisy = (rows == size - 1)[:, None] & np.isin(columns, (0, size - 1))
    noise = np.broadcast_to(noisy[..., None], reward.shape)
    law = NormalReward(mdp.reward, jnp.asarray(noise, mdp.reward.dtype) if stochastic else None)
    p = 1 - 1 / size
    optimum = p ** (size - 1) - COST * (1 - p**size) if stochastic else 1.0 - COST
    name = f"bsuite_deep_sea{'_stochastic' if stochastic else ''}_{size}"
    return Environment(mdp, law, name=name, optimum=optimum, picture=in_a_line(size))


def action_right(size: int, mapping_seed: int | None) -> np.ndarray:
    """Int[N N] over (row, column): the action that means right."""
    if mapping_seed is None:
        return np.ones((size, size), int)
    check_count("mapping_seed", mapping_seed, 0)
    return np.random.RandomState(mapping_seed).binomial(1, 0.5, (size, size))
