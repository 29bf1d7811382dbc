/* Communicators that are made of groups: of all, and between two halves. */
#include <mpi.h>
#include <stdio.h>

int main(int argc, char **argv)
{
	MPI_Group world, halves[2];
	MPI_Comm all, other, merged;
	int rank, size, half, value = 1, sum[2] = {0, 0};

	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &size);
	MPI_Comm_group(MPI_COMM_WORLD, &world);
	MPI_Comm_create_from_group(world, "all", MPI_INFO_NULL, MPI_ERRORS_ARE_FATAL, &all);
	MPI_Allreduce(&value, &sum[0], 1, MPI_INT, MPI_SUM, all);
	for (half = 0; half < 2; half++) {
		int range[1][3] = {{half ? size / 2 : 0, half ? size - 1 : size / 2 - 1, 1}};

		MPI_Group_range_incl(world, 1, range, &halves[half]);
	}
	half = rank >= size / 2;
	MPI_Intercomm_create_from_groups(halves[half], 0, halves[!half], 0, "halves", MPI_INFO_NULL,
					 MPI_ERRORS_ARE_FATAL, &other);
	MPI_Intercomm_merge(other, half, &merged);
	MPI_Allreduce(&value, &sum[1], 1, MPI_INT, MPI_SUM, merged);
	if (rank == 0)
		printf("groups: %d, and %d of two halves\n", sum[0], sum[1]);
	fflush(stdout);
	MPI_Comm_free(&merged);
	MPI_Comm_free(&other);
	MPI_Comm_free(&all);
	MPI_Finalize();
	return 0;
}
