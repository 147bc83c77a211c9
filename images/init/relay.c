/* The way out of a fetch guest: runs one command, and passes each TCP connection to 127.0.0.1:PORT on to a Unix socket.
 *
 * A guest has no network interface but loopback, and package managers reach a proxy over TCP only. The proxy's end, on
 * the host, decides what goes out (docs/adr/0053-the-way-out-is-one-socket.md); nothing is decided here, and nothing
 * here is trusted by it.
 *
 *     relay SOCKET PORT COMMAND [ARGUMENT...]     exits as the command does, 128 + N for signal N
 *     relay --hand-out                            prints this program
 *
 * It listens before the command starts. One thread, one poll(2); a connection has a buffer for each direction, and is
 * read only while its buffer is empty, so that a slow side slows the other.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PAIRS_MAX = 64, BUFFER_BYTES = 64 << 10 };
enum { LEAVE_USAGE = 64, LEAVE_FAILED = 71, LEAVE_NOT_STARTED = 127 };

/* Bytes on their way from one socket to another. */
struct flow {
    int from, to;
    bool ended; /* `from` has no more bytes, and `to` was told */
    size_t length, sent;
    char buffer[BUFFER_BYTES];
};

struct pair {
    int inner, outer; /* -1: not in use */
    struct flow out, in;
};

static struct pair pairs[PAIRS_MAX];

static int fail(const char *what)
{
    fprintf(stderr, "relay: %s: %s\n", what, strerror(errno));
    return LEAVE_FAILED;
}

static int hand_out(void)
{
    static char buffer[64 << 10];
    int self = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
    ssize_t n = -1;
    while (self >= 0 && (n = read(self, buffer, sizeof buffer)) > 0)
        for (ssize_t done = 0, w; done < n; done += w)
            if ((w = write(STDOUT_FILENO, buffer + done, (size_t)(n - done))) < 0)
                return LEAVE_FAILED;
    return n == 0 ? 0 : LEAVE_FAILED;
}

static int listen_on(uint16_t port)
{
    struct sockaddr_in here = {.sin_family = AF_INET, .sin_port = htons(port)};
    here.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0 || bind(fd, (struct sockaddr *)&here, sizeof here) || listen(fd, PAIRS_MAX))
        return -1;
    return fd;
}

static int reach(const struct sockaddr_un *proxy)
{
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0); /* connect waits for a place in the proxy's backlog */
    if (fd < 0)
        return -1;
    if (connect(fd, (const struct sockaddr *)proxy, sizeof *proxy) || fcntl(fd, F_SETFL, O_NONBLOCK)) {
        close(fd);
        return -1;
    }
    return fd;
}

static void start_flow(struct flow *flow, int from, int to)
{
    flow->from = from;
    flow->to = to;
    flow->ended = false;
    flow->length = flow->sent = 0;
}

static void accept_one(int listener, const struct sockaddr_un *proxy, struct pair *pair)
{
    int inner = accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (inner < 0)
        return;
    int outer = reach(proxy);
    if (outer < 0) {
        fail("the proxy does not answer");
        close(inner);
        return;
    }
    pair->inner = inner;
    pair->outer = outer;
    start_flow(&pair->out, inner, outer);
    start_flow(&pair->in, outer, inner);
}

/* What poll(2) waits for at one of the two sockets. Nothing: it is left out, or a closed peer would end every poll. */
static struct pollfd watch(int fd, const struct flow *reads, const struct flow *writes)
{
    int events = (!reads->ended && reads->length == 0 ? POLLIN : 0) | (writes->length > 0 ? POLLOUT : 0);
    return (struct pollfd){events ? fd : -1, (short)events, 0};
}

