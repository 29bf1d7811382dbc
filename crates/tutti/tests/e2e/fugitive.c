/* Ways in which an ordinary user's process may try to leave its task. Each ends with a sleep of the given
   length somewhere, while the task itself waits. `fugitive WAY LENGTH [MORE]`. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static const char *length, *more;

/* Has tasks spawned by PMI, and tries to trace each process that comes then, from its first moment on.
   How many it got that are Tutti's own, beside the job. */
static int seize_helpers(void) {
    const char *init = "cmd=init pmi_version=1 pmi_subversion=1\n";
    const char *spawn =
        "mcmd=spawn\nnprocs=1\nexecname=/bin/true\ntotspawns=1\nspawnssofar=1\nargcnt=0\n"
        "preput_num=0\ninfo_num=0\nendcmd\n";
    int fd = atoi(getenv("PMI_FD")), got = 0;
    char text[4096], path[64];
    if (write(fd, init, strlen(init)) < 0 || read(fd, text, sizeof text) <= 0) return -1;
    for (int round = 0; round < 5; round++) {
        pid_t first = fork();
        if (first == 0) _exit(0);
        waitpid(first, NULL, 0);
        if (write(fd, spawn, strlen(spawn)) < 0) return -1;
        struct timespec begin, now;
        clock_gettime(CLOCK_MONOTONIC, &begin);
        do {
            for (pid_t pid = first + 1; pid < first + 16; pid++) {
                if (ptrace(PTRACE_SEIZE, pid, 0, 0) != 0) continue;
                snprintf(path, sizeof path, "/proc/%d/exe", pid);
                ssize_t size = readlink(path, text, sizeof text - 1);
                text[size > 0 ? size : 0] = 0;
                const char *name = strrchr(text, '/');
                got += name && strcmp(name, "/tutti") == 0;
                ptrace(PTRACE_INTERRUPT, pid, 0, 0);
                waitpid(pid, NULL, __WALL);
                ptrace(PTRACE_DETACH, pid, 0, 0);
            }
            clock_gettime(CLOCK_MONOTONIC, &now);
        } while ((now.tv_sec - begin.tv_sec) * 1000 + (now.tv_nsec - begin.tv_nsec) / 1000000 < 300);
        if (read(fd, text, sizeof text) <= 0) return -1;
    }
    return got;
}

static void sleep_long(void) {
    execl("/bin/sleep", "sleep", length, (char *)NULL);
    _exit(127);
}

/* A process that sleeps, whose parent has ended. */
static void orphan(void) {
    pid_t pid = fork();
    if (pid == 0) {
        if (fork() == 0) sleep_long();
        _exit(0);
    }
    waitpid(pid, NULL, 0);
}

static int file_write(const char *path, const char *text) {
    int fd = open(path, O_WRONLY);
    if (fd < 0) return 0;
    ssize_t done = write(fd, text, strlen(text));
    close(fd);
    return done > 0;
}

/* Tries to move itself into each group of this hierarchy from its own up to the top, and into one that
   it makes there. How often it could. */
static int move_up(const char *mount, const char *group) {
    char path[8192];
    int moved = 0;
    snprintf(path, sizeof path, "%s%s", mount, group);
    for (;;) {
        char file[8300];
        snprintf(file, sizeof file, "%s/cgroup.procs", path);
        /* Its own is no way out. */
        char own[8192];
        snprintf(own, sizeof own, "%s%s", mount, group);
        if (strcmp(path, own) != 0) moved += file_write(file, "0");
        snprintf(file, sizeof file, "%s/fugitive", path);
        if (mkdir(file, 0755) == 0) {
            snprintf(file, sizeof file, "%s/fugitive/cgroup.procs", path);
            moved += file_write(file, "0");
        }
        char *slash = strrchr(path, '/');
        if (!slash || slash <= path + strlen(mount) - 1) break;
        *slash = 0;
    }
    return moved;
}

static int move_in_all(void) {
    FILE *groups = fopen("/proc/self/cgroup", "r");
    char line[8192];
    int moved = 0;
    while (groups && fgets(line, sizeof line, groups)) {
        line[strcspn(line, "\n")] = 0;
        char *names = strchr(line, ':'), *group = names ? strchr(names + 1, ':') : NULL;
        if (!group) continue;
        *group++ = 0;
        names++;
        char mount[256];
        if (*names) {
            snprintf(mount, sizeof mount, "/sys/fs/cgroup/%s", names);
            moved += move_up(mount, group);
        } else {
            moved += move_up("/sys/fs/cgroup/unified", group);
            moved += move_up("/sys/fs/cgroup", group);
        }
    }
    if (groups) fclose(groups);
    return moved;
}

