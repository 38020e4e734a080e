"""A posterior as the groups of the InferenceData schema: one `xarray.Dataset` each, named as the space. Host-side."""

from collections.abc import Collection
from datetime import UTC, datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any

import jax
import numpy as np
from jaxtyping import PRNGKeyArray

import bayes_mdp
from bayes_mdp.calibration import predictive
from bayes_mdp.calibration.draws import Draws, draw
from bayes_mdp.calibration.labels import item_coordinates
from bayes_mdp.calibration.observed import Data, before_data, observe
from bayes_mdp.inference.rewards import KnownRewards
from bayes_mdp.mdp.labels import OUTCOME, coordinates
from bayes_mdp.mdp.space import PLATE_NAMES

if TYPE_CHECKING:
    import xarray as xr

GROUPS = (
    "posterior",
    "posterior_predictive",
    "log_likelihood",
    "prior",
    "prior_predictive",
    "observed_data",
    "constant_data",
)
UNITS = ("transition", "cell")
SAMPLE_DIMS = ("chain", "draw")
MAX_BYTES = 4 * 2**30


def groups(
    posterior: Any,
    wanted: Collection[str],
    *,
    num_draws: int,
    key: PRNGKeyArray | None,
    log_likelihood: str | None,
    data: Data,
) -> "dict[str, xr.Dataset]":
    """The `wanted` groups (of `GROUPS`). Arguments and errors: see `bayes_mdp.calibration.to_arviz`."""
    if not (hasattr(posterior, "transition_probs") and hasattr(posterior, "reward_cells")):
        raise TypeError(f"posterior is a {type(posterior).__name__}, expected one in closed form, as infer returns it")
    if num_draws < 1:
        raise ValueError(f"num_draws is {num_draws}, expected at least 1")
    if log_likelihood not in UNITS and ("log_likelihood" in wanted or log_likelihood is not None):
        raise ValueError(f"log_likelihood is {log_likelihood!r}, expected 'transition' or 'cell'")
    builder = _Builder(posterior, num_draws, jax.random.key(0) if key is None else key, log_likelihood, data)
    builder.check_size(wanted)
    return {name: getattr(builder, name)() for name in wanted}


