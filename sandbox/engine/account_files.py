"""The contents of a guest's /etc/passwd and /etc/group.

Programs look up the name of their user (git, ssh, Python's `getpass`) and of the owners of files. A guest has a uid
that no image knows, so each guest gets the system accounts of Debian and its own entry. A guest cannot become another
user, so accounts that an image added are only names; they are not shown.
"""

from __future__ import annotations

NAME = "sandbox"

_SYSTEM_USERS = """\
root:x:0:0:root:/root:/bin/sh
daemon:x:1:1:daemon:/usr/sbin:/usr/sbin/nologin
bin:x:2:2:bin:/bin:/usr/sbin/nologin
sys:x:3:3:sys:/dev:/usr/sbin/nologin
sync:x:4:65534:sync:/bin:/bin/sync
games:x:5:60:games:/usr/games:/usr/sbin/nologin
man:x:6:12:man:/var/cache/man:/usr/sbin/nologin
lp:x:7:7:lp:/var/spool/lpd:/usr/sbin/nologin
mail:x:8:8:mail:/var/mail:/usr/sbin/nologin
news:x:9:9:news:/var/spool/news:/usr/sbin/nologin
uucp:x:10:10:uucp:/var/spool/uucp:/usr/sbin/nologin
proxy:x:13:13:proxy:/bin:/usr/sbin/nologin
www-data:x:33:33:www-data:/var/www:/usr/sbin/nologin
backup:x:34:34:backup:/var/backups:/usr/sbin/nologin
nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin
"""

_SYSTEM_GROUPS = {
    "root": 0, "daemon": 1, "bin": 2, "sys": 3, "adm": 4, "tty": 5, "disk": 6, "lp": 7, "mail": 8, "news": 9,
    "uucp": 10, "man": 12, "proxy": 13, "kmem": 15, "dialout": 20, "cdrom": 24, "tape": 26, "sudo": 27, "audio": 29,
    "www-data": 33, "backup": 34, "operator": 37, "src": 40, "shadow": 42, "utmp": 43, "video": 44, "staff": 50,
    "games": 60, "users": 100, "nogroup": 65534,
}  # fmt: skip


def build_passwd(user: tuple[int, int], home: str) -> bytes:
    """Return /etc/passwd for a guest of this uid and gid, with this home directory. Format: passwd(5). Pure."""
    uid, gid = user
    return f"{_SYSTEM_USERS}{NAME}:x:{uid}:{gid}:{NAME}:{home}:/bin/sh\n".encode()


def build_group(user: tuple[int, int]) -> bytes:
    """Return /etc/group for a guest of this uid and gid. Format: group(5). Pure."""
    lines = [f"{name}:x:{gid}:" for name, gid in {**_SYSTEM_GROUPS, NAME: user[1]}.items()]
    return "".join(f"{line}\n" for line in lines).encode()
