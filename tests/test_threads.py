from __future__ import annotations

import threading

import pytest

from redline.threads import Crew


@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize("count", [0, 1, 2, 7])
def test_a_crew_gives_results_in_the_order_of_the_pieces(threads, count):
    crew = Crew(threads, "test")
    assert crew.map(lambda piece: piece * piece, range(count)) == [k * k for k in range(count)]
    crew.dismiss()


def test_whoever_hands_out_work_takes_part_and_is_helped():
    crew, both = Crew(2, "test"), threading.Barrier(2)

    def work(_: int) -> str:
        both.wait(timeout=60)  # nobody gets through alone
        return threading.current_thread().name

    names = crew.map(work, range(2))
    assert len(set(names)) == 2 and threading.current_thread().name in names


@pytest.mark.parametrize("threads", [1, 2])
def test_a_failure_of_one_piece_is_raised(threads):
    crew = Crew(threads, "test")

    def work(piece: int) -> int:
        if piece == 3:
            raise ValueError("three")
        return piece

    with pytest.raises(ValueError, match="three"):
        crew.map(work, range(5))
    assert crew.map(work, range(3)) == [0, 1, 2]
