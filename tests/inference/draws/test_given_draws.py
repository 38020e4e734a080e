"""Draws of other programs: every format is one posterior, every draw is used once, what is wrong is named."""

import jax
import numpy as np
import pandas as pd
import pytest
import xarray as xr

import bayes_mdp as bm
from bayes_mdp.inference import posterior_from_draws, storage
from bayes_mdp.inference.draws.given_draws import GivenDraws

KEY, OBJECTIVE, POLICY = jax.random.key(0), bm.Discounted(0.9), [0, 1, 0]
CHAINS, DRAWS, STATES, ACTIONS = 4, 30, 3, 2
_RNG = np.random.default_rng(0)
ROWS = _RNG.dirichlet(np.ones(STATES), (CHAINS, DRAWS, STATES, ACTIONS))
PAID = _RNG.normal(size=(CHAINS, DRAWS, STATES, ACTIONS))
NAMES, MOVES = ("well", "ill", "worse"), ("wait", "treat")


def dataset():
    """The draws as xarray has them, with labels; axes of the rewards in another order."""
    coords = {"s": list(NAMES), "a": list(MOVES), "to": list(NAMES)}
    paid = np.moveaxis(PAID, 2, 3)
    return xr.Dataset(
        {"P": (("chain", "draw", "s", "a", "to"), ROWS), "r": (("chain", "draw", "a", "s"), paid)}, coords
    )


def table(form):
    """The draws as columns, in a shuffled order: {chain: table}."""
    columns = {}
    for index in np.ndindex(STATES, ACTIONS, STATES):
        columns[form("P", index)] = ROWS[(slice(None), slice(None), *index)]
    for index in np.ndindex(STATES, ACTIONS):
        columns[form("r", index)] = PAID[(slice(None), slice(None), *index)]
    names = list(np.random.default_rng(1).permutation(list(columns)))
    return [pd.DataFrame({name: columns[name][chain] for name in names}) for chain in range(CHAINS)]


def stan(name, index):
    return ".".join([name, *(str(i + 1) for i in index)])


def in_r(name, index):
    return f"{name}[{','.join(str(i + 1) for i in index)}]"


def loop(policy=POLICY, rows=ROWS, paid=PAID):
    """The value of every draw by one linear system each, started uniformly."""
    place, values = np.arange(STATES), []
    for probs, reward in zip(rows.reshape(-1, *rows.shape[2:]), paid.reshape(-1, *paid.shape[2:]), strict=True):
        system = np.eye(STATES) - 0.9 * probs[place, policy][:, :STATES]
        values.append(np.linalg.solve(system, reward[place, policy]).mean())
    return np.array(values)


def every_format(folder):
    """{format: posterior}."""
    dims = {"state": "s", "action": "a", "outcome": "to"}
    whole = dataset()
    yield "arrays", posterior_from_draws({"P": ROWS, "r": PAID})
    yield (
        "arrays without chains",
        posterior_from_draws({"P": ROWS.reshape(-1, *ROWS.shape[2:]), "r": PAID.reshape(-1, 3, 2)}),
    )
    yield "dataset", posterior_from_draws(whole, dims=dims)
    whole.to_netcdf(folder / "plain.nc", engine="h5netcdf")
    yield "NetCDF", posterior_from_draws(folder / "plain.nc", dims=dims)
    whole.to_netcdf(folder / "arviz.nc", engine="h5netcdf", group="posterior")
    yield "ArviZ's file", posterior_from_draws(str(folder / "arviz.nc"), dims=dims)
    one_file = table(lambda name, index: f"{name}[{','.join(map(str, index))}]")
    pd.concat([each.assign(chain=i) for i, each in enumerate(one_file)]).to_csv(folder / "pymc.csv", index=False)
    yield "a table counted from 0", posterior_from_draws(folder / "pymc.csv")
    paths = []
    for chain, each in enumerate(table(stan)):
        paths.append(folder / f"out-{chain}.csv")
        text = each.assign(lp__=0.0).to_csv(index=False)
        paths[-1].write_text("# stan_version_major = 2\n" + text + "# Elapsed Time: 1 seconds\n")
    yield "Stan's files", posterior_from_draws(paths)
    parts = [each.assign(**{".chain": 1 + i, ".iteration": 1 + np.arange(DRAWS)}) for i, each in enumerate(table(in_r))]
    pd.concat(parts).to_csv(folder / "r.csv", index=False)
    yield "R's table", posterior_from_draws(folder / "r.csv")
    one_each = {f"P_{move}": ROWS[:, :, :, a] for a, move in enumerate(MOVES)}
    paid = {f"r_{move}": PAID[:, :, :, a] for a, move in enumerate(MOVES)}
    by_action = {move: f"P_{move}" for move in MOVES}, {move: f"r_{move}" for move in MOVES}
    yield "a variable for each action", posterior_from_draws({**one_each, **paid}, *by_action)


