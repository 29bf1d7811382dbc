/* Speaks PMI as MPI libraries do, and as none does. Usage: pmi MODE COUNT
 *   cards: stores COUNT values of 1,000 bytes (rank 0 alone; all others one), waits for all, and looks at those of others
 *   ring:  every rank stores COUNT values of 1,000 bytes, waits for all, and looks at those of the next rank
 *   shut:  as cards, and shuts the socket down, as MPICH 4 does
 *   same:  stores under one key COUNT times, then waits for all
 *   flood: stores under one key after the other until it is ended, and reads no answer that it need not
 *   leave: rank 0 ends with status COUNT and does not finalize; the others wait for it
 *   gone:  rank 0 finalizes and ends well; the others wait for it, and end with status 9 if they are told that it is gone
 *   all:   every rank ends with status COUNT and does not finalize
 *   mute:  asks for the longest value there can be, COUNT times, and reads no answer for a while
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static int fd, rank, size;
static char kvs[64];

static void say(const char *line)
{
    size_t length = strlen(line);
    while (length > 0) {
        ssize_t count = write(fd, line, length);
        if (count <= 0) {
            fprintf(stderr, "pmi: rank %d: nobody listens\n", rank);
            exit(3);
        }
        line += count;
        length -= count;
    }
}

/* One answer, without its end. */
static const char *answer(void)
{
    static char line[1 << 17], buffer[1 << 16];
    static size_t begin, end;
    size_t length = 0;
    for (;;) {
        if (begin == end) {
            ssize_t count = read(fd, buffer, sizeof buffer);
            if (count <= 0) {
                fprintf(stderr, "pmi: rank %d: no answer\n", rank);
                exit(4);
            }
            begin = 0;
            end = count;
        }
        char c = buffer[begin++];
        if (c == '\n')
            break;
        if (length + 1 < sizeof line)
            line[length++] = c;
    }
    line[length] = 0;
    return line;
}

static const char *ask(const char *line)
{
    say(line);
    return answer();
}

static void put(const char *key, char letter)
{
    static char line[1200], value[1001];
    memset(value, letter, 1000);
    snprintf(line, sizeof line, "cmd=put kvsname=%s key=%s value=%s\n", kvs, key, value);
    say(line);
}

static void store_cards(int count)
{
    char key[64];
    int n;
    for (n = 0; n < count; n++) {
        snprintf(key, sizeof key, "card-%d-%d", rank, n);
        put(key, 'a' + (rank + n) % 26);
        if (strcmp(answer(), "cmd=put_result rc=0"))
            exit(5);
    }
    ask("cmd=barrier_in\n");
}

static void find_card(int of, int n)
{
    char line[128];
    snprintf(line, sizeof line, "cmd=get kvsname=%s key=card-%d-%d\n", kvs, of, n);
    const char *value = strstr(ask(line), "value=");
    if (!value || strlen(value) != 1006 || value[6] != 'a' + (of + n) % 26) {
        fprintf(stderr, "pmi: rank %d does not find the card of rank %d\n", rank, of);
        exit(6);
    }
}

static void cards(int count)
{
    int of;
    store_cards(rank == 0 ? count : 1);
    for (of = 0; of < size; of++)
        find_card(of, of == 0 ? count - 1 : 0);
    printf("rank %d has all\n", rank);
}

static void ring(int count)
{
    int n;
    store_cards(count);
    for (n = 0; n < count; n++)
        find_card((rank + 1) % size, n);
    printf("rank %d has all\n", rank);
}

static void mute(int count)
{
    static char line[60200];
    int n;
    n = snprintf(line, sizeof line, "cmd=put kvsname=%s key=k value=", kvs);
    memset(line + n, 'x', 60000);
    line[n + 60000] = '\n';
    line[n + 60001] = 0;
    ask(line);
    snprintf(line, sizeof line, "cmd=get kvsname=%s key=k\n", kvs);
    /* As much as goes into the socket; what does not is sent when the answers are read. */
    if (fork() == 0) {
        for (n = 0; n < count; n++)
            say(line);
        _exit(0);
    }
    printf("said\n");
    fflush(stdout);
    while (access("listen", F_OK))
        usleep(20000);
    for (n = 0; n < count; n++)
        if (strlen(answer()) < 60000)
            exit(7);
    printf("heard\n");
}

int main(int argc, char **argv)
{
    int count = argc > 2 ? atoi(argv[2]) : 0, n;
    char key[32];
    if (argc < 2 || !getenv("PMI_FD"))
        return 2;
    fd = atoi(getenv("PMI_FD"));
    rank = atoi(getenv("PMI_RANK"));
    size = atoi(getenv("PMI_SIZE"));
    ask("cmd=init pmi_version=1 pmi_subversion=1\n");
    if (sscanf(ask("cmd=get_my_kvsname\n"), "cmd=my_kvsname rc=0 kvsname=%63s", kvs) != 1)
        return 8;
    if (!strcmp(argv[1], "cards") || !strcmp(argv[1], "shut")) {
        cards(count);
    } else if (!strcmp(argv[1], "ring")) {
        ring(count);
    } else if (!strcmp(argv[1], "same")) {
        for (n = 0; n < count; n++) {
            put("k", 'x');
            answer();
        }
        printf("put\n");
        fflush(stdout);
        while (access("listen", F_OK))
            usleep(20000);
        ask("cmd=barrier_in\n");
    } else if (!strcmp(argv[1], "gone")) {
        if (rank > 0)
            return strstr(ask("cmd=barrier_in\n"), "rc=-1") ? 9 : 0;
    } else if (!strcmp(argv[1], "flood")) {
        if (rank > 0)
            ask("cmd=barrier_in\n");
        for (n = 0;; n++) {
            snprintf(key, sizeof key, "k%d", n);
            put(key, 'x');
            answer();
        }
    } else if (!strcmp(argv[1], "leave") || !strcmp(argv[1], "all")) {
        if (rank > 0 && !strcmp(argv[1], "leave"))
            ask("cmd=barrier_in\n");
        return count;
    } else if (!strcmp(argv[1], "mute")) {
        mute(count);
    }
    ask("cmd=finalize\n");
    if (!strcmp(argv[1], "shut"))
        shutdown(fd, SHUT_RDWR);
    return 0;
}
