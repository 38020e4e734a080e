"""Values in draws by NumPy, against the planners in JAX on whole MDPs made of the very same draws."""

# pyright: reportAttributeAccessIssue=false, reportArgumentType=false, reportOptionalMemberAccess=false
# pyright: reportOptionalSubscript=false
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import bayes_mdp as bm
from bayes_mdp.decisions import host_values
from bayes_mdp.decisions.host_optima import (
    action_values,
    backward,
    best_policies,
    episodic_occupancy,
    episodic_values,
    expected_values,
    improved_policies,
    pair_time,
)
from bayes_mdp.decisions.host_values import PolicyPairs, occupancy, proven, solve, values_and_time
from bayes_mdp.inference import pair_draws as pair_draws_module
from bayes_mdp.inference.pair_draws import Drawn, PairRows, legal_pairs, pair_draws, pairs_of_mdp
from bayes_mdp.planning import evaluate
from bayes_mdp.planning import occupancy as planned_occupancy
from bayes_mdp.planning import solve as plan

pytestmark = pytest.mark.numerics

KEY = jax.random.key(0)
S, A, K, N = 6, 3, 4, 5
LEGAL = np.array([[1, 1, 1], [1, 0, 1], [1, 1, 0], [0, 0, 1], [1, 1, 1], [1, 1, 1]], bool)
START = np.array([0.4, 0.1, 0.2, 0.1, 0.1, 0.1])


def lists(rng, ends):
    listed = np.full((S, A, K), -1)
    for pair in np.argwhere(LEGAL):
        number = rng.integers(1, K + 1)
        listed[(*pair, slice(0, number))] = rng.choice(S + ends, size=number, replace=False)
    return listed


def shared_rows(space):
    """One row for all states of an action, and rows of state 0 that are known."""
    import numpyro
    import numpyro.distributions as dist

    with space.plates("action"):
        drawn = numpyro.sample("row", dist.Dirichlet(jnp.ones(space.n_outcomes)))
    known = jnp.full((space.n_actions, space.n_outcomes), 1 / space.n_outcomes)
    rows = jnp.broadcast_to(drawn, (*space.shape, space.n_outcomes)).at[0].set(known)
    return bm.models.MDPSpec(rows, reward=jnp.arange(float(S * A)).reshape(S, A))


OBJECTIVES = {
    "exit": bm.FirstExit(),
    "average": bm.AverageReward(),
    "episodes": bm.Episodic(4, 0.9),
    "steps": bm.Episodic(3),
    "near one": bm.Discounted(0.9999),
}
CASES = ("dense", "ends", "support", "to one", "to two", "listed", "listed ends", "shared", "by outcome", *OBJECTIVES)


def case(name):
    """(posterior, objective) of one kind, without data."""
    rng = np.random.default_rng(sum(map(ord, name)))
    ends = name in ("ends", "exit", "listed ends")
    options = {"successors": lists(rng, ends)} if "listed" in name else {}
    if name == "support":
        options["support"] = (rng.random((S, A, S)) < 0.5) | np.eye(S, dtype=bool)[:, None]
    if name.startswith("to "):  # the first states alone follow, in every row
        options["support"] = np.broadcast_to(np.arange(S) < 1 + (name == "to two"), (S, A, S))
    horizon = 3 if name == "steps" else None
    space = bm.StateActionSpace(S, A, horizon=horizon, ends=ends, legal=None if name == "shared" else LEGAL, **options)
    prior = bm.models.dirichlet_normal(0.3)
    if name == "by outcome":
        prior = bm.models.dirichlet_normal(rewards_on="outcome")
    prior = shared_rows if name == "shared" else prior
    return bm.infer(KEY, prior, space=space, method="exact"), OBJECTIVES.get(name, bm.Discounted(0.9))


def policies(posterior, objective):
    """A deterministic, a uniform and a mixed one; under `Episodic` another at each step."""
    legal = np.ones((S, A), bool) if posterior.space.legal is None else LEGAL
    uniform = legal / legal.sum(-1, keepdims=True)
    first, last = np.eye(A)[legal.argmax(-1)], np.eye(A)[A - 1 - legal[:, ::-1].argmax(-1)]
    mixed = 0.3 * first + 0.7 * uniform
    if not isinstance(objective, bm.Episodic):
        return np.stack([first, uniform, mixed])
    by_step = np.stack([first, last, uniform, mixed])[np.arange(objective.horizon) % 4]
    return np.stack([by_step, np.broadcast_to(uniform, by_step.shape)])


