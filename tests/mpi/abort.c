// SPDX-License-Identifier: Apache-2.0
// Rank 1 gives up with status 7 while all others wait for it: the whole job must end with 7.
#include <mpi.h>

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    int rank;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (rank == 1)
        MPI_Abort(MPI_COMM_WORLD, 7);
    // Nobody gets past this, as rank 1 never comes.
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Finalize();
    return 0;
}
