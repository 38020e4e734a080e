"""The reference by task: which names a person needs for what. A name that is here has one line on the first page."""

from typing import NamedTuple


class Task(NamedTuple):
    """Something that people do.

    Args:
        title: a verb.
        about: one sentence.
        names: in the order in which they are met, as after `bm.`.
    """

    title: str
    about: str
    names: tuple[str, ...]


def _task(title: str, about: str, names: str) -> Task:
    return Task(title, about, tuple(names.split()))


TASKS = (
    _task(
        "Read",
        "Logs of transitions, and what states and actions there are.",
        "read_log envs.read_chunks Transitions mdp.Log mdp.split_log StateActionSpace behaviour_policy "
        "posterior_from_draws envs.from_gymnasium load",
    ),
    _task(
        "Prior",
        "What is believed about the MDP before the data; any NumPyro program will do.",
        "models.default_prior models.dirichlet_bernoulli models.dirichlet_normal_gamma models.dirichlet_normal "
        "models.dirichlet_poisson models.known_rewards models.sticky models.unknown_concentration "
        "models.partial_pooling models.logit_rows models.ordinal_rows models.hazard_rows models.stick_rows "
        "models.MDPSpec models.joint models.predictive",
    ),
    _task(
        "Infer",
        "The posterior, how it is computed, and which prior explains the data better.",
        "infer explain evidence inference.bayes_factors inference.table inference.NUTS inference.SVI "
        "inference.Laplace inference.Gibbs inference.mixture inference.posterior_samples",
    ),
    _task(
        "Value",
        "How good a policy is, and how sure this is.",
        "policy_value compare_policies Discounted Episodic AverageReward FirstExit evaluate decisions.Outcome "
        "decisions.anchored_values decisions.split_return_variance decisions.value_bounds decisions.tipping_point",
    ),
    _task(
        "Decide",
        "Which policy to use, within which limits, for whom.",
        "decide choose greedy decisions.PolicyLimits decisions.Budget decisions.pareto_front "
        "recommend.decide_by_subgroup recommend.DecideOptions decisions.ChooseOptions decisions.CVaR "
        "decisions.Percentile decisions.Robust decisions.SoftRobust decisions.Regret decisions.plan_bayes_adaptive "
        "decisions.bayes_optimal recommend.write_report",
    ),
    _task(
        "Value of information",
        "What more data are worth, and what strategies cost and bring.",
        "information.next_experiment information.evpi information.evppi information.evsi information.PolicyStudy "
        "information.value_of_covariates "
        "information.expected_regret information.probability_optimal information.net_benefit_of_sampling "
        "strategies.decision_model strategies.cost_effectiveness strategies.acceptability strategies.cohort_trace",
    ),
    _task(
        "Check",
        "Whether inference is right, and whether the model fits.",
        "check criticise calibration.sbc calibration.diagnose calibration.predictive_check calibration.loo_pit "
        "calibration.predictive_loo calibration.prior_sensitivity calibration.check_choices "
        "calibration.sbc_behaviour calibration.compare_behaviour to_arviz",
    ),
    _task(
        "Explore",
        "Agents that learn while they act.",
        "run compare Actor Environment envs.riverswim envs.deep_sea envs.racetrack agents.PSRL agents.KLearning "
        "agents.UBE agents.OIM agents.BAMCP agents.EpsilonGreedyQ experiments.RunOptions "
        "experiments.describe_compare models.random_environment sweeps.sweep sweeps.sweep_status deep.train",
    ),
    _task(
        "Plan",
        "Optimal policies and values of a known MDP.",
        "solve MDP SparseMDP evaluate planning.solve_soft planning.occupancy mdp.unroll",
    ),
    _task(
        "People's choices",
        "How people learn, from their choices.",
        "behaviour.read_choices behaviour.two_step_log behaviour.ready_model behaviour.fit behaviour.TwoStep "
        "behaviour.LearnerChoices behaviour.PlannerChoices behaviour.Parameter behaviour.simulate "
        "behaviour.predict_choices behaviour.log_likelihood inference.Softmax",
    ),
    _task(
        "Plot",
        "Pictures; [the gallery](../../gallery.md) shows them.",
        "plots.plot_posterior plots.plot_policies plots.plot_values plots.plot_pareto plots.plot_check "
        "plots.plot_regret plots.plot_compare plots.plot_training plots.plot_visits plots.plot_env "
        "plots.plot_trajectory plots.plot_acceptability plots.plot_cost_effectiveness plots.plot_expected_loss "
        "plots.plot_cohort plots.plot_learning_curve plots.plot_shrinkage",
    ),
    _task(
        "Save",
        "Files, and what other programs read.",
        "save load to_arviz recommend.write_report "
        "verification.export_interval_mdp verification.interval_mdp envs.to_gymnasium experiments.show_versions",
    ),
)
