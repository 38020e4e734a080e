"""Exact mixtures over the values of discrete sites: weights, evidence, updates, files, ArviZ, runs."""

# pyright: reportArgumentType=false, reportIndexIssue=false, reportCallIssue=false, reportOperatorIssue=false
# pyright: reportAttributeAccessIssue=false
import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pandas as pd
import pytest
from scipy.special import betaln

import bayes_mdp as bm
from bayes_mdp.inference.mixtures import Mixture
from bayes_mdp.inference.route import fit_for
from bayes_mdp.models import MDPSpec
from bayes_mdp.models.priors import ClosedForms, closed_form_of, ready
from tests.envs.logs.random_logs import fold_log
from tests.inference.branching_programs import DATA, SPACE, Branching

KEY = jax.random.key(0)
PROGRAM = Branching(("coin",), "is one", "where", "rows")


def posterior_of(prior=PROGRAM, data=DATA, space=SPACE) -> Mixture:
    posterior = bm.infer(KEY, prior, data, space=space)
    assert isinstance(posterior, Mixture) and posterior.method == "mixture"
    return posterior


def test_weights_and_evidence_are_bayes_rule():
    posterior, truth = posterior_of(), PROGRAM.truth()
    assert float(posterior.weights @ posterior.hyperparameters["hidden0"]) == pytest.approx(truth["signal"], abs=1e-6)
    assert posterior.log_evidence == pytest.approx(truth["evidence"], rel=1e-9)
    before = posterior_of(data=None)
    np.testing.assert_allclose(before.weights, [0.7, 0.3], rtol=1e-6)
    assert before.log_evidence == pytest.approx(0.0, abs=1e-9)


def test_one_at_a_time_is_all_at_once():
    """By `update`, by counts, and by the compiled fit that many data sets share."""
    once, before = posterior_of(), posterior_of(data=None)
    found = [before.update(DATA), posterior_of(data=bm.Counts.of(DATA, SPACE))]
    fit = fit_for(PROGRAM, SPACE)
    found.append(jax.jit(lambda data: fit(KEY, fit.summarise(data)))(DATA))
    for other in found:
        np.testing.assert_allclose(other.weights, once.weights, rtol=2e-5)
        np.testing.assert_allclose(other.mean_mdp().transition_probs, once.mean_mdp().transition_probs, rtol=1e-5)
        np.testing.assert_allclose(float(other.log_evidence), once.log_evidence, rtol=1e-5)


@pytest.mark.parametrize("varied", ["rows alone", "rows and rewards", "which rows are possible"])
def test_data_that_are_counted_once_are_those_of_each_component(varied):
    """Bit for bit the posteriors that each closed form has by itself."""
    possible = np.array([[1.0, 1.0, 1.0], [1.0, 1.0, 0.0 if varied == "which rows are possible" else 1.0]])
    loc = (0.0, 2.0) if varied == "rows and rewards" else (0.0, 0.0)
    stays = bm.Transitions([0] * 5, [0] * 5, [0.5, 1.0, -2.0, 0.0, 0.1], [0] * 5)
    each = [
        bm.models.dirichlet_normal_gamma(concentration=c * support, loc=mean)
        for c, support, mean in zip((0.1, 2.0), possible, loc, strict=True)
    ]
    space = bm.StateActionSpace(3, 1)
    program = functools.partial(known_or_not)  # its own, which the closed forms stay with
    together = ready(program, ClosedForms("which", tuple(closed_form_of(one) for one in each)))
    mixed = posterior_of(together, stays, space)
    alone = [bm.infer(KEY, one, stays, space=space) for one in each]
    for k, one in enumerate(alone):
        rows, cells = mixed.component(k).transition_probs, mixed.component(k).reward_cells
        np.testing.assert_array_equal(rows.concentration, one.transition_probs.concentration)
        for mine, theirs in zip(jax.tree.leaves(cells), jax.tree.leaves(one.reward_cells), strict=True):
            np.testing.assert_array_equal(mine, theirs)
    evidence = np.array([one.log_evidence for one in alone])
    np.testing.assert_array_equal(mixed.log_weights, (evidence - np.log(2)) - np.logaddexp.reduce(evidence - np.log(2)))


