"""ICU-Sepsis: the reading of its files, on a small package made here; exact values, where the real one is installed."""

import sys
from importlib.util import find_spec
from typing import Any

import jax
import numpy as np
import pytest

import bayes_mdp as bm
from bayes_mdp.envs import ENVS
from bayes_mdp.envs.sepsis import DOSES, Inversion
from bayes_mdp.mdp import SparseMDP
from bayes_mdp.plots import plot_env
from bayes_mdp.utils.messages import install

KEY = jax.random.key(0)
INSTALLED = find_spec("icu_sepsis") is not None
real = pytest.mark.skipif(not INSTALLED, reason=f"icu-sepsis is not installed: {install('health')}")
SIZE, ACTIONS = 6, 25  # 3 patients, death, survival, the absorbing state
LISTS = [[0, 7], [24], [3, 4, 5], list(range(25)), list(range(25)), list(range(25))]


def text_of(lists):
    return "\n".join(" ".join(map(str, row)) + " " for row in [[len(row) for row in lists], *lists]) + "\n"


def arrays() -> dict[str, Any]:
    """A package of three patients; inadmissible actions do the mean of the admissible ones."""
    rng = np.random.default_rng(0)
    rows = np.zeros((SIZE, ACTIONS, SIZE))
    rows[3:, :, 5] = 1.0
    expert = np.zeros((SIZE, ACTIONS))
    for s in range(3):
        rows[s, LISTS[s], :5] = rng.dirichlet(np.ones(5), len(LISTS[s]))
        if s == 0:
            rows[0, 7] = [0.5, 0.0, 0.0, 0.25, 0.25, 0.0]
        others = np.setdiff1d(np.arange(ACTIONS), LISTS[s])
        rows[s, others] = rows[s, LISTS[s]].mean(0)
        expert[s] = rng.dirichlet(np.ones(ACTIONS))
    expert[3] = expert[4] = 1.0  # as the real file has it: no distribution
    return {"tx_mat": rows, "r_mat": rows, "d_0": np.array([0.5, 0.5, 0, 0, 0, 0]), "expert_policy": expert}


@pytest.fixture
def package(tmp_path, monkeypatch):
    """A function that writes a package, whose import fails, and lets it be found."""

    def write(changed=None, text=None, *, lists="admissible_actions.txt"):
        assets = tmp_path / "icu_sepsis" / "envs" / "assets"
        assets.mkdir(parents=True, exist_ok=True)
        (tmp_path / "icu_sepsis" / "__init__.py").write_text("raise ImportError('it must not be imported')")
        np.savez(assets / "dynamics.npz", **{**arrays(), **(changed or {})})
        (assets / lists).write_text(text_of(LISTS) if text is None else text)
        monkeypatch.syspath_prepend(str(tmp_path))
        return assets

    return write


def survival(env, policy, discount=1.0):
    """Expected discounted reward of an episode in the benchmark, by a linear system in numpy."""
    mdp = env.mdp.to_dense() if isinstance(env.mdp, SparseMDP) else env.mdp
    rows = np.einsum("sa,saz->sz", policy, np.asarray(mdp.transition_probs, float))
    reward = (policy * np.asarray(mdp.reward, float)).sum(-1)
    value = np.linalg.solve(np.eye(len(rows)) - discount * rows, reward)
    return np.asarray(mdp.initial, float) @ value / discount  # it is paid one step after survival is entered