def test_every_format_gives_the_same_answers(tmp_path):
    """The value of every draw, by an independent loop; a policy that is chosen; the file of `save`."""
    expected, chosen = loop(), set()
    for name, posterior in every_format(tmp_path):
        draws = bm.policy_value(KEY, posterior, POLICY, OBJECTIVE).draws
        np.testing.assert_allclose(draws, expected, rtol=0, atol=1e-12, err_msg=name)
        chosen.add(
            tuple(
                np.asarray(
                    bm.choose(KEY, posterior, OBJECTIVE, options=bm.decisions.ChooseOptions(num_draws=60)).policy
                ).tolist()
            )
        )
        bm.save(posterior, tmp_path / "p.bmdp")
        again = bm.load(tmp_path / "p.bmdp")
        assert type(again) is GivenDraws
        assert np.array_equal(bm.policy_value(KEY, again, POLICY, OBJECTIVE).draws, draws)
    assert len(chosen) == 1


def test_labels_of_a_dataset_are_those_of_the_space():
    posterior = posterior_from_draws(dataset(), dims={"state": "s", "action": "a", "outcome": "to"})
    assert posterior.space.state_names == NAMES and posterior.space.action_names == MOVES
    by_label = {"well": "wait", "ill": "treat", "worse": "wait"}
    np.testing.assert_allclose(bm.policy_value(KEY, posterior, by_label, OBJECTIVE).draws, loop(), atol=1e-12)


def test_every_draw_is_used_once_and_fewer_are_spread_evenly():
    posterior = posterior_from_draws({"P": ROWS, "r": PAID})
    few = bm.policy_value(KEY, posterior, POLICY, OBJECTIVE, num_draws=40).draws
    np.testing.assert_allclose(few, loop()[::3], atol=1e-12)
    comparison = bm.compare_policies(KEY, posterior, {"a": POLICY, "b": [1, 1, 1]}, OBJECTIVE)
    np.testing.assert_allclose(comparison.difference("a", "b").draws, loop() - loop([1, 1, 1]), atol=1e-12)


def test_what_chooses_does_not_judge():
    """All 8 policies by a loop: the best of the even draws, judged by the odd ones."""
    posterior = posterior_from_draws({"P": ROWS, "r": PAID})
    values = {policy: loop(list(policy)) for policy in np.ndindex(2, 2, 2)}
    best = max(values, key=lambda policy: values[policy][::2].mean())
    choice = bm.choose(KEY, posterior, OBJECTIVE, options=bm.decisions.ChooseOptions(num_draws=1000))
    assert tuple(np.asarray(choice.policy).tolist()) == best
    np.testing.assert_allclose(choice.value.draws, values[best][1::2], atol=1e-10)


def test_regret_and_probabilities_of_being_optimal():
    posterior = posterior_from_draws({"P": ROWS, "r": PAID})
    every = np.stack([loop(list(policy)) for policy in np.ndindex(2, 2, 2)])
    found = bm.information.expected_regret(KEY, posterior, OBJECTIVE, policy=POLICY)
    np.testing.assert_allclose(found.draws, every.max(0) - loop(), atol=1e-9)
    assert bm.information.probability_optimal(KEY, posterior, OBJECTIVE).attrs["num_draws"] == CHAINS * DRAWS


