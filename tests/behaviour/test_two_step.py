import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bayes_mdp.behaviour import Parameter, TwoStep, log_likelihood, two_step_log
from bayes_mdp.behaviour.likelihood import choice_log_probs
from bayes_mdp.mdp import Transitions
from tests.behaviour import two_step_reference as ref

pytestmark = pytest.mark.usefixtures("x64")
PAR6 = {name: x for name, x in ref.PAR7.items() if name != "lambda"}
PAR4 = {"a": 0.4, "beta": 3.0, "pi": 0.3, "w": 0.6}
GOLDEN = {
    "after_update": (-41.829809, -41.974646, -40.410889, -43.758411, -41.023501),
    "before_update": (-42.453847, -43.092337, -41.328745, -46.636351, -41.023501),
}


@pytest.fixture(scope="module")
def golden_log():
    columns = (ref.FIRST, 1 + ref.SECOND_STATE, ref.SECOND, ref.REWARD)
    return two_step_log(*(x[None] for x in columns))


@pytest.mark.parametrize("reward_error", GOLDEN)
def test_golden_numbers_of_all_forms(golden_log, reward_error):
    cases = [(7, ref.PAR7), (6, PAR6), (4, PAR4), (7, ref.PAR7 | {"w": 0.0}), (7, ref.PAR7 | {"w": 1.0})]
    found = [log_likelihood(TwoStep(n, reward_error), p, golden_log) for n, p in cases]
    assert [float(x.sum()) for x in found] == pytest.approx(GOLDEN[reward_error], abs=6e-7)
    for each in (found[0], found[1], found[3], found[4]):
        assert float(each[:, 1::2].sum()) == pytest.approx(-21.514168, abs=6e-7)


@pytest.mark.parametrize("reward_error", GOLDEN)
def test_every_choice_of_ragged_persons_is_that_of_a_plain_loop(reward_error):
    rng = np.random.default_rng(3)
    persons, trials = 6, 40
    first, state, second, reward = (rng.integers(2, size=(persons, trials)) for _ in range(4))
    observed = np.arange(trials) < rng.integers(20, trials + 1, persons)[:, None]
    observed[1, [3, 7]] = False  # missed trials
    params = {name: rng.uniform(0.1, 0.9, persons) * (5 if name.startswith("beta") else 1) for name in ref.PAR7}
    log = two_step_log(first, 1 + state, second, reward, observed=observed)
    found = np.asarray(log_likelihood(TwoStep(7, reward_error, common=0.8), params, log)).reshape(persons, trials, 2)
    for i in range(persons):
        seen, one = observed[i], {name: x[i] for name, x in params.items()}
        columns = (x[i][seen] for x in (first, state, second, reward))
        expected = ref.log_probs(one, *columns, after=reward_error == "after_update", common=0.8)
        np.testing.assert_allclose(found[i][seen], expected, rtol=0, atol=1e-12)
        assert not found[i][~seen].any()


def test_gradient_is_that_of_finite_differences_and_never_nan(golden_log):
    total = lambda x: log_likelihood(TwoStep(), dict(zip(ref.PAR7, x, strict=True)), golden_log).sum()  # noqa: E731
    point = np.array(list(ref.PAR7.values()))
    gradient = np.asarray(jax.grad(total)(jnp.asarray(point)))
    steps = 1e-6 * np.eye(7)
    numeric = [(float(total(point + e)) - float(total(point - e))) / 2e-6 for e in steps]
    np.testing.assert_allclose(gradient, numeric, rtol=1e-6, atol=1e-7)


def test_probabilities_sum_to_one(golden_log):
    log_probs = choice_log_probs(TwoStep(), ref.PAR7 | {"beta1": 40.0}, golden_log)
    np.testing.assert_allclose(np.exp(log_probs).sum(-1), 1.0, atol=1e-12)


def test_priors_can_be_replaced_and_wrong_options_are_refused():
    own = Parameter("positive")
    assert TwoStep(4, priors={"beta": own}).parameters["beta"] is own
    with pytest.raises(ValueError, match="num_parameters is 5, expected 7, 6 or 4"):
        TwoStep(5)
    with pytest.raises(ValueError, match="reward_error is 'later'"):
        TwoStep(reward_error="later")
    with pytest.raises(ValueError, match="priors is 'lambda'"):
        TwoStep(4, priors={"lambda": own})


def test_the_first_stage_learns_from_the_reward_by_the_trace():
    """A first choice of the second action, then a reward of 1 for the first action in state 1."""
    model = TwoStep(7, "before_update")
    params = {name: jnp.asarray(x) for name, x in ref.PAR7.items()}
    state = model.update(params, model.init(params), Transitions(0, 1, 0.0, 1))
    state = model.update(params, state, Transitions(1, 0, 1.0, 0))
    assert (float(state.first[0]), float(state.first[1])) == pytest.approx((0.0, 0.7 * 0.4))
    assert [float(q) for q in state.second] == pytest.approx([0.6, 0.0, 0.0, 0.0])
