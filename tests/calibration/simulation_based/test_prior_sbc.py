"""Simulation-based calibration: what it passes, what it sees, what it cannot see; its door, its file, its words."""

from dataclasses import replace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
import xarray as xr

from bayes_mdp.calibration.simulation_based import prior_sbc
from bayes_mdp.calibration.simulation_based import prior_sbc as module
from bayes_mdp.calibration.simulation_based.prior_sbc import SbcOptions, dataset_of, sampler, sbc
from bayes_mdp.calibration.simulation_based.quantities import default_quantities
from bayes_mdp.calibration.simulation_based.ranks import Design, StagedSimulation, Truth, simulation
from bayes_mdp.calibration.simulation_based.sbc_result import SBC
from bayes_mdp.inference.compiled_fit import Fit
from bayes_mdp.inference.draws.methods import NUTS
from bayes_mdp.inference.fitted import Law
from bayes_mdp.inference.mixtures import Mixture
from bayes_mdp.inference.route import fit_for
from bayes_mdp.mdp import AverageReward, Discounted, StateActionSpace
from bayes_mdp.models.mdp_spec import MDPSpec, RewardTable
from bayes_mdp.utils import memory
from bayes_mdp.utils.layout import Table
from tests.calibration import twins

NUM, DRAWS, STEPS = 2048, 60, 12


def unused(space: StateActionSpace) -> MDPSpec:
    """A prior that nothing draws from."""
    raise AssertionError(space)


SEEN = {name for name in twins.FAULTS if name not in ("none", "too_concentrated")}


@pytest.fixture(scope="module")
def verdicts():
    """Fault -> `SBC` of the twin: the same 2,048 truths and data, drawn by NumPy, for all of them."""
    rng = np.random.default_rng(3)
    mdps = twins.draw_mdps(rng, NUM)
    data = twins.draw_transitions(rng, mdps, STEPS)
    wanted = ("transition", "reward", "reward_noise", "log_likelihood")
    quantities = {name: default_quantities(twins.SPACE)[name] for name in wanted}
    design = Design(unused, twins.SPACE, DRAWS, STEPS, quantities, None, Discounted(0.9))

    def one(key, fault, mdp, transitions):
        rows, mean, precision = (jnp.asarray(x, float) for x in mdp)
        law = Law(rows, RewardTable(dist.Normal(mean, precision**-0.5), None, False))
        given = design._replace(draw_truth=lambda *keys: Truth(law, {}, transitions))
        simulated = simulation(given, twins.twin(fault))
        assert not isinstance(simulated, StagedSimulation)
        return simulated(key)

    run = jax.jit(jax.vmap(one, (0, None, 0, 0)))
    keys = jax.random.split(jax.random.key(5), NUM)
    attributes = {"method": "exact", "num_draws": str(DRAWS), "num_transitions": str(STEPS)}
    return {
        name: SBC(dataset_of(run(keys, number, mdps, data), 0, attributes)) for number, name in enumerate(twins.FAULTS)
    }


def test_the_exact_posterior_passes(verdicts):
    """The posterior of the library under truths of NumPy. False alarm 1e-6; sees a standard deviation that is off by
    19 % or a shift of 0.2 of it with probability 0.95 (`detectable`, tested in test_ecdf)."""
    assert verdicts["none"].passed, str(verdicts["none"])
    assert verdicts["none"].detectable.narrow > 0.8
    assert "no fault seen (false alarm 1e-06 over 4 quantities)" in str(verdicts["none"])


@pytest.mark.parametrize("fault", sorted(SEEN))
def test_a_broken_twin_fails(verdicts, fault):
    """Each of six faults is seen by the joint log-likelihood of the data. Fixed data; false alarm 1e-6."""
    assert "log_likelihood" in verdicts[fault].failures


def test_ten_percent_of_concentration_is_not_seen(verdicts):
    """Draws 10 % too concentrated pass 2,048 simulations: their standard deviation is off by 3 %, far less than what is
    detectable. The moment check of the draws sees them (test_moment_checks)."""
    assert verdicts["too_concentrated"].passed
    assert verdicts["too_concentrated"].detectable.narrow < 0.95


def test_the_words_name_the_fault(verdicts):
    """Too narrow, biased, data overused, data ignored."""
    assert "too narrow" in verdicts["divided_twice"].failures["reward"]
    assert "overused" in verdicts["counts_inflated"].failures["log_likelihood"]
    assert "biased: draws too high" in verdicts["wrong_rate"].failures["reward_noise"]
    returned = verdicts["prior_returned"]
    assert set(returned.failures) == {"log_likelihood"}  # parameters alone cannot tell the prior from the posterior
    assert "data are ignored" in str(returned)
    assert "does not depend on the data" in str(returned)
    assert not verdicts["divided_twice"].ignores_data


