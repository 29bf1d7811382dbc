/* What the end-to-end tests have their tasks do where a shell is too slow or too blunt. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <mqueue.h>
#include <poll.h>
#include <semaphore.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/msg.h>
#include <sys/sem.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static uint64_t now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* Prints the stretches in which it ran, "FROM TO" in nanoseconds, until they add up to so many ms. A
   pause of a fifth of a millisecond ends a stretch. */
static int ticks(uint64_t ms) {
    static uint64_t stretch[1 << 18][2];
    size_t count = 0;
    uint64_t ran = 0, begin = now(), last = begin;
    while (ran + (last - begin) < ms * 1000000u && count < (1 << 18) - 1) {
        uint64_t t = now();
        if (t - last > 200000) {
            stretch[count][0] = begin;
            stretch[count++][1] = last;
            ran += last - begin;
            begin = t;
        }
        last = t;
    }
    stretch[count][0] = begin;
    stretch[count++][1] = last;
    for (size_t i = 0; i < count; i++)
        printf("%llu %llu\n", (unsigned long long)stretch[i][0], (unsigned long long)stretch[i][1]);
    return 0;
}

/* Lines of random lengths, each "RANK NUMBER LENGTH xxx", in writes that do not end where lines do. */
static int lines(unsigned count) {
    unsigned rank = (unsigned)atoi(getenv("TUTTI_RANK")), state = rank + 1;
    static char piece[1 << 20];
    size_t have = 0;
    for (unsigned i = 0; i < count; i++) {
        state = state * 1103515245u + 12345u;
        unsigned length = (state >> 16) % ((i % 50) ? 200 : 20000);
        have += (size_t)sprintf(piece + have, "%u %u %u ", rank, i, length);
        memset(piece + have, 'a' + (int)(rank % 26), length);
        have += length;
        piece[have++] = '\n';
        while (have > 5000) {
            ssize_t done = write(1, piece, 5000);
            if (done < 0) return 1;
            have -= (size_t)done;
            memmove(piece, piece + done, have);
        }
    }
    for (size_t done = 0; done < have;) {
        ssize_t n = write(1, piece + done, have - done);
        if (n < 0) return 1;
        done += (size_t)n;
    }
    return 0;
}

/* Uses so many MiB of memory. */
static int hog(size_t mib) {
    for (size_t i = 0; i < mib; i++) memset(malloc(1 << 20), (int)i + 1, 1 << 20);
    return 0;
}

/* Connects so many times and says nothing, until its input ends. */
static int idle(const char *path, int count) {
    struct sockaddr_un to = {.sun_family = AF_UNIX};
    strncpy(to.sun_path, path, sizeof to.sun_path - 1);
    int open = 0;
    for (; open < count; open++) {
        int fd = socket(AF_UNIX, SOCK_STREAM, 0);
        if (fd < 0 || connect(fd, (struct sockaddr *)&to, sizeof to) != 0) break;
    }
    printf("%d open\n", open);
    fflush(stdout);
    char byte;
    while (read(0, &byte, 1) > 0) continue;
    return 0;
}

/* Listens, and prints how many bytes those who connect say, until its input ends. */
static int listen_at(const char *path) {
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    strncpy(at.sun_path, path, sizeof at.sun_path - 1);
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    if (fd < 0 || bind(fd, (struct sockaddr *)&at, sizeof at) != 0 || listen(fd, 9) != 0) return 1;
    chmod(path, 0777);
    printf("listening\n");
    fflush(stdout);
    for (;;) {
        struct pollfd wait[2] = {{.fd = fd, .events = POLLIN}, {.events = POLLIN}};
        if (poll(wait, 2, -1) < 0) return 1;
        if (wait[1].revents) return 0;
        int peer = accept(fd, NULL, NULL);
        static char heard[1 << 16];
        ssize_t count = read(peer, heard, sizeof heard);
        if (count > 0) printf("%zd bytes\n", count);
        close(peer);
    }
}

