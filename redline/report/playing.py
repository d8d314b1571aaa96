"""Episodes in a report: the one in the middle and the worst, and what the policy does in all of them."""

from __future__ import annotations

from redline.errors import RedlineError, told_by
from redline.learn.evaluate import load_policy
from redline.report.draw import fixed
from redline.report.episodes import watch_several
from redline.report.film_page import films_html
from redline.report.page import Section, note
from redline.runs import STEP, Run

MOST, SECONDS = 15, 3.0
"""Episodes to play, and how long that may take."""
SEED = 2_000_003
"""Of the first episode: none that was trained on, nor scored on."""


def episode_sections(run: Run, trust: bool = False) -> list[Section]:
    """The median and the worst of some fresh episodes, and what the policy does; nothing where none was saved."""
    if not any(run.checkpoints.glob(f"{STEP}*")):
        return []
    try:
        play, episodes = watch_several(load_policy(run.path, trust), MOST, SECONDS, SEED)
    except RedlineError as error:  # a stranger's env, an env that is gone, or one that never ends
        return [Section("Episodes", note(f"No episode was played for this report: {error}"))]
    except Exception as error:  # the env failed
        what = told_by(error)
        return [Section("Episodes", note(f"No episode was played for this report: the env failed ({what})."))]
    ranked = sorted(episodes, key=lambda episode: episode.total)
    shown = {"The median episode": ranked[len(ranked) // 2], "The worst episode": ranked[0]}
    if ranked[0] is ranked[len(ranked) // 2]:
        shown = {"An episode": ranked[0]}
    count = len(episodes)
    spread = f"with returns from {fixed(ranked[0].total)} to {fixed(ranked[-1].total)}"
    about = f"Of {count} fresh episode{'' if count == 1 else 's'} {spread}."
    films = films_html([(f"{what}: return {fixed(each.total)}", play.film(each)) for what, each in shown.items()])
    found = [Section("Episodes", note(about) + films)]
    if play.habits is not None:
        found.append(Section("What the policy does", play.habits(episodes)))
    return found
