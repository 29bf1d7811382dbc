/* Speaks PMI-2 by the library that Slurm's users link. Usage: pmi2 [fails]
 *   each rank stores a card, waits for all, and looks at those of all others; the first rank of a node leaves a value for
 *   the others of its node, which wait for it; then all meet again
 *   fails: rank 0 aborts with a message while the others wait
 */
#include <slurm/pmi2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int rank;

static void need(const char *what, int error)
{
    if (error != PMI2_SUCCESS) {
        fprintf(stderr, "pmi2: rank %d: %s: error %d\n", rank, what, error);
        exit(3);
    }
}

int main(int argc, char **argv)
{
    int spawned, size, appnum, length, found;
    char job[256], key[64], value[PMI2_MAX_VALLEN], expected[64], host[256] = "", port[64];
    need("init", PMI2_Init(&spawned, &size, &rank, &appnum));
    need("job", PMI2_Job_GetId(job, sizeof job));
    if (argc > 1) {
        if (rank == 0)
            PMI2_Abort(1, "the result is wrong; it ends");
        need("fence", PMI2_KVS_Fence());
        return 4;
    }
    gethostname(host, sizeof host - 1);
    snprintf(key, sizeof key, "card-%d", rank);
    snprintf(value, sizeof value, "of %d; =%d", rank, size);
    need("put", PMI2_KVS_Put(key, value));
    need("fence", PMI2_KVS_Fence());
    for (int other = 0; other < size; other++) {
        snprintf(key, sizeof key, "card-%d", other);
        snprintf(expected, sizeof expected, "of %d; =%d", other, size);
        need("get", PMI2_KVS_Get(job, other, key, value, sizeof value, &length));
        if (strcmp(value, expected) != 0) {
            fprintf(stderr, "pmi2: rank %d got '%s' of rank %d\n", rank, value, other);
            return 5;
        }
    }
    need("mapping", PMI2_Info_GetJobAttr("PMI_process_mapping", value, sizeof value, &found));
    if (!found)
        return 6;
    if (strcmp(getenv("TUTTI_LOCAL_RANK"), "0") == 0) {
        usleep(200000);
        snprintf(value, sizeof value, "left by %d", rank);
        need("put for the node", PMI2_Info_PutNodeAttr("left", value));
    }
    need("get of the node", PMI2_Info_GetNodeAttr("left", value, sizeof value, &found, 1));
    if (!found)
        return 7;
    if (rank == 0) {
        need("publish", PMI2_Nameserv_publish("pmi2-test", NULL, "port;1"));
        need("lookup", PMI2_Nameserv_lookup("pmi2-test", NULL, port, sizeof port));
        need("unpublish", PMI2_Nameserv_unpublish("pmi2-test", NULL));
        if (strcmp(port, "port;1") != 0)
            return 8;
    }
    need("fence", PMI2_KVS_Fence());
    printf("rank %d of %d, %s\n", rank, size, value);
    need("finalize", PMI2_Finalize());
    return 0;
}
