/* A wall clock that can be put forward and back: CLOCK_REALTIME and so many seconds as the file that the
   variable WALL names says. To be preloaded. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

int clock_gettime(clockid_t clock, struct timespec *time)
{
    int (*real)(clockid_t, struct timespec *) = dlsym(RTLD_NEXT, "clock_gettime");
    int result = real(clock, time);
    const char *path = getenv("WALL");
    FILE *file = result == 0 && clock == CLOCK_REALTIME && path ? fopen(path, "r") : NULL;
    if (file) {
        long ahead = 0;
        if (fscanf(file, "%ld", &ahead) == 1)
            time->tv_sec += ahead;
        fclose(file);
    }
    return result;
}
