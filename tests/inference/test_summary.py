"""What a person reads of a posterior: the table against closed forms of scipy, the text line by line."""

import sys
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from bayes_mdp.inference.conjugate.conjugate_posterior import conjugate_posterior
from bayes_mdp.inference.conjugate.dirichlet_rows import dirichlet_rows
from bayes_mdp.inference.conjugate.reward_cells import reward_cells
from bayes_mdp.inference.conjugate.rewards import known_rewards
from bayes_mdp.inference.families.normal import NormalGammaBelief
from bayes_mdp.inference.summary import clip_names, table
from bayes_mdp.mdp import StateActionSpace, Transitions

WIDEST = 100  # of a line of the tables
S, A = 3, 2
DATA = Transitions(
    np.array([0, 0, 0, 0, 1, 1]),
    np.array([0, 0, 0, 1, 0, 0]),
    np.array([1.0, 2.0, 3.0, 0.0, 5.0, 7.0]),
    np.array([1, 1, 0, 2, 0, 1]),
    np.array([False] * 5 + [True]),
    reward_observed=np.array([True] * 5 + [False]),
)


def _space(**options):
    return StateActionSpace(S, A, ends=True, states=("low", "mid", "high"), actions=("stay", "go"), **options)


def _posterior(concentration=2.0, data: Transitions | None = DATA, **options):
    parameters: list[Any] = [np.full(S * A, x) for x in (0.0, 1.0, concentration, 1.0)]
    belief = NormalGammaBelief(*parameters)
    rows = dirichlet_rows(np.full((S * A, S + 1), 0.5), (S, A, S + 1))
    prior = conjugate_posterior(rows, reward_cells(belief, (S, A)), _space(**options))
    return prior if data is None else prior.update(data)


def test_table_is_the_closed_form(x64):
    frame = table(_posterior()).set_index(["state", "action"])
    row = frame.loc[("low", "stay")]
    dirichlet = stats.dirichlet([1.5, 2.5, 0.5, 0.5])
    assert (row.visits, row.likeliest) == (3, "mid")
    np.testing.assert_allclose(row.likeliest_prob, dirichlet.mean()[1])
    np.testing.assert_allclose(row.likeliest_sd, np.sqrt(dirichlet.var()[1]))
    np.testing.assert_allclose(row.row_sd, np.sqrt(dirichlet.var().sum()))
    np.testing.assert_allclose(row.prior_share, 2 / 5)
    # Rewards 1, 2, 3 under NormalGamma(0, 1, 2, 1): location 1.5, pseudo-count 4, concentration 3.5, rate 3.5.
    student = stats.t(7.0, 1.5, np.sqrt(3.5 / (3.5 * 4.0)))
    np.testing.assert_allclose([row.reward_mean, row.reward_sd], [student.mean(), student.std()])


def test_worst_pairs_come_first(x64):
    frame = table(_posterior())
    assert len(frame) == S * A
    untried = frame.visits == 0
    assert list(untried) == [True, True, True, False, False, False]
    relative = np.maximum(frame.row_sd / frame.row_sd.max(), frame.reward_sd / frame.reward_sd.max())
    assert (np.diff(relative) <= 1e-12).all()
    assert frame.likeliest[0] is None


def test_illegal_pairs_are_left_out(x64):
    frame = table(_posterior(legal=np.array([[True, True], [True, False], [False, True]])))
    assert set(zip(frame.state, frame.action, strict=True)) == {
        ("low", "stay"),
        ("low", "go"),
        ("mid", "stay"),
        ("high", "go"),
    }


@pytest.mark.some(2)
def test_every_kind_of_posterior_is_described(case):
    posterior = case.prior.update(case.data)
    text = str(posterior)
    assert max(map(len, text.splitlines())) <= WIDEST
    frame = table(posterior)
    assert ("step" in frame) == (case.space.horizon is not None)
    np.testing.assert_allclose(frame.visits.sum(), len(case.data.state))
    np.testing.assert_allclose(
        np.sort(frame.reward_mean), np.sort(np.asarray(posterior.mean_mdp().reward)[_legal(case.space)])
    )


def _legal(space):
    return np.broadcast_to(True if space.legal is None else space.legal, space.shape)


