# pyright: reportArgumentType=false
"""What a study is worth: against exact sums for its observations, and plain numpy that plays the episodes itself."""

from itertools import product

import numpy as np
import pytest

from bayes_mdp.decisions.information import gain_over_plan
from bayes_mdp.decisions.information.data_sets import Environments, Learning, MeanMDPs, concatenate
from bayes_mdp.decisions.information.gain_over_plan import PolicyStudy
from bayes_mdp.decisions.information.next_experiment import next_experiment
from bayes_mdp.inference import mixture
from bayes_mdp.inference.conjugate.conjugate_posterior import conjugate_posterior
from bayes_mdp.inference.conjugate.dirichlet_rows import dirichlet_rows
from bayes_mdp.inference.conjugate.reward_cells import reward_cells
from bayes_mdp.inference.conjugate.rewards import known_rewards
from bayes_mdp.inference.families.bernoulli import BetaBelief
from bayes_mdp.mdp import AverageReward, Discounted, Episodic, FirstExit, StateActionSpace
from bayes_mdp.numerics.array_forms import to_host_float64
from bayes_mdp.utils.layout import Table
from tests.decisions.information.test_next_experiment import ONE_STEP, bandit, beta_bandit, by_pair, chain, chain_gain

pytestmark = pytest.mark.numerics

Z = 5.0
"""Standard errors: a false alarm has probability 6e-7 for each comparison."""
FIRST, SECOND = np.array([0]), np.array([1])


def by_name(answer):
    """{name: (value, error)}."""
    numbers = zip(answer.value, answer.standard_error, strict=True)
    return {name: each for (name,), each in zip(answer.pairs, numbers, strict=True)}


def test_episodes_of_one_step_are_observations_of_the_pair(key):
    """1000 p, Beta(2, 3) against Beta(5, 6): 18.181818, 37.662338 and 51.236589 for n = 1, 5, 20 of the first arm."""
    sizes = {1: 0.018181818, 5: 0.037662338, 20: 0.051236589}
    studies = {f"{n} of the first": PolicyStudy(FIRST, n) for n in sizes} | {"5 of the second": PolicyStudy(SECOND, 5)}
    answer = next_experiment(key, beta_bandit(), ONE_STEP, studies, num_data_sets=6000)
    found = by_name(answer)
    for n, expected in sizes.items():
        value, error = found[f"{n} of the first"]
        assert abs(value - expected) < Z * error < 0.15 * expected, n
    second = by_pair(next_experiment(key, beta_bandit(), ONE_STEP, [(0, 1)], n=5))[0, 1]
    value, error = found["5 of the second"]
    assert abs(value - second) < Z * error < 0.2 * second
    # In one MDP the first episodes of a longer study are those of the shorter one.
    assert found["1 of the first"] < found["5 of the first"] < found["20 of the first"]
    assert answer.validity.kind == "exact" and not answer.enumerated.any() and (answer.num_data_sets == 6000).all()


@pytest.mark.slow
def test_what_is_simulated_does_not_depend_on_the_objective(key):
    """Per step, in episodes of one step: the same data, and the same plans."""
    once = next_experiment(key, beta_bandit(), ONE_STEP, {"a": PolicyStudy(FIRST, 5)}, num_data_sets=100)
    rate = next_experiment(key, beta_bandit(), AverageReward(), {"a": PolicyStudy(FIRST, 5, 1)}, num_data_sets=100)
    assert rate.value[0] == pytest.approx(once.value[0], abs=1e-12) and once.value[0] > 0


# ------------------------------------------------------------------------------------------ every step in plain numpy

CONCENTRATION = np.random.default_rng(3).uniform(0.3, 1.5, (2, 2, 3))  # two states and, where there is one, the end
PAID, FAILED = np.random.default_rng(8).uniform(0.5, 2.0, (2, 2, 2))
START = np.array([0.7, 0.3])
POLICY = np.array([[0.4, 0.6], [0.8, 0.2]])
EPISODES, STEPS, GAMMA = 3, 4, 0.9


