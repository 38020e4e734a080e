"""Gibbs sampling of pooled rows: the whole sampler by simulation-based calibration, its parts by other routes."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from jaxtyping import Float
from numpyro import handlers
from scipy.stats import chi2

import bayes_mdp as bm
from bayes_mdp.inference import pooled_posterior
from bayes_mdp.inference.pooled_posterior import PairCounts, _pair_counts, draw_chains
from bayes_mdp.models.partial_pooling import PartialPooling, pooled_outcomes, state_rows
from tests.inference.hospitals import N_ACTIONS, N_STATES, hospital

pytestmark = pytest.mark.numerics

PER_PAIR = 12
USAGE = np.array([[1.0, 3.0], [0.3, 1.0], [2.0, 0.5], [1.0, 1.0], [1.0, 1.0]])


def prior() -> PartialPooling:
    return bm.models.partial_pooling(
        bm.models.dirichlet_bernoulli,
        usage=USAGE,
        concentration=dist.LogNormal(1.0, 1.0),
        state_concentration=dist.LogNormal(1.0, 1.0),
    )


def simulated(number: int, key: jax.Array) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Sites of the program and counts [number S A O] drawn from it."""
    space, program = hospital(), prior()

    def one(key: jax.Array) -> dict[str, jax.Array]:
        with handlers.block(), handlers.trace() as trace, handlers.seed(rng_seed=key):
            spec = program(space)
        sites = {name: site["value"] for name, site in trace.items() if site["type"] == "sample"}
        return {**sites, "probs": jnp.broadcast_to(spec.transition_probs, (N_STATES, N_ACTIONS, N_STATES + 1))}

    drawn = jax.tree.map(np.asarray, jax.jit(jax.vmap(one))(jax.random.split(key, number)))
    rng = np.random.default_rng(np.asarray(jax.random.key_data(key)))
    probs = drawn.pop("probs").astype(float)
    return drawn, rng.multinomial(PER_PAIR, probs / probs.sum(-1, keepdims=True))


def ranks(number: int, key: jax.Array, draws: int = 19, thin: int = 10) -> dict[str, np.ndarray]:
    """Rank of every true number among draws of its posterior: 0 to `draws`."""
    program, space = prior(), hospital()
    groups = pooled_outcomes(space)
    sites, counts = simulated(number, key)
    found: dict[str, list[int]] = {}
    for i in range(number):
        data = _pair_counts(groups, space, counts[i].astype(float), program.usage_of(space, None))
        rng = np.random.default_rng([i, *np.asarray(jax.random.key_data(key)).tolist()])
        drawn = draw_chains([rng], program, groups, data, N_STATES + 1, 60, draws * thin)
        levels = {name: sites[f"state_{name}"][i] for name in groups.levels}
        truth = np.asarray(state_rows(groups, levels, N_STATES, N_STATES + 1))[groups.open]
        values = {name: (sites[name][i], x[0, ::thin]) for name, x in drawn.scalars.items()}
        values |= {f"m{s}{o}": (truth[s, o], drawn.rows[0, ::thin, s, o]) for s, o in ((0, 0), (0, 1), (1, 3), (2, 4))}
        for name, (true, some) in values.items():
            found.setdefault(name, []).append(int((some < true).sum()))
    return {name: np.array(each) for name, each in found.items()}


def p_value(each: np.ndarray, bins: int = 10) -> float:
    counts = np.bincount(each * bins // 20, minlength=bins)
    expected = len(each) / bins
    return float(chi2.sf(((counts - expected) ** 2 / expected).sum(), bins - 1))


@pytest.mark.slow
def test_draws_are_those_of_the_posterior(key):
    """Ten numbers, Bonferroni: false alarms below 1e-6. 400 simulations catch a shift of a fifth of a posterior sd."""
    for name, each in ranks(400, key).items():
        assert p_value(each) > 1e-7, name


@pytest.mark.slow
def test_a_broken_sampler_is_caught(key, monkeypatch):
    """The broken twin counts transitions in place of tables: states then look more certain than they are."""
    monkeypatch.setattr(pooled_posterior, "table_numbers", lambda rng, counts, concentration: counts)
    assert min(p_value(each) for each in ranks(200, key).values()) < 1e-7


@pytest.mark.slow
def test_few_draws_of_the_posterior(key):
    """As the slow test, 16 simulations: it catches what is grossly wrong."""
    for name, each in ranks(16, key, thin=2).items():
        assert p_value(each, 4) > 1e-7, name


def test_rows_of_states_are_those_of_the_program(rng=np.random.default_rng(0)):
    space, program = hospital(), prior()
    groups = pooled_outcomes(space)
    data = PairCounts(np.array([0]), np.zeros(1), np.zeros(1), *(np.zeros(0, np.int64),) * 3)
    chain = pooled_posterior._Chain(rng, program, groups, data, N_STATES + 1)
    levels = {name: level.rows for name, level in chain.levels.items()}
    expected: Float[np.ndarray, "S O"] = np.asarray(state_rows(groups, levels, N_STATES, N_STATES + 1))
    np.testing.assert_allclose(chain.rows, expected[groups.open], rtol=1e-5)
    np.testing.assert_allclose(chain.rows.sum(-1), 1.0, rtol=1e-12)


def test_every_outcome_is_counted_once_at_each_level_that_it_passes(rng=np.random.default_rng(1)):
    """To leave or not, where to; to stay or to move, where to."""
    space = hospital()
    groups = pooled_outcomes(space)
    data = PairCounts(np.array([0]), np.zeros(1), np.zeros(1), *(np.zeros(0, np.int64),) * 3)
    chain = pooled_posterior._Chain(rng, prior(), groups, data, N_STATES + 1)
    told: dict[str, np.ndarray] = {}
    for name, level in chain.levels.items():
        level.sweep = lambda seen, name=name: told.update({name: seen.copy()})
    seen = rng.integers(5, size=(len(groups.open), N_STATES + 1))
    chain._draw_levels(seen)
    left, among = seen[:, groups.closed], seen[:, groups.open]
    stayed = np.diag(among)
    np.testing.assert_array_equal(told["end"], np.stack([left.sum(1), among.sum(1)], 1))
    np.testing.assert_array_equal(told["stay"], np.stack([stayed, among.sum(1) - stayed], 1))
    np.testing.assert_array_equal(told["move"], among - np.diag(stayed))
    if "which" in told:
        np.testing.assert_array_equal(told["which"], left)