def test_text_says_what_was_seen_and_what_not(x64):
    posterior = _posterior()
    lines = str(posterior).splitlines()
    assert lines[0] == "Posterior over 3 states x 2 actions, episodes can end"
    assert lines[1].split()[:2] == ["method", "exact"]
    assert f"{posterior.log_evidence:.6g}" in lines[2]
    assert "6 transitions, 5 rewards; 3 of 6 pairs, 2 of 3 states" in lines[3]
    assert lines[4].split("visited")[1].strip() == "1 state: high"
    assert lines[5].split() == ["rows", "independent"]
    assert "    - 3 pairs never tried: what is said of them is the prior." in lines
    assert "    - 1 transition without a reward to learn from." in lines
    assert "    - In 1 of 3 tried pairs the prior outweighs the data (median share 0.67)." in lines


def test_table_in_the_text_is_aligned(x64):
    lines = str(_posterior()).splitlines()
    heading = next(i for i, line in enumerate(lines) if line.startswith("    state"))
    head, body = lines[heading], lines[heading + 1 :]
    assert " ".join(head.split()) == "state action visits mean reward sd likeliest next prob sd row sd"
    assert len(body) == S * A
    column = head.index("visits") + len("visits") - 1
    assert all(line[column].isdigit() and line[column + 1 : column + 3] == "  " for line in body)
    assert sum("(several)" in line for line in body) == 4


@pytest.mark.parametrize(
    ("posterior", "warning"),
    [
        (lambda: _posterior(data=None), "No data: this is the prior."),
        (lambda: _posterior(concentration=0.5), "5 pairs with an infinite variance of the mean reward"),
        (lambda: _posterior(concentration=0.5), "3 pairs whose mean reward does not exist"),
    ],
)
def test_warnings(x64, posterior, warning):
    assert warning in str(posterior())


def test_an_infinite_variance_comes_first(x64):
    frame = table(_posterior(concentration=0.5))
    assert np.isinf(frame.reward_sd).sum() == 5
    assert np.isfinite(frame.reward_sd.iloc[-1])


def test_float32_counts_that_no_longer_grow_are_named():
    rows = dirichlet_rows(np.full((S * A, S + 1), 2.0**25), (S, A, S + 1))
    posterior = conjugate_posterior(rows, known_rewards(np.zeros((S, A))), _space())
    narrow = jax.tree.map(lambda leaf: leaf.astype(np.float32), posterior)
    assert "above 2^24 in float32" in str(narrow)
    assert "float32" not in str(posterior)


def test_a_big_space_stays_readable(x64):
    """500 states, long names, line breaks in names: 10 pairs, 12 names, 100 columns."""
    states = tuple(f"a state with\na long name {i}" for i in range(500))
    rows = dirichlet_rows(np.full((1000, 500), 0.1), (500, 2, 500))
    space = StateActionSpace(500, 2, states=states)
    data = Transitions(np.arange(250), np.zeros(250, int), None, np.arange(250))
    posterior = conjugate_posterior(rows, known_rewards(np.full((500, 2), -1.5e100)), space).update(data)
    lines = str(posterior).splitlines()
    assert len(lines) < 30
    assert max(map(len, lines)) <= WIDEST
    assert any("and 238 more" in line for line in lines)
    assert any("10 of 1000" in line for line in lines)
    assert any("rewards are known" in line for line in lines)


def test_without_values_it_is_the_repr(x64):
    posterior = _posterior()

    @jax.jit
    def traced(p):
        assert str(p) == repr(p)
        return p.visit_counts()

    traced(posterior)
    stacked = jax.tree.map(lambda leaf: jnp.stack([leaf, leaf]), posterior)
    assert str(stacked) == repr(stacked)


def test_printing_does_not_load_pandas(monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)  # `import pandas` raises ImportError
    assert "Most uncertain pairs (6 of 6" in str(_posterior())


@pytest.mark.parametrize(
    ("names", "shown"),
    [
        (["short", "customer-177"], ["short", "customer-177"]),
        (["a very long name", "another long name"], ["a very lo...", "another l..."]),
        (["customer-1765", "customer-1766", "x"], ["...omer-1765", "...omer-1766", "x"]),
        (2 * ["site-a-of-customer-1"] + ["site-a-of-customer-2"], 2 * ["...ustomer-1"] + ["...ustomer-2"]),
        (["site-a-customer-x", "site-a-customer-y", "site-b-customer-x"],) * 2,
        (["same-start-1-same-end-of-it", "same-start-2-same-end-of-it"], ["...1-same-en", "...2-same-en"]),
    ],
)
def test_names_are_cut_where_they_differ(names, shown):
    """ "customer-..., customer-..." told nobody anything."""
    assert clip_names(names) == shown
