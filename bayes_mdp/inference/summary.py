"""A posterior that a person can read: `describe` (what `print(posterior)` shows) and the same as a `table`. Host-side.

A row of the transition probabilities with concentration c, c0 = sum(c) and mean p = c / c0 has
Var P(o) = p(o) (1 - p(o)) / (c0 + 1). `row_sd` is the root of their sum: the root of the expected squared distance of
the row from its mean.
"""

import textwrap
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from bayes_mdp.inference.posterior import ConjugatePosterior
from bayes_mdp.inference.summary_moments import pair_moments, rewards_seen
from bayes_mdp.inference.summary_sites import how, notes, problems, site_lines
from bayes_mdp.mdp.space import PLATE_NAMES
from bayes_mdp.mdp.validation import described, is_concrete

if TYPE_CHECKING:
    import pandas as pd

WIDTH = 100
SHOWN_PAIRS = 10
SHOWN_STATES = 12
LONGEST_NAME = 12
HEADINGS = {
    "reward_mean": "mean reward",
    "reward_sd": "sd",
    "likeliest": "likeliest next",
    "likeliest_prob": "prob",
    "likeliest_sd": "sd ",
    "row_sd": "row sd",
}


def check_shown(posterior: Any) -> None:
    """Raise a TypeError unless it can be summarised."""
    if not (hasattr(posterior, "space") and hasattr(posterior, "mean_mdp")):
        raise TypeError(f"posterior is {described(posterior)}, expected one as infer returns it, or a mixture")


def table(posterior: Any) -> "pd.DataFrame":
    """Every legal pair, the most uncertain first.

    Columns: (step,) state, action (names); `visits`, transitions seen; `reward_mean` and `reward_sd` of the expected
    reward (units of the reward, sd epistemic); `likeliest`, the name of the most probable outcome (None where several
    are equally probable), with `likeliest_prob` and `likeliest_sd`; `row_sd` (see the module); `prior_share`, the
    prior's part of the concentration of the row (NaN where the row is known).

    Most uncertain: by the larger of `row_sd` and `reward_sd`, each as a fraction of its largest finite value in the
    table; an infinite `reward_sd` comes before all.

    Args:
        posterior: a `ConjugatePosterior`, a mixture (moments over its components, `prior_share` their mean) or a
            `SampledPosterior` (moments of its draws; `prior_share` is nan).
    """
    check_shown(posterior)
    import pandas as pd

    columns = _columns(posterior)
    legal = np.ones(posterior.space.shape, bool)
    if posterior.space.legal is not None:
        legal &= posterior.space.legal
    frame = pd.DataFrame({name: values[legal] for name, values in columns.items()})
    frame["likeliest"] = pd.Series(columns["likeliest"][legal], dtype=object)
    score = np.maximum(*(_relative(frame[name].to_numpy()) for name in ("row_sd", "reward_sd")))
    return frame.iloc[np.lexsort((frame["visits"], -score))].reset_index(drop=True)


def describe(posterior: Any) -> str:
    """Text for a terminal: method, evidence, what was seen and what not, latent sites, warnings, most uncertain pairs.

    A posterior without values (inside a compiled function) or with extra leading axes (under `vmap`) gives its `repr`.

    Args:
        posterior: as for `table`.
    """
    check_shown(posterior)
    if not is_concrete(posterior) or _is_batched(posterior):
        return repr(posterior)
    frame = table(posterior)
    lines = [*_head(posterior, frame), *site_lines(posterior), *_warnings(posterior, frame), *_worst(frame)]
    return "\n".join(lines)


def _is_batched(posterior: Any) -> bool:
    if isinstance(posterior, ConjugatePosterior):
        return np.ndim(posterior.transition_probs.prior) > 2
    return np.ndim(posterior.log_weights) > 1


