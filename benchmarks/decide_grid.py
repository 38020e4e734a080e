"""Does `decide` recommend what is better, never what is worse, and say how sure it is? Worlds whose truth is known.

`python -m benchmarks.decide_grid [logs] [episodes,...] [family,...] [prior] [file]`; all defaults of `decide`, the
prior among them unless another one of `PRIORS` is named. The file, docs/measured/decide_logs.csv, has a line a log; a
run goes on from those that are there, also after it was killed, and prints the table (with 0 logs that alone).
`benchmarks.decide_grid_picture` puts it into the page. Logs have seeds from `FRESH` on: those of smaller seeds were
looked at while the rules of `decide` were made.
Of each log: whether a policy is recommended; whether it is truly worse than what the log did (harm); whether the 90 %
interval of the candidate's gain, as `decide` widens it, holds the truth, and the posterior's own; the share of the
possible gain that is realised; whether a check failed, and whether one stopped the decision. `unbiased_test`: a
reference, no bound on `decide` (which may show more: it speaks of the policy that looks best, and has a prior): the
share that a test of level .05 shows by an unbiased normal estimate, Phi(t - 1.645) for a gain of t standard errors.
In states where the log never acted, as in much of Taxi, the truth of the candidate is that the staff go on as they do.

Families: a machine that wears; random rows and rewards; those with staff who are nearly as good as can be; those with
actions that are rarely tried; an inventory; a queue; a ward whose patients leave (0 or 1 at the end); Gymnasium's
FrozenLake and Taxi; ICU-Sepsis. Worlds that break a promise of `decide`: `confounded` (staff see a severity that the
log has not), `by_step` (they act otherwise in the second half of an episode), `rewards_missing` (low rewards are lost
more often), `changing_rows` (wear is slower in the later half of the episodes; the truth is the later world).
"""

import itertools
import sys
import time
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pandas as pd
from jaxtyping import Bool, Float, Int
from scipy.stats import norm

import bayes_mdp as bm
from bayes_mdp.models.default_prior import reward_law_of
from bayes_mdp.recommend.decision import CHOSEN

DISCOUNT, STEPS = 0.95, 30
FRESH = 1_000
"""First seed of a cell: its log was looked at by no one before the rules were as they are."""
LOGS = Path(__file__).parents[1] / "docs" / "measured" / "decide_logs.csv"
CELL = ["family", "episodes"]
DEFAULT, FLAT, SPARSE = PRIORS = "default", "flat", "1/S"
"""Of rows: that of `decide`; Dirichlet of concentration one for each outcome; of total concentration one. Rewards have
the law of the default prior under all three."""
CANDIDATE = dict.fromkeys(
    ("better", "coverage", "coverage_decide", "true", "possible", "mean", "sd", "spread", "prob", "fewest"), "float64"
)
"""What is said of a candidate; empty where there is none."""
COLUMNS = {
    **{"family": "str", "episodes": "int64", "prior": "str", "seed": "int64", "recommended": "int64", "harm": "int64"},
    **{"stopped": "int64", "alarms": "str", "followed": "str", "cpu": "float64", **CANDIDATE},
}
"""Column of the file -> type. Checks that failed ("none"; empty: not asked) and what was judged again are names joined
by "; "."""
Array = np.ndarray