def test_ends_horizons_known_rewards_and_illegal_pairs():
    rows = np.random.default_rng(2).dirichlet(np.ones(4), (50, 3, 2))
    known = np.arange(6.0).reshape(3, 2)
    ending = posterior_from_draws({"P": rows}, reward=known)
    assert ending.space.ends and ending.num_held == 50
    np.testing.assert_allclose(
        bm.policy_value(KEY, ending, POLICY, OBJECTIVE).draws,
        loop(rows=rows[None], paid=np.broadcast_to(known, (1, 50, 3, 2))),
        atol=1e-12,
    )
    steps = np.random.default_rng(3).dirichlet(np.ones(3), (2, 20, 2, 3, 2))
    stepped = posterior_from_draws({"P": steps}, reward=np.ones((2, 3, 2)), space=bm.StateActionSpace(3, 2, horizon=2))
    np.testing.assert_allclose(bm.policy_value(KEY, stepped, np.zeros((2, 3), int), bm.Episodic(2)).draws, 2.0)
    legal = np.array([[True, True], [True, False], [True, True]])
    gaps = ROWS.copy()
    gaps[:, :, 1, 1] = np.nan
    partly = posterior_from_draws({"P": gaps, "r": PAID}, space=bm.StateActionSpace(3, 2, legal=legal))
    np.testing.assert_allclose(bm.policy_value(KEY, partly, [0, 0, 0], OBJECTIVE).draws, loop([0, 0, 0]), atol=1e-12)


def test_it_goes_to_arviz_and_says_what_it_is():
    posterior = posterior_from_draws({"P": ROWS, "r": PAID})
    group = bm.to_arviz(posterior)["posterior"]
    np.testing.assert_allclose(np.asarray(group["transition_probs"]), ROWS, atol=1e-15)
    assert group["reward_mean"].dims == ("chain", "draw", "state", "action")
    assert bm.to_arviz(posterior, num_draws=40)["posterior"].sizes["draw"] == 10
    assert "120 draws (4 chains of 30)" in str(posterior) and "not known" in str(posterior)


def test_what_arviz_holds_comes_back():
    """InferenceData (ArviZ 0.x) or DataTree (1.x), with labels."""
    posterior = posterior_from_draws(dataset(), dims={"state": "s", "action": "a", "outcome": "to"})
    again = posterior_from_draws(bm.to_arviz(posterior), "transition_probs", "reward_mean")
    assert again.space.state_names == NAMES and again.num_chains == CHAINS
    np.testing.assert_allclose(bm.policy_value(KEY, again, POLICY, OBJECTIVE).draws, loop(), atol=1e-12)


def test_places_of_listed_successors_are_no_states():
    listed = np.array([[[2, 0, 1], [1, 2, -1]], [[0, 1, -1], [2, 1, 0]], [[2, -1, -1], [1, 0, -1]]])
    paid = np.arange(6.0).reshape(3, 2)
    space = bm.StateActionSpace(3, 2, successors=listed, states=("a", "b", "c"))
    belief = bm.infer(jax.random.key(0), bm.models.known_rewards(paid), space=space)
    draws = bm.to_arviz(belief, num_draws=20)
    rows = np.asarray(draws["posterior"]["transition_probs"]).reshape(20, 3, 2, 3)
    dense = np.zeros((20, 3, 2, 3))
    for s, a, k in np.argwhere(listed >= 0):
        dense[:, s, a, listed[s, a, k]] = rows[:, s, a, k]
    given = posterior_from_draws(draws, "transition_probs", paid, space=space)
    by_hand = posterior_from_draws({"P": dense}, reward=paid)
    values = [
        bm.policy_value(jax.random.key(0), each, [0, 1, 0], bm.Discounted(0.9)).draws for each in (given, by_hand)
    ]
    np.testing.assert_allclose(values[0].ravel(), values[1].ravel(), rtol=1e-5)
    other = bm.StateActionSpace(3, 2, successors=listed[..., ::-1], states=("a", "b", "c"))
    for wrong in (None, bm.StateActionSpace(3, 2, states=("a", "b", "c")), other):
        with pytest.raises(ValueError, match="places of listed successors as outcomes"):
            posterior_from_draws(draws, "transition_probs", paid, space=wrong)