def test_what_is_missing_is_named(monkeypatch):
    monkeypatch.setattr("bayes_mdp.envs.sepsis.PACKAGE", "icu_sepsis_that_nobody_has")
    with pytest.raises(ImportError, match=r"needs the files of the package icu-sepsis: pip install 'icu-sepsis>=2.0'"):
        bm.envs.icu_sepsis()


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("lists", ["admissible_actions.txt", "allowed_actions.txt"])
@pytest.mark.parametrize("listed", [False, True])
def test_the_table(package, listed, lists):
    package(lists=lists)
    env, truth = bm.envs.icu_sepsis(listed=listed), arrays()
    assert "icu_sepsis" not in sys.modules
    assert isinstance(env, bm.Environment) and isinstance(env.mdp, SparseMDP) == listed and env.name == "icu_sepsis"
    mask = np.zeros((5, ACTIONS), bool)
    for s in range(3):
        mask[s, LISTS[s]] = True
    mask[3:, 0] = True  # death and survival keep one action
    np.testing.assert_array_equal(env.mdp.legal, mask)
    np.testing.assert_array_equal(env.admissible, mask)
    rows = np.asarray(env.mdp.transition_probs)
    np.testing.assert_array_equal(rows[:3][mask[:3]], truth["tx_mat"][:3, :, :5][mask[:3]])
    assert not rows[3:].any()
    np.testing.assert_array_equal(env.mdp.end_probs, np.arange(5)[:, None] >= np.full(ACTIONS, 3))
    np.testing.assert_array_equal(env.mdp.reward, np.arange(5)[:, None] == np.full(ACTIONS, 4))
    np.testing.assert_array_equal(env.mdp.initial, [0.5, 0.5, 0, 0, 0])
    expected = np.where(mask, truth["expert_policy"][:5], 0)[:3]
    np.testing.assert_allclose(env.expert[:3], expected / expected.sum(-1, keepdims=True), rtol=1e-14)
    np.testing.assert_array_equal(env.raw_expert[:3], truth["expert_policy"][:3])
    for policy in (env.expert, env.raw_expert, env.uniform):
        np.testing.assert_allclose(policy.sum(-1), 1.0, rtol=1e-14)
        np.testing.assert_array_equal(policy[3:], np.eye(1, ACTIONS)[[0, 0]])
    best = max(survival(env, np.eye(ACTIONS)[[a, 24, b, 0, 0]]) for a in LISTS[0] for b in LISTS[2])
    assert env.optimum == pytest.approx(best, rel=1e-12)


@pytest.mark.usefixtures("x64")
def test_inadmissible_actions_do_the_mean(package):
    package()
    for listed in (False, True):
        env = bm.envs.icu_sepsis(listed=listed, admissible_only=False)
        assert env.mdp.legal is None and env.space.legal is None
        np.testing.assert_allclose(env.mdp.transition_probs[:3], arrays()["tx_mat"][:3, :, :5], rtol=1e-14)
        all_alike = np.full((5, ACTIONS), 1 / ACTIONS)
        assert survival(env, all_alike) == pytest.approx(survival(env, env.uniform), rel=1e-12)


@pytest.mark.parametrize("listed", [False, True])
def test_the_space_knows_what_is_known(package, listed):
    package()
    env = bm.envs.icu_sepsis(listed=listed)
    space = env.space
    assert space.states == (0, 1, 2, "death", "survival") and space.actions == DOSES and space.ends
    assert DOSES[7] == (1, 2) and DOSES[24] == (4, 4)
    possible = np.asarray(space.support_mask())
    legal = np.asarray(space.legal)
    truth = np.concatenate([env.mdp.transition_probs, np.asarray(env.mdp.end_probs)[..., None]], -1) > 0
    if listed:
        np.testing.assert_array_equal(possible[legal], truth[legal])
    else:
        assert possible[:3, :, :5].all() and not possible[:3, :, 5].any()
        assert possible[3:, :, 5].all() and not possible[3:, :, :5].any()
    reward = np.asarray(env.mdp.reward)
    posterior: Any = bm.infer(KEY, bm.models.known_rewards(reward, 0.2), env.log(KEY, 3000).transitions, space=space)
    mean = np.asarray(posterior.mean_mdp().transition_probs)
    assert np.abs(mean - np.asarray(env.mdp.transition_probs))[env.expert > 0.02].max() < 0.15
    assert not mean[3:][legal[3:]].any()


