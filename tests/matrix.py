"""What works with what: every agent and every function of judging with every kind of posterior, as cells of two tables.

`python -m tests.matrix` runs all cells and writes the page docs/reference/what-works-with-what.md; tests/test_matrix.py
compares the page with the cells. A new kind of posterior is one entry of `KINDS`, a new function one of `FUNCTIONS`.
"""

import re
import tempfile
import warnings
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist

import bayes_mdp as bm
from bayes_mdp.agents import AGENTS, Learner
from bayes_mdp.agents.common.learner import ChecksBelief
from bayes_mdp.experiments.rollout.time_loop import make_plan
from bayes_mdp.inference import SamplingWarning, table
from bayes_mdp.mdp import MDP, Environment, Problem
from bayes_mdp.mdp.agent import DecisionPoint
from bayes_mdp.models import MDPSpec

PAGE = Path(__file__).resolve().parents[1] / "docs" / "reference" / "what-works-with-what.md"
STATES, ACTIONS, STEPS = 3, 2, 2
# "bayesian_dp" needs a list of successors: all are possible.
SPACE = bm.StateActionSpace(STATES, ACTIONS, support=np.ones((STATES, ACTIONS, STATES), bool))
TINY = bm.inference.NUTS(num_warmup=20, num_samples=10, num_chains=2)
KEY = jax.random.key(0)
POLICY, OBJECTIVE = np.array([0, 1, 1]), bm.Discounted(0.9)
DRAWS = 16
WITHOUT_END = {"tsde"}
"""Agents for the average reward alone: the others play episodes here."""


def _rows(space: Any, concentration: Any = 1.0) -> Any:
    with space.plates():
        return numpyro.sample("transition", dist.Dirichlet(concentration * jnp.ones(space.n_outcomes)))


def _paid(space: Any) -> Any:
    with space.plates():
        return dist.Bernoulli(numpyro.sample("paid", dist.Beta(1.0, 1.0)))


def closed(space: Any) -> Any:
    """Rows and rewards in closed form."""
    return MDPSpec(_rows(space), _paid(space))


def regimes(space: Any) -> Any:
    """One of two strengths of the rows."""
    calm = numpyro.sample("calm", dist.Bernoulli(0.3))
    return MDPSpec(_rows(space, jnp.where(calm, 5.0, 0.5)), _paid(space))


def strength(space: Any) -> Any:
    """An unknown strength of the rows."""
    return MDPSpec(_rows(space, numpyro.sample("strength", dist.Gamma(2.0, 1.0))), _paid(space))


def logits(space: Any) -> Any:
    """Rows in closed form, rewards not."""
    rows = _rows(space)
    with space.plates():
        return MDPSpec(rows, dist.Bernoulli(logits=numpyro.sample("logit", dist.Normal(0.0, 1.0))))


class Kind(NamedTuple):
    """A kind of posterior: a prior that leads to it, the options of `infer`, and what it is, for the page."""

    prior: Any
    options: dict[str, Any]
    what: str

    @property
    def posterior(self) -> Any:
        """A small one, made once."""
        return _posterior(self.prior, tuple(self.options.items()))


KINDS: dict[str, Kind] = {
    "exact": Kind(closed, {"method": "exact"}, "rows and rewards in closed form (`ConjugatePosterior`)"),
    "mixture": Kind(regimes, {"method": "mixture"}, "closed forms for each value of a discrete site (`Mixture`)"),
    "collapsed": Kind(
        strength,
        {"method": "collapsed", "sampler": TINY},
        "draws of the hyperparameters, the rest in closed form (`CollapsedPosterior`)",
    ),
    "factorised": Kind(logits, {"sampler": TINY}, "rows in closed form, rewards by draws (`FactorisedPosterior`)"),
    "sampled": Kind(strength, {"method": TINY}, "draws of everything (`SampledPosterior`)"),
}


def data() -> Any:
    """Twelve transitions."""
    rng = np.random.default_rng(0)
    state, action, following = (rng.integers(n, size=12) for n in (STATES, ACTIONS, STATES))
    return bm.Transitions(state, action, rng.integers(2, size=12).astype(np.float32), following)


@cache
def _posterior(prior: Any, options: tuple[tuple[str, Any], ...]) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SamplingWarning)  # twenty draws are few
        return bm.infer(KEY, prior, data(), space=SPACE, **dict(options))


class Cell(NamedTuple):
    """Whether it works; if not, the sentence."""

    works: bool
    why: str = ""


def outcome(call: Callable[[], object]) -> Cell:
    """Of a call. Any other error than a refusal is raised.

    Raises:
        AssertionError: a number that is not finite; a sentence that says neither what is expected nor what to use.
    """
    try:
        answer = call()
    except (ValueError, TypeError) as error:
        if type(error) not in (ValueError, TypeError):  # errors of JAX are TypeErrors too
            raise
        why = str(error)
        assert "\n" not in why and ("expected" in why or "use " in why), why
        return Cell(False, why)
    for leaf in jax.tree.leaves(answer):
        if np.issubdtype(np.asarray(leaf).dtype, np.floating):
            assert np.isfinite(leaf).all(), answer
    return Cell(True)


