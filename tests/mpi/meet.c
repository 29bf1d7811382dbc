/* MPI_Comm_accept and MPI_Comm_connect: two steps of a job meet by a published name.
 *
 *   meet serve NAME     opens a port, publishes it, and accepts one connection
 *   meet join NAME      looks the name up for up to 20 s, and connects
 *   meet find NAME      looks the name up once, and prints whether it is there
 */
#include <mpi.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static int look_up(const char *name, char *port, int tries)
{
	MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
	MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
	while (MPI_Lookup_name(name, MPI_INFO_NULL, port) != MPI_SUCCESS) {
		if (--tries <= 0)
			return 0;
		usleep(100000);
	}
	return 1;
}

int main(int argc, char **argv)
{
	char port[MPI_MAX_PORT_NAME] = "";
	MPI_Comm other, all;
	int rank, size, value = 1, sum = 0, found = 0;

	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &size);
	if (argc < 3) {
		MPI_Finalize();
		return 2;
	}
	if (!strcmp(argv[1], "find")) {
		if (rank == 0)
			puts(look_up(argv[2], port, 1) ? "there" : "not there");
		MPI_Finalize();
		return 0;
	}
	if (!strcmp(argv[1], "serve")) {
		if (rank == 0) {
			MPI_Open_port(MPI_INFO_NULL, port);
			MPI_Publish_name(argv[2], MPI_INFO_NULL, port);
			puts("published");
			fflush(stdout);
		}
		MPI_Comm_accept(port, MPI_INFO_NULL, 0, MPI_COMM_WORLD, &other);
	} else {
		if (rank == 0)
			found = look_up(argv[2], port, 200);
		MPI_Bcast(&found, 1, MPI_INT, 0, MPI_COMM_WORLD);
		if (!found)
			MPI_Abort(MPI_COMM_WORLD, 3);
		MPI_Comm_connect(port, MPI_INFO_NULL, 0, MPI_COMM_WORLD, &other);
	}
	MPI_Intercomm_merge(other, !strcmp(argv[1], "join"), &all);
	MPI_Allreduce(&value, &sum, 1, MPI_INT, MPI_SUM, all);
	MPI_Comm_free(&all);
	MPI_Comm_disconnect(&other);
	if (rank == 0) {
		printf("%s: %d of us, %d together\n", argv[1], size, sum);
		if (!strcmp(argv[1], "serve")) {
			MPI_Unpublish_name(argv[2], MPI_INFO_NULL, port);
			MPI_Close_port(port);
		}
	}
	fflush(stdout);
	MPI_Finalize();
	return 0;
}
