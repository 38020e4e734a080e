"""Parameters of persons for ArviZ: the groups of the InferenceData schema, and which learner predicts best."""

import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp
import numpy as np
import xarray as xr
from jaxtyping import PRNGKeyArray

from bayes_mdp.behaviour import predict_choices
from bayes_mdp.behaviour.fit_behaviour import BehaviourPosterior, subject_log_likelihood
from bayes_mdp.behaviour.likelihood import action_log_likelihood
from bayes_mdp.calibration.arviz.generation import arviz, as_tree, break_ties, schema_attributes
from bayes_mdp.utils.validation import check_count, check_name, check_type

if TYPE_CHECKING:
    import pandas as pd


UNITS = ("choice", "subject", "none")
GROUPS = ("posterior", "posterior_predictive", "log_likelihood", "prior", "observed_data", "sample_stats")
_STATS = {"diverging": "diverging", "accept_prob": "acceptance_rate", "num_steps": "n_steps", "log_density": "lp",
          "energy": "energy"}  # fmt: skip
Variables = dict[str, tuple[tuple[str, ...], np.ndarray]]


def behaviour_groups(
    posterior: BehaviourPosterior,
    *,
    num_draws: int,
    key: PRNGKeyArray,
    log_likelihood: str | None,
    wanted: Sequence[str] = GROUPS,
) -> dict[str, xr.Dataset]:
    """The `wanted` groups of the posterior, thinned to `num_draws` in all; see `bayes_mdp.to_arviz`.

    There is no group `log_likelihood` where `log_likelihood` is "none".
    """
    unit = "choice" if log_likelihood is None else log_likelihood
    check_name("log_likelihood", unit, UNITS)
    check_count("num_draws", num_draws)
    log, chains = posterior.log, posterior.mcmc.num_chains
    per_chain = max(1, min(posterior.mcmc.num_samples, num_draws // chains))
    # Evenly spaced in every chain, first and last draw included.
    draw_index = np.linspace(0, posterior.mcmc.num_samples - 1, per_chain).round().astype(int)
    flat = _thin(posterior, draw_index)
    # Only observed choices have a place in the groups.
    person, time = np.nonzero(np.asarray(log.observed))
    key_prior, key_predict, key_subject = jax.random.split(key, 3)
    by_draw = lambda x: x.reshape(chains, per_chain, *x.shape[1:])  # noqa: E731

    def predict() -> Variables:
        drawn = np.asarray(predict_choices(key_predict, flat, num_draws=chains * per_chain))
        return {"chosen_action": (("chain", "draw", "choice"), by_draw(drawn[:, person, time]))}

    def likelihood() -> Variables:
        # One term a choice, given the person's past.
        if unit == "choice":
            return {
                "chosen_action": (("chain", "draw", "choice"), by_draw(break_ties(_per_choice(flat)[:, person, time])))
            }
        # One term a person, whose own parameters are integrated out.
        values = break_ties(subject_log_likelihood(key_subject, flat))
        return {"subject_integrated": (("chain", "draw", "subject"), by_draw(values))}

    makers: dict[str, Callable[[], Variables]] = {
        "posterior": lambda: _draws(flat),
        "observed_data": lambda: {"chosen_action": (("choice",), np.asarray(log.action)[person, time])},
        "prior": lambda: _prior(key_prior, posterior, chains, per_chain),
        "posterior_predictive": predict,
        "log_likelihood": likelihood,
        "sample_stats": lambda: _statistics(flat),
    }
    names = np.asarray([str(x) for x in log.subjects])
    return {
        name: _dataset(make(), names, person, time, posterior)
        for name, make in makers.items()
        if name in wanted and not (name == "log_likelihood" and unit == "none")
    }


def _draws(posterior: BehaviourPosterior) -> Variables:
    """Parameters in their support, the mean of the group in the support, and the sites on the line."""
    # With other pooling the sites on the line are the parameters themselves.
    group = {f"{name}_group": x for name, x in posterior.group().items()} if posterior.pooling == "partial" else {}
    everything = {**posterior.params, **group, **posterior.mcmc.draws}
    of_person = {2: ("chain", "draw"), 3: ("chain", "draw", "subject")}
    return {name: (of_person[x.ndim], x) for name, x in jax.tree.map(np.asarray, everything).items()}


def _statistics(posterior: BehaviourPosterior) -> Variables:
    """What the sampler says of each draw."""
    stats = {new: getattr(posterior.mcmc, old) for old, new in _STATS.items()}
    return {name: (("chain", "draw"), np.asarray(x)) for name, x in stats.items() if x is not None}


def _thin(posterior: BehaviourPosterior, kept: np.ndarray) -> BehaviourPosterior:
    """The same posterior with some draws of each chain."""
    params, mcmc = jax.tree.map(lambda x: np.asarray(x)[:, kept], (posterior.params, posterior.mcmc))
    return BehaviourPosterior(params, mcmc, posterior.model, posterior.log, posterior.pooling)


def _per_choice(posterior: BehaviourPosterior) -> np.ndarray:
    """[D P T], log-probability of each choice under each draw."""
    params = jax.tree.map(lambda x: jnp.asarray(x, float), posterior.each_person())
    likelihood = lambda params: action_log_likelihood(posterior.model, params, posterior.log)  # noqa: E731
    # In float64: ArviZ finds no number where draws in float32 differ by their last bit alone.
    return np.asarray(jax.jit(lambda params: jax.lax.map(likelihood, params))(params), np.float64)


def _prior(key: PRNGKeyArray, posterior: BehaviourPosterior, chains: int, each: int) -> Variables:
    """Draws of the parameters, and of the sites on the line, before data."""
    made: Variables = {}
    # As many draws as of the posterior, in the same shape.
    persons, shape = posterior.log.num_subjects, (chains, each)
    for name, parameter in posterior.model.parameters.items():
        key, key_mean, key_sd, key_z = jax.random.split(key, 4)
        law, dims = parameter.group_mean, ("chain", "draw")
        if posterior.pooling == "partial":
            mean, sd = law.sample(key_mean, shape), parameter.group_sd.sample(key_sd, shape)
            z = jax.random.normal(key_z, (*shape, persons))
            # Non-centred, as in the program.
            line = jnp.asarray(mean)[..., None] + jnp.asarray(sd)[..., None] * z
            made |= {f"{name}_mean": (dims, np.asarray(mean)), f"{name}_sd": (dims, np.asarray(sd))}
            made |= {f"{name}_z": ((*dims, "subject"), np.asarray(z))}
            made |= {f"{name}_group": (dims, np.asarray(parameter.constrain(jnp.asarray(mean))))}
        else:
            alone = posterior.pooling == "complete"
            line = jnp.asarray(law.sample(key_mean, shape if alone else (*shape, persons)))
            made[f"{name}_line"] = (dims if alone else (*dims, "subject"), np.asarray(line))
        # Parameters of complete pooling have no axis of persons.
        full = (*dims, "subject") if line.ndim == 3 else dims
        made[name] = (full, np.asarray(parameter.constrain(line)))
    return made


def _dataset(
    variables: Variables, subjects: np.ndarray, person: np.ndarray, time: np.ndarray, posterior: BehaviourPosterior
) -> xr.Dataset:
    dims = {dim for names, _ in variables.values() for dim in names}
    sizes = {dim: size for names, x in variables.values() for dim, size in zip(names, x.shape, strict=True)}
    coords: dict[str, object] = {dim: np.arange(sizes[dim]) for dim in ("chain", "draw", "choice") if dim in dims}
    if "subject" in dims:
        coords["subject"] = subjects
    if "choice" in dims:  # coordinates along the choices, named apart from the dimension "subject"
        coords |= {"choice_subject": ("choice", subjects[person]), "choice_trial": ("choice", time)}
    attributes = schema_attributes(("chain", "draw") if "chain" in dims else ())
    return xr.Dataset(variables, coords=coords, attrs=attributes | {"pooling": posterior.pooling})


def compare_behaviour(
    posteriors: Mapping[str, BehaviourPosterior], *, unit: str = "choice", num_draws: int = 1000
) -> "pd.DataFrame":
    """`az.compare` of fits to one log by Pareto-smoothed importance sampling: the best model in the first row.

    Args:
        posteriors: name -> what `behaviour.fit` returned; at least two.
        unit: what is left out. "choice": one choice, given the person's past (the terms are those of one-step
            predictions; later choices that learnt from it are not predicted anew). "subject": a person, parameters
            integrated out under the group: how well somebody new is predicted.
        num_draws: of each posterior, thinned evenly.

    Returns:
        The table of ArviZ; a warning column is true where its approximation fails (a Pareto k above .7).

    Raises:
        ValueError, TypeError: fewer than two, fits to different choices, another unit.
    """
    check_name("unit", unit, ("choice", "subject"))
    check_type("posteriors", posteriors, Mapping, "fits by name")
    if len(posteriors) < 2:
        raise ValueError(f"posteriors holds {len(posteriors)}, expected at least two by their names")
    first = next(iter(posteriors.values()))
    for name, posterior in posteriors.items():
        check_type(f"posteriors[{name!r}]", posterior, BehaviourPosterior, "what bayes_mdp.behaviour.fit returns")
        # Terms can be compared only where they are of the same choices.
        same_choices = all(
            np.array_equal(np.asarray(getattr(first.log, field)), np.asarray(getattr(posterior.log, field)))
            for field in ("action", "observed", "state")
        )
        if not same_choices:
            raise ValueError(f"posteriors[{name!r}] was fitted to another log, expected one log for all")
    trees = {}
    # The same key for all: their differences are not noise of draws.
    for name, posterior in posteriors.items():
        needed, key = ("posterior", "log_likelihood"), jax.random.key(0)
        trees[name] = as_tree(
            behaviour_groups(posterior, num_draws=num_draws, key=key, log_likelihood=unit, wanted=needed)
        )
    with warnings.catch_warnings():
        # The table has a column for it; and what ArviZ asks of pandas is not the user's business.
        warnings.filterwarnings("ignore", "Estimated shape parameter", UserWarning)
        warnings.simplefilter("ignore", DeprecationWarning)
        return arviz().compare(trees)
