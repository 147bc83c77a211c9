"""Folders that a check could not write, by what PID 1 tried."""

from __future__ import annotations

import errno

import pytest

from sandbox.engine.create_options import create_options
from sandbox.engine.ownership import require_writable_folders
from sandbox.engine.pid1_messages import Posture
from sandbox.errors import ErrorCode, SandboxError
from tests.unit.engine.test_create_options import POLICY, SUPERVISED

OPTIONS = create_options(SUPERVISED, POLICY)  # uid 64000, /workspace and /report


def found(*lines: str) -> Posture:
    return Posture(bytes(16), "", "", "", "", "".join(f"{line}\n" for line in lines))


FINE = "0 64000 755 /report"
WRITABLE: dict[str, tuple[str, ...]] = {
    "both": ("0 64000 755 /workspace", FINE),
    "of another, who lets us": ("0 0 777 /workspace", FINE),
    "a check shut itself out": (f"{errno.EACCES} 64000 555 /workspace", FINE),
    "a check shut itself out of all": (f"{errno.EACCES} 64000 0 /workspace", FINE),
    "no room": (f"{errno.ENOSPC} 64000 755 /workspace", FINE),
    "no quota": (f"{errno.EDQUOT} 64000 755 /workspace", FINE),
}
NOT_WRITABLE: dict[str, tuple[tuple[str, ...], str]] = {
    "userns-remap": ((f"{errno.EACCES} 65534 755 /workspace", FINE), "/workspace (Permission denied; it belongs to"),
    "rootless": ((f"{errno.EACCES} 0 755 /workspace", FINE), "to uid 0 there, and a check is 64000"),
    "somebody's, and shut": ((f"{errno.EACCES} 65534 0 /workspace", FINE), "/workspace (Permission denied"),
    "a security module": ((f"{errno.EACCES} 64000 755 /workspace", FINE), "/workspace (Permission denied"),
    "read-only": ((f"{errno.EROFS} 64000 555 /workspace", FINE), "/workspace (Read-only file system"),
    "unmapped ids": ((f"{errno.EOVERFLOW} 64000 755 /workspace", FINE), "/workspace (Value too large"),
    "no report": (("0 64000 755 /workspace", f"{errno.EACCES} 65534 755 /report"), "/report (Permission denied"),
    "both": ((f"{errno.EACCES} 0 755 /workspace", f"{errno.EACCES} 0 755 /report"), "check is 64000) and /report"),
    "one not tried": (("0 64000 755 /workspace",), "/report (not tried)"),
    "nothing said": ((), "/workspace (not tried) and /report (not tried)"),
    "another folder": (("0 64000 755 /workspace/sub", FINE), "/workspace (not tried)"),
    "noise": (("0 64000 /workspace", "yes", FINE), "/workspace (not tried)"),
}


@pytest.mark.parametrize("lines", WRITABLE.values(), ids=WRITABLE)
def test_a_check_may_begin(lines: tuple[str, ...]) -> None:
    require_writable_folders(found(*lines), OPTIONS)


@pytest.mark.parametrize(("lines", "said"), NOT_WRITABLE.values(), ids=NOT_WRITABLE)
def test_no_check_begins_and_the_cause_is_named(lines: tuple[str, ...], said: str) -> None:
    with pytest.raises(SandboxError) as caught:
        require_writable_folders(found(*lines), OPTIONS)
    assert caught.value.code is ErrorCode.ENGINE_UNAVAILABLE
    assert said in caught.value.brief
    assert "`sandbox doctor`" in caught.value.hint