def test_chains_that_disagree_are_named():
    """One chain elsewhere: r-hat sees it; chains of one law are not called so."""
    rng = np.random.default_rng(4)
    alike = rng.dirichlet([20.0] * 3, (4, 500, 3, 2))
    assert posterior_from_draws({"P": alike}, reward=np.zeros((3, 2))).problems() == []
    apart = alike.copy()
    apart[0] = rng.dirichlet([40.0, 20.0, 20.0], (500, 3, 2))
    assert "chains disagree" in posterior_from_draws({"P": apart}, reward=np.zeros((3, 2))).problems()[0]


def changed(row):
    """The draws with another row in one place."""
    rows = ROWS.copy()
    rows[2, 7, 1, 0] = row
    return {"P": rows, "r": PAID}


BAD = {
    "a row that sums to 1.1": (
        lambda: (changed(row=[0.5, 0.3, 0.3]),),
        r"chain 2, draw 7, state 1, action 0 sums to 1\.1",
    ),
    "a negative entry": (lambda: (changed(row=[1.2, -0.2, 0.0]),), r"chain 2, draw 7, state 1, action 0 has -0\.2"),
    "a nan": (lambda: (changed(row=np.nan),), r"chain 2, draw 7, state 1, action 0 is not finite"),
    "no such variable": (lambda: ({"Q": ROWS},), "transition is 'P', expected a variable of the draws, which have Q"),
    "too few axes": (lambda: ({"P": ROWS[0, 0, 0]},), r"expected draw, state, action, outcome or chain"),
    "outcomes": (lambda: ({"P": ROWS[..., :1], "r": PAID},), "has 3 states and 1 outcomes"),
    "lengths": (lambda: ({"P": ROWS, "r": PAID[:, :10]},), "reward has shape"),
    "dims": (lambda: (dataset(), "P", "r"), None),
}


@pytest.mark.parametrize("case", BAD)
def test_what_is_wrong_is_named(case):
    make, says = BAD[case]
    if says is None:  # rewards whose axes have another order, without dims=
        says = "labels|reward"
    with pytest.raises(ValueError, match=says):
        posterior_from_draws(*make())


def test_files_that_do_not_fit(tmp_path):
    one, two, *_ = table(stan)
    one.to_csv(tmp_path / "1.csv", index=False)
    two[:20].to_csv(tmp_path / "2.csv", index=False)
    with pytest.raises(ValueError, match="has 20 in chain 2 and 30 in chain 1"):
        posterior_from_draws([tmp_path / "1.csv", tmp_path / "2.csv"])
    for wrong in (
        one.drop(columns="P.2.1.3"),
        one.rename(columns={"P.1.1.1": "P.1.1.0"}),
        one.rename(columns={"P.1.1.1": "P.1"}),
    ):
        wrong.to_csv(tmp_path / "3.csv", index=False)
        with pytest.raises(ValueError, match=r"has 1[78] columns of 'P', expected one for each index from 1"):
            posterior_from_draws(tmp_path / "3.csv")
    (tmp_path / "4.nc").write_text("nothing")
    with pytest.raises(ValueError, match="expected a NetCDF file of draws"):
        posterior_from_draws(tmp_path / "4.nc")
    with pytest.raises(FileNotFoundError, match="which is not there"):
        posterior_from_draws(tmp_path / "5.csv")
    with pytest.raises(TypeError, match="draws is 3, expected arrays by name"):
        posterior_from_draws(3)  # type: ignore[arg-type] - a wrong one


def of_stan(folder, name, *, warm=0, before=(), method="sample", rows=None):
    """A file as Stan writes it: the first `warm` draws before the line on adaptation, `before` in front of all."""
    header, *lines = (table(stan)[0] if rows is None else rows).to_csv(index=False).splitlines()
    said = [f"# method = {method} (Default)", f"#     save_warmup = {'true' if warm else 'false (Default)'}"]
    adapted = ["# Adaptation terminated", "# Step size = 0.8"] if method == "sample" else []
    (folder / name).write_text("\n".join([*said, header, *before, *lines[:warm], *adapted, *lines[warm:]]) + "\n")
    return folder / name


