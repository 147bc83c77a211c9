"""Folders that guests see are labelled when they are made, and only then."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from sandbox import guest_labels
from sandbox.guest_labels import (
    ATTRIBUTE,
    LABEL,
    SOCKET_LABEL,
    guest_sockets,
    has_selinux,
    is_labelled,
    is_permissive,
    label_for_guests,
    make_guest_folder,
)
from sandbox.store.home import GUEST_FOLDERS, Home

Labels = dict[str, bytes]


@pytest.fixture
def selinux(monkeypatch: pytest.MonkeyPatch) -> None:
    """A kernel with SELinux."""
    monkeypatch.setattr(guest_labels, "has_selinux", lambda: True)


@pytest.fixture
def labels(monkeypatch: pytest.MonkeyPatch) -> Labels:
    """Labels by path: only root may really write them."""
    written: Labels = {}

    def write(path: Path, name: str, value: bytes, *, follow_symlinks: bool) -> None:
        assert (name, follow_symlinks) == (ATTRIBUTE, False)
        written[str(path)] = value

    monkeypatch.setattr(os, "setxattr", write)
    return written


@pytest.mark.usefixtures("selinux")
def test_a_new_folder_is_labelled_and_one_that_was_there_is_not(tmp_path: Path, labels: Labels) -> None:
    make_guest_folder(tmp_path / "new")
    (tmp_path / "old").mkdir()
    make_guest_folder(tmp_path / "old")
    assert labels == {f"{tmp_path}/new": LABEL}
    assert (tmp_path / "new").stat().st_mode & 0o777 == 0o700


def test_a_file_in_the_place_of_a_folder_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(FileExistsError):
        make_guest_folder(tmp_path / "file")


def test_without_selinux_nothing_is_labelled(tmp_path: Path, labels: Labels, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guest_labels, "has_selinux", lambda: False)
    make_guest_folder(tmp_path / "new")
    assert not labels
    assert not is_labelled(tmp_path / "new")


@pytest.mark.usefixtures("selinux")
def test_a_policy_without_containers_leaves_the_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_given: object, **_named: object) -> None:
        raise OSError(22, "Invalid argument")

    monkeypatch.setattr(os, "setxattr", refuse)
    label_for_guests(tmp_path)
    assert not is_labelled(tmp_path)


@pytest.mark.parametrize(
    ("label", "usable"),
    [
        (LABEL, True),
        (b"unconfined_u:object_r:container_file_t:s0:c1,c2\0", True),
        (b"unconfined_u:object_r:user_home_t:s0\0", False),
        (b"container_file_t", False),
    ],
)
def test_guests_may_use_a_path_by_its_type(
    label: bytes, usable: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "getxattr", lambda *_given, **_named: label)
    assert is_labelled(tmp_path) is usable


@pytest.mark.usefixtures("selinux")
def test_a_home_labels_what_guests_see_and_not_its_secrets(tmp_path: Path, labels: Labels) -> None:
    home = Home(tmp_path / "home")
    home.prepare()
    mask = home.git_mask
    assert set(labels) == {str(mask), *(str(home.repositories / name) for name in GUEST_FOLDERS)}


@pytest.mark.usefixtures("selinux")
def test_a_label_is_asked_for_new_sockets_until_the_end_of_the_block(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also when no file descriptor is left: another socket of the thread would have the label."""
    asked = tmp_path / "sockcreate"
    asked.touch()

    def fail() -> None:
        with guest_sockets(asked):
            assert asked.read_bytes() == SOCKET_LABEL
            monkeypatch.setattr(os, "open", lambda *_given, **_named: (_ for _ in ()).throw(OSError(errno.EMFILE, "")))
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    monkeypatch.undo()
    assert asked.read_bytes() == b"\n" + SOCKET_LABEL[1:]  # the kernel takes each write as a whole


@pytest.mark.usefixtures("selinux")
def test_a_label_that_cannot_be_taken_back_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = tmp_path / "sockcreate"
    asked.touch()

    def refuse(*_given: object) -> int:
        raise OSError(errno.EACCES, "")

    with pytest.raises(PermissionError), guest_sockets(asked):
        monkeypatch.setattr(os, "pwrite", refuse)


@pytest.mark.usefixtures("selinux")
def test_a_policy_without_containers_leaves_the_socket(tmp_path: Path) -> None:
    with guest_sockets(tmp_path / "no folder" / "sockcreate"):
        pass


def test_without_selinux_no_label_is_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guest_labels, "has_selinux", lambda: False)
    with guest_sockets(tmp_path / "sockcreate"):
        assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("shown", [True, False])
def test_a_kernel_with_a_policy_shows_whether_it_is_enforced(shown: bool, tmp_path: Path) -> None:
    if shown:
        (tmp_path / "enforce").write_text("0")
    assert has_selinux(tmp_path) is shown


@pytest.mark.parametrize(("text", "permissive"), [("0", True), ("1", False), ("", False)])
def test_only_a_kernel_that_says_so_is_in_permissive_mode(text: str, permissive: bool, tmp_path: Path) -> None:
    if text:
        (tmp_path / "enforce").write_text(text)
    assert is_permissive(tmp_path) is permissive
