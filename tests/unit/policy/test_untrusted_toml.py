"""TOML of others: what people write is read as `tomllib` reads it; what costs more than its size is refused."""

from __future__ import annotations

import time
import tomllib
import tracemalloc
from collections.abc import Callable

import pytest

from devtools.host_speed import slowness
from sandbox.policy import untrusted_toml
from sandbox.policy.untrusted_toml import LINE_CHARS, TomlLimitError, loads

HEADER = f"[{'.'.join(['b'] * 200)}]\n"
DOTS = ".a" * 199

# Each is a line, repeated with another number. `inline` and what follows stand in an array.
LINES: dict[str, Callable[[int], str]] = {
    "dots": lambda n: f"k{n}{DOTS}=1\n",
    "few dots": lambda n: f"k{n}.a.a=1\n",
    "dots of quoted keys": lambda n: f"""'k{n}'."=".'"'."\\"".x=1 # "\n""",
    "dots and blanks": lambda n: f"k{n} . a\t. a = 1\n",
    "headers": lambda n: f"[{n:x}]\n",
    "headers with quotes and a comment": lambda n: f"""[ "a,b]".{n:x}.'=#' ] # 1.5], "\r\n""",
    "headers of one line with a long quote": lambda n: f"""["a,'''".{n:x}]\n""",
    "headers with dots": lambda n: f" [ {n:x}.'a.=' . \"'\".c ] # ='\n",
    "arrays of tables": lambda n: f"[[t{n:x}]]\n",
    "keys of arrays": lambda n: f"{n:x}= []\n",
    "keys of tables": lambda n: f"{n:x}={{}}\n",
}
INLINE: dict[str, Callable[[int], str]] = {
    "inline": lambda _: f"{{a{DOTS}=1}},\n",
    "inline after a text": lambda _: f"'''\n''',{{a{DOTS}='''\n''', b{DOTS}=1}},\n",
    "rows of tables": lambda _: "[{a.a=1}],\n",
    "rows of tables with dots": lambda _: f"['.', {{a{DOTS}=1}}],\n",
    "rows after a text": lambda _: f"['''\n[''',{{a{DOTS}=1}}],\n",
    "inline between quotes": lambda _: f"'''\"\n\"''',{{a{DOTS}=1}},\"\",\n",
}


def repeat(line: Callable[[int], str], size: int) -> str:
    count = size // len(line(0)) + 1
    return "".join(line(number) for number in range(count))


def hostile(case: str, size: int) -> str:
    return repeat(LINES[case], size) if case in LINES else f"x=[\n{repeat(INLINE[case], size)}]\n"


