/* Load receiver: COUNT messages from ADDRESS, each accepted and settled on arrival.
 *
 *   recv HOST:PORT ADDRESS COUNT [--credit N] [--wait] [--skip N] [--links N] [--connections N] [--shared] [--tls]
 *        [--hold] [--timeout SECONDS]
 *
 * Prints the line "attached" to standard error once the peer has answered every attach. The last 16 bytes of a
 * message must be the stamp written by send (sequence number, CLOCK_MONOTONIC nanoseconds): loss, duplicates,
 * reordering on a link and latency come from it. The run ends with the COUNT-th distinct message, or fails when nothing
 * has arrived for SECONDS (default 10). SIGTERM ends it too: then COUNT, and so `missing`, say nothing. Credit N
 * (default 1000) of each link is topped up when half of it is used. With --wait none is given before SIGUSR1, and then
 * for COUNT messages in all, so that a sender without end sends no more than these. Latencies of the first messages, as
 * many as --skip says, are not reported. --links, --connections: several, as of send; with --shared all links have
 * ADDRESS itself.
 * With --hold it prints "done" to standard error instead of closing its connections, and then waits for SIGTERM.
 *
 * Prints one JSON line; exit status 0 if all messages came, 1 if not, 2 on wrong arguments.
 */
#include "client.h"

#include <proton/delivery.h>
#include <proton/link.h>

#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CHUNK_SIZE = 65536 };

typedef struct {
    char tail[STAMP_SIZE]; /* last bytes so far of the message being received */
    size_t length;         /* bytes so far of that message */
    uint64_t highest;      /* highest sequence number so far, plus one */
} incoming_t;

typedef struct {
    client_t client;
    int credit;
    bool wait;
    uint64_t granted; /* credit in all, with `wait` */
    uint64_t skip;

    char chunk[CHUNK_SIZE];
    unsigned char *seen; /* bit per sequence number */
    uint64_t *latency;   /* nanoseconds, per distinct message */
    uint64_t distinct, duplicates, reordered, foreign, aborted, bytes;
} receiver_t;

static void keep_tail(incoming_t *in, const char *data, size_t size)
{
    if (size >= STAMP_SIZE) {
        memcpy(in->tail, data + size - STAMP_SIZE, STAMP_SIZE);
    } else {
        memmove(in->tail, in->tail + size, STAMP_SIZE - size);
        memcpy(in->tail + STAMP_SIZE - size, data, size);
    }
    in->length += size;
}

static void on_message(receiver_t *r, incoming_t *in)
{
    uint64_t stamp[2];
    memcpy(stamp, in->tail, STAMP_SIZE);
    r->client.end = now_ns();
    if (!r->client.begin) r->client.begin = r->client.end;
    r->client.progress++;
    r->bytes += in->length;
    if (in->length < STAMP_SIZE || stamp[0] >= r->client.count) {
        r->foreign++;
        return;
    }
    unsigned char *byte = &r->seen[stamp[0] / 8], bit = (unsigned char)(1u << (stamp[0] % 8));
    if (*byte & bit) {
        r->duplicates++;
        return;
    }
    *byte |= bit;
    if (stamp[0] < in->highest) r->reordered++;
    else in->highest = stamp[0] + 1;
    r->latency[r->distinct++] = r->client.end - stamp[1];
}

static void top_up(receiver_t *r, pn_link_t *link)
{
    int more = r->credit - pn_link_credit(link);
    if (r->wait) {
        if (r->client.count - r->granted < (uint64_t)more) more = (int)(r->client.count - r->granted);
        r->granted += (uint64_t)more;
    }
    if (more > 0) pn_link_flow(link, more);
}

static void on_delivery(receiver_t *r, pn_delivery_t *delivery)
{
    pn_link_t *link = pn_delivery_link(delivery);
    incoming_t *in = pn_link_get_context(link);
    ssize_t got;
    while ((got = pn_link_recv(link, r->chunk, sizeof r->chunk)) > 0) keep_tail(in, r->chunk, (size_t)got);
    if (pn_delivery_aborted(delivery)) {
        r->aborted++;
        pn_delivery_settle(delivery);
    } else if (pn_delivery_partial(delivery)) {
        return;
    } else {
        on_message(r, in);
        pn_delivery_update(delivery, PN_ACCEPTED);
        pn_delivery_settle(delivery); /* also advances the link */
    }
    in->length = 0;
    if (r->distinct == r->client.count) {
        client_done(&r->client);
    } else if (pn_link_credit(link) <= r->credit / 2) {
        top_up(r, link);
    }
}

