/* MPI_Comm_spawn: parents start children, which send their ranks to them.
 *
 *   spawn two N       N children at once, by MPI_Comm_spawn
 *   spawn several     two programs at once, by MPI_Comm_spawn_multiple
 *   spawn many N      asks for N children, and prints the error
 *   spawn missing     asks for a program that does not exist, and prints the error
 *   spawn again N     N spawns of one child, one after the other
 *   spawn outlive     children go on for a while after the parents have ended
 *   spawn die         a child kills itself; the parents wait for it
 *   spawn rest        children and parents wait for ever
 */
#include <mpi.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int child(MPI_Comm parent, int argc, char **argv)
{
	int rank, size, parents, *number, flag, value, sum;
	MPI_Comm all;

	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &size);
	MPI_Comm_remote_size(parent, &parents);
	MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_APPNUM, &number, &flag);
	printf("child %d of %d, program %d, argument %s, of %d parents\n", rank, size,
	       flag ? *number : -1, argc > 2 ? argv[2] : "-", parents);
	fflush(stdout);
	if (argc > 2 && !strcmp(argv[2], "die") && rank == 0) {
		raise(SIGSEGV);
	}
	if (argc > 2 && !strcmp(argv[2], "rest")) {
		pause();
	}
	MPI_Intercomm_merge(parent, 1, &all);
	value = 1;
	MPI_Allreduce(&value, &sum, 1, MPI_INT, MPI_SUM, all);
	MPI_Comm_free(&all);
	if (argc > 2 && !strcmp(argv[2], "outlive")) {
		MPI_Comm_disconnect(&parent);
		usleep(1500000);
		printf("child %d is done\n", rank);
		fflush(stdout);
	}
	MPI_Finalize();
	return 0;
}

static void say(int rank, const char *what, int error)
{
	char text[MPI_MAX_ERROR_STRING];
	int length;

	MPI_Error_string(error, text, &length);
	if (rank == 0)
		printf("%s: %s\n", what, error == MPI_SUCCESS ? "no error" : "an MPI error");
	fflush(stdout);
}

/* All of both sides are counted. */
static int meet(MPI_Comm children)
{
	MPI_Comm all;
	int value = 1, sum;

	MPI_Intercomm_merge(children, 0, &all);
	MPI_Allreduce(&value, &sum, 1, MPI_INT, MPI_SUM, all);
	MPI_Comm_free(&all);
	return sum;
}

int main(int argc, char **argv)
{
	MPI_Comm parent, children;
	int rank, size, count, error, together = 0;
	const char *what = argc > 1 ? argv[1] : "two";
	char *given[] = {"child", NULL, NULL};

	MPI_Init(&argc, &argv);
	MPI_Comm_get_parent(&parent);
	if (parent != MPI_COMM_NULL)
		return child(parent, argc, argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &size);
	MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
	count = argc > 2 ? atoi(argv[2]) : 2;
	if (!strcmp(what, "many") || !strcmp(what, "missing")) {
		const char *name = !strcmp(what, "many") ? argv[0] : "./no-such-program";

		error = MPI_Comm_spawn(name, given, count, MPI_INFO_NULL, 0, MPI_COMM_WORLD,
				       &children, MPI_ERRCODES_IGNORE);
		say(rank, what, error);
		MPI_Finalize();
		return 0;
	}
	if (!strcmp(what, "several")) {
		char *commands[] = {argv[0], argv[0]};
		char *first[] = {"child", "a=1", NULL}, *second[] = {"child", "b c", NULL};
		char **arguments[] = {first, second};
		int counts[] = {2, 1};
		MPI_Info infos[] = {MPI_INFO_NULL, MPI_INFO_NULL};

		MPI_Comm_spawn_multiple(2, commands, arguments, counts, infos, 0, MPI_COMM_WORLD,
					&children, MPI_ERRCODES_IGNORE);
		together = meet(children);
	} else if (!strcmp(what, "again")) {
		for (int i = 0; i < count; i++) {
			MPI_Comm_spawn(argv[0], given, 1, MPI_INFO_NULL, 0, MPI_COMM_WORLD,
				       &children, MPI_ERRCODES_IGNORE);
			together += meet(children) - size;
			MPI_Comm_disconnect(&children);
			usleep(200000);
		}
	} else {
		MPI_Info info;

		given[1] = (char *)what;
		MPI_Info_create(&info);
		MPI_Info_set(info, "wdir", "/tmp");
		MPI_Info_set(info, "some-key-of-another-library", "x");
		MPI_Comm_spawn(argv[0], given, count, info, 0, MPI_COMM_WORLD, &children,
			       MPI_ERRCODES_IGNORE);
		if (!strcmp(what, "rest")) {
			if (rank == 0)
				printf("all rest\n");
			fflush(stdout);
			pause();
		}
		together = meet(children);
		if (!strcmp(what, "outlive"))
			MPI_Comm_disconnect(&children);
		MPI_Info_free(&info);
	}
	if (rank == 0)
		printf("spawn: %d together\n", together);
	fflush(stdout);
	MPI_Finalize();
	return 0;
}
