/* Load receiver: COUNT messages from ADDRESS over one link, each accepted and settled on arrival.
 *
 *   recv HOST:PORT ADDRESS COUNT [--credit N] [--timeout SECONDS]
 *
 * Prints the line "attached" to standard error once the peer has answered the attach. The last 16 bytes of a
 * message must be the stamp written by send (sequence number, CLOCK_MONOTONIC nanoseconds): loss, duplicates,
 * reordering and latency come from it. The run ends with the COUNT-th distinct message, or fails when nothing has
 * arrived for SECONDS (default 10). SIGTERM ends it too: then COUNT, and so `missing`, say nothing. Credit N
 * (default 1000) is topped up when half of it is used.
 *
 * Prints one JSON line; exit status 0 if all messages came, 1 if not, 2 on wrong arguments.
 */
#include "client.h"

#include <proton/delivery.h>
#include <proton/link.h>
#include <proton/session.h>

#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CHUNK_SIZE = 65536 };

typedef struct {
    client_t client;
    int credit;

    char chunk[CHUNK_SIZE];
    char tail[STAMP_SIZE]; /* last bytes so far of the message being received */
    size_t length;         /* bytes so far of that message */

    unsigned char *seen; /* bit per sequence number */
    uint64_t *latency;   /* nanoseconds, per distinct message */
    uint64_t distinct, duplicates, reordered, foreign, aborted, bytes;
    uint64_t highest; /* highest sequence number so far, plus one */
} receiver_t;

static void keep_tail(receiver_t *r, const char *data, size_t size)
{
    if (size >= STAMP_SIZE) {
        memcpy(r->tail, data + size - STAMP_SIZE, STAMP_SIZE);
    } else {
        memmove(r->tail, r->tail + size, STAMP_SIZE - size);
        memcpy(r->tail + STAMP_SIZE - size, data, size);
    }
    r->length += size;
}

static void on_message(receiver_t *r)
{
    uint64_t stamp[2];
    memcpy(stamp, r->tail, STAMP_SIZE);
    r->client.end = now_ns();
    if (!r->client.begin) r->client.begin = r->client.end;
    r->client.progress++;
    r->bytes += r->length;
    if (r->length < STAMP_SIZE || stamp[0] >= r->client.count) {
        r->foreign++;
        return;
    }
    unsigned char *byte = &r->seen[stamp[0] / 8], bit = (unsigned char)(1u << (stamp[0] % 8));
    if (*byte & bit) {
        r->duplicates++;
        return;
    }
    *byte |= bit;
    if (stamp[0] < r->highest) r->reordered++;
    else r->highest = stamp[0] + 1;
    r->latency[r->distinct++] = r->client.end - stamp[1];
}

static void on_delivery(receiver_t *r, pn_delivery_t *delivery)
{
    pn_link_t *link = pn_delivery_link(delivery);
    ssize_t got;
    while ((got = pn_link_recv(link, r->chunk, sizeof r->chunk)) > 0) keep_tail(r, r->chunk, (size_t)got);
    if (pn_delivery_aborted(delivery)) {
        r->aborted++;
        pn_delivery_settle(delivery);
    } else if (pn_delivery_partial(delivery)) {
        return;
    } else {
        on_message(r);
        pn_delivery_update(delivery, PN_ACCEPTED);
        pn_delivery_settle(delivery); /* also advances the link */
    }
    r->length = 0;
    if (r->distinct == r->client.count) {
        client_finish(&r->client, NULL);
    } else if (pn_link_credit(link) <= r->credit / 2) {
        pn_link_flow(link, r->credit - pn_link_credit(link));
    }
}

static void on_event(client_t *client, pn_event_t *event)
{
    receiver_t *r = (receiver_t *)client;
    switch (pn_event_type(event)) {
    case PN_CONNECTION_INIT: {
        pn_connection_open(client->connection);
        pn_session_t *session = pn_session(client->connection);
        pn_session_open(session);
        pn_link_t *link = pn_receiver(session, "bench-recv");
        pn_terminus_set_address(pn_link_source(link), client->address);
        pn_link_open(link);
        pn_link_flow(link, r->credit);
        break;
    }
    case PN_LINK_REMOTE_OPEN:
        fputs("attached\n", stderr);
        break;
    case PN_DELIVERY: {
        pn_delivery_t *delivery = pn_event_delivery(event);
        if (!client->closing && (pn_delivery_readable(delivery) || pn_delivery_aborted(delivery))) on_delivery(r, delivery);
        break;
    }
    case PN_PROACTOR_INTERRUPT:
        client_finish(client, NULL);
        break;
    default:
        break;
    }
}

static int by_value(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

static double latency_us(const receiver_t *r, double quantile)
{
    return r->distinct ? (double)r->latency[(uint64_t)(quantile * (double)(r->distinct - 1))] / 1e3 : 0;
}

static int report(receiver_t *r)
{
    bool ok = !r->client.error[0] && (r->client.stopping || r->distinct == r->client.count);
    qsort(r->latency, r->distinct, sizeof *r->latency, by_value);
    printf("{\"client\": \"recv\", \"ok\": %s, \"messages\": %" PRIu64 ", \"received\": %" PRIu64
           ", \"missing\": %" PRIu64 ", \"duplicates\": %" PRIu64 ", \"reordered\": %" PRIu64 ", \"foreign\": %" PRIu64
           ", \"aborted\": %" PRIu64 ", \"bytes\": %" PRIu64 ", \"latency_us\": {\"p50\": %.1f, \"p99\": %.1f, \"max\": %.1f}, ",
           ok ? "true" : "false", r->client.count, r->client.progress, r->client.count - r->distinct, r->duplicates, r->reordered,
           r->foreign, r->aborted, r->bytes, latency_us(r, 0.5), latency_us(r, 0.99), latency_us(r, 1));
    client_report_end(&r->client, r->client.progress);
    return ok ? 0 : 1;
}

static int usage(void)
{
    fputs("usage: recv HOST:PORT ADDRESS COUNT [--credit N] [--timeout SECONDS]\n", stderr);
    return 2;
}

int main(int argc, char **argv)
{
    static const struct option options[] = {
        {"credit", required_argument, NULL, 'c'}, {"timeout", required_argument, NULL, 't'}, {NULL, 0, NULL, 0}};
    static receiver_t r = {.client = {.name = "bench-recv", .timeout = 10000, .on_event = on_event}, .credit = 1000};
    for (int option; (option = getopt_long(argc, argv, "", options, NULL)) != -1;) {
        switch (option) {
        case 'c': r.credit = atoi(optarg); break;
        case 't': r.client.timeout = client_timeout(optarg); break;
        default: return usage();
        }
    }
    if (argc - optind != 3) return usage();
    r.client.address = argv[optind + 1];
    r.client.count = strtoull(argv[optind + 2], NULL, 10);
    if (!r.client.count || r.credit < 1 || !r.client.timeout) return usage();

    r.seen = calloc(r.client.count / 8 + 1, 1);
    r.latency = malloc(r.client.count * sizeof *r.latency);
    client_run(&r.client, argv[optind]);
    int status = report(&r);
    free(r.seen);
    free(r.latency);
    return status;
}
