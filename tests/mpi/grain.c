// SPDX-License-Identifier: Apache-2.0
// Ranks that compute for a tenth of a millisecond and then need each other: the grain at which it
// decides whether the processes of a job run at the same time.
//
//   grain [ROUNDS]     default 1000; prints "grain: N ranks, R rounds, ok" from rank 0
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

// Steps that took GRAIN_S alone, when the program began.
#define GRAIN_S 100e-6

static void compute(long steps)
{
    for (volatile long i = 0; i < steps; i++) {}
}

static long calibrate(void)
{
    // The best of some: whoever else ran meanwhile must not make the grain finer.
    double best = 1;
    for (int i = 0; i < 50; i++) {
        double begin = MPI_Wtime();
        compute(100000);
        double took = MPI_Wtime() - begin;
        if (took < best) best = took;
    }
    return (long)(100000 * GRAIN_S / best);
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    int rank, size;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    long rounds = argc > 1 ? atol(argv[1]) : 1000, steps = calibrate(), sum = 0;
    for (long round = 0; round < rounds; round++) {
        compute(steps);
        long all = 0, one = round + rank;
        MPI_Allreduce(&one, &all, 1, MPI_LONG, MPI_SUM, MPI_COMM_WORLD);
        sum += all - size * round;
    }
    int ok = sum == rounds * size * (size - 1) / 2;
    if (rank == 0 && ok) printf("grain: %d ranks, %ld rounds, ok\n", size, rounds);
    MPI_Finalize();
    return !ok;
}
