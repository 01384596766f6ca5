"""Task 1: the ten-line script. It runs at once, exits at once, and prints nothing of ours."""

import pytest
from conftest import receive, texts


@pytest.mark.parametrize("program", ["hello.py", "hello_forgetful.py"])
def test_all_ten_arrive_and_the_script_exits_at_once(run, listen, program):
    consumer = listen("hello")
    done = run(program, within=2)
    assert (done.stdout, done.stderr) == ("", "")
    assert texts(receive(consumer, 10)) == [f"hello-pulsar-{i}" for i in range(10)]
