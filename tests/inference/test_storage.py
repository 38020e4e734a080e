# pyright: reportArgumentType=false, reportAttributeAccessIssue=false, reportOptionalMemberAccess=false
"""Saved posteriors come back bit for bit, or not at all."""

import hashlib
import json
import os
import stat
from dataclasses import replace

import equinox as eqx
import jax
import numpy as np
import numpyro.distributions as dist
import pytest

from bayes_mdp.inference.conjugate.conjugate_posterior import ConjugatePosterior
from bayes_mdp.inference.draws.methods import NUTS
from bayes_mdp.inference.draws.weighted_samples import posterior_samples
from bayes_mdp.inference.storage import load, save
from bayes_mdp.mdp import MDP, StateActionSpace
from tests.calibration.beliefs import collapsed, sampled, transitions


def _assert_bits(one, two):
    assert jax.tree.structure(one) == jax.tree.structure(two)
    for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(two), strict=True):
        assert np.asarray(a).dtype == np.asarray(b).dtype
        assert np.asarray(a).tobytes() == np.asarray(b).tobytes()


@pytest.mark.some(3)
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
    belief = posterior_samples(mdps, visits=np.array([[1.0, 2.0]]))
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


@pytest.mark.parametrize("number", [20, 1000])
def test_a_cut_or_altered_file_is_refused(cases, tmp_path, number):
    """Random cuts and byte alterations: each is refused."""
    case, path = cases("outcome"), tmp_path / "belief"
    posterior = case.prior.update(case.data)
    save(posterior, path)
    content, rng, refused = path.read_bytes(), np.random.default_rng(0), 0
    for i in range(number):
        where = int(rng.integers(len(content)))
        altered = bytearray(content)
        altered[where] ^= int(rng.integers(1, 256))
        path.write_bytes(content[:where] if i % 2 else bytes(altered))
        try:
            load(path)
        except ValueError as error:
            assert str(path) in str(error)
            refused += 1
    assert refused == number


def test_another_version_is_refused(cases, tmp_path, monkeypatch):
    monkeypatch.setattr("bayes_mdp.inference.storage.FORMAT_VERSION", 99)
    save(cases("flat").prior, tmp_path / "belief")
    monkeypatch.undo()
    with pytest.raises(ValueError, match="format version 99, expected 3"):
        load(tmp_path / "belief")


def test_names_that_cannot_be_written_are_refused(cases, tmp_path):
    prior = cases("flat").prior
    space = StateActionSpace(3, 2, states=("a", frozenset({1}), "c"))
    odd = type(prior)(prior.transition_probs, prior.reward_cells, space, prior.visits, prior.constant)
    with pytest.raises(TypeError, match=r"posterior.space.states\[1\] is a frozenset, expected a str"):
        save(odd, tmp_path / "belief")
    assert not list(tmp_path.iterdir())


def test_what_is_no_posterior_is_refused(tmp_path):
    with pytest.raises(TypeError, match="result is a dict"):
        save({}, tmp_path / "belief")
    (tmp_path / "other").write_bytes(b"hello")
    with pytest.raises(ValueError, match="is no saved posterior"):
        load(tmp_path / "other")


def _forge(path, change):
    """The file with its header changed and a checksum that fits."""
    content = path.read_bytes()[:-32]
    end = 16 + int.from_bytes(content[8:16], "little")
    header = json.loads(content[16:end])
    rest = content[end:]
    text = change(header)
    text = json.dumps(header).encode() if text is None else text
    body = content[:8] + len(text).to_bytes(8, "little") + text + rest
    path.write_bytes(body + hashlib.sha256(body).digest())


def _nodes(tree):
    if isinstance(tree, dict):
        yield tree
    for item in tree.values() if isinstance(tree, dict) else tree if isinstance(tree, list) else ():
        yield from _nodes(item)


FORGERIES = {
    "no header": lambda header: b"",
    "no JSON": lambda header: b"{",
    "a list": lambda header: b"[]",
    "nested deeply": lambda header: b"[" * 100_000,
    "a tree nested deeply": lambda header: _deep(header, 3000),
    "no format": lambda header: header.pop("format"),
    "no tree": lambda header: header.pop("tree"),
    "no arrays": lambda header: header.pop("arrays"),
    "no libraries, no tree": lambda header: [header.pop(name) for name in ("libraries", "tree")] and None,
    "a huge array": lambda header: header["arrays"][0].__setitem__(1, [2**42]),
    "a huge empty array": lambda header: header["arrays"].__setitem__(0, ["float64", [0, 2**42]]),
    "a negative size": lambda header: header["arrays"][0].__setitem__(1, [-1]),
    "a size that is no number": lambda header: header["arrays"][0].__setitem__(1, ["3"]),
    "strings of huge width": lambda header: header["arrays"].__setitem__(0, ["str400000000000", [0]]),
    "objects": lambda header: header["arrays"].__setitem__(0, ["object", [1]]),
    "a number as a tree": lambda header: header.update(tree=3),
    "another root": lambda header: header.update(tree={"tuple": []}),
    "an unknown record": lambda header: header["tree"].update(record="Evil"),
    "a record that is a list": lambda header: header["tree"].update(record=["Evil"]),
    "another record": lambda header: header["tree"].update(record="Mixture"),
    "a field too few": lambda header: header["tree"]["fields"].pop("constant"),
    "a field too many": lambda header: header["tree"]["fields"].update(more=1),
    "a space that is too large": lambda header: (
        [
            node["fields"].update(n_states=10**9)
            for node in _nodes(header["tree"])
            if "n_states" in node.get("fields", {})
        ]
        and None
    ),
    "an index without array": lambda header: (
        [node.update(array=10**6) for node in _nodes(header["tree"]) if "array" in node] and None
    ),
    "a law that is none": lambda header: header.update(tree={"law": ["numpyro.distributions", "os"], "parts": None}),
    "a named law that is none": lambda header: header.update(
        tree={"named_law": ["numpyro.distributions.constraints", "_Real"], "parts": None}
    ),
    "a module that is none": lambda header: header.update(tree={"law_type": ["os", "system"]}),
}


