"""The dry run, and the message for a prior that no route can infer correctly."""

# pyright: reportArgumentType=false, reportIndexIssue=false, reportCallIssue=false, reportOperatorIssue=false
import os
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro import handlers

import bayes_mdp as bm
from bayes_mdp.cli import main
from bayes_mdp.models import MDPSpec
from bayes_mdp.utils.messages import see
from tests.inference.branching_programs import Branching
from tests.inference.hierarchies import SPACE, clusters, sticky
from tests.text import unwrapped

KEY = jax.random.key(0)
DATA = bm.Transitions([0, 1], [0, 0], [1.0, 0.0], [1, 0])


def rows(space):
    with space.plates():
        return numpyro.sample("transition", dist.Dirichlet(jnp.ones(space.n_outcomes)))


def test_routes_and_reasons():
    exact = bm.explain(bm.models.dirichlet_bernoulli(), SPACE)
    assert exact.route == "exact" and not exact.why_not and exact.reward_law == "BernoulliProbs"
    assert [(site.name, site.role, site.inferred) for site in exact.sites] == [
        ("transition", "rows", "closed form"),
        ("reward", "rewards", "closed form"),
    ]
    hierarchy = bm.explain(sticky, SPACE)
    assert hierarchy.route == "quadrature" and "site 'stickiness' (HalfNormal)" in hierarchy.why_not["exact"]
    mixture = bm.explain(Branching(("rare",), "is one", "where", "rows"), bm.StateActionSpace(2, 1))
    assert mixture.route == "mixture" and "'hidden0' (BernoulliProbs)" in mixture.why_not["exact"]
    sampled = bm.explain(Branching(("normal",), "is one", "where", "rows"), bm.StateActionSpace(2, 1))
    assert sampled.route == "nuts" and set(sampled.why_not) == {"exact", "mixture", "collapsed", "factorised"}
    assert "the transition law depends on it" in sampled.why_not["collapsed"]
    assert unwrapped(sampled).startswith("route: nuts (chains draw every site) not exact: site 'hidden0'")


def two_in_the_way(space):
    concentration, centre = (
        numpyro.sample("concentration", dist.Gamma(2.0, 1.0)),
        numpyro.sample("centre", dist.Normal()),
    )
    with space.plates():
        probs = numpyro.sample("probs", dist.Dirichlet(concentration * jnp.ones(space.n_outcomes)))
        return MDPSpec(probs, dist.Normal(numpyro.sample("mean", dist.Normal(centre, 1.0)), 1.0))


def test_the_site_in_the_way_is_the_first_one():
    """In every process: hashes of names, which differ between them, decide nothing."""
    code = """
import bayes_mdp as bm
from tests.inference.test_explanation import SPACE, two_in_the_way
print(bm.explain(two_in_the_way, SPACE))"""
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", code], env={**os.environ, "PYTHONHASHSEED": seed}, stdout=subprocess.PIPE, text=True
        )
        for seed in ("0", "2")  # two orders of the set {probs, mean}
    ]
    said = [process.communicate()[0] for process in processes]
    assert "not exact: site 'concentration' (Gamma)" in unwrapped(said[0])
    assert said[0] == said[1]


def of_site(prior, name):
    """What is said of one site."""
    found = bm.explain(prior, SPACE)
    return found, next(site for site in found.sites if site.name == name)


def test_every_site_has_its_own_reason():
    """Six priors: what is in the way of each site, and what to change."""
    cells = lambda name, law: numpyro.sample(name, law.expand((3, 2)).to_event(2))  # noqa: E731

    def student(space):
        return MDPSpec(rows(space), dist.StudentT(4.0, cells("m", dist.Normal(0.0, 1.0)), 1.0))

    found, site = of_site(student, "m")
    assert found.route == "factorised" and found.sites[0].inferred == "closed form"
    assert site.role == "rewards" and site.inferred == "importance"
    assert site.why == "a StudentT law of rewards has no conjugate sites" and "normal-gamma" in site.change
    assert see("reference/conjugate-forms") in unwrapped(found)

    def log_rate(space):
        return MDPSpec(rows(space), dist.Poisson(cells("rate", dist.LogNormal(0.0, 1.0))))

    _, site = of_site(log_rate, "rate")
    assert site.why == "rate of a Poisson law of rewards has a closed form over Gamma sites"
    assert site.change == "dist.Gamma in its place"

    def softmax(space):
        logits = cells("logits", dist.Normal(jnp.zeros(3), 1.0).to_event(1))
        return MDPSpec(jax.nn.softmax(logits), np.zeros(()))

    found, site = of_site(softmax, "logits")
    assert found.route == "nuts" and "Dirichlet" in site.why and "dist.Dirichlet" in site.change

    found, site = of_site(sticky, "stickiness")
    assert found.route == site.inferred == "quadrature"
    assert site.role == "hyperparameter" and "a number in its place" in site.change
    assert [s.inferred for s in found.sites if s.name != "stickiness"] == ["closed form"] * (len(found.sites) - 1)

    def masked(space):
        with numpyro.handlers.mask(mask=np.arange(2) > 0), space.plates():
            mean = numpyro.sample("m", dist.Uniform(-1.0, 1.0))
        return MDPSpec(rows(space), dist.Normal(mean, 1.0))

    _, site = of_site(masked, "m")
    assert site.why.startswith("a mask hides") and site.change

    def both(space):
        probs = rows(space)
        return MDPSpec(probs, dist.Normal(probs[..., 0], 1.0))

    found, site = of_site(both, "transition")
    assert found.route == "nuts" and site.role == "rows and rewards" and "a site of its own" in site.change


