"""`fit`: the posterior of the parameters of persons and of their group, by NUTS."""

from collections.abc import Hashable
from typing import TYPE_CHECKING

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from bayes_mdp.behaviour.behaviour_model import BehaviourModel, check_model
from bayes_mdp.behaviour.choice_log import ChoiceLog
from bayes_mdp.behaviour.group_model import POOLINGS, Pooling, numpyro_model
from bayes_mdp.behaviour.jumps import refuse_jumps
from bayes_mdp.behaviour.likelihood import check_possible, chosen_log_probs
from bayes_mdp.inference.draws.chains import Chains, effective_size, run_chains, split_r_hat, warn_of
from bayes_mdp.inference.draws.methods import NUTS, check_sampler
from bayes_mdp.utils.progress import stage
from bayes_mdp.utils.typing import AnyArray
from bayes_mdp.utils.validation import check_count, check_key, check_name, check_type

if TYPE_CHECKING:
    import pandas as pd

_SHOWN_SUBJECTS = 5


class BehaviourPosterior(eqx.Module):
    """Draws of C chains, N of each, of the parameters of P persons (made by `fit`); print it.

    Args:
        params: name -> [C N P], in the support and unit of each parameter ([C N] where persons are pooled completely).
        mcmc: the chains of the sites of `numpyro_model`.
        model: whose parameters they are.
        log: the choices.
        pooling: what persons share.
    """

    params: dict[str, Float[AnyArray, "C N *P"]]
    mcmc: Chains
    model: BehaviourModel
    log: ChoiceLog
    pooling: str = eqx.field(static=True)

    @property
    def num_draws(self) -> int:
        """Of all chains."""
        return self.mcmc.num_chains * self.mcmc.num_samples

    def problems(self) -> list[str]:
        """Problems to know of before it is used, one sentence each; empty: none found."""
        return self.mcmc.problems()

    def group(self) -> dict[str, Float[np.ndarray, "C N"]]:
        """Draws of the group's mean of each parameter, mapped to its support (where persons share one)."""
        if self.pooling == "none":
            return {}
        site = "mean" if self.pooling == "partial" else "line"
        return {
            name: np.asarray(parameter.constrain(self.mcmc.draws[f"{name}_{site}"]))
            for name, parameter in self.model.parameters.items()
        }

    def each_person(self, num_draws: int | None = None) -> dict[str, Float[np.ndarray, "D P"]]:
        """Draws of the parameters of every person in their units, evenly thinned to `num_draws`, chain by chain."""
        index = self.thinned(num_draws)
        made, persons = {}, self.log.num_subjects
        for name, x in self.params.items():
            flat = np.asarray(x).reshape(self.num_draws, -1)[index]
            made[name] = np.broadcast_to(flat, (len(index), persons))
        return made

    def thinned(self, num_draws: int | None) -> np.ndarray:
        """Indices [D] of D = `num_draws` of all draws, evenly; None: of all.

        Raises:
            ValueError: `num_draws` is below 1. TypeError: no integer.
        """
        if num_draws is not None:
            check_count("num_draws", num_draws)
        number = min(num_draws or self.num_draws, self.num_draws)
        return np.linspace(0, self.num_draws - 1, number).round().astype(int)

    def table(self) -> "pd.DataFrame":
        """A row for each parameter of the group (subject None) and of each subject: moments, quantiles, diagnostics."""
        import pandas as pd

        rows = []

        def add(name: str, subject: Hashable, draws: np.ndarray) -> None:
            low, high = np.quantile(draws, [0.05, 0.95])
            r_hat, ess = (float(f(draws.astype(np.float64))) for f in (split_r_hat, effective_size))
            rows.append((name, subject, draws.mean(), draws.std(), low, high, r_hat, ess))

        for name, draws in self.group().items():
            add(name, None, draws)
        if self.pooling != "complete":
            for name, draws in self.params.items():
                for i, subject in enumerate(self.log.subjects):
                    add(name, subject, np.asarray(draws)[:, :, i])
        columns = ["parameter", "subject", "mean", "sd", "q05", "q95", "r_hat", "ess"]
        frame = pd.DataFrame(rows, columns=columns)
        frame["subject"] = pd.Series([row[1] for row in rows], dtype=object)  # labels stay what they are beside None
        return frame

    def __str__(self) -> str:
        """What it is, the group, the first subjects, and problems."""
        log = self.log
        lines = [
            f"Parameters of {log.num_subjects} subjects from {log.num_choices} choices ({type(self.model).__name__}, "
            f"pooling {self.pooling}, {self.mcmc.described()})"
        ]
        frame = self.table()
        for title, rows in (
            ("group" if self.pooling == "partial" else "all subjects", frame[frame["subject"].isna()]),
            ("subjects", frame[~frame["subject"].isna() & frame["subject"].isin(log.subjects[:_SHOWN_SUBJECTS])]),
        ):
            if not len(rows):
                continue
            lines.append(f"{title:<24}{'mean':>9}{'sd':>9}{'5 %':>9}{'95 %':>9}{'r-hat':>8}{'ess':>7}")
            for name, subject, mean, sd, low, high, r_hat, ess in rows.to_numpy():
                what = name if title != "subjects" else f"{name} of {subject}"
                numbers = "".join(f"{x:9.3f}" for x in (mean, sd, low, high))
                lines.append(f"  {what!s:<22}{numbers}{r_hat:8.3f}{ess:7.0f}")
        more = log.num_subjects - _SHOWN_SUBJECTS
        if more > 0 and self.pooling != "complete":
            lines.append(f"  ... and {more} more subjects (table())")
        return "\n".join([*lines, *(f"Problem: {problem}" for problem in self.problems())])


