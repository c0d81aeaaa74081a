/*
 * What an MPI library does on an RDMA device, with every result checked: allreduce and alltoall from 1 byte to 4 MiB,
 * messages of all sizes in both directions at once, and one-sided put, get and accumulate between fences and under locks.
 *
 * Every value is a function of who sent it, to whom, in which round, and where it stands, so that a byte from the wrong
 * message, place or time is seen. The first wrong one is named and ends the run with status 1. At the end rank 0 prints
 * what was done, for the test to read.
 *
 * mpicc -O1 -Wall -o mpi mpi.c && mpirun -n 4 ./mpi
 */
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOST (4 << 20)

static const size_t SIZES[] = {1, 7, 64, 1000, 4096, 8193, 65536, 1 << 20, MOST};
#define COUNT (sizeof SIZES / sizeof SIZES[0])

static int rank, ranks;
static uint64_t checked;

/* The byte at a place of what `from` sends to `to` in a round. */
static uint8_t byte_of(int from, int to, unsigned round, size_t place)
{
    uint64_t x = place + ((uint64_t)from << 40) + ((uint64_t)to << 48) + ((uint64_t)round << 56);

    x *= 0x9e3779b97f4a7c15ull;
    return (uint8_t)(x >> 32);
}

static void fill(uint8_t *bytes, size_t size, int from, int to, unsigned round)
{
    for (size_t i = 0; i < size; i++)
        bytes[i] = byte_of(from, to, round, i);
}

static void wrong(const char *what, size_t size, int from, size_t place, uint64_t is, uint64_t wanted)
{
    fprintf(stderr, "rank %d: %s of %zu bytes, from rank %d: at %zu there is %llu, not %llu\n", rank, what, size, from,
            place, (unsigned long long)is, (unsigned long long)wanted);
    MPI_Abort(MPI_COMM_WORLD, 1);
}

static void check(const char *what, const uint8_t *bytes, size_t size, int from, int to, unsigned round)
{
    for (size_t i = 0; i < size; i++)
        if (bytes[i] != byte_of(from, to, round, i))
            wrong(what, size, from, i, bytes[i], byte_of(from, to, round, i));
    checked += size;
}

