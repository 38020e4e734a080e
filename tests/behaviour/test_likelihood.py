import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bayes_mdp.behaviour import BehaviourModel, ChoiceLog, Parameter, likelihood, log_likelihood
from bayes_mdp.behaviour.likelihood import choice_log_probs

pytestmark = pytest.mark.usefixtures("x64")
RNG = np.random.default_rng(5)
PERSONS, TIMES = 4, 12
ACTION, REWARD = RNG.integers(2, size=(PERSONS, TIMES)), RNG.normal(size=(PERSONS, TIMES))
OBSERVED = np.arange(TIMES) < np.array([12, 5, 9, 1])[:, None]
OBSERVED[0, [3, 7]] = False
LOG = ChoiceLog(np.zeros((PERSONS, TIMES), int), ACTION, REWARD, observed=OBSERVED)
PARAMS = {"rate": np.array([0.1, 0.4, 0.7, 1.0]), "sensitivity": 2.0}


class Bandit:
    """The example of the docstring of `BehaviourModel`."""

    parameters = {"rate": Parameter("unit"), "sensitivity": Parameter("positive")}  # noqa: RUF012

    def init(self, params):
        return jnp.zeros(2)

    def policy(self, params, q, state):
        return jax.nn.log_softmax(params["sensitivity"] * q)

    def update(self, params, q, transition):
        chosen = jnp.arange(2) == transition.action
        return q + params["rate"] * chosen * (transition.reward - q)


def by_hand(i):
    q, found = np.zeros(2), np.zeros(TIMES)
    for t in np.flatnonzero(OBSERVED[i]):
        a = ACTION[i, t]
        found[t] = 2.0 * q[a] - np.log(np.exp(2.0 * q).sum())
        q[a] += PARAMS["rate"][i] * (REWARD[i, t] - q[a])
    return found


@pytest.mark.parametrize("most_bytes", [2**28, 0], ids=["policies together", "policies in the scan"])
def test_a_model_of_ones_own_is_filtered_as_by_hand(monkeypatch, most_bytes):
    monkeypatch.setattr(likelihood, "_MOST_BYTES", most_bytes)
    assert isinstance(Bandit(), BehaviourModel)
    found = np.asarray(log_likelihood(Bandit(), PARAMS, LOG))
    np.testing.assert_allclose(found, [by_hand(i) for i in range(PERSONS)], rtol=0, atol=1e-13)


def test_padding_changes_neither_value_nor_gradient():
    short = ChoiceLog(*(x[1:2, :5] for x in (LOG.state, LOG.action, LOG.reward)))
    junk = np.where(OBSERVED, REWARD, np.nan)
    long = ChoiceLog(LOG.state, np.where(OBSERVED, ACTION, 1), junk, observed=OBSERVED)

    def total(rate, log, who):
        return log_likelihood(Bandit(), {"rate": rate, "sensitivity": 2.0}, log)[who].sum()

    one = jax.value_and_grad(total)(0.4, short, 0)
    other = jax.value_and_grad(total)(0.4, long, 1)
    np.testing.assert_allclose(one, other, rtol=1e-13)


def test_traced_logs_and_parameters_give_the_same():
    compiled = jax.jit(lambda p, log: log_likelihood(Bandit(), p, log))
    np.testing.assert_allclose(compiled(PARAMS, LOG), log_likelihood(Bandit(), PARAMS, LOG), rtol=1e-13)


class Never(Bandit):
    """Never takes the second action."""

    def policy(self, params, q, state):
        return jnp.array([0.0, -jnp.inf])


def test_an_impossible_choice_is_named_and_is_minus_infinity_under_tracing():
    person, time = np.argwhere((ACTION == 1) & OBSERVED)[0]
    with pytest.raises(
        ValueError, match=rf"action 1 in state 0 \(subject {person}, choice {time + 1}\) has probability"
    ):
        log_likelihood(Never(), PARAMS, LOG)
    assert np.isneginf(jax.jit(lambda p: log_likelihood(Never(), p, LOG))(PARAMS)[person, time])
    assert np.isneginf(choice_log_probs(Never(), PARAMS, LOG)[..., 1]).all()


class Growing(Bandit):
    def update(self, params, q, transition):
        return jnp.zeros(3)


def test_wrong_arguments_are_refused():
    with pytest.raises(ValueError, match=r"params\['rate'\] is missing, expected rate, sensitivity"):
        log_likelihood(Bandit(), {"sensitivity": 1.0}, LOG)
    with pytest.raises(ValueError, match=r"params\['speed'\] is no parameter of the model"):
        log_likelihood(Bandit(), PARAMS | {"speed": 1.0}, LOG)
    with pytest.raises(ValueError, match=r"params\['rate'\]\[2\] is 1.5, expected a number from 0 to 1"):
        log_likelihood(Bandit(), PARAMS | {"rate": [0.1, 0.2, 1.5, 0.3]}, LOG)
    with pytest.raises(ValueError, match=r"params\['rate'\] has shape \(3,\), expected \(\) or \(4,\)"):
        log_likelihood(Bandit(), PARAMS | {"rate": np.ones(3) / 2}, LOG)
    with pytest.raises(TypeError, match=r"model is .* \(a class\), expected an object with parameters"):
        log_likelihood(Bandit, PARAMS, LOG)  # type: ignore[arg-type]
    with pytest.raises(
        TypeError, match=r"returned a state with float64 of shape \(3,\), expected float64 of shape \(2,\)"
    ):
        log_likelihood(Growing(), PARAMS, LOG)
    with pytest.raises(TypeError, match="log is"):
        log_likelihood(Bandit(), PARAMS, None)  # type: ignore[arg-type]
