"""The prior's share of pooled rows: beside restaurants seated one customer after the other, and its limits."""

from dataclasses import replace
from functools import partial
from typing import Any

import jax
import numpy as np
import numpyro.distributions as dist
import pytest

import bayes_mdp as bm
from bayes_mdp.decisions.value_basis import PRIOR_SHARE
from bayes_mdp.inference import Gibbs, fit_for, pooled_posterior
from bayes_mdp.inference.pooled_posterior import PooledPosterior
from bayes_mdp.inference.summary import table
from bayes_mdp.mdp import Transitions
from tests.inference.hospitals import N_ACTIONS, N_STATES, hospital, stays

pytestmark = pytest.mark.numerics

KEY = jax.random.key(0)
ROW, LEVEL, PARTICLES = 3.0, 4.0, 40_000
# Of states 0 to 2: deaths (3), survivals (4), stays and moves; pair (2, 1) is never tried.
SEEN = [(0, 0, 1), (1, 0, 4), (0, 1, 0), (0, 0, 1), (2, 0, 4), (1, 1, 4), (0, 0, 3), (1, 0, 2), (2, 0, 4), (0, 0, 1)]


def prior(concentration: float, spread: float) -> Any:
    """Of nearly known concentrations where `spread` is small."""
    return bm.models.partial_pooling(
        partial(bm.models.known_rewards, 0.0),
        usage=None,
        concentration=dist.LogNormal(np.log(concentration), spread),
        state_concentration=dist.LogNormal(np.log(LEVEL), spread),
    )


def posterior_of(transitions: Any, *, concentration: float = ROW, spread: float = 1e-3, draws: int = 400) -> Any:
    options = Gibbs(num_warmup=50, num_samples=draws, num_chains=2)
    return fit_for(prior(concentration, spread), hospital(), options).on_host(KEY, transitions)


def logged(seen: list[tuple[int, int, int]]) -> Transitions:
    state, action, reached = np.array(seen).T
    return Transitions(state, action, None, reached)


class Urns:
    """One level in many particles: customers of each state, tables of the level. Its base is uniform on `size`."""

    def __init__(self, rng: np.random.Generator, size: int, *, known: bool = False) -> None:
        self.rng, self.size = rng, size
        self.seen, self.tables = np.zeros((PARTICLES, 3, size)), np.zeros((PARTICLES, size))
        # "move" leaves a state's own number out: what is common is drawn first, and given it customers are exchangeable
        self.common = rng.dirichlet(np.ones(size), PARTICLES) if known else None

    def probability(self, state: int, alternative: int) -> tuple[np.ndarray, np.ndarray]:
        """Of a customer at an old table, and at a new one."""
        if self.common is None:
            base = (1 + self.tables[:, alternative]) / (self.size + self.tables.sum(1))
            inside = np.ones(PARTICLES)
        else:
            base, inside = self.common[:, alternative], 1 - self.common[:, state]
        total = LEVEL * inside + self.seen[:, state].sum(1)
        return self.seen[:, state, alternative] / total, LEVEL * base / total

    def seat(self, state: int, alternative: int, where: np.ndarray) -> None:
        old, new = self.probability(state, alternative)
        opened = where & (self.rng.random(PARTICLES) * (old + new) < new)
        self.seen[where, state, alternative] += 1
        self.tables[opened, alternative] += 1

    def by_data(self, state: int, alternatives: list[int]) -> np.ndarray:
        """Probability that the next customer has one of these and follows customers, not the base."""
        scale = LEVEL / (self.size + self.tables.sum(1))
        own = 0 if self.common is None else 1 + self.tables[:, state]
        part = scale[:, None] * self.tables[:, alternatives] + self.seen[:, state][:, alternatives]
        return part.sum(1) / (LEVEL - scale * own + self.seen[:, state].sum(1))


def by_seating() -> tuple[np.ndarray, float]:
    """The prior's share of the pairs of three states by sequential importance sampling, and its effective size."""
    rng = np.random.default_rng(0)
    urns = {name: Urns(rng, 3 if name == "move" else 2, known=name == "move") for name in LEVELS}
    weight, counts = np.ones(PARTICLES), np.zeros((3, N_ACTIONS, N_STATES))
    for state, action, reached in SEEN:
        path = steps(state, reached)
        of_state = np.prod([np.sum(urns[name].probability(state, k), axis=0) for name, k in path], axis=0)
        old, total = counts[state, action, reached], ROW + counts[state, action].sum()
        weight *= (old + ROW * of_state) / total
        opened = rng.random(PARTICLES) * (old + ROW * of_state) < ROW * of_state
        for name, k in path:
            urns[name].seat(state, k, opened)
        counts[state, action, reached] += 1
    weight /= weight.sum()
    shares = np.zeros((3, N_ACTIONS))
    for state in range(3):
        out, inside = (urns["end"].by_data(state, [k]) for k in (0, 1))
        move = urns["stay"].by_data(state, [1]) * urns["move"].by_data(state, [k for k in range(3) if k != state])
        by_data = out * urns["which"].by_data(state, [0, 1]) + inside * (urns["stay"].by_data(state, [0]) + move)
        shares[state] = ROW / (ROW + counts[state].sum(-1)) * (weight @ (1 - by_data))
    return shares, 1 / (weight**2).sum()


LEVELS = ("end", "which", "stay", "move")


def steps(state: int, reached: int) -> list[tuple[str, int]]:
    """The alternative of an outcome on each of its levels."""
    if reached >= 3:
        return [("end", 0), ("which", reached - 3)]
    return [("end", 1), ("stay", 0)] if reached == state else [("end", 1), ("stay", 1), ("move", reached)]


