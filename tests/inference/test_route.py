"""`infer`: the same answer by every order of the data, what it refuses, and what it remembers."""

# `numpyro.sample` is typed to return any ArrayLike, and records as JAX arrays: too narrow for tests.
# pyright: reportIndexIssue=false, reportAttributeAccessIssue=false, reportArgumentType=false, reportReturnType=false
# pyright: reportCallIssue=false, reportOperatorIssue=false

import sys
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

from bayes_mdp.inference import infer as face
from bayes_mdp.inference.conjugate.conjugate_posterior import refit
from bayes_mdp.inference.conjugate.merge import merge
from bayes_mdp.inference.detection.certify import certify
from bayes_mdp.inference.route import infer
from bayes_mdp.mdp import Counts, Log, StateActionSpace, Transitions
from bayes_mdp.models import MDPSpec, dirichlet_bernoulli, dirichlet_poisson, known_rewards
from tests.inference.programs import ACCEPTED, SPACE, draw_transitions, transitions_of

KEY = jax.random.key(0)
FLAT = known_rewards(np.zeros((3, 2)))


def _close(one, other, rtol=1e-9):
    for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
        np.testing.assert_allclose(np.asarray(a, float), np.asarray(b, float), rtol=rtol, atol=rtol)
    assert abs(one.log_evidence - other.log_evidence) < rtol * (1.0 + abs(one.log_evidence))


@jax.jit
def _one_at_a_time(posterior, transitions):
    return jax.lax.scan(lambda belief, each: (belief.update(each), None), posterior, transitions)[0]


@pytest.mark.few(1)
@pytest.mark.parametrize("name", ACCEPTED)
def test_batch_is_one_at_a_time_is_merged_shards(name, x64):
    program = ACCEPTED[name]
    transitions = transitions_of(program, draw_transitions(program, 60, seed=3))
    part = [jax.tree.map(lambda x, half=half: x[half], transitions) for half in (slice(0, 25), slice(25, 60))]
    batch = infer(KEY, program.prior, transitions, space=program.space)
    prior = infer(KEY, program.prior, space=program.space)
    _close(batch, jax.tree.map(np.asarray, _one_at_a_time(jax.tree.map(jnp.asarray, prior), transitions)))
    _close(batch, merge([infer(KEY, program.prior, shard, space=program.space) for shard in part]))


def test_without_data_it_is_the_prior_and_nothing_float64_leaves_the_room():
    posterior = infer(KEY, ACCEPTED["renamed"].prior, space=SPACE)
    assert posterior.log_evidence == 0.0
    assert not np.asarray(posterior.visit_counts()).any()
    assert all(isinstance(leaf, np.ndarray) for leaf in jax.tree.leaves(posterior))
    assert jax.eval_shape(posterior.sample, KEY).transition_probs.dtype == jnp.float32


def test_padding_to_a_buffer_changes_nothing():
    program = ACCEPTED["gathered"]
    for size in (1, 63, 64, 65):
        transitions = transitions_of(program, draw_transitions(program, size, seed=size))
        posterior = infer(KEY, program.prior, transitions, space=SPACE)
        assert np.asarray(posterior.visit_counts()).sum() == size


def test_scalars_are_one_transition():
    posterior = infer(KEY, FLAT, Transitions(1, 0, 0.0, 2), space=SPACE)
    assert np.asarray(posterior.visit_counts())[1, 0] == 1


def test_counts_teach_what_their_transitions_teach(x64):
    program = ACCEPTED["renamed"]
    transitions = transitions_of(program, draw_transitions(program, 60, seed=4))
    one = infer(KEY, program.prior, transitions, space=SPACE)
    _close(one, infer(KEY, program.prior, Counts.of(transitions, SPACE), space=SPACE))


def test_a_log_brings_its_transitions_if_its_labels_are_those_of_the_space():
    transitions = Transitions([0, 1], [1, 0], [0.0, 0.0], [2, 2])
    space = StateActionSpace(3, 2, states=("a", "b", "c"), actions=("l", "r"))
    posterior = infer(KEY, FLAT, Log(transitions, ("a", "b", "c"), ("l", "r")), space=space)
    assert np.asarray(posterior.visit_counts()).sum() == 2
    with pytest.raises(ValueError, match=r"data.states are 'a', 'c', 'b', expected those of the space: 'a', 'b', 'c'"):
        infer(KEY, FLAT, Log(transitions, ("a", "c", "b"), ("l", "r")), space=space)


def test_the_proof_is_made_once_for_a_computation_and_again_when_it_changes(monkeypatch):
    proofs = []

    def counted(*arguments):
        proofs.append(arguments)
        return certify(*arguments)

    monkeypatch.setattr(sys.modules[infer.__module__], "certify", counted)
    alpha = np.array([1.25, 2.5, 3.75])

    def program(space):
        with space.plates():
            return MDPSpec(numpyro.sample("transition", dist.Dirichlet(alpha)), np.zeros((3, 2)))

    infer(KEY, program, space=SPACE)
    infer(KEY, partial(program), Transitions([0], [0], [0.0], [0]), space=SPACE)
    assert len(proofs) == 1
    alpha[0] = 4.5
    posterior = infer(KEY, program, space=SPACE)
    assert len(proofs) == 2
    np.testing.assert_allclose(posterior.transition_probs.concentration[0, 0], [4.5, 2.5, 3.75])