static void *room(size_t size)
{
    void *place = malloc(size);

    if (place == NULL) {
        fprintf(stderr, "rank %d: no memory for %zu bytes\n", rank, size);
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
    return place;
}

/*
 * Sums of 64-bit numbers; where the size is no multiple of 8, exclusive or of bytes (Open MPI 4.1 adds bytes with saturation,
 * whatever carries them).
 */
static void allreduce(size_t size, unsigned round)
{
    int wide = size % 8 == 0, count = (int)(wide ? size / 8 : size);
    uint8_t *own = room(size), *sum = room(size);

    for (int i = 0; i < count; i++) {
        if (wide)
            ((uint64_t *)own)[i] = (uint64_t)(rank + 1) * ((uint64_t)i + round);
        else
            own[i] = byte_of(rank, 0, round, (size_t)i);
    }
    memset(sum, 0xff, size);
    MPI_Allreduce(own, sum, count, wide ? MPI_UINT64_T : MPI_UINT8_T, wide ? MPI_SUM : MPI_BXOR,
                  MPI_COMM_WORLD);
    uint64_t factor = (uint64_t)ranks * (uint64_t)(ranks + 1) / 2;
    for (int i = 0; i < count; i++) {
        uint64_t wanted = factor * ((uint64_t)i + round), is = wide ? ((uint64_t *)sum)[i] : sum[i];

        if (!wide) {
            wanted = 0;
            for (int peer = 0; peer < ranks; peer++)
                wanted ^= byte_of(peer, 0, round, (size_t)i);
        }
        if (is != wanted)
            wrong("allreduce", size, -1, (size_t)i, is, wanted);
    }
    checked += size;
    free(own);
    free(sum);
}

/* `size` bytes from every rank to every rank. */
static void alltoall(size_t size, unsigned round)
{
    uint8_t *out = room(size * (size_t)ranks), *in = room(size * (size_t)ranks);

    for (int peer = 0; peer < ranks; peer++)
        fill(out + size * (size_t)peer, size, rank, peer, round);
    memset(in, 0xff, size * (size_t)ranks);
    MPI_Alltoall(out, (int)size, MPI_BYTE, in, (int)size, MPI_BYTE, MPI_COMM_WORLD);
    for (int peer = 0; peer < ranks; peer++)
        check("alltoall", in + size * (size_t)peer, size, peer, rank, round);
    free(out);
    free(in);
}

/* Around the ring in both directions at once, without a wait between; then a message that comes before it is asked for. */
static void messages(size_t size, unsigned round)
{
    int next = (rank + 1) % ranks, before = (rank + ranks - 1) % ranks;
    uint8_t *out[2] = {room(size), room(size)}, *in[2] = {room(size), room(size)};
    MPI_Request all[4];

    fill(out[0], size, rank, next, round);
    fill(out[1], size, rank, before, round);
    MPI_Irecv(in[0], (int)size, MPI_BYTE, before, 1, MPI_COMM_WORLD, &all[0]);
    MPI_Irecv(in[1], (int)size, MPI_BYTE, next, 2, MPI_COMM_WORLD, &all[1]);
    MPI_Isend(out[0], (int)size, MPI_BYTE, next, 1, MPI_COMM_WORLD, &all[2]);
    MPI_Isend(out[1], (int)size, MPI_BYTE, before, 2, MPI_COMM_WORLD, &all[3]);
    MPI_Waitall(4, all, MPI_STATUSES_IGNORE);
    check("message", in[0], size, before, rank, round);
    check("message", in[1], size, next, rank, round);

    MPI_Isend(out[0], (int)size, MPI_BYTE, next, 3, MPI_COMM_WORLD, &all[0]);
    MPI_Barrier(MPI_COMM_WORLD);
    memset(in[0], 0xff, size);
    MPI_Recv(in[0], (int)size, MPI_BYTE, before, 3, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Wait(&all[0], MPI_STATUS_IGNORE);
    check("unexpected message", in[0], size, before, rank, round);
    for (int i = 0; i < 2; i++) {
        free(out[i]);
        free(in[i]);
    }
}

/* Every rank puts into its part of every other's window, and between the next fences gets back what the others put. */
static void one_sided(size_t size, unsigned round)
{
    uint8_t *window, *out = room(size * (size_t)ranks), *in = room(size * (size_t)ranks);
    MPI_Win win;

    MPI_Win_allocate((MPI_Aint)(size * (size_t)ranks), 1, MPI_INFO_NULL, MPI_COMM_WORLD, &window, &win);
    memset(window, 0xff, size * (size_t)ranks);
    MPI_Win_fence(0, win);
    for (int peer = 0; peer < ranks; peer++) {
        uint8_t *part = out + size * (size_t)peer;

        fill(part, size, rank, peer, round);
        MPI_Put(part, (int)size, MPI_BYTE, peer, (MPI_Aint)(size * (size_t)rank), (int)size, MPI_BYTE, win);
    }
    MPI_Win_fence(0, win);
    for (int peer = 0; peer < ranks; peer++)
        check("put", window + size * (size_t)peer, size, peer, rank, round);
    /* What the next rank put into each window. */
    int writer = (rank + 1) % ranks;
    memset(in, 0xff, size * (size_t)ranks);
    MPI_Win_fence(0, win);
    for (int peer = 0; peer < ranks; peer++)
        MPI_Get(in + size * (size_t)peer, (int)size, MPI_BYTE, peer, (MPI_Aint)(size * (size_t)writer), (int)size,
                MPI_BYTE, win);
    MPI_Win_fence(0, win);
    for (int peer = 0; peer < ranks; peer++)
        check("get", in + size * (size_t)peer, size, writer, peer, round);
    MPI_Win_free(&win);
    free(out);
    free(in);
}

/* A counter on rank 0 that all draw numbers from, and a swap of what each rank keeps. */
static void atomics(void)
{
    enum { DRAWS = 50 };
    int64_t *window, one = 1, drawn, *all = room(sizeof(int64_t) * DRAWS * (size_t)ranks), own[DRAWS];
    MPI_Win win;

    MPI_Win_allocate(2 * sizeof(int64_t), sizeof(int64_t), MPI_INFO_NULL, MPI_COMM_WORLD, &window, &win);
    window[0] = 0;
    window[1] = -1;
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Win_lock_all(0, win);
    for (int i = 0; i < DRAWS; i++) {
        MPI_Fetch_and_op(&one, &drawn, MPI_INT64_T, 0, 0, MPI_SUM, win);
        MPI_Win_flush(0, win);
        own[i] = drawn;
    }
    /* Nobody else writes there: the old value must be what was put. */
    int64_t old = -1, new = rank + 100, was = 0;
    MPI_Compare_and_swap(&new, &old, &was, MPI_INT64_T, (rank + 1) % ranks, 1, win);
    MPI_Win_flush((rank + 1) % ranks, win);
    MPI_Win_unlock_all(win);
    if (was != -1)
        wrong("compare and swap", sizeof was, (rank + 1) % ranks, 0, (uint64_t)was, (uint64_t)-1);
    MPI_Barrier(MPI_COMM_WORLD);
    int before = (rank + ranks - 1) % ranks;
    MPI_Win_lock(MPI_LOCK_SHARED, rank, 0, win);
    if (window[1] != before + 100)
        wrong("swapped value", sizeof was, before, 0, (uint64_t)window[1], (uint64_t)before + 100);
    MPI_Win_unlock(rank, win);
    MPI_Gather(own, DRAWS, MPI_INT64_T, all, DRAWS, MPI_INT64_T, 0, MPI_COMM_WORLD);
    if (rank == 0) {
        /* Each number was drawn once. */
        uint8_t *seen = calloc((size_t)ranks, DRAWS);
        for (int i = 0; i < DRAWS * ranks; i++) {
            if (all[i] < 0 || all[i] >= DRAWS * ranks || seen[all[i]]++)
                wrong("number drawn", sizeof drawn, i / DRAWS, (size_t)i, (uint64_t)all[i], 0);
        }
        free(seen);
    }
    checked += sizeof own;
    MPI_Win_free(&win);
    free(all);
}

int main(int argc, char **argv)
{
    uint64_t total = 0;

    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    for (unsigned i = 0; i < COUNT; i++) {
        allreduce(SIZES[i], i);
        alltoall(SIZES[i], i);
        messages(SIZES[i], i);
        one_sided(SIZES[i], i);
    }
    atomics();
    MPI_Reduce(&checked, &total, 1, MPI_UINT64_T, MPI_SUM, 0, MPI_COMM_WORLD);
    if (rank == 0)
        printf("%d ranks: %llu bytes checked, none wrong\n", ranks, (unsigned long long)total);
    MPI_Finalize();
    return 0;
}
