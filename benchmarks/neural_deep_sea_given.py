"""Does the network fail to explore DeepSea, or to learn? It is given the data of the exact rule, and only learns.

    python -m benchmarks.neural_deep_sea_given [--size 100] [--finds 6] [--episodes 60]

The exact rule of `neural_deep_sea_table.py` (noise .0031) plays until it has found the treasure so often. From its
transitions Q and w are then learnt as `DeepUBE` learns them, by tables that go a tenth of the way to each target and by
two networks of 64 and 64 units (Adam, rate 1e-3): batches of 128, four for each step of an episode, target copied after
every fourth. A line after every ten episodes' worth of batches, and one of the exact backup of the same counts: the
value of going right and the bonus beta sqrt(u) of both actions in the first state, for how many steps the optimistic
policy and the greedy one go right, and the mean of sqrt(u) over the exact one. `NPROC=1` is best.
"""

import argparse
from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from bayes_mdp.agents.neural.networks import Dense, dense, dense_init
from bayes_mdp.agents.neural.replay_learning import descend, scale
from bayes_mdp.envs.papers.chain_mdps import COST
from benchmarks.neural_deep_sea_places import PlaceMLP
from benchmarks.neural_deep_sea_table import BASE, BATCH, LAG, STEPS, Rule, visits_of

RULE = replace(BASE, noise=0.0031)
RATE, SHARE = 1e-3, 0.1


class Data(NamedTuple):
    """Transitions and what is known of every pair; a cell is row N + column.

    Args:
        cell, action, following, last: of each transition; in the last row nothing follows.
        reward: its posterior mean (1 - kappa) r.
        kappa: [cell, action], the share of the variance that is left.
    """

    cell: Any
    action: Any
    following: Any
    last: Any
    reward: Any
    kappa: Any


def data_of(rule: Rule, pairs: np.ndarray, size: int) -> Data:
    """From pairs in the order of their visits: 2 (row N + column) + action."""
    cell, action = np.divmod(pairs, 2)
    row, column = np.divmod(cell, size)
    below = np.where(action == 1, np.minimum(column + 1, size - 1), np.maximum(column - 1, 0))
    last = row == size - 1
    pay = np.tile([0.0, -COST / size], (size**2, 1))
    pay[-1, 1] += 1
    count = np.bincount(pairs, minlength=2 * size**2).reshape(-1, 2)
    kappa = rule.share(count, pay**2)
    following = np.where(last, 0, np.minimum(row + 1, size - 1) * size + below)
    reward = ((1 - kappa) * pay)[cell, action]
    return Data(cell, action, following, last, reward.astype(np.float32), kappa.astype(np.float32))


def exact_values(rule: Rule, data: Data, size: int) -> tuple[np.ndarray, np.ndarray]:
    """Q and u [cell, action] by one sweep from the last row; Q = 0 of pairs that were never tried."""
    reward, tried = np.zeros((size**2, 2)), np.zeros((size**2, 2), bool)
    reward[data.cell, data.action], tried[data.cell, data.action] = data.reward, True
    column = np.arange(size)
    left, right = np.maximum(column - 1, 0), np.minimum(column + 1, size - 1)
    q, u = np.zeros((2, size, size, 2))
    q_next = u_next = np.zeros(size)
    for row in reversed(range(size)):
        here = slice(row * size, (row + 1) * size)
        later = np.stack([q_next[left], q_next[right]], 1)
        q[row] = np.where(tried[here], reward[here] + rule.discount * later, 0.0)
        u[row] = rule.uncertainty(data.kappa[here], np.stack([u_next[left], u_next[right]], 1))
        q_next, u_next = q[row].max(1), u[row][column, (q[row] + rule.beta * np.sqrt(u[row])).argmax(1)]
    return q.reshape(-1, 2), u.reshape(-1, 2)


class Table(NamedTuple):
    """Values that go a tenth of the way to their targets; `tree` is {"q": [cell, action], "w": ...}."""

    size: int

    def init(self, key: Any) -> Any:
        """Q about 0, w = 1."""
        shape = (self.size**2, 2)
        return {"q": 1e-3 * jax.random.normal(key, shape), "w": jnp.ones(shape)}

    def apply(self, values: Any, cell: Any) -> Any:
        """Rows."""
        return values[cell]

    def step(self, tree: Any, state: Any, data: Data, batch: Any, aims: Any) -> Any:
        """A pair that was drawn twice takes one step: both draws have one target."""
        at = data.cell[batch], data.action[batch]
        return {name: tree[name].at[at].set((1 - SHARE) * tree[name][at] + SHARE * aims[name]) for name in tree}, state


