"""Whether the kernel confines a guest by AppArmor or SELinux as its engine says.

An engine names the profile (AppArmor) or the context (SELinux) of a container in its answer to `inspect`. The kernel
shows what a process really has in /proc/PID/attr: a profile that was unloaded, is in complain mode, or was never
applied is seen there. An engine that names none for a container makes no promise. `sandbox doctor` warns of an engine
that confines by neither, and of a rootless one, which cannot use AppArmor. See proc_pid_attr(5) and docs/adr/0105.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sandbox.errors import ErrorCode, SandboxError

_ENFORCED = " (enforce)"


def find_confinement_faults(inspected: Mapping[str, Any], apparmor: str, selinux: str) -> list[str]:
    """List what the engine says and the kernel does not confirm, in words; pure. `apparmor`, `selinux`: the texts of
    the kernel, empty if there is none.
    """
    profile, context = str(inspected.get("AppArmorProfile") or ""), str(inspected.get("ProcessLabel") or "")
    found, label = apparmor.rstrip("\0\n"), selinux.rstrip("\0\n")
    faults = []
    if profile and found != profile + _ENFORCED:
        faults.append(f"its AppArmor profile is {found or 'none'}, not {profile}{_ENFORCED}")
    if context and label != context:
        faults.append(f"its SELinux context is {label or 'none'}, not {context}")
    return faults


def require_confinement(pid: int, inspected: Mapping[str, Any], proc: Path = Path("/proc")) -> None:
    """Raises: `policy_violation` for a guest that is not confined as its engine says. One that has ended is not looked
    at.
    """
    folder = proc / str(pid) / "attr"
    if not folder.is_dir():
        return
    current = _read(folder / "current")  # that of the first module which has one
    apparmor = _read(folder / "apparmor" / "current") or current
    if faults := find_confinement_faults(inspected, apparmor, current):
        raise SandboxError(
            ErrorCode.POLICY_VIOLATION,
            f"The guest is not confined as its engine says and was stopped: {'; '.join(faults)}",
            hint="Load the engine's profile again: restart the engine (`systemctl restart docker`).",
        )


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
