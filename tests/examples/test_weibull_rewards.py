# pyright: reportArgumentType=false, reportAttributeAccessIssue=false
"""A reward law that is added in one file works everywhere: its posterior by scipy, then all that a posterior does."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from scipy import integrate, stats

import bayes_mdp as bm
from bayes_mdp.inference.families.family import FAMILIES, register
from bayes_mdp.inference.mixtures import log_predictive
from bayes_mdp.mdp import Environment
from tests.examples.weibull_rewards import WeibullBelief

FAMILIES.remove(WeibullBelief)  # importing its file registers it; other tests see the package's own families

SPACE = bm.StateActionSpace(2, 2)
KEY = jax.random.key(0)
SHAPE, A, B = np.array([[1.5, 0.7], [2.0, 1.0]]), 4.0, 2.0


@pytest.fixture(autouse=True)
def registered():
    register(WeibullBelief)
    yield
    FAMILIES.remove(WeibullBelief)


def program(space):
    with space.plates():
        rows = numpyro.sample("transition", dist.Dirichlet(jnp.ones(space.n_outcomes)))
        rate = numpyro.sample("rate", dist.Gamma(A, B))
    return bm.models.MDPSpec(rows, reward=dist.Weibull(rate ** (-1 / SHAPE), SHAPE))


def log(n=40):
    rng = np.random.default_rng(0)
    state, action, after = rng.integers(2, size=(3, n))
    return bm.Transitions(state, action, rng.weibull(SHAPE[state, action]), after)


def quadrature(rewards, shape):
    """Evidence, and mean and variance of the mean reward, by integrals over the rate."""

    def integral(power):
        def density(rate):
            law = stats.weibull_min(shape, scale=rate ** (-1 / shape))
            return stats.gamma.pdf(rate, A, scale=1 / B) * law.pdf(rewards).prod() * law.mean() ** power

        return integrate.quad(density, 0, 60, points=(0.5, 1, 2, 4), epsabs=0, epsrel=1e-11, limit=400)[0]

    total, first, second = (integral(power) for power in range(3))
    return np.log(total), first / total, second / total - (first / total) ** 2


def test_the_posterior_is_that_of_integrals():
    data = log()
    assert bm.explain(program, SPACE).route == "exact"
    posterior = bm.infer(KEY, program, data, space=SPACE)
    rows = bm.infer(
        KEY, bm.models.known_rewards(0.0), bm.Transitions(data.state, data.action, None, data.next_state), space=SPACE
    )
    assert data.reward is not None
    rewards = {p: data.reward[(data.state == p[0]) & (data.action == p[1])] for p in np.ndindex(2, 2)}
    truth = {pair: quadrature(r, SHAPE[pair]) for pair, r in rewards.items()}
    evidence = rows.log_evidence + sum(x[0] for x in truth.values())
    assert posterior.log_evidence == pytest.approx(evidence, rel=1e-8)
    cells = posterior.reward_cells
    for pair, (_, mean, variance) in truth.items():
        assert cells.mean()[pair] == pytest.approx(mean, rel=1e-7)
        assert cells.variance()[pair] == pytest.approx(variance, rel=1e-6)
    # The predictive density of a transition is what it adds to the evidence; one by one is as all at once.
    more = bm.Transitions([1], [0], [0.8], [1])
    with jax.enable_x64(True):
        gain = float(log_predictive(posterior, more)[0])
    assert posterior.update(more).log_evidence - posterior.log_evidence == pytest.approx(gain, abs=1e-9)
    assert posterior.update(more).log_evidence == pytest.approx(
        bm.infer(KEY, program, more, space=SPACE).update(data).log_evidence, abs=1e-9
    )


def test_draws_are_those_of_the_posterior(tmp_path):
    """Draws by JAX, by NumPy (values), and after save and load: false alarm below 1e-6 each."""
    posterior = bm.infer(KEY, program, log(), space=SPACE)
    cells = posterior.reward_cells
    mean, sd = np.asarray(cells.mean()), np.sqrt(np.asarray(cells.variance()))
    drawn = np.asarray(posterior.sample(KEY, (4000,)).reward)
    assert (np.abs(drawn.mean(0) - mean) < 5 * sd / np.sqrt(4000)).all()
    bm.save(posterior, tmp_path / "belief")
    loaded = bm.load(tmp_path / "belief")
    policy = np.array([[1.0, 0.0], [0.0, 1.0]])
    values = [
        bm.policy_value(KEY, each, policy, objective=bm.Episodic(1), initial=0, num_draws=4000)
        for each in (posterior, loaded)
    ]
    assert values[0].mean == values[1].mean == pytest.approx(mean[0, 0], abs=5 * sd[0, 0] / np.sqrt(4000))
    assert loaded.update(log()).log_evidence == posterior.update(log()).log_evidence


def test_what_the_law_cannot_give_is_refused():
    with pytest.raises(ValueError, match=r"expected a number greater than 0 \(the reward law is Weibull\)"):
        bm.infer(KEY, program, bm.Transitions([0], [0], [-1.0], [0]), space=SPACE)


def test_a_wrong_family_is_refused_by_the_proof():
    """One whose posterior forgets the shape; one that reads another scale from the law."""
    FAMILIES.remove(WeibullBelief)

    class ForgetfulBelief(WeibullBelief):
        def statistics(self, weight, reward):
            return super().statistics(weight, reward**0.5)

    class MisreadBelief(WeibullBelief):
        laws = {dist.Weibull: lambda law: {"rate": law.scale**-1.5, "shape": law.concentration}}  # noqa: RUF012

    try:
        register(ForgetfulBelief)
        with pytest.raises(ValueError, match="ForgetfulBelief: prior times likelihood is"):
            bm.infer(KEY, program, space=SPACE)
        FAMILIES.remove(ForgetfulBelief)
        register(MisreadBelief)
        assert bm.explain(program, SPACE).route != "exact"
    finally:
        FAMILIES[:] = [f for f in FAMILIES if not issubclass(f, WeibullBelief)] + [WeibullBelief]


def test_evidence_checks_and_agents():
    posterior = bm.infer(KEY, program, log(), space=SPACE)
    assert bm.evidence(posterior).log_evidence == posterior.log_evidence
    assert bm.check(
        KEY, program, SPACE, num_simulations=60, options=bm.calibration.CheckOptions(false_alarm=1e-6)
    ).calibrated
    assert min(bm.calibration.sbc(KEY, program, SPACE, num_simulations=60).p_values.values()) > 1e-6
    paid = dist.Weibull(jnp.ones((2, 2)), SHAPE)
    env = Environment(bm.MDP(np.full((2, 2, 2), 0.5), paid.mean, initial=[1.0, 0.0]), paid)
    result = bm.run(
        bm.agents.PSRL(), env, prior=program, objective=bm.Episodic(2), num_episodes=5, num_seeds=2, key=KEY
    )
    assert result["reward"].shape == (2, 5)