def _columns(posterior: Any) -> dict[str, np.ndarray]:
    """The columns of the table as arrays [*H S A]."""
    space = posterior.space
    moments: Any = pair_moments(posterior)
    probs = moments.probs
    best = probs.argmax(-1)[..., None]
    prob = np.take_along_axis(probs, best, -1)[..., 0]
    unique = (probs >= prob[..., None] * (1 - 1e-9)).sum(-1) == 1
    return {
        **_names(space),
        "visits": moments.visits,
        "reward_mean": moments.reward,
        "reward_sd": np.sqrt(np.nan_to_num(moments.reward_variance, nan=np.inf, posinf=np.inf).clip(0.0)),
        "likeliest": _objects((*space.outcome_names, None))[np.where(unique, best[..., 0], -1)],
        "likeliest_prob": prob,
        "likeliest_sd": np.sqrt(np.take_along_axis(moments.probs_variance, best, -1)[..., 0].clip(0.0)),
        "row_sd": np.sqrt(moments.probs_variance.sum(-1).clip(0.0)),
        "prior_share": moments.prior_share,
    }


def _names(space: Any) -> dict[str, np.ndarray]:
    axes = [_objects(space.state_names), _objects(space.action_names)]
    if space.horizon is not None:
        axes.insert(0, np.arange(space.horizon))
    grid = np.indices(space.shape)
    return {name: axis[i] for name, axis, i in zip(PLATE_NAMES[-len(axes) :], axes, grid, strict=True)}


def _objects(names: Any) -> np.ndarray:
    """Names as an array of objects: a tuple stays one name."""
    array = np.empty(len(names), object)
    array[:] = names
    return array


def _relative(sd: np.ndarray) -> np.ndarray:
    finite = sd[np.isfinite(sd)]
    largest = finite.max(initial=0.0)
    return sd / largest if largest > 0 else np.where(np.isfinite(sd), 0.0, sd)


def _head(posterior: Any, frame: "pd.DataFrame") -> list[str]:
    space, tried = posterior.space, frame["visits"] > 0
    steps = "" if space.horizon is None else f"{_count(space.horizon, 'step')} x "
    ends = ", episodes can end" if space.ends else ""
    states = np.asarray(posterior.visit_counts()).sum(-1)
    visited = (states if states.ndim == 1 else states.sum(0)) > 0
    never = [str(name) for name, seen in zip(space.state_names, visited, strict=True) if not seen]
    rewards = rewards_seen(posterior)
    seen = (
        f"{_count(frame['visits'].sum(), 'transition')}, "
        f"{'rewards are known' if rewards is None else _count(rewards, 'reward')}; "
        f"{tried.sum()} of {_count(len(frame), 'pair')}, {visited.sum()} of {_count(space.n_states, 'state')}"
    )
    lines = {
        **_method_lines(posterior),
        "seen": seen,
        "never visited": f"{_count(len(never), 'state')}: {_listing(never)}" if never else "no state",
        "rows": "independent" if posterior.independent_rows else "tied: pairs learn from each other",
    }
    title = f"Posterior over {steps}{_count(space.n_states, 'state')} x {_count(space.n_actions, 'action')}{ends}"
    return [title, *(_wrap(f"  {name:<15}{text}", 17) for name, text in lines.items())]


def _method_lines(posterior: Any) -> dict[str, str]:
    if isinstance(posterior, ConjugatePosterior):
        return {
            "method": f"{posterior.method} (closed form, no Monte Carlo error)",
            "log evidence": f"{float(posterior.log_evidence):.6g} = log p(next states, rewards | states, actions)",
        }
    size, number = float(posterior.effective_sample_size()), posterior.weights.shape[0]
    return {"method": how(posterior), "weights": f"effective sample size {size:.4g} of {number}"}


