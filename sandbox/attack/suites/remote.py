"""THREATS E, F, Q and S: a hostile remote, a secret in a URL, and hostile variables in the controller's environment."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Mapping
from functools import partial

from sandbox.attack.harness.entry import AttackEntry
from sandbox.attack.harness.outcomes import GotThrough, Void
from sandbox.attack.harness.plumbing import Plumbing, naive_checkout
from sandbox.attack.harness.scene import SECRET, Scene, plain_clone, require_equal, require_hit, require_refusal
from sandbox.errors import ErrorCode, SandboxError
from sandbox.git.unhardened import run_unhardened

REFUSED = (ErrorCode.UNSAFE_REPOSITORY, ErrorCode.QUOTA_EXCEEDED)
NAMES = {
    "E01": (".git/config", ".GIT/config", "../escaped", "d/../../escaped", "a/b/.git/hooks/x"),
    "E02": (".g\u200cit/config",),
    "E03": ("git~1/config", ".git::$INDEX_ALLOCATION/config", ".git /config"),
}
EXPRESSIONS = (
    ":/seed", "HEAD^{/seed}", "main..main", "main~0", "main^0", "@{-1}", "main@{0}", "--all", "-x", "HEAD:f.txt", "@",
    "main:", "refs/heads/../heads/main",
)  # fmt: skip


def _publish(scene: Scene, path: str) -> str:
    plumbing = Plumbing(scene, scene.remote)
    return plumbing.publish(plumbing.nested_tree(path, "100644", plumbing.blob(b"evil")))


def _naive(*paths: str) -> Callable[[Scene], str]:
    def control(scene: Scene) -> str:
        for number, path in enumerate(paths):
            _publish(scene, path)
            top = scene.root / f"naive{number}"
            top.mkdir()
            naive_checkout(scene, scene.remote, top / "wt")
            written = [p for p in top.rglob("*") if p.is_file() and p.read_bytes() == b"evil"]
            require_hit(written, f"{path!r} was not written")
        return f"a checkout that joins names wrote {len(paths)} of them"

    return control


def _not_written(*paths: str) -> Callable[[Scene], str]:
    def attack(scene: Scene) -> str:
        before = sorted(os.listdir(scene.root))  # noqa: PTH208 - names only
        for path in paths:
            commit = _publish(scene, path)
            require_refusal(lambda: scene.workbench.clone(str(scene.remote)), *REFUSED)
            require_refusal(
                partial(scene.workbench.create_task, scene.repo_id, base_branch=commit), ErrorCode.NOT_FOUND
            )
        require_equal(sorted(os.listdir(scene.root)), before, "names beside the home")  # noqa: PTH208 - as above
        return f"{len(paths)} trees refused at fetch; none of their objects is in the cache"

    return attack


def _plant_linked_rules(scene: Scene) -> None:
    (scene.outside / "rules").write_text("*\n")
    plumbing = Plumbing(scene, scene.remote)
    link = plumbing.blob(str(scene.outside / "rules").encode())
    names = (b".gitattributes", b".gitignore")
    plumbing.publish(plumbing.tree(*[("120000", n, link) for n in names], ("100644", b"f.txt", plumbing.blob(b"f\n"))))


def _rules_followed(scene: Scene) -> str:
    naive_checkout(scene, scene.remote, scene.root / "naive")
    require_hit((scene.root / "naive" / ".gitignore").read_text() == "*\n", "the link has no target")
    return "a program that reads them by name reads the host's file"


def _rules_ignored(scene: Scene) -> str:
    scene.new_task()
    (scene.worktree / "new").write_text("x")
    require_equal([c.path for c in scene.workbench.status(scene.task.id).changes], ["new"], "status")
    return "not followed: `*` of the host's file hides no change"


def _many_paths(scene: Scene) -> None:
    plumbing = Plumbing(scene, scene.remote)
    oid = plumbing.tree(*[("100644", b"%d" % i, plumbing.blob(b"x")) for i in range(10)])
    for _ in range(5):
        oid = plumbing.tree(*[("40000", b"%d" % i, oid) for i in range(10)])
    plumbing.publish(oid)


def _million(scene: Scene) -> str:
    listing = scene.git("ls-tree", "-r", "--name-only", "main", cwd=scene.root, git_dir=scene.remote).stdout
    require_hit(listing.count(b"\n") == 10**6, "git listed fewer")
    return "seven objects are a million files"


def _budget(scene: Scene) -> str:
    require_refusal(lambda: scene.workbench.clone(str(scene.remote)), ErrorCode.QUOTA_EXCEEDED)
    return "refused before checkout"


def _command_as_ref(scene: Scene) -> None:
    payload = scene.script("payload")
    tip = scene.require_git("rev-parse", "main", cwd=scene.remote, git_dir=scene.remote)
    packed = scene.remote / "packed-refs"
    names = (f"refs/heads/`{payload}`", "refs/heads/-x", "refs/heads/--upload-pack=touch", "refs/heads/a'b\"c;d")
    packed.write_text("# pack-refs with: sorted \n" + "".join(f"{tip} {name}\n" for name in sorted(names)))


def _shell_ref(scene: Scene) -> str:
    names = scene.require_git(
        "for-each-ref", "--format=%(refname)", cwd=scene.remote, git_dir=scene.remote
    ).splitlines()
    (evil,) = [name for name in names if "`" in name]
    line = f"git rev-parse {evil}"
    scene.require_mark("payload", lambda: run_unhardened(["/bin/sh", "-c", line], cwd=scene.remote, home=scene.root))
    return "a branch name in a shell line ran the payload"


def _refs_are_names(scene: Scene) -> str:
    scene.workbench.clone(str(scene.remote))
    names = scene.require_git("for-each-ref", "--format=%(refname:lstrip=2)", cwd=scene.remote, git_dir=scene.remote)
    answers = []
    for name in names.splitlines():
        if name == "main":
            continue
        try:
            scene.workbench.create_task(scene.repo_id, "", name)
            answers.append("used as an ordinary name")
        except SandboxError as error:
            require_equal(error.code in {ErrorCode.INVALID_INPUT, ErrorCode.NOT_FOUND}, True, f"{name}: {error.brief}")
            answers.append("refused")
    return f"cloned; as a base: {', '.join(sorted(set(answers)))}"


def _expressions(scene: Scene) -> str:
    resolved = [e for e in EXPRESSIONS if scene.git("rev-parse", e, cwd=scene.remote, git_dir=scene.remote).code == 0]
    require_hit(len(resolved) > 3, f"git resolved only {resolved}")
    return f"plain git accepts {len(resolved)} of {len(EXPRESSIONS)}"


def _only_names(scene: Scene) -> str:
    codes = (ErrorCode.INVALID_INPUT, ErrorCode.NOT_FOUND)
    for text in EXPRESSIONS:
        require_refusal(partial(scene.workbench.create_task, scene.repo_id, "", text), *codes)
        require_refusal(partial(scene.workbench.fetch, str(scene.remote), text), *codes)
    return f"{len(EXPRESSIONS)} refused as base and as ref"


HOOKS = ("pre-receive", "update", "post-receive", "post-update", "reference-transaction")


def _hooks(scene: Scene) -> None:
    (scene.remote / "hooks").mkdir(exist_ok=True)
    for hook in HOOKS:
        shutil.copy(scene.script("payload"), scene.remote / "hooks" / hook)


def _plain_push(scene: Scene) -> str:
    work = scene.root / "work"
    scene.require_git("clone", "-q", str(scene.remote), str(work), cwd=scene.root)
    scene.require_mark("payload", lambda: scene.git("push", "origin", "HEAD:refs/heads/other", cwd=work))
    return "plain `git push` to the path ran its hooks"


def _our_push(scene: Scene) -> str:
    (scene.worktree / "f.txt").write_text("x\n")
    scene.workbench.commit(scene.task.id, "x")
    require_refusal(partial(scene.workbench.push, scene.task.id), ErrorCode.POLICY_VIOLATION)
    for hook in ("pre-receive", "update"):
        (scene.remote / "hooks" / hook).unlink()
    sent = scene.workbench.push(scene.task.id)
    return f"refused past hooks that may decline; pushed past {', '.join(sent.hooks_not_run)}: no hook ran"


def _template(scene: Scene) -> None:
    hooks = scene.root / "template" / "hooks"
    hooks.mkdir(parents=True)
    for hook in ("post-checkout", "reference-transaction", "post-index-change"):
        shutil.copy(scene.script("payload"), hooks / hook)


def _orders(scene: Scene) -> Mapping[str, str]:
    payload = scene.script("payload")
    return {
        "GIT_TEMPLATE_DIR": str(scene.root / "template"), "GIT_EXTERNAL_DIFF": payload, "GIT_SSH_COMMAND": payload,
        "GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": "core.fsmonitor", "GIT_CONFIG_VALUE_0": payload,
        "GIT_CONFIG_PARAMETERS": f"'core.fsmonitor'='{payload}'", "GIT_EXEC_PATH": str(scene.root / "template"),
        "GIT_CONFIG_GLOBAL": str(scene.operator / ".gitconfig"), "GIT_TRACE": str(scene.outside / "trace"),
        "GIT_PAGER": payload, "GIT_EDITOR": payload, "GIT_ASKPASS": payload, "SSH_ASKPASS": payload,
    }  # fmt: skip


def _template_hook(scene: Scene) -> str:
    env = {"GIT_TEMPLATE_DIR": str(scene.root / "template")}
    words = ("clone", "-q", str(scene.remote), str(scene.root / "templated"))
    scene.require_mark("payload", lambda: scene.git(*words, cwd=scene.root, env=env))
    return "plain `git clone` ran a hook of the template"


def _environment(scene: Scene) -> str:
    env = {"GIT_EXTERNAL_DIFF": scene.script("payload")}
    clone = plain_clone(scene)
    (clone / "f.txt").write_text("x\n")
    scene.require_mark("payload", lambda: scene.git("diff", cwd=clone, env=env))
    return "plain `git diff` ran GIT_EXTERNAL_DIFF"


def _own_environment(scene: Scene) -> str:
    scene.environ = {**scene.environ, **_orders(scene)}
    scene.workbench, before = scene.open_workbench(), scene.workbench
    before.__exit__(None, None, None)
    scene.new_task()
    refused = scene.run_every_operation()
    require_equal([f"{e.code}: {e.brief}" for e in refused], [], "a task's life under such an environment")
    return f"{len(_orders(scene))} variables, none had an effect"


def _link_refs_to_secret(scene: Scene) -> None:
    (scene.remote / "packed-refs").unlink(missing_ok=True)
    (scene.remote / "packed-refs").symlink_to(scene.outside / "secret")


def _quotes_secret(scene: Scene) -> str:
    words = ("clone", "-q", f"file://{scene.remote}", str(scene.root / "quoting"))
    if SECRET.strip() not in scene.git(*words, cwd=scene.root).stderr:
        raise Void("plain `git clone` quoted no line of the file")
    return "plain `git clone` quoted a line of a file of the host"


def _refused_in_silence(scene: Scene) -> str:
    try:
        scene.workbench.clone(str(scene.remote))
    except SandboxError as error:
        if SECRET.decode().strip() in f"{error.brief}{error.details}{error.hint}":
            raise GotThrough("the error quotes a line of a file of the host") from error
        require_equal(error.code, ErrorCode.UNSAFE_REPOSITORY, "the refusal")
        return "refused before git opened it; no text has a line of the file"
    raise GotThrough("a repository whose refs are a file of the host was cloned")


def _operator_filter(scene: Scene) -> None:
    scene.seed(scene.remote, {**scene.files, ".gitattributes": b"* filter=evil\n"})
    payload = scene.script("payload", then="cat")
    (scene.operator / ".gitconfig").write_text(f'[filter "evil"]\n\tsmudge = {payload}\n\tclean = {payload}\n')


def _filter_runs(scene: Scene) -> str:
    env = {"GIT_CONFIG_GLOBAL": str(scene.operator / ".gitconfig")}
    words = ("clone", "-q", str(scene.remote), str(scene.root / "smudged"))
    scene.require_mark("payload", lambda: scene.git(*words, cwd=scene.root, env=env))
    return "plain `git clone` ran the operator's filter on hostile files"


def _no_filter_runs(scene: Scene) -> str:
    scene.new_task()
    require_equal([f"{e.code}: {e.brief}" for e in scene.run_every_operation()], [], "a task's life")
    return "clone and the task's life ran no filter"


TOKEN = "t0k3n-of-the-user"  # noqa: S105 - a canary
URLS = ("https://x:{}@127.0.0.1:9/o/r", "https://{}@127.0.0.1:9/o/r", "https://127.0.0.1:9/o/r%0ahost=evil",
        "ssh://-oProxyCommand=x/o/r")  # fmt: skip


def _stores_token(scene: Scene) -> str:
    work = scene.root / "work"
    scene.require_git("init", "-q", str(work), cwd=scene.root)
    scene.require_git("remote", "add", "origin", URLS[0].format(TOKEN), cwd=work)
    require_hit(TOKEN in (work / ".git" / "config").read_text(), "git dropped it")
    return "plain `git remote add` stored the token"


def _token_not_stored(scene: Scene) -> str:
    for url in URLS:
        error = require_refusal(partial(scene.workbench.clone, url.format(TOKEN)), ErrorCode.INVALID_INPUT)
        require_equal(TOKEN in f"{error.brief} {error.details} {error.hint}", False, "the token in the error")
    for path in scene.home.rglob("*"):
        if path.is_file() and not path.is_symlink() and path.suffix != ".img" and TOKEN.encode() in path.read_bytes():
            raise GotThrough(f"the token is in {path.relative_to(scene.home)}")
    return "refused; the token is in no file and no error"


ENTRIES = (
    *(
        AttackEntry(name, title, "clone, task", _naive(*NAMES[name]), _not_written(*NAMES[name]))
        for name, title in (
            ("E01", "names in a tree that lead outside or into `.git`"),
            ("E02", "names that some file systems treat as `.git`"),
            ("E03", "names that Windows treats as `.git`"),
        )
    ),
    AttackEntry("E04", "ignore rules that are links", "clone, task, status", _rules_followed, _rules_ignored,
          _plant_linked_rules,
          scene="bare"),
    AttackEntry("E06", "a million files in seven objects", "clone", _million, _budget, _many_paths, scene="bare"),
    AttackEntry("E09", "branch names that are commands and options", "clone, task", _shell_ref, _refs_are_names,
          _command_as_ref),
    AttackEntry("E10", "revision expressions instead of names", "task, fetch", _expressions, _only_names),
    AttackEntry("E12", "a local remote with hooks", "push", _plain_push, _our_push, _hooks),
    AttackEntry("E15", "hooks of a template", "clone and a task's life", _template_hook, _own_environment, _template),
    AttackEntry("E16", "the operator's filters on hostile files", "clone and a task's life", _filter_runs,
          _no_filter_runs,
          _operator_filter, scene="bare"),
    AttackEntry("F08", "tokens and line ends in URLs", "clone", _stores_token, _token_not_stored),
    AttackEntry("S14", "a local remote whose refs are a link to a file of the host", "clone", _quotes_secret,
          _refused_in_silence, _link_refs_to_secret, scene="bare"),
    AttackEntry("Q01", "variables in the controller's environment", "clone and a task's life", _environment,
          _own_environment,
          _template),
)  # fmt: skip
