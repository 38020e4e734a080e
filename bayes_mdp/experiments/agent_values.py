"""`bayes_values`: the expected return of agents in an episode whose MDP is drawn from the prior, and the optimum.

Every seed has an MDP of its own, and the agent learns within the one episode: the mean reward is the agent's Bayes
value, and `bayes_mdp.decisions.bayes_optimal` is the largest there is.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float, PRNGKeyArray

from bayes_mdp.experiments.results import half_width
from bayes_mdp.experiments.run_agent import run
from bayes_mdp.experiments.run_config import RunOptions, check_agent
from bayes_mdp.mdp import Agent, Environment, Episodic, StateActionSpace
from bayes_mdp.mdp.objectives import require_undiscounted
from bayes_mdp.mdp.space import check_space
from bayes_mdp.models.isolate import traced_alone
from bayes_mdp.models.mdp_spec import MDPSpec, Prior
from bayes_mdp.utils.typing import ArrayLike
from bayes_mdp.utils.validation import check_count, check_dataset, check_initial, check_key

if TYPE_CHECKING:
    import xarray as xr

    from bayes_mdp.decisions import BayesOptimal


def bayes_values(
    agents: Mapping[str, Agent],
    prior: Prior,
    space: StateActionSpace,
    objective: Episodic,
    *,
    initial: ArrayLike,
    key: PRNGKeyArray,
    num_seeds: int = 20_000,
    optimum: "BayesOptimal | None" = None,
) -> "xr.Dataset":
    """Simulate the Bayes value of agents: the mean reward of one episode, learning within it. Host side.

    All agents meet the same MDPs and the same random numbers of the environment, so that differences are sharp. An
    agent learns within the episode only where it plans within it (`replan=1`: before every step).

    Args:
        agents: name -> agent.
        prior: a NumPyro program; every seed draws its MDP from it, and it is the prior of the agents.
        space: of the program.
        objective: `Episodic(horizon)`.
        initial: Float[S], distribution of the first state.
        key: a typed key.
        num_seeds: how many MDPs, at least 2.
        optimum: the result of `bayes_optimal` for this problem; None: it is not known, and there are no shares.

    Returns:
        A Dataset, agents in the order given. `reward` [agent, seed]; `value` [agent], its mean; `behind` [agent], the
        mean difference to the agent with the largest mean, seed by seed; with an optimum, `share` [agent] of it. Each
        with its 95 % interval, `value_interval` [agent, bound] and so on; the attributes hold `num_seeds`, `horizon`
        and `optimum`. `describe_bayes_values` is a summary in words.

    Raises:
        ValueError, TypeError: one sentence on the argument that cannot be used, by `run` with the name of the agent;
            an optimum of another horizon or start.
    """
    if not isinstance(agents, dict) or not agents:
        raise ValueError(f"agents is {agents!r}, expected at least one agent by its name")
    if not isinstance(objective, Episodic):
        raise ValueError(f"objective is {objective}, expected Episodic(horizon)")
    require_undiscounted(objective, "runs of agents")
    check_key("key", key)
    check_count("num_seeds", num_seeds, 2)
    for name, agent in agents.items():
        check_agent(agent, f"agents[{name!r}]")
    check_space(space)
    if initial is None:
        raise TypeError("initial is None, expected a distribution over the first state")
    check_initial(initial, space.n_states)
    start = np.asarray(initial, np.float64)
    _check_optimum(optimum, objective.horizon, start)
    env = outline_of(prior, space, initial)
    rewards = []
    for name, agent in agents.items():
        try:
            result = run(
                agent,
                env,
                objective=objective,
                key=key,
                prior=prior,
                num_episodes=1,
                num_seeds=num_seeds,
                options=RunOptions(space=space, regret="bayes"),
            )
        except (TypeError, ValueError) as error:
            raise type(error)(f"{name}: {error}") from None
        rewards.append(np.asarray(result["reward"].values[:, 0], np.float64))
    return _to_dataset(list(agents), np.stack(rewards), objective.horizon, optimum)


def describe_bayes_values(result: "xr.Dataset") -> str:
    """The agents in words, best mean first.

    Args:
        result: of `bayes_values`.

    Raises:
        TypeError, ValueError: no dataset that `bayes_values` returned.
    """
    check_dataset("result", result)
    order = np.argsort(-result["value"].values, kind="stable")
    names = [str(name) for name in result["agent"].values]
    width, attrs = max(5, *map(len, names)), result.attrs
    lines = [
        f"Bayes value: reward of one episode of {attrs['horizon']} steps, mean over {attrs['num_seeds']} MDPs drawn "
        "from the prior"
    ]
    head = f"  {'agent':<{width}} {'value [95 % interval]':>34} {'behind the first':>34}"
    if "share" in result:
        lines.append(f"  optimum {attrs['optimum']:.9g}")
        head += f" {'share of the optimum, %':>28}"
    lines.append(head)
    for i in order:
        behind = "" if i == order[0] else _show(result, "behind", i, ".4g")
        line = f"  {names[i]:<{width}} {_show(result, 'value', i, '.6g'):>34} {behind:>34}"
        lines.append(line + (f" {_show(result, 'share', i, '.2f', 100.0):>28}" if "share" in result else ""))
    return "\n".join(line.rstrip() for line in lines)


def _show(result: "xr.Dataset", name: str, agent: int | np.integer, form: str, unit: float = 1.0) -> str:
    low, high = unit * result[f"{name}_interval"].values[agent]
    return f"{unit * result[name].values[agent]:{form}} [{low:{form}}, {high:{form}}]"


def _check_optimum(optimum: object, horizon: int, start: Float[np.ndarray, " S"]) -> None:
    from bayes_mdp.decisions import BayesOptimal

    if optimum is None:
        return
    if not isinstance(optimum, BayesOptimal):
        raise TypeError(f"optimum is a {type(optimum).__name__}, expected what bayes_optimal gave")
    if optimum.horizon != horizon:
        raise ValueError(f"optimum has a horizon of {optimum.horizon}, expected {horizon}, that of the objective")
    if optimum.discount != 1:
        raise ValueError(f"optimum has a discount of {optimum.discount:g}, expected 1, that of the objective")
    if optimum.initial.shape != start.shape or not np.allclose(optimum.initial, start, rtol=0, atol=1e-6):
        raise ValueError("optimum has another initial distribution, expected the one given here")


@traced_alone
def outline_of(prior: Prior, space: StateActionSpace, initial: ArrayLike) -> Environment:
    """An environment with the sizes of the problem: `run` draws the environments of the seeds itself."""
    from numpyro import handlers

    from bayes_mdp.models import environment

    if not callable(prior):
        raise TypeError(f"prior is a {type(prior).__name__}, expected a function space -> MDPSpec to draw MDPs from")
    spec = handlers.seed(prior, rng_seed=0)(space)
    assert isinstance(spec, MDPSpec)
    return environment(spec, space, initial, name="drawn from the prior")


def _to_dataset(
    names: list[str], rewards: Float[np.ndarray, "A N"], horizon: int, optimum: "BayesOptimal | None"
) -> "xr.Dataset":
    """Means and intervals of `rewards` [agent, seed]."""
    import xarray as xr

    # Differences seed by seed: all agents met the same MDPs, so most of the variance cancels.
    value = rewards.mean(1)
    behind = rewards[value.argmax()] - rewards
    measures: dict[str, tuple[float | np.ndarray, float | np.ndarray]] = {
        "value": (value, half_width(rewards.T)),
        "behind": (behind.mean(1), half_width(behind.T)),
    }
    attrs: dict[str, int | float] = {"num_seeds": rewards.shape[1], "horizon": horizon}
    if optimum is not None:
        measures["share"] = (optimum.share(value), optimum.share(half_width(rewards.T)))
        attrs["optimum"] = optimum.value
    result = xr.Dataset(
        {"reward": (("agent", "seed"), rewards)},
        coords={"agent": names, "bound": ["low", "high"]},
        attrs=attrs,
    )
    for name, (mean, half) in measures.items():
        result[name] = ("agent", mean)
        result[f"{name}_interval"] = (("agent", "bound"), np.stack([mean - half, mean + half], axis=-1))
    return result
