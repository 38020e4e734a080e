"""Programs that branch on latent sites, at random: no route that is taken for proven gives a wrong posterior."""

# pyright: reportArgumentType=false, reportAttributeAccessIssue=false, reportOptionalMemberAccess=false
import warnings
from collections import Counter

import jax
import numpy as np
import pytest

import bayes_mdp as bm
from bayes_mdp.inference.collapsed.collapse import log_evidence
from bayes_mdp.inference.collapsed.hierarchy import prove_hierarchy
from bayes_mdp.inference.conjugate.conjugate_posterior import refit
from bayes_mdp.inference.detection.trace import Program
from bayes_mdp.inference.draws.chains import SamplingWarning
from bayes_mdp.inference.draws.methods import NUTS
from bayes_mdp.inference.factorised.factorised_posterior import prove_factors
from bayes_mdp.inference.route import HIERARCHICAL, prove
from bayes_mdp.mdp.data.transitions import without_rewards
from tests.inference.branching_programs import DATA, HIDDEN, SIGNALS, SPACE, Branching, _conditional, programs

KEY = jax.random.key(0)


def route_of(program: Branching) -> str:
    """The route, after the posterior of a proven one was compared with the oracle."""
    traced, route = prove(program, SPACE, "auto", NUTS())
    method = route.fit.method
    if method in ("exact", "mixture"):
        _check_exact(program)
    elif method in HIERARCHICAL:
        with jax.enable_x64(True):
            _check_collapsed(program, prove_hierarchy(traced))
    elif method == "factorised":
        _check_rows(traced, program)
    return method


def _check_rows(traced: Program, program: Branching) -> None:
    """The rows are exact; the rewards need chains, which the slow test runs."""
    rows = refit(jax.tree.map(np.array, prove_factors(traced).rows), without_rewards(DATA))
    assert abs(float(rows.mean_mdp().transition_probs[0, 0, 0]) - program.truth()["prob"]) < 1e-6, program


def _check_exact(program: Branching) -> None:
    posterior, truth = bm.infer(KEY, program, DATA, space=SPACE), program.truth()
    mean = posterior.mean_mdp()
    assert abs(float(np.asarray(mean.transition_probs)[0, 0, 0]) - truth["prob"]) < 1e-6, program
    assert abs(float(np.asarray(mean.reward)[0, 0]) - truth["reward"]) < 1e-6, program
    # The categorical probabilities of the programs are float32 constants.
    assert abs(posterior.log_evidence - truth["evidence"]) < 1e-7 * abs(truth["evidence"]), program


def _check_collapsed(program: Branching, hierarchy) -> None:
    """The density that the chains get is the oracle's at the ends and in the middle of every panel of the hidden sites:
    an error of a branch, however rare it is, shows there."""
    seen = refit(jax.tree.map(np.array, hierarchy.prior), DATA)
    places = {name: HIDDEN[name].nodes[:: max(1, len(HIDDEN[name].nodes) // 15)] for name in program.hidden}
    for i in range(max(len(nodes) for nodes in places.values())):
        values = {
            f"hidden{k}": np.asarray(places[name][i % len(places[name])]) for k, name in enumerate(program.hidden)
        }
        signal = int(np.prod([SIGNALS[program.signal][1](value) for value in values.values()]))
        parents = {name: value for name, value in values.items() if name in hierarchy.hyperparameters}
        found = float(log_evidence(hierarchy, parents, seen))
        assert abs(found - _conditional(program.place, signal)[0]) < 1e-9 * abs(found), (program, values)


def test_branching_programs():
    routes = Counter(map(route_of, programs(7, seed=1)))
    assert routes["mixture"] >= 2 and routes["nuts"] + routes["factorised"] >= 1


@pytest.mark.slow
def test_three_hundred_branching_programs():
    """None is wrong in silence; most routes are met often."""
    routes = Counter(map(route_of, programs(300, seed=2)))
    print(dict(routes))
    assert routes["mixture"] >= 60 and sum(routes[name] for name in HIERARCHICAL) >= 15
    assert routes["nuts"] + routes["factorised"] >= 60


@pytest.mark.slow
def test_what_is_sampled_is_right_or_says_so():
    """Twelve programs that go to the chains: the mean reward and P(0 | 0) are within 6 standard errors of 100 effective
    draws (the least that passes without a warning) of the truth, or there is a warning."""
    checked, silent = 0, []
    for program in programs(60, seed=3):
        if prove(program, SPACE, "auto", NUTS())[1].fit.method not in ("nuts", "factorised"):
            continue
        truth = program.truth()
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            posterior = bm.infer(KEY, program, DATA, space=SPACE, sampler=NUTS(300, 500, 4))
        rows = np.asarray(posterior.sample(KEY, (2000,)).transition_probs)[:, 0, 0, 0]
        wrong = abs(rows.mean() - truth["prob"]) > 6 * rows.std() / 10
        if wrong and not any(issubclass(w.category, SamplingWarning) for w in said):
            silent.append(program)
        checked += 1
        if checked == 12:
            break
    assert not silent


@pytest.mark.slow
def test_the_programs_of_the_report():
    """The six that were proven and wrong, as they were reported."""
    for hidden, signal, choice, place in (
        ("rare", "is one", "where", "rows"),
        ("rare", "is one", "arithmetic", "rows"),
        ("coin", "is one", "gather", "rows"),
        ("rare", "is one", "where", "known row"),
        ("rare", "is one", "where", "mean shifted"),
    ):
        program = Branching((hidden,), signal, choice, place)
        assert route_of(program) == "mixture"
    assert route_of(Branching(("normal",), "above 2.05", "where", "rows")) == "nuts"
    assert route_of(Branching(("never",), "is one", "where", "mean capped")) == "factorised"
