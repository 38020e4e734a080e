"""The sentences of refusals."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bayes_mdp.utils import validation


@pytest.mark.parametrize(
    ("check", "values", "message"),
    [
        (validation.check_finite, [[0.0, np.nan]], r"x\[0, 1\] is nan, expected a finite number"),
        (validation.check_positive, [1.0, 0.0], r"x\[1\] is 0.0, expected a finite number greater than zero"),
        (validation.check_positive, np.inf, "x is inf, expected a finite number greater than zero"),
        (
            validation.check_concentration,
            [[1.0, -1.0]],
            r"x\[0, 1\] is -1.0, expected a finite number, zero or greater",
        ),
        (
            validation.check_concentration,
            [[1.0, 0], [0, 0]],
            r"x\[1\] is 0.0, expected a row with at least one positive",
        ),
        (validation.check_concentration, [[np.nan, 1.0]], r"x\[0, 0\] is nan"),
        (validation.check_probabilities, [-0.5], r"x\[0\] is -0.5, expected a probability"),
        (validation.check_probability_rows, [[0.5, 0.4]], r"x\[0\] sums to 0.9, expected a row that sums to 1"),
    ],
)
def test_sentences(check, values, message):
    with pytest.raises(ValueError, match=message):
        check("x", np.asarray(values))


def test_row_sums_are_judged_by_their_dtype():
    near = np.array([0.5, 0.5 + 5e-6])
    validation.check_probability_rows("x", near.astype(np.float32))
    with pytest.raises(ValueError, match=r"x sums to 1\.000005"):
        validation.check_probability_rows("x", near)
    validation.check_probability_rows("x", near - 0.25, 0.5 - 5e-6)


def test_indices():
    validation.check_index("x", np.array([0, 2]), 3, "state")
    with pytest.raises(ValueError, match=r"x\[1\] is 3, expected a state index from 0 to 2"):
        validation.check_index("x", np.array([0, 3]), 3, "state")
    with pytest.raises(ValueError, match=r"x\[0\] is -1, expected an action index from 0 to 2"):
        validation.check_index("x", np.array([-1]), 3, "action")
    with pytest.raises(TypeError, match="x has dtype bool"):
        validation.check_index("x", np.array([True]), 3, "state")


def test_keys():
    validation.check_key("key", jax.random.key(0))
    with pytest.raises(TypeError, match=r"key is an array of dtype uint32, expected a typed key \(jax.random.key\)"):
        validation.check_key("key", jax.random.PRNGKey(0))
    with pytest.raises(TypeError, match="key is 3, expected a typed key"):
        validation.check_key("key", 3)
    with pytest.raises(ValueError, match=r"key has shape \(2,\), expected one key"):
        validation.check_key("key", jax.random.split(jax.random.key(0)))


@pytest.mark.parametrize(("value", "kind"), [(2.5, TypeError), (True, TypeError), ("3", TypeError), (1, ValueError)])
def test_counts(value, kind):
    validation.check_count("n", np.int64(2), 2)
    with pytest.raises(kind, match=f"n is {value!r}, expected an integer of at least 2"):
        validation.check_count("n", value, 2)


def test_names():
    """The nearest name, in any case of letters; a name that is like none gets no question."""
    validation.check_name("x", "ube", ("psrl", "ube"))
    near = "; did you mean 'psrl'?"
    for value, question in {"prsl": near, "PSRL": near, "dqn": "", 3: ""}.items():
        with pytest.raises(ValueError, match=f"^x is {value!r}, expected one of psrl, ube, or 3 words") as refusal:
            validation.check_name("x", value, ("psrl", "ube"), ", or 3 words")
        assert str(refusal.value).endswith("3 words" + question)


def test_labels():
    validation.check_labels("x", (0, 1), (0, 1))
    with pytest.raises(ValueError, match=r"x are 0, 1, 2, 3, 4, expected those of the space: 'a', 'b'"):
        validation.check_labels("x", (0, 1, 2, 3, 4), ("a", "b"))


def test_tracers_are_not_concrete():
    assert validation.is_concrete({"a": jnp.ones(2), "b": None})
    seen = []
    jax.eval_shape(lambda x: seen.append(validation.is_concrete(x)), jnp.ones(2))
    assert seen == [False]


def test_first_index():
    assert validation.first_index(np.zeros((2, 2))) is None
    assert validation.first_index(np.array([[0, 0], [1, 1]])) == (1, 0)
    assert validation.first_index(np.array(True)) == ()
    assert validation.at("x", ()) == "x"


@pytest.mark.parametrize(
    ("labels", "text"),
    [
        ((), ""),
        (("idle",), "'idle'"),
        ([0, "0"], "0, '0'"),
        (range(validation.MOST_LABELS), "0, 1, 2, 3, 4, 5"),
        (tuple(range(validation.MOST_LABELS + 1)), "0, 1, 2, 3, 4, 5, ... (7 in all)"),
    ],
)
def test_few_are_listed_whole_and_many_counted(labels, text):
    assert validation.label_list(labels) == text