def test_what_would_give_a_closed_form_under_hyperparameters():
    """Hyperparameters of the rows beside Student-t rewards; with normal rewards the same prior needs no chains."""

    def prior(law, rows_of=lambda strength: dist.Dirichlet(0.5 + strength * jnp.ones(3))):
        def program(space):
            strength = numpyro.sample("strength", dist.HalfNormal(2.0))
            with space.plates():
                probs = numpyro.sample("transition", rows_of(strength))
                mean = numpyro.sample("mean", dist.Normal(0.0, 1.0))
            return MDPSpec(probs, law(mean))

        return program

    found = bm.explain(prior(lambda mean: dist.StudentT(4.0, mean, 0.5)), SPACE)
    assert found.route == "nuts"
    assert found.would_help == (
        "with conjugate rewards, such as Normal, or a normal-gamma prior: its predictive density is a Student-t, rows "
        "and rewards would have a closed form given the hyperparameters"
    )
    assert found.would_help in unwrapped(found)
    normal = bm.explain(prior(lambda mean: dist.Normal(mean, 0.5)), SPACE)
    assert normal.route == "quadrature" and normal.would_help == ""

    def softmax(space):
        strength = numpyro.sample("strength", dist.HalfNormal(2.0))
        with space.plates():
            mean = numpyro.sample("mean", dist.Normal(0.0, 1.0))
        return MDPSpec(jax.nn.softmax(strength * jnp.arange(3.0)), dist.StudentT(4.0, mean, 0.5))

    assert bm.explain(softmax, SPACE).would_help == ""  # the rows are in the way too


def test_too_many_values_are_not_enumerated():
    found = bm.explain(clusters, bm.StateActionSpace(12, 1))
    assert found.route == "collapsed" and "have 4096 joint values" in found.why_not["mixture"]
    assert {s.inferred for s in found.sites if s.role == "hyperparameter"} == {"chains"}


def test_discrete_hyperparameters_are_enumerated_beside_the_others():
    """Two clusters of three states: 8 joint values, beside four continuous numbers."""
    found = bm.explain(bm.models.clustered_states(), bm.StateActionSpace(3, 1))
    assert found.route == "importance"
    assert {s.name: s.inferred for s in found.sites if s.role == "hyperparameter"} == {
        "cluster_concentration": "importance",
        "cluster_loc": "importance",
        "cluster": "enumerated",
    }


def test_discrete_sites_of_rewards_are_drawn_by_chains():
    def program(space):
        kind = numpyro.sample("kind", dist.Bernoulli(0.5))
        with space.plates():
            mean = numpyro.sample("m", dist.Normal(0.0, 1.0))
        return MDPSpec(rows(space), dist.StudentT(4.0 + kind, mean, 1.0))

    found = bm.explain(program, SPACE)
    assert found.route == "factorised"
    assert {s.name: s.inferred for s in found.sites} == {"kind": "chains", "transition": "closed form", "m": "chains"}


def test_a_route_without_a_closed_form_says_so_on_one_line_once_for_a_program(capsys):
    def infer_with(location, key=KEY):
        bm.infer(key, bm.models.unknown_concentration(dist.LogNormal(location, 0.25)), space=SPACE)
        return capsys.readouterr().err

    # A hyperprior of this test alone: no other test in this process has inferred the program.
    assert infer_with(0.0625) == (
        "infer: quadrature (a grid over the hyperparameters, the rest in closed form): site 'concentration' "
        "(LogNormal) has no closed form\n"
    )
    assert infer_with(0.0625, jax.random.key(1)) == ""  # another function, which computes the same
    assert infer_with(0.1875).startswith("infer: quadrature (a grid over the hyperparameters, ")
    bm.infer(KEY, bm.models.dirichlet_bernoulli(), space=SPACE)
    assert capsys.readouterr().err == ""


