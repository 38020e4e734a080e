"""The code generator that users have, where the tests compile with an older one (see conftest.py)."""

import os

FLAG = "xla_cpu_use_fusion_emitters"
DEFAULT_GENERATOR: dict[str, str | bool] | None = (
    {FLAG: True} if f"{FLAG}=false" in os.environ.get("XLA_FLAGS", "") else None
)
"""Options of `compile`: what the optimised program looks like depends on it."""
