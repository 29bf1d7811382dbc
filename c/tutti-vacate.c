/* See tutti-vacate.h. The protocol is in docs/reference/vacate-protocol.md. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "tutti-vacate.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

/* Pauses between two attempts to connect, and how long the agent may take to answer the first. */
#define PAUSE_FIRST_MS 10
#define PAUSE_LONGEST_MS 1000
#define ANSWER_MS 1000

struct tutti_vacate {
    struct sockaddr_un address;
    int fd;
    /* Whether the agent has accepted this connection. */
    int is_registered;
    /* Whether the program had a notice, and no resumption since. */
    int has_vacated;
    uint64_t number, until_ns, lead_ns;
    int64_t retry_at_ms;
    int pause_ms;
    size_t length;
    char buffer[512];
    /* Of tutti_vacate_start() alone: */
    pthread_t thread;
    int stop[2];
    void (*release)(void *);
    void (*acquire)(void *);
    void *argument;
};

static int64_t now_ms(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static void lose(tutti_vacate *vacate) {
    if (vacate->fd >= 0)
        close(vacate->fd);
    vacate->fd = -1;
    vacate->is_registered = 0;
    vacate->length = 0;
    vacate->retry_at_ms = now_ms() + vacate->pause_ms;
    vacate->pause_ms *= 2;
    if (vacate->pause_ms > PAUSE_LONGEST_MS)
        vacate->pause_ms = PAUSE_LONGEST_MS;
}

static int say(tutti_vacate *vacate, const char *line) {
    size_t length = strlen(line);
    ssize_t sent;
    do
        sent = send(vacate->fd, line, length, MSG_NOSIGNAL | MSG_DONTWAIT);
    while (sent < 0 && errno == EINTR);
    if (sent == (ssize_t)length)
        return 0;
    lose(vacate);
    return -1;
}

static void reach(tutti_vacate *vacate) {
    vacate->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (vacate->fd < 0 ||
        connect(vacate->fd, (struct sockaddr *)&vacate->address, sizeof vacate->address) != 0) {
        lose(vacate);
        return;
    }
    say(vacate, "register 1\n");
}

/*
 * Takes out lines up to the first event; 0: there is none, -1: the agent refuses. The first time
 * not beyond the answer to the registration: a notice behind it is for tutti_vacate_wait().
 */
static int take(tutti_vacate *vacate, int is_first) {
    char *end;
    while ((end = memchr(vacate->buffer, '\n', vacate->length)) != NULL) {
        char line[sizeof vacate->buffer];
        size_t length = (size_t)(end - vacate->buffer);
        uint64_t number, other;
        int event = 0, was_vacated = vacate->has_vacated;
        memcpy(line, vacate->buffer, length);
        line[length] = 0;
        vacate->length -= length + 1;
        memmove(vacate->buffer, end + 1, vacate->length);
        if (sscanf(line, "registered %" SCNu64 " %" SCNu64, &number, &other) == 2) {
            vacate->is_registered = 1;
            vacate->lead_ns = other;
            vacate->pause_ms = PAUSE_FIRST_MS;
            vacate->has_vacated = 0;
            event = was_vacated ? TUTTI_VACATE_RESUME : 0;
        } else if (sscanf(line, "vacate %" SCNu64 " %" SCNu64, &number, &other) == 2) {
            vacate->number = number;
            vacate->until_ns = other;
            vacate->has_vacated = 1;
            event = TUTTI_VACATE_NOTICE;
        } else if (sscanf(line, "resume %" SCNu64, &number) == 1) {
            vacate->has_vacated = 0;
            event = was_vacated ? TUTTI_VACATE_RESUME : 0;
        } else if (strncmp(line, "error ", 6) == 0) {
            vacate->pause_ms = PAUSE_LONGEST_MS;
            lose(vacate);
            errno = EACCES;
            return -1;
        }
        if (event != 0 || (is_first && vacate->is_registered))
            return event;
    }
    if (vacate->length == sizeof vacate->buffer)
        lose(vacate);
    return 0;
}

/* As tutti_vacate_wait(). An agent that refuses is asked again later, but for the first time. */
static int wait_for(tutti_vacate *vacate, int timeout_ms, int is_first) {
    int64_t until_ms = timeout_ms < 0 ? INT64_MAX : now_ms() + timeout_ms;
    for (;;) {
        struct pollfd polled[2];
        int64_t left_ms, pause_ms, now;
        int event = take(vacate, is_first), count = vacate->stop[0] >= 0 ? 2 : 1;
        ssize_t got;
        if (event > 0 || (is_first && (event < 0 || vacate->is_registered)))
            return event;
        now = now_ms();
        if (vacate->fd < 0 && vacate->retry_at_ms <= now) {
            reach(vacate);
            now = now_ms();
        }
        left_ms = until_ms == INT64_MAX ? INT64_MAX : (until_ms > now ? until_ms - now : 0);
        pause_ms = vacate->retry_at_ms > now ? vacate->retry_at_ms - now : 0;
        if (vacate->fd < 0 && pause_ms < left_ms)
            left_ms = pause_ms;
        polled[0].fd = vacate->fd;
        polled[0].events = POLLIN;
        polled[0].revents = 0;
        polled[1].fd = vacate->stop[0];
        polled[1].events = POLLIN;
        polled[1].revents = 0;
        if (poll(polled, (nfds_t)count, left_ms < 1000000 ? (int)left_ms : 1000000) < 0)
            return -1;
        if (count == 2 && polled[1].revents != 0) {
            errno = ECANCELED;
            return -1;
        }
        if (polled[0].revents == 0) {
            if (until_ms != INT64_MAX && now_ms() >= until_ms)
                return 0;
            continue;
        }
        got = recv(vacate->fd, vacate->buffer + vacate->length,
                   sizeof vacate->buffer - vacate->length, MSG_DONTWAIT);
        if (got > 0)
            vacate->length += (size_t)got;
        else if (got == 0 || (errno != EAGAIN && errno != EINTR))
            lose(vacate);
    }
}

tutti_vacate *tutti_vacate_register(void) {
    const char *path = getenv("TUTTI_VACATE");
    tutti_vacate *vacate;
    if (path == NULL || *path == 0 || strlen(path) >= sizeof vacate->address.sun_path) {
        errno = ENOENT;
        return NULL;
    }
    vacate = calloc(1, sizeof *vacate);
    if (vacate == NULL)
        return NULL;
    vacate->address.sun_family = AF_UNIX;
    strcpy(vacate->address.sun_path, path);
    vacate->stop[0] = vacate->stop[1] = -1;
    vacate->fd = -1;
    vacate->pause_ms = PAUSE_FIRST_MS;
    reach(vacate);
    if (vacate->fd >= 0 && wait_for(vacate, ANSWER_MS, 1) < 0) {
        int error = errno;
        tutti_vacate_stop(vacate);
        errno = error;
        return NULL;
    }
    return vacate;
}

int tutti_vacate_wait(tutti_vacate *vacate, int timeout_ms) {
    if (vacate == NULL) {
        errno = EINVAL;
        return -1;
    }
    return wait_for(vacate, timeout_ms, 0);
}

int tutti_vacate_ready(tutti_vacate *vacate) {
    char line[40];
    if (vacate == NULL || vacate->fd < 0 || !vacate->has_vacated)
        return 0;
    snprintf(line, sizeof line, "ready %" PRIu64 "\n", vacate->number);
    return say(vacate, line);
}

uint64_t tutti_vacate_until_ns(const tutti_vacate *vacate) {
    return vacate == NULL ? 0 : vacate->until_ns;
}

uint64_t tutti_vacate_lead_ns(const tutti_vacate *vacate) {
    return vacate == NULL ? 0 : vacate->lead_ns;
}

int tutti_vacate_fd(const tutti_vacate *vacate) {
    return vacate == NULL ? -1 : vacate->fd;
}

static void *follow(void *argument) {
    tutti_vacate *vacate = argument;
    for (;;) {
        int event = wait_for(vacate, -1, 0);
        if (event == TUTTI_VACATE_NOTICE) {
            if (vacate->release != NULL)
                vacate->release(vacate->argument);
            tutti_vacate_ready(vacate);
        } else if (event == TUTTI_VACATE_RESUME) {
            if (vacate->acquire != NULL)
                vacate->acquire(vacate->argument);
        } else if (event < 0 && errno == ECANCELED) {
            return NULL;
        }
    }
}

tutti_vacate *tutti_vacate_start(void (*release)(void *), void (*acquire)(void *), void *argument) {
    tutti_vacate *vacate = tutti_vacate_register();
    sigset_t all, before;
    int error;
    if (vacate == NULL)
        return NULL;
    vacate->release = release;
    vacate->acquire = acquire;
    vacate->argument = argument;
    if (pipe2(vacate->stop, O_CLOEXEC) != 0) {
        error = errno;
    } else {
        sigfillset(&all);
        pthread_sigmask(SIG_SETMASK, &all, &before);
        error = pthread_create(&vacate->thread, NULL, follow, vacate);
        pthread_sigmask(SIG_SETMASK, &before, NULL);
        if (error == 0)
            return vacate;
        close(vacate->stop[0]);
        close(vacate->stop[1]);
    }
    vacate->stop[0] = -1;
    tutti_vacate_stop(vacate);
    errno = error;
    return NULL;
}

void tutti_vacate_stop(tutti_vacate *vacate) {
    if (vacate == NULL)
        return;
    if (vacate->stop[0] >= 0) {
        close(vacate->stop[1]);
        pthread_join(vacate->thread, NULL);
        close(vacate->stop[0]);
    }
    if (vacate->fd >= 0)
        close(vacate->fd);
    free(vacate);
}
