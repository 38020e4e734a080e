"""A law looked up in one cell is the law of the table in that cell, whatever its family."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

from bayes_mdp.models.reward_laws import law_at, tabulate, unwrap

S, A, O = 3, 2, 4  # noqa: E741
LOC = np.linspace(-1.0, 2.0, S)[:, None]
SCALE = np.array([0.5, 2.0])
CELLS = np.arange(1.0, 1 + S * A).reshape(S, A) / 7

LAWS = {
    "normal": lambda: dist.Normal(LOC, SCALE),
    "expanded": lambda: dist.Normal(LOC, 1.5).expand((S, A)),
    "bernoulli": lambda: dist.Bernoulli(logits=jnp.asarray(LOC)),
    "categorical": lambda: dist.Categorical(probs=jnp.asarray(np.stack([CELLS, 1 - CELLS], -1))),
    "uniform": lambda: dist.Uniform(LOC - 5, 5 + CELLS),
    "transformed": lambda: dist.TransformedDistribution(
        dist.Normal(0, SCALE), dist.transforms.AffineTransform(LOC, CELLS)
    ),
    "truncated": lambda: dist.TruncatedNormal(LOC, SCALE, low=-4.0, high=LOC + 9),
    "zero_inflated": lambda: dist.ZeroInflatedPoisson(jnp.asarray(CELLS * 0.5), jnp.asarray(SCALE)),
    "masked": lambda: dist.Normal(LOC, SCALE).mask(np.array([True, False])),
    "mixture": lambda: dist.MixtureSameFamily(
        dist.Categorical(probs=jnp.array([0.3, 0.7])), dist.Normal(LOC[..., None] + jnp.array([0.0, 1.0]), 1.0)
    ),
    "mixture_of_expanded": lambda: dist.MixtureSameFamily(
        dist.Categorical(probs=jnp.asarray(np.stack([CELLS, 1 - CELLS], -1))), dist.Normal(0.0, 1.0).expand((2,))
    ),
    "general_mixture": lambda: dist.MixtureGeneral(
        dist.Categorical(probs=jnp.array([0.3, 0.7])), [dist.Normal(LOC, SCALE), dist.StudentT(3.0, LOC, SCALE)]
    ),
    "delta": lambda: dist.Delta(np.where(CELLS > 0.5, 1.0, 0.0)),
}


@pytest.mark.few(5)
@pytest.mark.parametrize("name", LAWS)
def test_a_cell_has_the_law_of_its_row_of_the_table(name):
    law = LAWS[name]()
    value = np.ones((S, A), int if law.is_discrete else float)  # 1 is possible under all
    state, action = np.array([2, 0, 2, 1]), np.array([0, 1, 1, 0])
    table = tabulate(law, (S, A))
    rows = law_at(table, (state, action))
    assert (table.batch_shape, rows.batch_shape, rows.event_shape) == ((S, A), (4,), ())
    expected = law.expand((S, A)).log_prob(value)
    np.testing.assert_allclose(rows.log_prob(value[state, action]), expected[state, action], rtol=1e-5)
    one = law_at(table, (jnp.int32(2), 1))
    assert one.batch_shape == ()
    np.testing.assert_allclose(one.log_prob(value[2, 1]), expected[2, 1], rtol=1e-5)


def test_a_table_of_numpy_arrays_takes_traced_indices():
    """As a known law has that a compiled function closes over."""
    table = jax.tree.map(np.asarray, tabulate(dist.Normal(LOC, SCALE), (S, A)))
    index = np.array([2, 0]), np.array([0, 1])
    found = jax.jit(lambda index: law_at(table, index).log_prob(1.0))(index)
    np.testing.assert_allclose(found, table.log_prob(1.0)[index], rtol=1e-6)


@pytest.mark.parametrize(
    "make",
    [
        lambda: dist.Normal(LOC[..., None], jnp.ones(O)).expand((S, A, O)).to_event(1),
        lambda: dist.Normal(jnp.zeros(O), jnp.arange(1.0, 5.0)).to_event(1).expand((S, A)),
        lambda: dist.Normal(0.0, 1.0).expand((O,)).to_event(1).expand((S, A)),
    ],
)
def test_events_over_outcomes_become_cells(make):
    law = make()
    table = tabulate(law, (S, A, O))
    value = np.linspace(-1, 1, S * A * O).reshape(S, A, O)
    np.testing.assert_allclose(jnp.sum(table.log_prob(value), -1), law.log_prob(value), rtol=1e-5)
    assert type(unwrap(law)) is dist.Normal


def test_draws_of_one_cell_follow_its_mixture(key):
    """Frequency of the lower component of 20,000 draws within 5.5 standard errors (false alarms < 1e-7)."""
    components = dist.Normal(jnp.array([-50.0, 50.0]), 1.0)
    law = dist.MixtureSameFamily(dist.Categorical(probs=jnp.asarray(np.stack([CELLS, 1 - CELLS], -1))), components)
    table = tabulate(law, (S, A))
    draws = jax.jit(lambda key: law_at(table, (1, 0)).sample(key, (20_000,)))(key)
    share, p = float((draws < 0).mean()), CELLS[1, 0]
    assert abs(share - p) < 5.5 * np.sqrt(p * (1 - p) / 20_000)
