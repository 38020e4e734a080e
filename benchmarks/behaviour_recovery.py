"""Behaviour as data: recovery in the two-step task; does LOO find the agent, does the check flag a stranger?

`python -m benchmarks.behaviour_recovery recovery [persons trials draws]`: persons with the parameters of a known group
(means (0, 1.2, 0, 1.2, -1.6, 0, 0), standard deviations (.6, .4, .6, .4, .5, .6, .6) on the line), the seven-parameter
model by NUTS with partial pooling and without: correlation and root mean squared error of the posterior means,
coverage of 90 % intervals, time.

`python -m benchmarks.behaviour_recovery selection [groups persons trials draws]`: groups of each of four agents and of
one that is none of them, all four models fitted to each; which has the best LOO (choice by choice), what the
predictive check of the best one says.
"""

import sys
import time
import warnings
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist

import bayes_mdp as bm
from bayes_mdp import behaviour
from bayes_mdp.agents import BoltzmannQ, SoftQMean
from bayes_mdp.behaviour import LearnerChoices, Parameter, TwoStep, TwoStepTask
from bayes_mdp.calibration import check_choices
from bayes_mdp.calibration.arviz.generation import arviz
from bayes_mdp.mdp import Problem

MEANS = np.array([0.0, 1.2, 0.0, 1.2, -1.6, 0.0, 0.0])
SDS = np.array([0.6, 0.4, 0.6, 0.4, 0.5, 0.6, 0.6])
WIDE = dist.HalfNormal(1.0)


class ChoiceKernel:
    """Repeats what was chosen before in a state, whatever came of it."""

    parameters = {"rate": Parameter("unit"), "beta": Parameter("positive")}  # noqa: RUF012

    def init(self, params: Any) -> Any:
        """No habits."""
        return jnp.zeros((3, 2))

    def policy(self, params: Any, habit: Any, state: Any) -> Any:
        """Softmax of the habits."""
        return jax.nn.log_softmax(params["beta"] * habit[state])

    def update(self, params: Any, habit: Any, transition: Any) -> Any:
        """The habits of the state move towards the choice."""
        here = (jnp.arange(3) == transition.state)[:, None]
        chosen = (jnp.arange(2) == transition.action).astype(habit.dtype)
        return habit + params["rate"] * here * (chosen - habit)


class WinStayLoseShift:
    """Repeats the last first-stage choice after a reward, changes it otherwise; likewise in each second-stage state."""

    parameters = {"lapse": Parameter((0.0, 1.0))}  # noqa: RUF012

    def init(self, params: Any) -> Any:
        """(favourite by state: -1, 0 unknown, +1; the first choice of this trial)."""
        return jnp.zeros(3), jnp.zeros(())

    def policy(self, params: Any, state: Any, observation: Any) -> Any:
        """The favourite but for a lapse."""
        right = 0.5 + 0.5 * (1.0 - params["lapse"]) * state[0][observation]
        return jnp.log(jnp.stack([1.0 - right, right]))

    def update(self, params: Any, state: Any, transition: Any) -> Any:
        """After the second stage both favourites are known."""
        favourite, first = state
        sign = 2.0 * transition.action - 1.0
        outcome = 2.0 * transition.reward - 1.0
        at_first = transition.state == 0
        here = jnp.arange(3) == transition.state
        new = jnp.where(here, sign * outcome, favourite).at[0].set(first * outcome)
        return jnp.where(at_first, favourite, new), jnp.where(at_first, sign, first)


def models() -> dict[str, Any]:
    """The four agents."""
    space = bm.StateActionSpace(3, 2, ends=True)
    problem = Problem(space, bm.Episodic(2), np.eye(3)[0])
    prior: Any = bm.infer(jax.random.key(0), bm.models.dirichlet_bernoulli(), None, space=space)
    q = {"rate": Parameter("unit"), "beta": Parameter("positive")}
    return {
        "hybrid": TwoStep(4),
        "q_learning": LearnerChoices(lambda p: BoltzmannQ(1.0 / p["beta"], p["rate"]), q, problem),
        "soft_q_mean": LearnerChoices(
            lambda p: SoftQMean(1.0 / p["beta"], replan=1), {"beta": Parameter("positive")}, problem, prior=prior
        ),
        "choice_kernel": ChoiceKernel(),
    }


