# pyright: reportArgumentType=false, reportAttributeAccessIssue=false, reportCallIssue=false
"""Posteriors of folded logs: those of the logs, in one pass or by shards, each log once."""

import hashlib
import json

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pandas as pd
import pytest

import bayes_mdp as bm
from bayes_mdp.models.mdp_spec import MDPSpec
from tests.envs.logs.random_logs import fold_log

KEY = jax.random.key(0)
COLUMNS = {"state": "s", "action": "a", "reward": "r", "next_state": "n", "terminated": "end"}
PRIOR = bm.models.dirichlet_normal_gamma()


@pytest.fixture(scope="module")
def paths(tmp_path_factory):
    """Eight shards of 50 rows, 5 states, 2 actions."""
    folder, rng = tmp_path_factory.mktemp("shards"), np.random.default_rng(0)
    found = []
    for i in range(8):
        frame = pd.DataFrame({"s": rng.integers(0, 5, 50), "a": rng.integers(0, 2, 50), "n": rng.integers(0, 5, 50)})
        frame["r"], frame["end"] = rng.normal(size=50), rng.random(50) < 0.1
        found.append(folder / f"week{i}.csv")
        frame.to_csv(found[-1], index=False)
    return found


@pytest.fixture(scope="module")
def space(paths):
    return bm.StateActionSpace.from_log(fold_log(paths, **COLUMNS))


def assert_bits(one, two):
    assert jax.tree.structure(one) == jax.tree.structure(two)
    for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(two), strict=True):
        assert np.asarray(a).dtype == np.asarray(b).dtype and np.array_equal(a, b, equal_nan=True)


def whole_log(paths):
    """All shards as one DataFrame."""
    return bm.read_log(pd.concat([pd.read_csv(path) for path in paths]), **COLUMNS)


def by_outcome(space):
    """Rows of Dirichlet(1), normal rewards of unknown mean for every outcome."""
    with space.plates():
        rows = numpyro.sample("rows", dist.Dirichlet(jnp.ones(space.n_outcomes)))
        mean = numpyro.sample("mean", dist.Normal(0.0, 1.0).expand([space.n_outcomes]).to_event(1))
    return MDPSpec(rows, reward=dist.Normal(mean, 1.0).to_event(1))