class _Builder:
    """Makes groups of one posterior; draws and data are made once, when a group first needs them."""

    def __init__(self, posterior: Any, num_draws: int, key: PRNGKeyArray, unit: str | None, data: Data) -> None:
        self._posterior, self._num_draws, self._unit = posterior, num_draws, unit
        rows, self._cells = observe(posterior, data)
        self._rows: Any = rows
        if unit == "transition" and rows is None:
            raise ValueError("data holds no transitions, expected those that the posterior was inferred from")
        names = ("posterior", "prior", "posterior_predictive", "prior_predictive")
        self._keys: dict[str, PRNGKeyArray] = dict(zip(names, jax.random.split(key, len(names)), strict=True))
        self._axes = coordinates(posterior.space)
        pair = PLATE_NAMES[-len(posterior.space.shape) :]
        reward = (*pair, OUTCOME) if posterior.reward_cells.by_outcome else pair
        self._dims = {
            **dict.fromkeys(("transition_probs", "transition_counts"), (*pair, OUTCOME)),
            **dict.fromkeys(("reward_mean", "reward_precision", "reward_total", "reward_count"), reward),
            **dict.fromkeys(("observed_next_state", "observed_reward", "observed_transition"), ("transition",)),
            "observed_cell": ("cell",),
            "visit_counts": pair,
        }

    @cached_property
    def _draws(self) -> Draws:
        return draw(self._keys["posterior"], self._posterior, self._num_draws)

    @cached_property
    def _prior_draws(self) -> Draws:
        return draw(self._keys["prior"], before_data(self._posterior), self._num_draws)

    @cached_property
    def _log_evidence(self) -> float:
        return float(self._posterior.log_evidence)

    def posterior(self) -> "xr.Dataset":
        return self._sampled(_parameters(self._draws))

    def prior(self) -> "xr.Dataset":
        return self._sampled(_parameters(self._prior_draws))

    def posterior_predictive(self) -> "xr.Dataset":
        return self._sampled(self._replicates("posterior_predictive", self._draws))

    def prior_predictive(self) -> "xr.Dataset":
        return self._sampled(self._replicates("prior_predictive", self._prior_draws))

    def log_likelihood(self) -> "xr.Dataset":
        if self._unit == "transition":
            return self._sampled({"observed_transition": predictive.log_likelihood_rows(self._draws, self._rows)})
        return self._sampled({"observed_cell": predictive.log_likelihood_cells(self._draws, self._cells)})

    def observed_data(self) -> "xr.Dataset":
        has_rewards = not isinstance(self._posterior.reward_cells, KnownRewards)
        if self._rows is not None:
            return self._dataset(predictive.observed_rows(self._rows, has_rewards), ())
        return self._dataset(predictive.observed_cells(self._cells, has_rewards), ())

    def constant_data(self) -> "xr.Dataset":
        rewards, counts = self._posterior.reward_cells, self._cells.transition_counts
        if isinstance(rewards, KnownRewards):
            held = {"reward_mean": np.asarray(rewards.known)}
        else:
            held = {"reward_count": self._cells.rewards.count}
        return self._dataset({"visit_counts": counts.sum(-1), **held}, ())

    def check_size(self, wanted: Collection[str]) -> None:
        """Refuse what would not fit in `MAX_BYTES`."""
        probs = self._cells.transition_counts.size
        reward = 16 * self._cells.rewards.count.size
        replicate = 4 * probs + reward if self._rows is None else 8 * self._rows.outcome.size
        unit = self._cells.tried[0].size if self._unit == "cell" else replicate
        sizes = {"posterior": 4 * probs + reward, "posterior_predictive": replicate, "log_likelihood": unit}
        sizes.update(prior=sizes["posterior"], prior_predictive=replicate)
        per_draw = sum(sizes.get(name, 0) for name in wanted)
        if self._num_draws * per_draw > MAX_BYTES:
            raise ValueError(
                f"num_draws is {self._num_draws}, {self._num_draws * per_draw / 2**30:.1f} GiB in these groups, "
                f"expected at most {MAX_BYTES // per_draw}, {MAX_BYTES / 2**30:.1f} GiB"
            )

    def _replicates(self, group: str, draws: Draws) -> dict[str, np.ndarray]:
        rng = np.random.default_rng(np.asarray(jax.random.key_data(self._keys[group])))
        if self._rows is not None:
            return predictive.replicate_rows(rng, draws, self._rows)
        return predictive.replicate_cells(rng, draws, self._cells)

    def _sampled(self, variables: dict[str, np.ndarray]) -> "xr.Dataset":
        """Arrays [N ...] as one chain of independent draws."""
        return self._dataset({name: values[None] for name, values in variables.items()}, SAMPLE_DIMS)

    def _dataset(self, variables: dict[str, np.ndarray], lead: tuple[str, ...]) -> "xr.Dataset":
        import xarray as xr

        arrays = {name: ((*lead, *self._dims[name]), values) for name, values in variables.items()}
        used = {dim for dims, _ in arrays.values() for dim in dims}
        axes: dict[str, Any] = {**self._axes, "chain": [0], "draw": np.arange(self._num_draws)}
        coords = {name: axis for name, axis in axes.items() if name in used}
        if "transition" in used:
            coords.update(item_coordinates("transition", self._rows.cell, self._axes))
        if "cell" in used:
            coords.update(item_coordinates("cell", self._cells.tried, self._axes))
        return xr.Dataset(arrays, coords=coords, attrs=self._attributes(lead))

    def _attributes(self, lead: tuple[str, ...]) -> dict[str, Any]:
        """What the schema asks of a group."""
        return {
            "created_at": datetime.now(UTC).isoformat(),
            "creation_library": "bayes_mdp",
            "creation_library_version": bayes_mdp.__version__,
            "inference_library": "bayes_mdp",
            "inference_library_version": bayes_mdp.__version__,
            "inference_method": self._posterior.method,
            "log_evidence": self._log_evidence,
            "sample_dims": list(lead),
        }


def _parameters(draws: Draws) -> dict[str, np.ndarray]:
    """What is unknown, as variables."""
    named = zip(draws.names, draws.parameters[: len(draws.names)], strict=True)
    return {"transition_probs": draws.transition_probs, **dict(named)}
