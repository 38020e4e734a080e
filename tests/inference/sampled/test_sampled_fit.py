"""Transitions of probability zero: refused by name before a chain is run, and nothing that is merely improbable."""

# pyright: reportArgumentType=false, reportIndexIssue=false, reportCallIssue=false, reportOperatorIssue=false
# pyright: reportAttributeAccessIssue=false, reportOptionalMemberAccess=false, reportOptionalSubscript=false
import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

import bayes_mdp as bm
from bayes_mdp.inference.sampled.sampled_fit import BATCHES, PossibleOutcomes
from bayes_mdp.models import MDPSpec

KEY = jax.random.key(0)
NAMES = {"states": ("low", "mid", "high"), "actions": ("stay", "go")}
SPACE = bm.StateActionSpace(3, 2, **NAMES)
SHORT = bm.inference.NUTS(num_warmup=20, num_samples=20, num_chains=1)


def ladder(space):
    """One step up or down at most, both with unknown probability."""
    up = numpyro.sample("up", dist.Beta(2.0, 2.0))
    probs = jnp.array([[1 - up, up, 0.0], [(1 - up) ** 2, 1 - up**2 - (1 - up) ** 2, up**2], [0.0, 1 - up, up]])
    return MDPSpec(probs[:, None].repeat(2, 1), np.zeros(()))


def rare(space):
    """The way from low to high is open where the parameter exceeds .999."""
    up = numpyro.sample("up", dist.Uniform(0.0, 1.0))
    jump = jnp.where(up > 0.999, up / 2, 0.0)
    probs = jnp.stack([1 - up / 2 - jump, up / 2, jump])
    return MDPSpec(jnp.broadcast_to(probs, (3, 2, 3)), np.zeros(()))


GOOD = bm.Transitions([0, 1, 2, 1], [0, 1, 0, 0], None, [1, 2, 2, 0])
BAD = bm.Transitions([0, 1, 2, 0], [0, 1, 0, 1], None, [1, 2, 0, 2])


@pytest.mark.parametrize("method", [SHORT, bm.inference.SVI(num_steps=5), bm.inference.Laplace(num_steps=5)])
def test_the_first_impossible_row_is_named(method):
    with pytest.raises(
        ValueError, match=r"^data\[2\] \(state 'high', action 'stay', next 'low'\) has probability zero in"
    ):
        bm.infer(KEY, ladder, BAD, space=SPACE, method=method)


def test_counts_are_named_by_their_cell():
    with pytest.raises(ValueError, match=r"^data.transitions\[0, 1, 2\] \(state 'low', action 'go', next 'high'\) has"):
        bm.infer(KEY, ladder, bm.Counts.of(BAD, SPACE), space=SPACE, sampler=SHORT)


@pytest.mark.filterwarnings("ignore::bayes_mdp.inference.draws.chains.SamplingWarning")
def test_possible_data_are_sampled():
    posterior = bm.infer(KEY, ladder, GOOD, space=SPACE, sampler=SHORT)
    assert np.isfinite(posterior.mcmc.log_density).all()


@pytest.mark.filterwarnings("ignore::bayes_mdp.inference.draws.chains.SamplingWarning")
def test_who_starts_elsewhere_is_not_refused():
    """A heuristic, by draws of the prior: a kernel that starts where the data are possible goes its own way."""
    jump = bm.Transitions([0], [0], None, [2])
    with pytest.raises(ValueError, match=r"zero in each of 64 draws of the prior.* if rare parameters allow it"):
        bm.infer(KEY, rare, jump, space=SPACE, sampler=SHORT)
    start = numpyro.infer.init_to_value(values={"up": jnp.asarray(0.9995)})
    kernel = bm.inference.NUTS(20, 20, 1, kernel=lambda model: numpyro.infer.NUTS(model, init_strategy=start))
    posterior = bm.infer(KEY, rare, jump, space=SPACE, sampler=kernel)
    assert (np.asarray(posterior.sites["up"]) > 0.999).all()


class Rows:
    """Rows of a prior: outcome 2 of state 0, action 1 has probability zero in the first `zeros` batches."""

    def __init__(self, zeros, after=0.25):
        self.zeros, self.after, self.calls = zeros, after, 0

    def __call__(self, batch):
        assert batch == self.calls
        self.calls += 1
        rows = np.full((2, 3, 2, 3), 0.5)
        rows[:, 0, 1, 2] = 0.0
        if batch >= self.zeros:
            rows[1, 0, 1, 2] = self.after
        return rows


@pytest.mark.parametrize("after", [0.25, 1e-300, 5e-324, np.nan])
def test_draws_are_made_until_every_row_is_possible(after):
    """A tiny probability is none of zero; what is not a number is refused elsewhere."""
    rows = Rows(BATCHES - 1, after)
    outcomes = PossibleOutcomes(SPACE, rows)
    outcomes.check(GOOD)
    assert rows.calls == 1  # one batch where nothing looks impossible
    jump = bm.Transitions([0], [1], None, [2])
    outcomes.check(jump)
    assert rows.calls == BATCHES
    outcomes.check(jump)  # what was seen is remembered
    assert rows.calls == BATCHES


def test_after_so_many_batches_it_is_refused():
    rows = Rows(BATCHES)
    with pytest.raises(ValueError, match=rf"zero in each of {2 * BATCHES} draws"):
        PossibleOutcomes(SPACE, rows).check(bm.Transitions([1, 0], [0, 1], None, [0, 2]))
    assert rows.calls == BATCHES


def test_names_of_steps_ends_and_listed_states():
    def zeros(shape):
        return lambda batch: np.zeros((1, *shape))

    steps = bm.StateActionSpace(3, 2, horizon=2, ends=True, **NAMES)
    ending = bm.Transitions([0], [1], None, [0], [True], step=[1])
    with pytest.raises(ValueError, match=r"\(step 1, state 'low', action 'go', next 'end'\)"):
        PossibleOutcomes(steps, zeros((2, 3, 2, 4))).check(ending)
    listed = bm.StateActionSpace(3, 2, successors=np.tile([1, 2], (3, 2, 1)), **NAMES)
    with pytest.raises(ValueError, match="state 'low', action 'stay', next 'high'"):
        PossibleOutcomes(listed, zeros((3, 2, 2))).check(bm.Transitions([0], [0], None, [2]))
    with pytest.raises(ValueError, match="state"):  # what the space cannot hold
        PossibleOutcomes(SPACE, zeros((3, 2, 3))).check(bm.Transitions([9], [0], None, [2]))


@pytest.mark.filterwarnings("ignore::bayes_mdp.inference.draws.chains.SamplingWarning")
def test_an_improper_prior_has_no_draws_to_look_at():
    def improper(space):
        up = numpyro.sample("up", dist.ImproperUniform(dist.constraints.unit_interval, (), ()))
        probs = jnp.array([1 - up, up, 0.0])
        return MDPSpec(jnp.broadcast_to(probs, (3, 2, 3)), np.zeros(()))

    posterior = bm.infer(KEY, improper, bm.Transitions([0, 1], [0, 0], None, [0, 1]), space=SPACE, sampler=SHORT)
    assert posterior.method == "nuts"
