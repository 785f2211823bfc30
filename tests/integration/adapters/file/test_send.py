"""The file adapter of send ports writes to real folders."""

from __future__ import annotations

import errno
import os
import stat
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest

from postroom import adapters
from postroom.adapters.file.send import FileSender
from postroom.clock import system_clock
from postroom.conformance.send_adapters import BatchAdapterConformance, Destination, attempt
from postroom.errors import DeliveryFailure
from postroom.message import FileSlice, Message
from postroom.system_properties import FILE
from tests.support.waiting import PATIENCE


@dataclass
class Folder:
    path: Path
    definition: adapters.SendDefinition

    def read_received(self) -> list[bytes]:
        return [file.read_bytes() for file in self.path.iterdir()] if self.path.exists() else []

    def break_down(self) -> None:
        # A file with the name of the folder makes the send fail, also for root. Missing permissions do not stop root.
        if self.path.exists():
            self.path.rmdir()
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.path.write_bytes(b"")

    def repair(self) -> None:
        self.path.unlink()


class TestFile(BatchAdapterConformance):
    @pytest.fixture(params=["create", "overwrite"])
    def destination(self, tmp_path: Path, request: pytest.FixtureRequest) -> Destination:
        return Folder(tmp_path / "out" / "deep", adapters.File("out/deep", mode=request.param))


def opened(folder: Path, **settings: object) -> adapters.SendAdapter:
    adapter = adapters.build(adapters.File(folder, **settings), folder)  # type: ignore[arg-type]
    adapter.open()
    return adapter


def test_the_folder_is_synced_once_for_each_batch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[bool] = []
    fsync = os.fsync

    def record(descriptor: int) -> None:
        synced.append(stat.S_ISDIR(os.fstat(descriptor).st_mode))
        fsync(descriptor)

    adapter = FileSender(adapters.File(tmp_path), home=tmp_path, clock=system_clock)
    monkeypatch.setattr(os, "fsync", record)
    assert adapter.send_batch([(Message.of(b"content"), attempt()) for _ in range(20)]) == [None] * 20
    assert synced == [False] * 20 + [True]


def test_a_batch_fails_if_its_folder_cannot_be_synced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail_for_folders(descriptor: int) -> None:
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            raise OSError(errno.EIO, "Input/output error")

    adapter = FileSender(adapters.File(tmp_path), home=tmp_path, clock=system_clock)
    monkeypatch.setattr(os, "fsync", fail_for_folders)
    with pytest.raises(DeliveryFailure, match="The files could not be written"):
        adapter.send_batch([(Message.of(b"content"), attempt()) for _ in range(2)])


def test_a_disk_that_is_full_fails_each_message_and_leaves_no_partial_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(descriptor: int) -> None:
        if not stat.S_ISDIR(os.fstat(descriptor).st_mode):
            raise OSError(errno.ENOSPC, "No space left on device")

    adapter = FileSender(adapters.File(tmp_path), home=tmp_path, clock=system_clock)
    monkeypatch.setattr(os, "fsync", fail)
    errors = adapter.send_batch([(Message.of(b"content"), attempt()) for _ in range(3)])
    assert [type(error) for error in errors] == [DeliveryFailure] * 3
    assert "No space left on device" in str(errors[0])
    assert "Free some space on that disk." in str(errors[0])
    assert list(tmp_path.iterdir()) == []


def test_a_reader_never_sees_a_partial_file(tmp_path: Path) -> None:
    content = os.urandom(3_000_000)
    sizes: set[int] = set()
    done = threading.Event()

    def read() -> None:
        while not done.is_set():
            sizes.update(entry.stat().st_size for entry in os.scandir(tmp_path) if not entry.name.startswith("."))

    reader = threading.Thread(target=read)
    reader.start()
    adapter = opened(tmp_path)
    try:
        with ThreadPoolExecutor(4) as threads:
            list(threads.map(lambda _: adapter.send(Message.of(content), attempt()), range(40)))
    finally:
        done.set()
        reader.join()
    assert sizes == {len(content)}
    assert len(list(tmp_path.iterdir())) == 40


CRASHES = """
import os, sys, uuid
from pathlib import Path
from postroom import adapters
from postroom.message import Message

step = sys.argv[2]
real = getattr(os, step)
def crash(*arguments, **named):
    if sys.argv[3] == "after":
        real(*arguments, **named)
    os._exit(9)
setattr(os, step, crash)
message = Message(parts=Message.of(b"x" * 100_000).parts, message_id=uuid.UUID(int=7))
adapter = adapters.build(adapters.File(sys.argv[1], mode=sys.argv[4]), Path.cwd())
adapter.open()
adapter.send(message, adapters.Attempt(instance_id=uuid.UUID(int=8)))
"""


