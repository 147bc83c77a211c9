"""Find the cause of a failed check in its output. Pure: lines in, a cause out, or None.

All of it is guest text, so it explains and never decides. To avoid matches in other output, every pattern is anchored
to the exact format of one known tool's message (captured in tests/data/causes), and takes from the line only a name of
known characters.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

from sandbox.checks.debian_packages import find_library_package, find_program_package
from sandbox.checks.perl_packages import guess_package
from sandbox.lazy_dataclass import dataclass
from sandbox.models import Cause, CauseKind

_ENVIRONMENT, _GUEST, _CODE, _UNKNOWN = (
    CauseKind.ENVIRONMENT,
    CauseKind.GUEST_INFRASTRUCTURE,
    CauseKind.CODE,
    CauseKind.UNKNOWN,
)
_NETWORK = "it tried to use a network, and a check has none"
_NO_SERVER = "it wants a database or another server, and none answers: a profile may declare one (docs/services.md)"
_NO_GIT = "it asks git, and a check sees no git data (no .git, no tags)"
_MASKED_GIT = "it runs git, which fails because `.git` is masked: a check sees no git data (docs/profiles.md)"
_NO_FILE = "it finds no file '{}', which is not in the commit, perhaps because .gitignore names it, or is made later"
_OLD_NODE = "'{{}}' came with Node.js {}, and this Node.js may be older (docs/dependencies.md, engines of packages)"
_IMAGE = "add a Debian package that has it (docs/images.md)"
_ADD_PACKAGES = "add {} to `packages` of the repository (docs/images.md, Debian packages)"
_EITHER = "the tree or the image lacks it"
_LEFT_OUT = "the project declares a package of this name; `sandbox layers show` says what was chosen and left out"
_DOWNLOADS = "CMake would download {}, and a check has no network: Debian packages may have it (docs/images.md)"
_PRESETS = (
    "it cannot be configured without a preset, perhaps: those of CMakePresets.json are not used (docs/profiles.md, "
    "Which tests of a CMake project)"
)
_EMPTY_FOLDER = (
    "there is no project in the folder '{}': the commit has none there; if .gitmodules names it, "
    "`sandbox repo set REPOSITORY --submodules` adds it"
)
_NO_PACKAGE = f"there is no package '{{}}': {_IMAGE}"
_NO_WHEEL = "is not in the wheel-house of the image (docs/images.md)"
_NO_CRATES, _NO_MODULES = "cargo lacks crates of the project", "go lacks modules of the project"
_NO_GO_SUM = "go.sum lacks modules of the project, and go uses none without: `go mod tidy` writes it"
_NOT_IN_GO_MOD = "go.mod requires no module that has the package '{}': `go get` adds it there"
_NO_GO_MOD = "there is no package '{}': no module is fetched without a go.mod (docs/profiles.md, Go without modules)"
_NO_ARTIFACT = "the image lacks '{}', which is never fetched for Maven (docs/dependencies.md, Java)"
_NO_SPACE = "it ran out of space: see limits.tmp_bytes, limits.home_bytes and limits.disk_bytes"
_READ_ONLY = (
    "a check may write only to /tmp, its home directory, /report and its worktree, unless that is read-only for it"
)
_OWN_FOLDER = "a package writes into its own folder, which no check may (docs/dependencies.md, Limits of this)"
_LOCALES = "the image has no locale but C.UTF-8: add the Debian package locales-all (docs/images.md, Debian packages)"
_NEWER = "the project needs a newer {} than the image has (docs/images.md)"
_NEWER_TOOL = (
    "the project needs a newer {} than the image has: `sandbox repo set REPOSITORY --image build13` (docs/images.md)"
)
_MESON = r"\S{0,200}meson\.build:\d+:\d+: ERROR: "
_NAME = r"([\w./+@-]{1,80})"
_RAISED = r"^(?:E +)?"  # a traceback's last line, plain or in pytest's format

_NODE_SAID = r"^(?:Uncaught )?(?:\[?Error\]?: ){1,2}(?:error TS\d{4}: Could not write file '\S{1,300}': )?"

IsDeclared = Callable[[str], bool | str | None]
"""Whether the project declares the package of a module with this name, or why it was left out though it does; None for
a part of its own package.
"""


@dataclass(frozen=True)
class _Symptom:
    """`pattern` matches a line; its group, if any, is the name for the placeholder in `sentence`. `without_layer`: the
    sentence when a layer of packages is absent, which says why; '' if the symptom is about something else.
    """

    kind: CauseKind
    pattern: re.Pattern[str]
    sentence: str
    without_layer: str = ""


_LACKED = (
    (
        _ENVIRONMENT,
        r"^\S{1,200}: fatal error: <([\w./+-]{1,80})>: No such file",
        f"there is no header '{{}}': {_IMAGE}",
    ),
    (_UNKNOWN, r'^\S{1,200}: fatal error: "([\w./+-]{1,80})": No such file', f"there is no header '{{}}': {_EITHER}"),
    (_ENVIRONMENT, rf"^(?:\S*/)?ld(?:\.\w+)?: cannot find -l{_NAME}", f"the linker finds no '{{}}': {_IMAGE}"),
    (_ENVIRONMENT, rf"^ld\.lld: error: unable to find library -l{_NAME}", f"the linker finds no '{{}}': {_IMAGE}"),
    (_ENVIRONMENT, rf"^mold: fatal: library not found: {_NAME}", f"the linker finds no '{{}}': {_IMAGE}"),
    (
        _ENVIRONMENT,
        rf"^(?:\S{{1,200}}: )?error while loading shared libraries: {_NAME}: cannot open shared object file",
        f"there is no library '{{}}': {_IMAGE}",
    ),
    (
        _ENVIRONMENT,
        rf"{_RAISED}(?:ImportError|OSError): {_NAME}: cannot open shared object file: No such file",
        f"there is no library '{{}}': {_IMAGE}",
    ),
    (_UNKNOWN, r"^\S{1,200}: fatal error: '([\w./+-]{1,80})' file not found", f"there is no header '{{}}': {_EITHER}"),
    (_ENVIRONMENT, rf'^  Could not find a package configuration file provided by "{_NAME}"', _NO_PACKAGE),
    (_ENVIRONMENT, rf"^  Could NOT find {_NAME} \(missing: ", _NO_PACKAGE),
    (_UNKNOWN, rf'^  add_subdirectory given source "{_NAME}" which is not', _EMPTY_FOLDER),
    (_ENVIRONMENT, rf"^(?:-- +)?Package '{_NAME}', required by '\S+', not found", _NO_PACKAGE),
    (_ENVIRONMENT, rf"^(?:-- +)?No package '{_NAME}' found", _NO_PACKAGE),
    (_ENVIRONMENT, rf"^error: linker `{_NAME}` not found", f"there is no linker '{{}}': {_IMAGE}"),
    (_ENVIRONMENT, rf"^Can't exec \"{_NAME}\": No such file or directory at ", f"there is no command '{{}}': {_IMAGE}"),
    (_ENVIRONMENT, rf'^{_MESON}Dependency "{_NAME}" not found', _NO_PACKAGE),
    (_ENVIRONMENT, rf"^{_MESON}Program '{_NAME}' not found or not executable", f"there is no command '{{}}': {_IMAGE}"),
    (_ENVIRONMENT, rf"^{_MESON}Automatic wrap-based subproject downloading is disabled", "meson lacks a subproject"),
    (_CODE, r"^(?:go|\S{1,200}:\d+:\d+): (?:\S{1,300}: )?missing go\.sum entry\b", _NO_GO_SUM),
    (
        _CODE,
        r"^(?:WARN invalid TestEvent: )?(?:go|\S{1,200}:\d+:\d+): (?:\S{1,300}: )?"
        r"no required module provides package ([\w./~+-]{1,200})(?:; to add it:|$)",
        _NOT_IN_GO_MOD,
    ),
    (_ENVIRONMENT, rf'^\S{{1,200}}:\d+:\d+: cannot find package "{_NAME}" in any of:$', _NO_GO_MOD),
    (_ENVIRONMENT, r"^\[ERROR\] .{1,600} in offline mode and the artifact ([\w.:-]{1,200}) has not been", _NO_ARTIFACT),
)
_LACKED_PACKAGES = (
    (rf"^ERROR: No matching distribution found for {_NAME}", f"'{{}}' {_NO_WHEEL}", "'{}' is not there"),
    (r"^As a reminder, you're using offline mode \(--offline\)", _NO_CRATES, _NO_CRATES),
    (r"^note: offline mode \(via `--offline`\) can sometimes cause", _NO_CRATES, _NO_CRATES),
    (r"^.{0,200}: module lookup disabled by GOPROXY=off$", _NO_MODULES, _NO_MODULES),
    (r"^npm (?:ERR!|error) code ENOTCACHED$", "npm lacks packages of the project", "npm lacks packages of the project"),
)
_TOO_OLD = (
    (r"^error: rustc \S{1,40} is not supported by the following package", "Rust"),
    (r"^  this version of Cargo is older than the `\d{4}` edition", "Rust"),
    (r"^  lock file version `\d+` was found, but this version of Cargo does not understand", "Rust"),
    (r"^\S{0,200}go\.mod:\d+: (?:invalid go version '|unknown directive: toolchain$)", "Go"),
    (r"^note: module requires Go \d", "Go"),
    (r"^  (?:cause: )?Because the current Python version \([0-9.]{1,20}\) does not satisfy Python>", "Python"),
    (r"^go: .{0,200}requires go >= \S{1,20} \(running go ", "Go"),
)
_TOO_OLD_TOOLS = (
    (r"^  CMake \d[\d.]{0,20} or higher is required\.", "CMake"),
    (rf"^{_MESON}Meson version is \S{{1,20}} but project requires ", "Meson"),
    (r"^configure\.(?:ac|in):\d+: error: Autoconf version \S{1,20} or higher is required", "autoconf"),
)
_OLDER_CATCH = (  # headers that version 3 has, and 2 has not
    r'^\S{1,200}: fatal error: [<"]catch2/(?:\w{1,40}/)?catch_\w{1,80}\.hpp[>"]: No such file',
    r'^  Could not find a configuration file for package "Catch2" that is compatible$',
)
_OLDER_PERL = r"^(?:#? *Error:  )?([A-Z]\w{0,40}(?:::\w{1,40}){0,6}) version \S{1,20} required--this is only version "
_ASKED_A_NETWORK = (
    r"^hint: Packages were unavailable because the network was disabled\.",
    r"^npm (?:ERR!|error) code (?:EAI_AGAIN|ENOTFOUND|ENETUNREACH|ECONNREFUSED)$",
    r"^(?:fatal|curl|wget|ssh)\b.{0,300}: (?:Could not resolve|unable to resolve|Temporary failure in name)",
    r"^  \[6\] Could not resolve hostname ",
    r"^.{0,200}: dial tcp: lookup \S+.{0,100}: (?:no such host|Temporary failure in name|connection refused)",
    rf"{_RAISED}socket\.gaierror: \[Errno -[235]\] ",
    r"^Error: getaddrinfo (?:EAI_AGAIN|ENOTFOUND) ",
    r"^npm (?:ERR!|error) (?:network )?request to \S{1,300} failed, reason: getaddrinfo (?:EAI_AGAIN|ENOTFOUND) ",
    r"^(?:error|ERR_PNPM_META_FETCH_FAIL|\s*ERR_PNPM_\w{1,40})\b.{0,300}\bgetaddrinfo (?:EAI_AGAIN|ENOTFOUND) ",
    r"^error: could not download file from 'https?://",
    r"^warning: spurious network error ",
    r"^WARNING: Retrying \(Retry\(total=\d{1,3}, ",
    r"^\[ERROR\] .{0,300}\bCould not transfer artifact \S{1,200} from/to ",
    r"^ {0,8}> Could not (?:GET|HEAD) 'https?://",
    r"^Could not reach host \S{1,80}\. Check your network connection",
)
_PORTS = r"(?:5432|3306|6379|27017|5672|9092|9200|11211)"
_WANTED_A_SERVER = (  # these ports only: a refused connection to another one may be a server of the project's own
    rf'{_RAISED}[\w.]{{0,80}}OperationalError: connection to server at "\S{{1,80}}".{{0,60}} failed: ',
    r'^(?:psql: error: )?connection to server at "\S{1,80}".{0,80} failed: Connection refused',
    rf"{_RAISED}[\w.]{{0,80}}ConnectionError: Error (?:111|99) connecting to \S{{1,80}}:{_PORTS}\.",
    rf"{_RAISED}[\w.]{{0,80}}(?:Operational|Database)Error: \(?\d{{0,4}},? ?[\"']?Can't connect to .{{0,20}}server ",
    rf"{_RAISED}pymongo\.errors\.ServerSelectionTimeoutError: ",
    rf"^\s{{0,8}}(?:\[?Error\]?: )?connect ECONNREFUSED \S{{1,60}}:{_PORTS}$",
    rf"^(?:\S{{1,80}} )?dial tcp \S{{1,60}}:{_PORTS}: connect: connection refused",
    rf"^Could not connect to Redis at \S{{1,60}}:{_PORTS}: Connection refused$",
)
_ADDRESS = re.compile(rf"(?<![\d.])(?:127\.0\.0\.1|localhost):{_PORTS}(?!\d)")
_IS_REFUSED = re.compile(r"^(?:Connection error|connect|Error): Connection refused$")
_LINE_CHARS = 1000
_LINES_BEFORE = 3  # between the address, as programs in C print it, and the error
_ASKED_GIT = (
    r"^fatal: not a git repository \(or any (?:of the parent directories|parent up to mount point \S{1,80})\)",
    r"^fatal: not a git repository: /nonexistent/managed-by-space-sandbox$",
    rf"{_RAISED}LookupError: setuptools-scm was unable to detect version for ",
)
_RAN_GIT = (
    rf"{_RAISED}(?:failed on \w+ with \")?subprocess\.CalledProcessError: "
    r"Command '\[?'?(?:/usr/bin/)?git\b.{0,300} exit status 128\.\"?$"
)
_SINCE_NODE = (  # methods of the language, which packages use without a word in their `engines`
    (r"(?:\S{1,200}\.)?(findLast|findLastIndex)", "18"),
    (r"(?:\S{1,200}\.)?(toReversed|toSorted|toSpliced)", "20"),
    (r"((?:Object|Map)\.groupBy|Promise\.withResolvers|Array\.fromAsync|Iterator\.from)", "22"),
    (r"(?:\S{1,200}\.)?(isSubsetOf|isSupersetOf|isDisjointFrom|symmetricDifference)", "22"),
    (r"(Promise\.try|RegExp\.escape)", "24"),
)
_MET_A_LIMIT = (
    (_GUEST, rf"{_RAISED}OSError: \[Errno 28\] No space left on device", _NO_SPACE),
    (_GUEST, r"^[\w./+-]{1,80}: (?:.{0,200}: )?No space left on device$", _NO_SPACE),
    (_GUEST, rf"{_RAISED}OSError: \[Errno 24\] Too many open files", "it has too many open files (limits.open_files)"),
    (_ENVIRONMENT, rf"{_RAISED}OSError: \[Errno 30\] Read-only file system: '/sandbox-layers/", _OWN_FOLDER),
    (_ENVIRONMENT, rf"{_RAISED}OSError: \[Errno 30\] Read-only file system", _READ_ONLY),
    (_ENVIRONMENT, rf"{_NODE_SAID}(?:EROFS|EACCES): [\w -]{{1,30}}, \w{{1,20}} '/sandbox-layers/", _OWN_FOLDER),
    (_ENVIRONMENT, rf"{_NODE_SAID}EROFS: read-only file system, ", _READ_ONLY),
    (_ENVIRONMENT, rf'{_RAISED}(?:failed on \w+ with ")?locale\.Error: unsupported locale setting', _LOCALES),
)
_PLUGINS = (
    ("pytest-cov", r"--(?:no-)?cov(?:-[a-z-]{1,20})?"),
    ("pytest-xdist", r"-n|--numprocesses|--dist|--maxprocesses"),
    ("pytest-timeout", r"--timeout(?:-method)?"),
    ("pytest-asyncio", r"--asyncio-mode"),
    ("pytest-django", r"--ds|--reuse-db|--nomigrations|--no-migrations"),
    ("pytest-randomly", r"--randomly-[a-z-]{1,20}"),
    ("pytest-rerunfailures", r"--reruns(?:-delay)?"),
    ("pytest-benchmark", r"--benchmark-[a-z-]{1,20}"),
)
_PYTEST = r"^(?:\S{0,100}\b(?:pytest|py\.test|__main__\.py)|\S{0,100}python[0-9.]{0,6} -m pytest): error: "
_LACKS_PLUGIN = tuple(
    (
        _ENVIRONMENT,
        rf"{_PYTEST}unrecognized arguments: (?:\S{{1,200}} ){{0,20}}(?:{option})(?:[ =\d]|$)",
        f"pytest lacks its plugin {plugin}: declare it with the requirements of the tests (docs/dependencies.md)",
    )
    for plugin, option in _PLUGINS
)
_BY_PYTEST = (
    *_LACKS_PLUGIN,
    (
        _UNKNOWN,
        rf"{_PYTEST}unrecognized arguments: (-[\w-]{{1,60}})",
        "pytest does not know the argument '{}': a plugin of it may be missing (docs/dependencies.md)",
    ),
    (_CODE, rf"^ERROR: (?:file or directory )?not found: {_NAME}$", "there is no test, file or folder '{}'"),
)
_BY_NODE = (
    (_CODE, r"^(?:Uncaught )?ReferenceError: ([\w$]{1,80}) is not defined$", "'{}' is not defined"),
    (_CODE, r"^SyntaxError: \S", "a file has a syntax error"),
)
_FILE = r"'([\w./+@-]{0,80}[./][\w+@-]{1,40})'"
_STOPPED = (  # said where no symptom is known, also of the lines below
    (re.compile(rf"^CMake Error: File (?:/workspace/)?{_NAME} does not exist\.$"), f"CMake stops: {_NO_FILE}"),
    (
        re.compile(
            rf"^\S{{0,200}}?([\w./+@-]{{0,80}}meson\.build):\d+:\d+: ERROR: File (?:/workspace/)?{_NAME} does not"
        ),
        f"Meson stops in {{}}: {_NO_FILE}",
    ),
    (re.compile(rf"^g?make(?:\[\d+\])?: \*\*\* No rule to make target {_FILE}, needed by "), f"make stops: {_NO_FILE}"),
    (re.compile(rf"^ninja: error: {_FILE}, needed by "), f"Ninja stops: {_NO_FILE}"),
    (re.compile(rf"^CMake Error at {_NAME}:\d+ \("), "CMake stops in {}: its output says why"),
    (
        re.compile(r"^\S{0,200}?([\w./+@-]{0,80}meson\.build):\d+:\d+: ERROR: "),
        "Meson stops in {}: its output says why",
    ),
    (re.compile(r"^configure: error: "), "configure stops: its output says why"),
    (re.compile(r"^Timeout: +([1-9]\d{0,5}) *$"), "{} tests did not end within the time that Meson gave each of them"),
)
_NO_TESTS = re.compile(r"^(?:=+ )?no tests ran in [\d.]{1,12}s(?: \([\d:]{1,12}\))?(?: =+)?$")
_NO_TESTS_STATUS = 5  # of pytest: https://docs.pytest.org/en/stable/reference/exit-codes.html
_AT = r"line \d{1,7}, column \d{1,7}"
_UNREADABLE = (
    (rf"^sandbox-(?:node|python)-check: ((?:package\.json|pyproject\.toml): {_AT}): ", "there is a syntax error in {}"),
    (rf"^ {{0,8}}(?:Caused by: )?TOML parse error at ({_AT})$", "a TOML file of the project has a syntax error: {}"),
    (r"^ {0,8}--> (?:\S{0,200}/)?(Cargo\.toml:\d{1,7}:\d{1,7})$", "there is an error in {}"),
    (r"^(?:/\S{0,200}/)?(go\.mod:\d{1,7}): ", "there is an error in {}"),
)
_COMPILED = (
    (_UNKNOWN, r"^(?:\S{0,200}/)?(?:Makefile\.am|configure\.(?:ac|in)):\d+: error: ", "autoreconf refuses the tree"),
    (_CODE, r"^\S{1,200}:\d+(?::\d+)?: error: ", "the compiler found an error"),
    (_CODE, r"^error\[E\d{4}\]: ", "the compiler found an error"),
    (
        _CODE,  # what the scripts of policies/profiles/cmake.toml and meson.toml print
        r"^Tests were left out: the (build|configuration) with [\w =.-]{1,300} failed, see the output of build$",
        "its tests did not run: the {} with them failed, so `build` left them out; the output of `build` says why",
    ),
    (
        _CODE,
        rf"^(?:WARN invalid TestEvent: )?FAIL\t{_NAME} \[build failed\]$",
        "go could not build the tests of '{}', or its vet found an error in them",
    ),
)
_PACKAGE_SYMPTOMS = tuple(_Symptom(_ENVIRONMENT, re.compile(where), *words) for where, *words in _LACKED_PACKAGES)
_SYMPTOMS = _PACKAGE_SYMPTOMS + tuple(
    _Symptom(kind, re.compile(pattern), sentence)
    for kind, pattern, sentence in (
        *((_ENVIRONMENT, pattern, _NEWER_TOOL.format("Catch2")) for pattern in _OLDER_CATCH),
        *_LACKED,
        *((_ENVIRONMENT, pattern, _NEWER.format(tool)) for pattern, tool in _TOO_OLD),
        *((_ENVIRONMENT, pattern, _NEWER_TOOL.format(tool)) for pattern, tool in _TOO_OLD_TOOLS),
        (_ENVIRONMENT, _OLDER_PERL, "the image has an older '{}' than the project needs (docs/dependencies.md, Perl)"),
        (_ENVIRONMENT, r"^FetchContent cannot download here: ([\w.+ -]{1,200})$", _DOWNLOADS),
        *((_ENVIRONMENT, pattern, _NETWORK) for pattern in _ASKED_A_NETWORK),
        *((_ENVIRONMENT, pattern, _NO_SERVER) for pattern in _WANTED_A_SERVER),
        *((_ENVIRONMENT, pattern, _NO_GIT) for pattern in _ASKED_GIT),
        (_ENVIRONMENT, _RAN_GIT, _MASKED_GIT),
        *(
            (_UNKNOWN, rf"^(?:Uncaught )?TypeError: {name} is not a function$", _OLD_NODE.format(version))
            for name, version in _SINCE_NODE
        ),
        *_MET_A_LIMIT,
        *_BY_PYTEST,
        *_BY_NODE,
        *((_CODE, pattern, sentence) for pattern, sentence in _UNREADABLE),
        *_COMPILED,
        (_UNKNOWN, r"^CMakePresets\.json: no preset of the project is used here$", _PRESETS),
    )
)
_INCLUDE = re.compile(r"^ *\d+ \| *# *include *([<\"])")
_HEADER = re.compile(r"^(\S{1,200}: fatal error: )([\w./+-]{1,80})(: No such file or directory)$")
_IMPORTS = (
    re.compile(_RAISED + r"(?:ModuleNotFoundError|ImportError): No module named '?([A-Za-z_][\w.]{0,80})'?$"),
    re.compile(r"^Error: Cannot find (?:module|package) '(@?[A-Za-z_][\w./-]{0,80})'"),
    re.compile(r"^Can't locate \S{1,200}\.pm in @INC \(you may need to install the ([A-Za-z_][\w:]{0,80}) module\)"),
)
_PERL = _IMPORTS[-1]
_ADD = {
    _IMPORTS[0]: "add its package to the extra or dependency group `test`, or to `needs` of a profile",
    _IMPORTS[1]: "add its package to devDependencies, or to `needs` of a profile; `sandbox layers show` names peers of "
    "other packages that were left out",
    _PERL: "add it to the cpanfile, to TEST_REQUIRES of Makefile.PL, or to `needs` of a profile",
}
"""By the message about a missing module: how it is added."""

_OWN_MODULE = (
    "'{}' is a module of the project itself and not in its commit: its build makes it, as tools do that take the "
    "version from git, or .gitignore leaves it out"
)
_SEE = "(docs/dependencies.md, When a module is missing)"
_MAX_MODULES = 5
_NOT_THERE = (
    re.compile(rf"^(?:/bin/)?(?:ba|da)?sh: (?:line )?(?:\d+: )?{_NAME}: (?:command )?not found$"),
    re.compile(rf"^[\w./-]{{1,80}}: (?:line )?\d+: {_NAME}: (?:command )?not found$"),
    re.compile(rf"^g?make(?:\[\d+\])?: {_NAME}: (?:No such file or directory|Command not found)$"),
    re.compile(rf"^sandbox: cannot run '{_NAME}' in \S+: No such file or directory$"),
    re.compile(rf"^(?:/usr/bin/)?env: [\u2018'`\"]?{_NAME}[\u2019'\"]?: No such file or directory$"),
)
_MAKE_127 = re.compile(r"^g?make(?:\[\d+\])?: \*\*\* \[[^\]]{1,200}\] Error 127$")
_CAPTURED = re.compile(r"^-+ Captured \w+ \w+ -+$")
_END_OF_CAPTURED = re.compile(r"^(?:=+ .* =+|_+ .* _+|-+ Captured \w+ \w+ -+)$")


def find_symptom(lines: Iterable[str], is_declared: IsDeclared, without: str) -> Cause | None:
    """Return the cause of the first symptom in the output: later ones are usually its consequences.

    `without`: why the check had no layer of the packages that the project asks for; '' if it had one or needs none.
    """
    marked = mark_servers(mark_headers(skip_captured(lines)))
    for line in marked:
        symptom = _match_symptom(line, without) or _match_import(line, is_declared, without)
        if symptom is not None and _PERL.match(line):
            return _name_packages(symptom, [line, *marked])
        if symptom is not None:
            return symptom
    return None


def _name_packages(symptom: Cause, lines: Iterable[str]) -> Cause:
    """The cause with the Debian packages of all Perl modules that the lines miss."""
    found = dict.fromkeys(guess_package(match[1]) for line in lines if (match := _PERL.match(line)))
    way = _ADD_PACKAGES.format(", ".join(list(found)[:_MAX_MODULES]))
    if symptom.kind is _UNKNOWN:  # not declared
        way = f"{_ADD[_PERL]}, or {way}"
    return symptom.model_copy(update={"sentence": f"{symptom.sentence}: {way}"})


def find_missing_command(
    lines: Iterable[str], exit_code: int | None, is_declared: IsDeclared, without: str
) -> Cause | None:
    """Find a missing command, if the exit status of the shell or of a make step confirms it. `without`: as
    `find_symptom`; packages of the project bring commands, usually one of their own name.
    """
    printed = list(skip_captured(lines))
    if exit_code != 127 and not any(_MAKE_127.match(line) for line in printed):
        return None
    names = [match[1] for line in printed for pattern in _NOT_THERE if (match := pattern.match(line))]
    if not names:
        return Cause(kind=_ENVIRONMENT, sentence=f"a command that it needs is missing: {without or _IMAGE}")
    if "/" in names[-1]:
        return Cause(kind=_UNKNOWN, sentence=f"there is no '{names[-1]}': {_EITHER}")
    package = find_program_package(names[-1])
    way = without or (_ADD_PACKAGES.format(package) if package else _IMAGE)
    if not without and not package and is_declared(names[-1]):
        way = _LEFT_OUT
    return Cause(kind=_ENVIRONMENT, sentence=f"there is no command '{names[-1]}': {way}")


def find_empty_run(lines: Iterable[str], exit_code: int | None) -> Cause | None:
    """The cause if pytest found no test, if its exit status confirms it."""
    if exit_code != _NO_TESTS_STATUS or not any(_NO_TESTS.match(line) for line in lines):
        return None
    sentence = "pytest found no test: it looks for functions test_* in test_*.py and *_test.py, or as its settings say"
    return Cause(kind=_CODE, sentence=sentence)


def find_stop(lines: Iterable[str]) -> Cause | None:
    """The tool that configures or tests, if it says itself that it failed: for output without a symptom."""
    for line in lines:
        for pattern, sentence in _STOPPED:
            if match := pattern.match(line):
                return Cause(kind=_UNKNOWN, sentence=sentence.format(*match.groups()))
    return None


def skip_captured(lines: Iterable[str]) -> Iterable[str]:
    """Yield the lines without the test output that pytest repeats: it belongs to the test itself."""
    captured = False
    for line in lines:
        if _END_OF_CAPTURED.match(line):
            captured = bool(_CAPTURED.match(line))
        if not captured:
            yield line


def mark_headers(lines: Iterable[str]) -> Iterable[str]:
    """Mark headers with <> or "": gcc shows the #include only in the line after its error; <> is a system header."""
    waiting: re.Match[str] | None = None
    for line in lines:
        if waiting is not None:
            style = _INCLUDE.match(line)
            first, last = ("<", ">") if style and style[1] == "<" else ('"', '"')
            yield f"{waiting[1]}{first}{waiting[2]}{last}{waiting[3]}"
        waiting = _HEADER.match(line)
        if waiting is None:
            yield line
    if waiting is not None:
        yield f'{waiting[1]}"{waiting[2]}"{waiting[3]}'


