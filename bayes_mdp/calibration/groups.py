"""A posterior as the groups of the InferenceData schema: one `xarray.Dataset` each, named as the space. Host-side."""

from collections.abc import Collection, Mapping
from datetime import UTC, datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any

import jax
import numpy as np
from jaxtyping import PRNGKeyArray

import bayes_mdp
from bayes_mdp.calibration import predictive
from bayes_mdp.calibration.beliefs import check_posterior, draw_prior, key_or_first, method_of, program_of
from bayes_mdp.calibration.draws import Draws, check_draws, draw, generator, reference
from bayes_mdp.calibration.labels import item_coordinates
from bayes_mdp.calibration.observed import Data, known_rewards, observe, rewards_by_outcome
from bayes_mdp.calibration.programs import site_dims
from bayes_mdp.calibration.runs import NOTHING, Run
from bayes_mdp.inference.mixtures import Mixture
from bayes_mdp.inference.posterior import ConjugatePosterior
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
    "sample_stats",
)
UNITS = ("transition", "cell")
SAMPLE_DIMS = ("chain", "draw")


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
    check_posterior(posterior, num_draws)
    if log_likelihood not in UNITS and ("log_likelihood" in wanted or log_likelihood is not None):
        raise ValueError(f"log_likelihood is {log_likelihood!r}, expected 'transition' or 'cell'")
    builder = _Builder(posterior, num_draws, key_or_first(key), log_likelihood, data)
    builder.check_size(wanted)
    return {name: getattr(builder, name)() for name in wanted}


