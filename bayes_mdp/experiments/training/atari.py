"""Atari 2600 with the settings of Mnih et al. (2015), through ale-py's vector environment (extra `atari`)."""

from difflib import get_close_matches
from typing import Any

from bayes_mdp.agents.neural.replay import Stack
from bayes_mdp.experiments.training.vector_env import HostEnv, Rules
from bayes_mdp.utils.messages import install
from bayes_mdp.utils.validation import check_count

FRAME_SKIP = 4
"""Frames of the emulator that one action lasts."""

TRAINING_FRAMES, EVALUATION_FRAMES = 108_000, 18_000
"""Most frames of an episode: 30 minutes, and 5 in evaluation."""


def atari(
    game: str, num_envs: int = 8, *, evaluation: bool = False, num_threads: int = 0, max_frames: int | None = None
) -> HostEnv:
    """Games of Atari 2600 side by side, as Mnih et al. (2015) set them.

    An observation is the last four frames [4, 84, 84], grey, the newest one last, zeros before the first; each is the
    maximum of two, four frames of the emulator to an action; an episode begins with up to 30 idle frames; actions are
    those that the game has; none is repeated at random.

    In training rewards are clipped to [-1, 1] for the learner, and a lost life terminates for the learner while the
    game goes on (`episodic_life` of ale-py would begin another game with all lives, so that an agent would never play
    its second life; lives are read here instead). What is reported is the unclipped score of whole games. In evaluation
    nothing is clipped, and lives do not count.

    Args:
        game: "montezuma_revenge" or "MontezumaRevenge".
        num_envs: games side by side.
        evaluation: whether it is for evaluation.
        num_threads: of the emulators; 0: as many as fit the machine.
        max_frames: of an episode, then it is truncated; None: 108,000 in training, 18,000 in evaluation.

    Raises:
        ImportError: ale-py is missing. ValueError: an unknown game; a number below 1.
    """
    try:
        from ale_py.vector_env import AtariVectorEnv  # pyright: ignore[reportMissingImports]
        from gymnasium.vector import AutoresetMode
    except ImportError as error:
        raise ImportError(f"Atari needs ale-py: {install('atari')}") from error
    check_count("num_envs", num_envs)
    check_count("num_threads", num_threads, 0)
    frames = (EVALUATION_FRAMES if evaluation else TRAINING_FRAMES) if max_frames is None else max_frames
    check_count("max_frames", frames)
    rom = find_game(game)
    env: Any = AtariVectorEnv(
        rom,
        num_envs,
        num_threads=num_threads,
        max_num_frames_per_episode=frames,
        autoreset_mode=AutoresetMode.SAME_STEP,  # no step is spent on resets
        frameskip=FRAME_SKIP,
        grayscale=True,
        img_height=84,
        img_width=84,
        stack_num=4,
        maxpool=True,
        noop_max=30,
        episodic_life=False,
        life_loss_info=False,
        reward_clipping=False,
        use_fire_reset=False,
        repeat_action_probability=0.0,
    )
    return HostEnv(env, f"atari:{rom}", Rules(not evaluation, not evaluation, Stack(4, "zeros")))


def atari_games() -> list[str]:
    """Names of all games that ale-py ships.

    Raises:
        ImportError: ale-py is missing.
    """
    try:
        from ale_py import roms  # pyright: ignore[reportMissingImports]
    except ImportError as error:
        raise ImportError(f"Atari needs ale-py: {install('atari')}") from error
    return sorted(roms.get_all_rom_ids())


def find_game(name: str) -> str:
    """The name of a game in ale-py's spelling, from any spelling: capitals, spaces and underscores do not matter.

    Raises:
        ImportError: ale-py is missing. ValueError: an unknown game.
    """
    known = {_plain(game): game for game in atari_games()}
    if _plain(name) not in known:
        near = get_close_matches(_plain(name), known, n=1)
        question = f"; did you mean {known[near[0]]!r}?" if near else ""
        raise ValueError(f"game is {name!r}, expected one of ale-py's {len(known)}, such as 'pong'{question}")
    return known[_plain(name)]


def _plain(name: str) -> str:
    return "".join(letter for letter in str(name).lower() if letter.isalnum())
