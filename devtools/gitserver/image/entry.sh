#!/bin/sh
# Start the three servers. The caller has put cert.pem, key.pem, htpasswd, host_key and authorized_keys into
# /etc/gitserver and says HTTPS_PORT and SSH_PORT. The life of nginx is the life of the container.
set -eu
sed "s/@HTTPS_PORT@/${HTTPS_PORT}/" /etc/gitserver/nginx.conf.in >/etc/gitserver/nginx.conf
chmod 0600 /etc/gitserver/host_key
setpriv --reuid=git --regid=git --init-groups --reset-env git init --quiet --bare /srv/git/ready/probe.git
# Not fcgiwrap's own -c: once one of its processes has died, the parent waits for the others in a busy loop.
setpriv --reuid=git --regid=git --init-groups --reset-env spawn-fcgi -n -s /run/fcgi/git.sock -- \
  /usr/bin/multiwatch -f 6 -r 1000 -- /usr/sbin/fcgiwrap &
/usr/sbin/sshd -e -f /dev/null -h /etc/gitserver/host_key -p "${SSH_PORT}" -o ListenAddress=127.0.0.1 \
  -o AuthorizedKeysFile=/etc/gitserver/authorized_keys -o ForceCommand=/usr/local/bin/git-ssh \
  -o PasswordAuthentication=no -o KbdInteractiveAuthentication=no -o 'AllowUsers=git alice' -o AcceptEnv=GIT_PROTOCOL \
  -o AllowTcpForwarding=no -o MaxStartups=100 -o PidFile=/run/sshd.pid
exec nginx -c /etc/gitserver/nginx.conf