def test_pictures_and_groups(verdicts, arviz):
    """The installed ArviZ reads the group `prior_sbc`; the picture has a panel for each quantity."""
    result = verdicts["divided_twice"]
    group = result.to_arviz()["prior_sbc"]
    assert set(group.data_vars) == {"transition", "reward", "reward_noise", "log_likelihood"}
    assert group["reward"].dims == ("chain", "draw")
    assert 0 < float(group["reward"].min()) < float(group["reward"].max()) < 1
    assert len([panel for panel in result.plot_ecdf().axes if panel.get_visible()]) == 4


def known_rows(space):
    """Rows are known, the mean reward is N(0, 1), its noise has variance 1: nothing but normal draws to compile."""
    with space.plates():
        reward = numpyro.sample("reward", dist.Normal(0.0, 1.0))
    return MDPSpec(jnp.full((2, 1, 2), 0.5), dist.Normal(reward, 1.0))


ONE_ACTION = StateActionSpace(2, 1)
REWARD = {"reward": lambda drawn: drawn.mdp.reward[0, 0], "row": lambda drawn: drawn.mdp.transition_probs[0, 0, 0]}


def _sbc(number, path=None, seed=0, draws=20):
    options = SbcOptions(num_draws=draws, num_transitions=4, quantities=REWARD)
    return sbc(jax.random.key(seed), known_rows, ONE_ACTION, num_simulations=number, path=path, options=options)


def test_the_door():
    """Chunks are joined; a quantity that is known is not judged."""
    result = _sbc(70)
    assert result.num_simulations == 70
    assert result.dataset.simulation.values.tolist() == list(range(70))
    assert result.judged == ("reward",)
    assert result.passed
    (shown,) = [part for part in result.layout().parts if isinstance(part, Table)]
    assert shown.rows[1] == ("row", "-", "the same in every truth, not tested")


@pytest.mark.slow
def test_finished_simulations_are_resumed(tmp_path, monkeypatch):
    """A stopped run goes on from its file, with the same answer as one that was never stopped."""
    monkeypatch.setattr(module, "CHUNK", 8)
    whole = _sbc(14)
    path = tmp_path / "sbc.nc"
    _sbc(8, path)
    fits = []
    monkeypatch.setattr(module, "dataset_of", lambda *args, real=module.dataset_of: fits.append(args[1]) or real(*args))
    resumed = _sbc(14, path)
    assert fits == [8]
    np.testing.assert_array_equal(resumed.dataset["rank"], whole.dataset["rank"])
    with pytest.raises(ValueError, match="path holds simulations of another key,"):
        _sbc(14, path, seed=1)
    with pytest.raises(ValueError, match="path holds simulations with num_draws '20' not '30'"):
        _sbc(14, path, draws=30)


@pytest.mark.slow
def test_an_interrupted_run_keeps_its_chunks(tmp_path, monkeypatch):
    """Ctrl-C in the third chunk: two are in the file."""
    monkeypatch.setattr(module, "CHUNK", 4)
    monkeypatch.setattr(module, "WRITE_EVERY", 0.0)

    def stop(ranks, start, attributes, real=module.dataset_of):
        if start == 8:
            raise KeyboardInterrupt
        return real(ranks, start, attributes)

    monkeypatch.setattr(module, "dataset_of", stop)
    path = tmp_path / "sbc.nc"
    with pytest.raises(KeyboardInterrupt):
        _sbc(16, path)
    assert xr.load_dataset(path).sizes["simulation"] == 8


def test_bad_input_gets_one_sentence():
    """The argument, what was there, what was expected."""
    key = jax.random.key(0)
    with pytest.raises(ValueError, match="num_simulations is 0, expected an integer of at least 1"):
        sbc(key, known_rows, ONE_ACTION, num_simulations=0)
    with pytest.raises(ValueError, match=r"objective is AverageReward\(\) and episodes can end"):
        sbc(key, known_rows, StateActionSpace(2, 1, ends=True), objective=AverageReward())
    with pytest.raises(ValueError, match=r"quantities\['rows'\] gives an array of shape \(2, 1, 2\)"):
        sbc(
            key,
            known_rows,
            ONE_ACTION,
            options=SbcOptions(quantities={"rows": lambda drawn: drawn.mdp.transition_probs}),
        )
    with pytest.raises(ValueError, match="false_alarm is 2, expected a probability"):
        SBC(None, 2)  # pyright: ignore[reportArgumentType]


