"""A posterior that a person can read: `layout_of` (what `print(posterior)` shows) and the same as a `table`. Host-side.

This file turns what a `Fitted` says of itself into text, and imports none of the posterior classes.

A row of the transition probabilities with concentration c, c0 = sum(c) and mean p = c / c0 has
Var P(o) = p(o) (1 - p(o)) / (c0 + 1). `row_sd` is the root of their sum: the root of the expected squared distance of
the row from its mean.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import jax
import numpy as np
from jaxtyping import Bool, Float, Int

from bayes_mdp.inference.untried_rewards import moments_of, untried_rewards
from bayes_mdp.inference.wide_law import wide_law
from bayes_mdp.mdp import StateActionSpace
from bayes_mdp.mdp.abilities import by_pattern
from bayes_mdp.mdp.protocols import CanCountPrior, describe_weight
from bayes_mdp.mdp.space import END, PLATE_NAMES
from bayes_mdp.utils.layout import Bullets, Facts, Section, Table
from bayes_mdp.utils.messages import count_of, see
from bayes_mdp.utils.typing import AnyArray, Names, RealScalar
from bayes_mdp.utils.validation import described, is_concrete

if TYPE_CHECKING:
    import pandas as pd

    from bayes_mdp.inference.fitted import Fitted

SHOWN_PAIRS = 10
SHOWN_STATES = 12
SHOWN_SITES = 12
SHOWN_ELEMENTS = 8
"""A site with more elements is shown in one line."""
LONGEST_NAME = 12
ROUNDING = 1e-12
INTERVAL = (0.05, 0.95)
_count = partial(count_of, form=".10g")
HEADINGS = {
    "reward_mean": "mean reward",
    "reward_sd": "sd",
    "likeliest": "likeliest next",
    "likeliest_prob": "prob",
    "likeliest_sd": "sd ",
    "row_sd": "row sd",
}

Pairs = Float[AnyArray, "*H S A"]


class PairMoments(NamedTuple):
    """Means and variances under the posterior; a mean that does not exist is nan, a variance inf (or nan).

    Args:
        probs: mean of the transition probabilities.
        probs_variance: of each of them.
        reward: mean of the expected reward.
        reward_variance: of the expected reward.
        prior_share: the prior's part of the concentration of the row (its mean over components; of pooled rows what no
            data put there); nan where it has none.
        visits: observed transitions.
        reward_share: the prior's part in the mean reward (pseudo-observations over these and the data); nan where that
            is known. None: it is not known.
    """

    probs: Float[AnyArray, "*H S A O"]
    probs_variance: Float[AnyArray, "*H S A O"]
    reward: Pairs
    reward_variance: Pairs
    prior_share: Pairs
    visits: Pairs
    reward_share: Pairs | None = None


class LatentSites(NamedTuple):
    """Weighted draws (or enumerated values) of the latent sites of a posterior.

    Args:
        draws: {site: [K ...]}.
        weights: [K], summing to one.
        drawn: False for values that are enumerated: those have no effective sample size.
        ess: {site: [...]}, effective sample size of the chains, where they were run.
        r_hat: {site: [...]}, likewise.
    """

    draws: Mapping[str, AnyArray]
    weights: Float[AnyArray, " K"]
    drawn: bool
    ess: Mapping[str, np.ndarray]
    r_hat: Mapping[str, np.ndarray]


Observed = tuple[tuple[str, int], ...]
"""(Name, number of values) of each site that a prior program observes itself."""


def program_data(observed: Observed | None) -> dict[str, str]:
    """{heading: text} on the data that the prior program holds itself, for `method_lines`; empty: it holds none."""
    return {"program data": f"{describe_observed(observed)}: they count on top of the log"} if observed else {}


def describe_observed(observed: Observed) -> str:
    """The sites that a program observes, in words."""
    sites = ", ".join(f"site {name!r} ({_count(number, 'value')})" for name, number in observed)
    return f"the program itself observes {sites}"


def check_has_summary(posterior: object) -> None:
    """Raise a TypeError unless it can be summarised."""
    if not hasattr(posterior, "pair_moments"):
        expected = by_pattern(posterior) or "one as infer returns it, or a mixture"
        raise TypeError(f"posterior is {described(posterior)}, expected {expected}")


def table(posterior: "Fitted") -> "pd.DataFrame":
    """The posterior as a DataFrame: a row for every legal state and action, the most uncertain first.

    Columns: (step,) state, action (names); `visits`, observed transitions; `reward_mean`, `reward_sd` of the expected
    reward (units of the reward, sd epistemic); `likeliest`, the name of the most probable outcome (None where several
    are equally probable), with `likeliest_prob` and `likeliest_sd`; `row_sd` (see the module); `prior_share`, the
    prior's part of the concentration of the row (NaN where the row is known; of pooled rows what no data put there);
    `reward_share`, the prior's part in the mean reward: pseudo-observations over these and the observed rewards (NaN
    where it is known).

    Most uncertain: by the larger of `row_sd` and `reward_sd`, each as a fraction of its largest finite value in the
    table; an infinite `reward_sd` comes before all.

    Args:
        posterior: a `ConjugatePosterior`, a mixture (moments over its components, `prior_share` their mean) or a
            `SampledPosterior` (moments of its draws; `prior_share` and `reward_share` are nan, not known).

    Raises:
        TypeError: no posterior of this package.
    """
    check_has_summary(posterior)
    import pandas as pd

    columns = _columns(posterior)
    frame = pd.DataFrame(columns)
    frame["likeliest"] = pd.Series(columns["likeliest"], dtype=object)
    return frame


def describe(posterior: "Fitted") -> str:
    """`str(posterior)`, a name of 0.2 (see `bayes_mdp.renamed`).

    Args:
        posterior: as for `table`.

    Raises:
        TypeError: no posterior of this package.
    """
    return layout_of(posterior).text()


def layout_of(posterior: "Fitted") -> Section:
    """Method, evidence, extent of the data, latent sites, warnings, most uncertain pairs.

    A posterior without values (inside a compiled function) or with extra leading axes (under `vmap`) has its `repr`.

    Args:
        posterior: as for `table`.

    Raises:
        TypeError: no posterior of this package.
    """
    check_has_summary(posterior)
    # A traced posterior has no numbers, a batch more than one answer.
    if not is_concrete(posterior) or posterior.is_batch:
        return Section(repr(posterior))
    columns = _columns(posterior)  # not the table: pandas takes a quarter of a second to load
    title, facts = _head(posterior, columns)
    warnings = _warnings(posterior, columns)
    sites = _sites(posterior.latent_sites())
    return Section(
        title,
        (
            facts,
            *([] if sites is None else [sites]),
            *([Section("Warnings", [Bullets(warnings)])] if warnings else []),
            _worst(columns),
        ),
    )


def _columns(posterior: "Fitted") -> dict[str, np.ndarray]:
    """The columns of the table: legal pairs in its order."""
    space = posterior.space
    moments = jax.tree.map(lambda x: np.asarray(x, float), moments_of(posterior))
    probs = moments.probs
    # The most probable outcome of each pair, and its probability.
    best = probs.argmax(-1)[..., None]
    prob = np.take_along_axis(probs, best, -1)[..., 0]
    # Equal probabilities up to rounding: no outcome is the most likely one.
    unique = (probs >= prob[..., None] * (1 - 1e-9)).sum(-1) == 1
    reward_sd = np.sqrt(np.nan_to_num(moments.reward_variance, nan=np.inf, posinf=np.inf).clip(0.0))
    columns = {
        **_names(space),
        "visits": moments.visits,
        "reward_mean": moments.reward,
        # Equal draws differ from their mean by rounding: a known reward is not uncertain.
        "reward_sd": np.where(reward_sd <= ROUNDING * np.abs(moments.reward), 0.0, reward_sd),
        "likeliest": _outcome_labels(space, best[..., 0], unique),
        "likeliest_prob": prob,
        "likeliest_sd": np.sqrt(np.take_along_axis(moments.probs_variance, best, -1)[..., 0].clip(0.0)),
        "row_sd": np.sqrt(moments.probs_variance.sum(-1).clip(0.0)),
        "prior_share": moments.prior_share,
        "reward_share": np.full(moments.visits.shape, np.nan) if moments.reward_share is None else moments.reward_share,
    }
    legal = np.broadcast_to(True if space.legal is None else space.legal, space.shape)
    columns = {name: values[legal] for name, values in columns.items()}
    # Both uncertainties relative to their largest value, so that units of rewards do not matter; ties by visits.
    score = np.maximum(_relative(columns["row_sd"]), _relative(columns["reward_sd"]))
    # lexsort takes the last key first: by score, and among equals the least visited first.
    order = np.lexsort((columns["visits"], -score))
    return {name: values[order] for name, values in columns.items()}


def _names(space: StateActionSpace) -> dict[str, np.ndarray]:
    axes = [_objects(space.state_names), _objects(space.action_names)]
    if space.horizon is not None:
        axes.insert(0, np.arange(space.horizon))
    grid = np.indices(space.shape)
    return {name: axis[i] for name, axis, i in zip(PLATE_NAMES[-len(axes) :], axes, grid, strict=True)}


def _objects(names: Names) -> np.ndarray:
    """Names as an array of objects: a tuple stays one name."""
    array = np.empty(len(names), object)
    array[:] = names
    return array


def _relative(sd: np.ndarray) -> np.ndarray:
    finite = sd[np.isfinite(sd)]
    # A known MDP has no spread: nothing to divide by.
    largest = finite.max(initial=0.0)
    return sd / largest if largest > 0 else np.where(np.isfinite(sd), 0.0, sd)


def _outcome_labels(
    space: StateActionSpace, outcome: Int[np.ndarray, "*H S A"], shown: Bool[np.ndarray, "*H S A"]
) -> np.ndarray:
    """The name of an outcome of every pair; None where it is not to be shown."""
    # Outcomes are places in the list of successors of their pair, where the space has one.
    if space.successors is not None:
        outcome = np.take_along_axis(
            np.broadcast_to(space.successors, (*outcome.shape, space.n_outcomes)), outcome[..., None], -1
        )[..., 0]
    names = (*space.state_names, *((END,) if space.ends else ()), None)
    return _objects(names)[np.where(shown, outcome, -1)]


def _head(posterior: "Fitted", columns: dict[str, np.ndarray]) -> tuple[str, Facts]:
    space, tried = posterior.space, columns["visits"] > 0
    steps = "" if space.horizon is None else f"{_count(space.horizon, 'step')} x "
    ends = ", episodes can end" if space.ends else ""
    # Steps are added up: a state is visited if any step reached it.
    states = np.asarray(posterior.visit_counts()).sum(-1)
    visited = (states if states.ndim == 1 else states.sum(0)) > 0
    never = [str(name) for name, seen in zip(space.state_names, visited, strict=True) if not seen]
    rewards = posterior.num_rewards_observed()
    seen = (
        f"{_count(columns['visits'].sum(), 'transition')}, "
        f"{'rewards are known' if rewards is None else _count(rewards, 'reward')}; "
        f"{tried.sum()} of {_count(len(tried), 'pair')}, {visited.sum()} of {_count(space.n_states, 'state')}"
    )
    lines = {
        **posterior.method_lines(),
        "seen": seen,
        "never visited": f"{_count(len(never), 'state')}: {_listing(never)}" if never else "no state",
        "rows": _independence(posterior),
    }
    title = f"Posterior over {steps}{_count(space.n_states, 'state')} x {_count(space.n_actions, 'action')}{ends}"
    return title, Facts(lines)


def _independence(posterior: "Fitted") -> str:
    """Whether pairs share parameters; if so, the first two that do, where that is known."""
    if posterior.independent_rows:
        return "independent"
    shared = getattr(posterior, "shared_parameters", None)
    return f"not independent: {shared or 'pairs may share parameters'} (bm.explain has all sites)"


def _without_data(posterior: "Fitted") -> list[str]:
    """Pairs that were never tried, and those that an informative prior alone knows."""
    # Illegal pairs are not missing.
    missing = np.asarray(posterior.visit_counts()) <= 0
    if posterior.space.legal is not None:
        missing &= posterior.space.legal
    informed, weight = np.zeros(missing.shape, bool), np.zeros(missing.shape)
    if missing.any() and isinstance(posterior, CanCountPrior):
        # A flat prior says nothing of a pair; an informative one does, and the reader must know from where.
        weight, is_empty = map(np.asarray, posterior.prior_weight())
        informed = missing & ~is_empty & np.isfinite(weight)
    sentences = []
    if untried := int((missing & ~informed).sum()):
        sentences.append(f"{_count(untried, 'pair')} never tried: what is said of them is the prior.")
    if informed.any():
        pairs, weight_words = _count(informed.sum(), "pair"), describe_weight(weight[informed])
        sentences.append(
            f"{pairs} known by the prior alone (weight of {weight_words}): right so far as its source fits here."
        )
    return sentences


def _warnings(posterior: "Fitted", columns: dict[str, np.ndarray]) -> list[str]:
    """One line per thing that a reader should not miss."""
    # In the order in which they matter: data at all, pairs without, rewards that cannot be trusted.
    visits, share, paid, reward_sd = (columns[name] for name in ("visits", "prior_share", "reward_share", "reward_sd"))
    total, tried = float(visits.sum()), visits > 0
    sentences = []
    if total == 0:
        sentences.append("No data: this is the prior.")
    else:
        sentences += _without_data(posterior)
    if untried := untried_rewards(posterior):
        sentences.append(untried.warning("a policy that maximises the mean will try them") + ".")
    if heavy_tail := wide_law(posterior):
        sentences.append(f"{heavy_tail[0].upper()}{heavy_tail[1:]}.")
    if missing := int(np.isnan(columns["reward_mean"]).sum()):
        sentences.append(
            f"{_count(missing, 'pair')} whose mean reward does not exist (a law without a mean, as Cauchy, or a "
            "concentration <= 1/2): what needs it, as the value of a policy does, is refused."
        )
    if infinite := int(np.isinf(reward_sd).sum()):
        sentences.append(
            f"{_count(infinite, 'pair')} with an infinite variance of the mean reward (concentration <= 1): "
            "intervals exist, a standard deviation does not."
        )
    # The prior's share of the concentration says how much of the answer is the data's.
    # Untried pairs have been reported above already.
    ruled = tried & (share > 0.5)
    if ruled.any():
        sentences.append(
            f"In {ruled.sum()} of {_count(tried.sum(), 'tried pair')} the prior outweighs the data "
            f"(median share {np.median(share[ruled]):.2f})."
        )
    ruled = tried & (paid > 0.5)
    if ruled.any():
        sentences.append(
            f"In {ruled.sum()} of {_count(tried.sum(), 'tried pair')} the prior of the reward outweighs the rewards "
            f"that were seen (median share {np.median(paid[ruled]):.2f})."
        )
    rewards = posterior.num_rewards_observed()
    if rewards is not None and rewards < total:
        sentences.append(f"{_count(total - rewards, 'transition')} without a reward to learn from.")
    problems = posterior.problems()
    sentences += [text[0].upper() + text[1:] + "." for text in (*problems, *posterior.notes())]
    if problems:
        sentences.append(f"What such problems mean, and what to try: {see('how-to/check-a-posterior')}.")
    return sentences


def _sites(sites: LatentSites | None) -> Section | None:
    """A table: site, mean, sd, 90 % interval, effective sample size, r-hat (of the chains, where they were run)."""
    if sites is None or not sites.draws:
        return None
    weights = np.asarray(sites.weights, float)
    # 1 / sum w^2; enumerated values are not draws and have none.
    carried = float(1 / (weights**2).sum()) if sites.drawn else np.nan
    rows: list[tuple[str, ...]] = []
    places = []
    for name, draws in list(sites.draws.items())[:SHOWN_SITES]:
        values = np.asarray(draws, float)
        if not sites.drawn and values.ndim == 1 and np.asarray(draws).dtype.kind == "i" and len(np.unique(values)) > 2:
            # A place in a list that is enumerated: its mean means nothing.
            listed, place = np.unique(values, return_inverse=True)
            probs = np.bincount(place, weights)
            best = int(probs.argmax())
            places.append(f"{name}: most probably {listed[best]:g} (P = {probs[best]:.3f}) of {len(listed)} values")
            continue
        # The diagnostics of chains where there were some, else what the weights are worth.
        size = sites.ess.get(name, np.full(values.shape[1:], carried))
        hat = sites.r_hat.get(name, np.full(values.shape[1:], np.nan))
        rows += _site_rows(name, values, weights, (np.asarray(size), np.asarray(hat)))
    left = len(sites.draws) - SHOWN_SITES
    hidden = [f"and {left} more"] if left > 0 else []
    table = [Table(("site", "mean", "sd", "5 %", "95 %", "ess", "r-hat"), rows)] if rows else []
    return Section("Latent sites (posterior)", [*table, *places, *hidden])


def _site_rows(
    name: str, values: np.ndarray, weights: np.ndarray, quality: tuple[np.ndarray, np.ndarray]
) -> list[tuple[str, ...]]:
    """One line for each element; for a large site the range of the means, the worst of the rest."""
    # Moments by weight; draws of chains have equal ones.
    mean = np.tensordot(weights, values, 1)
    sd = np.sqrt(np.tensordot(weights, (values - mean) ** 2, 1))
    size, hat = quality
    # A large site in one line: the worst element speaks for all.
    if mean.size > SHOWN_ELEMENTS:
        least = np.min(size[np.isfinite(size)], initial=np.inf)
        largest_hat = np.max(hat[np.isfinite(hat)], initial=0.0) or np.nan
        span = f"{mean.min():.3g} to {mean.max():.3g}"
        label = f"{name} {tuple(mean.shape)}"
        return [(label, span, f"<= {sd.max():.3g}", "", "", f">= {least:.0f}", _hat(largest_hat, "<= "))]
    low, high = _quantiles(values, weights)
    return [
        (
            name + (str(list(index)) if index else ""),
            *(f"{x[index]:.4g}" for x in (mean, sd, low, high)),
            "-" if np.isnan(size[index]) else f"{size[index]:.0f}",
            _hat(hat[index]),
        )
        for index in np.ndindex(mean.shape)
    ]


def _hat(value: RealScalar, prefix: str = "") -> str:
    return "-" if np.isnan(value) else f"{prefix}{value:.3f}"


def _quantiles(values: Float[np.ndarray, "K ..."], weights: np.ndarray) -> list[np.ndarray]:
    """Weighted, by the inverse of the distribution function."""
    # Sort draws, accumulate weights, take the first draw where the weight reaches p.
    order = np.argsort(values, axis=0)
    reach = np.cumsum(weights[order], axis=0)
    ranked = np.take_along_axis(values, order, 0)
    first = [np.argmax(reach >= min(p, 1.0) * reach[-1:], axis=0) for p in INTERVAL]
    return [np.asarray(np.take_along_axis(ranked, i[None], 0)[0]) for i in first]


def _worst(columns: dict[str, np.ndarray]) -> Section:
    """The first rows of the table."""
    total = len(columns["visits"])
    shown = {name: values[:SHOWN_PAIRS].tolist() for name, values in columns.items()}
    named = [name for name in PLATE_NAMES if name in columns]
    labels = [x for name in (*named, "likeliest") if name in columns for x in shown[name] if x is not None]
    # One set of short names for all columns: a name that is cut is cut alike everywhere.
    short = dict(zip(map(str, labels), clip_names(labels), strict=True))
    text = {name: [short[str(x)] for x in shown[name]] for name in named}
    text["visits"] = [f"{x:.7g}" for x in shown["visits"]]
    for name, heading in HEADINGS.items():
        if name == "likeliest":
            text[heading] = ["(several)" if x is None else short[str(x)] for x in shown[name]]
        else:
            digits = ".3g" if name.startswith("reward") else ".3f"
            text[heading] = [f"{x:{digits}}" for x in shown[name]]
    words = [i for i, name in enumerate(text) if name in (*named, HEADINGS["likeliest"])]
    number = f"{min(SHOWN_PAIRS, total)} of {total}"
    title = f"Most uncertain pairs ({number}, worst first; posterior means and standard deviations)"
    rows = list(zip(*text.values(), strict=True))
    return Section(title, [Table([name.strip() for name in text], rows, words)])


def clip_names(names: Sequence[object]) -> list[str]:
    """Names of at most `LONGEST_NAME` letters: long ones lose their end, their beginning, their middle, or all but what
    follows their common beginning, the first of these by which names that differ still do; where none does, they stay.

    Args:
        names: as they are shown together.
    """
    # Line breaks and runs of blanks would break the table.
    text = [" ".join(str(name).split()) for name in names]
    long, room = {x for x in text if len(x) > LONGEST_NAME}, LONGEST_NAME - 3
    # The common beginning of all long names, by comparing the first and the last in order.
    first, last = min(long, default=""), max(long, default="")
    common = next((i for i, (x, y) in enumerate(zip(first, last, strict=False)) if x != y), 0)
    ways: tuple[Callable[[str], str], ...] = (
        lambda x: x[:room] + "...",
        lambda x: "..." + x[-room:],
        lambda x: x[: room // 2] + "..." + x[room // 2 - room :],
        lambda x: "..." + x[common : common + room],
    )
    short_names = set(text) - long
    # The first way of cutting that keeps different names different.
    best = next((cut for cut in ways if len({*map(cut, long)} | short_names) == len(set(text))), str)
    return [best(x) if x in long else x for x in text]


def _listing(names: list[str]) -> str:
    num_hidden = len(names) - SHOWN_STATES
    shown = ", ".join(clip_names(names[:SHOWN_STATES]))
    return f"{shown} and {num_hidden} more" if num_hidden > 0 else shown