def test_rows_of_stan_that_are_no_draws_are_left_out(tmp_path):
    expected = loop(rows=ROWS[:1], paid=PAID[:1])

    def draws(path):
        return bm.policy_value(KEY, posterior_from_draws(path), POLICY, OBJECTIVE).draws

    np.testing.assert_allclose(draws(of_stan(tmp_path, "all.csv")), expected, atol=1e-12)
    np.testing.assert_allclose(draws(of_stan(tmp_path, "warm.csv", warm=12)), expected[12:], atol=1e-12)
    # A variational fit has its mean in front.
    mean = table(stan)[0].mean().to_frame().T.to_csv(index=False, header=False).strip()
    fit = of_stan(tmp_path, "fit.csv", before=[mean], method="variational")
    np.testing.assert_allclose(draws(fit), expected, atol=1e-12)
    with pytest.raises(ValueError, match=r"best\.csv is an optimum, a single point, expected draws"):
        draws(of_stan(tmp_path, "best.csv", method="optimize", rows=table(stan)[0][:1]))
    text = (tmp_path / "warm.csv").read_text()
    (tmp_path / "stopped.csv").write_text(text[: text.index("# Adaptation")])
    with pytest.raises(ValueError, match=r"stopped\.csv was written with save_warmup, and does not say where"):
        draws(tmp_path / "stopped.csv")


def test_chains_and_iterations_of_tables(tmp_path):
    parts = [each.assign(**{".chain": 1 + i, ".iteration": 1 + np.arange(DRAWS)}) for i, each in enumerate(table(in_r))]
    expected = loop()
    pd.concat(parts).sample(frac=1.0, random_state=0).to_csv(tmp_path / "shuffled.csv", index=False)
    pd.concat(parts[:2]).to_csv(tmp_path / "a.csv", index=False)
    pd.concat(parts[2:]).to_csv(tmp_path / "b.csv", index=False)
    for source in (tmp_path / "shuffled.csv", [tmp_path / "a.csv", tmp_path / "b.csv"]):
        posterior = posterior_from_draws(source)
        np.testing.assert_allclose(bm.policy_value(KEY, posterior, POLICY, OBJECTIVE).draws, expected, atol=1e-12)
        assert "4 chains of 30" in str(posterior)
    # Chains without a name are one below the other, not interleaved.
    pd.concat(parts).drop(columns=".chain").to_csv(tmp_path / "no_chain.csv", index=False)
    whole = posterior_from_draws(tmp_path / "no_chain.csv")
    np.testing.assert_allclose(bm.policy_value(KEY, whole, POLICY, OBJECTIVE).draws, expected, atol=1e-12)
    parts[0].assign(**{".log_weight": 0.5}).to_csv(tmp_path / "weighted.csv", index=False)
    with pytest.raises(
        ValueError, match=r"weighted\.csv has the column '\.log_weight', expected draws of equal weight"
    ):
        posterior_from_draws(tmp_path / "weighted.csv")


def test_axes_of_a_dataset_are_told_by_their_names():
    """Three states and three actions: an axis that is taken for another one has the right size."""
    rng = np.random.default_rng(2)
    rows, paid = rng.dirichlet(np.ones(3), (2, 20, 3, 3)), rng.normal(size=(2, 20, 3, 3))
    axes = ("chain", "draw", "state", "action")
    whole = xr.Dataset({"P": ((*axes, "to"), rows), "r": (axes, paid)})
    expected = loop([0, 2, 1], rows, paid)
    for order in (("state", "action", "to"), ("action", "state", "to"), ("to", "action", "state")):
        turned = whole.transpose("chain", "draw", *order)
        draws = bm.policy_value(KEY, posterior_from_draws(turned), [0, 2, 1], OBJECTIVE).draws
        np.testing.assert_allclose(draws, expected, atol=1e-12)
    with pytest.raises(ValueError, match="dims names the axes of 'P', which has none"):
        posterior_from_draws({"P": rows, "r": paid}, dims={"state": "s", "action": "a", "outcome": "to"})


