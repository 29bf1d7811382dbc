/* A wall clock that can be put forward and back: CLOCK_REALTIME and so many seconds as the file that the
   variable WALL names says; and a kernel that takes it to be kept, or not: the file that NTP names says by how
   many microseconds it may be off, and 1 or 0. To be preloaded. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/timex.h>
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

int adjtimex(struct timex *state)
{
    const char *path = getenv("NTP");
    FILE *file = path ? fopen(path, "r") : NULL;
    long error = 0, is_kept = 0;
    if (file) {
        if (fscanf(file, "%ld %ld", &error, &is_kept) != 2)
            is_kept = 0;
        fclose(file);
    }
    memset(state, 0, sizeof *state);
    state->maxerror = error;
    state->status = is_kept ? 0 : STA_UNSYNC;
    return is_kept ? TIME_OK : TIME_ERROR;
}