def whole_mdps(rows: PairRows, drawn: Drawn, shape, ends: bool, legal) -> list[bm.MDP]:
    """The MDPs that the draws of all pairs make, in float64."""
    table = np.zeros((len(drawn.probs), *shape, S + 1))
    table[..., 0] = 1.0
    reward = np.zeros((len(drawn.probs), *shape))
    table[(slice(None), *rows.index)] = 0.0
    table[(slice(None), *(i[rows.pair] for i in rows.index), rows.next_state)] = drawn.probs
    reward[(slice(None), *rows.index)] = drawn.reward
    with jax.enable_x64(True):
        return [
            bm.MDP(
                jnp.asarray(t[..., :S]), jnp.asarray(r), end_probs=jnp.asarray(t[..., S]) if ends else None, legal=legal
            )
            for t, r in zip(table, reward, strict=True)
        ]


def draws(name, num=N):
    posterior, objective = case(name)
    sizes = posterior.sizes()
    stream = pair_draws(KEY, posterior, sizes.possible)
    drawn = stream.draw(num)
    return (
        posterior,
        objective,
        stream.rows,
        drawn,
        whole_mdps(stream.rows, drawn, sizes.shape, sizes.ends, sizes.legal),
    )


def near(found, expected, gap=0.0):
    scale = max(float(np.abs(expected).max()), 1e-12)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-9 * scale + 2 * gap)


@pytest.mark.some(7)
@pytest.mark.parametrize("listed", [False, True], ids=["dense", "listed"])
@pytest.mark.parametrize("name", CASES)
def test_values_gains_times_and_bounds_are_those_of_the_planners(name, listed, monkeypatch):
    if listed:
        for constant, value in (("DENSE", 0), ("DENSE_SHARE", 2.0), ("DIRECT", 0), ("DIRECT_SLOW", 0)):
            monkeypatch.setattr(host_values, constant, value)
    posterior, objective, rows, drawn, mdps = draws(name)
    for policy in policies(posterior, objective):
        if isinstance(objective, bm.Episodic):
            answer = episodic_values(rows, drawn, policy, objective)
            time = episodic_occupancy(rows, drawn, policy, objective, START)
        else:
            chains = PolicyPairs(rows, policy).chains(drawn)
            answer, time = proven(chains, objective), occupancy(chains, objective, START)
        for n, mdp in enumerate(mdps):
            with jax.enable_x64(True):
                expected = evaluate(mdp, jnp.asarray(policy), objective)
                spent = np.asarray(planned_occupancy(mdp, jnp.asarray(policy), objective, START))
            gap = float(expected.gap)
            value = expected.gain if isinstance(objective, bm.AverageReward) else expected.v
            value = np.asarray(value)[0] if isinstance(objective, bm.Episodic) else np.asarray(value)
            near(answer.first[n], np.broadcast_to(value, answer.first[n].shape), gap)
            # Not looser than the planner's, but for another order of the sums.
            assert answer.gap[n] <= max(4 * gap, 1e-9 * np.abs(value).max())
            near(time[n], spent if time.ndim == 4 else spent.sum(-1))


@pytest.mark.some(4)
@pytest.mark.parametrize("name", CASES)
def test_the_best_policies_are_those_of_the_planners(name):
    _, objective, rows, drawn, mdps = draws(name)
    answer = best_policies(rows, drawn, objective)
    q = answer.table(rows, A)
    for n, mdp in enumerate(mdps):
        with jax.enable_x64(True):
            expected = plan(mdp, objective)
        gap = float(expected.gap)
        value = expected.gain if isinstance(objective, bm.AverageReward) else expected.v
        value = np.asarray(value)[0] if isinstance(objective, bm.Episodic) else np.asarray(value)
        near(answer.values.first[n], np.broadcast_to(value, answer.values.first[n].shape), gap)
        assert answer.values.gap[n] <= max(4 * gap, 1e-9 * np.abs(value).max())
        if not isinstance(objective, bm.AverageReward):
            there = np.isfinite(np.asarray(expected.q))
            near(np.where(there, q[n], 0.0), np.where(there, expected.q, 0.0), gap)