TRUTH = {
    "hybrid": {"a": 0.0, "beta": 1.2, "pi": -1.6, "w": 0.3},
    "q_learning": {"rate": 0.0, "beta": 1.2},
    "soft_q_mean": {"beta": 1.8},
    "choice_kernel": {"rate": -0.5, "beta": 0.7},
}


def persons(model: Any, means: dict[str, float], number: int, rng: np.random.Generator) -> dict[str, np.ndarray]:
    """Parameters of a group whose standard deviation on the line is .3."""
    return {
        name: np.asarray(model.parameters[name].constrain(mean + 0.3 * rng.normal(size=number)))
        for name, mean in means.items()
    }


def recovery(num_persons: int = 100, trials: int = 200, draws: int = 250) -> None:
    """Correlation, error, coverage, time."""
    priors = {name: Parameter(p.support, group_sd=WIDE) for name, p in TwoStep(7).parameters.items()}
    model = TwoStep(7, priors=priors)
    names = list(model.parameters)
    line = MEANS + SDS * np.random.default_rng(1).normal(size=(num_persons, 7))
    truth = {name: np.asarray(model.parameters[name].constrain(line[:, i])) for i, name in enumerate(names)}
    log = behaviour.simulate(jax.random.key(5), model, truth, TwoStepTask(), 2 * trials)
    for pooling in ("partial", "none"):
        wall, cpu = time.time(), time.process_time()
        posterior = behaviour.fit(
            jax.random.key(0), model, log, pooling=pooling, sampler=bm.inference.NUTS(draws, draws, 2)
        )  # type: ignore[arg-type]
        wall, cpu = time.time() - wall, time.process_time() - cpu
        steps = np.asarray(posterior.mcmc.num_steps).mean()
        print(f"{pooling}: {wall:.0f} s ({cpu:.0f} CPU-s), {steps:.0f} leapfrog steps a draw")
        frame = posterior.table()
        print(f"  least ess: group {frame[frame.subject.isna()].ess.min():.0f}, all {frame.ess.min():.0f}")
        for name in names:
            each = posterior.each_person()[name]
            low, high = np.quantile(each, [0.05, 0.95], axis=0)
            mean, covered = each.mean(0), ((low < truth[name]) & (truth[name] < high)).mean()
            rmse = np.sqrt(((mean - truth[name]) ** 2).mean())
            print(f"  {name:<7} r {np.corrcoef(mean, truth[name])[0, 1]:.2f} rmse {rmse:.2f} covered {covered:.2f}")


def selection(groups: int = 10, num_persons: int = 15, trials: int = 80, draws: int = 150) -> None:
    """How often LOO finds the agent, and what the check says of a stranger."""
    found, flagged = dict.fromkeys(TRUTH, 0), {name: 0 for name in (*TRUTH, "stranger")}
    each = models()
    for group in range(groups):
        rng = np.random.default_rng(group)
        for true in (*TRUTH, "stranger"):
            maker: Any = WinStayLoseShift() if true == "stranger" else each[true]
            params = persons(maker, TRUTH[true], num_persons, rng) if true in TRUTH else {"lapse": 0.3}
            key = jax.random.fold_in(jax.random.key(3), group)
            log = behaviour.simulate(key, maker, params, TwoStepTask(), 2 * trials, subjects=num_persons)
            elpd, fits = {}, {}
            for name, model in each.items():
                fits[name] = behaviour.fit(key, model, log, sampler=bm.inference.NUTS(draws, draws, 2))
                elpd[name] = float(arviz().loo(bm.to_arviz(fits[name])).elpd_loo)
            best = max(elpd, key=lambda name: elpd[name])
            if true in found:
                found[true] += best == true
            check = check_choices(key, fits[best])
            flagged[true] += bool(check.surprises)
            shown = ", ".join(f"{name} {value:.1f}" for name, value in elpd.items())
            print(f"group {group} of {true}: best {best} ({shown}); surprising: {check.surprises}", flush=True)
    print(f"LOO finds the agent in {found} of {groups} groups; the check of the best flags {flagged}")


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    {"recovery": recovery, "selection": selection}[sys.argv[1]](*map(int, sys.argv[2:]))
