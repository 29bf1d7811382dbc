// SPDX-License-Identifier: Apache-2.0
// A binary tree of processes, no MPI, to be tracked, suspended and killed.
//
//   tree N busy|idle
//
// N processes, the root included; "busy" ones spin, "idle" ones sleep. When all are there, the root
// prints their process numbers, root first, on one line, and goes on like the others until it is
// killed. A child whose parent ends goes on: finding those is what trackers are tested for.
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

// Seen by all processes: how many are there, and which.
struct shared {
    volatile int count;
    volatile pid_t pids[];
};

static void be(int busy)
{
    for (;;) {
        if (!busy)
            pause();
        // A volatile read keeps the compiler from taking the endless loop away.
        for (volatile int i = 0; busy && i < 1000000; i++)
            ;
    }
}

// What was started must not outlive a tree that could not be completed.
static int give_up(const struct shared *all, int n)
{
    usleep(100 * 1000);
    for (int i = 1; i < n; i++)
        if (all->pids[i] > 0)
            kill(all->pids[i], SIGKILL);
    return 1;
}

int main(int argc, char **argv)
{
    int n = argc == 3 ? atoi(argv[1]) : 0;
    int busy = argc == 3 && strcmp(argv[2], "busy") == 0;
    if (n < 1 || n > 1000000 || (!busy && (argc != 3 || strcmp(argv[2], "idle") != 0))) {
        fputs("usage: tree N busy|idle\n", stderr);
        return 2;
    }
    size_t bytes = sizeof(struct shared) + (size_t)n * sizeof(pid_t);
    struct shared *all =
        mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (all == MAP_FAILED) {
        perror("tree: mmap");
        return 1;
    }

    // Process i starts 2i + 1 and 2i + 2. The root knows of a failure below by a mark in the table.
    int index = 0;
    for (int child = 1; child <= 2; child++) {
        int child_index = 2 * index + child;
        if (child_index >= n)
            break;
        pid_t pid = fork();
        if (pid < 0) {
            perror("tree: fork");
            all->pids[child_index] = -1;
            break;
        }
        if (pid == 0) {
            index = child_index;
            child = 0;
        }
    }
    all->pids[index] = getpid();
    __sync_fetch_and_add(&all->count, 1);
    if (index != 0)
        be(busy);

    while (all->count < n) {
        for (int i = 0; i < n; i++)
            if (all->pids[i] == -1)
                return give_up(all, n);
        usleep(200);
    }
    for (int i = 0; i < n; i++)
        printf("%d%c", (int)all->pids[i], i + 1 < n ? ' ' : '\n');
    fflush(stdout);
    be(busy);
}
