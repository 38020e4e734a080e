# pyright: reportArgumentType=false, reportAttributeAccessIssue=false, reportCallIssue=false
"""Saved posteriors that were damaged or forged at random: each is refused by one sentence, none is read."""

import hashlib
import json
import tracemalloc

import jax
import numpy as np
import pytest

import bayes_mdp as bm

KINDS = ("flip", "cut", "insert", "swap", "repeat", "header", "tree", "shape", "dtype", "length", "deep")
MOST_MEMORY = 2**24  # of a file of some thousand bytes


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """The bytes of a posterior with listed successors, provenance and everything else that is optional."""
    rng = np.random.default_rng(0)
    successors = np.stack([rng.permutation(5)[:3] for _ in range(8)]).reshape(4, 2, 3)
    successors[0, 0, 2] = -1
    space = bm.StateActionSpace(4, 2, ends=True, successors=successors, states=("a", "b", ("c", 1), 4.5))
    state, action = rng.integers(0, 4, 60), rng.integers(0, 2, 60)
    reached = successors[state, action, rng.integers(0, 2, 60)]
    data = bm.Transitions(state, action, rng.normal(size=60), np.minimum(reached, 3), reached == 4)
    posterior = bm.infer(jax.random.key(0), bm.models.dirichlet_normal_gamma(), data, space=space)
    path = tmp_path_factory.mktemp("saved") / "belief"
    bm.save(posterior, path)
    return path.read_bytes()


def parts_of(content):
    """(header, bytes of the arrays)."""
    end = 16 + int.from_bytes(content[8:16], "little")
    return json.loads(content[16:end]), content[end:-32]


def sealed(header, arrays, length=None):
    """A file with a checksum that fits."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    body = b"BAYESMDP" + (len(text) if length is None else length).to_bytes(8, "little") + text + arrays
    return body + hashlib.sha256(body).digest()


def nodes_of(tree):
    if isinstance(tree, dict):
        yield tree
    for item in tree.values() if isinstance(tree, dict) else tree if isinstance(tree, list) else ():
        yield from nodes_of(item)


def block(rng, size):
    """A random slice that is not empty."""
    start = int(rng.integers(size))
    return slice(start, start + 1 + int(rng.integers(min(64, size - start))))


def corrupted(content, kind, rng):
    """The file, damaged (flip, cut, insert, swap, repeat: the checksum tells) or forged (it fits what is there)."""
    size = len(content)
    if kind == "flip":
        changed, bit = bytearray(content), int(rng.integers(8 * size))
        changed[bit // 8] ^= 1 << bit % 8
        return bytes(changed)
    if kind == "cut":
        return content[: int(rng.integers(size))]
    if kind == "insert":
        place = int(rng.integers(size + 1))
        return content[:place] + rng.bytes(1 + int(rng.integers(20))) + content[place:]
    if kind == "swap":
        one, width = int(rng.integers(size // 2 - 64)), 1 + int(rng.integers(64))
        other = size // 2 + int(rng.integers(size // 2 - 64))
        changed = bytearray(content)
        changed[one : one + width], changed[other : other + width] = (
            content[other : other + width],
            content[one : one + width],
        )
        return bytes(changed)
    if kind == "repeat":
        piece = block(rng, size)
        return content[: piece.stop] + content[piece] + content[piece.stop :]
    return forged(content, kind, rng)


def forged(content, kind, rng):
    header, arrays = parts_of(content)
    table = header["arrays"]
    i = int(rng.integers(len(table)))
    if kind == "header":
        name = rng.choice(["format", "arrays", "tree"])
        header[name] = [None, -1, "x", [], {}, [[]], 1e308, [None], {"tuple": 3}][int(rng.integers(9))]
    elif kind == "tree":
        records = [node for node in nodes_of(header["tree"]) if "record" in node]
        node = records[int(rng.integers(len(records)))]
        change = int(rng.integers(4))
        if change == 0:
            node["record"] = ["Evil", "os.system", None, ["ConjugatePosterior"], 3, "MDP"][int(rng.integers(6))]
        elif change == 1:
            name = sorted(set(node["fields"]) - {"sources"})[int(rng.integers(len(set(node["fields"]) - {"sources"})))]
            del node["fields"][name]
        elif change == 2:
            node["fields"]["more"] = 1
        else:
            indices = [node for node in nodes_of(header["tree"]) if "array" in node]
            indices[int(rng.integers(len(indices)))]["array"] = [10**9, -1 - 10**6, "0", None, 1.5][
                int(rng.integers(5))
            ]
    elif kind == "shape":
        hostile = [
            [2**62],
            [2**40, 2**40],
            [-1],
            [-1, -8],
            ["8"],
            [1.5],
            [None],
            [0, 2**61],
            [1] * 200,
            "8",
            None,
            [True],
        ]
        table[i][1] = hostile[int(rng.integers(len(hostile)))]
    elif kind == "dtype":
        hostile = [
            "object",
            "str400000000",
            "complex128",
            "datetime64",
            None,
            3,
            ["float64"],
            "V8",
            "float128",
            ">f8",
            "int3",
        ]
        table[i][0] = hostile[int(rng.integers(len(hostile)))]
    elif kind == "length":
        text = json.dumps(header).encode()
        lengths = (0, len(text) - 1, len(text) + 1 + len(arrays), 2**62, 2**64 - 1)
        return sealed(text, arrays, lengths[int(rng.integers(5))])
    elif kind == "deep":
        opening, closing = [('{"tuple": [', "]}"), ('{"record": "MDP", "fields": {"x": ', "}}"), ("[", "]")][
            int(rng.integers(3))
        ]
        depth = int(rng.integers(2000, 100_000))
        rest = json.dumps({name: x for name, x in header.items() if name != "tree"})
        return sealed((rest[:-1] + ', "tree": ' + opening * depth + "0" + closing * depth + "}").encode(), arrays)
    return sealed(header, arrays)


@pytest.mark.parametrize("number", [96, pytest.param(1000, marks=pytest.mark.slow)])
def test_each_corruption_is_refused_by_one_sentence(saved, tmp_path, number):
    path = tmp_path / "belief"
    for i in range(number):
        rng = np.random.default_rng(i)
        kind = KINDS[i % len(KINDS)]
        made = corrupted(saved, kind, rng)
        if made == saved:
            continue
        path.write_bytes(made)
        tracemalloc.start()
        with pytest.raises(ValueError) as caught:
            pytest.fail(f"{i}, {kind}: {bm.load(path)!r}")
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        said = str(caught.value)
        assert type(caught.value) is ValueError and said.startswith(str(path)) and "\n" not in said, (i, kind, said)
        assert peak < MOST_MEMORY + 60 * len(made), (i, kind, peak)


def test_the_file_itself_is_read(saved, tmp_path):
    header, arrays = parts_of(saved)
    (tmp_path / "belief").write_bytes(sealed(header, arrays))
    assert bm.load(tmp_path / "belief").visit_counts().sum() == 60
