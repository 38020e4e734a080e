"""Words that people search for and a page does not have in its title: the site's search shows that page first for them.

Each becomes a main entry of the index (`genindex`), which Sphinx's search ranks above all else. Other words are ranked
by `search_scorer.js`.
"""

import re

SEARCH_WORDS = {
    "faq": "hidden states, POMDP, partially observed, continuous states, continuous actions",
    "gallery": "plot, picture, figure, two-armed bandit",
    "how-to/budgets": "budget, cost, constraint, shadow price, resource limit, constrained MDP",
    "how-to/check-a-posterior": (
        "r-hat, effective sample size, convergence, predictive check, sensitivity to the prior, divergences, LOO"
    ),
    "how-to/check-your-own-prior": "SBC, simulation-based calibration, rank test",
    "how-to/compare-agents": "leaderboard, benchmark",
    "how-to/compare-policies": "credible interval, off-policy evaluation, which policy is better",
    "how-to/continue-after-a-kill": "resume, checkpoint, crash",
    "how-to/covariates": (
        "subgroup, patient characteristics, regression, context, "
        "contextual bandit, precision medicine, heterogeneous effects"
    ),
    "how-to/decide-from-a-log": (
        "confounding, safe policy improvement, change of practice, offline reinforcement learning, "
        "risk, worst case, treatment policy"
    ),
    "how-to/differentiate-a-planner": "gradient, autodiff",
    "how-to/draws-of-other-tools": "Stan, PyMC, posterior samples",
    "how-to/dynamic-discrete-choice": "structural estimation",
    "how-to/fit-learners-to-people": (
        "learning rate, Q-learning, subjects, parameter recovery, win stay lose shift, habit, computational psychiatry"
    ),
    "how-to/gymnasium": "gymnasium, gym, my own environment",
    "how-to/inverse-reinforcement-learning": "IRL, unknown rewards",
    "how-to/large-logs": "big data, out of memory, parquet, update with new data",
    "how-to/learn-from-experts": "imitation, demonstrations, behavioural cloning",
    "how-to/legal-actions": "illegal actions, forbidden actions, action mask",
    "how-to/make-it-fast": "slow, performance, compiling, speed",
    "how-to/many-machines": "cluster, parallel, SLURM",
    "how-to/many-states": "large state space, sparse",
    "how-to/optimism-without-a-prior": "UCB, upper confidence bound, UCRL2",
    "how-to/plan-by-search": "Monte Carlo tree search, MCTS, Bayes-adaptive",
    "how-to/policies-over-time": "time-dependent policy, finite horizon, non-stationary policy",
    "how-to/pool-sites": "hierarchical prior, partial pooling, random effects, hospitals",
    "how-to/read-a-log": (
        "CSV, missing values, empty cells, data frame, Excel, semicolon, dates, wide table, truncated"
    ),
    "how-to/routes": "NUTS, HMC, variational inference, closed form",
    "how-to/run-a-sweep": "grid search",
    "how-to/run-agents": "regret, cumulative regret, learning curve, Thompson sampling, exploration",
    "how-to/save-and-load": "save, export, store",
    "how-to/seeds-dtypes-devices": "GPU, random seed, float64, reproducible",
    "how-to/train-deep-agents": "neural network, deep reinforcement learning",
    "how-to/value-of-information": (
        "cost-effectiveness, sample size, EVPI, EVSI, how many patients, "
        "Markov cohort model, QALY, ICER, health economics"
    ),
    "how-to/value-uncertainty": "uncertainty of a value, standard error, variance of a return",
    "how-to/which-check": "model criticism, diagnostics",
    "how-to/which-prior": "choose a prior, default prior",
    "how-to/write-a-prior": "informative prior, custom prior",
    "how-to/write-a-reward-law": "reward noise, reward distribution",
    "how-to/write-an-agent": "custom agent, my own agent",
    "how-to/write-an-environment": "simulator, custom environment",
    "reference/from-0-2-to-0-3": "upgrade, upgrade from 0.2, old names, deprecated",
    "reference/glossary": "definitions, notation",
    "reference/versions": "version, compatibility",
    "start": "install, quick start, getting started",
}
"""Page -> words, with commas between them."""


def with_search_words(_app: object, page: str, source: list[str]) -> None:
    """The page with its words as entries of the index, below its title; for `source-read`.

    Args:
        page: its path in `docs`, without ending.
        source: one text, which is replaced.
    """
    if page in SEARCH_WORDS:
        entries = ", ".join(f"! {word}" for word in SEARCH_WORDS[page].split(", "))
        source[0] = re.sub(r"(?m)^(# .*)$", rf"\1\n\n```{{index}} {entries}\n```", source[0], count=1)