def two_states(ends, horizon=None):
    """Two states, two actions; unknown rows, with or without an end, and unknown Bernoulli rewards."""
    prior = CONCENTRATION if ends else CONCENTRATION[..., :2]
    lead = () if horizon is None else (horizon,)
    rows = np.tile(prior.reshape(4, -1), (horizon or 1, 1))
    paid, failed = (np.tile(x.ravel(), horizon or 1) for x in (PAID, FAILED))
    rewards = reward_cells(BetaBelief(paid, failed), (*lead, 2, 2))
    space = StateActionSpace(2, 2, ends=ends, horizon=horizon)
    return conjugate_posterior(dirichlet_rows(rows, (*lead, 2, 2, prior.shape[-1])), rewards, space)


def played(rng, number, ends, policy, by_step):
    """Statistics after EPISODES episodes in a drawn MDP for each of `number` data sets: rows, paid, failed."""
    prior = CONCENTRATION if ends else CONCENTRATION[..., :2]
    lead = (number, STEPS) if by_step else (number, 1)
    concentration = np.broadcast_to(prior, (*lead, *prior.shape)).copy()
    paid, failed = (np.broadcast_to(x, (*lead, 2, 2)).copy() for x in (PAID, FAILED))
    rows = rng.standard_gamma(concentration)
    rows, pays = (rows / rows.sum(-1, keepdims=True)).cumsum(-1), rng.beta(paid, failed)
    each = np.arange(number)
    for _ in range(EPISODES):
        state, alive = (rng.random(number) > START[0]).astype(int), np.ones(number, bool)
        for step in range(STEPS):
            now = policy[step] if policy.ndim == 3 else policy
            action = (rng.random(number) > now[state, 0]).astype(int)
            at = (each, step if by_step else 0, state, action)
            outcome = (rng.random(number)[:, None] > rows[at][:, :-1]).sum(-1)
            reward = rng.random(number) < pays[at]
            concentration[(*at, outcome)] += alive
            paid[at] += alive & reward
            failed[at] += alive & ~reward
            alive &= outcome < 2
            state = np.minimum(outcome, 1)
    return concentration, paid, failed


def stationary_values(concentration, paid, failed, discount):
    """Of the four policies in the mean MDP of each data set."""
    rows = (concentration / concentration.sum(-1, keepdims=True))[:, 0, :, :, :2]
    reward = (paid / (paid + failed))[:, 0]
    found = []
    for policy in product(range(2), repeat=2):
        picked, earned = rows[:, [0, 1], policy], reward[:, [0, 1], policy]
        found.append(np.linalg.solve(np.eye(2) - discount * picked, earned[..., None])[..., 0] @ START)
    return np.stack(found, -1)


def step_values(concentration, paid, failed, plan=None):
    """Value of the best policy (or of `plan` [H S]) by steps, and that policy."""
    rows = concentration / concentration.sum(-1, keepdims=True)
    reward, after, chosen = paid / (paid + failed), np.zeros((len(rows), 2)), []
    for step in reversed(range(STEPS)):
        q = reward[:, step] + np.einsum("nsaz,nz->nsa", rows[:, step], after)
        best = q.argmax(-1) if plan is None else np.broadcast_to(plan[step], q.shape[:2])
        after = np.take_along_axis(q, best[..., None], -1)[..., 0]
        chosen.append(best[0])
    return after @ START, np.array(chosen[::-1])


@pytest.mark.few(1)
@pytest.mark.parametrize("kind", ["discounted", "first exit", "steps"])
def test_against_episodes_that_numpy_plays(key, kind):
    """|z| < 5 of the difference of two means; the seed of numpy is fixed."""
    rng, number, by_step = np.random.default_rng(1), 40_000, kind == "steps"
    ends, policy = kind == "first exit", POLICY
    if by_step:
        policy = np.random.default_rng(2).dirichlet(np.ones(2), (STEPS, 2))
    data = played(rng, number, ends, policy, by_step)
    rows, paid, failed = (
        np.broadcast_to(x, (1, STEPS if by_step else 1, *x.shape)) for x in (CONCENTRATION, PAID, FAILED)
    )
    rows = rows if ends else rows[..., :2]
    if by_step:
        objective, plan = Episodic(STEPS), step_values(rows, paid, failed)[1]
        gain = step_values(*data)[0] - step_values(*data, plan)[0]
    else:
        discount = 1.0 if ends else GAMMA
        objective = FirstExit() if ends else Discounted(GAMMA)
        values = stationary_values(*data, discount)
        gain = values.max(-1) - values[:, stationary_values(rows, paid, failed, discount)[0].argmax()]
    study = PolicyStudy(policy, EPISODES, None if by_step else STEPS)
    posterior = two_states(ends, STEPS if by_step else None)
    answer = next_experiment(key, posterior, objective, {"study": study}, initial=START, num_data_sets=4000)
    error = np.hypot(answer.standard_error[0], gain.std() / np.sqrt(number))
    assert abs(answer.value[0] - gain.mean()) < Z * error < 0.25 * gain.mean()
    assert answer.validity.kind == ("exact" if by_step else "heuristic")