def test_names_that_clash_are_refused():
    space = bm.StateActionSpace(3, 2, states=("well", "worse", "ill"), actions=MOVES)
    with pytest.raises(ValueError, match="labels of 's'"):
        posterior_from_draws(dataset(), dims={"state": "s", "action": "a", "outcome": "to"}, space=space)
    turned = dataset().assign_coords(to=["ill", "well", "worse"])
    with pytest.raises(ValueError, match="labels of 'to'"):
        posterior_from_draws(turned, dims={"state": "s", "action": "a", "outcome": "to"})


def test_labels_of_two_axes_that_clash_are_refused():
    """A dataset that calls its next states otherwise than its states; and labels that are given twice."""
    turned = dataset().assign_coords(s=["well", "well", "worse"])
    with pytest.raises(ValueError, match="states"):
        posterior_from_draws(turned, dims={"state": "s", "action": "a", "outcome": "to"})


def autocorrelated(rho, chains=4, draws=400, seed=5):
    """Rows of one state and action with an end, whose probability is an AR(1) process on the scale of log odds."""
    rng = np.random.default_rng(seed)
    walk = np.zeros((chains, draws))
    walk[:, 0] = rng.normal(size=chains)
    for i in range(1, draws):
        walk[:, i] = rho * walk[:, i - 1] + np.sqrt(1 - rho**2) * rng.normal(size=chains)
    go_on = 1 / (1 + np.exp(-0.1 * walk))
    return posterior_from_draws({"P": np.stack([go_on, 1 - go_on], -1)[:, :, None, None]}, reward=np.ones((1, 1)))


def test_the_error_is_that_of_the_effective_number_of_draws():
    """As ArviZ has it, for each of the numbers that are printed; about N (1 - rho) / (1 + rho) of an AR(1) process.

    Independent draws count whole. An error of all draws would be 3 times too small at rho .8.
    """
    import arviz as az

    for rho, share in ((0.0, 1.0), (0.8, 1 / 9)):
        posterior = autocorrelated(rho)
        value = bm.policy_value(KEY, posterior, [0], OBJECTIVE)
        theirs = float(az.ess(value.draws.reshape(4, -1), method="mean"))
        ours = len(value.draws) if value.effective is None else value.effective
        assert ours == pytest.approx(min(theirs, 1600), rel=0.05)
        assert ours == pytest.approx(1600 * share, rel=0.35)
        assert value.error == pytest.approx(value.sd / ours**0.5)
        loss = bm.information.expected_regret(KEY, posterior, OBJECTIVE, policy=[0])
        assert loss.standard_error == 0  # one policy
    assert "the error is that of" in str(value) and f"{value.error:.2g}" in str(value)


def test_halves_and_fewer_draws_keep_their_chains():
    posterior = autocorrelated(0.8, draws=401)
    first, second = posterior.halves()
    assert (first.num_held, second.num_held, first.num_chains) == (804, 800, 4)
    rows = np.asarray(posterior.by_chain()["transition_probs"])
    assert np.array_equal(first.by_chain()["transition_probs"], rows[:, ::2])
    few = posterior.thinned(103)
    assert few.num_held == 100 and few.num_chains == 4
    assert posterior.thinned(3).num_held == 3


def test_a_promise_allows_for_autocorrelation():
    """P(no worse) of 75 of 75 draws: .94 of independent ones, less of draws that are worth fewer."""
    from bayes_mdp.decisions.choosing.criteria import Improvement

    sure = [Improvement(np.ones(75), 0.0, 0.9, worth=worth).prob_at_least for worth in (1.0, 0.5, 0.1)]
    assert sure == sorted(sure, reverse=True)
    assert sure[0] == pytest.approx(0.01 ** (1 / 75)) and sure[1] == pytest.approx(0.01 ** (2 / 75))
    choice = bm.choose(KEY, two_arms(0.95), bm.Discounted(0.5), baseline=[0])
    assert choice.improvement is not None and choice.improvement.worth < 0.3


def two_arms(rho):
    """Two actions, one state; the reward of the second is an AR(1) process around what the first pays."""
    rng = np.random.default_rng(1)
    walk = np.zeros((4, 200))
    for i in range(1, 200):
        walk[:, i] = rho * walk[:, i - 1] + rng.normal(size=4)
    paid = np.stack([np.zeros_like(walk), 0.2 * walk + 3], -1)[:, :, None]
    return posterior_from_draws({"P": np.ones((4, 200, 1, 2, 1)), "r": paid})


