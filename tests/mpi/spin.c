// SPDX-License-Identifier: Apache-2.0
// Burns processor time, no MPI: spin SECONDS computes until it has used so much CPU time, however
// often it is suspended meanwhile, and prints how long it took: "spin: cpu 1.000 s, wall 2.013 s".
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static double now(clockid_t clock)
{
    struct timespec t;
    clock_gettime(clock, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

int main(int argc, char **argv)
{
    double seconds = argc > 1 ? atof(argv[1]) : 0;
    if (seconds <= 0) {
        fputs("usage: spin SECONDS_OF_CPU\n", stderr);
        return 2;
    }
    double begin = now(CLOCK_MONOTONIC);
    volatile unsigned long work = 0;
    // Looking at the clock is a system call for CPU time: done seldom, it does not count.
    while (now(CLOCK_PROCESS_CPUTIME_ID) < seconds)
        for (int i = 0; i < 100000; i++)
            work += (unsigned long)i;
    printf("spin: cpu %.3f s, wall %.3f s\n", now(CLOCK_PROCESS_CPUTIME_ID),
           now(CLOCK_MONOTONIC) - begin);
    return 0;
}
