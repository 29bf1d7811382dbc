/*
 * An MPI program that opens FILE in each of its steps, in lock step with all its ranks, and gives it up at a notice:
 *     opener FILE SECONDS
 * It ends with 1 if FILE can't be opened, and says how many steps it took and how often it gave FILE up.
 */
#include "tutti-vacate.h"

#include <fcntl.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

int main(int count, char **words) {
    unsigned long steps = 0, turns = 0;
    tutti_vacate *vacate;
    double began;
    int rank, event = 0;
    MPI_Init(&count, &words);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    vacate = tutti_vacate_register();
    began = MPI_Wtime();
    for (;;) {
        int asked[2], any[2], device;
        device = open(words[1], O_RDWR | O_CLOEXEC);
        if (device < 0) {
            perror(words[1]);
            MPI_Abort(MPI_COMM_WORLD, 1);
        }
        close(device);
        steps++;
        if (vacate != NULL)
            event = tutti_vacate_wait(vacate, 0);
        asked[0] = event == TUTTI_VACATE_NOTICE;
        asked[1] = MPI_Wtime() - began > atof(words[2]);
        MPI_Allreduce(asked, any, 2, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
        if (any[0]) {
            if (event != TUTTI_VACATE_NOTICE)
                event = tutti_vacate_wait(vacate, 1000);
            tutti_vacate_ready(vacate);
            while (event == TUTTI_VACATE_NOTICE && tutti_vacate_wait(vacate, -1) != TUTTI_VACATE_RESUME) {
            }
            turns++;
        }
        if (any[1])
            break;
    }
    tutti_vacate_stop(vacate);
    if (rank == 0)
        printf("%lu steps, gave the device up %lu times\n", steps, turns);
    MPI_Finalize();
    return 0;
}