def test_a_numpyro_fit_through_three_files_is_one_decision(tmp_path):
    """The same chains as arrays, as ArviZ's file, and as CSV of every form: values and choice to 1e-12."""
    import arviz as az
    import jax.numpy as jnp
    import numpyro
    import numpyro.distributions as dist
    from numpyro.infer import MCMC, NUTS

    counts = np.array([[[8, 2], [3, 7]], [[1, 9], [6, 4]]])

    def model():
        rows = numpyro.sample("P", dist.Dirichlet(jnp.ones((2, 2, 2))).to_event(2))
        numpyro.sample("r", dist.Normal(jnp.array([[1.0, 0.8], [0.0, -0.2]]), 0.1).to_event(2))
        numpyro.sample("n", dist.Multinomial(total_count=counts.sum(-1), probs=rows).to_event(2), obs=counts)

    fit = MCMC(
        NUTS(model), num_warmup=100, num_samples=100, num_chains=2, chain_method="sequential", progress_bar=False
    )
    fit.run(KEY)
    drawn = {name: np.asarray(x, np.float64) for name, x in fit.get_samples(group_by_chain=True).items()}
    drawn["P"] /= drawn["P"].sum(-1, keepdims=True)
    posteriors = {"NumPyro": posterior_from_draws(drawn)}
    path = tmp_path / "fit.nc"
    old = az.__version__ < "1"
    kept = az.from_dict(posterior=drawn) if old else az.from_dict({"posterior": drawn})
    kept.to_netcdf(str(path), engine="h5netcdf")
    posteriors["InferenceData"] = posterior_from_draws(path)
    for form in (stan, in_r):
        paths = []
        for chain in range(2):
            columns = {form("P", i): drawn["P"][(chain, slice(None), *i)] for i in np.ndindex(2, 2, 2)}
            columns |= {form("r", i): drawn["r"][(chain, slice(None), *i)] for i in np.ndindex(2, 2)}
            paths.append(tmp_path / f"{form.__name__}-{chain}.csv")
            pd.DataFrame(columns).to_csv(paths[-1], index=False)
        posteriors[form.__name__] = posterior_from_draws(paths)
    choices = {name: bm.choose(KEY, p, OBJECTIVE, baseline=[0, 0]) for name, p in posteriors.items()}
    first = choices["NumPyro"]
    for name, choice in choices.items():
        assert np.array_equal(choice.policy, first.policy), name
        np.testing.assert_allclose(choice.value.draws, first.value.draws, rtol=0, atol=1e-12, err_msg=name)
        assert choice.score == pytest.approx(first.score, abs=1e-12) and choice.abstained == first.abstained


def test_worth_of_weighted_draws_is_kept(tmp_path, monkeypatch):
    """By halves, thinner ones and files; a file that was written before it knew says that each is worth one."""
    given = bm.posterior_from_draws({"P": np.full((2, 40, 1, 1, 1), 1.0), "r": np.zeros((2, 40, 1, 1))})
    worth = GivenDraws(given.mdps, given.weights, given.space, given.num_chains, 0.25)
    values = np.random.default_rng(0).normal(size=80)
    assert worth.effective_number(values) <= 20
    for part in (*worth.halves(), worth.thinned(10), worth.thinned(1)):
        assert part.effective_number(np.zeros(part.num_held)) == part.num_held / 4
    bm.save(worth, tmp_path / "worth.bmdp")
    assert bm.load(tmp_path / "worth.bmdp").worth_each == 0.25
    # As an older version wrote it: without the field.
    encode = storage._encode

    def encode_before(value, name, arrays):
        encoded = encode(value, name, arrays)
        if isinstance(encoded, dict) and encoded.get("record") == "GivenDraws":
            encoded["fields"].pop("worth_each")
        return encoded

    monkeypatch.setattr(storage, "_encode", encode_before)
    bm.save(worth, tmp_path / "before.bmdp")
    assert bm.load(tmp_path / "before.bmdp").worth_each == 1.0
