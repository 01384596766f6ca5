"""Logging: under `geminga` or to the client's own logger, and nothing on stdout."""

import logging
import time

import geminga
import pytest
from geminga.testing import EmbeddedBroker


class Kept(logging.Handler):
    def __init__(self):
        super().__init__()
        self.records = []

    def emit(self, record):
        self.records.append(record)

    def text(self):
        return "\n".join(record.getMessage() for record in self.records)


@pytest.fixture
def kept_by():
    """Makes a logger with a level and what it keeps."""

    def make(name, level):
        logger, kept = logging.getLogger(f"test_logs.{name}"), Kept()
        logger.setLevel(level)
        logger.propagate = False
        logger.handlers = [kept]
        return logger, kept

    return make


def until(condition):
    for _ in range(500):
        if condition():
            return
        time.sleep(0.01)
    raise AssertionError("in vain")


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


def test_pb198_each_logger_gets_its_own_client_s_records_at_its_level(kept_by, capfd, caplog):
    (quiet, errors), (chatty, everything) = kept_by("quiet", logging.ERROR), kept_by("chatty", logging.DEBUG)
    caplog.set_level(logging.DEBUG, "geminga")
    with EmbeddedBroker() as first, EmbeddedBroker() as second, EmbeddedBroker() as third:
        ports = [broker.service_url.rpartition(":")[2] for broker in (first, second, third)]
        for broker, logger in ((first, quiet), (second, chatty), (third, None)):
            with geminga.Client(broker.service_url, logger=logger) as client:
                client.create_producer("t").send(b"x")
        until(lambda: "closing the link" in everything.text() and "closing the link" in caplog.text)
    assert not errors.records
    for text, own in ((everything.text(), ports[1]), (caplog.text, ports[2])):
        assert [port for port in ports if f"127.0.0.1:{port}" in text] == [own]
        assert "connecting" in text and "open" in text
    assert {record.name for record in everything.records} == {"test_logs.chatty"}
    assert {record.levelname for record in everything.records} >= {"DEBUG", "INFO"}
    assert capfd.readouterr() == ("", "")


def test_pb198_clients_of_one_broker_are_told_apart(kept_by, pulsar_url, topic):
    (one, ones), (two, twos) = kept_by("one", logging.DEBUG), kept_by("two", logging.DEBUG)
    with geminga.Client(pulsar_url, logger=one) as first, geminga.Client(pulsar_url, logger=two) as second:
        for client, count in ((first, 2), (second, 3)):
            for _ in range(count):
                client.create_producer(topic)
        until(lambda: (ones.text().count("open handle"), twos.text().count("open handle")) == (2, 3))


def test_a_file_logger_appends_to_its_file_and_a_console_logger_writes_to_stderr(pulsar_url, topic, tmp_path, capsys):
    path = tmp_path / "pulsar.log"
    to_file = geminga.FileLogger(geminga.LoggerLevel.Debug, str(path))
    to_stderr = geminga.ConsoleLogger(geminga.LoggerLevel.Debug)
    for logger in (to_file, to_stderr):
        with geminga.Client(pulsar_url, logger=logger) as client:
            client.create_producer(topic)
    until(lambda: "closing the link" in path.read_text())
    assert path.read_text().count(" DEBUG geminga: connecting") == 1
    printed = []
    until(lambda: printed.append(capsys.readouterr()) or any("closing the link" in both.err for both in printed))
    assert not any(both.out for both in printed)


def test_what_is_no_logger_is_refused(pulsar_url):
    with pytest.raises(ValueError, match="logger is expected to be a Logger and not 'str'"):
        geminga.Client(pulsar_url, logger="DEBUG")
