/* Threads that share the items of one job at a time with the thread that gives it. */
#ifndef ISTHMUS_POOL_H
#define ISTHMUS_POOL_H

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>

typedef void (*pool_task)(void *context, size_t item, int thread);

typedef struct {
    pthread_mutex_t lock;
    pthread_cond_t given, finished;
    pool_task task;
    void *context;
    size_t count;
    size_t next;     /* item; atomic */
    unsigned number; /* of the job */
    int at_work;     /* threads that have joined the job and not left it, without the one that gave it */
    int stopping;
    int threads; /* started */
    int names;   /* given out so far */
    pthread_t *ids;
} pool_t;

static void pool_share(pool_t *pool, pool_task task, void *context, size_t count, int thread) {
    for (;;) {
        size_t item = __atomic_fetch_add(&pool->next, 1, __ATOMIC_RELAXED);
        if (item >= count) return;
        task(context, item, thread);
    }
}

static void *pool_thread(void *given) {
    pool_t *pool = (pool_t *)given;
    unsigned seen = 0;
    prctl(PR_SET_NAME, "connections");
    pthread_mutex_lock(&pool->lock);
    int name = ++pool->names;
    while (!pool->stopping) {
        if (seen == pool->number) {
            pthread_cond_wait(&pool->given, &pool->lock);
            continue;
        }
        seen = pool->number;
        pool_task task = pool->task;
        void *context = pool->context;
        size_t count = pool->count;
        pool->at_work++;
        pthread_mutex_unlock(&pool->lock);
        pool_share(pool, task, context, count, name);
        pthread_mutex_lock(&pool->lock);
        if (--pool->at_work == 0) pthread_cond_signal(&pool->finished);
    }
    pthread_mutex_unlock(&pool->lock);
    return NULL;
}

/* With up to `threads` threads besides the calling one; fewer if the system does not allow more. NULL without memory. */
static pool_t *pool_new(int threads) {
    pool_t *pool = (pool_t *)calloc(1, sizeof(pool_t));
    if (!pool) return NULL;
    pthread_mutex_init(&pool->lock, NULL);
    pthread_cond_init(&pool->given, NULL);
    pthread_cond_init(&pool->finished, NULL);
    pool->ids = (pthread_t *)calloc((size_t)threads + 1, sizeof(pthread_t));
    sigset_t all, before; /* signals are for the threads of Python */
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, &before);
    while (pool->ids && pool->threads < threads &&
           pthread_create(&pool->ids[pool->threads], NULL, pool_thread, pool) == 0)
        pool->threads++;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return pool;
}

/* Run `task` for every item below `count`, here and on `helpers` other threads; returns when all are done. A thread
 * that wakes too late to take part finds nothing left, and is not waited for. */
static void pool_run(pool_t *pool, pool_task task, void *context, size_t count, int helpers) {
    pthread_mutex_lock(&pool->lock);
    /* One that woke late for the job before may be about to find nothing. */
    while (pool->at_work) pthread_cond_wait(&pool->finished, &pool->lock);
    pool->task = task;
    pool->context = context;
    pool->count = count;
    __atomic_store_n(&pool->next, 0, __ATOMIC_RELAXED);
    pool->number++;
    pthread_mutex_unlock(&pool->lock);
    for (int i = 0; i < helpers; i++) pthread_cond_signal(&pool->given);
    pool_share(pool, task, context, count, 0);
    pthread_mutex_lock(&pool->lock);
    while (pool->at_work) pthread_cond_wait(&pool->finished, &pool->lock);
    pthread_mutex_unlock(&pool->lock);
}

static void pool_free(pool_t *pool) {
    pthread_mutex_lock(&pool->lock);
    pool->stopping = 1;
    pthread_cond_broadcast(&pool->given);
    pthread_mutex_unlock(&pool->lock);
    for (int i = 0; i < pool->threads; i++) pthread_join(pool->ids[i], NULL);
    pthread_mutex_destroy(&pool->lock);
    pthread_cond_destroy(&pool->given);
    pthread_cond_destroy(&pool->finished);
    free(pool->ids);
    free(pool);
}

#endif
