"""Choices of experts as data: the density by hand, the posterior by weighted draws of transitions alone."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pandas as pd
import pytest
from numpyro import handlers
from numpyro.infer.hmc import hmc
from numpyro.infer.util import initialize_model
from scipy.stats import chi2

import bayes_mdp as bm
from bayes_mdp.inference import NUTS, Softmax
from bayes_mdp.inference.expert_choices import choice_counts, hours_of, program_with_choices

KEY, RATE = jax.random.key(0), 0.8
REWARD = np.array([[1.0, 0.7], [0.0, 0.2]])
PRIOR, SPACE = bm.models.known_rewards(REWARD, 1.0), bm.StateActionSpace(2, 2)
RATIONAL = dist.Gamma(3.0, 1.0)


def values_of(rows):
    """q of many MDPs by plain value iteration, [N S A]."""
    v = np.zeros(rows.shape[:2])
    for _ in range(100):  # .8^100 is 2e-10
        v = (REWARD + RATE * (rows @ v[:, None, :, None])[..., 0]).max(-1)
    return REWARD + RATE * (rows @ v[:, None, :, None])[..., 0]


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


def test_a_choice_counts_whose_next_state_was_not_observed():
    """The last row of an episode that was cut off: its action was chosen, where it led is not known."""
    frame = pd.DataFrame({"s": [0, 1, 0, 1], "a": [0, 1, 1, 1], "id": [1, 1, 1, 2]})
    log = bm.read_log(frame, state="s", action="a", episode="id")
    folded = bm.read_log(frame, state="s", action="a", episode="id", chunksize=2)
    for data in (log, log.transitions, folded):
        assert choice_counts(data, SPACE).tolist() == [[1.0, 1.0], [0.0, 2.0]]
    # Counts do not say what was chosen in such rows.
    assert choice_counts(bm.Counts.of(log.transitions, SPACE), SPACE).tolist() == [[1.0, 0.0], [0.0, 1.0]]
    for data in (log.transitions, folded):
        with pytest.raises(ValueError, match="expected a legal action"):
            choice_counts(data, bm.StateActionSpace(2, 2, legal=[[True, False], [True, True]]))


SIMULATIONS, KEPT = 200, 19
"""Logs of the simulation-based calibration, and draws kept of each chain."""
QUANTITIES = ("rationality", "row 00", "row 01", "row 10", "row 11", "likelihood")


def world_of_the_prior(number):
    """Rows and rationality from the prior, and the counts [S A S] of a log of 15 rows that such an expert made."""
    rng = np.random.default_rng([1, number])
    rows, rationality = rng.dirichlet(np.ones(2), (2, 2)), rng.gamma(3.0)
    data = expert_log(rng, 15, rows, rationality)
    return rng, rows, rationality, np.asarray(bm.Counts.of(data, SPACE).transitions, float)


def quantities(rows, rationality, counts):
    """What is ranked, [Q N]: with the likelihood of the choices, which sees what is wrong with their weight."""
    likelihood = (counts.sum(-1) * log_choice(values_of(rows), rationality[:, None, None])).sum((1, 2))
    return np.stack([rationality, *rows[..., 0].reshape(len(rows), 4).T, likelihood])


def ranks_of(simulations):
    """Ranks of the truth among draws of `program_with_choices`, [N Q]: chains of all logs, compiled once."""
    choices = Softmax(bm.Discounted(RATE), rationality=RATIONAL)

    def model(transitions, pairs):
        rows = program_with_choices(PRIOR, choices, pairs)(SPACE).transition_probs
        numpyro.factor("seen", jnp.sum(transitions * jnp.log(rows)))

    worlds = [world_of_the_prior(i) for i in simulations]
    counts = np.stack([world[-1] for world in worlds])
    with jax.enable_x64(True):
        options = {"model_args": (counts[0], counts[0].sum(-1)), "dynamic_args": True}
        start, potential, constrain, _ = initialize_model(jax.random.key(0), model, **options)
        begin, step = hmc(potential_fn_gen=potential, algo="NUTS")

        def chain(key, counts):
            seen = counts, counts.sum(-1)

            def steps(state, number):
                return jax.lax.fori_loop(0, number, lambda _, now: step(now, seen), state)

            def keep(state, _):
                state = steps(state, 10)
                return state, constrain(*seen)(state.z)

            state = begin(start.z, 150, model_args=seen, rng_key=key)
            return jax.lax.scan(keep, steps(state, 150), length=KEPT)[1]

        keys = jax.vmap(jax.random.key)(np.array(list(simulations)))
        drawn = {name: np.asarray(x, float) for name, x in jax.jit(jax.vmap(chain))(keys, counts).items()}
    answers = []
    for i, (_, rows, rationality, seen) in enumerate(worlds):
        true = quantities(rows[None], np.array([rationality]), seen)
        answers.append((quantities(drawn["transition"][i], drawn["rationality"][i], seen) < true).sum(-1))
    return np.array(answers)


def ranks_by_weights(simulations, power):
    """The same ranks by weighted draws of the transitions alone, the likelihood of the choices to some power."""
    answers = []
    for i in simulations:
        rng, rows, rationality, counts = world_of_the_prior(i)
        drawn = rng.standard_gamma(1.0 + counts, (1000, 2, 2, 2))
        drawn /= drawn.sum(-1, keepdims=True)
        each = quantities(drawn, rng.gamma(3.0, size=1000), counts)
        weight = np.exp(power * (each[-1] - each[-1].max()))
        below = (each < quantities(rows[None], np.array([rationality]), counts)) @ (weight / weight.sum())
        answers.append(rng.binomial(KEPT, np.clip(below, 0.0, 1.0)))
    return np.array(answers)


def farthest(ranks):
    """The largest chi-squared of 5 bins of equal ranks, and which quantity has it."""
    bins = np.stack([np.bincount(each * 5 // (KEPT + 1), minlength=5) for each in ranks.T])
    expected = len(ranks) / 5
    each = ((bins - expected) ** 2 / expected).sum(-1)
    return float(each.max()), QUANTITIES[each.argmax()]


LIMIT = float(chi2.isf(1e-6 / len(QUANTITIES), 4))
"""False alarm 1e-6 over all quantities."""


@pytest.mark.slow
def test_ranks_are_uniform():
    """Simulation-based calibration of rows, rationality and the likelihood of the choices, 200 logs of 15 rows.

    The smallest fault that it must catch: choices that count twice, by the ranks of their likelihood (Modrak and others
    2023), which `test_ranks_by_weights` shows.
    """
    most, name = farthest(ranks_of(range(SIMULATIONS)))
    assert most < LIMIT, name


@pytest.mark.slow
def test_ranks_by_weights():
    """Weighted draws are calibrated too; twins that count the choices twice, or not at all, are caught."""
    assert farthest(ranks_by_weights(range(SIMULATIONS), 1.0))[0] < LIMIT
    for power in (0.0, 2.0):
        most, name = farthest(ranks_by_weights(range(SIMULATIONS), power))
        assert most > LIMIT and name == "likelihood", (power, most, name)


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
