"""Learning levels on RiverSwim and Chain beside published ones."""

from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from bayes_mdp.agents import PSRL, UBE, MomentMatching
from bayes_mdp.envs import chain, riverswim
from bayes_mdp.experiments.results import NORMAL_QUANTILE, half_width
from bayes_mdp.experiments.run_agent import run
from bayes_mdp.experiments.run_config import RunOptions
from bayes_mdp.mdp import Discounted, Environment
from bayes_mdp.utils.validation import check_count, check_seed
from benchmarks.scaled_rewards import scaled

DISCOUNT = 0.95


@dataclass(frozen=True)
class Level:
    """One line of the table: ours and theirs, means with 95 % half-widths; `agrees`: inside the joint 99 % interval."""

    task: str
    ours: float
    ours_half: float
    theirs: float
    theirs_half: float

    @property
    def agrees(self) -> bool:
        """Whether the difference is within the 99 % interval of a difference of two independent means."""
        error = np.hypot(self.ours_half, self.theirs_half) / NORMAL_QUANTILE[0.95]
        return bool(abs(self.ours - self.theirs) <= NORMAL_QUANTILE[0.99] * error)


def learning_levels(num_seeds: int = 100, *, seed: int = 0) -> list[Level]:
    """Run PSRL, UBE and moment matching on RiverSwim (total of 5000 steps, in 1e6), PSRL on Chain, print a table.

    Discount .95; rewards normal-gamma (0, 1, 2, 1) on (state, action), divided by 1e4 (RiverSwim) or 10 (Chain: phases
    1, 2, 8 of 1000 steps); a symmetric Dirichlet a0 over all states (published without a0 for UBE and moment matching:
    1 / 6 here). Chain's published levels are for orientation (half-width 50 to 120: 85). The published level of noise
    that is drawn afresh at every step is the range 0.05 to 0.5: it is no mean with an interval, so not in the table.

    Args:
        num_seeds: 100 in the published table.
        seed: of the key.
    """
    check_count("num_seeds", num_seeds)
    check_seed("seed", seed)
    swim = scaled(riverswim(), 1e-4)
    levels = [
        _riverswim(swim, PSRL(20), 1 / 6, (2.865, 0.047), num_seeds, seed),
        _riverswim(swim, PSRL(6), 1.0, (2.691, 0.057), num_seeds, seed),
        _riverswim(swim, MomentMatching(0.1, replan=20), 1 / 6, (2.384, 0.163), num_seeds, seed),
        _riverswim(swim, UBE(0.001, 20.0, replan=20), 1 / 6, (2.381, 0.179), num_seeds, seed),
        *_chain(num_seeds, seed),
    ]
    print(f"{'task':<60}{'ours':>18}{'published':>18}  joint 99 %")
    for level in levels:
        ours, theirs = (
            f"{m:.4g} +- {h:.2g}" for m, h in ((level.ours, level.ours_half), (level.theirs, level.theirs_half))
        )
        print(f"{level.task:<60}{ours:>18}{theirs:>18}  {'inside' if level.agrees else 'OUTSIDE'}")
    return levels


def _rewards(env: Environment, agent: Any, concentration: float, num: tuple[int, int, int], seed: int) -> np.ndarray:
    """Float[N C], rewards of each checkpoint; `num` = steps, checkpoints, seeds."""
    from bayes_mdp.models import dirichlet_normal_gamma

    prior = dirichlet_normal_gamma(
        concentration=concentration, loc=0.0, pseudo_count=1.0, reward_concentration=2.0, rate=1.0
    )
    num_steps, num_checkpoints, num_seeds = num
    result = run(
        agent,
        env,
        prior=prior,
        objective=Discounted(DISCOUNT),
        num_steps=num_steps,
        num_seeds=num_seeds,
        key=jax.random.key(seed),
        options=RunOptions(num_checkpoints=num_checkpoints),
    )
    return result["reward"].values


def _riverswim(env: Environment, agent: Any, concentration: float, theirs: Any, num_seeds: int, seed: int) -> Level:
    # 1e4 times the scaled reward, in millions: a factor of 100.
    totals = _rewards(env, agent, concentration, (5000, 10, num_seeds), seed).sum(1) / 100
    name, scale = type(agent).__name__, getattr(agent, "scale", None)
    noise = "" if scale is None else f", zeta {scale:g} {agent.noise}"
    return _level(f"RiverSwim, {name}{noise}, every {agent.replan.period}, a0 = {concentration:.3g}", totals, theirs)


def _chain(num_seeds: int, seed: int) -> list[Level]:
    phases = 10 * _rewards(scaled(chain(), 0.1), PSRL(5), 1.0, (8000, 8, num_seeds), seed)
    published = {1: 3049.0, 2: 3638.0, 8: 3697.0}
    return [_level(f"Chain, PSRL, every 5, phase {i}", phases[:, i - 1], (mean, 85.0)) for i, mean in published.items()]


def _level(task: str, samples: np.ndarray, theirs: Any) -> Level:
    half = float(half_width(samples)) if samples.size > 1 else float("inf")
    return Level(task, float(samples.mean()), half, *theirs)
