"""SELinux in a row: in force for guests alone, and what the kernel's log says of them."""

from __future__ import annotations

import pytest

from devtools.vm.guest_policy import GUEST_DOMAIN, find_domains, render_module
from devtools.vm.guest_selinux import list_denials

# From checkpolicy 3.8.1 on Debian 13, shortened.
POLICY = """\
(typeattribute domain)
(typeattributeset container_domain (container_kvm_t container_t spc_t))
(typeattributeset domain (container_kvm_t container_t dockerd_t init_t))
(allow domain proc_t (dir (search)))
"""


def test_every_domain_but_that_of_guests_is_permissive() -> None:
    module = render_module(find_domains(POLICY))
    assert [line for line in module.splitlines() if "typepermissive" in line] == [
        f"(typepermissive {name})" for name in ("container_kvm_t", "dockerd_t", "init_t")
    ]


def test_guests_may_start_by_a_program_of_the_host_and_get_no_more() -> None:
    rules = render_module(()).splitlines()
    assert [line for line in rules if not line.startswith("(defaultrange ")] == [
        "(allow container_t exec_type (file (entrypoint)))"
    ]


@pytest.mark.parametrize("policy", ["", POLICY.replace("container_t ", "")], ids=["no domains", "none of guests"])
def test_a_policy_without_guests_is_an_error(policy: str) -> None:
    with pytest.raises(ValueError, match=GUEST_DOMAIN):
        find_domains(policy)


def test_only_what_selinux_denies_to_guests_is_listed() -> None:
    guest = "scontext=system_u:system_r:container_t:s0:c1,c2"
    log = (
        '[ 9.1] audit: type=1400 audit(1.2:3): avc:  denied  { read write } for  pid=7 comm="sh" name="x" dev="vda" '
        f"ino=5 {guest} tcontext=system_u:object_r:user_home_t:s0 tclass=file permissive=1\n"
        '[ 9.2] audit: type=1400 audit(1.2:4): avc:  denied  { read } for  pid=1 comm="systemd" name="y" '
        "scontext=system_u:system_r:init_t:s0 tcontext=system_u:object_r:user_home_t:s0 tclass=file permissive=1\n"
        f'[ 9.3] audit: avc:  denied  {{ entrypoint }} for  pid=8 comm="runc" path="/sbin/docker-init" {guest} '
        "tcontext=system_u:object_r:bin_t:s0 tclass=file permissive=0\n"
    )
    assert list_denials(log) == "read write of user_home_t file x 1x, entrypoint of bin_t file /sbin/docker-init 1x"
    assert list_denials("") == "none"