def test_a_log_is_what_the_policy_does(package, key):
    """Frequencies of 20,000 episodes within 6 standard deviations: some 60 comparisons, false alarm below 1e-6."""
    package()
    env: Any = bm.envs.icu_sepsis()
    log = env.log(key, 20_000)
    data = log.transitions
    assert log.states == env.space.states and log.actions == env.space.actions and data.truncated is None
    s, a, z = np.asarray(data.state), np.asarray(data.action), np.asarray(data.next_state)
    over, step = np.asarray(data.terminated), np.asarray(data.step)
    np.testing.assert_array_equal(over, s >= 3)
    np.testing.assert_array_equal(data.reward, s == 4)
    assert over.sum() == (step == 0).sum() == 20_000
    np.testing.assert_array_equal(step[1:][~over[:-1]], step[:-1][~over[:-1]] + 1)
    np.testing.assert_array_equal(s[1:][~over[:-1]], z[:-1][~over[:-1]])  # one episode after the other
    assert (step[1:][over[:-1]] == 0).all()
    rows, rates = np.asarray(env.mdp.transition_probs, float), []
    for (i, j), p in np.ndenumerate(env.expert[:3]):
        n, here = (s == i).sum(), (s == i) & (a == j)
        rates.append((here.sum() - n * p) / max(np.sqrt(n * p * (1 - p)), 1e-9))
        for k in range(5):
            q, m = rows[i, j, k], here.sum()
            assert m == 0 or q > 0 or not (z[here] == k).any()
            rates.append(((z[here] == k).sum() - m * q) / max(np.sqrt(m * q * (1 - q)), 1e-3))
    assert np.abs(rates).max() < 6
    share = np.asarray(data.reward).sum() / 20_000
    assert abs(share - survival(env, env.expert)) < 6 * 0.5 / np.sqrt(20_000)
    again = env.log(key, 20_000).transitions
    assert all(np.array_equal(x, y) for x, y in zip(jax.tree.leaves(data), jax.tree.leaves(again), strict=True))


def test_dense_and_listed_give_the_same_log(package, key):
    package()
    one, two = (bm.envs.icu_sepsis(listed=listed).log(key, 200).transitions for listed in (False, True))
    for x, y in zip(jax.tree.leaves(one), jax.tree.leaves(two), strict=True):
        np.testing.assert_array_equal(x, y)


def test_long_episodes_are_truncated(package, key):
    rows = arrays()["tx_mat"]
    rows[:3] = 0.0
    rows[:3, :, 0] = 1.0  # nobody ever dies or survives
    package({"tx_mat": rows})
    env = bm.envs.icu_sepsis()
    assert env.optimum is None
    data = env.log(key, 3, max_steps=4).transitions
    np.testing.assert_array_equal(data.truncated, np.tile([0, 0, 0, 1], 3))
    assert not np.asarray(data.terminated).any()


def test_policies_of_a_log(package, key):
    package()
    env: Any = bm.envs.icu_sepsis()
    data = env.log(key, 50, [7, 24, 3, 0, 0]).transitions
    assert set(np.asarray(data.action)[np.asarray(data.state) == 0]) == {7}
    bm.envs.icu_sepsis(admissible_only=False).log(key, 5, env.raw_expert)
    for policy, sentence in (
        (env.raw_expert, r"policy\[0, 1\] is .*, expected 0 for an action that is not legal"),
        ([7, 24, 3, 0], r"policy has shape \(4,\), expected \(5,\) \(state\)"),
        ([7, 24, 25, 0, 0], r"policy\[2\] is 25, expected an action index from 0 to 24"),
        (np.zeros((5, 25)), r"policy\[0\] sums to 0, expected a row that sums to 1"),
        (np.zeros((4, 25)), r"policy has shape \(4, 25\), expected \(5, 25\)"),
    ):
        with pytest.raises(ValueError, match=sentence):
            env.log(key, 5, policy)
    with pytest.raises(ValueError, match="num_episodes is 0, expected an integer of at least 1"):
        env.log(key, 0)
    with pytest.raises(ValueError, match=r"num_episodes is 1000000000000, about .* of memory"):
        env.log(key, 10**12)
    with pytest.raises(ValueError, match="max_steps is 0, expected an integer of at least 1"):
        env.log(key, 1, max_steps=0)
    with pytest.raises(TypeError, match="key is 3, expected a typed key"):
        env.log(3, 5)


def test_a_draw_stays_in_its_row():
    """Zeros at both ends of a row, and the largest number that is drawn."""
    rows = np.array([[0.0, 0.3, 0.7, 0.0], [0.0, 0.0, 1.0, 0.0], [1.0, 0.0, 0.0, 0.0], [0.1] * 4])
    table = Inversion(rows)

    class Extreme(np.random.Generator):
        largest = False

        def integers(self, high, *, size) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
            return np.full(size, high - 1 if self.largest else 0)

    rng = Extreme(np.random.PCG64())
    np.testing.assert_array_equal(table.draw(rng, np.arange(4)), [1, 2, 0, 0])
    rng.largest = True
    np.testing.assert_array_equal(table.draw(rng, np.arange(4)), [2, 2, 0, 3])


