// SPDX-License-Identifier: Apache-2.0
// Every rank sends every other a block of its own, and checks each number that it gets.
//
//   alltoall [NUMBERS [REPEATS]]    per pair of ranks, default 4096 and 20
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

static int number_of(int from, int to, long index, long repeat)
{
    return (int)((from * 31L + to * 17L + index + repeat) & 0x7fffffff);
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    int rank, size;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    long count = argc > 1 ? atol(argv[1]) : 4096;
    long repeats = argc > 2 ? atol(argv[2]) : 20;
    int *out = malloc(sizeof(int) * (size_t)size * (size_t)count);
    int *in = malloc(sizeof(int) * (size_t)size * (size_t)count);
    if (count < 1 || !out || !in) {
        fprintf(stderr, "alltoall: no memory for %ld numbers a pair\n", count);
        MPI_Abort(MPI_COMM_WORLD, 2);
    }

    long wrong = 0;
    for (long repeat = 0; repeat < repeats; repeat++) {
        for (int to = 0; to < size; to++)
            for (long i = 0; i < count; i++)
                out[to * count + i] = number_of(rank, to, i, repeat);
        MPI_Alltoall(out, (int)count, MPI_INT, in, (int)count, MPI_INT, MPI_COMM_WORLD);
        for (int from = 0; from < size; from++)
            for (long i = 0; i < count; i++)
                wrong += in[from * count + i] != number_of(from, rank, i, repeat);
    }

    long all_wrong = 0;
    MPI_Allreduce(&wrong, &all_wrong, 1, MPI_LONG, MPI_SUM, MPI_COMM_WORLD);
    if (rank == 0)
        printf("alltoall: %d ranks, %ld numbers a pair, %ld times, %s\n", size, count, repeats,
               all_wrong ? "WRONG" : "ok");
    free(out);
    free(in);
    MPI_Finalize();
    return all_wrong != 0;
}