def mark_servers(lines: Iterable[str]) -> Iterable[str]:
    """Mark refused connections with the address that was printed just before."""
    address, since = "", 0
    for line in lines:
        if found := _ADDRESS.search(line[:_LINE_CHARS]):
            address, since = found[0], 0
        elif address and since <= _LINES_BEFORE and _IS_REFUSED.match(line):
            yield f"connect ECONNREFUSED {address}"
            continue
        since += 1
        yield line


def _match_symptom(line: str, without: str) -> Cause | None:
    for symptom in _SYMPTOMS:
        if match := symptom.pattern.match(line):
            name = next((group for group in match.groups() if group), "")
            if without and symptom.without_layer:
                return Cause(kind=symptom.kind, sentence=f"{symptom.without_layer.format(name)}: {without}")
            return Cause(kind=symptom.kind, sentence=_name_package(symptom.sentence.format(name), name))
    return None


def _name_package(sentence: str, name: str) -> str:
    """The sentence with the package of Debian that has what is missing, where it is known."""
    package = find_library_package(name) or find_program_package(name)
    if not package or not sentence.endswith((_IMAGE, _EITHER)):
        return sentence
    return sentence.replace(_IMAGE, _ADD_PACKAGES.format(package)).replace(
        _EITHER, f"{_EITHER}; Debian has it in {package} (docs/images.md, Debian packages)"
    )


def _match_import(line: str, is_declared: IsDeclared, without: str) -> Cause | None:
    found = next((match for pattern in _IMPORTS if (match := pattern.match(line))), None)
    if found is None:
        return None
    module = found[1]
    add = "" if found.re is _PERL else _ADD[found.re]  # `_name_packages` has more ways
    declared = is_declared(module)
    if declared is None and found.re is _IMPORTS[0]:
        return Cause(kind=_UNKNOWN, sentence=f"{_OWN_MODULE.format(module)} {_SEE}")
    if without:  # also one that the project does not declare: its packages need others
        return Cause(kind=_ENVIRONMENT, sentence=f"there is no module '{module}': {without}")
    if isinstance(declared, str):
        return Cause(kind=_ENVIRONMENT, sentence=f"'{module}', which the project declares, is not there: {declared}")
    if declared:
        seen, kind = f"'{module}', which the project declares, is not there", _ENVIRONMENT
    else:
        seen, kind = f"there is no module '{module}', and the project does not declare it", _UNKNOWN
    return Cause(kind=kind, sentence=f"{seen}: {add} {_SEE}" if add else seen)
