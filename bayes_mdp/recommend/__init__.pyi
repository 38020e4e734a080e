from .decide import DecideOptions as DecideOptions
from .decide import decide as decide
from .decision import Decision as Decision
from .report import write_report as write_report
