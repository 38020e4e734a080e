# pyright: reportArgumentType=false, reportAttributeAccessIssue=false
"""Files of posteriors with a right checksum and impossible values: each is refused by one sentence, or harmless."""

import copy
import json

import jax
import numpy as np
import pytest

import bayes_mdp as bm
from bayes_mdp.inference.draws.weighted_samples import posterior_samples
from bayes_mdp.mdp import MDP
from bayes_mdp.models import MDPSpec
from tests.calibration.beliefs import collapsed, sampled
from tests.inference.test_corruptions import nodes_of, parts_of, saved, sealed  # noqa: F401

WORDS = ("text", -1, None, 1e400, {"tuple": []}, {"list": ["x"]}, {"dict": []}, True)
HARMLESS = {
    # A counter that is shown.
    "num_steps",
    # What came of a compiled loop: more rewards than its buffer holds are a state that it has.
    "used",
    # A record of how far an optimiser or a chain came: shown, never computed with.
    "losses", "log_density", "energy",
    # Names that are shown; the digest and the law are compared with those of a program that the file does not hold.
    "states", "actions", "discrete", "latents", "improper", "digest", "law", "sources",
    # False where it could be True: more is refused or computed than must be.
    "unit_prior", "independent", "distinct", "drawable", "rewards_only", "rejected",
}  # fmt: skip


def _places(tree):
    """(record, field) nodes of a tree that hold a value or the number of an array."""
    for node in nodes_of(tree):
        if "record" in node:
            yield from ((node, field) for field in node["fields"])


def _arrays_by_field(tree):
    """Array number -> the field that holds it, however deep in tuples and dicts."""
    found = {}
    for node, field in _places(tree):
        for inner in nodes_of(node["fields"][field]):
            if "array" in inner:
                found[inner["array"]] = field  # the innermost record comes last
    return found


def _with_array(header, content, number, change):
    """The file with one array rewritten in place by `change` (its shape and type stay)."""
    start = 0
    for i, (name, shape) in enumerate(header["arrays"]):
        size = int(np.prod(shape)) * np.dtype(name).itemsize
        if i == number:
            array = np.frombuffer(content[start : start + size], name).reshape(shape).copy()
            if not array.size:
                return None
            change(array)
            return content[:start] + array.tobytes() + content[start + size :]
        start += size
    raise AssertionError


def _edits(name):
    """Values that an array of this type should not hold: each is put in one place."""
    if name == "bool":
        return []
    if "float" in name:
        return [np.nan, np.inf, -1.0]
    return [np.iinfo(name).max, -2] if name[0] == "i" else []


def _mixture():
    def program(space):
        import numpyro
        import numpyro.distributions as dist

        weight = numpyro.sample("weight", dist.Categorical(np.full(2, 0.5)))
        with space.plates():
            rows = numpyro.sample("rows", dist.Dirichlet(np.ones(3) * (1.0 + weight)))
            mean = numpyro.sample("mean", dist.Normal(0.0, 1.0))
        return MDPSpec(rows, reward=dist.Normal(mean, 1.0))

    data = bm.Transitions([0, 1, 2], [0, 1, 1], [1.0, 0.0, 2.0], [1, 2, 0])
    return bm.infer(jax.random.key(0), program, data, space=bm.StateActionSpace(3, 2))


def _samples():
    mdp = MDP(np.full((2, 3, 2, 3), 1 / 3), np.ones((2, 3, 2)))
    return posterior_samples(mdp, visits=np.ones((3, 2)))


FEWER = (
    ("sites", None), ("log_prior", None), ("mcmc", None), ("diverging", None), ("accept_prob", None),
    ("num_steps", None), ("hyperparameters", {"dict": []}), ("site_tables", {"tuple": []}), ("sites", {"tuple": []}),
    ("constant", -1),
)  # fmt: skip
"""What may be left out: a posterior that knows less of how it came about, and computes the same."""

MAKERS = {"mixture": _mixture, "collapsed": collapsed, "sampled": sampled, "samples": _samples}


def _file(kind, request, tmp_path):
    if kind == "conjugate":
        return request.getfixturevalue("saved")
    bm.save(MAKERS[kind](), tmp_path / "belief")
    return (tmp_path / "belief").read_bytes()


def _load(path, content):
    """None where the file is read; the sentence where it is refused. Anything else fails the test."""
    path.write_bytes(content)
    try:
        bm.load(path)
    except ValueError as error:
        assert type(error) is ValueError and "\n" not in str(error) and str(error).startswith(str(path))
        return str(error)
    return None