def stay_or_go():
    """State 0 is known: action 0 stays there, action 1 comes to state 1, whose rows are unknown."""
    known = np.zeros((2, 2, 2))
    known[0] = np.eye(2)
    rows = dirichlet_rows(np.ones((2, 2)), (2, 2, 2), row=np.array([[-1, -1], [0, 1]]), known=known)
    return conjugate_posterior(rows, known_rewards(np.array([[0.5, 0.0], [1.0, 1.0]])), StateActionSpace(2, 2))


def test_every_episode_begins_at_the_start_and_has_its_steps(key, monkeypatch):
    """Two steps from state 0: "go", then action 0 in state 1; once in each of five episodes."""
    observed, learn = [], Learning.observe
    monkeypatch.setattr(Learning, "observe", lambda self, data: observed.append(data) or learn(self, data))
    means = MeanMDPs(to_host_float64(stay_or_go()))
    design = gain_over_plan.Design(np.array([[0.0, 1.0], [1.0, 0.0]]), 5, 2)
    environment = Environments(key, means, None).draw(400)
    gain_over_plan.after_study(key, means, design, np.array([1.0, 0.0]), environment, slice(0, 400), 400)
    data = concatenate(observed)
    pair = 2 * data.cell[0] + data.cell[1]
    visits = np.stack([(data.weight * (pair == i)).sum(-1) for i in range(4)], -1)
    assert (visits == [0.0, 5.0, 5.0, 0.0]).all()
    counts = (data.weight * (pair == 2) * (data.outcome == 0)).sum(-1)
    # One environment for all episodes of a data set: each number of five outcomes of a drawn Beta(1, 1) is equally
    # likely, variance 2.92 (sd of its estimate .13: a false alarm below 1e-7); of five fresh coins 1.25 (.08).
    assert counts.var() > 2.2


def test_a_study_that_does_not_come_to_what_is_unknown_is_worth_nothing(key):
    """All start in state 0, which is known."""
    posterior = stay_or_go()
    studies = {
        "stay": PolicyStudy(np.array([0, 1]), 50, 3),
        "half": PolicyStudy(np.full((2, 2), 0.5), 4, 3),
        "go": PolicyStudy(np.array([1, 0]), 4, 3),
    }
    first = np.array([1.0, 0.0])
    answer = next_experiment(
        key, posterior, Discounted(GAMMA), studies, initial=first, cost=[1.0, 1.0, 0.01], num_data_sets=256
    )
    found = by_name(answer)
    assert found["stay"] == (0.0, 0.0) and found["half"][0] > Z * found["half"][1] > 0
    # The table, best first by cost.
    assert answer.pairs == (("go",), ("half",), ("stay",)) and answer.best == "go"
    assert answer.cost.tolist() == [0.01, 1.0, 1.0] and answer.index.tolist() == [[2], [1], [0]]
    section = answer.layout()
    assert section.title == "Which study to make next, discount 0.9, start: the given distribution (state 0)"
    (shown,) = [part for part in section.parts if isinstance(part, Table)]
    assert shown.head[:6] == ("study", "episodes", "gain", "error", "cost", "gain / cost")
    assert shown.rows[0][:3] == ("go", "4", f"{answer.value[0]:.6g}")
    table = answer.to_dataset()
    assert list(table["study"].values) == ["go", "half", "stay"] and table["value"].dims == ("candidate",)
    assert table["num_episodes"].values.tolist() == [4, 4, 50]


