"""[UBE18] figure 2: the uncertainties come from the chain, and the bandit is the chain, in law."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from matplotlib.figure import Figure

import bayes_mdp as bm
from bayes_mdp.agents import UBE, CountBonus
from bayes_mdp.agents.value_uncertainty import ube
from bayes_mdp.envs import two_action_chain
from bayes_mdp.inference.route import infer
from bayes_mdp.mdp import Discounted, StateActionSpace
from bayes_mdp.planning.solve import propagate
from reproductions.ube import two_action_chain_fig2 as fig2
from reproductions.ube.two_action_chain_fig2 import Rule, best_bonus, known_chain, pulls

pytestmark = pytest.mark.numerics

DEPTH, G, WIDTH, STEPS, SEEDS = 6, 0.8, 3.0, 300, 400
CHAIN = 60


@pytest.fixture(scope="module")
def small():
    return fig2.ube_fig2(key=jax.random.key(1), num_episodes=60, num_seeds=30, betas=(0.1, 0.5), depth=CHAIN)


@pytest.mark.slow
def test_the_uncertainties_are_those_of_the_paper(small):
    """Thompson sampling explores both actions alike; the bonus holds the chain to be sqrt(19) times as uncertain."""
    np.testing.assert_allclose(small["spread"], [[1, 1], [1, np.sqrt(19)]], rtol=1e-4 + 0.9**CHAIN)


@pytest.mark.slow
def test_a_faulty_recursion_is_refused(monkeypatch):
    monkeypatch.setattr(fig2.ube, "solve", ube_without_square)
    with pytest.raises(ArithmeticError, match="uncertainties of the root are"):
        fig2.unit_spreads(CHAIN)


def ube_without_square(posterior, policy, objective):
    """A faulty recursion: the discount, not its square, in the operator."""
    mean = posterior.mean_mdp()
    answer = propagate(mean, posterior.reward_variance(), policy, Discounted(jnp.sqrt(objective.discount)))
    return type("Answer", (), {"q_sd": jnp.sqrt(answer.q)})


@pytest.mark.slow
def test_the_library_says_that_ube_is_a_bound_on_the_chain():
    """The chain meets no pair twice, so the answer is proven; the variance is that of the wide prior, exactly."""
    env = two_action_chain(CHAIN, discount=G)
    space = StateActionSpace(CHAIN, 2, ends=True, legal=np.asarray(env.mdp.legal))
    prior = known_chain(env, width=WIDTH)
    posterior: Any = infer(jax.random.key(0), prior, fig2._one_trial_of_each(CHAIN), space=space)
    answer = ube.solve(posterior, np.zeros(CHAIN, int), Discounted(G))
    assert answer.validity.kind == "upper bound"
    exact = np.array([1, 1 - G ** (2 * CHAIN)]) / (1 + WIDTH**-2)
    np.testing.assert_allclose(answer.q_variance[0], exact, rtol=1e-5)


def chain_pulls(agent, key):
    """Int[SEEDS 2]: how often each action of the root was taken in `STEPS` steps of the real chain."""
    env = two_action_chain(DEPTH, discount=G)
    result = bm.run(
        agent,
        env,
        prior=known_chain(env, width=WIDTH),
        objective=Discounted(G),
        num_steps=STEPS,
        num_seeds=SEEDS,
        key=key,
    )
    return result["visits"].to_numpy()[:, 0, :2]


def bandit_pulls(rule, key):
    """The same of the bandit: a pull of the chain takes `DEPTH` steps, one that began in time counts."""
    scale = jnp.array([1.0, np.sqrt(1 - G ** (2 * DEPTH))])
    play = jax.jit(jax.vmap(lambda k: pulls(k, rule, jnp.array([1.0, 0.0]), scale, STEPS)))
    chain = np.asarray(play(jax.random.split(key, SEEDS)))
    began = np.cumsum(np.where(chain, DEPTH, 1), 1) - np.where(chain, DEPTH, 1)
    return np.stack([(~chain & (began < STEPS)).sum(1), (chain & (began < STEPS)).sum(1)], 1)


def worst_distance(one, other):
    """Largest difference in standard deviations: of both means, of both distribution functions at four points."""
    error = np.sqrt(one.var(0) / len(one) + other.var(0) / len(other))
    at = np.quantile(np.concatenate([one, other]), [0.25, 0.5, 0.75, 0.9], axis=0)
    below = [(x[:, None] <= at).mean(0) for x in (one, other)]
    middle = (below[0] + below[1]) / 2
    spread = np.sqrt(np.maximum(middle * (1 - middle), 1e-3) * 2 / len(one))
    return max(np.max(np.abs(one.mean(0) - other.mean(0)) / error), np.max(np.abs(below[0] - below[1]) / spread))


def ube_rule(depth_factor=1.0):
    return Rule(1.0, 0.0, jnp.array([1.0, np.sqrt(1 - G ** (2 * DEPTH)) * depth_factor]), WIDTH**-2)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["ube", "bonus"])
def test_the_bandit_is_the_chain_in_law(kind, key):
    """400 seeds of each, 300 steps; 10 comparisons at 5.5 sd: false alarm 4e-7.

    Catches an uncertainty of the chain that is off by a factor 2.2, that of adding standard deviations at g = .8.
    """
    keys = jax.random.split(key, 3)
    if kind == "ube":
        agent, rule = UBE(replan="episode"), ube_rule()
        wrong = ube_rule(2.2)
    else:
        law: Any = two_action_chain(DEPTH, discount=G).reward_law
        agent = CountBonus(0.3, "log", reward_sd=law.scale, replan="episode")
        factor = (1 - G**DEPTH) * np.sqrt((1 + G) / (1 - G))
        rule, wrong = (Rule(0.0, 0.3, jnp.array([1.0, x])) for x in (factor, 1.0))
    real = chain_pulls(agent, keys[0])
    assert worst_distance(real, bandit_pulls(rule, keys[1])) < 5.5
    assert worst_distance(real, bandit_pulls(wrong, keys[2])) > 5.5


@pytest.mark.slow
def test_the_dataset_is_labelled_and_regret_counts_the_chain(small):
    assert dict(small.sizes) == {"agent": 3, "seed": 30, "checkpoint": small.sizes["checkpoint"], "rule": 2, "arm": 2}
    assert small["agent"].values.tolist() == ["UBE", "bonus, beta 0.1", "bonus, beta 0.5"]
    regret, time = small["regret"].to_numpy(), small["time"].to_numpy()
    assert {1, 2, 10, 50, 60} <= set(time.tolist()) and np.all(np.diff(time) > 0)
    assert np.all(regret[..., 0] == 0) and np.all(regret[..., 1] == 1)  # each action is tried once, first
    steps = np.diff(regret, axis=-1)
    assert np.all((steps >= 0) & (steps <= np.diff(time))) and np.all(regret == regret.round())


@pytest.mark.slow
def test_more_seeds_leave_the_first_as_they_are(small, monkeypatch):
    monkeypatch.setattr(fig2, "SEEDS_AT_ONCE", 8)
    again = fig2.ube_fig2(key=jax.random.key(1), num_episodes=60, num_seeds=12, betas=(0.1, 0.5), depth=CHAIN)
    np.testing.assert_array_equal(again["regret"], small["regret"][:, :12])


def test_the_first_checkpoints_have_their_exact_mean(key):
    """UBE at t = 3: P(chain) in closed form, the difference of the two indices is N(1, 2 + 2 / 1).

    mean_i ~ N(mu_i, 1), zeta_i ~ N(0, 1): P(N(1, 4) < 0) = Phi(-1/2) = .308538; 20,000 seeds, 6 sd = .0196: false
    alarm 2e-9, catches noise of 1.5 in place of 1.
    """
    rule = Rule(1.0, 0.0, jnp.ones(2))
    play = jax.jit(jax.vmap(lambda k, rule: pulls(k, rule, jnp.array([1.0, 0.0]), 1.0, 3), (0, None)))
    chain = np.asarray(play(jax.random.split(key, 20_000), rule))
    np.testing.assert_array_equal(chain[:, :2].mean(0), [0.0, 1.0])
    assert abs(chain[:, 2].mean() - 0.308538) < 0.0196
    assert (
        abs(np.asarray(play(jax.random.split(key, 20_000), rule._replace(noise=1.5)))[:, 2].mean() - 0.308538) > 0.0196
    )


@pytest.mark.slow
def test_the_table_and_the_figure(small):
    table = fig2.rows(small)
    assert [row.quantity for row in table][:4] == [
        "UBE: sd of the chain, times sqrt(n) / sigma",
        "bonus of the chain, times sqrt(n) / sigma",
        "UBE, t = 10",
        "UBE, t = 50",
    ]
    regret, time = small["regret"].to_numpy(), small["time"].to_numpy().tolist()
    assert table[3].ours == pytest.approx(regret[0][:, time.index(50)].mean())
    assert table[5].ours == pytest.approx(regret[best_bonus(small)][:, time.index(50)].mean())
    figure = fig2.figure(small)
    assert isinstance(figure, Figure)
    lines = figure.axes[0].lines
    assert len(lines) == 3
    np.testing.assert_allclose(np.asarray(lines[0].get_ydata(), float), regret[0].mean(0)[1:])


def test_the_ratio_has_the_interval_of_a_ratio():
    """Of two independent means the relative variances add; 4000 samples, deterministic."""
    rng = np.random.default_rng(0)
    below, above = rng.normal(10.0, 1.0, 4000), rng.normal(50.0, 3.0, 4000)
    row = fig2._ratio(above, below)
    assert row.ours == pytest.approx(above.mean() / below.mean())
    expected = 1.96 * 5 * np.sqrt((1 / 10) ** 2 + (3 / 50) ** 2) / np.sqrt(4000)
    assert row.half == pytest.approx(expected, rel=0.1)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"num_seeds": 0}, "num_seeds is 0, expected an integer of at least 1"),
        ({"num_episodes": 0}, "num_episodes is 0, expected an integer of at least 1"),
        ({"betas": (0.1, -1.0)}, r"betas\[1\] is -1\.0, expected a finite number, zero or greater"),
        ({"betas": ()}, "betas is empty, expected at least one scale"),
        ({"depth": 1}, "depth is 1, expected an integer of at least 2"),
    ],
)
def test_bad_settings_are_refused(arguments, message, key):
    with pytest.raises(ValueError, match=message):
        fig2.ube_fig2(key=key, **arguments)
