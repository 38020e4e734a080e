"""The posterior of a random log, by numpy and by every door: form of the columns, order of rows and labels, parts."""

from typing import Any

import jax
import numpy as np
import pandas as pd
import pytest
from scipy.special import gammaln

import bayes_mdp as bm
from bayes_mdp.inference import ConjugatePosterior
from tests.envs.logs.random_logs import fold_log

STATES, ACTIONS = ("a", "b", "c"), ("x", "y")
KEY = jax.random.key(0)
PRIOR = bm.models.dirichlet_normal_gamma()
COLUMNS: dict[str, Any] = {
    "state": "s",
    "action": "a",
    "reward": "r",
    "next_state": "t",
    "terminated": "e",
    "missing_reward": "ignore",
    "states": STATES,
    "actions": ACTIONS,
}


def random_log(rng):
    """1 to 29 rows, of which some end an episode and some have no reward, of any size."""
    size = int(rng.integers(1, 30))
    frame = pd.DataFrame({"s": rng.choice(STATES, size), "a": rng.choice(ACTIONS, size), "t": rng.choice(STATES, size)})
    frame["r"] = rng.normal(size=size) * 10.0 ** rng.integers(-3, 4)
    frame["e"] = rng.random(size) < 0.3
    frame.loc[rng.random(size) < 0.2, "r"] = np.nan
    return frame


def by_numpy(frame):
    """(mean rows [S A O], mean rewards [S A], log evidence) under `PRIOR`, by a loop over rows and the textbook's
    formulas of Dirichlet(1, ...) rows and NormalGamma(0, 1, 2, 1) rewards.
    """
    counts, rewards = np.zeros((3, 2, 4)), {(s, a): list[float]() for s in range(3) for a in range(2)}
    for row in frame.itertuples():
        pair = STATES.index(row.s), ACTIONS.index(row.a)
        counts[(*pair, 3 if row.e else STATES.index(row.t))] += 1
        if row.r == row.r:
            rewards[pair].append(row.r)
    evidence = (gammaln(4) - gammaln(4 + counts.sum(-1)) + gammaln(1 + counts).sum(-1)).sum()
    means = np.zeros((3, 2))
    for pair, values in rewards.items():
        k, mean = len(values), np.mean(values) if values else 0.0
        means[pair] = sum(values) / (k + 1)
        rate = 1 + 0.5 * sum((x - mean) ** 2 for x in values) + k * mean**2 / (2 * (k + 1))
        evidence += gammaln(2 + k / 2) - gammaln(2) - (2 + k / 2) * np.log(rate)
        evidence -= 0.5 * np.log(k + 1) + k / 2 * np.log(2 * np.pi)
    return (counts + 1) / (counts.sum(-1, keepdims=True) + 4), means, evidence


def forms(frame, rng, folder):
    """The same log in other forms, by name."""
    yield "rows in another order", frame.iloc[rng.permutation(len(frame))]
    other = pd.CategoricalDtype(["c", "z", "b", "a"])
    yield "categories", frame.astype({"s": "category", "t": other})
    yield "nullable", frame.astype({"s": "string", "r": "Float64", "e": "boolean"})
    yield "flags as numbers, one index for all rows", frame.astype({"e": float}).set_index(np.zeros(len(frame), int))
    frame.assign(e=frame["e"].map({True: "TRUE", False: "False"})).to_csv(folder / "log.csv", index=False)
    yield "CSV", folder / "log.csv"
    frame.to_parquet(folder / "log.parquet")
    yield "Parquet", folder / "log.parquet"


def assert_posterior(posterior, expected, what):
    with jax.enable_x64(True):
        mdp = posterior.mean_mdp()
    rows, means, evidence = expected
    found = np.concatenate([np.asarray(mdp.transition_probs), np.asarray(mdp.end_probs)[..., None]], -1)
    np.testing.assert_allclose(found, rows, rtol=1e-9, err_msg=what)
    np.testing.assert_allclose(mdp.reward, means, rtol=1e-9, atol=1e-12, err_msg=what)
    np.testing.assert_allclose(posterior.log_evidence, evidence, rtol=1e-9, err_msg=what)


def test_every_door_gives_the_posterior_of_numpy(tmp_path):
    pytest.importorskip("pyarrow")
    rng = np.random.default_rng(0)
    space = bm.StateActionSpace(3, 2, ends=True, states=STATES, actions=ACTIONS)
    for _ in range(2):
        frame = random_log(rng)
        expected = by_numpy(frame)
        assert_posterior(bm.infer(KEY, PRIOR, bm.read_log(frame, **COLUMNS), space=space), expected, "a frame")
        for what, source in forms(frame, rng, tmp_path):
            assert_posterior(bm.infer(KEY, PRIOR, bm.read_log(source, **COLUMNS), space=space), expected, what)
            folded = fold_log(source, **COLUMNS, chunksize=int(rng.integers(1, 9)))
            assert_posterior(bm.infer(KEY, PRIOR, folded, space=space), expected, f"{what}, folded")


def test_other_orders_of_labels_permute_the_posterior():
    rng = np.random.default_rng(1)
    for _ in range(5):
        frame, states, actions = random_log(rng), rng.permutation(3), rng.permutation(2)
        rows, means, evidence = by_numpy(frame)
        labels = {"states": [STATES[i] for i in states], "actions": [ACTIONS[i] for i in actions]}
        named: Any = {**COLUMNS, **labels}
        log = bm.read_log(frame, **named)
        posterior = bm.infer(KEY, PRIOR, log, space=bm.StateActionSpace.from_log(log, ends=True))
        expected = (rows[np.ix_(states, actions, np.append(states, 3))], means[np.ix_(states, actions)], evidence)
        assert_posterior(posterior, expected, str(labels))


def test_parts_of_a_log_are_learnt_one_after_the_other(tmp_path):
    """Also where the posterior is kept in between."""
    rng = np.random.default_rng(2)
    space = bm.StateActionSpace(3, 2, ends=True, states=STATES, actions=ACTIONS)
    for _ in range(5):
        frame = random_log(rng)
        cut = int(rng.integers(0, len(frame) + 1))
        posterior: Any = bm.infer(KEY, PRIOR, space=space, method="exact")
        for part in (frame.iloc[cut:], frame.iloc[:cut]):
            if len(part):
                posterior = posterior.update(fold_log(part, **COLUMNS), allow_duplicates=True)
            bm.save(posterior, tmp_path / "kept")
            posterior = bm.load(tmp_path / "kept")
            assert isinstance(posterior, ConjugatePosterior)
        assert_posterior(posterior, by_numpy(frame), f"cut at {cut}")
