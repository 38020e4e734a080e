"""`scorecard`: what methods state about the value of a policy, scored against the truth in MDPs drawn from a prior.

A belief that is right in the mean of an interval need not know which values go together, and it is that which decides
how an agent explores: beside marginal scores there is one over pairs of states.
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import jax
import numpy as np
from jaxtyping import PRNGKeyArray

from bayes_mdp.experiments.describe import describe_key, versions
from bayes_mdp.experiments.results import SCORECARD_FORMAT, half_width, json_attributes
from bayes_mdp.utils.progress import Progress
from bayes_mdp.utils.validation import check_count, check_key, check_type
from benchmarks.validation import proper_scores as scores
from benchmarks.validation.scorecard_methods import METHODS, StatedValues, greedy_policy, stated_values, values
from benchmarks.validation.scorecard_problems import CLASSES, ScoredClass, observe, scored_class

if TYPE_CHECKING:
    import xarray as xr

LEVELS = (0.5, 0.8, 0.95)
NUM_MDPS, NUM_DRAWS = 1000, 1000
QUICK: dict[str, Any] = {"num_mdps": 200, "num_draws": 300}
_AT_ONCE = 50  # MDPs


def scorecard(
    key: PRNGKeyArray,
    *,
    classes: Iterable[str] = CLASSES,
    methods: Iterable[str] = METHODS,
    num_mdps: int = NUM_MDPS,
    num_draws: int = NUM_DRAWS,
) -> "xr.Dataset":
    """Score methods that state an uncertainty. Host side, compiles one program for each class.

    Of every class `num_mdps` MDPs are drawn from a prior; each is observed under a policy that acts at random, the
    posterior is inferred, and the policy that is greedy in its mean MDP is evaluated: what each method states about its
    values at the first step is compared with those in the drawn MDP. The posterior being right, a method that is exact
    covers them as often as stated, whatever the data and the policy.

    Args:
        key: a typed key.
        classes: of `CLASSES`; see `scorecard_problems.scored_class`.
        methods: of `METHODS`.
        num_mdps: of each class, at least 2.
        num_draws: posterior draws of methods by draws, at least 2.

    Returns:
        A Dataset [problems, estimator], nan where a method refuses the class or does not apply to it (`says` is empty):

        * `coverage` [problems, estimator, level] of the true q(s, a) by central intervals (normal, or of the draws);
        * `sd_ratio`: stated over true standard deviation of q; `sd_ratio_error`, its standard error;
        * `crps` of q, in units of the value: the less, the better;
        * `pair_score`: Dawid-Sebastiani score of v(s), v(s') over pairs of states, in nats: the less, the better;
        * `pair_gain`: by how much that is less than with the correlations taken for zero;
        * `says`: the `validity` that the method states.

        Each score but `sd_ratio` has its 95 % half-width over MDPs, `crps_half` and so on.

    Raises:
        ValueError, TypeError: an unknown class or method, a number below 2, no typed key.
    """
    _check(key, classes, methods, num_mdps, num_draws)
    classes, methods = tuple(classes), tuple(methods)
    columns: dict[tuple[str, str], dict[str, Any]] = {}
    with Progress(num_mdps, len(classes)) as bar:
        for number, kind in enumerate(classes):
            (q, v), answers = _play(jax.random.fold_in(key, CLASSES.index(kind)), kind, methods, num_mdps, num_draws)
            for method, answer in answers.items():
                columns[kind, method] = _score(q, v, answer)
            bar.advance(number + 1)
    size = {"num_mdps": num_mdps, "num_draws": num_draws}
    return _to_dataset(columns, classes, methods, {**size, "key": describe_key(key), "versions": versions()})


def _check(key: Any, classes: Any, methods: Any, num_mdps: int, num_draws: int) -> None:
    check_key("key", key)
    check_count("num_mdps", num_mdps, 2)
    check_count("num_draws", num_draws, 2)
    for name, given, known in (("classes", classes, CLASSES), ("methods", methods, METHODS)):
        check_type(name, given, (tuple, list), f"a tuple of {name}")
        for one in given:
            if one not in known:
                raise ValueError(f"{name} holds {one!r}, expected some of {', '.join(known)}")
        if not given:
            raise ValueError(f"{name} is empty, expected some of {', '.join(known)}")


def _play(key: PRNGKeyArray, kind: str, methods: tuple[str, ...], num_mdps: int, num_draws: int) -> tuple[Any, Any]:
    """True (q [n S A], v [n S]), and what each method states, [n ...], as numpy arrays."""
    problem: ScoredClass = scored_class(kind)

    def one(key: PRNGKeyArray) -> tuple[Any, dict[str, StatedValues]]:
        key_mdp, key_data, key_infer, key_methods = jax.random.split(key, 4)
        truth = problem.draw(key_mdp)
        data = observe(key_data, truth, problem.objective, problem.num_transitions)
        posterior = problem.infer(key_infer, data)
        policy = greedy_policy(posterior, problem.objective)
        said = stated_values(key_methods, posterior, policy, problem.objective, methods, num_draws)
        return values(truth, policy, problem.objective), said

    keys = jax.random.split(key, num_mdps)
    return jax.device_get(jax.jit(lambda keys: jax.lax.map(one, keys, batch_size=min(_AT_ONCE, num_mdps)))(keys))


def _score(q: np.ndarray, v: np.ndarray, claimed: StatedValues) -> dict[str, Any]:
    """The scores of one method on one class, from float64 copies."""
    flat = (len(q), -1)
    truth, mean, variance = (np.asarray(x, np.float64).reshape(flat) for x in (q, claimed.mean, claimed.variance))
    sd = np.sqrt(variance)
    v, v_mean, covariance = (np.asarray(x, np.float64) for x in (v, claimed.v_mean, claimed.v_covariance))
    if claimed.draws is None:
        crps = scores.crps_normal(truth, mean, sd)
        inside = np.stack([scores.covered(truth, mean, sd, level).mean(1) for level in LEVELS], axis=-1)
    else:
        draws = np.moveaxis(np.asarray(claimed.draws).reshape(*claimed.draws.shape[:2], -1), 1, -1)
        crps = scores.crps_draws(truth, draws)
        inside = np.stack([scores.covered_by_draws(truth, draws, level).mean(1) for level in LEVELS], axis=-1)
    pairs = scores.pair_score(v, v_mean, covariance)
    alone = scores.pair_score(v, v_mean, covariance * np.eye(v.shape[-1]))
    gain = np.subtract(alone, pairs, out=np.zeros_like(pairs), where=np.isfinite(pairs))
    each = {"coverage": inside, "crps": crps.mean(1), "pair_score": pairs, "pair_gain": gain}
    found: dict[str, Any] = {name: x.mean(0) for name, x in each.items()}
    with np.errstate(invalid="ignore"):  # the score of a variance of zero is inf
        found |= {f"{name}_half": half_width(x) for name, x in each.items()}
    found["sd_ratio"], found["sd_ratio_error"] = scores.sd_ratio(variance, truth - mean)
    return found | {"says": claimed.says}


def _to_dataset(
    columns: dict[tuple[str, str], dict[str, Any]], classes: Any, methods: Any, attributes: dict[str, Any]
) -> "xr.Dataset":
    import xarray as xr

    def table(name: str) -> np.ndarray:
        shape = (len(LEVELS),) if name.startswith("coverage") else ()
        nothing = "" if name == "says" else np.full(shape, np.nan)
        return np.array(
            [[columns.get((kind, method), {}).get(name, nothing) for method in methods] for kind in classes]
        )

    names = ("coverage", "crps", "pair_score", "pair_gain")
    every = (*names, *(f"{name}_half" for name in names), "sd_ratio", "sd_ratio_error", "says")
    dims = ("problems", "estimator")
    return xr.Dataset(
        {name: ((*dims, "level") if name.startswith("coverage") else dims, table(name)) for name in every},
        coords={"problems": list(classes), "estimator": list(methods), "level": list(LEVELS)},
        attrs=json_attributes(SCORECARD_FORMAT, attributes),
    )
