# pyright: reportArgumentType=false
"""Without data: never tried under an empty prior, known by the prior alone under an informative one."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bayes_mdp.decisions import VerdictOptions
from bayes_mdp.decisions.policy_comparison import compare_policies
from bayes_mdp.decisions.value_basis import Unvisited, ValueBasis, value_bases
from bayes_mdp.inference import CollapsedPosterior, SampledPosterior, mixture
from bayes_mdp.inference.conjugate.conjugate_posterior import conjugate_posterior
from bayes_mdp.inference.conjugate.dirichlet_rows import dirichlet_rows
from bayes_mdp.inference.conjugate.reward_cells import reward_cells
from bayes_mdp.inference.conjugate.rewards import known_rewards
from bayes_mdp.inference.families.bernoulli import BetaBelief
from bayes_mdp.inference.families.binomial import BetaBinomialBelief
from bayes_mdp.inference.families.categorical import DirichletCategoricalBelief
from bayes_mdp.inference.families.exponential import GammaExponentialBelief
from bayes_mdp.inference.families.geometric import BetaGeometricBelief
from bayes_mdp.inference.families.normal import NormalBelief, NormalGammaBelief
from bayes_mdp.inference.families.poisson import GammaBelief
from bayes_mdp.inference.pooled_posterior import PooledPosterior
from bayes_mdp.mdp import Discounted, StateActionSpace, Transitions
from bayes_mdp.mdp.protocols import CanCountPrior, PriorWeight, describe_weight
from bayes_mdp.numerics.array_forms import to_float64
from tests.text import unwrapped

pytestmark = pytest.mark.numerics

KEY = jax.random.key(0)
LITERATURE = np.array([1251.0, 350.0, 116.0, 17.0])  # 1,734 patients
SPACE = StateActionSpace(4, 2, states=("a", "b", "c", "d"), actions=("go", "stay"))
AIM = Discounted(0.5)
UNIFORM = np.full((4, 2), 0.5)


def belief(rows, rewards=None, data=((), (), ())) -> Any:
    """Four states, two actions; `data`: states, actions, next states."""
    known = known_rewards(np.zeros((4, 2))) if rewards is None else rewards
    posterior = conjugate_posterior(dirichlet_rows(np.reshape(rows, (8, 4)), (4, 2, 4)), known, SPACE)
    return posterior.update(Transitions(data[0], data[1], None, data[2])) if len(data[0]) else posterior


def basis_of(posterior, policy=UNIFORM) -> ValueBasis:
    with jax.enable_x64(True):
        wide = jnp.asarray(policy[None], jnp.float64)
        (found,) = value_bases(to_float64(posterior), wide, to_float64(AIM), np.full(4, 0.25))
    assert found is not None
    return found


MIXED = np.ones((4, 2, 4))
MIXED[0, 0] = MIXED[1, 0] = LITERATURE
MIXED[2, 0] = 0.25
MIXED[2, 1] = [2.0, 0.0, 2.5, 0.0]  # two outcomes are possible, and it weighs more than two transitions
MIXED[3, 0] = [2.0, 0.0, 0.0, 0.0]  # certain
SEEN = ([0, 0, 1], [1, 1, 0], [0, 1, 2])


def test_mixed_rows():
    """(b, go) has literature and data, (a, stay) data under a flat prior; (d, go) is known."""
    posterior = belief(MIXED, data=SEEN)
    weight, is_empty = posterior.prior_weight()
    np.testing.assert_allclose(weight, [[1734, 4], [1734, 4], [1, 4.5], [np.inf, 4]], rtol=1e-6)
    np.testing.assert_array_equal(is_empty, [[False, True], [False, True], [True, False], [False, True]])
    found = basis_of(posterior).unvisited
    assert set(found.pairs) == {("b", "stay"), ("c", "go"), ("d", "stay")}
    assert set(found.by_prior) == {("a", "go"), ("c", "stay")}
    assert dict(zip(found.pairs, found.weight, strict=True))["c", "go"] == pytest.approx(1.0)
    assert dict(zip(found.by_prior, found.by_prior_weight, strict=True))["a", "go"] == pytest.approx(1734)
    assert set(found.states) == {"c", "d"}, "something in them was never tried"
    text = str(found)
    assert (
        f"{found.total:.2g} of its time in pairs never tried, under a prior that weighs 1 to 4 transitions each" in text
    )
    assert (
        f"{found.by_prior_share.sum():.2g} of its time in pairs known by the prior alone (weight of 4.5 to 1,734"
        in text
    )


@pytest.mark.parametrize("concentration", [1.0, 0.5, 0.25])
def test_flat_priors_still_warn(concentration):
    found = basis_of(belief(np.full((4, 2, 4), concentration)))
    assert len(found.unvisited.pairs) == 8 and not found.unvisited.by_prior and len(found.unvisited.states) == 4
    weight = describe_weight(np.array([4 * concentration]))
    assert f"1 of its time in pairs never tried, under a prior that weighs {weight} each: " in str(found.unvisited)
    assert found.informative == 0.0 and found.prior_share == pytest.approx(1.0)
    assert found.prior_kind.startswith("all of it from priors that weigh at most one transition")


def test_literature_does_not_warn_and_its_share_is_the_priors():
    nothing = basis_of(belief(np.tile(LITERATURE, (4, 2, 1))))
    assert nothing.unvisited.pairs == nothing.unvisited.states == () and nothing.unvisited.total == 0.0
    assert str(nothing.unvisited).startswith(
        "1 of its time in pairs known by the prior alone (weight of 1,734 transitions): "
    )
    assert nothing.prior_share == pytest.approx(1.0) and nothing.informative == pytest.approx(1.0)
    # With data of one pair: it rests on both.
    some = basis_of(belief(np.tile(LITERATURE, (4, 2, 1)), data=([0] * 600, [0] * 600, [1] * 600)))
    assert ("a", "go") not in some.unvisited.by_prior and len(some.unvisited.by_prior) == 7
    assert some.prior_share is not None and 1734 / 2334 < some.prior_share < 1.0
    assert some.informative == pytest.approx(some.prior_share)
    assert "of it informative)" in str(some) and some.prior_kind.startswith("all of it from informative priors")


def test_the_share_is_split_by_kind():
    found = basis_of(belief(MIXED, data=SEEN))
    assert found.prior_share is not None and found.informative is not None
    assert 0.1 < found.informative < found.prior_share - 0.1
    rest = found.prior_share - found.informative
    assert found.prior_kind.startswith(f"{rest:.2g} of it from priors that weigh at most one transition")
    assert found.prior_kind.endswith(f"{found.informative:.2g} from informative ones")


@pytest.mark.parametrize(
    ("prior", "weight", "is_empty"),
    [
        (BetaBelief(1.0, 1.0), 2, True),
        (BetaBelief(30.0, 10.0), 40, False),
        (NormalGammaBelief(0.0, 1.0, 2.0, 1.0), 1, True),
        (NormalGammaBelief(0.0, 50.0, 2.0, 1.0), 50, False),
        (NormalGammaBelief(0.0, 50.0, 0.7, 1.0), np.nan, True),  # its mean has no variance
        (NormalBelief(0.0, 1.0, 10.0), 100, False),
        (NormalBelief(0.0, 10.0, 1.0), 0.01, True),
        (GammaBelief(2.0, 30.0), 30, False),
        (GammaExponentialBelief(11.0, 3.0), 10, False),
        (BetaBinomialBelief(15.0, 5.0, 10.0), 2, False),
        (BetaBinomialBelief(1.0, 1.0, 10.0), 0.2, True),
        (BetaGeometricBelief(5.0, 9.0), 4, False),
        (DirichletCategoricalBelief(np.ones(3)), 3, True),
        (DirichletCategoricalBelief(np.array([9.0, 2.0, 1.0])), 12, False),
    ],
)
def test_what_a_prior_of_rewards_weighs(prior, weight, is_empty):
    """The mean after n rewards is (w m + n average) / (w + n): w is the weight. Rows by literature."""
    wide = jax.tree.map(lambda x: np.broadcast_to(x, (8, *np.shape(x))), prior)
    posterior = belief(np.tile(LITERATURE, (4, 2, 1)), reward_cells(wide, (4, 2)))
    found = posterior.prior_weight()
    np.testing.assert_allclose(found.transitions, np.full((4, 2), weight), rtol=1e-5)
    assert np.asarray(found.is_empty).tolist() == [[is_empty] * 2] * 4
    # The mean after one more reward, by the family itself.
    if np.isfinite(weight):
        cells = reward_cells(wide, (4, 2))
        after = cells.observe((np.zeros(1, int), np.zeros(1, int)), np.zeros(1, int), np.ones(1), np.ones(1))[0]
        before = float(np.asarray(cells.mean())[0, 0])
        assert float(np.asarray(after.mean())[0, 0]) == pytest.approx((weight * before + 1) / (weight + 1), rel=1e-5)


def test_of_rewards_by_outcome_the_least_known_counts():
    paid = np.full((4, 2, 4), 40.0)
    paid[0, 0, 3] = paid[2, 1, 1] = 0.5  # the second outcome is impossible there
    rows = np.tile(LITERATURE, (4, 2, 1))
    rows[2, 1] = [900.0, 0.0, 30.0, 0.0]
    rewards = reward_cells(BetaBelief(paid.ravel(), paid.ravel()), (4, 2, 4), by_outcome=True)
    weight, is_empty = belief(rows, rewards).prior_weight()
    assert np.argwhere(np.asarray(is_empty)).tolist() == [[0, 0]]
    np.testing.assert_allclose(weight, [[1, 80], [80, 80], [80, 80], [80, 80]], rtol=1e-5)


def test_of_a_mixture_the_component_that_weighs_least_counts():
    parts = [belief(np.tile(LITERATURE * scale, (4, 2, 1))) for scale in (1.0, 0.001)]
    both = mixture(parts, weights=[0.9, 0.1])
    np.testing.assert_allclose(both.prior_weight().transitions, np.full((4, 2), 1.734), rtol=1e-5)
    assert np.asarray(both.prior_weight().is_empty).all()
    assert not np.asarray(mixture(parts[:1], weights=[1.0]).prior_weight().is_empty).any()


def test_where_the_weight_is_not_known_it_is_as_before():
    assert not any(issubclass(kind, CanCountPrior) for kind in (SampledPosterior, CollapsedPosterior, PooledPosterior))
    visits, names = np.array([[0.0, 2.0]]), (("a",), ("go", "stay"))
    plain = Unvisited.of(visits, np.array([[0.25, 0.75]]), names)
    assert str(plain) == "0.25 of its time in pairs never tried: a go (0.25)" and not plain.by_prior
    unknown = PriorWeight(jnp.full((1, 2), jnp.nan), jnp.ones((1, 2), bool))
    assert str(Unvisited.of(visits, np.array([[0.25, 0.75]]), names, prior=unknown)) == str(plain)


def test_of_a_prior_whose_weight_is_not_known_no_kind_is_named():
    rewards = reward_cells(NormalGammaBelief(*(np.full(8, x) for x in (0.0, 50.0, 0.7, 1.0))), (4, 2))
    found = basis_of(belief(np.tile(LITERATURE, (4, 2, 1)), rewards))
    assert found.informative is None and found.prior_kind == "" and "informative" not in str(found)
    assert str(found.unvisited).startswith("1 of its time in pairs never tried: ")


def test_weights_in_words():
    assert describe_weight(np.array([1.0, 1.0])) == "1 transition"
    assert describe_weight(np.array([0.25, 4.0])) == "0.25 to 4 transitions"
    assert describe_weight(np.array([1734.0])) == "1,734 transitions"
    assert describe_weight(np.zeros(0)) == describe_weight(np.array([1.0, np.nan])) == ""


def test_a_comparison_and_a_summary_say_which_kind_it_is():
    policies = {"go": np.zeros(4, int), "stay": np.ones(4, int)}
    rows = np.ones((4, 2, 4))
    rows[:, 0] = LITERATURE
    posterior = belief(rows, known_rewards(np.tile([1.0, 0.0], (4, 1))), ([0], [0], [0]))
    comparison = compare_policies(KEY, posterior, policies, AIM, num_draws=8, options=VerdictOptions(held_out=True))
    sentences = [part for part in comparison.layout().parts if isinstance(part, str)]
    lines = {name: next(x for x in sentences if f"{name}: data: " in x) for name in policies}
    assert "known by the prior alone (weight of 1,734 transitions)" in lines["go"]
    assert "pairs never tried, under a prior that weighs 4 transitions each" in lines["stay"]
    assert "never tried" not in lines["go"] and "prior alone" not in lines["stay"]
    reasons = comparison.verdict.reasons
    assert "(all of it from informative priors" in reasons[0] and "go: the prior's share" in reasons[0]
    assert "(all of it from priors that weigh at most one transition for each possible outcome)" in reasons[1]
    text = unwrapped(comparison)
    assert "evidence that the source of the prior fits here" in text and "a prior that is known to fit" in text
    summary = " ".join(str(posterior).split())
    assert "4 pairs never tried: what is said of them is the prior." in summary
    assert "3 pairs known by the prior alone (weight of 1,734 transitions)" in summary