class Networks(NamedTuple):
    """As `DeepUBE` has them: a network of Q, one of w whose last layer is small with bias 1, one optimiser."""

    size: int

    def init(self, key: Any) -> Any:
        """Both, drawn."""
        trunk, tree = PlaceMLP(self.size**2), {}
        for name, own in zip("qw", jax.random.split(key), strict=True):
            first, second = jax.random.split(own)
            tree[name] = (trunk.init(first, (1,)), dense_init(second, 64, 2))
        inner, last = tree["w"]
        tree["w"] = inner, Dense(0.1 * last.weight, jnp.ones_like(last.bias))
        return tree

    def apply(self, values: Any, cell: Any) -> Any:
        """Of cells."""
        trunk, last = values
        return dense(last, PlaceMLP(self.size**2).apply(trunk, cell[:, None]))

    def step(self, tree: Any, state: Any, data: Data, batch: Any, aims: Any) -> Any:
        """Adam on both squared errors."""

        def loss(tree: Any) -> Any:
            taken = data.action[batch][:, None]
            errors = (
                jnp.take_along_axis(self.apply(tree[name], data.cell[batch]), taken, 1)[:, 0] - aims[name]
                for name in tree
            )
            return sum(jnp.mean(error**2) for error in errors)

        return descend("adam", RATE, tree, jax.grad(loss)(tree), state)


def learner(rule: Rule, kind: Table | Networks, data: Data) -> Callable[[Any, Any], Any]:
    """One batch for every key: from (tree, target, state of the optimiser, batches so far)."""
    data = jax.tree.map(jnp.asarray, data)

    def uncertainty(cell: Any, w: Any) -> Any:
        kappa = data.kappa[cell]
        future = kappa + (1 - kappa) * jnp.clip(w, 0.0, 1.0)
        return jnp.minimum(rule.local_scale * kappa + rule.discount**2 * future, 1.0)

    def one(carry: Any, key: Any) -> Any:
        tree, target, state, made = carry
        batch = jax.random.randint(key, (BATCH,), 0, len(data.cell))
        below, last = data.following[batch], data.last[batch]
        q, u = kind.apply(target["q"], below), uncertainty(below, kind.apply(target["w"], below))
        # Q of the greedy action, u of the optimistic one.
        best = jnp.argmax(q + rule.beta * jnp.sqrt(u), 1)[:, None]
        aims = {
            "q": data.reward[batch] + rule.discount * jnp.where(last, 0.0, q.max(1)),
            "w": jnp.where(last, 0.0, jnp.take_along_axis(u, best, 1)[:, 0]),
        }
        tree, state = kind.step(tree, state, data, batch, aims)
        target = jax.tree.map(lambda new, old: jnp.where((made + 1) % LAG == 0, new, old), tree, target)
        return (tree, target, state, made + 1), None

    return jax.jit(lambda carry, keys: jax.lax.scan(one, carry, keys)[0])


def goes_right(values: np.ndarray, size: int) -> int:
    """For how many steps the best action is right, from the first state on."""
    right = np.array([values[row * (size + 1), 1] > values[row * (size + 1), 0] for row in range(size)])
    return int(np.argmin(np.append(right, False)))


def line(name: str, q: np.ndarray, u: np.ndarray, exact: np.ndarray, size: int, seen: np.ndarray) -> str:
    """Of the table; `seen`: cells that were visited."""
    bonus = RULE.beta * np.sqrt(u)
    share = np.sqrt(u[seen]).mean() / np.sqrt(exact[seen]).mean()
    return (
        f"{name:<24} Q right {q[0, 1]:5.2f}  bonus right {bonus[0, 1]:4.2f} left {bonus[0, 0]:4.2f}  goes right: "
        f"optimistic {goes_right(q + bonus, size):3d} greedy {goes_right(q, size):3d}  sqrt(u) {share:4.2f} of exact"
    )


def main(write: Callable[[str], object] = print) -> None:
    """Line by line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", type=int, default=100)
    parser.add_argument("--finds", type=int, default=6, help="of the treasure, in the data")
    parser.add_argument("--episodes", type=int, default=60, help="worth of batches")
    args = parser.parse_args()
    size = args.size
    pairs = visits_of(RULE, size, 0, args.finds)
    data = data_of(RULE, pairs, size)
    seen = np.unique(data.cell)
    write(f"{len(pairs) // size} episodes, {len(np.unique(pairs))} of {size * (size + 1)} pairs tried")
    q, u = exact_values(RULE, data, size)
    write(line("exact", q, u, u, size, seen))
    cells = jnp.arange(size**2)
    for name, kind in (("table", Table(size)), ("networks", Networks(size))):
        tree = kind.init(jax.random.key(1))
        carry, run = (tree, tree, scale("adam").init(tree), 0), learner(RULE, kind, data)
        for ten in range(args.episodes // 10):
            carry = run(carry, jax.random.split(jax.random.fold_in(jax.random.key(2), ten), 10 * STEPS * size))
            learnt = {part: np.asarray(kind.apply(carry[0][part], cells), np.float64) for part in "qw"}
            now = RULE.uncertainty(data.kappa, learnt["w"])
            write(line(f"{name}, {10 * (ten + 1)} episodes", learnt["q"], now, u, size, seen))


if __name__ == "__main__":
    main()