@pytest.mark.few(1)
@pytest.mark.parametrize("kind", ["conjugate", "mixture", "collapsed", "sampled", "samples"])
def test_impossible_numbers_are_refused(kind, request, tmp_path):
    """Every array, numbers that it cannot hold in its first and in its last place."""
    header, arrays = parts_of(_file(kind, request, tmp_path))
    fields, number, read = _arrays_by_field(header["tree"]), 0, []
    for i, (name, _) in enumerate(header["arrays"]):
        for bad in _edits(name):
            for place in (0, 1):

                def change(array, bad=bad, place=place):
                    array.reshape(-1)[int(place * (array.size - 1))] = bad

                made = _with_array(header, arrays, i, change)
                # Prior parameters of a collapsed posterior's statistics are not read: its components have their own.
                unread = kind == "collapsed" and fields[i] in ("prior", "concentration1", "concentration0")
                if made is None or fields[i] in HARMLESS or unread:
                    continue
                said, number = _load(tmp_path / "edited", sealed(header, made)), number + 1
                if said is None:
                    read.append((fields[i], name, bad, place))
    assert number > 20
    left = [one for one in read if not _another_posterior(*one)]
    assert not left


ANY_NUMBER = {
    "loc", "reward", "log_weights", "log_prior", "reward_mean", "data", "law", "known", "log_base", "constant",
}  # fmt: skip


def _another_posterior(field, name, bad, place):
    """-1 is a mean reward, a mean of rewards, a log weight; a draw of a site may be any number."""
    del name, place
    return (
        bool(np.isfinite(bad))
        if field in {"hyperparameters", "sites", "draws"}
        else field in ANY_NUMBER and bad == -1.0
    )


@pytest.mark.few(1)
@pytest.mark.parametrize("kind", ["conjugate", "mixture", "collapsed", "sampled", "samples"])
def test_values_of_another_kind_are_refused(kind, request, tmp_path):
    """Every field of every record: text, -1, nothing, infinity, empty containers in the place of what is there."""
    header, arrays = parts_of(_file(kind, request, tmp_path))
    places, read = list(_places(header["tree"])), []
    for i, (node, field) in enumerate(places):
        for word in WORDS:
            if field in HARMLESS or (field, word) in FEWER or node["fields"][field] == word:
                continue
            edited = copy.deepcopy(header)
            list(_places(edited["tree"]))[i][0]["fields"][field] = word
            if _load(tmp_path / "edited", sealed(edited, arrays)) is None:
                read.append((node["record"], field, json.dumps(word)))
    assert not read


@pytest.mark.few(1)
@pytest.mark.parametrize("kind", ["conjugate", "mixture", "collapsed", "sampled", "samples"])
def test_shapes_of_the_same_size_are_refused(kind, request, tmp_path):
    """Every array of two axes or more, flat, and with its last two axes exchanged where they differ."""
    header, arrays = parts_of(_file(kind, request, tmp_path))
    fields, read = _arrays_by_field(header["tree"]), []
    for i, (_, shape) in enumerate(header["arrays"]):
        for other in ([int(np.prod(shape))], [*shape[:-2], *shape[:-3:-1]]):
            if len(shape) < 2 or other == shape or fields[i] in HARMLESS:
                continue
            edited = copy.deepcopy(header)
            edited["arrays"][i][1] = other
            if _load(tmp_path / "edited", sealed(edited, arrays)) is None:
                read.append((fields[i], shape, other))
    assert not read


def test_the_sentence_names_the_array_and_its_first_place(saved, tmp_path):  # noqa: F811
    """A negative concentration, a row without mass, a count that is nan, an index beyond its table."""
    header, arrays = parts_of(saved)
    fields = {field: i for i, field in _arrays_by_field(header["tree"]).items()}

    def said(field, change):
        return str(_load(tmp_path / "edited", sealed(header, _with_array(header, arrays, fields[field], change))))

    assert "transition_probs.prior[1, 0] is -2.0, expected a finite number, zero or greater" in said(
        "prior", lambda x: x.__setitem__((1, 0), -2.0)
    )
    assert "the sum of transition_probs.prior[2] is 0.0, expected a row with" in said(
        "prior", lambda x: x.__setitem__(2, 0.0)
    )
    assert "transition_probs.counts[0, 1] is nan" in said("counts", lambda x: x.__setitem__((0, 1), np.nan))
    assert "successors[0, 0, 0] is 9, expected" in said("successors", lambda x: x.__setitem__((0, 0, 0), 9))