def objective_for(name: str) -> bm.AverageReward | bm.Episodic:
    """What an agent plans for here."""
    return bm.AverageReward() if name in WITHOUT_END else bm.Episodic(STEPS)


def agent_cell(name: str, kind: str, *, compiled: bool = True) -> Cell:
    """An agent checks the belief, plans once and acts: compiled, or by shapes alone."""
    agent: Any = AGENTS[name]()
    belief = None if isinstance(agent, Learner) else KINDS[kind].posterior
    problem = Problem(SPACE, objective_for(name), np.eye(STATES)[0])

    def begin(key: Any) -> tuple[Any, Any]:
        at = DecisionPoint(jnp.int32(0), jnp.int32(0))
        policy, _ = make_plan(agent, key, problem, agent.init(key, problem), belief, at)
        action = policy.act(key, jnp.int32(0), jnp.int32(0))
        return action, jnp.exp(policy.log_prob(jnp.int32(0), action, jnp.int32(0)))

    def call() -> Any:
        if isinstance(agent, ChecksBelief):
            agent.check_belief(belief)
        return jax.jit(begin)(KEY) if compiled else bool(jax.eval_shape(begin, KEY))

    cell = outcome(call)
    assert cell.works or type(agent).__name__ in cell.why, cell.why
    return cell


def run_cell(name: str, kind: str) -> Cell:
    """A run of three episodes (of as many steps) of two seeds."""
    agent: Any = AGENTS[name]()
    rows, paid = np.full((STATES, ACTIONS, STATES), 1 / STATES), np.full((STATES, ACTIONS), 0.5)
    env = Environment(MDP(rows, paid, initial=np.eye(STATES)[0]), dist.Bernoulli(paid))
    options = bm.experiments.RunOptions(space=SPACE, progress=False, num_particles=8)
    prior = None if isinstance(agent, Learner) else KINDS[kind].posterior
    length = {"num_steps": 3 * STEPS} if name in WITHOUT_END else {"num_episodes": 3}
    more: dict[str, Any] = {**length, "num_seeds": 2, "key": KEY, "options": options}
    return outcome(lambda: bm.run(agent, env, prior=prior, objective=objective_for(name), **more)["reward"].values)


def _stored(posterior: Any) -> Any:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "posterior"
        bm.save(posterior, path)
        return bm.load(path).mean_mdp().reward


def _tree(posterior: Any, **options: Any) -> Any:
    tree: Any = bm.to_arviz(posterior, num_draws=DRAWS, **options)
    return tree["posterior"]["reward_mean"].values


class Function(NamedTuple):
    """A function of judging.

    Args:
        call: posterior -> numbers.
        quick: it compiles nothing that takes more than a second, and runs by default.
    """

    call: Callable[[Any], object]
    quick: bool = False


_ONE = bm.Transitions(0, 1, 1.0, 2)
_PAIR = {"first": POLICY, "second": 1 - POLICY}
_DRAWN: dict[str, Any] = {"num_draws": DRAWS}

FUNCTIONS: dict[str, Function] = {
    "policy_value": Function(lambda p: bm.policy_value(KEY, p, POLICY, OBJECTIVE, **_DRAWN).mean),
    "compare_policies": Function(
        lambda p: [v.mean for v in bm.compare_policies(KEY, p, _PAIR, OBJECTIVE, **_DRAWN).values.values()]
    ),
    "probability_optimal": Function(lambda p: bm.information.probability_optimal(KEY, p, OBJECTIVE, **_DRAWN).values),
    "expected_regret": Function(lambda p: bm.information.expected_regret(KEY, p, OBJECTIVE, **_DRAWN).value),
    "next_experiment": Function(lambda p: bm.information.next_experiment(KEY, p, OBJECTIVE, num_data_sets=DRAWS).value),
    "split_return_variance": Function(
        lambda p: bm.decisions.split_return_variance(KEY, p, POLICY, OBJECTIVE, **_DRAWN).epistemic
    ),
    "greedy": Function(lambda p: bm.greedy(p, OBJECTIVE), quick=True),
    "bayes_optimal": Function(lambda p: bm.decisions.bayes_optimal(p, objective=bm.Episodic(STEPS)).value, quick=True),
    "plan_bayes_adaptive": Function(
        lambda p: bm.decisions.plan_bayes_adaptive(KEY, p, 0, bm.Episodic(STEPS), num_simulations=DRAWS).visits,
        quick=True,
    ),
    "to_arviz": Function(_tree),
    "diagnose": Function(lambda p: str(bm.calibration.diagnose(p))),
    "predictive_check": Function(lambda p: str(bm.calibration.predictive_check(p, data(), **_DRAWN))),
    "loo_pit": Function(lambda p: str(bm.calibration.loo_pit(p, data(), **_DRAWN))),
    "prior_sensitivity": Function(lambda p: str(bm.calibration.prior_sensitivity(p, data(), **_DRAWN))),
    "save": Function(_stored, quick=True),
    "merge": Function(lambda p: bm.inference.merge([p, p]).mean_mdp().reward, quick=True),
    "posterior.update": Function(lambda p: p.update(_ONE).mean_mdp().reward, quick=True),
    "posterior.sample": Function(lambda p: jax.jit(lambda key: p.sample(key, (2,)).reward)(KEY), quick=True),
    "print": Function(str, quick=True),
    "inference.table": Function(lambda p: str(table(p)), quick=True),
    "plot_posterior": Function(lambda p: str(bm.plots.plot_posterior(p)), quick=True),
}
"""By public name: what is asked of a posterior."""