@dataclass(frozen=True)
class World:
    """A true MDP, and the staff whose log `decide` reads.

    Args:
        rows: [S, A, O]; O is S, or S + 1 where episodes end (the last outcome).
        reward: mean rewards.
        behaviour: of the staff.
        noise: standard deviation of a reward; 0: a reward is what it is on average.
        start: distribution of the first state; None: state 0.
        by_outcome: reward of each outcome instead [S, A, O]; None: they do not depend on it.
    """

    rows: Float[Array, "S A O"]
    reward: Float[Array, "S A"]
    behaviour: Float[Array, "S A"]
    noise: float
    start: Float[Array, " S"] | None = None
    by_outcome: Float[Array, "S A O"] | None = None
    legal: Bool[Array, "S A"] | None = None
    steps: int = STEPS

    @property
    def initial(self) -> Float[Array, " S"]:
        """Distribution of the first state."""
        return np.eye(len(self.rows))[0] if self.start is None else self.start

    def columns(self, episodes: int, rng: np.random.Generator) -> pd.DataFrame:
        """One row a transition, episode by episode."""
        return play(self, episodes, rng)

    def value(self, policy: Float[Array, "S A"]) -> float:
        """Of a policy, from the start."""
        rows = self.rows[..., : len(self.rows)]
        chain = np.einsum("sa,sat->st", policy, rows)
        v = np.linalg.solve(np.eye(len(rows)) - DISCOUNT * chain, (policy * self.reward).sum(-1))
        return float(self.initial @ v)

    def value_of_staff(self) -> float:
        """Of what the log did."""
        return self.value(self.behaviour)

    def best(self) -> Float[Array, "S A"]:
        """The true optimum."""
        return np.eye(self.reward.shape[-1])[self._best_actions]

    @cached_property
    def _best_actions(self) -> Int[Array, " S"]:
        q, states = np.zeros_like(self.reward), len(self.rows)
        illegal = 0.0 if self.legal is None else np.where(self.legal, 0.0, -np.inf)
        for _ in range(1000):
            before, q = q, self.reward + DISCOUNT * self.rows[..., :states] @ (q + illegal).max(-1)
            if np.array_equal(before, q):
                break
        return (q + illegal).argmax(-1)


def play(
    world: World,
    episodes: int,
    rng: np.random.Generator,
    behaviours: Float[Array, "T S A"] | None = None,
    first: int = 0,
) -> pd.DataFrame:
    """Episodes of a world, played side by side; `behaviours`: of the staff at each step."""
    rows, states = world.rows, len(world.rows)
    cumulative = rows.cumsum(-1)
    state: Int[Array, " E"] = rng.choice(states, episodes, p=world.initial)
    going = np.arange(episodes)
    steps = []
    for t in range(world.steps):
        chances = (world.behaviour if behaviours is None else behaviours[t])[state]
        action = (rng.random((len(state), 1)) > chances.cumsum(-1)).sum(-1).clip(0, chances.shape[1] - 1)
        reached = (rng.random((len(state), 1)) > cumulative[state, action]).sum(-1).clip(0, rows.shape[-1] - 1)
        paid = world.reward[state, action] if world.by_outcome is None else world.by_outcome[state, action, reached]
        paid = paid + world.noise * rng.normal(size=len(state))
        over = reached == states
        table = {
            "e": first + going,
            "n": t,
            "s": state,
            "a": action,
            "r": paid,
            "t": np.where(over, 0, reached),
            "z": over,
        }
        steps.append(pd.DataFrame(table))
        going, state = going[~over], reached[~over]
        if not len(going):
            break
    return pd.concat(steps).sort_values(["e", "n"])


def maintenance(rng: np.random.Generator) -> World:
    """Four states of wear, three actions; hardly anyone services a broken machine."""
    rows = np.zeros((4, 3, 4))
    rows[:, 0] = [[0.80, 0.17, 0.02, 0.01], [0, 0.75, 0.20, 0.05], [0, 0, 0.70, 0.30], [0, 0, 0, 1]]
    rows[:, 1] = [[0.95, 0.05, 0, 0], [0.50, 0.45, 0.05, 0], [0.10, 0.40, 0.45, 0.05], [0, 0, 0, 1]]
    rows[:, 2] = [0.99, 0.01, 0, 0]
    rows += rng.uniform(0, 0.04, rows.shape)
    reward = np.array([[20, 14, -30], [16, 10, -34], [8, 2, -40], [-40, -45, -90.0]]) + rng.normal(0, 4, (4, 3))
    behaviour = np.array([[0.85, 0.10, 0.05], [0.60, 0.30, 0.10], [0.30, 0.40, 0.30], [0.10, 0.10, 0.80]])
    return World(rows / rows.sum(-1, keepdims=True), reward, behaviour, 6.0)


def random_rows(rng: np.random.Generator) -> World:
    """Six states, three actions, each to three states; the behaviour is anything."""
    rows = np.zeros((6, 3, 6))
    for s, a in np.ndindex(6, 3):
        rows[s, a, rng.choice(6, 3, replace=False)] = rng.dirichlet(np.ones(3))
    return World(rows, rng.normal(size=(6, 3)), 0.9 * rng.dirichlet(np.ones(3), 6) + 0.1 / 3, 1.0)


