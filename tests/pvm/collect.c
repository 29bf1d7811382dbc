/* collect: spawns two tasks, and prints what they write, by pvm_catchout. */
#include <stdio.h>
#include <pvm3.h>
#include <unistd.h>

int main(int argc, char **argv) {
    char *args[] = {"task", NULL};
    int tids[2];
    if (argc > 1) {
        pvm_mytid();
        printf("hello\nworld");
        fflush(stdout);
        usleep(50000);
        printf(" again\n");
        fprintf(stderr, "not well\n");
        pvm_exit();
        return 0;
    }
    pvm_mytid();
    pvm_catchout(stdout);
    if (pvm_spawn(argv[0], args, PvmTaskDefault, NULL, 2, tids) != 2)
        return 1;
    /* Waits until all output has come. */
    pvm_exit();
    printf("all\n");
    return 0;
}