@pytest.mark.slow
def test_a_program_that_holds_float32_arrays_is_proven_to_their_rounding():
    alpha, empty = jnp.array([0.3, 0.7, 1.1]), jnp.zeros((3, 2, 3))

    def program(space):
        with space.plates():
            rows = numpyro.sample("transition", dist.Dirichlet(alpha))
        return MDPSpec(empty.at[:].set(rows), np.zeros((3, 2)))

    posterior = infer(KEY, program, space=SPACE)
    np.testing.assert_allclose(posterior.transition_probs.concentration[2, 1], alpha)


def _gathers(kind):
    def program(space):
        with numpyro.plate("kind", 3):
            table = numpyro.sample("road", dist.Dirichlet(jnp.ones(3)))
        return MDPSpec(table[kind], np.zeros((3, 2)))

    return program


def _concentrates(alpha):
    def program(space):
        with space.plates():
            return MDPSpec(numpyro.sample("road", dist.Dirichlet(alpha)), np.zeros((3, 2)))

    return program


@pytest.mark.parametrize(
    ("make", "constant", "concentration"),
    [
        (_gathers, np.array([[0, 1], [1, 1], [2, 0]]), np.ones(3)),
        (_concentrates, np.array([1 / 3, 2 / 3, 1.1]), np.array([1 / 3, 2 / 3, 1.1])),
    ],
)
def test_numpy_constants_that_a_float32_computation_holds_are_exact_in_the_proof(make, constant, concentration):
    program = make(constant)
    held = jax.jit(lambda key: numpyro.handlers.seed(program, key)(SPACE).transition_probs)
    assert held(KEY).dtype == jnp.float32
    posterior = infer(KEY, program, Transitions([0, 1], [1, 0], [0.0, 0.0], [2, 2]), space=SPACE)
    rows = np.asarray(posterior.transition_probs.prior)
    np.testing.assert_array_equal(rows, np.broadcast_to(concentration, rows.shape))


def test_a_posterior_that_a_float32_computation_holds_learns_in_float64():
    transitions = Transitions([0, 1], [1, 0], [0.0, 0.0], [2, 2])
    posterior = infer(KEY, FLAT, transitions, space=SPACE)
    held = jax.jit(lambda key: posterior.sample(key).transition_probs)
    assert held(KEY).dtype == jnp.float32
    after = refit(posterior, transitions)
    assert after.transition_probs.counts.dtype == np.float64
    assert after.transition_probs.counts.sum() == 4


def test_the_face_of_the_room_is_the_function():
    assert face is infer


@pytest.mark.parametrize("method", ["hmc", 3, object()])
def test_a_method_that_is_not_there_is_refused(method):
    with pytest.raises(ValueError, match=r"method is .*, expected one of auto, exact, mixture, quadrature"):
        infer(KEY, FLAT, space=SPACE, method=method)


def test_a_method_that_cannot_be_proven_is_refused():
    with pytest.raises(ValueError, match="no conjugate site has a hyperparameter"):
        infer(KEY, FLAT, space=SPACE, method="collapsed")


SUPPORT = np.ones((3, 2, 3), bool)
SUPPORT[1, 0, 2] = False


@pytest.mark.parametrize(
    ("prior", "data", "sentence"),
    [
        (FLAT, Transitions(*np.zeros((2, 0), int), np.zeros(0), np.zeros(0, int)), "data holds no transitions"),
        (FLAT, Transitions([0, 3], [0, 0], [0.0, 0.0], [0, 0]), r"transitions.state\[1\] is 3"),
        (FLAT, Transitions([0, 0], [0, -1], [0.0, 0.0], [0, 0]), r"transitions.action\[1\] is -1"),
        (FLAT, Transitions([0, 0], [0, 0], [0.0, np.nan], [0, 0]), r"transitions.reward\[1\] is nan"),
        (FLAT, Transitions([0, 0], [0, 0], [np.inf, 0.0], [0, 0]), r"transitions.reward\[0\] is inf"),
        (FLAT, Transitions([0, 1], [0, 0], [0.0, 0.0], [0, 2]), r"transitions.next_state\[1\] is 2, .*known support"),
        (dirichlet_bernoulli(), Transitions([0], [0], [0.5], [0]), r"transitions.reward\[0\] is 0.5, expected 0 or 1"),
        (dirichlet_poisson(), Transitions([0], [0], [-1.0], [0]), r"transitions.reward\[0\] is -1.0, expected 0, 1, 2"),
    ],
)
def test_bad_data_are_one_sentence(prior, data, sentence):
    with pytest.raises(ValueError, match=sentence):
        infer(KEY, prior, data, space=StateActionSpace(3, 2, support=SUPPORT))


def test_an_outcome_that_the_program_rules_out_is_refused():
    program = ACCEPTED["scattered"]
    with pytest.raises(ValueError, match=r"transitions.next_state\[0\] .*outcome 3.* prior .*state 1, action 0"):
        infer(KEY, program.prior, Transitions([1], [0], [0.0], [3], [False]), space=program.space)


def test_counts_are_checked():
    counts = Counts(-np.ones((3, 2, 3)), *np.zeros((3, 3, 2)))
    with pytest.raises(ValueError, match=r"counts.transitions\[0, 0, 0\] is -1.0"):
        infer(KEY, FLAT, counts, space=SPACE)


@pytest.mark.parametrize(
    ("prior", "data", "space", "sentence"),
    [
        ("flat", None, SPACE, "prior is a str"),
        (FLAT, None, (3, 2), "space is a tuple"),
        (FLAT, [(0, 0, 0.0, 0)], SPACE, "data is a list"),
    ],
)
def test_arguments_of_another_type_are_refused(prior, data, space, sentence):
    with pytest.raises(TypeError, match=sentence):
        infer(KEY, prior, data, space=space)
