// SPDX-License-Identifier: Apache-2.0
// Names by which jobs find each other. The "port" is a made-up text: what is tested is the name
// service of the launcher, not MPI's connections.
//
//   publish self NAME          publishes, finds, takes back and no longer finds NAME
//   publish offer NAME PORT    publishes NAME (PORT without blanks: MPICH 4 can not read an answer
//                              with one), says "offered", waits for the end of its input
//   publish find NAME          looks for NAME for 10 s, prints "found PORT"
//
// Only rank 0 acts. Exit status 1 if something is not as it should be.
#include <mpi.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

static int lookup(const char *name, char *port)
{
    return MPI_Lookup_name(name, MPI_INFO_NULL, port) == MPI_SUCCESS;
}

static int self(const char *name)
{
    char port[MPI_MAX_PORT_NAME] = "";
    if (lookup(name, port))
        return puts("publish: the name was there before"), 1;
    if (MPI_Publish_name(name, MPI_INFO_NULL, "here#1$") != MPI_SUCCESS)
        return puts("publish: could not publish"), 1;
    if (MPI_Publish_name(name, MPI_INFO_NULL, "there#2$") == MPI_SUCCESS)
        return puts("publish: published a name twice"), 1;
    if (!lookup(name, port) || strcmp(port, "here#1$") != 0)
        return printf("publish: found '%s'\n", port), 1;
    if (MPI_Unpublish_name(name, MPI_INFO_NULL, "here#1$") != MPI_SUCCESS)
        return puts("publish: could not take it back"), 1;
    if (lookup(name, port))
        return puts("publish: still there after it was taken back"), 1;
    return puts("publish: ok"), 0;
}

static int offer(const char *name, const char *port)
{
    if (MPI_Publish_name(name, MPI_INFO_NULL, port) != MPI_SUCCESS)
        return puts("publish: could not publish"), 1;
    puts("offered");
    fflush(stdout);
    while (getchar() != EOF)
        ;
    return 0;
}

static int find(const char *name)
{
    char port[MPI_MAX_PORT_NAME] = "";
    const struct timespec pause = {.tv_nsec = 50 * 1000 * 1000};
    for (int tries = 0; tries < 200; tries++) {
        if (lookup(name, port))
            return printf("found %s\n", port), 0;
        nanosleep(&pause, NULL);
    }
    return puts("publish: not found"), 1;
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    int rank, failed = 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    // Failures are to be seen here, not to end the program. MPI asks one or the other communicator.
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
    const char *what = argc > 2 ? argv[1] : "";
    if (rank == 0) {
        if (strcmp(what, "self") == 0) {
            failed = self(argv[2]);
        } else if (strcmp(what, "offer") == 0 && argc > 3) {
            failed = offer(argv[2], argv[3]);
        } else if (strcmp(what, "find") == 0) {
            failed = find(argv[2]);
        } else {
            fputs("usage: publish self NAME | offer NAME PORT | find NAME\n", stderr);
            failed = 2;
        }
    }
    MPI_Bcast(&failed, 1, MPI_INT, 0, MPI_COMM_WORLD);
    MPI_Finalize();
    return failed;
}
