/* master WORKER N [ARGUMENT...]: spawns N workers, hears of their ends, and sums what they answer.
   With MASTER_EXIT it ends with that code once all have answered. Prints how long the spawn took,
   and how long it took until all had answered. */
#include <pvm3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>

enum { ENDED = 11, WORK = 12, DONE = 13 };

static double now(void) {
    struct timeval time;
    gettimeofday(&time, NULL);
    return time.tv_sec * 1e3 + time.tv_usec / 1e3;
}

int main(int argc, char **argv) {
    int count = argc > 2 ? atoi(argv[2]) : 2, hosts, sum = 0, ends = 0;
    int *tids = calloc(count, sizeof(int));
    if (pvm_mytid() < 0 || pvm_parent() != PvmNoParent || pvm_config(&hosts, NULL, NULL) < 0)
        return 3;
    double begun = now();
    int got = pvm_spawn(argv[1], argv + 3, PvmTaskDefault, "", count, tids);
    double spawned = now();
    if (got < count) {
        printf("spawned %d of %d: %d\n", got, count, tids[count - 1]);
        pvm_exit();
        return 4;
    }
    pvm_notify(PvmTaskExit, ENDED, count, tids);
    for (int i = 0; i < count; i++) {
        pvm_initsend(PvmDataDefault);
        pvm_pkint(&i, 1, 1);
        pvm_send(tids[i], WORK);
    }
    for (int i = 0; i < count; i++) {
        int square;
        pvm_recv(-1, DONE);
        pvm_upkint(&square, 1, 1);
        sum += square;
    }
    double answered = now();
    if (getenv("MASTER_EXIT"))
        return atoi(getenv("MASTER_EXIT"));
    for (; ends < count; ends++) {
        int tid;
        pvm_recv(-1, ENDED);
        pvm_upkint(&tid, 1, 1);
    }
    printf("hosts %d sum %d ends %d\n", hosts, sum, ends);
    fprintf(stderr, "spawn %.2f ms, all answered after %.2f ms\n", spawned - begun, answered - begun);
    pvm_exit();
    return 0;
}
