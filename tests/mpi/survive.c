/* A rank dies, and the others go on without it: survive RANK. It needs a library with MPI's fault tolerance
 * (User Level Failure Mitigation), such as Open MPI 5, and `tutti run --on-rank-failure notify`. */
#include <mpi.h>
#include <mpi-ext.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

int main(int argc, char **argv) {
    int rank, size, class, died = argc > 1 ? atoi(argv[1]) : 1, sum = 0, one = 1;
    MPI_Comm left;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == died) raise(SIGKILL);
    /* It will never come: without a word of its end this waits for ever. */
    int got = MPI_Recv(&one, 1, MPI_INT, died, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Error_class(got, &class);
    if (class != MPIX_ERR_PROC_FAILED) {
        printf("rank %d: class %d\n", rank, class);
        MPI_Abort(MPI_COMM_WORLD, 3);
    }
    one = 1;
    MPIX_Comm_shrink(MPI_COMM_WORLD, &left);
    MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, left);
    MPI_Comm_rank(left, &rank);
    MPI_Comm_size(left, &size);
    if (rank == 0) printf("survive: %d of %d went on\n", sum, size + 1);
    MPI_Comm_free(&left);
    MPI_Finalize();
    return 0;
}
