/* hosts NODE [COMMAND]: spawns a task of itself on that node, removes the host, hears of the end of
   both, adds the host again and spawns there once more. With a command, it does not remove the
   host: it writes "waiting" and waits until the host is gone otherwise. */
#include <pvm3.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { TASK = 11, LOST = 12, NEW = 13, READY = 14 };

static int hosts(void) {
    int count = -1;
    pvm_config(&count, NULL, NULL);
    return count;
}

static int spawn(char *self, char *node) {
    int tid = 0;
    if (pvm_spawn(self, NULL, PvmTaskHost, node, 1, &tid) == 1)
        pvm_recv(tid, READY);
    return tid;
}

static int same(int tag, int expected) {
    int tid;
    pvm_recv(-1, tag);
    pvm_upkint(&tid, 1, 1);
    return tid == expected;
}

int main(int argc, char **argv) {
    if (pvm_mytid() < 0)
        return 3;
    if (pvm_parent() != PvmNoParent) {
        pvm_initsend(PvmDataDefault);
        pvm_send(pvm_parent(), READY);
        pause();
        return 0;
    }
    setbuf(stdout, NULL);
    int before = hosts(), code = 0, count, tid;
    int task = spawn(argv[0], argv[1]);
    int host = pvm_tidtohost(task);
    pvm_notify(PvmTaskExit, TASK, 1, &task);
    pvm_notify(PvmHostDelete, LOST, 1, &host);
    pvm_notify(PvmHostAdd, NEW, -1, NULL);
    if (argc > 2)
        puts("waiting");
    else
        printf("deleted %d code %d\n", pvm_delhosts(argv + 1, 1, &code), code);
    printf("task %d host %d\n", same(TASK, task), same(LOST, host));
    printf("hosts %d then %d\n", before, hosts());
    if (argc > 2) {
        pvm_exit();
        return 0;
    }
    count = pvm_addhosts(argv + 1, 1, &code);
    printf("added %d %s\n", count, code > 0 ? "as a host" : "in vain");
    pvm_recv(-1, NEW);
    pvm_upkint(&count, 1, 1);
    pvm_upkint(&tid, 1, 1);
    printf("new %d same %d hosts %d\n", count, tid == code, hosts());
    char *strange = "nowhere";
    pvm_addhosts(&strange, 1, &code);
    printf("strange %d\n", code);
    task = spawn(argv[0], argv[1]);
    printf("task there %d\n", pvm_tidtohost(task) == tid);
    pvm_kill(task);
    pvm_exit();
    return 0;
}