def near_best(rng: np.random.Generator) -> World:
    """The same, and the staff act by a softmax of the true values: little can be gained, much lost."""
    world, q = random_rows(rng), np.zeros((6, 3))
    for _ in range(500):
        q = world.reward + DISCOUNT * world.rows @ q.max(-1)
    behaviour = np.exp(2 * (q - q.max(-1, keepdims=True)))
    return replace(world, behaviour=0.97 * behaviour / behaviour.sum(-1, keepdims=True) + 0.01)


def rarely_tried(rng: np.random.Generator) -> World:
    """Random rows, and one action in each state is taken 92 times in a hundred."""
    world, behaviour = random_rows(rng), np.full((6, 3), 0.04)
    behaviour[np.arange(6), rng.integers(0, 3, 6)] = 0.92
    return replace(world, behaviour=behaviour)


def inventory(rng: np.random.Generator) -> World:
    """Up to seven in stock, orders of 0, 2, 4 or 6, Poisson demand, costs of holding and of ordering."""
    demand, price, holding, fee = rng.uniform(1.5, 3.5), rng.uniform(4, 8), rng.uniform(0.3, 1.0), rng.uniform(1, 3)
    chances = np.cumprod(np.append(1.0, demand / np.arange(1, 30)))
    chances /= chances.sum()
    rows, reward, wanted = np.zeros((8, 4, 8)), np.zeros((8, 4)), np.arange(30)
    for s, a in np.ndindex(8, 4):
        stock = min(s + 2 * a, 7)
        np.add.at(rows[s, a], np.maximum(stock - wanted, 0), chances)
        sold = price * np.minimum(stock, wanted) - 2 * np.maximum(wanted - stock, 0)
        reward[s, a] = chances @ sold - holding * stock - fee * (a > 0) - 3.0 * a
    behaviour = np.where(np.arange(8)[:, None] < 3, [[0.2, 0.4, 0.3, 0.1]], [[0.7, 0.2, 0.07, 0.03]])
    return World(rows, reward, behaviour, 2.0)


def queue(rng: np.random.Generator) -> World:
    """Up to nine who wait, three speeds of service, each dearer than the one before."""
    arrival, served = rng.uniform(0.3, 0.6), np.sort(rng.uniform(0.2, 0.9, 3))
    rows, wage = np.zeros((10, 3, 10)), np.array([0.0, rng.uniform(1, 3), rng.uniform(3, 6)])
    for s, a in np.ndindex(10, 3):
        leaves = served[a] if s else 0.0
        for change, chance in ((1, arrival * (1 - leaves)), (-1, (1 - arrival) * leaves)):
            rows[s, a, min(max(s + change, 0), 9)] += chance
        rows[s, a, s] += arrival * leaves + (1 - arrival) * (1 - leaves)
    reward = -np.arange(10.0)[:, None] - wage
    behaviour = np.where(np.arange(10)[:, None] < 4, [[0.7, 0.25, 0.05]], [[0.3, 0.5, 0.2]])
    return World(rows, reward, behaviour, 1.0)


def triage(rng: np.random.Generator) -> World:
    """Five grades of illness, three treatments; patients are discharged (1) or die (0)."""
    rows, paid = np.zeros((5, 3, 6)), np.zeros((5, 3, 6))
    for s, a in np.ndindex(5, 3):
        better, worse, stay = rng.dirichlet([2.0 + a * (s > 2), 1.5 + a * (s < 2), 3.0])
        rows[s, a, s] += stay
        rows[s, a, s - 1 if s else 5] += better
        rows[s, a, s + 1 if s < 4 else 5] += worse
        paid[s, a, 5] = float(s == 0)
    behaviour = 0.85 * rng.dirichlet(np.ones(3), 5) + 0.05
    return World(rows, (rows * paid).sum(-1), behaviour, 0.0, np.full(5, 0.2), paid)