class _Builder:
    """Makes groups of one posterior; draws and data are made once, when a group first needs them."""

    def __init__(self, posterior: Any, num_draws: int, key: PRNGKeyArray, unit: str | None, data: Data) -> None:
        self._posterior, self._num_draws, self._unit = posterior, num_draws, unit
        self._seen = reference(posterior)
        rows, self._cells = observe(self._seen, data)
        self._rows: Any = rows
        if unit == "transition" and rows is None:
            raise ValueError("data holds no transitions, expected those that the posterior was inferred from")
        names = ("posterior", "prior", "posterior_predictive", "prior_predictive")
        self._keys: dict[str, PRNGKeyArray] = dict(zip(names, jax.random.split(key, len(names)), strict=True))
        self._axes = coordinates(posterior.space)
        pair = PLATE_NAMES[-len(posterior.space.shape) :]
        reward = (*pair, OUTCOME) if rewards_by_outcome(self._seen) else pair
        self._dims = {
            **dict.fromkeys(("transition_probs", "transition_counts"), (*pair, OUTCOME)),
            **dict.fromkeys(("reward_mean", "reward_precision", "reward_total", "reward_count"), reward),
            **dict.fromkeys(("observed_next_state", "observed_reward", "observed_transition"), ("transition",)),
            "observed_cell": ("cell",),
            "visit_counts": pair,
        }
        self._taken = frozenset(self._dims)

    @cached_property
    def _draws(self) -> Draws:
        return draw(self._keys["posterior"], self._posterior, self._num_draws)

    @cached_property
    def _prior_draws(self) -> Draws:
        return draw_prior(self._keys["prior"], self._posterior, self._num_draws)

    @cached_property
    def _own_attributes(self) -> dict[str, Any]:
        """How the posterior was inferred."""
        exact = isinstance(self._posterior, Mixture) and self._posterior.log_prior is not None
        if exact or isinstance(self._posterior, ConjugatePosterior):
            return {"inference_method": method_of(self._posterior), "log_evidence": float(self._posterior.log_evidence)}
        return {"inference_method": method_of(self._posterior)}

    def posterior(self) -> "xr.Dataset":
        return self._sampled(self._parameters(self._draws), self._draws.run)

    def prior(self) -> "xr.Dataset":
        return self._sampled(self._parameters(self._prior_draws), self._prior_draws.run)

    def posterior_predictive(self) -> "xr.Dataset":
        return self._sampled(self._replicates("posterior_predictive", self._draws), self._draws.run)

    def prior_predictive(self) -> "xr.Dataset":
        return self._sampled(self._replicates("prior_predictive", self._prior_draws), self._prior_draws.run)

    def log_likelihood(self) -> "xr.Dataset":
        draws = self._draws
        if self._unit == "transition":
            return self._sampled({"observed_transition": predictive.log_likelihood_rows(draws, self._rows)}, draws.run)
        return self._sampled({"observed_cell": predictive.log_likelihood_cells(draws, self._cells)}, draws.run)

    def sample_stats(self) -> "xr.Dataset":
        return self._sampled(dict(self._draws.run.stats), self._draws.run)

    def observed_data(self) -> "xr.Dataset":
        has_rewards = known_rewards(self._seen) is None
        if self._rows is not None:
            return self._dataset(predictive.observed_rows(self._rows, has_rewards), ())
        return self._dataset(predictive.observed_cells(self._cells, has_rewards), ())

    def constant_data(self) -> "xr.Dataset":
        known, counts = known_rewards(self._seen), self._cells.transition_counts
        held = {"reward_count": self._cells.rewards.count} if known is None else {"reward_mean": known}
        return self._dataset({"visit_counts": counts.sum(-1), **held}, ())

    def check_size(self, wanted: Collection[str]) -> None:
        """Refuse groups that would not fit in memory, before a draw is made."""
        probs = self._cells.transition_counts.size
        reward = 16 * self._cells.rewards.count.size
        number = 0 if self._rows is None else self._rows.outcome.size
        replicate = 4 * probs + reward if self._rows is None else 8 * number
        unit = 8 * self._cells.tried[0].size if self._unit == "cell" else replicate
        sizes = {"posterior_predictive": replicate, "log_likelihood": unit, "prior_predictive": replicate}
        # The draws of the prior are others than those of the posterior.
        sizes["prior"] = 2 * 4 * probs + reward
        of_rows = number if {"posterior_predictive", "prior_predictive", "log_likelihood"} & set(wanted) else 0
        beside = float(sum(sizes.get(name, 0) for name in wanted))
        check_draws(self._posterior, self._num_draws, of_rows, beside)

    def _replicates(self, group: str, draws: Draws) -> dict[str, np.ndarray]:
        rng = generator(self._keys[group])
        if self._rows is not None:
            return predictive.replicate_rows(rng, draws, self._rows)
        return predictive.replicate_cells(rng, draws, self._cells)

    def _parameters(self, draws: Draws) -> dict[str, np.ndarray]:
        """What is unknown, as variables: rows and rewards, then the sites of the program."""
        named = zip(draws.names, draws.parameters[: len(draws.names)], strict=True)
        shown = {"transition_probs": draws.transition_probs, **dict(named)}
        for name, values in draws.run.sites.items():
            variable = f"{name}_site" if name in self._taken else name
            shown[variable] = values
            self._dims[variable] = self._site_dims(name, values.shape[1:])
        return shown

    def _site_dims(self, name: str, shape: tuple[int, ...]) -> tuple[str, ...]:
        """Plates of the space by their names; any other axis as ArviZ calls it."""
        axes = self._plates.get(name, (None,) * len(shape))
        return tuple(axis or f"{name}_dim_{i}" for i, axis in enumerate(axes))

    @cached_property
    def _plates(self) -> dict[str, tuple[str | None, ...]]:
        program = program_of(self._posterior)
        return {} if program is None else site_dims(program, self._posterior.space)

    def _sampled(self, variables: dict[str, np.ndarray], run: Run) -> "xr.Dataset":
        """Arrays [N ...] by chain and draw."""
        split = {name: x.reshape(run.num_chains, -1, *x.shape[1:]) for name, x in variables.items()}
        return self._dataset(split, SAMPLE_DIMS, run.attributes)

    def _dataset(self, variables: dict[str, Any], lead: tuple[str, ...], said: Mapping[str, Any] = NOTHING) -> Any:
        import xarray as xr

        arrays = {name: ((*lead, *self._dims.get(name, ())), values) for name, values in variables.items()}
        sizes = {dim: size for dims, x in arrays.values() for dim, size in zip(dims, x.shape, strict=True)}
        axes = {**{dim: np.arange(size) for dim, size in sizes.items()}, **self._axes}
        coords: dict[str, Any] = {name: axis for name, axis in axes.items() if name in sizes}
        if "transition" in sizes:
            coords.update(item_coordinates("transition", self._rows.cell, self._axes))
        if "cell" in sizes:
            coords.update(item_coordinates("cell", self._cells.tried, self._axes))
        return xr.Dataset(arrays, coords=coords, attrs={**self._attributes(lead), **said})

    def _attributes(self, lead: tuple[str, ...]) -> dict[str, Any]:
        """What the schema asks of a group."""
        return {
            "created_at": datetime.now(UTC).isoformat(),
            "creation_library": "bayes_mdp",
            "creation_library_version": bayes_mdp.__version__,
            "inference_library": "bayes_mdp",
            "inference_library_version": bayes_mdp.__version__,
            **self._own_attributes,
            "sample_dims": list(lead),
        }