@pytest.mark.few(1)
@pytest.mark.parametrize("prior", [PRIOR, by_outcome], ids=["pairs", "outcomes"])
def test_the_posterior_of_a_folded_log_is_that_of_the_log(prior, paths, space):
    folded = bm.infer(KEY, prior, fold_log(paths, **COLUMNS, chunksize=33), space=space)
    read = bm.infer(KEY, prior, whole_log(paths), space=space)
    np.testing.assert_array_equal(folded.transition_probs.counts, read.transition_probs.counts)
    np.testing.assert_allclose(folded.reward_cells.data, read.reward_cells.data, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(folded.log_evidence, read.log_evidence, rtol=1e-12)


def test_eight_shards_merged_give_the_posterior_of_one_pass_bit_for_bit(paths, space):
    whole = bm.infer(KEY, PRIOR, fold_log(paths, **COLUMNS), space=space)
    shards = [fold_log(path, **COLUMNS, space=space, chunksize=7) for path in paths]
    merged = shards[0]
    for shard in shards[1:]:
        merged = merged.merge(shard)
    assert_bits(bm.infer(KEY, PRIOR, merged, space=space), whole)
    # Posteriors of the shards: counts are added exactly, reward statistics but for rounding.
    each = bm.inference.merge([bm.infer(KEY, PRIOR, shard, space=space) for shard in shards])
    np.testing.assert_array_equal(each.transition_probs.counts, whole.transition_probs.counts)
    np.testing.assert_array_equal(each.sources, whole.sources)
    np.testing.assert_allclose(each.log_evidence, whole.log_evidence, rtol=1e-12)


def test_next_week_from_the_saved_file(paths, space, tmp_path):
    first = bm.infer(KEY, PRIOR, fold_log(paths[:7], **COLUMNS), space=space)
    bm.save(first, tmp_path / "belief")
    loaded = bm.load(tmp_path / "belief")
    after = loaded.update(fold_log(paths[7], **COLUMNS, space=loaded.space))
    whole = bm.infer(KEY, PRIOR, fold_log(paths, **COLUMNS), space=space)
    for a, b in zip(jax.tree.leaves(after), jax.tree.leaves(whole), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-13)
        assert np.asarray(a).dtype == np.asarray(b).dtype  # float64 on the host, whatever JAX's default is
    with pytest.raises(ValueError, match=r"week3\.csv was learnt from already \(SHA-256 "):
        after.update(fold_log(paths[3], **COLUMNS, space=loaded.space))
    twice = after.update(fold_log(paths[3], **COLUMNS, space=loaded.space), allow_duplicates=True)
    assert twice.visit_counts().sum() == 450 and len(twice.sources) == 9


def test_shards_that_learnt_from_one_log_are_not_merged(paths, space):
    one, two = (
        bm.infer(KEY, PRIOR, fold_log(some, **COLUMNS, space=space), space=space) for some in (paths[:2], paths[1:3])
    )
    with pytest.raises(ValueError, match=r"posteriors\[1\] and posteriors\[0\] learnt from the same log"):
        bm.inference.merge([one, two])
    assert bm.inference.merge([one, two], allow_duplicates=True).visit_counts().sum() == 200


def test_a_log_that_was_read_as_a_whole_is_remembered_too(paths, space):
    log = bm.read_log(paths[0], **COLUMNS, states=space.states, actions=space.actions)
    posterior = bm.infer(KEY, PRIOR, log, space=space)
    digest = hashlib.sha256(paths[0].read_bytes()).digest()
    assert bytes(np.asarray(posterior.sources)[0]) == digest
    with pytest.raises(ValueError, match=r"week0\.csv was learnt from already"):
        posterior.update(fold_log(paths[0], **COLUMNS, space=space))
    assert bm.infer(KEY, PRIOR, log.transitions, space=space).sources is None


def test_a_file_that_was_written_without_sources_is_read(paths, space, tmp_path):
    posterior, path = bm.infer(KEY, PRIOR, whole_log(paths), space=space), tmp_path / "belief"
    bm.save(posterior, path)
    content = path.read_bytes()[:-32]
    end = 16 + int.from_bytes(content[8:16], "little")
    header = json.loads(content[16:end])
    assert header["tree"]["fields"].pop("sources") is None
    text = json.dumps(header).encode()
    body = content[:8] + len(text).to_bytes(8, "little") + text + content[end:]
    path.write_bytes(body + hashlib.sha256(body).digest())
    for a, b in zip(jax.tree.leaves(bm.load(path)), jax.tree.leaves(posterior), strict=True):
        np.testing.assert_array_equal(a, b)
    assert bm.load(path).sources is None


def test_compiled_functions_return_the_digests_of_their_argument(paths, space):
    """The digests are an array: one compilation serves posteriors of other logs, and mixes none of them up."""
    compilations = []

    @jax.jit
    def discounted(posterior):
        compilations.append(1)
        return posterior.discount_data(0.5)

    for path in paths[:2]:
        posterior = bm.infer(KEY, PRIOR, fold_log(path, **COLUMNS, space=space), space=space)
        np.testing.assert_array_equal(discounted(posterior).sources, posterior.sources)
    assert len(compilations) == 1


def test_what_the_prior_cannot_learn_from_is_refused(paths, space):
    def categorical(space):
        with space.plates():
            rows = numpyro.sample("rows", dist.Dirichlet(jnp.ones(space.n_outcomes)))
            probs = numpyro.sample("probs", dist.Dirichlet(jnp.ones(3)))
        return MDPSpec(rows, reward=dist.Categorical(probs))

    folded = fold_log(paths, **COLUMNS)
    with pytest.raises(TypeError, match="expected Transitions: a CategoricalProbs law needs every reward"):
        bm.infer(KEY, categorical, folded, space=space)
    with pytest.raises(TypeError, match="is a FoldedLog, expected Transitions: a CategoricalProbs law needs every"):
        bm.infer(KEY, categorical, space=space).update(folded)
    with pytest.raises(ValueError, match=r"folded\.states are 0, 1, 2, 3, 4, expected those of the space"):
        bm.infer(KEY, PRIOR, folded, space=bm.StateActionSpace(6, 2, ends=True))
    bernoulli = bm.models.dirichlet_bernoulli()
    with pytest.raises(ValueError, match=r"a Bernoulli reward law"):
        bm.infer(KEY, bernoulli, folded, space=space)


def test_known_rewards_that_vary_in_the_log_are_refused(space):
    """A coin of 0 and 1 has the mean 1/2 that the prior knows, and is no reward of 1/2."""

    def known(space):
        with space.plates():
            rows = numpyro.sample("rows", dist.Dirichlet(jnp.ones(space.n_outcomes)))
        return MDPSpec(rows, reward=0.5 * jnp.ones(space.shape))

    frame = pd.DataFrame({"s": [0, 0, 1, 1], "a": [0, 0, 1, 1], "n": [1, 1, 0, 0], "r": [0.5, 0.5, 0.0, 1.0]})
    columns = {name: column for name, column in COLUMNS.items() if name != "terminated"}
    kept = fold_log(frame.iloc[:2], **columns, space=space)
    assert bm.infer(KEY, known, kept, space=space).visit_counts()[0, 0] == 2
    with pytest.raises(ValueError, match=r"data\.reward_ss\[1, 1\] is 0\.5, and the prior fixes this reward at 0\.5"):
        bm.infer(KEY, known, fold_log(frame, **columns, space=space), space=space)


@pytest.mark.slow
def test_hyperparameters_are_drawn_given_a_folded_log(paths, space):
    def program(space):
        scale = numpyro.sample("scale", dist.Gamma(2.0, 2.0))
        with space.plates():
            rows = numpyro.sample("rows", dist.Dirichlet(scale * jnp.ones(space.n_outcomes)))
            mean = numpyro.sample("mean", dist.Normal(0.0, 1.0))
        return MDPSpec(rows, reward=dist.Normal(mean, 1.0))

    folded = fold_log(paths, **COLUMNS)
    options = bm.inference.NUTS(num_warmup=300, num_samples=500, num_chains=2)
    posterior = bm.infer(KEY, program, folded, space=space, method="collapsed", sampler=options)
    other = bm.infer(KEY, program, folded.counts(space), space=space, method="collapsed", sampler=options)
    np.testing.assert_array_equal(posterior.mean_mdp().transition_probs, other.mean_mdp().transition_probs)


def counted(space, concentration):
    """Rows of Dirichlet(1), Poisson rewards of unknown rate."""
    with space.plates():
        rows = numpyro.sample("rows", dist.Dirichlet(jnp.ones(space.n_outcomes)))
        rate = numpyro.sample("rate", dist.Gamma(concentration, 2.0))
    return MDPSpec(rows, reward=dist.Poisson(rate))


def counted_by_kind(space):
    kind = numpyro.sample("kind", dist.Categorical(jnp.array([0.5, 0.5])))
    return counted(space, jnp.array([1.0, 8.0])[kind])


def counted_by_size(space):
    return counted(space, numpyro.sample("size", dist.HalfNormal(3.0)))


@pytest.fixture(scope="module")
def visits():
    """60 rows whose rewards are counts, 3 states, 2 actions."""
    rng = np.random.default_rng(0)
    return pd.DataFrame(
        {"s": rng.integers(3, size=60), "a": rng.integers(2, size=60), "n": rng.integers(3, size=60)}
        | {"r": rng.poisson(2.0, size=60).astype(float), "end": False}
    )


@pytest.mark.parametrize("prior", [counted_by_kind, counted_by_size])
def test_sums_of_counts_weigh_hyperparameters_as_the_log_does(prior, visits):
    # Sums hold no factorials: these are the same whatever the hyperparameter, so that weights need none.
    read, folded = bm.read_log(visits, **COLUMNS), fold_log(visits, **COLUMNS, chunksize=20)
    space = bm.StateActionSpace.from_log(read)
    whole, sums = (bm.infer(KEY, prior, data, space=space) for data in (read, folded))
    assert sums.method == whole.method
    np.testing.assert_allclose(sums.weights, whole.weights, rtol=1e-6)
    np.testing.assert_allclose(sums.mean_mdp().reward, whole.mean_mdp().reward, rtol=1e-6)
    assert "nan" not in str(sums)
    with pytest.raises(ValueError, match="the density of its data is not known"):
        bm.evidence(sums)


def test_sums_of_counts_weigh_hyperparameters_block_by_block(visits):
    space = bm.StateActionSpace.from_log(fold_log(visits, **COLUMNS))
    blocks = [fold_log(visits[i : i + 20], **COLUMNS, space=space) for i in (0, 20, 40)]
    after = bm.infer(KEY, counted_by_kind, blocks[0], space=space)
    for block in blocks[1:]:
        after = after.update(block)
    whole = bm.infer(KEY, counted_by_kind, bm.read_log(visits, **COLUMNS), space=space)
    np.testing.assert_allclose(after.weights, whole.weights, rtol=1e-6)
    np.testing.assert_allclose(after.discount_data(0.5).weights, whole.discount_data(0.5).weights, rtol=1e-6)


def test_sums_that_weigh_components_by_what_they_do_not_hold_are_refused(visits):
    def trials(space):
        kind = numpyro.sample("kind", dist.Categorical(jnp.array([0.5, 0.5])))
        with space.plates():
            rows = numpyro.sample("rows", dist.Dirichlet(jnp.ones(space.n_outcomes)))
            share = numpyro.sample("share", dist.Beta(1.0, 1.0))
        return MDPSpec(rows, reward=dist.Binomial(jnp.array([20, 40])[kind], share))

    # log comb(n, r) differs between n = 20 and n = 40, and is no sum of the rewards.
    folded = fold_log(visits, **COLUMNS)
    space = bm.StateActionSpace.from_log(folded)
    assert np.isfinite(bm.infer(KEY, trials, bm.read_log(visits, **COLUMNS), space=space).weights).all()
    with pytest.raises(ValueError, match="the components of the mixture differ in numbers of the Binomial"):
        bm.infer(KEY, trials, folded, space=space)
