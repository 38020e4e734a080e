"""Planted faults: copies of the package with one small fault each, which the tests named beside it must find.

    python -m tests.planted                 # all, one after the other (about ten seconds each); not part of CI
    python -m tests.planted ucbvi-horizon   # one
    python -m tests.planted --list

A fault is an exact piece of one file and what stands in its place. It is killed if a test fails, and survives if none
does. The tree is never edited: package and tests are copied to a temporary folder.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from importlib.util import cache_from_source
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "bayes_mdp"
COPIED, LINKED = ("bayes_mdp", "tests"), ("benchmarks", "docs", "examples", "reproductions", "tools")
FAILED = 1
"""Exit code of pytest where a test failed; others say that tests could not be collected, or that there are none."""
WITH_LONG_ONES = "not slow and (thorough or turn or not thorough)"
"""The long tests of a file are among those that may find a fault."""


class Fault(NamedTuple):
    """One fault.

    Args:
        name: of this fault.
        file: of the package.
        text: once in the file.
        instead: what stands in its place.
        tests: files of tests/, separated by blanks, of which one must fail.
        why: what kind of fault it is.
    """

    name: str
    file: str
    text: str
    instead: str
    tests: str
    why: str


FAULTS = [
    # inference: families
    Fault(
        "poisson-rate",
        "inference/families/poisson.py",
        "-drawn[0], -gammaln(reward + 1.0)",
        "drawn[0], -gammaln(reward + 1.0)",
        "inference/families/test_families.py",
        "a wrong sign in a density",
    ),
    Fault(
        "geometric-variance",
        "inference/families/geometric.py",
        "over(self.concentration0 * (total - 1.0), (a - 1.0) ** 2, np.inf)",
        "over(self.concentration0 * total, (a - 1.0) ** 2, np.inf)",
        "inference/families/test_families.py",
        "a moment that conjugacy does not check",
    ),
    Fault(
        "log-normal-jacobian",
        "inference/families/log_normal.py",
        "xp.where(positive, -xp.log(xp.where(positive, reward, 1.0)), -np.inf)",
        "xp.where(positive, 0.0, -np.inf)",
        "inference/families/test_families.py",
        "a forgotten Jacobian: the density of r is that of log r, over r",
    ),
    Fault(
        "normal-marginal",
        "inference/families/normal.py",
        "square = (ss + shrink * count * (mean - self.loc) ** 2)",
        "square = (ss + count * (mean - self.loc) ** 2)",
        "inference/families/test_families.py",
        "a marginal density as if the mean were known",
    ),
    Fault(
        "categorical-spread",
        "inference/families/categorical.py",
        "return variance / (total + 1.0)",
        "return variance / total",
        "inference/families/test_families.py",
        "one observation too few in a variance",
    ),
    # inference: closed forms
    Fault(
        "row-covariance",
        "inference/conjugate/dirichlet_rows.py",
        "return 1.0 / (self.total() + 1.0)",
        "return 1.0 / self.total()",
        "inference/conjugate/test_dirichlet_rows.py",
        "one observation too few in a covariance",
    ),
    Fault(
        "expected-surprise",
        "inference/conjugate/dirichlet_rows.py",
        "total / size - surplus(size)",
        "total / size - surplus(size + 1.0)",
        "inference/conjugate/test_information.py",
        "an argument of digamma off by one",
    ),
    Fault(
        "regression-evidence",
        "inference/conjugate/regression.py",
        "(xp.log(precision) - _LOG_2PI) - 0.5 * xp.log(growth)",
        "(xp.log(precision) - _LOG_2PI) + 0.5 * xp.log(growth)",
        "inference/conjugate/test_regression.py inference/conjugate/test_predictive_density.py",
        "a determinant with the wrong sign",
    ),
    # inference: weighted lists
    Fault(
        "mixture-between",
        "inference/mixtures.py",
        "c.bellman_variance(values, discount) + (expected(c) - mean) ** 2",
        "c.bellman_variance(values, discount)",
        "inference/mixtures/test_mixture.py",
        "total variance without the variance between the parts",
    ),
    Fault(
        "mixture-weights",
        "inference/mixtures.py",
        "log_weights = self.log_weights + gain",
        "log_weights = self.log_weights - gain",
        "inference/mixtures/test_mixture.py",
        "Bayes' rule for the weights backwards",
    ),
    Fault(
        "collapsed-times",
        "inference/collapsed/collapse.py",
        "rising = jnp.sum(self.times * log_rising(",
        "rising = jnp.sum(log_rising(",
        "inference/collapsed/test_collapse.py",
        "equal entries counted once",
    ),
    Fault(
        "profile-width",
        "inference/factorised/integrate_rewards.py",
        "np.log(np.cosh(STRETCH * t) * self.width)",
        "np.log(np.cosh(STRETCH * t))",
        "inference/factorised/test_integrate_rewards.py",
        "a forgotten Jacobian: nodes that are scaled",
    ),
    Fault(
        "pooled-own",
        "inference/pooled_posterior.py",
        "moved[numbers, numbers] = 0",
        "moved[numbers, numbers] = stayed",
        "inference/test_pooled_gibbs.py inference/test_pooled_posterior.py",
        "counts of staying counted as moves too",
    ),
    # inference: draws and integrals
    Fault(
        "masked-rewards",
        "inference/sampled/conditioned_program.py",
        "return jnp.where(observed, self.weight * jnp.where(possible, density, -jnp.inf), 0.0)",
        "return self.weight * jnp.where(possible, density, -jnp.inf)",
        "inference/sampled/test_conditioned_program.py",
        "a dropped mask: an impossible reward of weight zero is no number",
    ),
    Fault(
        "reward-buffer",
        "inference/sampled/conditioned_program.py",
        "data_statistics.used + jnp.cumsum(taken) - 1",
        "data_statistics.used + jnp.cumsum(taken)",
        "inference/sampled/test_conditioned_program.py",
        "rewards one place too far in their buffer: the last is dropped",
    ),
    Fault(
        "importance-volume",
        "inference/integrals/importance.py",
        "height = np.log(share) - np.log(np.diag(root)).sum()",
        "height = np.log(share)",
        "inference/integrals/test_importance.py",
        "a proposal's density without its volume",
    ),
    Fault(
        "quadrature-volume",
        "inference/integrals/quadrature.py",
        "np.log(np.cosh(STRETCH * t)).sum(-1) + np.log(np.diag(mode.root)).sum()",
        "np.log(np.diag(mode.root)).sum() + 0.0 * t.sum(-1)",
        "inference/integrals/test_quadrature.py",
        "a forgotten Jacobian: nodes that are stretched",
    ),
    Fault(
        "bridge-half",
        "inference/model_evidence.py",
        "- np.log(2.0) - proposal.log_density(standard)",
        "- proposal.log_density(standard)",
        "inference/model_evidence/test_bridge.py",
        "a mean of two densities without the half",
    ),
    Fault(
        "stick-breaking",
        "inference/integrals/unconstrained_model.py",
        "+ jnp.log(number - jnp.arange(number))",
        "+ jnp.log(1 + number - jnp.arange(number))",
        "inference/model_evidence/test_bridge.py",
        "off by one in a transform of a simplex",
    ),
    # inference: detection, storage, value, what was not tried
    Fault(
        "degree-of-products",
        "inference/detection/degrees.py",
        "degrees[site] = min(HIGHER, degree + degrees.get(site, 0))",
        "degrees[site] = min(HIGHER, max(degree, degrees.get(site, 0)))",
        "inference/detection/test_degrees.py",
        "x times x taken for a line in x",
    ),
    Fault(
        "integers-are-steps",
        "inference/detection/degrees.py",
        'return given[0] if equation.params["new_dtype"] in (np.float32, np.float64) else _higher(given)',
        "return given[0]",
        "inference/detection/test_degrees.py",
        "a rounded value taken for a line",
    ),
    Fault(
        "checksum",
        "inference/storage.py",
        "if hashlib.sha256(body).digest() != digest:",
        "if len(hashlib.sha256(body).digest()) != len(digest):",
        "inference/test_storage.py",
        "a file that was altered is read",
    ),
    Fault(
        "mixture-update-rate",
        "inference/value/returns.py",
        "own.loc + unit * jnp.sign(d) * m.centre / (pseudo + 1.0),",
        "own.loc + unit * m.centre / (pseudo + 1.0),",
        "inference/value/test_returns.py",
        "a belief that moves up whatever the return",
    ),
    Fault(
        "untried-illegal",
        "inference/untried_rewards.py",
        "untried = ~tried & legal",
        "untried = ~tried",
        "inference/test_untried_rewards.py",
        "a dropped mask: pairs that do not exist were never tried",
    ),
    # mdp
    Fault(
        "not-observed",
        "mdp/data/transitions.py",
        "return xp.where(self.next_observed, weight, 0.0)",
        "return xp.where(self.next_observed, weight, weight)",
        "inference/test_next_observed.py",
        "a dropped mask: what followed was not observed, and counts",
    ),
    Fault(
        "ends-outcome",
        "mdp/data/transitions.py",
        "reached = xp.where(self.terminated, end, reached)",
        "reached = xp.where(self.terminated, end - 1, reached)",
        "mdp/data/test_transitions.py",
        "an end counted as the last state",
    ),
    Fault(
        "episode-numbers",
        "mdp/data/log_split.py",
        "begins[1:] = after[:-1] | (reached[:-1] != state[1:])",
        "begins[1:] = after[1:] | (reached[:-1] != state[1:])",
        "mdp/data/test_log_split.py",
        "off by one at an episode's end: it begins with the row that ends",
    ),
    Fault(
        "return-discount",
        "mdp/data/log_split.py",
        "weight = rate**step",
        "weight = rate ** (step + 1)",
        "mdp/data/test_log_split.py",
        "a return discounted once too often",
    ),
    Fault(
        "unroll-last",
        "mdp/hypothesis.py",
        "inside = jnp.arange(horizon)[:, None, None] < horizon - 1",
        "inside = jnp.arange(horizon)[:, None, None] < horizon",
        "mdp/test_hypothesis.py",
        "off by one at an episode's end: the last step leads on",
    ),
    Fault(
        "environment-keys",
        "mdp/environment.py",
        "reward = self.reward_law.sample(key_reward, cell, outcome)",
        "reward = self.reward_law.sample(key_next, cell, outcome)",
        "mdp/test_environment.py mdp/test_reward_distribution.py",
        "one key used twice: reward and next state are dependent",
    ),
    Fault(
        "discounted-steps",
        "mdp/objectives.py",
        "-math.expm1(objective.horizon * math.log(rate)) / (1 - rate)",
        "-math.expm1(objective.horizon * math.log(rate)) * rate / (1 - rate)",
        "mdp/test_objectives.py",
        "a sum over steps from 1 in place of 0",
    ),
    # models
    Fault(
        "usage-mean",
        "models/partial_pooling.py",
        "jnp.asarray(self.usage_of(space, None), rows.dtype) ** jnp.asarray(power)",
        "jnp.asarray(self.usage_of(space, None), rows.dtype) * jnp.asarray(power)",
        "models/test_partial_pooling.py",
        "a power law that is none",
    ),
    Fault(
        "pooled-ends",
        "models/partial_pooling.py",
        "inside = (move * stay[:, 1:]).at[numbers, numbers].set(stay[:, 0]) * (1.0 - ends)[:, None]",
        "inside = (move * stay[:, 1:]).at[numbers, numbers].set(stay[:, 0])",
        "models/test_partial_pooling.py",
        "rows that sum to more than one",
    ),
    # planning
    Fault(
        "episode-values",
        "planning/episodic.py",
        "choice[layer] if choice.ndim == 3 else choice",
        "choice[0] if choice.ndim == 3 else choice",
        "planning/test_episodic.py",
        "the first step's policy at every step",
    ),
    Fault(
        "soft-illegal",
        "planning/bellman.py",
        "jnp.log(jnp.sum(jnp.where(illegal, 0.0, jnp.exp(z)), -1))",
        "jnp.log(jnp.sum(jnp.exp(z), -1))",
        "planning/test_soft.py",
        "a dropped mask: actions that do not exist have entropy",
    ),
    Fault(
        "entropy-sign",
        "planning/bellman.py",
        "entropy = -jnp.sum(probs * log_probs, -1, keepdims=True)",
        "entropy = jnp.sum(probs * log_probs, -1, keepdims=True)",
        "planning/test_soft.py",
        "a wrong sign",
    ),
    Fault(
        "occupancy-discount",
        "planning/occupancy.py",
        "objective.discount ** np.arange(objective.horizon)",
        "objective.discount ** np.arange(1, objective.horizon + 1)",
        "planning/test_occupancy.py",
        "time discounted once too often",
    ),
    Fault(
        "gain-derivative",
        "planning/derivatives.py",
        "dgain, dv = x[0], x - x[0]",
        "dgain, dv = x[0], x",
        "planning/test_derivatives.py",
        "a derivative that is off by a constant",
    ),
    Fault(
        "average-gap",
        "planning/average.py",
        "change = maximum.value(q) - values",
        "change = maximum.value(q) - values * 0.999",
        "planning/test_average.py",
        "a gain that depends on the origin of the values",
    ),
    # decisions
    Fault(
        "ties-shared",
        "decisions/perfect_information.py",
        "return best / best.sum(-1, keepdims=True)",
        "return best / best.shape[-1]",
        "decisions/test_optimal_action_probability.py",
        "probabilities that do not sum to one",
    ),
    Fault(
        "half-cycle",
        "decisions/outcomes.py",
        "return PairReward(pair / 2, rate / 2 * np.concatenate([reward, np.zeros(int(ends))]))",
        "return PairReward(pair / 2, np.concatenate([reward, np.zeros(int(ends))]) / 2)",
        "decisions/test_outcomes.py",
        "a missing discount",
    ),
    Fault(
        "first-state",
        "decisions/return_variance_split.py",
        "scatter @ start + (answer.first - value[:, None]) ** 2 @ start",
        "scatter @ start",
        "decisions/test_return_variance_split.py",
        "the chance of the first state left out of a variance",
    ),
    Fault(
        "next-step-values",
        "decisions/return_variance_split.py",
        "laws.chance(part, entries, rate * later)",
        "laws.chance(part, entries, rate * np.append(step.values, end, -1))",
        "decisions/test_return_variance_split.py",
        "values of the step itself in place of the step after",
    ),
    Fault(
        "robust-order",
        "decisions/choosing/credible_set.py",
        "axis=-1)[:, ::-1]  # from the best down",
        "axis=-1)  # from the best down",
        "decisions/choosing/test_credible_set.py",
        "a wrong order: the worst outcomes lose their mass first",
    ),
    Fault(
        "fewest-draws",
        "decisions/choosing/criteria.py",
        "np.ceil(np.log(MONTE_CARLO_ERROR) / np.log(confidence))",
        "np.floor(np.log(MONTE_CARLO_ERROR) / np.log(confidence))",
        "decisions/choosing/test_safe_improvement.py",
        "one draw too few to show a confidence",
    ),
    Fault(
        "perfect-knowledge",
        "decisions/information/site_information.py",
        "gain = benefit.max(1) - benefit[:, best]",
        "gain = benefit.max(1) - benefit.mean(1)",
        "decisions/information/test_value_of_information.py",
        "compared with the mean of all strategies",
    ),
    Fault(
        "population",
        "decisions/information/site_information.py",
        "np.sum((1.0 + rate) ** -np.arange(years))",
        "np.sum((1.0 + rate) ** -np.arange(1, years + 1))",
        "decisions/information/test_value_of_information.py",
        "the first year discounted",
    ),
    Fault(
        "moves-at-end",
        "decisions/strategies/cohort.py",
        "jnp.sum(discount[1:, None] * trace[:-1] * gained)",
        "jnp.sum(discount[:-1, None] * trace[:-1] * gained)",
        "decisions/strategies/test_cohort.py",
        "a move of a cycle discounted as at its start",
    ),
    Fault(
        "extended-dominance",
        "decisions/strategies/cost_effectiveness.py",
        "np.flatnonzero(icer[:-1] > icer[1:])",
        "np.flatnonzero(icer[:-1] < icer[1:])",
        "decisions/strategies/test_cost_effectiveness.py",
        "a comparison the wrong way: dominated strategies stay",
    ),
    Fault(
        "verdict-ties",
        "decisions/verdict.py",
        "float(np.mean((gain > 0) + 0.5 * (gain == 0)))",
        "float(np.mean(gain >= 0))",
        "decisions/test_verdict.py",
        "draws in which both are worth the same count for one",
    ),
    # recommend
    Fault(
        "consequence-stops",
        "recommend/consequences.py",
        "return float(np.mean(self.gain >= -self.slack))",
        "return float(np.mean(self.gain >= self.slack))",
        "recommend/test_consequences.py",
        "a slack with the wrong sign",
    ),
    Fault(
        "judged-by-chooser",
        "recommend/decide.py",
        "split_log(keys[0], log, problem.split) if problem.split else (log, log)",
        "(split_log(keys[0], log, problem.split)[0],) * 2 if problem.split else (log, log)",
        "recommend/test_decide.py",
        "the data that chose judge",
    ),
    # calibration
    Fault(
        "rank-ties",
        "calibration/simulation_based/ranks.py",
        "rank = num_below + jax.random.randint(key, (), 0, equal + 1)",
        "rank = num_below + equal",
        "calibration/simulation_based/test_prior_sbc.py calibration/simulation_based/test_sbc_parts.py",
        "ranks that are not uniform where values are equal",
    ),
    Fault(
        "coverage-level",
        "calibration/checks/checking.py",
        "return 1 - 2 * cut / (num_draws + 1), inside.mean(0)",
        "return 1 - 2 * cut / num_draws, inside.mean(0)",
        "calibration/checks/test_check_scores.py",
        "one point too few: the truth is among the points",
    ),
    Fault(
        "brier-leave-one-out",
        "calibration/checks/checking.py",
        "leave_one_out = (everyone.sum(1, keepdims=True) - everyone) / happened.shape[1]",
        "leave_one_out = everyone.mean(1, keepdims=True) + 0.0 * everyone",
        "calibration/checks/test_check_scores.py",
        "a forecast that has seen the event",
    ),
    Fault(
        "band",
        "calibration/simulation_based/ecdf.py",
        "stats.binom.sf(count - 1, num, cdf)",
        "stats.binom.sf(count, num, cdf)",
        "calibration/simulation_based/test_ecdf.py",
        "off by one in a tail",
    ),
    # behaviour
    Fault(
        "not-observed-choice",
        "behaviour/likelihood.py",
        "new = jax.tree.map(keep, new, state)",
        "new = jax.tree.map(lambda a, b: a, new, state)",
        "behaviour/test_likelihood.py",
        "a dropped mask: a person learns from records that are not there",
    ),
    Fault(
        "two-step-trace",
        "behaviour/two_step.py",
        "a1 * (old - q) + trace * a1 * left, 0.0)",
        "a1 * (old - q) + a1 * left, 0.0)",
        "behaviour/test_two_step.py",
        "a missing trace decay",
    ),
    Fault(
        "planner-step",
        "behaviour/planner_choices.py",
        "over = after >= self.objective.horizon",
        "over = after > self.objective.horizon",
        "behaviour/test_planner_choices.py",
        "off by one at an episode's end",
    ),
    Fault(
        "lapse-illegal",
        "behaviour/learner_choices.py",
        "lapse * allowed / jnp.sum(allowed)",
        "lapse / len(allowed)",
        "behaviour/test_learner_choices.py",
        "a dropped mask: lapses to actions that do not exist",
    ),
    # agents
    Fault(
        "psrl-noise",
        "agents/psrl.py",
        "ahead = model.horizon - layer - 1",
        "ahead = model.horizon - layer",
        "agents/test_gaussian_psrl.py",
        "noise of transitions in the last step, which has none",
    ),
    Fault(
        "doubling",
        "agents/common/replan.py",
        "return (since >= planned_visits) & (since >= 1)",
        "return (since > planned_visits) & (since >= 1)",
        "agents/common/test_replan.py",
        "off by one: a plan is made a visit too late",
    ),
    Fault(
        "rlsvi-keys",
        "agents/rlsvi.py",
        "jax.random.normal(jax.random.fold_in(key, layer), total.shape",
        "jax.random.normal(key, total.shape",
        "agents/test_rlsvi.py",
        "one key at every step",
    ),
    Fault(
        "ucbvi-horizon",
        "agents/optimism/ucbvi.py",
        "third = jnp.where(layer + 1 < horizon, model.expected_next(error, layer), 0.0)",
        "third = model.expected_next(error, layer)",
        "agents/optimism/test_ucbvi.py",
        "a term of the step after the last one",
    ),
    Fault(
        "k-learning-span",
        "agents/optimism/k_model.py",
        "remaining = jnp.arange(mean.horizon - 1, -1, -1)",
        "remaining = jnp.arange(mean.horizon, 0, -1)",
        "agents/optimism/test_k_learning.py",
        "off by one in the steps to go",
    ),
    Fault(
        "ucb-h-rate",
        "agents/model_free/episodic_q.py",
        "rate = (horizon + 1.0) / (horizon + visits)",
        "rate = 1.0 / visits",
        "agents/model_free/test_ucb_h.py",
        "another learning rate",
    ),
    Fault(
        "bellman-error-discount",
        "agents/value_uncertainty/exact_ube.py",
        "jnp.asarray(discount_of(objective) ** 2 * (",
        "jnp.asarray(discount_of(objective) * (",
        "agents/value_uncertainty/test_exact_ube.py",
        "a variance discounted once in place of twice",
    ),
    Fault(
        "replay-age",
        "agents/neural/replay.py",
        "age, env = drawn // num_envs + 1, drawn % num_envs",
        "age, env = drawn // num_envs, drawn % num_envs",
        "agents/neural/test_replay.py",
        "the newest row drawn, whose next row is not there",
    ),
    # experiments
    Fault(
        "cut-is-no-end",
        "experiments/training/training_loop.py",
        "row = Row(now.observation, choice.action, step.reward, step.terminated, cut, choice.extra)",
        "row = Row(now.observation, choice.action, step.reward, step.terminated | cut, cut, choice.extra)",
        "experiments/training/test_training_loop.py",
        "an episode that was cut counts as ended: no value beyond",
    ),
    Fault(
        "final-observation",
        "experiments/training/vector_env.py",
        "self._waiting, cut, fresh = ended, waited, waited",
        "self._waiting, cut, fresh = ended, truncated, waited",
        "experiments/training/test_vector_env.py",
        "a transition from an episode to the next",
    ),
    Fault(
        "regret-dead-steps",
        "experiments/rollout/regret.py",
        "gap if block.live is None else jnp.where(block.live, gap, 0.0)",
        "gap",
        "experiments/rollout/test_regret.py",
        "a dropped mask: steps after the end of a run cost",
    ),
    Fault(
        "environment-seeds",
        "experiments/rollout/execute.py",
        "return fold_in_each(key_seeds, numbers), key_belief, fold_in_each(key_envs, numbers)",
        "return fold_in_each(key_seeds, numbers), key_belief, fold_in_each(key_envs, 0 * numbers)",
        "experiments/test_run.py",
        "wrong reuse of a seed: every seed plays the same environment",
    ),
    # envs
    Fault(
        "gym-limit",
        "envs/gymnasium/to_gymnasium.py",
        "truncated = not terminated and self._step == self._limit",
        "truncated = not terminated and self._step > self._limit",
        "envs/gymnasium/test_to_gymnasium.py",
        "off by one at an episode's end",
    ),
    Fault(
        "gym-ends",
        "envs/gymnasium/from_gymnasium.py",
        "outcome[s, a, e] = n_states if terminated else next_state",
        "outcome[s, a, e] = next_state",
        "envs/gymnasium/test_from_gymnasium.py",
        "ends that are lost",
    ),
    Fault(
        "log-gap",
        "envs/logs/episodes.py",
        "joined &= step[next_row] == np.asarray(step, np.int64) + 1",
        "joined &= step[next_row] > np.asarray(step, np.int64)",
        "envs/logs/test_gaps.py",
        "rows joined over a gap",
    ),
    Fault(
        "log-flags",
        "envs/logs/episodes.py",
        "joined = ~last & ~flagged & known[next_row]",
        "joined = ~last & known[next_row]",
        "envs/logs/test_gaps.py envs/logs/test_read_log.py",
        "a row that was cut leads to the next one",
    ),
    Fault(
        "river-right",
        "envs/papers/chain_mdps.py",
        "forward = np.eye(CHAIN_STATES)[np.minimum(np.arange(CHAIN_STATES) + 1, CHAIN_STATES - 1)]",
        "forward = np.eye(CHAIN_STATES)[(np.arange(CHAIN_STATES) + 1) % CHAIN_STATES]",
        "envs/papers/test_papers.py",
        "a chain that closes",
    ),
    # random, numerics, cli, parallel
    Fault(
        "gamma-boost",
        "random/host_generator.py",
        "np.log1p(-boost.random(size)) / np.where(concentration > 0, concentration, 1.0)",
        "np.log1p(-boost.random(size)) / (concentration + 1.0)",
        "random/test_host_generator.py",
        "a gamma draw of another shape",
    ),
    Fault(
        "exact-sums",
        "numerics/moments.py",
        "for column in (*lower, top & MASK, top >> BITS):",
        "for column in (*lower, top & MASK):",
        "numerics/test_moments.py",
        "a carry that is lost",
    ),
    Fault(
        "stored-option",
        "cli/stored.py",
        "(*OF_A_LOG, *more)",
        "more",
        "test_cli_stored.py",
        "an option that says nothing is taken in silence",
    ),
    # verification, budgets, covariates, unrecorded causes
    Fault(
        "interval-order",
        "verification/interval_mdp.py",
        "-ahead if most else ahead)",
        "ahead if most else ahead)",
        "verification/test_interval_mdp.py",
        "the most favourable rows are the least favourable ones",
    ),
    Fault(
        "sensitivity-room",
        "decisions/confounding.py",
        "room = probs * (factor - 1.0 / factor)",
        "room = probs * (factor - 1.0)",
        "decisions/test_confounding.py",
        "outcomes get less than the bound allows",
    ),
    Fault(
        "population-weights",
        "decisions/for_whom.py",
        "        return Weights(posterior, contexts.subjects, True)\n    if",
        "        return Weights(posterior, contexts.transitions, True)\n    if",
        "decisions/test_for_whom.py",
        "rows are counted in place of subjects",
    ),
]


def copied(place: Path) -> None:
    """What the tests need, in another folder."""
    for name in COPIED:
        shutil.copytree(ROOT / name, place / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in LINKED:
        (place / name).symlink_to(ROOT / name)
    for name in ("pyproject.toml", "README.md", "CONTRIBUTING.md"):
        shutil.copy(ROOT / name, place / name)


def answer(place: Path, fault: Fault) -> tuple[str, str]:
    """What became of a fault, and what pytest said last."""
    file = place / "bayes_mdp" / fault.file
    sound = file.read_text()
    if sound.count(fault.text) != 1:
        return "text not there", ""
    file.write_text(sound.replace(fault.text, fault.instead))
    # Python tells a file from its compiled copy by size and second alone.
    compiled = Path(cache_from_source(str(file)))
    compiled.unlink(missing_ok=True)
    try:
        tests = [f"tests/{name}" for name in fault.tests.split()]
        command = [sys.executable, "-m", "pytest", "-x", "-q", "--no-header", "-m", WITH_LONG_ONES, *tests]
        # The copy comes before a package that is installed.
        done = subprocess.run(
            command,
            check=False,
            cwd=place,
            capture_output=True,
            text=True,
            env={**os.environ, "PYTHONPATH": str(place)},
        )
    finally:
        file.write_text(sound)
        compiled.unlink(missing_ok=True)
    said = (done.stdout.strip().splitlines() or done.stderr.strip().splitlines() or [""])[-1]
    return {FAILED: "killed", 0: "survived"}.get(done.returncode, "tests did not run"), said


def main() -> int:
    """Plant them."""
    parser = argparse.ArgumentParser(prog="python -m tests.planted", description="Plant faults, see which tests fail.")
    parser.add_argument("names", nargs="*", metavar="NAME", help="faults; none: all")
    parser.add_argument("--list", action="store_true", help="name them")
    options = parser.parse_args()
    unknown = set(options.names) - {fault.name for fault in FAULTS}
    if unknown:
        parser.error(f"no fault is called {sorted(unknown)[0]!r}")
    chosen = [fault for fault in FAULTS if not options.names or fault.name in options.names]
    if options.list:
        print("\n".join(f"{fault.name:<24} {fault.file:<48} {fault.why}" for fault in chosen))
        return 0
    counts: dict[str, int] = {}
    with tempfile.TemporaryDirectory() as folder:
        copied(Path(folder))
        for fault in chosen:
            began = sum(os.times()[2:4])
            became, said = answer(Path(folder), fault)
            counts[became] = counts.get(became, 0) + 1
            print(f"{became:<18} {fault.name:<24} {sum(os.times()[2:4]) - began:5.0f} s  {said}", flush=True)
    print(", ".join(f"{number} {became}" for became, number in counts.items()))
    return int(set(counts) != {"killed"})


if __name__ == "__main__":
    sys.exit(main())
