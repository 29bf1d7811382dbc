// SPDX-License-Identifier: Apache-2.0
// What was tried for a faster switch, without a scheduler around it; freeze.c is its plain form.
//
//   tries DIRECTORY GROUPS PROCESSES SWITCHES ROUNDS PAUSE_MS TRY...
//
// Two sides take turns, each with so many groups of so many busy processes, by the freezer of cgroup2. The
// tries go round, so that what else the machine does hits all alike. Prints each with the median and the
// ninth tenth of the microseconds from the request to freeze one side to the other's being thawed.
#define _GNU_SOURCE
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { GROUPS_MAX = 16, TRIES_MAX = 16, YIELDS = 8 };

struct try {
    const char *name, *what;
    int other_policy, unlocked, pinned;     // pinned: all processes to processor 0, the thread to pinned - 1
    enum { NAP, NOTICE, SPIN, YIELD, NOT } wait;
    enum { AT_ONCE, IN_TURN, PARENT } order;
};

static const struct try TRIES[] = {
    {"plain", "real-time priority, locked memory, naps of 30 us", .wait = NAP},
    {"ordinary", "the ordinary policy instead", .other_policy = 1},
    {"unlocked", "memory not locked", .unlocked = 1},
    {"notices", "poll on cgroup.events instead of naps", .wait = NOTICE},
    {"spin", "reading again without a pause", .wait = SPIN},
    {"yield", "eight yields as an ordinary thread before naps", .wait = YIELD},
    {"early", "the others go on before these have stopped", .wait = NOT},
    {"in-turn", "each group is waited for before the next is asked", .order = IN_TURN},
    {"parent", "the group above all of a side", .order = PARENT},
    {"beside", "all processes on one processor, and the thread too", .pinned = 1},
    {"aside", "all processes on one processor, the thread on another", .pinned = 2},
};

struct side { char path[4000]; int groups, freezer[GROUPS_MAX + 1], events[GROUPS_MAX + 1]; };

static int gun[2], ready[2];

static void die(const char *what) { perror(what); exit(1); }
static void nap(long us) { nanosleep(&(struct timespec){us / 1000000, us % 1000000 * 1000}, NULL); }

static double now_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

static int file(const char *group, const char *name, int flags)
{
    char path[5000];
    snprintf(path, sizeof path, "%s/%s", group, name);
    int fd = open(path, flags | O_CLOEXEC);
    if (fd < 0) die(path);
    return fd;
}

static void put(int fd, const char *text) { if (pwrite(fd, text, 1, 0) != 1) die("cgroup"); }

static int frozen(int fd)
{
    char text[256];
    ssize_t length = pread(fd, text, sizeof text - 1, 0);
    text[length < 0 ? 0 : length] = 0;
    return strstr(text, "frozen 1") != NULL;
}

// A process that begins with a group's others, once all are there.
static void busy(const char *group)
{
    close(gun[1]);
    if (write(file(group, "cgroup.procs", O_WRONLY), "0", 1) != 1) _exit(1);
    char byte = 0;
    if (write(ready[1], &byte, 1) != 1 || read(gun[0], &byte, 1) != 0) _exit(1);
    for (volatile unsigned long i = 0;; i++) {}
}

static void make(struct side *side, int groups, int processes)
{
    side->groups = groups;
    if (mkdir(side->path, 0755)) die(side->path);
    for (int g = 0; g <= groups; g++) {
        char path[4100];
        snprintf(path, sizeof path, g ? "%s/%d" : "%s", side->path, g);
        if (g && mkdir(path, 0755)) die(path);
        side->freezer[g] = file(path, "cgroup.freeze", O_WRONLY);
        side->events[g] = file(path, "cgroup.events", O_RDONLY);
        for (int p = 0; g && p < processes; p++)
            if (fork() == 0) busy(path);
    }
}

static void pin_side(const struct side *side, const cpu_set_t *set)
{
    for (int g = 1; g <= side->groups; g++) {
        char path[4100];
        snprintf(path, sizeof path, "%s/%d/cgroup.procs", side->path, g);
        FILE *pids = fopen(path, "r");
        int pid;
        while (pids && fscanf(pids, "%d", &pid) == 1) sched_setaffinity(pid, sizeof *set, set);
        if (pids) fclose(pids);
    }
}

static void await(const struct try *try, int fd)
{
    struct pollfd notice = {.fd = fd, .events = POLLPRI};
    int yields = 0;
    while (try->wait != NOT && !frozen(fd)) {
        if (try->wait == NOTICE) poll(&notice, 1, 1000);
        else if (try->wait == YIELD && yields++ < YIELDS) sched_yield();
        else if (try->wait != SPIN) nap(30);
    }
}

static void stop(const struct try *try, const struct side *side)
{
    int first = try->order == PARENT ? 0 : 1, last = try->order == PARENT ? 0 : side->groups;
    struct sched_param ordinary = {0}, realtime = {.sched_priority = 50};
    for (int g = first; g <= last; g++) {
        put(side->freezer[g], "1");
        if (try->order == IN_TURN) await(try, side->events[g]);
    }
    if (try->wait == YIELD) sched_setscheduler(0, SCHED_OTHER, &ordinary);
    for (int g = first; g <= last; g++) await(try, side->events[g]);
    if (try->wait == YIELD) sched_setscheduler(0, SCHED_FIFO, &realtime);
}

