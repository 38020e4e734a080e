from .anchored_value import AnchoredValue as AnchoredValue
from .anchored_value import anchored_values as anchored_values
from .bayes_optimum import BayesOptimal as BayesOptimal
from .bayes_optimum import bayes_optimal as bayes_optimal
from .behaviour import behaviour_policy as behaviour_policy
from .behaviour import greedy as greedy
from .choosing.choose import PolicyChoice as PolicyChoice
from .choosing.choose import choose as choose
from .choosing.criteria import CVaR as CVaR
from .choosing.criteria import ExpectedValue as ExpectedValue
from .choosing.criteria import Percentile as Percentile
from .choosing.criteria import ProbabilityOptimal as ProbabilityOptimal
from .choosing.criteria import Regret as Regret
from .choosing.criteria import Robust as Robust
from .choosing.criteria import SoftRobust as SoftRobust
from .choosing.policy_set import PolicyLimits as PolicyLimits
from .optimal_action_probability import probability_optimal as probability_optimal
from .outcomes import Outcome as Outcome
from .outcomes import OutcomeValue as OutcomeValue
from .perfect_information import PerfectInformation as PerfectInformation
from .perfect_information import (
    expected_value_of_perfect_information as expected_value_of_perfect_information,
)
from .policy_comparison import PolicyComparison as PolicyComparison
from .policy_comparison import compare_policies as compare_policies
from .policy_evaluation import PolicyValue as PolicyValue
from .policy_evaluation import policy_value as policy_value
from .return_variance_split import ReturnSplit as ReturnSplit
from .return_variance_split import split_return_variance as split_return_variance
from .verdict import Verdict as Verdict