def _warnings(posterior: Any, frame: "pd.DataFrame") -> list[str]:
    """One line per thing that a reader should not miss."""
    visits, share, reward_sd = (frame[name].to_numpy(float) for name in ("visits", "prior_share", "reward_sd"))
    total, tried = float(visits.sum()), visits > 0
    found = []
    if total == 0:
        found.append("No data: this is the prior.")
    elif untried := int((~tried).sum()):
        found.append(f"{_count(untried, 'pair')} never tried: what is said of them is the prior.")
    if missing := int(np.isnan(frame["reward_mean"].to_numpy(float)).sum()):
        found.append(
            f"{_count(missing, 'pair')} whose mean reward does not exist (a law without a mean, as Cauchy, or a "
            "concentration <= 1/2): what needs it, as the value of a policy does, is refused."
        )
    if infinite := int(np.isinf(reward_sd).sum()):
        found.append(
            f"{_count(infinite, 'pair')} with an infinite variance of the mean reward (concentration <= 1): "
            "intervals exist, a standard deviation does not."
        )
    ruled = tried & (share > 0.5)
    if ruled.any():
        found.append(
            f"In {ruled.sum()} of {_count(tried.sum(), 'tried pair')} the prior outweighs the data "
            f"(median share {np.median(share[ruled]):.2f})."
        )
    rewards = rewards_seen(posterior)
    if rewards is not None and rewards < total:
        found.append(f"{_count(total - rewards, 'transition')} without a reward to learn from.")
    exact = isinstance(posterior, ConjugatePosterior)
    if exact and not np.isfinite(posterior.log_evidence):
        found.append("The log evidence is not finite: impossible data, or sums that do not determine it.")
    if exact and _saturated(posterior):
        found.append("Concentrations above 2^24 in float32: one more transition no longer changes them.")
    found += [text[0].upper() + text[1:] + "." for text in (*problems(posterior), *notes(posterior))]
    return ["Warnings", *(_wrap(f"  - {text}", 4) for text in found)] if found else []


def _saturated(posterior: Any) -> bool:
    leaves = [np.asarray(x) for x in jax.tree.leaves(posterior.transition_probs)]
    return any(leaf.dtype == np.float32 and leaf.max(initial=0.0) > 2.0**24 for leaf in leaves)


def _worst(frame: "pd.DataFrame") -> list[str]:
    """The first rows of the table, aligned."""
    shown = frame.head(SHOWN_PAIRS)
    named = [name for name in PLATE_NAMES if name in frame]
    text = {name: [_clip(x) for x in shown[name]] for name in named}
    text["visits"] = [f"{x:.7g}" for x in shown["visits"]]
    for name, heading in HEADINGS.items():
        if name == "likeliest":
            text[heading] = ["(several)" if x is None else _clip(x) for x in shown[name]]
        else:
            digits = ".3g" if name.startswith("reward") else ".3f"
            text[heading] = [f"{x:{digits}}" for x in shown[name]]
    left = {*named, HEADINGS["likeliest"]}
    columns = [
        [f"{cell:{'<' if name in left else '>'}{max(map(len, (name, *cells)))}}" for cell in (name.strip(), *cells)]
        for name, cells in text.items()
    ]
    title = f"Most uncertain pairs ({len(shown)} of {len(frame)}, worst first; posterior means and standard deviations)"
    return [title, *("  " + "  ".join(line).rstrip() for line in zip(*columns, strict=True))]


def _clip(name: Any) -> str:
    text = " ".join(str(name).split())
    return text if len(text) <= LONGEST_NAME else text[: LONGEST_NAME - 3] + "..."


def _count(number: Any, noun: str) -> str:
    return f"{float(number):.10g} {noun}{'' if number == 1 else 's'}"


def _listing(names: list[str]) -> str:
    more = len(names) - SHOWN_STATES
    shown = ", ".join(_clip(name) for name in names[:SHOWN_STATES])
    return f"{shown} and {more} more" if more > 0 else shown


def _wrap(line: str, indent: int) -> str:
    return textwrap.fill(line, WIDTH, subsequent_indent=" " * indent, drop_whitespace=False, break_on_hyphens=False)