@pytest.mark.parametrize(
    ("step", "when", "mode", "visible"),
    [
        ("fsync", "before", "create", 0),
        ("link", "before", "create", 0),
        ("link", "after", "create", 1),
        ("unlink", "before", "create", 1),
        ("replace", "before", "overwrite", 0),
        ("replace", "after", "overwrite", 1),
    ],
)
def test_a_crash_leaves_a_complete_file_or_none_and_the_repeated_attempt_succeeds(
    tmp_path: Path, step: str, when: str, mode: str, visible: int
) -> None:
    crashed = subprocess.run(
        [sys.executable, "-c", CRASHES, str(tmp_path), step, when, mode], check=False, timeout=PATIENCE
    )
    assert crashed.returncode == 9
    files = [path for path in tmp_path.iterdir() if not path.name.startswith(".")]
    assert [file.stat().st_size for file in files] == [100_000] * visible

    # A send never calls chmod, so this process does not crash.
    repeat = subprocess.run(
        [sys.executable, "-c", CRASHES, str(tmp_path), "chmod", when, mode], check=False, timeout=PATIENCE
    )
    assert repeat.returncode == 0
    files = [path for path in tmp_path.iterdir() if not path.name.startswith(".")]
    assert [file.read_bytes() for file in files] == [b"x" * 100_000]


def test_old_temporary_files_of_a_crash_are_removed(tmp_path: Path) -> None:
    old, young, foreign = tmp_path / ".postroom-old.tmp", tmp_path / ".postroom-young.tmp", tmp_path / ".other.tmp"
    for path in (old, young, foreign):
        path.write_bytes(b"half")
    for path in (old, foreign):
        os.utime(path, (1_000_000_000, 1_000_000_000))
    opened(tmp_path)
    assert sorted(tmp_path.iterdir()) == [foreign, young]


def test_an_existing_file_of_another_message_is_kept_and_the_attempt_fails(tmp_path: Path) -> None:
    (tmp_path / "order.json").write_bytes(b"same")
    adapter = opened(tmp_path, name="order.json")
    # Equal content does not prove that it is the same message.
    for content in (b"same", b"other"):
        with pytest.raises(DeliveryFailure, match="File exists"):
            adapter.send(Message.of(content), attempt())
    assert [path.read_bytes() for path in tmp_path.iterdir()] == [b"same"]
    (tmp_path / "order.json").unlink()
    adapter.send(Message.of(b"other"), attempt())
    assert (tmp_path / "order.json").read_bytes() == b"other"


def test_a_file_with_the_id_of_the_message_and_another_content_is_kept(tmp_path: Path) -> None:
    adapter = opened(tmp_path)
    message = Message.of(b"mine")
    for there in (b"else", b"mine, and more", b"min", b""):
        (tmp_path / str(message.message_id)).write_bytes(there)
        with pytest.raises(DeliveryFailure):
            adapter.send(message, attempt())
        assert [path.read_bytes() for path in tmp_path.iterdir()] == [there]


