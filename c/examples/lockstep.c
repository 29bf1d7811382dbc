/*
 * An MPI program that works with a device that only one job may use at a time:
 *
 *     mpicc -pthread -I c c/examples/lockstep.c c/tutti-vacate.c -o lockstep
 *     tutti run -n 2 --vacate 100ms ./lockstep /tmp/device.lock 10
 *
 * All ranks agree after each step whether to give the device up, so that none of them waits for a
 * message of a rank that has stopped. The first rank of each node holds FILE by a lock, as a
 * stand-in for the device. Ends with 1 if another job holds it at the same time.
 */
#define _GNU_SOURCE
#include "tutti-vacate.h"

#include <fcntl.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <unistd.h>

static const char *path;
static int is_holder, device = -1;

static void acquire(void) {
    if (!is_holder)
        return;
    device = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (device < 0 || flock(device, LOCK_EX | LOCK_NB) != 0) {
        perror(path);
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
}

int main(int count, char **words) {
    const char *local = getenv("TUTTI_LOCAL_RANK");
    tutti_vacate *vacate;
    unsigned long steps = 0, turns = 0;
    double began, sum = 0;
    int rank;
    MPI_Init(&count, &words);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (count != 3) {
        if (rank == 0)
            fprintf(stderr, "usage: lockstep FILE SECONDS\n");
        MPI_Finalize();
        return 2;
    }
    path = words[1];
    is_holder = local == NULL || atoi(local) == 0;
    vacate = tutti_vacate_register();
    acquire();
    began = MPI_Wtime();
    for (;;) {
        double mine = steps, all;
        int event = 0, asked[2], any[2];
        for (int i = 0; i < 100000; i++)
            mine += i * 1e-9;
        MPI_Allreduce(&mine, &all, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
        sum += all;
        steps++;
        if (vacate != NULL)
            event = tutti_vacate_wait(vacate, 0);
        asked[0] = event == TUTTI_VACATE_NOTICE;
        asked[1] = MPI_Wtime() - began > atof(words[2]);
        MPI_Allreduce(asked, any, 2, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
        if (any[0]) {
            if (device >= 0)
                close(device);
            device = -1;
            /* The notices of the others came some microseconds sooner. */
            if (event != TUTTI_VACATE_NOTICE)
                event = tutti_vacate_wait(vacate, 1000);
            tutti_vacate_ready(vacate);
            while (event == TUTTI_VACATE_NOTICE &&
                   tutti_vacate_wait(vacate, -1) != TUTTI_VACATE_RESUME) {
            }
            acquire();
            turns++;
        }
        if (any[1])
            break;
    }
    if (device >= 0)
        close(device);
    tutti_vacate_stop(vacate);
    if (rank == 0)
        printf("%lu steps, gave the device up %lu times, sum %g\n", steps, turns, sum);
    MPI_Finalize();
    return 0;
}