@cache
def _from_environment(name: str, epsilon: float) -> World:
    """An environment; the staff are right but for `epsilon` of their actions."""
    env = bm.envs.icu_sepsis() if name == "icu_sepsis" else bm.envs.from_gymnasium(name)
    mdp, (states, actions) = env.mdp, (env.mdp.n_states, env.mdp.n_actions)
    rows = np.zeros((states, actions, states + 1))
    if isinstance(mdp, bm.SparseMDP):
        where = np.ogrid[:states, :actions, :1][:2]
        np.add.at(rows, (*where, np.minimum(mdp.successor, states)), np.asarray(mdp.probability, float))
    else:
        rows[..., :states] = mdp.transition_probs
    rows[..., -1] += np.maximum(1 - rows.sum(-1), 0)
    legal = None if mdp.legal is None else np.asarray(mdp.legal)
    initial = np.asarray(mdp.initial, float)
    world = World(rows, np.asarray(mdp.reward, float), np.zeros((states, actions)), 0.0, initial / initial.sum())
    world = replace(world, legal=legal, steps=100)
    evenly = np.ones((states, actions)) if legal is None else legal.astype(float)
    mixed = (1 - epsilon) * world.best() + epsilon * evenly / evenly.sum(-1, keepdims=True)
    return replace(world, behaviour=mixed)


def frozen_lake(rng: np.random.Generator) -> World:
    """Gymnasium's FrozenLake, eight moves in ten at random."""
    del rng
    return _from_environment("FrozenLake-v1", 0.8)


def taxi(rng: np.random.Generator) -> World:
    """Gymnasium's Taxi, half of the moves at random."""
    del rng
    return _from_environment("Taxi-v4", 0.5)


def icu_sepsis(rng: np.random.Generator) -> World:
    """ICU-Sepsis, half of the treatments at random."""
    del rng
    return _from_environment("icu_sepsis", 0.5)


@dataclass(frozen=True)
class Confounded(World):
    """Half of the episodes are of a kind that wears faster and pays less: staff see it, and then service more often."""

    severe: World = field(kw_only=True)

    def columns(self, episodes: int, rng: np.random.Generator) -> pd.DataFrame:
        """Of both kinds."""
        half = episodes // 2
        return pd.concat([play(self, half, rng), play(self.severe, episodes - half, rng, first=half)])

    def value(self, policy: Float[Array, "S A"]) -> float:
        """On average over the kinds, as one who does not see them plays."""
        return (super().value(policy) + self.severe.value(policy)) / 2

    def value_of_staff(self) -> float:
        """Who see them."""
        return (super().value(self.behaviour) + self.severe.value(self.severe.behaviour)) / 2


def confounded(rng: np.random.Generator) -> World:
    """See `Confounded`."""
    mild = maintenance(rng)
    rows = mild.rows.copy()
    for s in range(3):
        rows[s, :, s + 1 :] += 0.5 * rows[s, :, s : s + 1] / (3 - s)
        rows[s, :, s] *= 0.5
    careful = np.array([[0.3, 0.4, 0.3], [0.1, 0.4, 0.5], [0.05, 0.25, 0.7], [0.05, 0.05, 0.9]])
    severe = World(rows, mild.reward - 10.0, careful, mild.noise)
    return Confounded(mild.rows, mild.reward, mild.behaviour, mild.noise, severe=severe)


