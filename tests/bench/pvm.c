/* pvm TASKS: for each line that it reads, spawns tasks and prints how long pvm_spawn took, and
 * how long until all tasks had sent a message, in microseconds. With the argument "task" it is such
 * a task. */
#include <pvm3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>

#define TASKS_MAX 64

static double now(void) {
    struct timeval time;
    gettimeofday(&time, NULL);
    return 1e6 * (double)time.tv_sec + (double)time.tv_usec;
}

static int task(void) {
    pvm_initsend(PvmDataDefault);
    pvm_send(pvm_parent(), 1);
    pvm_exit();
    return 0;
}

int main(int argc, char **argv) {
    int tids[TASKS_MAX];
    char *args[] = {"task", NULL};
    if (argc == 2 && strcmp(argv[1], "task") == 0) return task();
    int tasks = argc > 1 ? atoi(argv[1]) : 8;
    if (tasks < 1 || tasks > TASKS_MAX) return 2;
    if (pvm_mytid() < 0) return 1;
    while (getchar() != EOF) {
        double begun = now();
        int started = pvm_spawn(argv[0], args, PvmTaskDefault, NULL, tasks, tids);
        double spawned = now();
        if (started != tasks) {
            fprintf(stderr, "%d of %d tasks: %d\n", started, tasks, tids[tasks - 1]);
            return 1;
        }
        for (int i = 0; i < tasks; i++) pvm_recv(-1, 1);
        double heard = now();
        /* Their slots are free again when they have ended. */
        pvm_notify(PvmTaskExit, 2, tasks, tids);
        for (int i = 0; i < tasks; i++) pvm_recv(-1, 2);
        printf("%.0f %.0f\n", spawned - begun, heard - begun);
        fflush(stdout);
    }
    pvm_exit();
    return 0;
}
