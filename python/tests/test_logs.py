"""Logging: under `geminga`, to whom it was asked for, and nothing on stdout (PB198 but for telling clients apart)."""


def test_records_go_to_logging_and_nothing_to_stdout(script):
    done = script(
        """
        import logging
        logging.basicConfig(level=logging.DEBUG, format="%(name)s %(levelname)s %(message)s")
        with geminga.Client(URL) as client:
            client.create_producer(TOPIC).send(b"x")
        time.sleep(0.2)
        """
    )
    assert done.stdout == ""
    assert "geminga DEBUG connecting" in done.stderr


def test_without_a_configuration_nothing_is_printed(script):
    done = script("geminga.Client(URL).create_producer(TOPIC).send(b'x')")
    assert (done.stdout, done.stderr) == ("", "")


def test_a_given_logger_gets_the_records(script):
    done = script(
        """
        import logging
        class Kept(logging.Handler):
            records = []
            def emit(self, record):
                self.records.append(record)
        mine = logging.getLogger("mine")
        mine.setLevel(logging.DEBUG)
        mine.propagate = False
        mine.addHandler(Kept())
        with geminga.Client(URL, logger=mine) as client:
            client.create_producer(TOPIC)
        time.sleep(0.2)
        assert Kept.records and {r.name for r in Kept.records} == {"geminga"}
        """
    )
    assert done.stdout == ""