@dataclass(frozen=True)
class ByStep(World):
    """The staff act otherwise from the middle of an episode on."""

    later: Float[Array, "S A"] = field(kw_only=True)

    def columns(self, episodes: int, rng: np.random.Generator) -> pd.DataFrame:
        """The first half of the steps by one behaviour."""
        half = self.steps // 2
        return play(self, episodes, rng, np.stack([self.behaviour] * half + [self.later] * (self.steps - half)))

    def value_of_staff(self) -> float:
        """Who go on as in the second half."""
        chain = lambda policy: np.einsum("sa,sat->st", policy, self.rows)  # noqa: E731
        v = np.linalg.solve(np.eye(len(self.rows)) - DISCOUNT * chain(self.later), (self.later * self.reward).sum(-1))
        for _ in range(self.steps // 2):
            v = (self.behaviour * self.reward).sum(-1) + DISCOUNT * chain(self.behaviour) @ v
        return float(self.initial @ v)


def by_step(rng: np.random.Generator) -> World:
    """See `ByStep`."""
    world = random_rows(rng)
    return ByStep(world.rows, world.reward, world.behaviour, world.noise, later=world.behaviour[:, ::-1])


class RewardsMissing(World):
    """Of rewards below their median 60 in a hundred are lost, of the others 10."""

    def columns(self, episodes: int, rng: np.random.Generator) -> pd.DataFrame:
        """With empty cells."""
        table = play(self, episodes, rng)
        lost = rng.random(len(table)) < np.where(table.r < table.r.median(), 0.6, 0.1)
        return table.assign(r=table.r.where(~lost))


def rewards_missing(rng: np.random.Generator) -> World:
    """See `RewardsMissing`."""
    world = random_rows(rng)
    return RewardsMissing(world.rows, world.reward, world.behaviour, 2.0)


@dataclass(frozen=True)
class ChangingRows(World):
    """Rows of the earlier half of the episodes are others."""

    before: World = field(kw_only=True)

    def columns(self, episodes: int, rng: np.random.Generator) -> pd.DataFrame:
        """The earlier ones first."""
        half = episodes // 2
        return pd.concat([play(self.before, half, rng), play(self, episodes - half, rng, first=half)])


def changing_rows(rng: np.random.Generator) -> World:
    """See `ChangingRows`."""
    world, other = random_rows(rng), random_rows(rng)
    before = replace(world, rows=other.rows)
    return ChangingRows(world.rows, world.reward, world.behaviour, world.noise, before=before)


ORDINARY = (maintenance, random_rows, near_best, rarely_tried, inventory, queue, triage, frozen_lake, taxi, icu_sepsis)
PLANTED = (confounded, by_step, rewards_missing, changing_rows)
FAMILIES = {each.__name__: each for each in (*ORDINARY, *PLANTED)}


def log_of(world: World, episodes: int, rng: np.random.Generator) -> bm.mdp.Log:
    """As a user reads it."""
    states, actions, outcomes = world.rows.shape
    names = {"states": range(states), "actions": range(actions)}
    ends = {"terminated": "z"} if outcomes > states else {}
    columns = {"state": "s", "action": "a", "reward": "r", "next_state": "t", "episode": "e"}
    return bm.read_log(world.columns(episodes, rng), **columns, **ends, **names, missing_reward="ignore")


def row(world: World, log: bm.mdp.Log, seed: int, prior: str = DEFAULT) -> dict[str, Any]:
    """What `decide` says of one log by one of `PRIORS`, beside the truth: most of `COLUMNS`."""
    began = time.process_time()
    space = bm.StateActionSpace.from_log(log)
    if world.legal is not None:
        space = replace(space, legal=world.legal)
    concentration = {FLAT: 1.0, SPARSE: 1.0 / space.n_outcomes}
    program: Any = prior if prior == DEFAULT else reward_law_of(log, None)[0](concentration=concentration[prior])
    decision = bm.decide(
        jax.random.key(seed),
        program,
        log,
        bm.Discounted(DISCOUNT),
        options=bm.recommend.DecideOptions(space=space, initial=world.start),
    )
    seconds = time.process_time() - began
    assert decision.criticism is not None
    alarms = "; ".join(decision.criticism.alarms) or "none"
    told = {"seed": seed, "recommended": 0, "harm": 0, "stopped": 0, "alarms": alarms, "followed": "", "cpu": seconds}
    candidate = decision.candidates.get(CHOSEN)
    if candidate is None:
        return told
    staff = world.value_of_staff()
    policy = np.asarray(candidate.policy)
    policy = np.eye(world.rows.shape[1])[policy] if policy.ndim == 1 else policy
    # Where the log never acted it does not say what the staff do, and the candidate leaves it to them.
    acted = np.isin(np.arange(len(policy)), np.asarray(log.transitions.state))
    policy = np.where(acted[:, None], policy, world.behaviour)
    gain = candidate.improvement.gain
    true = world.value(policy) - staff
    low, high = np.quantile(gain, (0.05, 0.95))
    ends, mean, spread = candidate.interval_of(0.9), candidate.mean, candidate.spread
    return told | {
        "recommended": int(decision.recommended),
        "harm": int(decision.recommended and true < -1e-9),
        "stopped": int(any(each.stops for each in candidate.consequences)),
        "followed": "; ".join(sorted({each.check for each in candidate.consequences})),
        "better": int(true > gain.std()),
        "coverage": int(low - 1e-9 <= true <= high + 1e-9),
        "coverage_decide": int(ends[0] - 1e-9 <= true <= ends[1] + 1e-9),
        **{"true": true, "possible": world.value(world.best()) - staff, "mean": mean, "sd": float(gain.std())},
        **{"spread": spread, "prob": candidate.improvement.prob, "fewest": candidate.fewest},
    }


def main(logs: int, sizes: list[int], families: list[str], prior: str, path: Path) -> None:
    """What `decide` said of each log is kept, so that a run goes on where another one ended; then all cells in a table.

    Args:
        logs: of a cell.
        sizes: numbers of episodes.
        families: names of worlds.
        prior: one of `PRIORS`.
        path: CSV file, a line for each log.
    """
    for family, episodes in itertools.product(families, sizes):
        kept = read_logs(path)
        cell = (kept["family"] == family) & (kept["episodes"] == episodes) & (kept["prior"] == prior)
        done = set(kept["seed"][cell])
        for seed in sorted(set(range(FRESH, FRESH + logs)) - done):
            rng = np.random.default_rng([9, episodes, [*FAMILIES].index(family), seed])
            world = FAMILIES[family](rng)
            said = row(world, log_of(world, episodes, rng), seed, prior)
            add_log(path, {"family": family, "episodes": episodes, "prior": prior, **said})
    every = read_logs(path)
    print(table(every[every["prior"] == prior]).to_string(index=False, float_format="{:.2f}".format))


def add_log(path: Path, said: dict[str, Any]) -> None:
    """A line at the end of the file; numbers to five digits."""
    shown = {name: f"{x:.5g}" if isinstance(x, float) else x for name, x in said.items()}
    line = pd.DataFrame([shown], columns=[*COLUMNS]).to_csv(index=False, header=not path.exists())
    with path.open("a", encoding="utf-8") as file:
        file.write(line)


def read_logs(path: Path) -> pd.DataFrame:
    """The file; a line that a killed run did not end is taken away."""
    if not path.exists():
        return pd.DataFrame(columns=[*COLUMNS]).astype(COLUMNS)
    text = path.read_text(encoding="utf-8")
    whole = text[: text.rfind("\n") + 1]
    if whole != text:
        path.write_text(whole, encoding="utf-8")
    return pd.read_csv(path, dtype=COLUMNS, keep_default_na=False, na_values=[""]).fillna({"followed": ""})


def table(logs: pd.DataFrame) -> pd.DataFrame:
    """A row for each cell, in the order of the families."""
    cells = [summary(each) for _, each in logs.groupby(CELL)]
    return pd.DataFrame(cells).sort_values(
        CELL, key=lambda column: column.map([*FAMILIES].index) if column.name == "family" else column
    )


def summary(rows: pd.DataFrame) -> dict[str, Any]:
    """A row of the table, from the logs of one cell; of logs without a candidate nothing is covered or missed."""
    better = rows[rows["better"] == 1]
    # By the standard error that `decide` states: of its interval, widened for what the posterior does not know.
    clearly = rows[rows["true"] > rows["spread"] * rows["sd"]]
    realised = (rows["recommended"] * rows["true"] / rows["possible"]).fillna(0.0)
    return {
        "family": rows["family"].iloc[0],
        "episodes": int(rows["episodes"].iloc[0]),
        "logs": len(rows),
        "better": len(better),
        "recommended": better["recommended"].sum() / max(len(better), 1),
        "clearly": len(clearly),
        "recommended_clearly": float(clearly["recommended"].mean()),  # nan: there is none
        "unbiased_test": float((better["true"] / better["sd"] - norm.ppf(0.95)).map(norm.cdf).mean()),
        **{name: float(rows[name].mean()) for name in ("harm", "coverage", "coverage_decide")},
        "realised": float(realised.mean()),
        "stopped": float(rows["stopped"].mean()),
        "asked": int(rows["alarms"].notna().sum()),
        "alarm": int((rows["alarms"].dropna() != "none").sum()),
        "cpu": float(rows["cpu"].median()),
    }


if __name__ == "__main__":
    defaults = ["200", "20,60", ",".join(each.__name__ for each in ORDINARY[:7]), DEFAULT, str(LOGS)]
    logs, sizes, families, prior, path = [*sys.argv[1:], *defaults[len(sys.argv) - 1 :]]
    main(int(logs), [int(x) for x in sizes.split(",")], families.split(","), prior, Path(path))
