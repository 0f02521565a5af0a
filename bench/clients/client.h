/* What both load clients are: one connection, given up when nothing moves on it for a while, one report. */
#ifndef CLIENT_H
#define CLIENT_H

#include <proton/condition.h>
#include <proton/connection.h>
#include <proton/event.h>
#include <proton/proactor.h>

#include <stdbool.h>
#include <stdint.h>

enum { STAMP_SIZE = 16 };

typedef struct client client_t;

struct client {
    const char *name; /* of the container and in the report */
    const char *address;
    uint64_t count; /* messages to send or receive */
    pn_millis_t timeout; /* without progress */
    void (*on_event)(client_t *, pn_event_t *); /* what is particular to the client */

    pn_proactor_t *proactor;
    pn_connection_t *connection;
    uint64_t progress, progress_seen;
    uint64_t begin, end; /* CLOCK_MONOTONIC, nanoseconds */
    bool closing;
    bool stopping; /* SIGTERM came: end with what is under way */
    char error[256];
};

uint64_t now_ns(void);

/* Closes the connection; the first call decides on success (NULL) or the error. */
void client_finish(client_t *client, const char *error);

/* Returns when the connection to HOST:PORT is gone; `error` says if anything went wrong.
 * At SIGTERM `stopping` is set and `on_event` gets PN_PROACTOR_INTERRUPT. */
void client_run(client_t *client, const char *endpoint);

/* Prints the end of the report: the time, the rate of `messages`, and the error as JSON text or null. */
void client_report_end(const client_t *client, uint64_t messages);

/* The milliseconds of a --timeout SECONDS. */
pn_millis_t client_timeout(const char *seconds);

#endif
