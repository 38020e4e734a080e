from .decide import DecideOptions as DecideOptions
from .decide import decide as decide
from .report import write_report as write_report
from .subgroups import SubgroupOptions as SubgroupOptions
from .subgroups import decide_by_subgroup as decide_by_subgroup
