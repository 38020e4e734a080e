"""When to replace a bus engine? A log of 162 city buses, a prior, and how sure one may be of a policy.

    python examples/bus_engine.py path/to/bus_engine_replacement.csv

The log (Rust, "Optimal Replacement of GMC Bus Engines", Econometrica 55(5), 1987) has one row a month: mileage since
the last replacement in bins of 5,000 miles (state 0..89), keep or replace (action 0, 1), and the next month's bin. It
has no costs: those are Rust's published estimates. Unknown is how fast the buses run.
"""

import sys

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pandas as pd

import bayes_mdp as bm

N_STATES, KEEP, REPLACE = 90, 0, 1
ACTIONS = ("keep", "replace")
RUNNING_COST, REPLACEMENT_COST = 0.001 * 2.293, 10.075  # a month per bin of mileage; a new engine
MONTHLY = bm.Discounted(0.9999)
STATE = np.arange(N_STATES)
REWARD = -np.stack([RUNNING_COST * STATE, np.full(N_STATES, REPLACEMENT_COST)], axis=1)
NEW_ENGINE = np.eye(N_STATES)[0]


def read(path: str) -> bm.mdp.Log:
    """The log, with every bin as a state, seen or not, and the actions by name."""
    frame = pd.read_csv(path).replace({"action": dict(enumerate(ACTIONS))})
    return bm.read_log(
        frame, state="state", action="action", next_state="next_state", states=range(N_STATES), actions=ACTIONS
    )


def bus_space() -> bm.StateActionSpace:
    """What is known beforehand: a month adds 0, 1 or 2 bins, a new engine starts in bin 0."""
    support = np.zeros((N_STATES, 2, N_STATES), bool)
    for increment in range(3):
        support[STATE, KEEP, np.minimum(STATE + increment, N_STATES - 1)] = True
    support[:, REPLACE, 0] = True
    return bm.StateActionSpace(N_STATES, 2, states=range(N_STATES), actions=ACTIONS, support=support)


each_bin = bm.models.known_rewards(REWARD)
"""A prior by which buses may run differently in every bin: a Dirichlet row each."""


def alike(space: bm.StateActionSpace) -> bm.models.MDPSpec:
    """A prior by which the months are alike at every mileage: one Dirichlet for all rows."""
    increment = numpyro.sample("increment", dist.Dirichlet(jnp.ones(3)))
    size = space.n_states
    keep = jnp.stack([jnp.eye(size, k=k) for k in range(3)], axis=-1) @ increment
    keep = keep.at[-2:].set(jnp.eye(size)[-1])  # beyond the last bin there is none: known rows
    replace = jnp.broadcast_to(jnp.eye(size)[0], (size, size))
    return bm.models.MDPSpec(jnp.stack([keep, replace], axis=1), REWARD)


def replace_from(mileage: int) -> np.ndarray:
    """The policy that replaces from bin `mileage` up."""
    return np.where(mileage > STATE, KEEP, REPLACE)


POLICIES = {"from 45": replace_from(45), "from 60": replace_from(60)}


def main(path: str) -> None:
    """Print what the log implies for the two policies, under both priors."""
    log, space = read(path), bus_space()
    for title, prior in (("Every bin for itself", each_bin), ("All bins alike", alike)):
        posterior = bm.infer(jax.random.key(0), prior, log, space=space)
        answer = bm.compare_policies(jax.random.key(1), posterior, POLICIES, MONTHLY, initial=NEW_ENGINE)
        print(f"{title}: log evidence {float(posterior.log_evidence):.1f}\n{answer}\n")


if __name__ == "__main__":
    main(sys.argv[1])