def _deep(header, depth):
    rest = json.dumps({name: x for name, x in header.items() if name != "tree"})
    return (rest[:-1] + ', "tree": ' + '{"tuple": [' * depth + "]}" * depth + "}").encode()


def _refused(path):
    with pytest.raises(ValueError, match=f"^{path}") as caught:
        load(path)
    assert type(caught.value) is ValueError and "\n" not in str(caught.value)


@pytest.mark.parametrize("name", FORGERIES)
def test_a_forged_header_is_refused_in_one_sentence(cases, tmp_path, name):
    path = tmp_path / "belief"
    save(cases("flat").prior, path)
    _forge(path, lambda header: _text(FORGERIES[name](header)))
    _refused(path)


def _text(made):
    return made if isinstance(made, bytes) else None


def test_headers_forged_at_random(tmp_path):
    """Any leaf of a header put in the place of any other: refused in one sentence, or a posterior that fits itself."""
    path = tmp_path / "belief"
    for posterior in (collapsed(), sampled()):
        save(posterior, path)
        content = path.read_bytes()
        rng, refused = np.random.default_rng(0), 0
        for _ in range(60):
            path.write_bytes(content)

            def swap(header, rng=rng):
                nodes = [node for node in _nodes(header) if node]
                one, other = (nodes[i] for i in rng.integers(len(nodes), size=2))
                mine, theirs = (list(node)[rng.integers(len(node))] for node in (one, other))
                one[mine] = json.loads(json.dumps(other[theirs]))

            _forge(path, swap)
            try:
                assert isinstance(load(path), type(posterior))
            except ValueError as error:
                assert str(path) in str(error) and "\n" not in str(error)
                refused += 1
        assert refused > 20


def test_a_posterior_of_another_version_names_it(cases, tmp_path):
    path = tmp_path / "belief"
    save(cases("flat").prior, path)

    def older(header):
        header["libraries"]["bayes-mdp"] = "0.0.9"
        header["tree"]["fields"]["spare"] = header["tree"]["fields"].pop("constant")

    _forge(path, older)
    with pytest.raises(ValueError, match=r"\(bayes-mdp 0\.0\.9 wrote it\): it holds a ConjugatePosterior without"):
        load(path)


def test_arrays_that_could_not_be_read_back_are_not_written(cases, tmp_path):
    prior = cases("flat").prior
    with pytest.raises(TypeError, match=r"posterior.visits is an array of complex128, expected one of bool"):
        odd = eqx.tree_at(lambda p: p.visits, prior, np.ones((3, 2), complex), is_leaf=lambda x: x is None)
        save(odd, tmp_path / "belief")
    assert not list(tmp_path.iterdir())


def test_what_is_no_file_is_neither_read_nor_replaced(cases, tmp_path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    for name, kind in (("pipe", "a pipe"), ("folder", "a folder")):
        with pytest.raises(ValueError, match=f"{kind}, expected a file"):
            save(cases("flat").prior, tmp_path / name)
        with pytest.raises(ValueError, match=f"{kind}, expected a posterior"):
            load(tmp_path / name)
    assert stat.S_ISFIFO((tmp_path / "pipe").stat().st_mode) and (tmp_path / "folder").is_dir()


def test_another_process_reads_which_parameter_is_which(tmp_path, monkeypatch):
    """NumPyro has the parameters of a law in the order of a set, which differs between processes: here it is turned.

    Read in that order, means would be standard deviations, without a word.
    """
    posterior = sampled()
    law = posterior.rewards.law
    assert isinstance(law, dist.StudentT)
    before = {name: np.array(getattr(law, name)) for name in ("df", "loc", "scale")}
    save(posterior, tmp_path / "belief")
    for fields in ("gather_pytree_data_fields", "gather_pytree_aux_fields"):
        usual = getattr(dist.Distribution, fields).__func__
        monkeypatch.setattr(dist.Distribution, fields, classmethod(lambda cls, usual=usual: usual(cls)[::-1]))
    loaded = load(tmp_path / "belief").rewards.law
    assert isinstance(loaded, dist.StudentT) and loaded.batch_shape == law.batch_shape
    for name, values in before.items():
        np.testing.assert_array_equal(getattr(loaded, name), values)
    monkeypatch.undo()


def test_a_file_that_does_not_name_the_parameters_of_a_law_is_refused(tmp_path):
    """As versions before 0.3 wrote it."""
    save(sampled(), tmp_path / "belief")

    def without_names(header):
        for node in _nodes(header["tree"]):
            if "named_law" in node:
                node["law"] = node.pop("named_law")

    _forge(tmp_path / "belief", without_names)
    with pytest.raises(ValueError, match=r"law without the names of its parameters.*cannot be told"):
        load(tmp_path / "belief")
