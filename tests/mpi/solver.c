// SPDX-License-Identifier: Apache-2.0
// Conjugate gradients on the matrix (-1, 2.5, -1): two global sums and one exchange with each
// neighbour an iteration, little work between. Such programs suffer most when the processes of a
// job are not running at the same time, which makes it the measure of a gang scheduler.
//
//   solver [ITERATIONS [SIZE]]    default 200 iterations on 20000 unknowns
//
// The matrix is so well conditioned that it converges long before; it then begins anew, so that the
// time depends on ITERATIONS only. Rank 0 prints a checksum, which must not depend on the number of
// ranks, and the error against the known solution; an error that is too large is exit status 1.
#include <math.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

#define CONVERGED 1e-20

static int rank, size;

static double global_sum(const double *a, const double *b, long n)
{
    double sum = 0, all;
    for (long i = 0; i < n; i++)
        sum += a[i] * b[i];
    MPI_Allreduce(&sum, &all, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    return all;
}

// y = A x. x has one more element on either side, for the neighbours'.
static void multiply(double *x, double *y, long n)
{
    int left = rank > 0 ? rank - 1 : MPI_PROC_NULL;
    int right = rank < size - 1 ? rank + 1 : MPI_PROC_NULL;
    x[0] = x[n + 1] = 0;
    MPI_Sendrecv(&x[1], 1, MPI_DOUBLE, left, 0, &x[n + 1], 1, MPI_DOUBLE, right, 0, MPI_COMM_WORLD,
                 MPI_STATUS_IGNORE);
    MPI_Sendrecv(&x[n], 1, MPI_DOUBLE, right, 1, &x[0], 1, MPI_DOUBLE, left, 1, MPI_COMM_WORLD,
                 MPI_STATUS_IGNORE);
    for (long i = 1; i <= n; i++)
        y[i - 1] = 2.5 * x[i] - x[i - 1] - x[i + 1];
}

static double *numbers(long n)
{
    double *memory = calloc((size_t)n, sizeof(double));
    if (!memory) {
        fprintf(stderr, "solver: no memory for %ld unknowns\n", n);
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    return memory;
}

// This rank's n unknowns. direction and known have one more element on either side.
struct state {
    long n;
    double *known, *b, *x, *residual, *direction, *image;
    double rho; // the residual's square
};

static void set_up(struct state *s, long first, long n)
{
    s->n = n;
    s->known = numbers(n + 2);
    s->b = numbers(n);
    s->x = numbers(n);
    s->residual = numbers(n);
    s->direction = numbers(n + 2);
    s->image = numbers(n);
    for (long i = 0; i < n; i++)
        s->known[i + 1] = sin((double)(first + i));
    multiply(s->known, s->b, n);
}

static void begin(struct state *s)
{
    for (long i = 0; i < s->n; i++) {
        s->x[i] = 0;
        s->residual[i] = s->direction[i + 1] = s->b[i];
    }
    s->rho = global_sum(s->residual, s->residual, s->n);
}

static void iterate(struct state *s)
{
    multiply(s->direction, s->image, s->n);
    double step = s->rho / global_sum(s->direction + 1, s->image, s->n);
    for (long i = 0; i < s->n; i++) {
        s->x[i] += step * s->direction[i + 1];
        s->residual[i] -= step * s->image[i];
    }
    double rho = global_sum(s->residual, s->residual, s->n);
    for (long i = 0; i < s->n; i++)
        s->direction[i + 1] = s->residual[i] + rho / s->rho * s->direction[i + 1];
    s->rho = rho;
}

// Prints and returns whether the solution is wrong.
static int check(const struct state *s, long iterations)
{
    double worst = 0, all_worst;
    for (long i = 0; i < s->n; i++)
        worst = fmax(worst, fabs(s->x[i] - s->known[i + 1]));
    MPI_Allreduce(&worst, &all_worst, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    double sum = global_sum(s->x, s->x, s->n);
    int wrong = !(all_worst < 1e-8);
    if (rank == 0)
        printf("solver: %d ranks, %ld iterations, checksum %.6f, error %.1e, %s\n", size,
               iterations, sum, all_worst, wrong ? "WRONG" : "ok");
    return wrong;
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    long iterations = argc > 1 ? atol(argv[1]) : 200;
    long unknowns = argc > 2 ? atol(argv[2]) : 20000;
    if (unknowns < size)
        unknowns = size;
    long first = unknowns * rank / size, n = unknowns * (rank + 1) / size - first;

    struct state s;
    set_up(&s, first, n);
    begin(&s);
    for (long done = 0; done < iterations; done++) {
        if (s.rho < CONVERGED)
            begin(&s);
        iterate(&s);
    }
    // However far the last round got, it is finished for the check.
    while (s.rho >= CONVERGED)
        iterate(&s);
    int wrong = check(&s, iterations);
    MPI_Finalize();
    return wrong;
}
