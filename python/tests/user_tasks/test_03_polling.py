"""Task 3: poll with a time limit, and do other work when nothing came."""

import pytest


@pytest.mark.parametrize("caught", ["class", "private", "any"])
def test_a_thousand_time_outs_are_quiet_and_the_next_message_intact(start, client, caught):
    program = start("poll.py", caught)
    assert program.line() == "idle"
    client.create_producer("jobs").send(b"a job at last")
    program.wait()
    assert program.returncode == 0
    assert program.stdout == "a job at last\n"
    # The program logs what INFO has to say: not a word about time-outs.
    assert [line for line in program.stderr.splitlines() if "connected" not in line] == []
