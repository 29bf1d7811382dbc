/* Loaded into the daemons (LD_PRELOAD), it makes the kernel seem older, or filtered as in a
 * container. OLD_KERNEL lists what there is not: calls (clone3, pidfd_open, close_range, bpf)
 * answer ENOSYS by a seccomp filter, as those of container managers do; files (all other words)
 * are not found by their names, in whichever directory; and with `xattr` extended attributes are
 * not supported. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>

static int lacks(const char *word) {
    const char *list = getenv("OLD_KERNEL");
    size_t length = strlen(word);
    for (; list && (list = strstr(list, word)); list += length)
        if (list[length] == ',' || !list[length]) return 1;
    return 0;
}

static int is_hidden(const char *path) {
    /* Programs ask whether there is `statx` by no path, which the header rules out: the compiler must not know. */
    __asm__("" : "+r"(path));
    const char *name = path ? strrchr(path, '/') : NULL;
    return name && name[1] && lacks(name + 1);
}

static void forbid(unsigned number) {
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, number, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOSYS),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {sizeof filter / sizeof *filter, filter};
    if (geteuid() != 0) prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0) abort();
}

__attribute__((constructor)) static void begin(void) {
    /* Filters are inherited: once is enough. */
    if (getenv("OLD_KERNEL_FILTERED")) return;
    if (lacks("clone3")) forbid(SYS_clone3);
    if (lacks("pidfd_open")) forbid(SYS_pidfd_open);
    if (lacks("close_range")) forbid(SYS_close_range);
    if (lacks("bpf")) forbid(SYS_bpf);
    setenv("OLD_KERNEL_FILTERED", "1", 1);
}

int open64(const char *path, int flags, ...) {
    va_list rest;
    va_start(rest, flags);
    mode_t mode = va_arg(rest, mode_t);
    va_end(rest);
    if (is_hidden(path)) {
        errno = ENOENT;
        return -1;
    }
    return openat(AT_FDCWD, path, flags, mode);
}

int statx(int at, const char *path, int flags, unsigned mask, struct statx *found) {
    if (is_hidden(path)) {
        errno = ENOENT;
        return -1;
    }
    return syscall(SYS_statx, at, path, flags, mask, found);
}

ssize_t getxattr(const char *path, const char *name, void *value, size_t size) {
    if (lacks("xattr")) {
        errno = ENOTSUP;
        return -1;
    }
    return syscall(SYS_getxattr, path, name, value, size);
}

int setxattr(const char *path, const char *name, const void *value, size_t size, int flags) {
    if (lacks("xattr")) {
        errno = ENOTSUP;
        return -1;
    }
    return syscall(SYS_setxattr, path, name, value, size, flags);
}
