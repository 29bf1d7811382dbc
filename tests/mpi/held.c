/* Tasks that stand still inside MPI until a file is there: faults come to them meanwhile.
 *
 *   held fence GO          rank 1 enters MPI_Init when GO is there; rank 0 waits for it in there
 *   held spawn GO START    rank 0 spawns two tasks when START is there; they enter MPI_Init when
 *                          GO is there
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void say(const char *what)
{
	puts(what);
	fflush(stdout);
}

static void wait_for(const char *path)
{
	while (access(path, F_OK))
		usleep(20000);
}

int main(int argc, char **argv)
{
	const char *rank = getenv("TUTTI_RANK");
	char *given[] = {"child", argc > 2 ? argv[2] : NULL, NULL};
	MPI_Comm other = MPI_COMM_NULL, all = MPI_COMM_WORLD;
	int own, value = 1, sum = 0, is_child;

	if (argc < 3)
		return 2;
	is_child = !strcmp(argv[1], "child");
	if (is_child || (!strcmp(argv[1], "fence") && rank && !strcmp(rank, "1"))) {
		say("held");
		wait_for(argv[2]);
	}
	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &own);
	if (is_child) {
		MPI_Comm_get_parent(&other);
	} else if (argc > 3) {
		if (own == 0)
			say("ready");
		wait_for(argv[3]);
		MPI_Comm_spawn(argv[0], given, 2, MPI_INFO_NULL, 0, MPI_COMM_WORLD, &other,
			       MPI_ERRCODES_IGNORE);
	}
	if (other != MPI_COMM_NULL)
		MPI_Intercomm_merge(other, is_child, &all);
	MPI_Allreduce(&value, &sum, 1, MPI_INT, MPI_SUM, all);
	if (other != MPI_COMM_NULL) {
		MPI_Comm_free(&all);
		MPI_Comm_disconnect(&other);
	}
	if (own == 0 && !is_child) {
		printf("held: %d together\n", sum);
		fflush(stdout);
	}
	MPI_Finalize();
	return 0;
}
