/* A guest that tries to forge the marks of an overlay, or to reach what lies below it. Prints `attempt answer`.
 *   forge marks     what would hide or reveal names
 *   forge poison    every way to change a file that lies below
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/xattr.h>
#include <unistd.h>

static void say(const char *what, long answer) {
    printf("%s %s\n", what, answer < 0 ? strerrorname_np(errno) : "ok");
    fflush(stdout);
}

static int rename2(const char *from, const char *to, int flags) {
    return syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, flags);
}

static int create(const char *name, const char *text) {
    int fd = open(name, O_RDWR | O_CREAT | O_TRUNC, 0644);
    if (write(fd, text, strlen(text)) < 0) return -1;
    return fd;
}

static long named_later(void) {
    char link[64];
    int fd = open(".", O_TMPFILE | O_RDWR, 0644);
    if (fd < 0 || write(fd, "x\n", 2) < 0) return -1;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    return linkat(AT_FDCWD, link, AT_FDCWD, "linked", AT_SYMLINK_FOLLOW);
}

static int marks(void) {
    say("mknod whiteout", mknod("wh", S_IFCHR | 0600, makedev(0, 0)));
    say("mknod device", mknod("dev", S_IFCHR | 0600, makedev(1, 3)));
    say("xattr trusted.opaque", setxattr("d", "trusted.overlay.opaque", "y", 1, 0));
    say("xattr trusted.whiteout", setxattr("d/x", "trusted.overlay.whiteout", "y", 1, 0));
    say("xattr trusted.redirect", setxattr("d", "trusted.overlay.redirect", "/f", 2, 0));
    say("xattr trusted.escaped", setxattr("d", "trusted.overlay.overlay.opaque", "y", 1, 0));
    say("xattr user.x", setxattr("d", "user.x", "y", 1, 0));
    say("xattr user.opaque", setxattr("d", "user.overlay.opaque", "y", 1, 0));
    say("xattr user.whiteout", setxattr("d/x", "user.overlay.whiteout", "y", 1, 0));
    say("whiteout by rename", rename2("g.txt", "gone", 4));
    say("redirect by rename", rename("d", "dd"));
    mkdir("newdir", 0755);
    close(create("newdir/y", "y"));
    say("exchange", rename2("newdir", "f.txt", 2));
    say("tmpfile", named_later());
    return 0;
}

static long through_old_mapping(void) {
    int old = open("m.txt", O_RDONLY), fd = open("m.txt", O_RDWR);
    char *below = mmap(0, 4096, PROT_READ, MAP_SHARED, old, 0), first = *below;
    char *above = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (below == MAP_FAILED || above == MAP_FAILED || !first) return -1;
    memset(above, 'E', 4096);
    mprotect(below, 4096, PROT_READ | PROT_WRITE);  /* refused: the descriptor was for reading */
    return msync(above, 4096, MS_SYNC);
}

static long all_times_and_modes(int fd, const char *name) {
    struct timespec times[2] = {{1, 0}, {1, 0}};
    return futimens(fd, times) | fchmod(fd, 0777) | fsetxattr(fd, "user.evil", "y", 1, 0)
        | utimensat(AT_FDCWD, name, times, AT_SYMLINK_NOFOLLOW) | setxattr(name, "user.evil2", "y", 1, 0);
}

static int poison(void) {
    int readme = open("README.md", O_RDONLY), folder = open("d", O_RDONLY | O_DIRECTORY);
    say("old descriptor", all_times_and_modes(readme, "README.md"));
    say("directory", all_times_and_modes(folder, "d"));
    say("root", all_times_and_modes(open(".", O_RDONLY), "."));
    int fd = open("f.txt", O_RDWR);
    say("write", pwrite(fd, "EVIL", 4, 0));
    say("fallocate", fallocate(fd, 0, 0, 1 << 20));
    say("hole", fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 2));
    say("truncate", truncate("t.txt", 0));
    say("mapping", through_old_mapping());
    say("append", write(open("g.txt", O_WRONLY | O_APPEND), "EVIL", 4));
    say("hard link", link("l.txt", "alias") | (write(open("alias", O_WRONLY | O_TRUNC), "EVIL", 4) < 0 ? -1 : 0));
    say("reopened", write(open("/proc/self/fd/3", O_WRONLY | O_TRUNC), "EVIL", 4));
    say("below an old directory", unlinkat(folder, "x", 0));
    return 0;
}

int main(int argc, char **v) {
    return argc != 2 ? 2 : !strcmp(v[1], "marks") ? marks() : poison();
}