def test_a_first_value_of_weight_zero_hides_nothing():
    """All values exclude a next state, and differ in concentrations alone: the second alone has weight."""
    each = [bm.models.dirichlet_normal_gamma(concentration=c * np.array([1.0, 1.0, 0.0])) for c in (0.1, 2.0)]
    space = bm.StateActionSpace(3, 1)
    program = functools.partial(known_or_not)
    together = ready(program, ClosedForms("which", tuple(closed_form_of(one) for one in each)))
    before = posterior_of(together, None, space)
    weights = np.array([-np.inf, 0.0])
    before = dataclasses.replace(before, log_weights=weights, log_prior=weights)
    after = before.update(bm.Transitions([0, 1], [0, 0], [0.5, 1.0], [1, 1]))
    assert after.visit_counts().tolist() == [[1.0], [1.0], [0.0]] and after.log_weights.tolist() == [-np.inf, 0.0]
    with pytest.raises(ValueError, match="probability"):
        before.update(bm.Transitions([0], [0], [0.5], [2]))


def folded(part) -> bm.mdp.FoldedLog:
    """As `fold_log` reads it from a table."""
    columns = {"s": part.state, "a": part.action, "r": part.reward, "t": part.next_state}
    frame = pd.DataFrame({key: np.asarray(x) for key, x in columns.items()})
    return fold_log(frame, state="s", action="a", reward="r", next_state="t", states=range(3), actions=range(2))


def three_states(seed: int, number: int) -> bm.Transitions:
    rng = np.random.default_rng(seed)
    state, action, reached = rng.integers(3, size=number), rng.integers(2, size=number), rng.integers(3, size=number)
    return bm.Transitions(state, action, rng.normal(size=number) + state, reached)


@pytest.mark.parametrize("by", ["transitions", "counts", "folded logs"])
def test_what_is_learnt_later_is_what_is_learnt_at_once(by):
    """The default prior of a first log, after a second one; a folded log is refused the second time."""
    first, second = three_states(0, 60), three_states(1, 25)
    space = bm.StateActionSpace(3, 2)
    prior = bm.models.default_prior(folded(first), space=space)
    both = jax.tree.map(lambda *x: np.concatenate(x), first, second)
    whole = posterior_of(prior, both, space)
    form = {"transitions": lambda x: x, "counts": lambda x: bm.Counts.of(x, space), "folded logs": folded}[by]
    before = posterior_of(prior, form(first), space)
    after = before.update(form(second))
    tolerance = 1e-6 if by == "counts" else 1e-9  # `Counts.of` sums in single precision
    assert after.log_evidence == pytest.approx(whole.log_evidence, rel=tolerance)
    np.testing.assert_allclose(after.weights, whole.weights, rtol=0, atol=10 * tolerance)
    for mine, theirs in zip(jax.tree.leaves(after.components), jax.tree.leaves(whole.components), strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=tolerance, atol=tolerance)
    if by == "folded logs":
        assert before.sources is not None and len(after.sources) == 2
        with pytest.raises(ValueError, match="was learnt from already"):
            after.update(form(second))
        twice = after.update(form(second), allow_duplicates=True)
        assert float(twice.visit_counts().sum()) == 60 + 25 + 25