@pytest.mark.parametrize("case", [*LINES, *INLINE])
def test_s190_a_file_that_costs_many_times_its_size_is_refused(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two MiB, as a lock file may have, were up to 2.7 GB. The control is the test below: less of it is read.

    An eighth of it, and of the limit; all of it of the one that costs the least.
    """
    parts = 1 if case == "rows of tables" else 8
    monkeypatch.setattr(untrusted_toml, "MAX_PARSED_BYTES", untrusted_toml.MAX_PARSED_BYTES // parts)
    started = time.process_time()
    with pytest.raises(ValueError, match="too many headers, or dots in keys"):
        loads(hostile(case, 2 * 1024**2 // parts))
    assert time.process_time() - started < 20 * slowness() / parts


@pytest.mark.parametrize("header", ["", HEADER])
@pytest.mark.parametrize("case", [*LINES, *INLINE])
def test_s190_the_estimate_is_not_below_what_the_parser_takes(case: str, header: str) -> None:
    text = header + hostile(case, 16 * 1024)
    text += "[the.last]\n"  # what is kept of the keys before it is complete then
    estimated = untrusted_toml._estimate_bytes(text.split("\n"))
    tracemalloc.start()
    try:
        tomllib.loads(text)
        taken = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert taken < estimated + 40 * len(text)


def cargo_lock(number: int) -> str:
    return (
        f'[[package]]\nname = "name{number}"\nversion = "1.{number}.0-alpha.1"\n'
        'source = "registry+https://github.com/rust-lang/crates.io-index"\n'
        f'checksum = "{"0" * 64}"\ndependencies = [\n "a.b 1.0.0",\n "b",\n]\n\n'
    )


def uv_lock(number: int) -> str:
    name = f"name-{number}.0.1-cp310-cp310-manylinux2014_aarch64.manylinux_2_17_aarch64.manylinux_2_28_aarch64.whl"
    wheel = f'    {{ url = "https://files.pythonhosted.org/packages/6d/67/{name}", size = 1, upload-time = "x.1Z" }},\n'
    return (
        f'[[package]]\nname = "name-{number}"\nversion = "{number}.0.1"\nsource = {{ registry = "https://p.org/s" }}\n'
        f'dependencies = [\n    {{ name = "a.b", marker = "python_full_version < \'3.1{number}\'" }},\n]\n'
        f'wheels = [\n{wheel * 4}]\n\n[package.metadata]\nrequires-dist = [{{ name = "x", specifier = ">=1.0.0" }}]\n\n'
    )


def poetry_lock(number: int) -> str:
    return (
        f'[[package]]\nname = "name{number}"\ndescription = """Of a.b.c = d.e.f.\nAnd so on... = 1"""\nfiles = [\n'
        f'    {{file = "name-{number}.tar.gz", hash = "sha256:{"0" * 64}"}},\n]\n\n[package.dependencies]\n'
        f'x = {{version = ">=1.0", markers = "a.b == \'c.d\'"}}\n\n[package.extras]\nall = ["a (>=1.0.0)"]\n\n'
    )


def cargo_manifest(number: int) -> str:
    return f"crate{number}.workspace = true\ncrate{number}.features = ['a.b', \"c\"]\n"


@pytest.mark.parametrize(
    ("package", "size"),
    [(cargo_lock, 2 * 1024**2), (uv_lock, 2 * 1024**2), (poetry_lock, 2 * 1024**2), (cargo_manifest, 256 * 1024)],
)
def test_large_files_of_people_are_read_as_before(package: Callable[[int], str], size: int) -> None:
    text = repeat(package, size)
    assert loads(text) == tomllib.loads(text)


def numbers(end: str) -> str:
    """A large table of numbers, as files of people have: rows of 190 numbers."""
    row = f"[{', '.join(f'{number}.5' for number in range(190))}]{end}"
    return f"[{'.'.join(['a'] * 20)}]\nx = [\n{row * 400}]\n"


@pytest.mark.parametrize("end", [",\n", " , # a row\r\n", "\n,\n"])
def test_a_row_of_an_array_is_no_header(end: str) -> None:
    text = numbers(end)
    assert loads(text) == tomllib.loads(text)


def test_a_refusal_for_a_limit_is_told_from_an_error_of_syntax() -> None:
    with pytest.raises(TomlLimitError, match="line 1 has more than 8000 characters, 200 dots or 200 brackets"):
        loads("x=" + "." * 201)
    with pytest.raises(TomlLimitError, match="too many headers"):
        loads(repeat(LINES["headers"], 512 * 1024))
    with pytest.raises(TomlLimitError, match="brackets within"):
        loads("x=" + "[\n" * 2_000)
    with pytest.raises(TomlLimitError, match="it has a number with too many digits"):
        loads("x=" + "9" * 5_000)
    with pytest.raises(tomllib.TOMLDecodeError):
        loads("x=")


@pytest.mark.parametrize("end", ["", "\\"])
def test_s190_quotes_that_are_not_closed_are_looked_for_once(end: str) -> None:
    """An expression that tries each quote up to the end of its line would take minutes."""
    line = '\\"' * (LINE_CHARS // 2 - 2) + end
    text = f"x='''\n{f'{line}{chr(10)}' * 260}'''"
    started = time.process_time()
    assert loads(text)["x"].startswith(line)
    assert time.process_time() - started < 10 * slowness()


def test_brackets_within_brackets_are_refused() -> None:
    with pytest.raises(ValueError, match="brackets within"):
        loads("x=" + "[\n" * 2_000)