def test_it_is_that_of_restaurants_seated_one_by_one():
    """No sampler, no tables of a whole row at once: the urn schemes of all levels, weighted by what was seen.

    A draw's share has a standard deviation of .054 at most, 800 of them with an autocorrelation time of 1.6 an error of
    .0024: .015 is six of them, a false alarm in 1e-8.
    """
    expected, size = by_seating()
    assert size > 2_000
    posterior = posterior_of(logged(SEEN))
    found = np.asarray(posterior.prior_share())[:3]
    np.testing.assert_allclose(found, expected, atol=0.015)
    # Counting what is borrowed as the prior's would be found.
    twin = ROW / (ROW + np.asarray(posterior.visit_counts())[:3])
    assert (np.abs(twin - expected) > 0.05).all()
    borrowed = np.asarray(posterior.borrowed_share())[:3]
    np.testing.assert_allclose(found + borrowed, twin, atol=2e-3)
    assert np.isnan(np.asarray(posterior.prior_share())[3:]).all()


@pytest.mark.slow
def test_a_broken_share_is_caught(monkeypatch):
    """The twin counts what was drawn from the states in place of the tables of the level above."""
    right = pooled_posterior._Level.by_data

    def wrong(self: Any) -> np.ndarray:
        total, seen, _ = self.of_data
        self.of_data = total, seen, seen.sum(0).astype(float)
        return right(self)

    monkeypatch.setattr(pooled_posterior._Level, "by_data", wrong)
    found = np.asarray(posterior_of(logged(SEEN)).prior_share())[:3]
    assert np.abs(found - by_seating()[0]).max() > 0.02


@pytest.mark.slow
def test_its_limits():
    """No data: one. Much in its row: none. Nothing in a row, much in its state or in other states: little."""
    nothing = posterior_of(None, draws=4)
    np.testing.assert_allclose(np.asarray(nothing.prior_share())[:3], 1.0, atol=1e-6)
    np.testing.assert_allclose(np.asarray(nothing.borrowed_share())[:3], 0.0, atol=1e-6)
    many = stays(3_000).transitions
    state, action = np.asarray(many.state), np.asarray(many.action)

    def without(left: np.ndarray) -> np.ndarray:
        kept = ~left & (state < 3)
        part = Transitions(state[kept], action[kept], None, np.asarray(many.next_state)[kept])
        belief = posterior_of(part, concentration=20.0, spread=0.1, draws=100)
        assert np.asarray(belief.visit_counts())[state[left], action[left]].sum() == 0
        return np.asarray([belief.prior_share(), belief.borrowed_share()])[:, :3]

    prior_part, borrowed = without((state == 2) & (action == 1))
    own = np.ones((3, 2), bool)
    own[2, 1] = False
    assert prior_part[own].max() < 0.005 and borrowed[own].max() < 0.02
    assert prior_part[2, 1] < 0.05 and borrowed[2, 1] > 0.95
    # A state that was never visited borrows from two others alone, at most what two states tell of a third.
    prior_part, borrowed = without(state == 2)
    assert (prior_part[2] > 0.1).all() and (borrowed[2] > 0.5).all() and prior_part[:2].max() < 0.005


@pytest.fixture(scope="module")
def posterior() -> PooledPosterior:
    return posterior_of(logged(SEEN), draws=5)


def test_tables_and_files_have_the_same_share(posterior, tmp_path):
    frame: Any = table(posterior).set_index(["state", "action"])["prior_share"]
    share = np.asarray(posterior.prior_share())
    for s, a in np.ndindex(3, N_ACTIONS):
        assert frame[s, a] == pytest.approx(share[s, a], rel=1e-6)
    bm.save(posterior, tmp_path / "p.bmdp")
    np.testing.assert_array_equal(bm.load(tmp_path / "p.bmdp").prior_share(), share)  # type: ignore[union-attr]


def test_new_data_lower_it(posterior):
    """Those of the own row; what the draws of the other levels know stays as it was."""
    more = posterior.update(logged([(2, 1, 0)] * 40))
    before, after = np.asarray(posterior.prior_share()), np.asarray(more.prior_share())
    assert after[2, 1] < 0.1 * before[2, 1]


def test_a_value_says_what_is_borrowed():
    """Time in pairs weighs both shares; the verdict asks for the prior's alone."""
    transitions = replace(stays(200).transitions, reward=None)  # the prior knows the rewards
    few = posterior_of(transitions, concentration=300.0, spread=0.1, draws=20)
    policy, start = np.zeros(N_STATES, int), np.array([0.5, 0.25, 0.25, 0.0, 0.0])
    found = bm.compare_policies(
        KEY,
        few,
        {"zeros": policy, "ones": 1 - policy},
        bm.FirstExit(),
        initial=start,
        num_draws=64,
        options=bm.decisions.VerdictOptions(held_out=True),
    )
    basis = found.values["zeros"].basis
    assert basis is not None and basis.prior_share is not None and basis.borrowed is not None
    rows = np.asarray(few.mean_mdp().transition_probs, float)[:3, 0, :3]
    time = np.linalg.solve(np.eye(3) - rows.T, start[:3])
    time /= time.sum()
    assert basis.prior_share == pytest.approx(time @ np.asarray(few.prior_share())[:3, 0], rel=1e-4)
    assert basis.borrowed == pytest.approx(time @ np.asarray(few.borrowed_share())[:3, 0], rel=1e-4)
    assert basis.borrowed > 0.3 and basis.prior_share < PRIOR_SHARE
    assert f"borrowed from other pairs at most {basis.borrowed:.2g}" in str(basis)
    assert found.verdict.decided