@pytest.mark.slow
@pytest.mark.parametrize("listed", [True, False])
def test_what_is_met_once_is_observed_once_in_an_episode(key, listed):
    """From "start" one step decides: 4 episodes under "a" are 4 observations of that pair, by beta-binomial sums."""
    studies = {name: PolicyStudy(np.full(3, arm), 4, 3) for arm, name in enumerate(("a", "b", "sure"))}
    first = np.array([1.0, 0.0, 0.0])
    answer = next_experiment(key, chain(listed=listed), Discounted(0.5), studies, initial=first, num_data_sets=2000)
    found = by_name(answer)
    for arm, name in enumerate("ab"):
        value, error = found[name]
        assert abs(value - chain_gain(arm, 4)) < Z * error < 0.35 * value
    assert found["sure"] == (0.0, 0.0) and answer.validity.kind == "exact"


@pytest.mark.slow
def test_a_mixture(key):
    """Data of one arm say which component holds: the sums are those of observations of the pair."""
    paid, failed = np.array([[2.0, 1.0], [1.0, 3.0]]), np.array([[1.0, 2.5], [2.0, 1.0]])
    both = mixture([bandit(BetaBelief(a, b)) for a, b in zip(paid, failed, strict=True)], weights=[0.4, 0.6])
    exact = by_pair(next_experiment(key, both, ONE_STEP, [(0, 0)], n=3))[0, 0]
    answer = next_experiment(key, both, ONE_STEP, {"first": PolicyStudy(FIRST, 3)}, num_data_sets=2000)
    assert abs(answer.value[0] - exact) < Z * answer.standard_error[0] < 0.35 * exact


# ------------------------------------------------------------------------------------------------------------ refusals


@pytest.mark.parametrize(
    ("candidates", "error", "message"),
    [
        (lambda: {"a": PolicyStudy(FIRST, 0)}, ValueError, "num_episodes is 0, expected an integer of at least 1"),
        (lambda: {"a": PolicyStudy(FIRST, 2.5)}, TypeError, "num_episodes is 2.5"),
        (lambda: {"a": PolicyStudy(FIRST, 1, 0)}, ValueError, "max_steps is 0, expected an integer of at least 1"),
        (
            lambda: {"a": PolicyStudy(FIRST, 10**30)},
            ValueError,
            r"\['a'\] has 10{30} episodes of up to 1 steps, expected",
        ),
        (lambda: {}, ValueError, "candidates is empty, expected at least one study"),
        (lambda: {"a": PolicyStudy(np.zeros(2, int), 1)}, ValueError, r"candidates\['a'\]: policy has shape \(2,\)"),
        (lambda: {"a": PolicyStudy(np.array([2]), 1)}, ValueError, r"candidates\['a'\]: policy"),
        (lambda: {"a": PolicyStudy(FIRST, 1, 2)}, ValueError, r"\['a'\] has max_steps 2, expected at most 1, the hor"),
        (lambda: {"a": PolicyStudy(FIRST, 1), "b": (0, 0)}, TypeError, r"\['b'\] is a tuple, expected a PolicyStudy"),
        (
            lambda: [(0, 0), PolicyStudy(FIRST, 1)],
            TypeError,
            r"candidates\[1\] is a PolicyStudy, expected \(state, act",
        ),
    ],
)
def test_wrong_studies(key, candidates, error, message):
    with pytest.raises(error, match=message):
        next_experiment(key, beta_bandit(), ONE_STEP, candidates())


@pytest.mark.parametrize("objective", [Discounted(0.9), AverageReward()])
def test_without_a_horizon_a_study_needs_a_number_of_steps(key, objective):
    with pytest.raises(ValueError, match=r"candidates\['a'\] has max_steps None, expected a number of steps"):
        next_experiment(key, beta_bandit(), objective, {"a": PolicyStudy(FIRST, 1)})


def test_studies_have_their_own_number_of_episodes(key):
    with pytest.raises(ValueError, match="n is 3, expected 1 where candidates are studies"):
        next_experiment(key, beta_bandit(), ONE_STEP, {"a": PolicyStudy(FIRST, 1)}, n=3)
    with pytest.raises(ValueError, match=r"cost has shape \(2,\), expected \(1,\)"):
        next_experiment(key, beta_bandit(), ONE_STEP, {"a": PolicyStudy(FIRST, 1)}, cost=[1.0, 2.0])