/* Root in a user namespace of its own; with what else is to be new. */
static int become_root_within(int flags) {
    char map[64];
    unsigned uid = getuid(), gid = getgid();
    if (unshare(CLONE_NEWUSER | flags)) return -1;
    file_write("/proc/self/setgroups", "deny");
    snprintf(map, sizeof map, "0 %u 1", uid);
    file_write("/proc/self/uid_map", map);
    snprintf(map, sizeof map, "0 %u 1", gid);
    file_write("/proc/self/gid_map", map);
    return 0;
}

static int moved;

static void vfork_chain(int depth) {
    if (depth == 0) sleep_long();
    pid_t pid = vfork();
    if (pid == 0) {
        if (depth == 1) execl("/bin/sleep", "sleep", length, (char *)NULL);
        char left[16];
        snprintf(left, sizeof left, "%d", depth - 1);
        execl(more, more, "vfork", length, more, left, (char *)NULL);
        _exit(127);
    }
}

static void relay(void) {
    for (;;) {
        if (fork() > 0) _exit(0);
        usleep(2000);
    }
}

static void try(const char *way, char **argv) {
    pid_t pid;
    if (!strcmp(way, "setsid")) {
        if (fork() == 0) { setsid(); sleep_long(); }
    } else if (!strcmp(way, "setpgid")) {
        if (fork() == 0) { setpgid(0, 0); sleep_long(); }
    } else if (!strcmp(way, "double-fork")) {
        orphan();
    } else if (!strcmp(way, "daemon")) {
        if (fork() == 0) { if (daemon(0, 0) == 0) sleep_long(); _exit(1); }
    } else if (!strcmp(way, "clone-parent")) {
        if (syscall(SYS_clone, CLONE_PARENT | SIGCHLD, 0, 0, 0, 0) == 0) sleep_long();
    } else if (!strcmp(way, "vfork")) {
        vfork_chain(argv[4] ? atoi(argv[4]) : 5);
        if (argv[4]) _exit(0);
    } else if (!strcmp(way, "subreaper")) {
        pid = fork();
        if (pid == 0) {
            prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
            orphan();
            _exit(0);
        }
        waitpid(pid, NULL, 0);
    } else if (!strcmp(way, "namespaces")) {
        if (fork() == 0) {
            if (become_root_within(CLONE_NEWPID | CLONE_NEWNET | CLONE_NEWIPC)) _exit(1);
            if (fork() == 0) { setsid(); orphan(); sleep_long(); }
            _exit(0);
        }
    } else if (!strcmp(way, "cgroup-procs")) {
        moved = move_in_all();
        orphan();
    } else if (!strcmp(way, "cgroup-namespace")) {
        if (become_root_within(CLONE_NEWCGROUP | CLONE_NEWNS) == 0) {
            moved = move_in_all();
            /* Its own view of the hierarchy, of which it sees its own group as the top. */
            if (mount("none", more, "cgroup2", 0, NULL) == 0) {
                char file[4200];
                snprintf(file, sizeof file, "%s/fugitive", more);
                if (mkdir(file, 0755) == 0) {
                    snprintf(file, sizeof file, "%s/fugitive/cgroup.procs", more);
                    moved += file_write(file, "0");
                }
            }
        }
        orphan();
    } else if (!strcmp(way, "ptrace")) {
        pid = atoi(more);
        if (ptrace(PTRACE_ATTACH, pid, 0, 0) == 0) waitpid(pid, NULL, __WALL);
        orphan();
        ptrace(PTRACE_DETACH, pid, 0, 0);
    } else if (!strcmp(way, "seize")) {
        moved = seize_helpers();
        orphan();
    } else if (!strcmp(way, "wake")) {
        /* Continues whatever was stopped, as fast as it can. */
        for (int i = 0; i < 2; i++)
            if (fork() == 0) { for (;;) { kill(0, SIGCONT); usleep(500); } }
        orphan();
    } else if (!strcmp(way, "relay")) {
        if (fork() == 0) relay();
        orphan();
    } else if (!strcmp(way, "setuid")) {
        /* This very program, as root's. */
        if (fork() == 0) execl(more, more, "as-root", length, (char *)NULL);
    } else if (!strcmp(way, "as-root")) {
        if (setuid(0)) _exit(1);
        setsid();
        sleep_long();
    } else {
        fprintf(stderr, "no such way: %s\n", way);
        _exit(2);
    }
}

int main(int argc, char **argv) {
    if (argc < 3) return 2;
    length = argv[2];
    more = argc > 3 ? argv[3] : "";
    signal(SIGHUP, SIG_IGN);
    try(argv[1], argv);
    printf("moved %d\n", moved);
    fflush(stdout);
    for (;;) pause();
}
