"""A module that a file or an id names, and that notes when it is imported."""

import sys
from pathlib import Path

NAME = "a_planted_module"
ID = f"{NAME}:Planted-v0"

_TEXT = """
from pathlib import Path
import gymnasium
from gymnasium.envs.toy_text import FrozenLakeEnv
Path(__file__).with_name("imported").touch()
gymnasium.register("Planted-v0", lambda: FrozenLakeEnv())
gymnasium.register("Seen-v0", "gymnasium.envs.classic_control:CartPoleEnv")
"""


class Planted:
    """The module in a folder of the path; `imported` says whether it was."""

    def __init__(self, folder: Path, monkeypatch) -> None:
        (folder / f"{NAME}.py").write_text(_TEXT)
        monkeypatch.syspath_prepend(folder)
        monkeypatch.delitem(sys.modules, NAME, raising=False)
        self._note = folder / "imported"

    @property
    def imported(self) -> bool:
        """Whether its code ran."""
        return self._note.exists()

    def forget(self) -> None:
        """As if it had never been imported."""
        import gymnasium

        for name in ("Planted-v0", "Seen-v0"):
            gymnasium.registry.pop(name, None)
        sys.modules.pop(NAME, None)
        self._note.unlink(missing_ok=True)
