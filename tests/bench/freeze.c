// SPDX-License-Identifier: Apache-2.0
// Two groups of processes take turns by the freezer of cgroup2, with nothing around it: what a switch
// costs at least.
//
//   freeze DIRECTORY PROCESSES busy|idle SWITCHES PAUSE_MS
//
// Makes the groups a and b in DIRECTORY, each with a binary tree of so many processes. Prints the
// microseconds of each switch, from the request to freeze one to the other's being thawed, one a line.
#define _GNU_SOURCE
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static int gun[2], ready[2], idle;

static void nap(long us) { nanosleep(&(struct timespec){us / 1000000, us % 1000000 * 1000}, NULL); }

static double now_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

static int file(const char *group, const char *name, int flags)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", group, name);
    int fd = open(path, flags | O_CLOEXEC);
    if (fd < 0) perror(path), exit(1);
    return fd;
}

// This process is the top of a tree of n. It begins once all are there.
static void tree(int n)
{
    for (int half = 0; half < 2; half++) {
        int below = half ? (n - 1) / 2 : n / 2, pid = below ? fork() : 1;
        if (pid < 0) perror("fork"), exit(1);
        if (pid == 0) tree(below);
    }
    char byte = 0;
    if (write(ready[1], &byte, 1) != 1 || read(gun[0], &byte, 1) != 0) _exit(1);
    for (volatile unsigned long i = 0;; i++)
        if (idle) pause();
}

int main(int argc, char **argv)
{
    if (argc != 6) return fprintf(stderr, "freeze DIRECTORY PROCESSES busy|idle SWITCHES PAUSE_MS\n"), 2;
    int n = atoi(argv[2]), switches = atoi(argv[4]), freezer[2], events[2];
    long pause_us = atol(argv[5]) * 1000;
    idle = !strcmp(argv[3], "idle");
    // Whoever starts this holds signals back that end him and this, and so would this.
    sigset_t none;
    sigprocmask(SIG_SETMASK, (sigemptyset(&none), &none), NULL);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    char group[2][4000], text[256];
    if (pipe(gun) || pipe(ready)) return 1;
    for (int g = 0; g < 2; g++) {
        snprintf(group[g], sizeof group[g], "%s/%c", argv[1], 'a' + g);
        if (mkdir(group[g], 0755)) return perror(group[g]), 1;
        if (fork() == 0) {
            close(gun[1]);
            if (write(file(group[g], "cgroup.procs", O_WRONLY), "0", 1) != 1) _exit(1);
            tree(n);
        }
        freezer[g] = file(group[g], "cgroup.freeze", O_WRONLY);
        events[g] = file(group[g], "cgroup.events", O_RDONLY);
    }
    for (int i = 0; i < 2 * n; i++)
        if (read(ready[0], text, 1) != 1) return 1;
    sched_setscheduler(0, SCHED_FIFO, &(struct sched_param){50});
    mlockall(MCL_CURRENT | MCL_FUTURE);
    if (write(freezer[1], "1", 1) != 1) return 1;
    close(gun[1]);
    for (int i = 0; i < switches; i++) {
        nap(pause_us);
        double begin = now_us();
        if (pwrite(freezer[i % 2], "1", 1, 0) != 1) return 1;
        for (;; nap(30)) {
            ssize_t length = pread(events[i % 2], text, sizeof text - 1, 0);
            text[length < 0 ? 0 : length] = 0;
            if (strstr(text, "frozen 1")) break;
        }
        if (pwrite(freezer[1 - i % 2], "0", 1, 0) != 1) return 1;
        printf("%.1f\n", now_us() - begin);
    }
    for (int g = 0; g < 2; g++) {
        if (write(file(group[g], "cgroup.kill", O_WRONLY), "1", 1) != 1) return 1;
        while (rmdir(group[g])) nap(1000);
    }
    return 0;
}