static pn_link_t *make_link(client_t *client, pn_session_t *session, const char *name, const char *address)
{
    receiver_t *r = (receiver_t *)client;
    pn_link_t *link = pn_receiver(session, name);
    pn_terminus_set_address(pn_link_source(link), address);
    pn_link_set_context(link, calloc(1, sizeof(incoming_t)));
    if (!r->wait) top_up(r, link);
    return link;
}

static void on_event(client_t *client, pn_event_t *event)
{
    receiver_t *r = (receiver_t *)client;
    switch (pn_event_type(event)) {
    case PN_DELIVERY: {
        pn_delivery_t *delivery = pn_event_delivery(event);
        if (!client->closing && (pn_delivery_readable(delivery) || pn_delivery_aborted(delivery))) on_delivery(r, delivery);
        break;
    }
    case PN_CONNECTION_WAKE: {
        pn_connection_t *connection = pn_event_connection(event);
        if (!r->wait || !client->started) break;
        for (pn_link_t *link = pn_link_head(connection, 0); link; link = pn_link_next(link, 0)) top_up(r, link);
        break;
    }
    case PN_LINK_FINAL:
        free(pn_link_get_context(pn_event_link(event)));
        break;
    case PN_PROACTOR_INTERRUPT:
        client_finish(client, NULL);
        break;
    default:
        break;
    }
}

static int report(receiver_t *r)
{
    bool ok = !r->client.error[0] && (r->client.stopping || r->distinct == r->client.count);
    uint64_t skip = r->skip < r->distinct ? r->skip : 0;
    printf("{\"client\": \"recv\", \"ok\": %s, \"messages\": %" PRIu64 ", \"received\": %" PRIu64
           ", \"missing\": %" PRIu64 ", \"duplicates\": %" PRIu64 ", \"reordered\": %" PRIu64 ", \"foreign\": %" PRIu64
           ", \"aborted\": %" PRIu64 ", \"bytes\": %" PRIu64 ", \"latency_us\": ",
           ok ? "true" : "false", r->client.count, r->client.progress, r->client.count - r->distinct, r->duplicates,
           r->reordered, r->foreign, r->aborted, r->bytes);
    client_print_quantiles(r->latency + skip, r->distinct - skip);
    printf(", ");
    client_report_end(&r->client, r->client.progress);
    return ok ? 0 : 1;
}

static int usage(void)
{
    fputs("usage: recv HOST:PORT ADDRESS COUNT [--credit N] [--wait] [--skip N] [--links N] [--connections N] [--shared]"
          " [--tls] [--hold] [--timeout SECONDS]\n", stderr);
    return 2;
}

int main(int argc, char **argv)
{
    static const struct option options[] = {
        {"credit", required_argument, NULL, 'c'}, {"wait", no_argument, NULL, 'w'}, {"skip", required_argument, NULL, 'k'},
        CLIENT_OPTIONS, {NULL, 0, NULL, 0}};
    static receiver_t r = {
        .client = {.name = "bench-recv", .timeout = 10000, .links = 1, .connections = 1, .make_link = make_link,
                   .on_event = on_event},
        .credit = 1000};
    for (int option; (option = getopt_long(argc, argv, "", options, NULL)) != -1;) {
        switch (option) {
        case 'c': r.credit = atoi(optarg); break;
        case 'w': r.wait = true; break;
        case 'k': r.skip = strtoull(optarg, NULL, 10); break;
        default: if (!client_option(&r.client, option, optarg)) return usage();
        }
    }
    if (argc - optind != 3) return usage();
    r.client.address = argv[optind + 1];
    r.client.count = strtoull(argv[optind + 2], NULL, 10);
    if (!r.client.count || r.credit < 1 || r.client.links < r.client.connections) return usage();

    r.seen = calloc(r.client.count / 8 + 1, 1);
    r.latency = malloc(r.client.count * sizeof *r.latency);
    client_run(&r.client, argv[optind]);
    int status = report(&r);
    free(r.seen);
    free(r.latency);
    return status;
}
