/* A container to attach to: it stands for a broker that costs as little as possible.
 *
 *   container PORT [--credit N] [--size N] [--id CONTAINER]
 *
 * Listens on 127.0.0.1. Every link is attached at once, with the termini asked for; a dynamic node gets a name. From
 * links of senders it takes everything: each message is accepted on arrival, and credit N (default 1000) topped up when
 * half of it is used. Links of receivers get messages with --size (default 100) bytes of body as their credit allows,
 * stamped as those of send, for recv. The messages are numbered from 0, together for all links whose address is the
 * same up to the last "/": so a run of recv needs an address that was not used before.
 *
 * Prints the line "listening" to standard error. SIGUSR1 prints counts as one JSON line, SIGTERM prints them and ends.
 * `attached` are the links now, `accepted` those of the `sent` that receivers have accepted.
 */
#include "server.h"
#include "stamped.h"

#include <proton/connection.h>
#include <proton/delivery.h>
#include <proton/link.h>
#include <proton/session.h>

#include <getopt.h>
#include <inttypes.h>
#include <search.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
    char *name;
    uint64_t next; /* number of a message */
} series_t;

static int credit = 1000;
static char *message;
static size_t message_size;
static void *all_series; /* tree of tsearch */
static int64_t connections, attached;
static uint64_t attaches, received, bytes, sent, accepted;

static int by_name(const void *a, const void *b)
{
    return strcmp(((const series_t *)a)->name, ((const series_t *)b)->name);
}

static series_t *find_series(const char *address)
{
    const char *end = address ? strrchr(address, '/') : NULL;
    series_t *series = calloc(1, sizeof *series);
    series->name = strndup(address ? address : "", end ? (size_t)(end - address) : SIZE_MAX);
    series_t *found = *(series_t **)tsearch(series, &all_series, by_name);
    if (found != series) {
        free(series->name);
        free(series);
    }
    return found;
}

static void count_attached(pn_session_t *session, intptr_t more)
{
    pn_session_set_context(session, (void *)((intptr_t)pn_session_get_context(session) + more));
    attached += more;
}

static void name_dynamic(pn_terminus_t *terminus)
{
    char name[32];
    if (!pn_terminus_is_dynamic(terminus)) return;
    snprintf(name, sizeof name, "dynamic-%" PRIu64, attaches);
    pn_terminus_set_address(terminus, name);
}

static void attach(pn_link_t *link)
{
    attaches++;
    count_attached(pn_link_session(link), 1);
    pn_terminus_copy(pn_link_source(link), pn_link_remote_source(link));
    pn_terminus_copy(pn_link_target(link), pn_link_remote_target(link));
    pn_link_set_snd_settle_mode(link, pn_link_remote_snd_settle_mode(link));
    pn_link_set_rcv_settle_mode(link, pn_link_remote_rcv_settle_mode(link));
    name_dynamic(pn_link_is_sender(link) ? pn_link_source(link) : pn_link_target(link));
    pn_link_open(link);
    if (pn_link_is_receiver(link)) pn_link_flow(link, credit);
}

static void detach(pn_link_t *link, bool close)
{
    if (close) pn_link_close(link);
    else pn_link_detach(link);
    count_attached(pn_link_session(link), -1);
    pn_link_free(link);
}

static void end_session(pn_session_t *session)
{
    count_attached(session, -(intptr_t)pn_session_get_context(session));
    pn_session_close(session);
    pn_session_free(session);
}

static void send_while_credit(pn_link_t *link)
{
    static uint64_t tag;
    series_t *series = pn_link_get_context(link);
    if (!series && pn_link_credit(link) > 0) {
        series = find_series(pn_terminus_get_address(pn_link_source(link)));
        pn_link_set_context(link, series);
    }
    bool settled = pn_link_remote_snd_settle_mode(link) == PN_SND_SETTLED;
    for (; pn_link_credit(link) > 0; sent++, tag++) {
        pn_delivery_t *delivery = pn_delivery(link, pn_dtag((const char *)&tag, sizeof tag));
        stamp(message, message_size, series->next++, now_ns());
        pn_link_send(link, message, message_size);
        if (settled) pn_delivery_settle(delivery); /* also advances the link */
        else pn_link_advance(link);
    }
}

