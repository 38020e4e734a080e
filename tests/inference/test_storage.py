# pyright: reportArgumentType=false, reportAttributeAccessIssue=false, reportOptionalMemberAccess=false
"""Saved posteriors come back bit for bit, or not at all."""

from dataclasses import replace

import jax
import numpy as np
import numpyro.distributions as dist
import pytest

from bayes_mdp.inference.methods import NUTS
from bayes_mdp.inference.posterior import ConjugatePosterior
from bayes_mdp.inference.storage import load, save
from bayes_mdp.inference.weighted import draws
from bayes_mdp.mdp import MDP, StateActionSpace
from tests.calibration.beliefs import collapsed, sampled, transitions

NUMBER_OF_FAULTS = 1000


def _assert_bits(one, two):
    assert jax.tree.structure(one) == jax.tree.structure(two)
    for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(two), strict=True):
        assert np.asarray(a).dtype == np.asarray(b).dtype
        assert np.asarray(a).tobytes() == np.asarray(b).tobytes()


def test_round_trip_is_bit_equal(case, tmp_path):
    posterior = case.prior.update(case.data)
    save(posterior, tmp_path / "belief.bmdp")
    loaded = load(tmp_path / "belief.bmdp")
    assert isinstance(loaded, ConjugatePosterior) and type(loaded) is type(posterior)
    _assert_bits(loaded, posterior)
    assert loaded.log_evidence == posterior.log_evidence
    assert loaded.space.state_names == case.space.state_names
    assert [path.name for path in tmp_path.iterdir()] == ["belief.bmdp"]


def test_draws_round_trip_without_x64(tmp_path):
    mdps = MDP(
        np.eye(2, dtype=np.float32)[None, None, :].repeat(3, 0).reshape(3, 1, 2, 2)[..., :1] * 0 + 1, np.ones((3, 1, 2))
    )
    belief = draws(mdps, visits=np.array([[1.0, 2.0]]))
    save(belief, tmp_path / "draws")
    _assert_bits(load(tmp_path / "draws"), belief)


def test_collapsed_and_sampled_posteriors_come_back_without_their_program(tmp_path):
    for name, posterior in (("collapsed", collapsed()), ("sampled", sampled())):
        save(posterior, tmp_path / name)
        loaded = load(tmp_path / name)
        assert type(loaded) is type(posterior)
        for a, b in zip(jax.tree.leaves(loaded), jax.tree.leaves(posterior), strict=True):
            np.testing.assert_array_equal(a, b)
        np.testing.assert_array_equal(loaded.visit_counts(), posterior.visit_counts())
        with pytest.raises(ValueError, match="was loaded and has no program"):
            loaded.refit(jax.random.key(0))
    loaded, data = load(tmp_path / "sampled"), transitions(5)
    np.testing.assert_array_equal(loaded.update(data).log_weights, sampled().update(data).log_weights)
    assert loaded.recipe.prior is None and loaded.method == "nuts" and loaded.mcmc.num_chains == 2
    assert loaded.rewards.law.tree_flatten()[1] == sampled().rewards.law.tree_flatten()[1]


def test_options_are_kept_but_for_what_is_code(tmp_path):
    options = NUTS(7, 11, 3, kernel=lambda model: model)
    save(replace(collapsed(), options=options), tmp_path / "belief")
    assert load(tmp_path / "belief").options == NUTS(7, 11, 3)


def test_a_law_that_is_not_numpyro_s_own_is_refused(tmp_path):
    class Own(dist.Normal):
        pass

    rewards = replace(sampled().rewards, law=Own(np.zeros((80, 2, 2)), 1.0))
    with pytest.raises(TypeError, match=r"posterior.rewards.law is or holds the class Own, expected NumPyro's own"):
        save(replace(sampled(), rewards=rewards), tmp_path / "belief")
    assert not list(tmp_path.iterdir())


def test_a_cut_or_altered_file_is_refused(cases, tmp_path):
    """1,000 random cuts and byte alterations: each is refused, or loads bit-equal."""
    case, path = cases("outcome"), tmp_path / "belief"
    posterior = case.prior.update(case.data)
    save(posterior, path)
    content, rng, refused = path.read_bytes(), np.random.default_rng(0), 0
    for i in range(NUMBER_OF_FAULTS):
        where = int(rng.integers(len(content)))
        altered = bytearray(content)
        altered[where] ^= int(rng.integers(1, 256))
        path.write_bytes(content[:where] if i % 2 else bytes(altered))
        try:
            _assert_bits(load(path), posterior)
        except ValueError as error:
            assert str(path) in str(error)
            refused += 1
    assert refused == NUMBER_OF_FAULTS


def test_another_version_is_refused(cases, tmp_path, monkeypatch):
    monkeypatch.setattr("bayes_mdp.inference.storage.FORMAT_VERSION", 99)
    save(cases("flat").prior, tmp_path / "belief")
    monkeypatch.undo()
    with pytest.raises(ValueError, match="format version 99, expected 1"):
        load(tmp_path / "belief")


def test_names_that_cannot_be_written_are_refused(cases, tmp_path):
    prior = cases("flat").prior
    space = StateActionSpace(3, 2, states=("a", frozenset({1}), "c"))
    odd = type(prior)(prior.transition_probs, prior.reward_cells, space, prior.visits, prior.constant)
    with pytest.raises(TypeError, match=r"posterior.space.states\[1\] is a frozenset, expected a str"):
        save(odd, tmp_path / "belief")
    assert not list(tmp_path.iterdir())


def test_what_is_no_posterior_is_refused(tmp_path):
    with pytest.raises(TypeError, match="posterior is a dict"):
        save({}, tmp_path / "belief")
    (tmp_path / "other").write_bytes(b"hello")
    with pytest.raises(ValueError, match="is no saved posterior"):
        load(tmp_path / "other")
