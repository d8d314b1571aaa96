"""What a search's answer loses, over time, as a picture."""

from __future__ import annotations

import numpy as np

from redline.bench.search import Course, regret_curve
from redline.report.charts.line_chart import Series, line_chart
from redline.report.draw import Drawing

POINTS = 120


def regret_chart(courses: dict[str, list[Course]]) -> Drawing:
    """Mean regret of each searcher's answer over the episodes it has used."""
    first = max(course.episodes[0] for each in courses.values() for course in each)
    last = max(course.episodes[-1] for each in courses.values() for course in each)
    episodes = np.linspace(first, last, POINTS)
    return line_chart(
        [Series(name, episodes, regret_curve(each, episodes)) for name, each in courses.items()],
        title="What the answer loses against the best order",
        x_label="episodes, starts included",
        y_label="regret: reward an episode",
    )
