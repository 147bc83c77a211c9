"""What a commit holds that decides whether its checks can run, and what to do about it."""

from __future__ import annotations

from enum import StrEnum

from sandbox.models.model import Model


class RemarkKind(StrEnum):
    """What a remark is about."""

    NO_CHECKS = "no-checks"  # no profile fits, or the one that does has no checks
    SUGGESTION = "suggestion"  # .sandbox/checks.toml suggests checks that are not trusted
    MISSING_PACKAGES = "missing-packages"  # the project asks for packages that the checks did not have
    PACKAGES = "packages"  # a file of CI or Debian names packages that the image lacks
    BELOW = "below"  # a folder holds a project of its own
    ONLY_FOLDER = "only-folder"  # the only project is in a folder, and its checks run there
    UNCHECKED = "unchecked"  # other profiles match, too, or build files of a language without a profile are there
    SUBMODULES = "submodules"  # their files are left out
    LFS = "lfs"  # checks see pointers
    IMAGE = "image"  # the project's `requires-python` excludes the Python of the profile's image
    GIT_DATA = "git-data"  # the build asks git for a version
    LOCAL_CHANGES = "local-changes"  # of the directory given to `sandbox run`, left out


class Remark(Model):
    """One thing that was seen, and a remedy; '' if there is none. Names in it are text of the repository.

    Commands in a remedy are those of the command line; the agent interface names its tools instead.
    """

    kind: RemarkKind
    seen: str
    remedy: str = ""