/* So many children that sleep; says "ready" when all are there. */
static int many(int count) {
    for (int i = 0; i < count; i++) {
        pid_t pid = fork();
        if (pid < 0) {
            perror("fork");
            return 1;
        }
        if (pid == 0)
            for (;;) pause();
    }
    puts("ready");
    fflush(stdout);
    for (;;) pause();
}

/* Becomes a daemon by the book: fork, setsid, fork; the rest is a sleep of that length. */
static int become_daemon(char *nap) {
    if (fork() > 0) return 0;
    setsid();
    if (fork() > 0) _exit(0);
    freopen("/dev/null", "w", stdout);
    freopen("/dev/null", "w", stderr);
    char *none[] = {NULL};
    execle("/bin/sleep", "sleep", nap, (char *)NULL, none);
    return 127;
}

/* Forks for ever. */
static int bomb(void) {
    for (;;)
        if (fork() < 0) usleep(1000);
}

/* Says how its child's state changes, as a shell would learn it; the child naps. */
static int watch_child(char *nap) {
    pid_t pid = fork();
    if (pid == 0) execlp("sleep", "sleep", nap, (char *)NULL);
    printf("child %d\n", (int)pid);
    fflush(stdout);
    for (;;) {
        int status;
        if (waitpid(pid, &status, WUNTRACED | WCONTINUED) < 0) return errno == ECHILD ? 0 : 1;
        puts(WIFSTOPPED(status) ? "stopped" : WIFCONTINUED(status) ? "continued" : "ended");
        fflush(stdout);
    }
}

/* Makes a queue with a message in it, a set of semaphores that it sets, and a POSIX queue of that name, and
   leaves them: "QUEUE SET". */
static int leave_ipc(const char *name) {
    struct { long type; char text; } message = {1, 'x'};
    int queue = msgget(IPC_PRIVATE, 0600), set = semget(IPC_PRIVATE, 3, 0600);
    mqd_t posix = mq_open(name, O_CREAT | O_RDWR, 0600, NULL);
    int memory = shm_open(name, O_CREAT | O_RDWR, 0600);
    if (queue < 0 || set < 0 || posix < 0 || memory < 0) return 1;
    if (ftruncate(memory, 5000) || sem_open(name, O_CREAT, 0600, 1) == SEM_FAILED) return 1;
    if (msgsnd(queue, &message, 1, 0) || semctl(set, 1, SETVAL, 2)) return 1;
    printf("%d %d\n", queue, set);
    return 0;
}

/* Leaves a process behind that holds a device open which goes with the last who does: a terminal. It has left its
   session, closed all else, and ignores what can be ignored. Says what the terminal is called. */
static int hold_terminal(void) {
    int terminal = posix_openpt(O_RDWR | O_NOCTTY);
    if (terminal < 0 || grantpt(terminal) || unlockpt(terminal)) return 1;
    puts(ptsname(terminal));
    fflush(stdout);
    pid_t child = fork();
    if (child) return child < 0;
    setsid();
    for (int number = 1; number < NSIG; number++) signal(number, SIG_IGN);
    for (int fd = 0; fd < 3; fd++) close(fd);
    for (;;) pause();
}

int main(int argc, char **argv) {
    const char *what = argc > 1 ? argv[1] : "";
    char *arg = argc > 2 ? argv[2] : "0";
    if (!strcmp(what, "ticks")) return ticks(strtoull(arg, NULL, 10));
    if (!strcmp(what, "lines")) return lines((unsigned)atoi(arg));
    if (!strcmp(what, "hog")) return hog((size_t)atoi(arg));
    if (!strcmp(what, "idle")) return idle(arg, argc > 3 ? atoi(argv[3]) : 1);
    if (!strcmp(what, "listen")) return listen_at(arg);
    if (!strcmp(what, "many")) return many(atoi(arg));
    if (!strcmp(what, "daemon")) return become_daemon(arg);
    if (!strcmp(what, "bomb")) return bomb();
    if (!strcmp(what, "watch-child")) return watch_child(arg);
    if (!strcmp(what, "hold-terminal")) return hold_terminal();
    if (!strcmp(what, "leave-ipc")) return leave_ipc(arg);
    return 2;
}
