/*
 * Notice before the turn of a job ends: Tutti asks the program to give up what it holds, such as a
 * device, a licence or memory of a GPU, and says when it may have it again.
 *
 * Submit the job with `--vacate TIME`. The program registers and either looks at safe points:
 *
 *     tutti_vacate *vacate = tutti_vacate_register();
 *     while (work_is_left()) {
 *         if (tutti_vacate_wait(vacate, 0) == TUTTI_VACATE_NOTICE) {
 *             release();
 *             tutti_vacate_ready(vacate);
 *             while (tutti_vacate_wait(vacate, -1) != TUTTI_VACATE_RESUME) {}
 *             acquire();
 *         }
 *         step();
 *     }
 *
 * or has a thread call functions: tutti_vacate_start(). Outside of such a job `vacate` is NULL, and
 * all functions do nothing with it. The other file is tutti-vacate.c: compile it with the program,
 * with -pthread. Nothing else is needed.
 *
 * A job is never kept running for this: a program that is not ready when the turn ends is suspended
 * with what it holds. The guide (docs/guide/vacate.md) has the whole story.
 */
#ifndef TUTTI_VACATE_H
#define TUTTI_VACATE_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tutti_vacate tutti_vacate;

enum {
    /* The turn ends soon: release, then call tutti_vacate_ready(). */
    TUTTI_VACATE_NOTICE = 1,
    /* The job has its next turn, or keeps this one: acquire again. */
    TUTTI_VACATE_RESUME = 2
};

/*
 * Registers this process. NULL, with errno, if it is not to be asked: ENOENT outside of a job that
 * was submitted with --vacate, EACCES if the agent of the node refuses, ENOMEM. If the agent is
 * just being started again, the connection is made by the calls that follow.
 */
tutti_vacate *tutti_vacate_register(void);

/*
 * Waits for the next notice or resumption, for at most so many milliseconds; 0: looks only; -1:
 * without a limit. Returns TUTTI_VACATE_NOTICE, TUTTI_VACATE_RESUME, 0 if there was none, or -1
 * with errno. A lost connection is made anew meanwhile; a program that has vacated then gets
 * TUTTI_VACATE_RESUME. For one thread at a time.
 */
int tutti_vacate_wait(tutti_vacate *vacate, int timeout_ms);

/* Answers the latest notice: the program has released all. 0, or -1 with errno. */
int tutti_vacate_ready(tutti_vacate *vacate);

/* When the turn ends, as the latest notice has it: CLOCK_MONOTONIC in nanoseconds. */
uint64_t tutti_vacate_until_ns(const tutti_vacate *vacate);

/*
 * How long before the end of a turn a notice comes, at most, in nanoseconds; 0: not known yet. A
 * notice never comes in the first half of a turn.
 */
uint64_t tutti_vacate_lead_ns(const tutti_vacate *vacate);

/* The descriptor of the connection, for poll(); -1: there is none now. */
int tutti_vacate_fd(const tutti_vacate *vacate);

/*
 * Registers this process and starts a thread that calls `release` at each notice, answers it, and
 * calls `acquire` at each resumption; either may be NULL. No signal is handled in that thread. NULL
 * with errno as tutti_vacate_register(), or if no thread can be made.
 */
tutti_vacate *tutti_vacate_start(void (*release)(void *), void (*acquire)(void *), void *argument);

/* Ends the thread, if there is one, and the registration. Not to be called by that thread. */
void tutti_vacate_stop(tutti_vacate *vacate);

#ifdef __cplusplus
}
#endif

#endif
