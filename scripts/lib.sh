# shellcheck shell=bash
# Shared by the scripts beside it; sourced, never run.

say() { printf '%s\n' "$*" >&2; }

# fail WHAT [WHAT-TO-DO]
fail() {
  printf 'error: %s\n' "$1" >&2
  [[ $# -lt 2 ]] || printf '  %s\n' "$2" >&2
  exit 1
}

have() { command -v "$1" >/dev/null 2>&1; }

# install_packages "NAMES" REASON: with apt as root, else say what to run.
install_packages() {
  local -a names
  read -ra names <<<"$1"
  if [[ $(id -u) != 0 ]] || ! have apt-get; then
    fail "These packages are needed $2: ${names[*]}" "As root on Debian or Ubuntu: apt-get update && apt-get install ${names[*]}"
  fi
  say "packages: installing ${names[*]} $2"
  local log
  log=$(mktemp)
  if ! _apt_install "${names[@]}" >"$log" 2>&1; then
    # The index of packages is missing or old.
    if ! { apt-get update && _apt_install "${names[@]}"; } >>"$log" 2>&1; then
      tail -n 15 "$log" >&2
      rm -f "$log"
      fail "apt-get could not install ${names[*]}."
    fi
  fi
  rm -f "$log"
}

_apt_install() {
  DEBIAN_FRONTEND=noninteractive apt-get install --yes --no-install-recommends -o DPkg::Lock::Timeout=120 "$@"
}
