"""Choices of experts as data: the density by hand, the posterior by weighted draws of transitions alone."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro import handlers
from numpyro.infer import MCMC
from numpyro.infer import NUTS as Kernel

import bayes_mdp as bm
from bayes_mdp.inference import NUTS, Softmax
from bayes_mdp.inference.expert_choices import hours_of, program_with_choices

KEY, RATE = jax.random.key(0), 0.8
REWARD = np.array([[1.0, 0.7], [0.0, 0.2]])
PRIOR, SPACE = bm.models.known_rewards(REWARD, 1.0), bm.StateActionSpace(2, 2)
RATIONAL = dist.Gamma(3.0, 1.0)


def values_of(rows):
    """q of many MDPs by plain value iteration, [N S A]."""
    v, q = np.zeros(rows.shape[:2]), np.zeros(rows.shape[:3])
    for _ in range(200):
        q = REWARD + RATE * np.einsum("nsat,nt->nsa", rows, v)
        v = q.max(-1)
    return q


def log_choice(q, rationality):
    """log softmax(rationality q)."""
    logits = rationality * q
    top = logits.max(-1, keepdims=True)
    return logits - top - np.log(np.exp(logits - top).sum(-1, keepdims=True))


def expert_log(rng, number, rows, rationality):
    """Rows of a log: states at random, actions of an expert who knows the rows."""
    chances = np.exp(log_choice(values_of(rows[None])[0], rationality))
    state = rng.integers(2, size=number)
    action = np.array([rng.choice(2, p=chances[s] / chances[s].sum()) for s in state])
    after = np.array([rng.choice(2, p=rows[s, a]) for s, a in zip(state, action, strict=True)])
    return bm.Transitions(state, action, None, after)


def test_the_density_is_that_of_rows_and_choices():
    """Differences of the log density between points: Dirichlet(1) rows are flat, the rest by hand."""
    counts = np.array([[3.0, 1.0], [0.0, 5.0]])
    program = program_with_choices(PRIOR, Softmax(bm.Discounted(RATE), rationality=RATIONAL), counts)

    def density(rows, rationality):
        with jax.enable_x64(True), handlers.seed(rng_seed=0):
            with handlers.trace() as trace:
                handlers.substitute(program, {"transition": jnp.asarray(rows), "rationality": rationality})(SPACE)
            choice = trace["choices"]
            law = trace["rationality"]["fn"].log_prob(rationality)
            return float(choice["fn"].log_prob(choice["value"]).sum() + law)

    rng = np.random.default_rng(0)
    for _ in range(5):
        rows, rationality = rng.dirichlet(np.ones(2), (2, 2)), float(rng.gamma(3.0))
        by_hand = (counts * log_choice(values_of(rows[None])[0], rationality)).sum()
        by_hand += 2 * np.log(rationality) - rationality - np.log(2)
        assert density(rows, rationality) == pytest.approx(by_hand, abs=1e-6)


def test_the_posterior_is_that_of_weighted_draws():
    """Dirichlet draws after the transitions, weighted by the likelihood of the choices: means within 5 errors of both,
    and no warning of data counted twice. Without the choices the means are further apart than twice that."""
    rng = np.random.default_rng(0)
    data = expert_log(rng, 40, np.array([[[0.9, 0.1], [0.3, 0.7]], [[0.1, 0.9], [0.6, 0.4]]]), 8.0)
    choices = Softmax(bm.Discounted(RATE), rationality=8.0)
    posterior = bm.infer(KEY, PRIOR, data, space=SPACE, sampler=NUTS(300, 1000, 2), choices=choices)
    counts = np.asarray(bm.Counts.of(data, SPACE).transitions, float)
    drawn = rng.standard_gamma(1.0 + counts, (100_000, 2, 2, 2))
    drawn /= drawn.sum(-1, keepdims=True)
    log_weight = (counts.sum(-1) * log_choice(values_of(drawn), 8.0)).sum((1, 2))
    weight = np.exp(log_weight - log_weight.max())
    number = weight.sum() ** 2 / (weight**2).sum()
    mean = np.einsum("n,nsat->sat", weight / weight.sum(), drawn)
    error = drawn.std(0) * (1 / number + 1 / 500) ** 0.5
    ours = np.asarray(posterior.mean_mdp().transition_probs)
    assert (np.abs(ours - mean) < 5 * error + 1e-6).all()
    alone = (1.0 + counts) / (1.0 + counts).sum(-1, keepdims=True)
    assert (np.abs(alone - mean) > 5 * error).any()


@pytest.mark.slow
def test_ranks_are_uniform():
    """Simulation-based calibration of rows and rationality: 200 logs of 15 rows, one compiled program.

    Chi-squared of 5 bins at 1e-6 each (4 degrees of freedom: 33.4); a twin that leaves the choices out of the
    likelihood is to be seen in the rationality, whose ranks are then those of the prior: uniform too, so that what is
    looked at beside it is the posterior variance, which must be smaller.
    """
    rng = np.random.default_rng(1)

    def model(transitions, pairs):
        program = program_with_choices(PRIOR, Softmax(bm.Discounted(RATE), rationality=RATIONAL), pairs)
        rows = program(SPACE).transition_probs
        numpyro.factor("seen", jnp.sum(transitions * jnp.log(rows)))

    kept = 99
    ranks, spread = [], []
    with jax.enable_x64(True):
        mcmc = MCMC(Kernel(model), num_warmup=300, num_samples=kept * 5, thinning=5, progress_bar=False)
        for i in range(200):
            rows, rationality = rng.dirichlet(np.ones(2), (2, 2)), rng.gamma(3.0)
            counts = np.asarray(bm.Counts.of(expert_log(rng, 15, rows, rationality), SPACE).transitions, float)
            mcmc.run(jax.random.key(i), counts, counts.sum(-1))
            drawn = mcmc.get_samples()
            quantities = {"rationality": rationality, **{f"row {s}{a}": rows[s, a, 0] for s in (0, 1) for a in (0, 1)}}
            chains = {"rationality": drawn["rationality"]}
            chains |= {f"row {s}{a}": drawn["transition"][:, s, a, 0] for s in (0, 1) for a in (0, 1)}
            ranks.append([int((np.asarray(chains[name]) < true).sum()) for name, true in quantities.items()])
            spread.append(float(np.var(chains["rationality"])))
    for each in np.array(ranks).T:
        bins = np.bincount(each * 5 // (kept + 1), minlength=5)
        assert ((bins - 40) ** 2 / 40).sum() < 33.4
    assert np.mean(spread) < 0.95 * 3.0  # the variance of the prior


WRONG = {
    "no data": (lambda: ((None,), {}), "choices is given without data"),
    "a route in closed form": (lambda: ((_few(),), {"method": "exact"}), "method is 'exact' with choices"),
}


def _few():
    return bm.Transitions([0, 1], [0, 1], None, [1, 0])


@pytest.mark.parametrize("case", WRONG)
def test_what_cannot_be_is_refused(case):
    make, says = WRONG[case]
    data, more = make()
    with pytest.raises(ValueError, match=says):
        bm.infer(KEY, PRIOR, *data, space=SPACE, choices=Softmax(bm.Discounted(RATE), rationality=2.0), **more)


def test_other_arguments_that_are_wrong():
    for rationality, says in ((0.0, "rationality is 0.0"), (dist.Normal(), "zero or less"), (np.inf, "finite")):
        with pytest.raises(ValueError, match=says):
            Softmax(bm.Discounted(RATE), rationality=rationality)
    with pytest.raises(ValueError, match=r"law of shape \(2,\), expected one of a single number"):
        Softmax(bm.Discounted(RATE), rationality=dist.Gamma(jnp.ones(2)))
    with pytest.raises(ValueError, match="AverageReward, expected"):
        Softmax(bm.AverageReward(), rationality=1.0)
    with pytest.raises(ValueError, match="has a horizon, expected"):
        bm.infer(KEY, PRIOR, _few(), space=SPACE, choices=Softmax(bm.Episodic(3), rationality=1.0))
    with pytest.raises(ValueError, match="nothing ends"):
        bm.infer(KEY, PRIOR, _few(), space=SPACE, choices=Softmax(bm.FirstExit(), rationality=1.0))
    with pytest.raises(TypeError, match="choices is a str"):
        bm.infer(KEY, PRIOR, _few(), space=SPACE, choices="softmax")  # type: ignore[call-overload] - a wrong one


def test_large_problems_are_refused_with_the_time():
    """2,000 states: days, refused before anything is traced."""
    space = bm.StateActionSpace(2000, 2)
    prior = bm.models.known_rewards(np.zeros((2000, 2)), 1.0)
    with pytest.raises(ValueError, match=r"planning in 2000 states .* about .* hours, more than max_hours=1"):
        bm.infer(KEY, prior, _few(), space=space, choices=Softmax(bm.Discounted(RATE), rationality=1.0))
    assert hours_of(bm.Discounted(RATE), bm.StateActionSpace(10, 3), NUTS()) < 0.1
