/*
 * Works with a device that only one job may use at a time: device FILE SECONDS
 *
 * Holds FILE by a lock, as a stand-in for the device, while the job has its turn, and gives it up
 * at each notice. Ends with 1 if another job holds it at the same time.
 *
 *     cc -pthread -I c c/examples/device.c c/tutti-vacate.c -o device
 *     tutti run --vacate 50ms ./device /tmp/device.lock 10
 */
#define _GNU_SOURCE
#include "tutti-vacate.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <time.h>
#include <unistd.h>

static const char *path;

static int acquire(void) {
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (fd < 0 || flock(fd, LOCK_EX | LOCK_NB) != 0) {
        perror(path);
        exit(1);
    }
    return fd;
}

int main(int count, char **words) {
    tutti_vacate *vacate = tutti_vacate_register();
    unsigned long steps = 0, turns = 0;
    volatile double sum = 0;
    time_t end;
    int device;
    if (count != 3) {
        fprintf(stderr, "usage: device FILE SECONDS\n");
        return 2;
    }
    path = words[1];
    end = time(NULL) + atoi(words[2]);
    device = acquire();
    while (time(NULL) < end) {
        /* Between two steps the program can give the device up. */
        if (vacate != NULL && tutti_vacate_wait(vacate, 0) == TUTTI_VACATE_NOTICE) {
            close(device);
            tutti_vacate_ready(vacate);
            while (tutti_vacate_wait(vacate, -1) != TUTTI_VACATE_RESUME) {
            }
            device = acquire();
            turns++;
        }
        for (int i = 0; i < 100000; i++)
            sum += i;
        steps++;
    }
    close(device);
    tutti_vacate_stop(vacate);
    printf("%lu steps, gave the device up %lu times\n", steps, turns);
    return 0;
}
