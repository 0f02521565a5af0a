/* What both load clients are: connections with links, given up when nothing moves on them for a while, one report. */
#ifndef CLIENT_H
#define CLIENT_H

#include "stamped.h"

#include <proton/condition.h>
#include <proton/connection.h>
#include <proton/event.h>
#include <proton/proactor.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { LINKS_PER_SESSION = 100 };

/* For getopt: what `client_option` knows. */
#define CLIENT_OPTIONS \
    {"timeout", required_argument, NULL, 't'}, {"links", required_argument, NULL, 'l'}, \
    {"connections", required_argument, NULL, 'n'}, {"tls", no_argument, NULL, 's'}, \
    {"hold", no_argument, NULL, 'h'}, {"shared", no_argument, NULL, 'a'}

typedef struct client client_t;

struct client {
    const char *name; /* of the container and in the report */
    const char *address;
    uint64_t count; /* messages to send or receive */
    pn_millis_t timeout; /* without progress */
    int links; /* in all; spread over the connections, link I of several has the address ADDRESS/I */
    int connections;
    bool shared; /* every link has the address itself */
    bool tls;
    bool hold;
    pn_link_t *(*make_link)(client_t *, pn_session_t *, const char *name, const char *address); /* not opened yet */
    bool (*take)(client_t *, pn_event_t *); /* asked before anything else is done: whether that was all; may be NULL */
    void (*on_event)(client_t *, pn_event_t *); /* what is particular to the client */
    void (*on_end)(client_t *); /* before the connections are freed; may be NULL */

    pn_proactor_t *proactor;
    pn_connection_t **connection;
    int attached; /* links that the peer has answered */
    bool started; /* with `hold`, once SIGUSR1 has come */
    bool done;
    uint64_t progress, progress_seen;
    uint64_t begin, end; /* CLOCK_MONOTONIC, nanoseconds */
    bool closing;
    bool stopping; /* SIGTERM came: end with what is under way */
    char error[256];
};

/* Closes the connections; the first call decides on success (NULL) or the error. */
void client_finish(client_t *client, const char *error);

/* All messages are through: closes the connections or, with `hold`, prints "done" and waits for SIGTERM. */
void client_done(client_t *client);

/* Returns when all connections to HOST:PORT are gone; `error` says if anything went wrong.
 * At SIGTERM `stopping` is set and `on_event` gets PN_PROACTOR_INTERRUPT; at SIGUSR1
 * `started` is set, and it gets PN_CONNECTION_WAKE for each connection. */
void client_run(client_t *client, const char *endpoint);

/* Prints the end of the report: the time, the rate of `messages`, and the error as JSON text or null. */
void client_report_end(const client_t *client, uint64_t messages);

/* Prints a JSON text, or null for an empty one. */
void client_print_text(const char *text);

/* Prints quantiles of `count` times in nanoseconds as a JSON object of microseconds; sorts them. */
void client_print_quantiles(uint64_t *times, uint64_t count);

/* Takes one of CLIENT_OPTIONS; false for what is none or makes no sense. */
bool client_option(client_t *client, int option, const char *value);

#endif
