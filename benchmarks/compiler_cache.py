"""S28: a clean-room build after a one-line edit of a generated C++ project, against the same build from scratch.

Both are whole verifications: checkout and container are in the time of each.
"""

from __future__ import annotations

import itertools
import os
import subprocess
import tempfile
from pathlib import Path

from benchmarks._harness import Rounds, compare
from sandbox import VerifyOptions, Workbench

FILES = 16
SOURCE = """\
#include <map>
#include <regex>
#include <sstream>
#include "shared.h"
int f{number}(const std::string& text) {{
  std::map<std::string, int> found;
  const std::regex word("[a-z]+");
  for (std::sregex_iterator i(text.begin(), text.end(), word), end; i != end; ++i) ++found[i->str()];
  std::ostringstream out; out << found.size() << SHARED;
  return static_cast<int>(out.str().size());
}}
"""
MAKEFILE = """\
OBJECTS := $(patsubst %.cpp,%.o,$(wildcard *.cpp))
app: $(OBJECTS)
\tg++ $(OBJECTS) -o app
%.o: %.cpp shared.h
\tg++ -O1 -c $< -o $@
test: app
\t./app
.PHONY: test
"""


def _make_project(folder: Path) -> None:
    folder.mkdir()
    (folder / "Makefile").write_text(MAKEFILE)
    (folder / "shared.h").write_text("#define SHARED 1\n")
    for number in range(FILES):
        (folder / f"f{number}.cpp").write_text(SOURCE.format(number=number))
    (folder / "main.cpp").write_text("int main() { return 0; }\n")
    for argv in (["init", "-q", "-b", "main"], ["add", "."], ["commit", "-q", "-m", "base"]):
        identity = ("-c", "user.name=b", "-c", "user.email=b@localhost")
        subprocess.run(["git", "-C", folder, *identity, *argv], check=True)


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        project = Path(name) / "project"
        _make_project(project)
        with Workbench(Path(name) / "home", allow_file=True, environ=dict(os.environ)) as workbench:
            summary = workbench.run(str(project), check_ids=("build",))
            assert summary.verified, summary.runs[0]
            try:
                _measure(workbench, summary.repository.id)
            finally:
                for task in workbench.tasks():
                    workbench.close_task(task.id, delete_worktree=True, discard=True)


def _measure(workbench: Workbench, repo_id: str) -> None:
    task_id, numbers = workbench.create_task(repo_id).id, itertools.count(2)

    def build_after_an_edit() -> None:
        path, line = "f7.cpp", f"// an edit, number {next(numbers)}\n"
        content = workbench.read_file(task_id, path)
        changed = content.content.replace("return static_cast", f"{line}return static_cast", 1)
        workbench.write_file(task_id, path, changed, content.sha256)
        workbench.commit(task_id, "edit")
        assert workbench.verify(task_id).runs[0].compiler_cache == "read"

    def build_from_scratch() -> None:
        assert workbench.verify(task_id, options=VerifyOptions(cache=False, from_scratch=True)).verified

    compare(
        f"S28 clean-room build after a one-line edit, {FILES} C++ files",
        build_after_an_edit,
        build_from_scratch,
        floor_name="full build",
        target="0.15x",
        rounds=Rounds(most=3),
    )


if __name__ == "__main__":
    main()