def changed(name, at, value) -> dict[str, Any]:
    array = arrays()[name]
    array[at] = value
    return {name: array}


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        (
            changed("tx_mat", (2, 3, 0), 0.9),
            r"tx_mat of dynamics.npz\[2, 3\] sums to .*, expected a row that sums to 1",
        ),
        (changed("tx_mat", (0, 0, 0), np.nan), r"tx_mat of dynamics.npz\[0, 0, 0\] is nan, expected a probability"),
        (changed("tx_mat", (1, 0), np.eye(6)[5]), r"last state in tx_mat of dynamics.npz\[1\] is 1.0, expected 0"),
        ({"tx_mat": np.ones((6, 24, 6)) / 6}, r"tx_mat of dynamics.npz has shape \(6, 24, 6\), expected \(N, 25, N\)"),
        ({"tx_mat": np.ones((6, 25, 5)) / 5}, r"tx_mat of dynamics.npz has shape \(6, 25, 5\), expected \(N, 25, N\)"),
        ({"tx_mat": np.ones((3, 25, 3)) / 3}, r"tx_mat of dynamics.npz has shape \(3, 25, 3\), .* N at least 4"),
        ({"tx_mat": np.array(1.0)}, r"tx_mat of dynamics.npz has shape \(\), expected"),
        ({"tx_mat": np.array(["a"])}, r"tx_mat of dynamics.npz has dtype <U1, expected real numbers"),
        ({"tx_mat": np.array([{}])}, r"dynamics.npz of icu_sepsis cannot be read, expected arrays of numpy"),
        ({"d_0": np.full(6, 0.5)}, r"d_0 of dynamics.npz sums to 3, expected"),
        ({"d_0": np.eye(6)[4]}, r"d_0 of dynamics.npz beyond the patients is 1.0, expected 0"),
        ({"d_0": np.ones(1)}, r"d_0 of dynamics.npz has shape \(1,\), expected \(6,\)"),
        ({"expert_policy": np.ones((6, 5))}, r"expert_policy of dynamics.npz has shape \(6, 5\), expected \(6, 25\)"),
        (changed("expert_policy", 1, 0.5), r"expert_policy of dynamics.npz\[1\] sums to 12.5, expected a row"),
        (
            changed("expert_policy", 1, np.eye(25)[0]),
            r"expert_policy .*, summed over admissible actions,\[1\] is 0.0, expected more than 0",
        ),
    ],
)
def test_wrong_arrays_get_one_sentence(package, wrong, sentence):
    package(wrong)
    with pytest.raises(ValueError, match=sentence) as refused:
        bm.envs.icu_sepsis()
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", r"admissible_actions.txt has 0 lines, expected 7"),
        (text_of(LISTS[:-1]), r"has 6 lines, expected 7"),
        (text_of(LISTS).replace("2 1 3", "2 1", 1), r"line 1 has 5 counts, expected 6"),
        (text_of(LISTS).replace("2 1 3", "3 1 3", 1), r"line 2 has 2 actions, expected 3, as line 1 says,"),
        (text_of([[0, 7], [], *LISTS[2:]]), r"line 3 has 0 actions, expected at least one"),
        (text_of([[0, 7], [25], *LISTS[2:]]), r"line 3 has '25', expected whole numbers from 0 to 24"),
        (text_of([[0, 7], [-1], *LISTS[2:]]), r"line 3 has '-1', expected whole numbers from 0 to 24"),
        (text_of([[0, 7], ["x"], *LISTS[2:]]), r"line 3 has 'x', expected whole numbers from 0 to 24"),
        (text_of([[0, 0], *LISTS[1:]]), r"line 2 has 1 actions, expected 2, as line 1 says,"),
    ],
)
def test_wrong_lists_get_one_sentence(package, text, sentence):
    package(text=text)
    with pytest.raises(ValueError, match=sentence):
        bm.envs.icu_sepsis()


@pytest.mark.parametrize("name", ["dynamics.npz", "admissible_actions.txt"])
def test_a_missing_file_is_named(package, name):
    (package() / name).unlink()
    with pytest.raises(FileNotFoundError, match=rf"icu_sepsis has no file {name}.*, expected one: pip install"):
        bm.envs.icu_sepsis()