def test_overwrite_replaces_a_symlink_and_not_its_target(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.write_bytes(b"untouched")
    folder = tmp_path / "out"
    folder.mkdir()
    (folder / "order.json").symlink_to(outside)
    opened(folder, name="order.json", mode="overwrite").send(Message.of(b"new"), attempt())
    assert (folder / "order.json").read_bytes() == b"new"
    assert not (folder / "order.json").is_symlink()
    assert outside.read_bytes() == b"untouched"


def test_a_repeated_attempt_does_not_follow_a_symlink(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.write_bytes(b"same")
    folder = tmp_path / "out"
    folder.mkdir()
    message = Message.of(b"same")
    (folder / str(message.message_id)).symlink_to(outside)
    with pytest.raises(DeliveryFailure):
        opened(folder).send(message, attempt())


@pytest.mark.parametrize(
    "received", ["/in/../../evil", "..", "/in/..", "C:\\in\\..\\evil", "/in/.bashrc", "evil\n", "~"]
)
def test_a_message_cannot_leave_its_folder(tmp_path: Path, received: str) -> None:
    folder = tmp_path / "a" / "out"
    message = Message.of(b"x", written={FILE.ReceivedFileName: received})
    opened(folder, name="%SourceFileName%").send(message, attempt())
    written = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert [path.parent for path in written] == [folder]
    assert not written[0].name.startswith(".")


def test_a_path_with_macros_is_the_folder_and_the_file_name(tmp_path: Path) -> None:
    """SND-20."""
    adapter = adapters.build(adapters.File("out/%SourceFileName%-%MessageID%.xml"), tmp_path)
    adapter.open()
    message = Message.of(b"<order/>", written={FILE.ReceivedFileName: "/in/../order 7"})
    for number in (1, 2):
        # The repeated attempt recognises its own file.
        adapter.send(message, attempt(number=number))
        assert list((tmp_path / "out").iterdir()) == [tmp_path / "out" / f"order 7-{message.message_id}.xml"]
    assert list(tmp_path.iterdir()) == [tmp_path / "out"]


def test_a_folder_that_was_moved_away_is_created_again(tmp_path: Path) -> None:
    adapter = opened(tmp_path / "out")
    adapter.send(Message.of(b"1"), attempt())
    (tmp_path / "out").rename(tmp_path / "taken")
    adapter.send(Message.of(b"2"), attempt())
    assert [path.read_bytes() for path in (tmp_path / "taken").iterdir()] == [b"1"]
    assert [path.read_bytes() for path in (tmp_path / "out").iterdir()] == [b"2"]


def test_a_full_disk_fails_the_attempt_and_leaves_nothing(tmp_path: Path) -> None:
    script = (
        "import resource, signal, sys, uuid; from pathlib import Path\n"
        "from postroom import adapters\n"
        "from postroom.errors import DeliveryFailure; from postroom.message import Message\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, 50_000))\n"
        "adapter = adapters.build(adapters.File(sys.argv[1]), Path.cwd()); adapter.open()\n"
        "try: adapter.send(Message.of(b'x' * 100_000), adapters.Attempt(instance_id=uuid.uuid4()))\n"
        "except DeliveryFailure as failure: sys.exit(failure.why)\n"
    )
    ended = subprocess.run([sys.executable, "-c", script, str(tmp_path)], capture_output=True, text=True, check=False)
    assert ended.stderr.strip() == f"{os.strerror(errno.EFBIG)}."
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EACCES, errno.EROFS])
def test_the_reason_of_a_failed_write_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    def refuse(descriptor: int) -> None:
        raise OSError(number, os.strerror(number))

    adapter = opened(tmp_path)
    with monkeypatch.context() as patched:
        patched.setattr("os.fsync", refuse)
        with pytest.raises(DeliveryFailure) as caught:
            adapter.send(Message.of(b"x"), attempt())
    assert caught.value.why == f"{os.strerror(number)}."
    assert ("account" in caught.value.hint) == (number == errno.EACCES)
    assert caught.value.hint
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("name", "arrives"), [("%MessageID%", True), ("order.json", False)])
def test_without_hard_links_only_a_unique_name_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, arrives: bool
) -> None:
    def refuse(*arguments: object, **named: object) -> None:
        raise OSError(errno.EPERM, os.strerror(errno.EPERM))

    monkeypatch.setattr("os.link", refuse)
    adapter = opened(tmp_path, name=name)
    if arrives:
        adapter.send(Message.of(b"x"), attempt())
    else:
        with pytest.raises(DeliveryFailure):
            adapter.send(Message.of(b"x"), attempt())
    assert [path.read_bytes() for path in tmp_path.iterdir()] == ([b"x"] if arrives else [])


def test_file_and_folder_are_synced_in_that_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    steps: list[str] = []
    real_fsync, real_link = os.fsync, os.link

    def fsync(descriptor: int) -> None:
        steps.append("sync folder" if stat.S_ISDIR(os.fstat(descriptor).st_mode) else "sync file")
        real_fsync(descriptor)

    def link(*arguments: object, **named: object) -> None:
        steps.append("name")
        real_link(*arguments, **named)  # type: ignore[arg-type]

    adapter = opened(tmp_path)
    monkeypatch.setattr("os.fsync", fsync)
    monkeypatch.setattr("os.link", link)
    adapter.send(Message.of(b"x"), attempt())
    assert steps == ["sync file", "name", "sync folder"]


def test_a_body_in_a_file_is_streamed(tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.write_bytes(b"head" + b"y" * 5_000_000 + b"tail")
    body = FileSlice(path=source, offset=4, length=5_000_000)
    opened(tmp_path / "out").send(Message.of(body), attempt())
    assert [path.read_bytes() for path in (tmp_path / "out").iterdir()] == [b"y" * 5_000_000]