def fit(
    key: PRNGKeyArray,
    model: BehaviourModel,
    log: ChoiceLog,
    *,
    pooling: Pooling = "partial",
    sampler: NUTS | None = None,
) -> BehaviourPosterior:
    """The posterior of the parameters of all persons, and of the group that they come from.

    The program is `numpyro_model`; chains run side by side, in JAX's default width, compiled once for a model and the
    shape of a log. A `SamplingWarning` says what is wrong with the draws.

    NUTS follows gradients. A parameter in which the likelihood may jump (the learning rate of an epsilon-greedy
    learner) is refused, as its data flow shows (`bayes_mdp.behaviour.jumps`); a kernel of your own takes any.

    Args:
        key: a typed key.
        model: how persons choose and learn.
        log: their choices.
        pooling: "partial": persons are drawn from one group, whose mean and spread are inferred; "none": each by
            itself; "complete": all have the same parameters.
        sampler: how long, how many chains; None: `NUTS()`.

    Raises:
        ValueError, TypeError: as `log_likelihood`; a model without parameters; a choice of probability 0 at the centre
            of the prior (named); a parameter in which the likelihood may jump (named), unless `sampler` has a kernel.
    """
    check_key("key", key)
    check_model(model)
    check_type("log", log, ChoiceLog, "a ChoiceLog")
    check_name("pooling", pooling, POOLINGS)
    sampler = NUTS() if sampler is None else sampler
    check_sampler(sampler)
    if not model.parameters:
        raise ValueError("model has no parameters, expected at least one to infer")
    centre = {name: jnp.full(log.num_subjects, p.constrain(0.0)) for name, p in model.parameters.items()}
    check_possible(chosen_log_probs(model, centre, log), log)
    if sampler.kernel is None:
        refuse_jumps(model, ends=log.terminated is not None)
    with stage(f"fit (nuts, {pooling} pooling)"):
        mcmc = jax.tree.map(np.asarray, _sampled(key, model, log, pooling, sampler))
    values: dict[str, AnyArray] = {
        name: np.asarray(p.constrain(_lines(mcmc, name, pooling))) for name, p in model.parameters.items()
    }
    posterior = BehaviourPosterior(values, mcmc, model, log, pooling)
    warn_of(posterior)
    return posterior


@eqx.filter_jit
def _sampled(key: PRNGKeyArray, model: BehaviourModel, log: ChoiceLog, pooling: str, sampler: NUTS) -> Chains:
    return run_chains(key, numpyro_model(model, log, pooling), log, sampler)  # type: ignore[arg-type]


def _lines(mcmc: Chains, name: str, pooling: str) -> Float[Array, "C N *P"]:
    """Draws of the values of the persons on the line."""
    draws = {site: jnp.asarray(x) for site, x in mcmc.draws.items()}
    if pooling != "partial":
        return draws[f"{name}_line"]
    return draws[f"{name}_mean"][..., None] + draws[f"{name}_sd"][..., None] * draws[f"{name}_z"]