@pytest.mark.parametrize("name", ["ends", "steps", "average", "listed ends"])
def test_one_mdp_has_the_values_of_all_its_pairs(name):
    posterior, objective = case(name)
    with jax.enable_x64(True):
        mdp = posterior.sample(KEY)
        rows, drawn = pairs_of_mdp(mdp)
        policy = policies(posterior, objective)[-1]
        expected = evaluate(mdp, jnp.asarray(policy), objective)
        spent = planned_occupancy(mdp, jnp.asarray(policy), objective, START)
    q = action_values(rows, drawn, policy, objective)
    legal = np.broadcast_to(legal_pairs(mdp), q.shape)
    assert (np.isnan(q) == ~legal).all()
    shift = 0.0 if not isinstance(objective, bm.AverageReward) else (q - np.asarray(expected.q))[legal][0]
    # In single precision, as `sample` draws.
    np.testing.assert_allclose((q - shift)[legal], np.asarray(expected.q)[legal], rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(pair_time(rows, drawn, policy, objective, START), spent, rtol=1e-4, atol=1e-4)


def random_chain(rng, size, num, kind):
    """Draws of a chain of one policy, as pairs: rows of tiny concentrations, absorbing and unreachable states."""
    concentration = np.full((size, size), {"tiny": 1e-3, "plain": 1.0, "absorbing": 1.0}[kind])
    logs = np.log(rng.standard_gamma(concentration + 1.0, (num, size, size)))
    logs += np.log1p(-rng.random((num, size, size))) / concentration
    probs = np.exp(logs - logs.max(-1, keepdims=True))
    probs /= probs.sum(-1, keepdims=True)
    if kind == "absorbing":
        probs[:, 0], probs[:, :, -1] = np.eye(size)[0], 0.0  # state 0 stays; nothing leads to the last one
        probs /= probs.sum(-1, keepdims=True)
    state = np.arange(size)
    entries = np.tile(state, size)
    rows = PairRows(None, state, np.zeros(size, int), np.arange(0, size**2 + 1, size), entries, entries, size)
    return rows, Drawn(probs.reshape(num, -1), rng.normal(size=(num, size)) * 10.0 ** rng.integers(-3, 4))


@pytest.mark.parametrize(
    ("kind", "discount"), [("tiny", 0.9999), ("plain", 0.9999), ("absorbing", 0.99), ("tiny", 0.5)]
)
def test_bounds_hold_against_exact_solutions(kind, discount):
    """10,000 draws in all. The truth: elimination in extended precision; bounds are not loose without measure."""
    rng = np.random.default_rng(7)
    for size in (2, 5, 10):
        num = 834
        rows, drawn = random_chain(rng, size, num, kind)
        answer = proven(PolicyPairs(rows, np.ones((size, 1))).chains(drawn), bm.Discounted(discount))
        system = np.eye(size, dtype=np.longdouble) - np.longdouble(discount) * drawn.probs.reshape(num, size, size)
        exact = extended_solve(system, drawn.reward.astype(np.longdouble))
        error = np.abs(answer.first - exact).max(-1)
        assert (error <= answer.gap).all()
        assert (answer.gap <= 1e-7 * np.abs(exact).max(-1) + 1e-300).all()


def extended_solve(system, rhs):
    """Gaussian elimination with pivots, in the precision of its arguments, many systems at once."""
    a, x = system.copy(), rhs.copy()[..., None]
    num, size, draw = len(a), a.shape[1], np.arange(len(a))
    for k in range(size):
        pivot = k + np.abs(a[:, k:, k]).argmax(1)
        for table in (a, x):
            table[draw, k], table[draw, pivot] = table[draw, pivot].copy(), table[draw, k].copy()
        for row in range(k + 1, size):
            factor = a[:, row, k] / a[:, k, k]
            a[:, row] -= factor[:, None] * a[:, k]
            x[:, row] -= factor[:, None] * x[:, k]
    for k in reversed(range(size)):
        x[:, k] = (x[:, k] - np.einsum("nk,nkr->nr", a[:, k, k + 1 :], x[:, k + 1 :])) / a[:, k, k][:, None]
    assert num == len(x)
    return x[..., 0]


def test_iterations_reach_the_answer_of_elimination(monkeypatch):
    """A long chain, where Krylov methods without a preconditioner stagnate, and its adjoint."""
    rng = np.random.default_rng(1)
    size, num = 60, 7
    probs = np.zeros((num, size, size))
    state = np.arange(size)
    ahead = 0.9 + 0.05 * rng.random((num, size))
    probs[:, state, np.minimum(state + 1, size - 1)] += ahead
    probs[:, state, np.maximum(state - 1, 0)] += 1 - ahead
    entries = np.tile(state, size)
    rows = PairRows(None, state, np.zeros(size, int), np.arange(0, size**2 + 1, size), entries, entries, size)
    drawn = Drawn(probs.reshape(num, -1), rng.normal(size=(num, size)))
    chains = PolicyPairs(rows, np.ones((size, 1))).chains(drawn)
    for adjoint in (False, True):
        expected = solve(chains, 0.999, drawn.reward, adjoint=adjoint)
        with monkeypatch.context() as patch:
            patch.setattr(host_values, "DIRECT", 0)
            near(solve(chains, 0.999, drawn.reward, adjoint=adjoint), expected)
            patch.setattr(host_values, "DIRECT_SLOW", 0)
            near(solve(chains, 0.999, drawn.reward, adjoint=adjoint), expected)
            patch.setattr("bayes_mdp.decisions.host_values._ITERATIONS", 1)
            patch.setattr("bayes_mdp.decisions.host_values._RESTARTS", 1)
            near(solve(chains, 0.999, drawn.reward, adjoint=adjoint), expected)


@pytest.mark.parametrize("kind", ["plain", "absorbing", "tiny"])
def test_less_precise_values_cost_less_and_keep_their_bounds(kind, monkeypatch):
    """Iterations that stop early, against elimination: off by more than rounding, and by no more than they say."""
    rng = np.random.default_rng(3)
    rows, drawn = random_chain(rng, 40, 20, kind)
    chains = PolicyPairs(rows, np.ones((40, 1))).chains(drawn)
    exact = proven(chains, bm.Discounted(0.95)).first
    monkeypatch.setattr(host_values, "DIRECT", 0)
    monkeypatch.setattr(host_values, "DIRECT_SLOW", 0)
    products, expected_next = [], host_values.Chains.expected_next
    monkeypatch.setattr(
        host_values.Chains, "expected_next", lambda chains, v: products.append(1) or expected_next(chains, v)
    )
    counts, gaps, errors = [], [], []
    for precision in (1e-16, 1e-8):
        products.clear()
        answer = proven(chains, bm.Discounted(0.95), max(precision, host_values._EPS))
        counts.append(len(products))
        gaps.append(answer.gap)
        errors.append(np.abs(answer.first - exact).max(-1))
        assert (errors[-1] <= answer.gap + gaps[0]).all()
    assert counts[1] < counts[0]
    assert (gaps[1] <= 1e-4 * np.abs(exact).max(-1)).all() and (gaps[0] <= 1e-9 * np.abs(exact).max(-1)).all()


def test_singular_systems_leave_the_other_draws_alone():
    """Of three draws one never ends."""
    state = np.arange(2)
    rows = PairRows(
        None, state, np.zeros(2, int), np.array([0, 3, 6]), np.tile(np.arange(3), 2), np.tile(np.arange(3), 2), 2
    )
    ends = np.array([[0.5, 0.25, 0.25], [0.0, 0.5, 0.5]])
    never = np.array([[0.0, 1.0, 0.0], [1.0, 0.0, 0.0]])
    drawn = Drawn(np.stack([ends, never, ends]).reshape(3, -1), np.ones((3, 2)))
    answer = proven(PolicyPairs(rows, np.ones((2, 1))).chains(drawn), bm.FirstExit())
    np.testing.assert_allclose(answer.first[[0, 2]], [[3.0, 2.0]] * 2, rtol=1e-14)
    assert (answer.gap[[0, 2]] < 1e-12).all() and answer.gap[1] == np.inf


def test_two_classes_of_one_gain_are_left_to_the_planner():
    rows, drawn = pairs_of_mdp(bm.MDP(np.eye(2)[:, None], [[1.0], [1.0]]))
    answer = proven(PolicyPairs(rows, np.ones((2, 1))).chains(drawn), bm.AverageReward())
    assert answer.first[0, 0] == pytest.approx(1.0) and answer.gap[0] < 1e-9
    rows, drawn = pairs_of_mdp(bm.MDP(np.eye(2)[:, None], [[1.0], [0.0]]))
    assert proven(PolicyPairs(rows, np.ones((2, 1))).chains(drawn), bm.AverageReward()).gap[0] == np.inf


def _moves(places: np.ndarray, rewards: np.ndarray) -> bm.MDP:
    """An MDP whose actions lead to one place each [S, A]."""
    return bm.MDP(np.eye(len(places))[places], rewards)


@pytest.mark.parametrize("seed", range(40))
def test_gains_where_policies_on_the_way_have_several_classes(seed):
    """Moves that are certain, one of which leads home: classes by the dozen, periods, and one best gain for all starts.

    It is the largest mean reward of a cycle (Karp 1978), by brute force: the best mean over walks of S steps that
    return, from D_k(s), the best sum of k steps to s.
    """
    rng = np.random.default_rng(seed)
    n_states, n_actions = int(rng.integers(2, 9)), int(rng.integers(2, 5))
    places, rewards = rng.integers(n_states, size=(n_states, n_actions)), rng.integers(-8, 9, (n_states, n_actions)) / 8
    # Action 0 leads round all states: each can be reached from each, and the optimal gain is one number.
    order = rng.permutation(n_states)
    places[order, 0] = np.roll(order, -1)
    sums = np.full((n_states + 1, n_states), -np.inf)
    sums[0, 0] = 0.0
    for k in range(n_states):
        np.maximum.at(sums[k + 1], places, sums[k][:, None] + rewards)
    reached = np.isfinite(sums[-1])
    steps = n_states - np.arange(n_states)[:, None]
    with np.errstate(invalid="ignore"):
        means = np.where(np.isfinite(sums[:-1]), (sums[-1] - sums[:-1]) / steps, np.inf)
    cycle = means.min(0)[reached].max()
    rows, drawn = pairs_of_mdp(_moves(places, rewards))
    answer = improved_policies(rows, drawn, bm.AverageReward())
    assert np.isfinite(answer.values.gap[0])
    assert abs(answer.values.first[0, 0] - cycle) <= answer.values.gap[0] + 1e-12


def test_gains_that_depend_on_the_start_are_not_settled():
    """Two islands; draws that are settled beside it stay as they are."""
    rows, drawn = pairs_of_mdp(_moves(np.array([[0, 1], [1, 1]]), np.array([[1.0, 0.0], [0.5, 0.5]])))
    assert np.isinf(improved_policies(rows, drawn, bm.AverageReward()).values.gap[0])


def test_steps_of_the_recursion_are_told_from_the_last_to_the_first():
    _, objective, rows, drawn, _ = draws("steps", 2)
    steps = list(backward(rows, drawn, np.full((S, A), 1 / A), objective))
    assert [int(step.rows.step[0]) for step in steps] == [2, 1, 0]


@pytest.mark.parametrize("ends", [False, True])
@pytest.mark.parametrize("width", [np.float32, np.float64])
@pytest.mark.parametrize("stochastic", [False, True])
def test_rows_in_which_all_is_possible_are_added_up(ends, width, stochastic):
    """By einsum over the whole MDP; some pairs are not drawn, others drawn and not used."""
    rng = np.random.default_rng(0)
    outcomes, drawn_pairs = S + ends, np.argwhere(LEGAL & ~((np.arange(S) == 4)[:, None] & (np.arange(A) == 1)))
    state, action = drawn_pairs.T
    rows = PairRows(
        None,
        state,
        action,
        outcomes * np.arange(len(state) + 1),
        np.tile(np.arange(outcomes), len(state)),
        np.tile(np.arange(outcomes), len(state)),
        S,
    )
    probs = rng.dirichlet(np.full(outcomes, 0.3), size=(N, len(state))).astype(width)
    reward = rng.normal(size=(N, len(state)))
    policy = np.zeros((S, A))
    policy[state, action] = rng.random(len(state)) * (rng.random(len(state)) < 0.7) if stochastic else 0.0
    policy[state[np.unique(state, return_index=True)[1]], action[np.unique(state, return_index=True)[1]]] += 1.0
    policy /= policy.sum(-1, keepdims=True)
    pairs = PolicyPairs(rows, policy)
    assert pairs._width == outcomes or pairs._is_whole
    chains = pairs.chains(Drawn(probs.reshape(N, -1), reward))
    dense, paid = np.zeros((N, S, A, outcomes)), np.zeros((N, S, A))
    dense[:, state, action] = probs.astype(np.float64) / probs.astype(np.float64).sum(-1, keepdims=True)
    paid[:, state, action] = reward
    np.testing.assert_allclose(np.asarray(chains.matrix), np.einsum("sa,nsao->nso", policy, dense)[..., :S], atol=1e-15)
    np.testing.assert_allclose(chains.reward, np.einsum("sa,nsa->ns", policy, paid), atol=1e-14)


def test_a_first_exit_by_elimination_and_by_iterations(monkeypatch):
    posterior, objective, rows, drawn, _ = draws("exit")
    chains = PolicyPairs(rows, policies(posterior, objective)[-1]).chains(drawn)
    eliminated = proven(chains, objective)
    monkeypatch.setattr(host_values, "DIRECT", 0)
    monkeypatch.setattr(host_values, "DIRECT_SLOW", 0)
    monkeypatch.setattr(host_values, "DIRECT_UNDISCOUNTED", 0)
    iterated = proven(chains, objective)
    assert np.isfinite(eliminated.gap).all() and np.isfinite(iterated.gap).all()
    assert (np.abs(eliminated.first - iterated.first).max(-1) <= eliminated.gap + iterated.gap).all()


@pytest.mark.parametrize("width", [np.float32, np.float64])
def test_entries_that_are_zero_are_left_out(width, monkeypatch):
    """Rows of small concentrations: chains and expectations by einsum over the whole MDP, some pairs not used."""
    monkeypatch.setattr(pair_draws_module, "FEW_OF", 0)
    rng, (state, action), outcomes = np.random.default_rng(1), np.argwhere(LEGAL).T, S + 1
    place, first = np.tile(np.arange(outcomes), len(state)), outcomes * np.arange(len(state) + 1)
    rows = PairRows(None, state, action, first, place, place, S)
    probs = rng.dirichlet(np.full(outcomes, 0.03), size=(N, len(state)))
    probs = np.where(probs > 0.05, probs, 0.0)
    probs = (probs / probs.sum(-1, keepdims=True)).astype(width)
    drawn = Drawn(probs.reshape(N, -1), rng.normal(size=(N, len(state))))
    assert pair_draws_module.mostly_zero(drawn.probs)
    policy = np.zeros((S, A))
    policy[state, action] = rng.random(len(state)) * (rng.random(len(state)) < 0.6)
    policy[np.arange(S), LEGAL.argmax(-1)] += 0.1
    policy /= policy.sum(-1, keepdims=True)
    dense = np.zeros((N, S, A, outcomes))
    dense[:, state, action] = probs.astype(np.float64) / probs.astype(np.float64).sum(-1, keepdims=True)
    expected = np.einsum("sa,nsao->nso", policy, dense)[..., :S]
    near(PolicyPairs(rows, policy).chains(drawn).matrix, expected)
    values = rng.normal(size=(N, outcomes))
    near(expected_values(rows, drawn.probs, values), np.einsum("nsao,no->nsa", dense, values)[:, state, action])


@pytest.mark.parametrize("name", ["dense", "exit"])
def test_values_and_times_share_factors(name, monkeypatch):
    posterior, objective, rows, drawn, _ = draws(name)
    start = np.full(S, 1 / S)
    chains = PolicyPairs(rows, policies(posterior, objective)[-1]).chains(drawn)
    apart = values_and_time(chains, objective, start)
    monkeypatch.setattr(host_values, "FACTORED", 0)
    for one, other in zip(values_and_time(chains, objective, start), apart, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-12)
    # One draw whose system is singular leaves the others alone.
    never = np.array(chains.matrix)
    never[0] = np.eye(len(never[0]))
    values, time = values_and_time(replace(chains, matrix=never), bm.FirstExit(), start)
    assert np.isnan(values[0]).all() and np.isnan(time[0]).all()
    assert name != "exit" or (np.isfinite(values[1:]).all() and np.isfinite(time[1:]).all())
