/* Tries to run on every processor of the machine: itself, a thread of it, a child, and a child that has left its
 * parent and its session. Each says on which it could, as a list, and where it may in the end. */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static void list(const char *what, const cpu_set_t *set)
{
	const char *comma = "";

	printf("%s", what);
	for (int cpu = 0; cpu < CPU_SETSIZE; cpu++)
		if (CPU_ISSET(cpu, set)) {
			printf("%s%d", comma, cpu);
			comma = ",";
		}
}

static void try(const char *who)
{
	cpu_set_t all, could, own;

	memset(&all, 0xff, sizeof all);
	CPU_ZERO(&could);
	for (int cpu = 0; cpu < (int)sysconf(_SC_NPROCESSORS_CONF); cpu++) {
		CPU_ZERO(&own);
		CPU_SET(cpu, &own);
		if (sched_setaffinity(0, sizeof own, &own) == 0)
			CPU_SET(cpu, &could);
	}
	sched_setaffinity(0, sizeof all, &all);
	sched_getaffinity(0, sizeof own, &own);
	list(who, &could);
	list(" ", &own);
	printf("\n");
	fflush(stdout);
}

static void *thread(void *unused)
{
	(void)unused;
	try("thread ");
	return NULL;
}

int main(void)
{
	pthread_t id;

	try("process ");
	pthread_create(&id, NULL, thread, NULL);
	pthread_join(id, NULL);
	if (fork() == 0) {
		try("child ");
		if (fork() == 0) {
			setsid();
			try("daemon ");
			_exit(0);
		}
		wait(NULL);
		_exit(0);
	}
	wait(NULL);
	return 0;
}
