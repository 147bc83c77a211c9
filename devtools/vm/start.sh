#!/bin/bash
# Runs as root in the machine, from the second disk, mounted at /mnt. Its output is the serial port that the host reads.
set -u
# shellcheck source=/dev/null
source /mnt/row.env # SETTLE, or ENGINE, RUNS_AS, COLUMNS, REFUSED, ATTACKS
exec 2>/dev/console

settle() {
  local image
  for image in /mnt/images/*.tar; do docker load --quiet --input "$image" >&2 || return; done
  install -D --mode=644 --target-directory=/opt/matrix-images /mnt/images/*.tar # for engines of users
  echo '@matrix settled'
}

# as_user COMMAND...: in a session of systemd, as after a login.
as_user() {
  runuser -u "$RUNS_AS" -- env HOME="$(getent passwd "$RUNS_AS" | cut -d: -f6)" PATH=/usr/local/bin:/usr/bin:/usr/sbin:/sbin \
    XDG_RUNTIME_DIR="/run/user/$(id -u "$RUNS_AS")" DBUS_SESSION_BUS_ADDRESS="unix:path=/run/user/$(id -u "$RUNS_AS")/bus" "$@"
}

wait_for_socket() {
  local tries
  for tries in $(seq 240); do
    [[ -S $1 ]] && return
    sleep 0.5
  done
  echo "no socket at $1 after $tries tries" >&2
}

# It may make its socket long before it answers.
wait_for_engine() {
  local tries
  for tries in $(seq 120); do
    docker version >/dev/null 2>&1 && return
    sleep 1
  done
  echo "no engine answers at $DOCKER_HOST after $tries tries" >&2
  journalctl --no-pager --lines=40 >&2
}

start_engine() {
  local run image
  case "$ENGINE" in
    docker)
      export DOCKER_HOST=unix:///run/docker.sock
      if [[ $RUNS_AS != root ]]; then # for its user units
        loginctl enable-linger "$RUNS_AS"
        wait_for_socket "/run/user/$(id -u "$RUNS_AS")/bus"
      fi
      ;;
    podman)
      setsid podman system service --time=0 unix:///run/podman.sock >&2 &
      export DOCKER_HOST=unix:///run/podman.sock
      wait_for_engine
      for image in /opt/matrix-images/*.tar; do podman load --quiet --input "$image" >&2; done
      ;;
    docker-rootless | podman-rootless)
      loginctl enable-linger "$RUNS_AS"
      run=/run/user/$(id -u "$RUNS_AS")
      wait_for_socket "$run/bus"
      export DOCKER_HOST="unix://$run/engine.sock"
      if [[ $ENGINE == docker-rootless ]]; then
        # It waits 15 s for its containerd, which may take longer; nothing loads kernel modules of a network for it.
        as_user systemd-run --user --quiet -p Delegate=yes -p Restart=on-failure -p RestartSec=1 \
          -E PATH=/usr/bin:/usr/sbin:/sbin /usr/share/docker.io/contrib/dockerd-rootless.sh \
          --host="$DOCKER_HOST" --bridge=none --iptables=false --ip6tables=false >&2
        wait_for_engine
        for image in /opt/matrix-images/*.tar; do docker load --quiet --input "$image" >&2; done
      else
        as_user systemd-run --user --quiet podman system service --time=0 "$DOCKER_HOST" >&2
        for image in /opt/matrix-images/*.tar; do as_user podman load --quiet --input "$image" >&2; done
      fi
      ;;
  esac
  wait_for_engine
}

if [[ ${SETTLE:-} ]]; then
  settle
  exit
fi
start_engine
folder=/var/tmp/matrix # on the disk: Debian 13 has /tmp in memory
mkdir -m 777 "$folder"
# As an installation: what a client of ours starts has no PYTHONPATH.
site=$(python3 -c 'import site; print(site.getsitepackages()[0])')
mkdir -p "$site"
printf '/mnt/project\n/opt/matrix-site\n' >"$site/matrix.pth"
export PYTHONPYCACHEPREFIX=$folder/compiled TMPDIR=$folder
cd /mnt/project || exit
# The words of COLUMNS are quoted for the shell by the host.
eval "columns=($COLUMNS)"
run=(env)
[[ $RUNS_AS == root ]] || run=(as_user env DOCKER_HOST="$DOCKER_HOST" \
  PYTHONPYCACHEPREFIX="$PYTHONPYCACHEPREFIX" TMPDIR="$TMPDIR")
# shellcheck disable=SC2154 # columns: set by eval
"${run[@]}" python3 -m devtools.vm.measurements "$folder/row" "${columns[@]}" --refused "$REFUSED" --attacks "${ATTACKS:-}"
echo '@matrix ended'