def test_other_files_are_refused(package):
    assets = package()
    np.savez(assets / "dynamics.npz", d_0=np.ones(6) / 6)
    with pytest.raises(ValueError, match=r"dynamics.npz of icu_sepsis has no array 'tx_mat', expected one"):
        bm.envs.icu_sepsis()
    with (assets / "dynamics.npz").open("wb") as file:
        np.save(file, np.ones(3))  # one array, no archive
    with pytest.raises(ValueError, match=r"dynamics.npz of icu_sepsis cannot be read"):
        bm.envs.icu_sepsis()
    for content in (b"", b"junk", b"PK\x03\x04 broken"):
        (assets / "dynamics.npz").write_bytes(content)
        with pytest.raises(ValueError, match=r"dynamics.npz of icu_sepsis cannot be read"):
            bm.envs.icu_sepsis()


def test_it_is_an_environment_like_others(package, key):
    package()
    env = ENVS["icu_sepsis"]()
    assert "icu_sepsis" in plot_env(env).axes[0].get_title()
    step = jax.jit(lambda env, key: env.step(key, 4, 0))(env, key)
    assert float(step[1]) == 1.0 and bool(step[2])


# ------------------------------------------------------------------------------------------------- the real package


@real
@pytest.mark.usefixtures("x64")
def test_the_published_sizes_and_exact_values():
    env = bm.envs.icu_sepsis()
    admissible, rows = np.asarray(env.admissible), np.asarray(env.mdp.transition_probs)
    assert env.space.shape == (715, 25) and admissible[:713].sum() == 2238
    number = (rows > 0).sum(-1)[:713][admissible[:713]]
    assert (number.min(), np.median(number), number.max(), number.sum()) == (3, 38, 189, 94970)
    assert (env.raw_expert * ~admissible)[:713].astype(bool).sum() == 7014
    for policy, value in ((env.uniform, 0.7800709046), (env.expert, 0.7820137550), (env.raw_expert, 0.7818448903)):
        assert survival(env, policy) == pytest.approx(value, abs=6e-11)
    for policy, value in ((env.uniform, 0.7190951), (env.raw_expert, 0.7221580)):
        assert survival(env, policy, 0.99) == pytest.approx(value, abs=6e-8)
    assert env.optimum == pytest.approx(0.8751416996, abs=6e-11)
    mean = np.full((715, 25), 1 / 25)  # inadmissible actions do the mean
    everything = bm.envs.icu_sepsis(admissible_only=False)
    assert survival(everything, mean) == pytest.approx(0.7800709046, abs=6e-11)


@pytest.mark.slow
@real
@pytest.mark.usefixtures("x64")
def test_planners_find_the_exact_values():  # half a minute: compilation
    env = bm.envs.icu_sepsis(listed=True)
    mdp, initial = env.mdp, np.asarray(env.mdp.initial)
    assert isinstance(mdp, SparseMDP) and mdp.successor.shape == (715, 25, 189)
    best = bm.solve(mdp, bm.FirstExit())
    assert initial @ np.asarray(best.v) == pytest.approx(0.8751416996, abs=6e-11)
    ends: Any = {"end_probs": mdp.end_probs, "legal": mdp.legal, "initial": mdp.initial}
    worst = bm.solve(SparseMDP(mdp.successor, mdp.probability, -mdp.reward, **ends), bm.FirstExit())
    assert -initial @ np.asarray(worst.v) == pytest.approx(0.6329899317, abs=6e-11)
    expert = bm.evaluate(mdp, env.expert, bm.FirstExit())
    assert initial @ np.asarray(expert.v) == pytest.approx(0.7820137550, abs=6e-11)
    later = bm.solve(mdp, bm.Discounted(0.99))
    assert initial @ np.asarray(later.v) == pytest.approx(0.99 * 0.8013344, abs=6e-8)


@real
def test_real_logs(key):
    """The share of survivors among 10,000 is 6 standard deviations of .0041 from .7820 with probability 2e-9."""
    env = bm.envs.icu_sepsis()
    data = env.log(key, 10_000).transitions
    assert abs(np.asarray(data.reward).sum() / 10_000 - 0.7820) < 6 * 0.0042
    length = len(np.asarray(data.state)) / 10_000 - 1  # death and survival are left in one step more
    assert length == pytest.approx(9.24, abs=0.5)