static void resume(const struct try *try, const struct side *side)
{
    int first = try->order == PARENT ? 0 : 1, last = try->order == PARENT ? 0 : side->groups;
    for (int g = first; g <= last; g++) put(side->freezer[g], "0");
}

static void prepare(const struct try *try, struct side side[2])
{
    cpu_set_t all, one, other;
    CPU_ZERO(&all);
    CPU_ZERO(&one);
    CPU_ZERO(&other);
    for (int cpu = 0; cpu < sysconf(_SC_NPROCESSORS_ONLN); cpu++) CPU_SET(cpu, &all);
    CPU_SET(0, &one);
    CPU_SET(1, &other);
    for (int s = 0; s < 2; s++) pin_side(&side[s], try->pinned ? &one : &all);
    sched_setaffinity(0, sizeof all, try->pinned == 2 ? &other : try->pinned ? &one : &all);
    struct sched_param param = {.sched_priority = try->other_policy ? 0 : 50};
    if (sched_setscheduler(0, try->other_policy ? SCHED_OTHER : SCHED_FIFO, &param)) die("priority");
    setpriority(PRIO_PROCESS, 0, try->wait == YIELD ? -20 : 0);
    if (try->unlocked ? munlockall() : mlockall(MCL_CURRENT | MCL_FUTURE)) die("mlockall");
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void finish(const struct side *side)
{
    if (write(file(side->path, "cgroup.kill", O_WRONLY), "1", 1) != 1) die("cgroup.kill");
    for (int g = side->groups; g >= 0; g--) {
        char path[4100];
        snprintf(path, sizeof path, g ? "%s/%d" : "%s", side->path, g);
        while (rmdir(path)) nap(1000);
    }
}

int main(int argc, char **argv)
{
    int known = sizeof TRIES / sizeof *TRIES, wanted = argc - 7;
    if (argc < 8 || wanted > TRIES_MAX) {
        fprintf(stderr, "tries DIRECTORY GROUPS PROCESSES SWITCHES ROUNDS PAUSE_MS TRY...\n");
        for (int t = 0; t < known; t++) fprintf(stderr, "  %-10s%s\n", TRIES[t].name, TRIES[t].what);
        return 2;
    }
    int groups = atoi(argv[2]), processes = atoi(argv[3]), switches = atoi(argv[4]), rounds = atoi(argv[5]);
    long pause_us = atol(argv[6]) * 1000;
    if (groups < 1 || groups > GROUPS_MAX || processes < 1 || switches < 1 || rounds < 1) return 2;
    const struct try *chosen[TRIES_MAX] = {0};
    double *times[TRIES_MAX];
    for (int w = 0; w < wanted; w++) {
        for (int t = 0; t < known; t++)
            if (!strcmp(argv[7 + w], TRIES[t].name)) chosen[w] = &TRIES[t];
        if (!chosen[w]) return fprintf(stderr, "%s is no try\n", argv[7 + w]), 2;
        times[w] = calloc((size_t)(rounds * switches), sizeof(double));
    }
    struct side side[2];
    if (pipe(gun) || pipe(ready)) die("pipe");
    signal(SIGCHLD, SIG_IGN);
    for (int s = 0; s < 2; s++) {
        snprintf(side[s].path, sizeof side[s].path, "%s/%c", argv[1], 'a' + s);
        make(&side[s], groups, processes);
    }
    char byte;
    for (int i = 0; i < 2 * groups * processes; i++)
        if (read(ready[0], &byte, 1) != 1) return 1;
    stop(&TRIES[0], &side[1]);
    close(gun[1]);
    for (int i = 0, now = 0; i < rounds * wanted * switches; i++, now = 1 - now) {
        int t = i / switches % wanted, round = i / switches / wanted;
        const struct try *try = chosen[t];
        if (i % switches == 0) {
            // All are stopped by their own groups, whoever was used for it before.
            for (int s = 0; s < 2; s++) put(side[s].freezer[0], "0");
            prepare(try, side);
            stop(try->order == PARENT ? try : &TRIES[0], &side[1 - now]);
            resume(&TRIES[0], &side[try->order == PARENT ? 1 - now : now]);
            resume(&TRIES[0], &side[now]);
        }
        nap(pause_us);
        double begin = now_us();
        stop(try, &side[now]);
        resume(try, &side[1 - now]);
        times[t][round * switches + i % switches] = now_us() - begin;
        if (try->wait == NOT) nap(20000);
    }
    for (int w = 0; w < wanted; w++) {
        int count = rounds * switches;
        qsort(times[w], (size_t)count, sizeof(double), ascending);
        printf("%-10s%10.1f%10.1f\n", chosen[w]->name, times[w][count / 2], times[w][count * 9 / 10]);
    }
    for (int s = 0; s < 2; s++) finish(&side[s]);
    return 0;
}
