"""Seconds and memory of `choose` on ICU-Sepsis (716 outcomes, 25 actions, 2,238 legal pairs), by criterion.

`python -m benchmarks.icu_choose [criteria, comma separated] [draws] [episodes] [dense or observed]`. Needs the extra
`health`. Prior: Dirichlet rows of total concentration one, known rewards; one log by the expert. "observed": over the
outcomes that the log has of each pair, all others as one state "unseen", which is worth the mean return. Each criterion
runs in a process of its own: CPU and wall seconds of the call, cold (compilation included), the peak memory of the
process, and what the policy is truly worth. "plan" is the optimum of the mean MDP. "safe" is the mean with the
behaviour as baseline.
"""

import resource
import subprocess
import sys
import time

import jax
import numpy as np

import bayes_mdp as bm
from benchmarks.icu_pooling import true_value

CRITERIA = "plan,mean,cvar:0.1,percentile:0.1,soft-robust:0.1,regret:0.1,probability-optimal,robust:0.95,safe"
OBJECTIVE = bm.FirstExit()


def one(criterion: str, draws: int, episodes: int, outcomes: str) -> None:
    """A line."""
    env = bm.envs.icu_sepsis()
    space, start, reward = env.space, np.asarray(env.mdp.initial), np.asarray(env.mdp.reward)
    log = env.log(jax.random.key(0), episodes, env.expert)
    share = 1 / space.n_outcomes
    if outcomes == "observed":
        mean_return = float(np.sum(np.asarray(log.transitions.reward))) / episodes
        reward = np.concatenate([reward, np.full((1, space.n_actions), mean_return)])
        start = np.append(start, 0.0)
        space = bm.StateActionSpace.from_log(log, legal=np.asarray(env.mdp.legal), ends=True, successors="observed")
    prior = bm.models.known_rewards(reward, share)
    posterior = bm.infer(jax.random.key(0), prior, log, space=space)
    cpu, wall = time.process_time(), time.perf_counter()
    if criterion == "plan":
        policy, said = np.asarray(bm.greedy(posterior, OBJECTIVE)), float("nan")
    else:
        today = bm.behaviour_policy(log, space=space) if criterion == "safe" else None
        name = "mean" if criterion == "safe" else criterion
        found = bm.choose(
            jax.random.key(1),
            posterior,
            OBJECTIVE,
            name,
            initial=start,
            options=bm.decisions.ChooseOptions(num_draws=draws),
            baseline=today,
        )
        policy, said = np.asarray(found.policy), found.value.mean
    spent = time.process_time() - cpu, time.perf_counter() - wall
    policy = policy if policy.ndim == 2 else np.eye(space.n_actions)[policy]
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    truth = true_value(env, policy[: env.space.n_states])
    print(f"{criterion:20} cpu {spent[0]:7.1f} wall {spent[1]:7.1f} peak GB {peak:5.2f} says {said:.4f} is {truth:.4f}")


if __name__ == "__main__":
    given = sys.argv[1:] + [CRITERIA, "1000", "2000", "dense"][len(sys.argv) - 1 :]
    names = given[0].split(",")
    if len(names) == 1:
        one(names[0], int(given[1]), int(given[2]), given[3])
    else:
        for each in names:
            subprocess.run([sys.executable, "-m", "benchmarks.icu_choose", each, *given[1:]], check=True)
