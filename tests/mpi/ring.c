// SPDX-License-Identifier: Apache-2.0
// A token goes round all ranks. Each hop needs the next rank to run, so this shows at once when a
// job's processes are not switched together.
//
//   ring [ROUNDS]     default 100; prints "ring: N ranks, R rounds, ok" from rank 0
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    int rank, size;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    long rounds = argc > 1 ? atol(argv[1]) : 100;
    int next = (rank + 1) % size, previous = (rank + size - 1) % size;

    // Every rank adds its number, so a hop that is lost, doubled or out of order changes the sum.
    long token = 0;
    for (long round = 0; round < rounds; round++) {
        if (rank == 0) {
            MPI_Sendrecv_replace(&token, 1, MPI_LONG, next, 0, previous, 0, MPI_COMM_WORLD,
                                 MPI_STATUS_IGNORE);
        } else {
            MPI_Recv(&token, 1, MPI_LONG, previous, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            token += rank;
            MPI_Send(&token, 1, MPI_LONG, next, 0, MPI_COMM_WORLD);
        }
    }

    int failed = 0;
    if (rank == 0) {
        long expected = rounds * ((long)size * (size - 1) / 2);
        failed = token != expected;
        printf("ring: %d ranks, %ld rounds, %s\n", size, rounds, failed ? "WRONG" : "ok");
    }
    MPI_Finalize();
    return failed;
}
