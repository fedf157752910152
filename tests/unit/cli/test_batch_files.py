"""Where the lines of a batch come from and go to."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from octavo.cli.batch_files import BatchOutputFile, read_lines
from octavo.errors import CommandFailed, ConfigError
from tests.fakes.stub_server import Reply, answering
from tests.integration.server import free_port


def test_lines_are_read_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "in"
    path.write_bytes(b"one\r\n\n  \ntwo \xe2\x80\xa8 still\nthree")
    assert read_lines(str(path)) == [b"one", b"two \xe2\x80\xa8 still", b"three"]


def test_lines_are_read_from_a_url() -> None:
    with answering(Reply(200, b"one\ntwo\n")) as server:
        assert read_lines(f"{server.url}/in") == [b"one", b"two"]


def test_what_cannot_be_read_is_told(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="--input-file /nowhere: No such file"):
        read_lines("/nowhere")
    with pytest.raises(ConfigError, match="Is a directory"):
        read_lines(str(tmp_path))
    with pytest.raises(ConfigError, match="Connection refused"):
        read_lines(f"http://127.0.0.1:{free_port()}/in")
    with answering(Reply(403)) as server, pytest.raises(ConfigError, match="403 Forbidden"):
        read_lines(f"{server.url}/in")


def test_the_file_has_its_name_when_it_is_whole(tmp_path: Path) -> None:
    target = tmp_path / "out.jsonl"
    target.write_text("of before")
    output = BatchOutputFile(str(target))
    output.write(b"one\n")
    assert target.read_text() == "of before"
    output.write(b"two\n")
    output.finish()
    assert target.read_text() == "one\ntwo\n"
    assert os.listdir(tmp_path) == ["out.jsonl"]


def test_what_was_answered_before_the_end_is_kept(tmp_path: Path) -> None:
    output = BatchOutputFile(str(tmp_path / "out.jsonl"))
    output.write(b"one\n")
    assert (tmp_path / "out.jsonl.part").read_text() == "one\n"  # whatever happens next
    assert output.give_up() == f"the first 1 lines are in {tmp_path}/out.jsonl.part"
    assert (tmp_path / "out.jsonl.part").read_text() == "one\n"
    assert not (tmp_path / "out.jsonl").exists()


def test_a_batch_without_an_answer_leaves_nothing(tmp_path: Path) -> None:
    BatchOutputFile(str(tmp_path / "out.jsonl")).give_up()
    assert os.listdir(tmp_path) == []


def test_a_pipe_is_written_at_once(tmp_path: Path) -> None:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    output = BatchOutputFile(str(path))
    assert output.is_stream
    output.write(b"one\n")
    assert os.read(reader, 99) == b"one\n"
    output.finish()
    assert os.listdir(tmp_path) == ["pipe"]
    os.close(reader)


def test_a_url_gets_the_whole_file(tmp_path: Path) -> None:
    with answering(Reply(201)) as server:
        output = BatchOutputFile(f"{server.url}/out?sig=a", str(tmp_path))
        output.write(b"one\n")
        output.write(b"two\n")
        output.finish()
    (asked,) = server.asked
    assert (asked.method, asked.path, asked.body) == ("PUT", "/out?sig=a", b"one\ntwo\n")
    assert os.listdir(tmp_path) == []


def test_an_upload_is_tried_five_times(tmp_path: Path) -> None:
    pauses: list[float] = []
    failures = [Reply(500)] * 4
    with answering(*failures, Reply(200)) as server:
        output = BatchOutputFile(f"{server.url}/out", str(tmp_path), pause=pauses.append)
        output.write(b"one\n")
        output.finish()
    assert pauses == [5.0] * 4
    assert [asked.body for asked in server.asked] == [b"one\n"] * 5


def test_an_upload_that_fails_says_where_the_lines_are(tmp_path: Path) -> None:
    with answering(Reply(500)) as server:
        output = BatchOutputFile(f"{server.url}/out", str(tmp_path), pause=lambda s: None)
        output.write(b"one\n")
        with pytest.raises(CommandFailed, match=r"answered 500 .*5 attempts.* the lines are in"):
            output.finish()
    assert Path(output.path).read_text() == "one\n"


def test_what_cannot_be_written_is_told_before_anything_is_computed(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="is a directory; name a file in it"):
        BatchOutputFile(str(tmp_path))
    with pytest.raises(ConfigError, match="/nowhere is no folder that can be written"):
        BatchOutputFile("/nowhere/out")
    with pytest.raises(ConfigError, match="/nowhere is no folder"):
        BatchOutputFile("http://x/out", "/nowhere")


def test_a_full_disk_is_told() -> None:
    output = BatchOutputFile("/dev/full")
    with pytest.raises(CommandFailed, match="--output-file /dev/full: No space left"):
        output.write(b"one\n")
    output.give_up()
