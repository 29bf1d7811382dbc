/* worker [COMMAND]: answers one number with its square, then does what the command says. */
#include <pvm3.h>
#include <stdio.h>
#include <stdlib.h>

enum { WORK = 12, DONE = 13 };

int main(int argc, char **argv) {
    int number, parent = pvm_parent();
    if (parent < 0)
        return 3;
    pvm_recv(parent, WORK);
    pvm_upkint(&number, 1, 1);
    int square = number * number;
    pvm_initsend(PvmDataDefault);
    pvm_pkint(&square, 1, 1);
    pvm_send(parent, DONE);
    pvm_exit();
    return argc > 1 ? system(argv[1]) : 0;
}
