from .decide import DecideOptions as DecideOptions
from .decide import decide as decide
from .decision import Decision as Decision
from .report import write_report as write_report
from .subgroups import SubgroupDecision as SubgroupDecision
from .subgroups import SubgroupOptions as SubgroupOptions
from .subgroups import decide_by_subgroup as decide_by_subgroup
