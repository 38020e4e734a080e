"""The log density of the prior at draws of a posterior. Host-side, in float64."""

import numpy as np
from jaxtyping import Float

from bayes_mdp.calibration.belief.before_data import before_data
from bayes_mdp.calibration.belief.draws import Draws
from bayes_mdp.calibration.belief.posterior_views import FittedPosterior
from bayes_mdp.calibration.belief.program_run import run_program, top_sites
from bayes_mdp.inference.conjugate.conjugate_posterior import ConjugatePosterior
from bayes_mdp.inference.conjugate.dirichlet_rows import DirichletRows
from bayes_mdp.inference.conjugate.reward_cells import RewardCells
from bayes_mdp.inference.families.family import RewardBelief
from bayes_mdp.inference.fitted import NO_PROGRAM
from bayes_mdp.inference.mixtures import Mixture

Terms = dict[str, Float[np.ndarray, " N"]]


def log_prior_of(posterior: FittedPosterior, draws: Draws) -> Terms:
    """Log density, up to a constant, of the parameters without latent parents, at each draw: name -> [N].

    These are sites of the program; without a program the rows ("transition_probs") and rewards ("rewards") of a closed
    form. Parameters with latent parents belong to the model, which learns them through their parents (Kallioinen et al.
    2023, section 2.4).

    Raises:
        TypeError: a mixture of given posteriors, whose components are no draws of a site.
        ValueError: a posterior without a program (one that was loaded has none).
    """
    why = why_no_log_prior(posterior)
    if isinstance(posterior, Mixture) and not posterior.hyperparameters:
        raise TypeError(f"posterior is a {type(posterior).__name__}, expected one as infer returns it")
    if why is not None:
        raise ValueError(f"posterior has no density of its prior, expected one from infer: {why}")
    program = posterior.program
    if program is None:
        return closed_log_prior(posterior, draws)
    run = run_program(program, posterior.space, draws.run.sites, len(draws.transition_probs))
    top = top_sites(program, posterior.space)
    densities = {name: np.asarray(x) for name, x in run.log_density.items() if name in top}
    return {name: x.reshape(len(x), -1).sum(1) for name, x in densities.items()}


def why_no_log_prior(posterior: FittedPosterior) -> str | None:
    """Why the density of its prior is not known, in words; None: it is."""
    if posterior.program is not None:
        return None
    if not isinstance(posterior, ConjugatePosterior):
        return NO_PROGRAM
    rewards = posterior.reward_cells
    if not rewards.learns:
        return None
    plain = isinstance(rewards, RewardCells) and rewards.coefficient is None
    return None if plain else f"{NO_PROGRAM}, and the density of its beliefs about rewards has no formula here"


def closed_log_prior(posterior: FittedPosterior, draws: Draws) -> Terms:
    """Of the Dirichlet rows and of the reward parameters; one that several pairs share counts once."""
    assert isinstance(posterior, ConjugatePosterior)
    prior = before_data(posterior)
    found = {"transition_probs": _log_prior_rows(prior.transition_probs, draws.transition_probs)}
    rewards = prior.reward_cells
    if isinstance(rewards, RewardCells):
        site = np.arange(draws.rewards.known.size) if rewards.cell is None else np.ravel(rewards.cell)
        first = _first_places(site)
        parameters = [np.asarray(x, np.float64)[site[first]] for x in vars(rewards.prior).values()]
        belief = type(rewards.prior)(*parameters)
        law = draws.rewards.law
        assert law is not None  # it is that of the belief
        values = belief.laws[type(law)](law)
        drawn = (np.asarray(values[name], np.float64) for name in belief.sites)
        at = [x.reshape(len(x), site.size, *x.shape[1 + draws.rewards.known.ndim :]) for x in drawn]
        found["rewards"] = belief.log_prior(tuple(_inside(x[:, first], belief) for x in at)).sum(1)
    return found


def _log_prior_rows(rows: DirichletRows, probs: Float[np.ndarray, "N *H S A O"]) -> Float[np.ndarray, " N"]:
    prior = np.asarray(rows.concentration, np.float64).reshape(-1, probs.shape[-1])
    table = np.arange(len(prior)) if rows.row is None else np.ravel(rows.row)
    first = _first_places(table)
    flat = probs.reshape(len(probs), *prior.shape)[:, first].astype(np.float64)
    possible = prior[first] > 0
    # A probability may underflow to zero in float32: take the smallest normal number in its place.
    terms = np.where(possible, (prior[first] - 1.0) * np.log(np.maximum(flat, np.finfo(np.float32).tiny)), 0.0)
    return terms.sum((1, 2))


def _first_places(table: np.ndarray) -> np.ndarray:
    """Where each entry >= 0 of `table` occurs first."""
    entries, places = np.unique(table, return_index=True)
    return places[entries >= 0]


def _inside(drawn: Float[np.ndarray, "N ..."], belief: RewardBelief) -> Float[np.ndarray, "N ..."]:
    """Draws on the boundary of the support, by rounding, moved inside."""
    ((family, *_), *more) = belief.sites.values()
    tiny = np.finfo(np.float32).tiny
    if family in ("Beta", "Dirichlet"):
        return np.clip(drawn, tiny, 1.0 - np.finfo(np.float64).epsneg)
    return np.maximum(drawn, tiny) if family == "Gamma" and not more else drawn