/* Move what can be moved without waiting; false: the connection is broken. */
static bool move(struct flow *flow)
{
    if (!flow->ended && flow->length == 0) {
        ssize_t n = read(flow->from, flow->buffer, sizeof flow->buffer);
        if (n < 0)
            return errno == EAGAIN || errno == EINTR;
        if (n == 0) {
            flow->ended = true;
            shutdown(flow->to, SHUT_WR);
            return true;
        }
        flow->length = (size_t)n;
        flow->sent = 0;
    }
    while (flow->sent < flow->length) {
        ssize_t n = send(flow->to, flow->buffer + flow->sent, flow->length - flow->sent, MSG_NOSIGNAL);
        if (n < 0)
            return errno == EAGAIN || errno == EINTR;
        flow->sent += (size_t)n;
    }
    flow->length = 0;
    return true;
}

static void serve_pair(struct pair *pair)
{
    bool whole = move(&pair->out) && move(&pair->in);
    if (whole && !(pair->out.ended && pair->in.ended))
        return;
    close(pair->inner);
    close(pair->outer);
    pair->inner = pair->outer = -1;
}

/* The command's exit status once it has ended, else -1. Orphans that were left to us are reaped. */
static int reap(pid_t command)
{
    int status, found = -1;
    for (pid_t pid; (pid = waitpid(-1, &status, WNOHANG)) > 0;)
        if (pid == command)
            found = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
    return found;
}

static int serve(int listener, const struct sockaddr_un *proxy, int ended, pid_t command)
{
    for (;;) {
        struct pollfd fds[2 + 2 * PAIRS_MAX];
        struct pair *unused = NULL;
        for (int i = 0; i < PAIRS_MAX; i++) {
            struct pair *pair = &pairs[i];
            if (pair->inner < 0)
                unused = pair;
            fds[2 + 2 * i] = watch(pair->inner, &pair->out, &pair->in);
            fds[3 + 2 * i] = watch(pair->outer, &pair->in, &pair->out);
        }
        fds[0] = (struct pollfd){ended, POLLIN, 0};
        fds[1] = (struct pollfd){unused ? listener : -1, POLLIN, 0};
        if (poll(fds, 2 + 2 * PAIRS_MAX, -1) < 0 && errno != EINTR)
            return fail("poll");
        if (fds[0].revents) {
            struct signalfd_siginfo signal;
            if (read(ended, &signal, sizeof signal) < 0 && errno != EAGAIN)
                return fail("signalfd");
            int status = reap(command);
            if (status >= 0)
                return status;
        }
        for (int i = 0; i < PAIRS_MAX; i++)
            if (pairs[i].inner >= 0 && (fds[2 + 2 * i].revents || fds[3 + 2 * i].revents))
                serve_pair(&pairs[i]);
        if (fds[1].revents)
            accept_one(listener, proxy, unused);
    }
}

static pid_t start(char **argv, const sigset_t *before)
{
    pid_t pid = fork();
    if (pid == 0) {
        sigprocmask(SIG_SETMASK, before, NULL);
        execvp(argv[0], argv);
        fprintf(stderr, "relay: %s: %s\n", argv[0], strerror(errno));
        _exit(LEAVE_NOT_STARTED);
    }
    return pid;
}

int main(int argc, char **argv)
{
    if (argc == 2 && !strcmp(argv[1], "--hand-out"))
        return hand_out();
    struct sockaddr_un proxy = {.sun_family = AF_UNIX};
    char *end = NULL;
    unsigned long port = argc > 3 ? strtoul(argv[2], &end, 10) : 0;
    if (port < 1 || port > 65535 || *end || strlen(argv[1]) >= sizeof proxy.sun_path)
        return LEAVE_USAGE;
    strcpy(proxy.sun_path, argv[1]);
    for (int i = 0; i < PAIRS_MAX; i++)
        pairs[i].inner = pairs[i].outer = -1;
    sigset_t child, before;
    sigemptyset(&child);
    sigaddset(&child, SIGCHLD);
    sigprocmask(SIG_BLOCK, &child, &before);
    int ended = signalfd(-1, &child, SFD_CLOEXEC | SFD_NONBLOCK);
    int listener = listen_on((uint16_t)port);
    if (ended < 0 || listener < 0)
        return fail("127.0.0.1");
    pid_t command = start(argv + 3, &before);
    if (command < 0)
        return fail("fork");
    return serve(listener, &proxy, ended, command);
}
