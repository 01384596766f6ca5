"""Task 5: load a file with `send_async` and a callback per row."""

import geminga
from conftest import FULL_SIZE, SOON


def test_every_row_has_its_callback_and_is_stored_in_order(run, client, tmp_path):
    rows = 1_000_000 if FULL_SIZE else 20_000
    reader = client.create_reader("rows", geminga.MessageId.latest, receiver_queue_size=10_000)
    with open(tmp_path / "rows.csv", "w") as file:
        for i in range(rows):
            file.write(f"{i},name of {i},{'x' * 60}\n")
    done = run("load_csv.py", "rows.csv")
    assert done.stdout == f"{rows} {rows} 0\n"
    assert done.stderr.endswith(" rows/s\n") and done.stderr.count("\n") == 1
    assert done.memory < 200 * 1024 * 1024, "a million rows of 80 bytes take no more than some"
    expected, progress = 0, 0
    while expected < rows or progress < rows // 1000:
        message = reader.read_next(timeout_millis=SOON).data()
        if message.startswith(b"# progress"):
            progress += 1
            continue
        assert message.startswith(b"%d," % expected)
        expected += 1
