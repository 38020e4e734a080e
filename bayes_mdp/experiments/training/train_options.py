"""Options of `train`, and whether the replay that they ask for fits into the memory."""

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

import jax

from bayes_mdp.agents.neural.replay import Row, replay_bytes
from bayes_mdp.utils.validation import check_bool, check_count, check_name, check_not_negative, check_number, check_type

if TYPE_CHECKING:
    from jaxlib._jax import Device  # `jax.Device`, which static checkers take for a variable

_GIB = 2**30


@dataclass(frozen=True)
class Evaluation:
    """Play without learning, now and then, beside the training.

    [UBE18]: every 1M frames on 0.5M frames; Mnih et al. (2015): epsilon .05, up to 30 no-ops at the start of an episode
    (which the environment does).

    Args:
        every: environment steps of the training from one evaluation to the next.
        steps: environment steps of one evaluation, of all its environments together.
        epsilon: share of random actions beside the best one; None: the agent acts as it does in training.
        num_envs: environments that are played in side by side.

    Raises:
        ValueError: a number out of its range. TypeError: another type.

    Example:
        >>> how = bm.Evaluation(every=10_000, steps=1_000, epsilon=0.05)
        >>> bm.TrainOptions(evaluation=how).evaluation.steps
        1000
    """

    every: int
    steps: int
    epsilon: float | None = 0.05
    num_envs: int = 8

    def __post_init__(self) -> None:
        for name in ("every", "steps", "num_envs"):
            check_count(f"evaluation.{name}", getattr(self, name))
        if self.epsilon is not None:
            expected = "a share from 0 to 1, or None"
            check_number("evaluation.epsilon", self.epsilon, lambda x: 0 <= x <= 1, expected)


@dataclass(frozen=True)
class TrainOptions:
    """What can be chosen about a training beyond agent, environment and length.

    Args:
        num_envs: environments of each seed, stepped side by side; of a vector environment it is the number there.
        replay_size: transitions that are remembered, of each seed.
        evaluation: when and how the agent is tried; None: never.
        checkpoint_seconds: from one checkpoint to the next, where there is a path.
        chunk: the most iterations of one compiled call; the points of the curves lie that far apart, or a hundredth of
            the run. No other number depends on it.
        progress: whether a bar is shown (on a terminal only).
        device: "cpu", "gpu", or None for JAX's own choice.

    Raises:
        ValueError: a number out of its range, another device, a replay of fewer than two rows. TypeError: another type.

    Example:
        >>> options = bm.TrainOptions(num_envs=4, replay_size=64, progress=False)
        >>> options.num_rows  # of the replay: transitions of each environment
        16
    """

    num_envs: int = 1
    replay_size: int = 100_000
    evaluation: Evaluation | None = None
    checkpoint_seconds: float = 300.0
    chunk: int = 1000
    progress: bool = True
    device: str | None = None

    def __post_init__(self) -> None:
        for name in ("num_envs", "replay_size", "chunk"):
            check_count(f"options.{name}", getattr(self, name))
        if self.replay_size < 2 * self.num_envs:
            raise ValueError(
                f"options.replay_size is {self.replay_size}, expected at least two transitions for each of "
                f"{self.num_envs} environments"
            )
        check_type("options.evaluation", self.evaluation, (Evaluation, type(None)), "an Evaluation or None")
        check_not_negative("options.checkpoint_seconds", self.checkpoint_seconds)
        check_bool("options.progress", self.progress)
        if self.device is not None:
            check_name("options.device", self.device, ("cpu", "gpu"))

    @property
    def num_rows(self) -> int:
        """Rows of the replay: a row holds a transition of every environment."""
        return self.replay_size // self.num_envs

    def identity_fields(self) -> dict[str, int | Evaluation | None]:
        """The options that the numbers of a training depend on."""
        return {"num_envs": self.num_envs, "replay_size": self.replay_size, "evaluation": self.evaluation}


def available_bytes(device: "Device | None" = None) -> int | None:
    """Memory that is free on the device (of the machine, for a CPU); None where it is not known."""
    chosen = jax.devices()[0] if device is None else device
    if chosen.platform != "cpu":
        stats = chosen.memory_stats() or {}
        return stats["bytes_limit"] - stats["bytes_in_use"] if "bytes_limit" in stats else None
    try:
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (ValueError, OSError):
        return None


def check_bytes_fit(needed: int, what: str, device: "Device | None" = None) -> None:
    """Refuse a replay that is larger than the free memory; `what` follows its size in the message, in brackets.

    Raises:
        ValueError: it does not fit; the message gives its size.
    """
    free = available_bytes(device)
    if free is not None and needed > free:
        raise ValueError(
            f"options.replay_size asks for {needed / _GIB:.1f} GiB ({what}), expected at most the "
            f"{free / _GIB:.1f} GiB that are free"
        )


def check_replay_fits(num_rows: int, row: Row, num_seeds: int, device: "Device | None" = None) -> None:
    """Refuse the replays of all seeds if they are larger than the free memory together.

    Raises:
        ValueError: they do not fit.
    """
    seeds = f"{num_seeds} seed{'s' if num_seeds > 1 else ''}"
    what = f"{num_rows * row.action.size:,} transitions, {seeds}"
    check_bytes_fit(num_seeds * replay_bytes(num_rows, row), what, device)