def test_the_command(capsys):
    assert main(["explain", "dirichlet_normal", "--states", "4", "--actions", "1"]) == 0
    assert capsys.readouterr().out.startswith("route: exact (every site in closed form)")
    assert main(["explain", "no_such_prior"]) == 2
    assert "no_such_prior" in capsys.readouterr().err


def branches_in_python(space):
    if numpyro.sample("coin", dist.Bernoulli(0.5)):
        return MDPSpec(rows(space), np.zeros(()))
    return MDPSpec(np.full(3, 1 / 3), np.zeros(()))


def draws_by_numpy(space):
    return MDPSpec(rows(space), np.random.default_rng().normal(size=(3, 2)))


def draws_by_its_key(space):
    return MDPSpec(rows(space), dist.Normal(jax.random.normal(numpyro.prng_key(), (3, 2)), 1.0))


def looks_by_numpy(space):
    return MDPSpec(np.asarray(rows(space)), np.zeros(()))


def observed_name(space):
    with space.plates():
        mean = numpyro.sample("observed_reward", dist.Normal(0.0, 1.0))
    return MDPSpec(rows(space), dist.Normal(mean, 1.0))


def seeded(space):
    return MDPSpec(rows(space), np.zeros(()))


@pytest.mark.parametrize("method", ["auto", "nuts"])
@pytest.mark.parametrize(
    ("prior", "kind", "sentence"),
    [
        (branches_in_python, TypeError, "Python looks at the value of a draw .line .* of .*test_explanation.py"),
        (looks_by_numpy, TypeError, "Python looks at the value of a draw .line .* of .*test_explanation.py"),
        (draws_by_numpy, ValueError, "computes something else when it is run again .np.random"),
        (draws_by_its_key, ValueError, "the reward law depends on random numbers that belong to no site"),
        (observed_name, ValueError, "'observed_reward' has a name of the library's own, expected another name"),
        (handlers.seed(seeded, 0), ValueError, "prior is already seeded .numpyro.handlers.seed"),
    ],
)
def test_programs_that_are_none(prior, kind, sentence, method):
    with pytest.raises(kind, match=sentence):
        bm.infer(KEY, prior, DATA, space=SPACE, method=method)


@pytest.mark.parametrize("outcome", [False, True])
def test_a_known_reward_that_the_log_contradicts_is_refused(outcome):
    reward = np.zeros((3, 2, 3) if outcome else (3, 2))
    prior = bm.models.known_rewards(reward)
    with pytest.raises(ValueError, match=r"data.reward\[0\] is 1, and the prior fixes this reward at 0: expected the"):
        bm.infer(KEY, prior, DATA, space=SPACE)
    counts = bm.Counts.of(DATA, SPACE, by_outcome=outcome)
    with pytest.raises(ValueError, match=r"data.reward_mean\[0, 0.*\] is 1, and the prior fixes this reward at 0"):
        bm.infer(KEY, prior, counts, space=SPACE)
    bm.infer(KEY, prior, bm.Transitions([0, 1], [0, 0], [1e-9, 0.0], [1, 0]), space=SPACE)
    bm.infer(KEY, prior, bm.Transitions([0, 1], [0, 0], None, [1, 0]), space=SPACE)


def pairs(space):
    """A normal-gamma of two plain sites with an unknown pseudo-count: its gradient was nan."""
    count = numpyro.sample("count", dist.Gamma(2.0, 2.0))
    with space.plates():
        precision = numpyro.sample("precision", dist.Gamma(2.0, 1.0))
        mean = numpyro.sample("mean", dist.Normal(0.0, (count * precision) ** -0.5))
    return MDPSpec(rows(space), dist.Normal(mean, precision**-0.5))


def joint(space):
    """The same belief with one site."""
    count = numpyro.sample("count", dist.Gamma(2.0, 2.0))
    with space.plates():
        reward = numpyro.sample("reward", bm.models.NormalGamma(0.0, count, 2.0, 1.0))
    return MDPSpec(rows(space), bm.models.normal(reward))


