/* long BYTES [COUNT]: spawns a task of itself with as many arguments of that length, and prints how
   many bytes it got, or the error. */
#include <pvm3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { GOT = 11 };

int main(int argc, char **argv) {
    if (pvm_mytid() < 0)
        return 3;
    if (pvm_parent() != PvmNoParent) {
        int bytes = 0;
        for (int i = 1; i < argc; i++)
            bytes += strlen(argv[i]);
        pvm_initsend(PvmDataDefault);
        pvm_pkint(&bytes, 1, 1);
        pvm_send(pvm_parent(), GOT);
        pvm_exit();
        return 0;
    }
    int bytes = atoi(argv[1]), count = argc > 2 ? atoi(argv[2]) : 1, tid = 0, got = 0;
    char **words = calloc(count + 1, sizeof(char *)), *word = malloc(bytes + 1);
    memset(word, 'x', bytes);
    word[bytes] = 0;
    for (int i = 0; i < count; i++)
        words[i] = word;
    int spawned = pvm_spawn(argv[0], words, PvmTaskDefault, "", 1, &tid);
    if (spawned == 1) {
        pvm_recv(tid, GOT);
        pvm_upkint(&got, 1, 1);
    }
    printf("spawned %d got %d\n", spawned, got);
    pvm_exit();
    return 0;
}
