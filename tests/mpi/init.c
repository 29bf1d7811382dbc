// SPDX-License-Identifier: Apache-2.0
// Begins and ends MPI, nothing else: what a launcher and its process management cost.
#include <mpi.h>

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    MPI_Finalize();
    return 0;
}