def test_a_pseudo_count_over_two_sites_is_that_over_one():
    """The densities that the chains get, and their gradients, are equal; they were nan."""
    from bayes_mdp.inference.collapsed.collapse import log_evidence
    from bayes_mdp.inference.collapsed.hierarchy import prove_hierarchy
    from bayes_mdp.inference.conjugate.conjugate_posterior import refit
    from bayes_mdp.inference.draws.methods import NUTS
    from bayes_mdp.inference.route import prove

    found = []
    for prior in (pairs, joint):
        program, route = prove(prior, SPACE, "collapsed", NUTS())
        assert route.fit.method == "collapsed"
        hierarchy = prove_hierarchy(program)
        assert hierarchy.hyperparameters == ("count",)
        seen = refit(jax.tree.map(np.array, hierarchy.prior), DATA)
        with jax.enable_x64(True):

            def density(count, hierarchy=hierarchy, seen=seen):
                return log_evidence(hierarchy, {"count": count}, seen)

            found.append(jax.jit(jax.value_and_grad(density))(0.7))
    np.testing.assert_allclose(found[0], found[1], rtol=1e-12)
    assert np.isfinite(found).all()


def no_plates(space):
    probs = numpyro.sample("p", dist.Dirichlet(jnp.ones(space.n_outcomes)))
    return MDPSpec(probs, dist.Bernoulli(numpyro.sample("r", dist.Beta(1.0, 1.0))))


def by_state(space):
    with space.plates("state"):
        probs = numpyro.sample("p", dist.Dirichlet(jnp.ones(space.n_outcomes)))
    paid = numpyro.sample("r", dist.Beta(1.0, 1.0).expand((3, 2)).to_event(2))
    return MDPSpec(probs, dist.Bernoulli(paid))


def by_outcome(space):
    paid = numpyro.sample("r", dist.Beta(1.0, 1.0).expand([3]).to_event(1))
    return MDPSpec(rows(space), dist.Bernoulli(jnp.broadcast_to(paid, (3, 2, 3))).to_event(1))


def softmax_of_all(space):
    logits = numpyro.sample("l", dist.Normal(0.0, 1.0).expand((3, 3)).to_event(2))
    sharpness = numpyro.sample("s", dist.HalfNormal(1.0))
    return MDPSpec(jax.nn.softmax(sharpness * logits)[:, None], np.zeros(()))


def two_shared(space):
    up, down = (numpyro.sample(name, dist.Beta(1.0, 1.0)) for name in ("up", "down"))
    probs = jnp.array([[up, 1 - up, 0.0], [down, 0.0, 1 - down], [up, 0.0, 1 - up]])
    return MDPSpec(probs[:, None], np.zeros(()))


@pytest.mark.parametrize(
    ("prior", "varies", "said"),
    [
        (
            no_plates,
            {"p": (), "r": ()},
            ["site 'p': one value for all states and actions", "site 'r': one value for all states and actions"],
        ),
        (by_state, {"p": ("state",), "r": ("state", "action")}, ["site 'p': one value for all actions"]),
        (
            by_outcome,
            {"transition": ("state", "action"), "r": ("outcome",)},
            ["site 'r': one value for all states and actions"],
        ),
        (softmax_of_all, {"l": None, "s": ()}, ["site 's': one value for all states and actions"]),
        (
            two_shared,
            {"up": (), "down": ()},
            [
                "site 'up': one value for all states and actions",
                "site 'down': one value for all states and actions",
            ],
        ),
        # Hyperparameters are there to be shared.
        (sticky, {"stickiness": (), "transition": ("state", "action")}, []),
        (bm.models.dirichlet_bernoulli(), {"transition": ("state", "action"), "reward": ("state", "action")}, []),
    ],
)
def test_over_what_every_site_varies(prior, varies, said):
    found = bm.explain(prior, SPACE)
    assert {site.name: site.varies for site in found.sites if site.name in varies} == varies
    lines = [part for part in found.layout().parts if isinstance(part, str)]
    assert [line for line in lines if line.startswith("site '")] == said
    assert "varies over" in str(found)


def test_steps_are_an_axis_too():
    space = bm.StateActionSpace(2, 1, horizon=3)
    found = bm.explain(bm.models.dirichlet_bernoulli(), space)
    assert {site.varies for site in found.sites} == {("step", "state", "action")}


def test_the_summary_names_two_pairs_that_share():
    said = " ".join(str(bm.infer(KEY, no_plates, DATA, space=SPACE)).split())
    assert "not independent: the row of state 0, action 0 is that of state 0, action 1 (site 'p')" in said
    assert "rows independent" in " ".join(
        str(bm.infer(KEY, bm.models.dirichlet_bernoulli(), DATA, space=SPACE)).split()
    )