def test_earlier_data_count_less_where_they_are_discounted():
    """Weights are those of the same counts times the factor; without the weights before data it is refused."""
    first, second, space = three_states(0, 60), three_states(1, 25), bm.StateActionSpace(3, 2)
    prior, counts = bm.models.default_prior(folded(first), space=space), bm.Counts.of(first, space)
    posterior = posterior_of(prior, counts, space).update(second, discount_data=0.5)
    expected = posterior_of(prior, None, space).update(counts, 0.5).update(second)
    np.testing.assert_allclose(posterior.log_weights, expected.log_weights, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(posterior.visit_counts(), expected.visit_counts(), rtol=1e-12)
    unknown = bm.inference.mixture([posterior.component(0), posterior.component(1)])
    with pytest.raises(ValueError, match="the mixture has no log_prior"):
        unknown.discount_data(0.5)


def known_or_not(space):
    """A regime in which state 0 never leaves, or a Dirichlet row."""
    stuck = numpyro.sample("stuck", dist.Bernoulli(0.25))
    with space.plates():
        rows = numpyro.sample("transition", dist.Dirichlet(jnp.ones(2)))
        paid = numpyro.sample("paid", dist.Beta(1.0, 1.0))
    return MDPSpec(jnp.where(stuck, jnp.eye(2)[:, None, :], rows), dist.Bernoulli(paid))


def test_a_value_that_the_data_rule_out_has_weight_zero():
    stays = bm.Transitions([0] * 5, [0] * 5, [0.0] * 5, [0] * 5)
    evidence = np.exp(betaln(6, 1) - betaln(1, 1))
    expected = 0.25 / (0.25 + 0.75 * evidence)
    assert float(posterior_of(known_or_not, stays).weights[1]) == pytest.approx(expected, rel=1e-6)
    leaves = bm.Transitions([0] * 5, [0] * 5, [0.0] * 5, [0, 0, 1, 0, 0])
    assert np.asarray(posterior_of(known_or_not, leaves).weights).tolist() == [1.0, 0.0]
    after = posterior_of(known_or_not, stays).update(leaves)
    assert np.asarray(after.weights).tolist() == [1.0, 0.0]


def test_data_that_no_value_can_hold_are_refused():
    def never(space):
        stuck = numpyro.sample("stuck", dist.Bernoulli(0.25))
        row = jnp.where(stuck, jnp.eye(2), 1.0 * jnp.eye(2))[:, None, :]
        with space.plates():
            paid = numpyro.sample("paid", dist.Beta(1.0 + stuck, 1.0))
        return MDPSpec(row, dist.Bernoulli(paid))

    with pytest.raises(ValueError, match="outcome"):
        bm.infer(KEY, never, bm.Transitions([0], [0], [0.0], [1]), space=SPACE)


def several(space):
    """A kind for each state, a coin whose probability the first kind decides, and a factor on the coin."""
    with numpyro.plate("states", 2):
        kind = numpyro.sample("kind", dist.Categorical(jnp.array([0.5, 0.3, 0.2])))
    coin = numpyro.sample("coin", dist.Bernoulli(jnp.where(kind[0] == 2, 0.9, 0.1)))
    numpyro.factor("taste", jnp.where(coin == 1, jnp.log(2.0), 0.0))
    with space.plates():
        rows = numpyro.sample("transition", dist.Dirichlet(1.0 + kind[:, None, None] * jnp.ones((2, 1, 2))))
        paid = numpyro.sample("paid", dist.Beta(1.0, jnp.where(coin == 1, 5.0, 1.0)))
    return MDPSpec(rows, dist.Bernoulli(paid))


def test_several_sites_and_a_factor():
    """Against sums by hand over the 18 joint values.

    The factor is the program's own: the evidence is that of the data under the prior it makes, whose weights sum to
    one (as the program states them, they sum to .26 x 2 + .74).
    """
    data = bm.Transitions([0, 0, 0, 1], [0] * 4, [1.0, 0.0, 0.0, 1.0], [0, 1, 0, 0])
    posterior = posterior_of(several, data)
    assert posterior.num_components == 18
    weight, prior_total = {}, 0.0
    for first in range(3):
        for second in range(3):
            for coin in range(2):
                prior = (0.5, 0.3, 0.2)[first] * (0.5, 0.3, 0.2)[second]
                odds = 0.9 if first == 2 else 0.1
                prior *= 2.0 * odds if coin else 1.0 - odds
                prior_total += prior
                rows = betaln(1 + first + 2, 1 + first + 1) - betaln(1 + first, 1 + first)
                rows += betaln(1 + second + 1, 1 + second) - betaln(1 + second, 1 + second)
                b = 5.0 if coin else 1.0
                rewards = betaln(2, b + 2) - betaln(1, b) + betaln(2, b) - betaln(1, b)
                weight[first, second, coin] = prior * np.exp(rows + rewards)
    total = sum(weight.values())
    assert prior_total == pytest.approx(1.26)
    assert posterior.log_evidence == pytest.approx(np.log(total / prior_total), rel=1e-9)
    expected = sum(w for (_, _, coin), w in weight.items() if coin) / total
    assert float(posterior.weights @ posterior.hyperparameters["coin"]) == pytest.approx(expected, rel=1e-5)


def test_it_is_saved_shown_and_run(tmp_path):
    posterior = posterior_of(known_or_not, bm.Transitions([0], [0], [1.0], [0]))
    bm.save(posterior, tmp_path / "p.bmdp")
    again = bm.load(tmp_path / "p.bmdp")
    assert isinstance(again, Mixture) and again.log_evidence == posterior.log_evidence
    np.testing.assert_array_equal(again.hyperparameters["stuck"], posterior.hyperparameters["stuck"])
    shown = " ".join(str(posterior).split())
    assert "exact, over the values of 'stuck'" in shown and "stuck 0.4 " in shown
    tree = bm.to_arviz(posterior, key=KEY, num_draws=500)
    drawn = tree["posterior"]["stuck"].to_numpy()
    assert abs(drawn.mean() - 0.4) < 6 * np.sqrt(0.24 / 500)  # false alarm 2e-9
    env = bm.models.random_environment(KEY, bm.models.dirichlet_bernoulli(), SPACE)
    result = bm.run(
        bm.agents.PSRL(), env, prior=known_or_not, objective=bm.Discounted(0.9), num_steps=10, num_seeds=2, key=KEY
    )
    assert result.sizes["seed"] == 2