_SIMULATED: dict[str, Any] = {"num_draws": 10, "num_transitions": 5}
ROUTES: dict[str, Callable[[Any, Any], object]] = {
    "check": lambda prior, method: str(
        bm.check(
            KEY, prior, SPACE, num_simulations=10, options=bm.calibration.CheckOptions(method=method, **_SIMULATED)
        )
    ),
    "sbc": lambda prior, method: str(
        bm.calibration.sbc(
            KEY, prior, SPACE, num_simulations=4, options=bm.calibration.SbcOptions(method=method, **_SIMULATED)
        )
    ),
}
"""Functions that infer again and again: a prior and a method lead to the kind."""


def function_cell(name: str, kind: str) -> Cell:
    """A function and a kind of posterior."""
    if name in ROUTES:
        options = KINDS[kind].options
        cell = outcome(lambda: ROUTES[name](KINDS[kind].prior, options.get("method", "auto")))
    else:
        cell = outcome(lambda: FUNCTIONS[name].call(KINDS[kind].posterior))
    # A refusal begins with its argument, or with the function.
    assert cell.works or re.match(rf"(posterior|posteriors\[0\]|prior|{name}) ", cell.why), cell.why
    return cell


Table = Mapping[str, Mapping[str, Cell]]
"""{row: {kind: cell}}"""


def takes_belief(name: str) -> bool:
    """Whether an agent plans from a posterior."""
    return not isinstance(AGENTS[name](), Learner)


def render(agents: Table, functions: Table) -> str:
    """The page: two tables, and the sentence of every refusal."""
    kinds = "\n".join(f"* **{name}**: {kind.what}" for name, kind in KINDS.items())
    alone = ", ".join(f"`{name}`" for name in AGENTS if not takes_belief(name))
    return f"""# What works with what

Made by `python -m tests.matrix`, which runs every pair; a test compares.

`bm.infer` returns one of these kinds of posteriors (see [which route](../how-to/routes.md)):

{kinds}

A "no" is a refusal with one sentence before anything is computed; the sentences are below each table.
Agents play episodes here; `tsde`, which plans for the average reward alone, a run without end.

## Agents

{_table("agent", agents)}

{_reasons(agents)}

These learn by themselves and take no posterior: {alone}.

## Functions

{_table("function", functions)}

`check` and `sbc` take a prior, which is inferred again and again by the route to the kind.

{_reasons(functions)}
"""


def _table(head: str, cells: Table) -> str:
    lines = [f"| {head} | {' | '.join(KINDS)} |", "|---" * (1 + len(KINDS)) + "|"]
    for name, row in cells.items():
        verdicts = " | ".join("yes" if row[kind].works else "no" for kind in KINDS)
        lines.append(f"| `{name}` | {verdicts} |")
    return "\n".join(lines)


def _reasons(cells: Table) -> str:
    lines = []
    for name, row in cells.items():
        said: dict[str, list[str]] = {}
        for kind in KINDS:
            if not row[kind].works:
                said.setdefault(row[kind].why, []).append(kind)
        lines += [f"* `{name}`, {' and '.join(kinds)}: {why}" for why, kinds in said.items()]
    return "\n".join(lines)


def verdicts(page: str) -> dict[tuple[str, str], bool]:
    """{(row, kind): whether it works} as a page says."""
    found = {}
    for line in page.splitlines():
        first, *others = [part.strip() for part in line.strip("|").split("|")]
        if line.startswith("| `"):
            for kind, verdict in zip(KINDS, others, strict=True):
                found[first.strip("`"), kind] = verdict == "yes"
    return found


def all_cells() -> tuple[Table, Table]:
    """Run everything: minutes."""
    agents = {name: {kind: agent_cell(name, kind) for kind in KINDS} for name in AGENTS if takes_belief(name)}
    functions = {name: {kind: function_cell(name, kind) for kind in KINDS} for name in (*FUNCTIONS, *ROUTES)}
    return agents, functions


if __name__ == "__main__":
    PAGE.write_text(render(*all_cells()))
