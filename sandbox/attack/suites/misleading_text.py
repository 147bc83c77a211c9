"""THREATS S11, S13: text that reads differently from how it is written: hidden secrets, names that look like others."""

from __future__ import annotations

import html

from sandbox.attack.harness.entry import AttackEntry
from sandbox.attack.harness.scene import Scene, require_equal, require_hit, require_refusal
from sandbox.errors import ErrorCode

HOST, TOKEN = "forge.invalid", "tok_Zk3mQ9xW7vB1nR5tY8uE2pL6"
MESSAGE = "Fix it\n\n" + "".join(f"&#{ord(letter)};<i></i>" for letter in TOKEN)
LOOK_ALIKES = (
    "\u2024", "\u2024\u2024", "\u2025", "\uff0e\uff0e/x", "d/\u3002\u3002/x", "a\u2215b", "a\u2044b", "a\uff0fb",
    "a\uff3cb", "a\u29f5b", "\u3002git/config", "\u2800", "d/\u3000/x",
)  # fmt: skip


def _hide_secret(scene: Scene) -> None:
    scene.workbench.set_credential(HOST, username="u", secret=TOKEN)
    (scene.worktree / "f.txt").write_text("changed\n")
    scene.workbench.commit(scene.task.id, MESSAGE)


def _misses(scene: Scene) -> str:
    message = scene.require_git("log", "-1", "--format=%B", scene.task.branch, cwd=scene.root, git_dir=scene.cache)
    require_hit(TOKEN not in message, "the text as written holds the secret")
    require_hit(TOKEN in html.unescape(message.replace("<i></i>", "")), "a reader does not see the secret")
    scene.require_git("push", "-q", str(scene.remote), f"{scene.task.branch}:sent", cwd=scene.root, git_dir=scene.cache)
    return "a search of the message as written found no secret, and `git push` sent it"


def _refuses_push(scene: Scene) -> str:
    require_refusal(lambda: scene.workbench.push(scene.task.id), ErrorCode.POLICY_VIOLATION)
    sent = scene.require_git("for-each-ref", f"refs/heads/{scene.task.branch}", cwd=scene.remote)
    require_equal(sent, "", "branches of the remote")
    return "the push was refused before the remote was contacted"


def _makes_files(scene: Scene) -> str:
    for number, name in enumerate(LOOK_ALIKES):
        path = scene.root / "plain" / str(number) / name
        path.parent.mkdir(parents=True)
        path.write_bytes(b"x\n")
        require_hit(path.read_bytes() == b"x\n", f"{name!a} was not created")
    return "a plain write makes an ordinary file of each name"


def _refuses_names(scene: Scene) -> str:
    for name in LOOK_ALIKES:
        require_refusal(
            lambda name=name: scene.workbench.write_file(scene.task.id, name, b"x\n", None),  # type: ignore[misc]  # bound now
            ErrorCode.UNSAFE_PATH,
        )
    return f"{len(LOOK_ALIKES)} names refused for writing"


ENTRIES = (
    AttackEntry("S11", "a secret between tags and entities of a message", "push", _misses, _refuses_push, _hide_secret),
    AttackEntry("S13", "names of look-alike dots and separators", "write", _makes_files, _refuses_names),
)