def test_chains_behind_a_name_are_those_of_the_simulations():
    """A name leads to the sampler that is given, a record to itself."""
    short = sampler(60)
    assert (short.num_chains, short.num_samples) == (1, 240)
    assert fit_for(known_rows, ONE_ACTION, "nuts", sampler=short) is fit_for(known_rows, ONE_ACTION, short)
    assert fit_for(known_rows, ONE_ACTION, NUTS(), sampler=short) is fit_for(known_rows, ONE_ACTION, "nuts")


def test_a_truth_that_is_no_number_is_not_passed_over():
    """One of forty truths is not finite: the quantity fails, whatever its ranks say; a constant one is not judged."""
    rng = np.random.default_rng(0)
    truth = np.stack([rng.normal(size=40), np.full(40, 0.3), rng.normal(size=40)], axis=-1)
    truth[7, 0] = np.nan
    each = ("simulation", "quantity")
    columns = {"rank": (each, rng.integers(0, 21, (40, 3))), "truth": (each, truth), "mean": (each, 0 * truth)}
    data = xr.Dataset({**columns, "finite": (each, np.isfinite(truth))}, {"quantity": ["a", "b", "c"]})
    result = SBC(data.assign_attrs(num_draws="20"))
    assert result.judged == ("a", "c")
    assert result.failures == {"a": "not a number in 1 of 40 simulations"}


@pytest.mark.slow
def test_another_fit_can_be_judged():
    """A `Fit` in place of a method: here one that answers with the prior; posterior means then do not move at all."""
    right = fit_for(known_rows, ONE_ACTION)
    prior = right.on_host(jax.random.key(0), None)
    ignorant = Fit("exact", ONE_ACTION, lambda transitions: transitions, lambda key, data: prior, right.on_host)
    quantities = {**REWARD, "log_likelihood": lambda drawn: drawn.log_likelihood}
    result = sbc(
        jax.random.key(0),
        known_rows,
        ONE_ACTION,
        options=SbcOptions(method=ignorant, quantities=quantities, num_transitions=30),
    )
    assert set(result.failures) == {"log_likelihood"}
    assert result.at(0.5).false_alarm == 0.5


def two_kinds(space):
    """Rows of one of two kinds, the same for all pairs."""
    kind = numpyro.sample("kind", dist.Bernoulli(0.4))
    with space.plates():
        rows = numpyro.sample("rows", dist.Dirichlet(jnp.where(kind == 1, 6.0, 0.2) * jnp.ones(space.n_outcomes)))
        win = numpyro.sample("win", dist.Beta(1.0, 1.0))
    return MDPSpec(rows, dist.Bernoulli(win))


def test_a_discrete_site_of_a_mixture_is_a_quantity():
    """As the page says of every scalar unknown."""
    space, key = StateActionSpace(4, 1), jax.random.key(0)
    right = fit_for(two_kinds, space)
    staged = simulation(Design(two_kinds, space, 15, 24, None, None, Discounted(0.9)), right)
    assert isinstance(staged, StagedSimulation)  # the integral of the site is on the host
    simulated = jax.jit(staged.simulate)(key)
    names = jax.eval_shape(staged.examine, key, simulated, *staged.infer(key, simulated.data))
    assert set(names) == {*default_quantities(space), "kind"}


@pytest.mark.slow
def test_the_weights_of_a_mixture_are_seen_by_its_site():
    """A twin that gives the values of the site each other's weights fails."""
    space, key = StateActionSpace(4, 1), jax.random.key(0)
    right = fit_for(two_kinds, space)

    def turned(key, data, num):
        assert right.draws_on_host is not None
        posterior = right.draws_on_host(key, data, num)
        assert isinstance(posterior, Mixture) and posterior.log_weights is not None
        return eqx.tree_at(lambda m: m.log_weights, posterior, posterior.log_weights[::-1])

    options = SbcOptions(31, 24, right, {"kind": lambda drawn: drawn.sites["kind"]})
    result = sbc(key, two_kinds, space, num_simulations=64, options=options)
    assert result.passed and set(np.unique(result.dataset.truth)) == {0.0, 1.0}
    assert not sbc(
        key, two_kinds, space, num_simulations=64, options=replace(options, method=replace(right, draws_on_host=turned))
    ).passed


def test_draws_that_would_not_fit_in_memory_are_refused(monkeypatch):
    monkeypatch.setattr(memory, "NEGLIGIBLE", 0)
    monkeypatch.setattr(memory, "free_bytes", lambda: 2**12)
    design = Design(unused, StateActionSpace(3, 2), 100, 50, None, None, Discounted(0.9))
    with pytest.raises(ValueError, match=r"^num_draws is 100, about .* MiB of memory, expected at most .* fewer draws"):
        prior_sbc._chunk(design)