static void take(pn_delivery_t *delivery)
{
    static char chunk[65536];
    pn_link_t *link = pn_delivery_link(delivery);
    if (pn_delivery_partial(delivery)) { /* else settling drops what is there */
        for (ssize_t got; (got = pn_link_recv(link, chunk, sizeof chunk)) > 0;) bytes += (uint64_t)got;
        if (!pn_delivery_aborted(delivery)) return;
    }
    if (!pn_delivery_aborted(delivery)) {
        received++;
        bytes += pn_delivery_pending(delivery);
        pn_delivery_update(delivery, PN_ACCEPTED);
    }
    pn_delivery_settle(delivery);
    if (pn_link_credit(link) <= credit / 2) pn_link_flow(link, credit - pn_link_credit(link));
}

static void on_delivery(pn_delivery_t *delivery)
{
    if (pn_link_is_receiver(pn_delivery_link(delivery))) {
        if (pn_delivery_readable(delivery) || pn_delivery_aborted(delivery)) take(delivery);
    } else if (pn_delivery_settled(delivery) || pn_delivery_remote_state(delivery) > PN_RECEIVED) {
        if (pn_delivery_remote_state(delivery) == PN_ACCEPTED) accepted++;
        pn_delivery_settle(delivery);
    }
}

static void on_event(pn_event_t *event)
{
    switch (pn_event_type(event)) {
    case PN_CONNECTION_INIT:
        connections++;
        break;
    case PN_CONNECTION_REMOTE_OPEN:
        pn_connection_open(pn_event_connection(event));
        break;
    case PN_SESSION_REMOTE_OPEN:
        pn_session_open(pn_event_session(event));
        break;
    case PN_LINK_REMOTE_OPEN:
        attach(pn_event_link(event));
        break;
    case PN_LINK_FLOW:
        if (pn_link_is_sender(pn_event_link(event))) send_while_credit(pn_event_link(event));
        break;
    case PN_DELIVERY:
        on_delivery(pn_event_delivery(event));
        break;
    case PN_LINK_REMOTE_CLOSE:
    case PN_LINK_REMOTE_DETACH:
        detach(pn_event_link(event), pn_event_type(event) == PN_LINK_REMOTE_CLOSE);
        break;
    case PN_SESSION_REMOTE_CLOSE:
        end_session(pn_event_session(event));
        break;
    case PN_CONNECTION_REMOTE_CLOSE:
        pn_connection_close(pn_event_connection(event));
        break;
    default:
        break;
    }
}

static void on_gone(pn_connection_t *connection)
{
    connections--;
    for (pn_session_t *s = pn_session_head(connection, 0); s; s = pn_session_next(s, 0)) {
        attached -= (intptr_t)pn_session_get_context(s);
    }
}

static void on_signal(int number)
{
    printf("{\"client\": \"container\", \"connections\": %" PRId64 ", \"attached\": %" PRId64 ", \"attaches\": %" PRIu64
           ", \"received\": %" PRIu64 ", \"bytes\": %" PRIu64 ", \"sent\": %" PRIu64 ", \"accepted\": %" PRIu64 "}\n",
           connections, attached, attaches, received, bytes, sent, accepted);
    fflush(stdout);
    if (number == SIGTERM) server_stop();
}

static int usage(void)
{
    fputs("usage: container PORT [--credit N] [--size N] [--id CONTAINER]\n", stderr);
    return 2;
}

int main(int argc, char **argv)
{
    static const struct option options[] = {
        {"credit", required_argument, NULL, 'c'}, {"size", required_argument, NULL, 's'},
        {"id", required_argument, NULL, 'i'}, {NULL, 0, NULL, 0}};
    static server_t server = {
        .container = "bench-container", .on_event = on_event, .on_gone = on_gone, .on_signal = on_signal};
    size_t size = 100;
    for (int option; (option = getopt_long(argc, argv, "", options, NULL)) != -1;) {
        switch (option) {
        case 'c': credit = atoi(optarg); break;
        case 's': size = strtoull(optarg, NULL, 10); break;
        case 'i': server.container = optarg; break;
        default: return usage();
        }
    }
    int port = argc - optind == 1 ? atoi(argv[optind]) : 0;
    if (port < 1 || port > 65535 || credit < 1 || size < STAMP_SIZE || size > UINT32_MAX) return usage();
    message = stamped_message(size, &message_size);
    return server_run(&server, port);
}
