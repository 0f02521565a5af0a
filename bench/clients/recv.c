/* Load receiver: COUNT messages from ADDRESS over one link, each accepted and settled on arrival.
 *
 *   recv HOST:PORT ADDRESS COUNT [--credit N] [--timeout SECONDS]
 *
 * Prints the line "attached" to standard error once the peer has answered the attach. The last 16 bytes of a
 * message must be the stamp written by send (sequence number, CLOCK_MONOTONIC nanoseconds): loss, duplicates,
 * reordering and latency come from it. The run ends with the COUNT-th distinct message, or fails when nothing has
 * arrived for SECONDS (default 10). Credit N (default 1000) is topped up when half of it is used.
 *
 * Prints one JSON line; exit status 0 if all messages came, 1 if not, 2 on wrong arguments.
 */
#include <proton/condition.h>
#include <proton/connection.h>
#include <proton/delivery.h>
#include <proton/link.h>
#include <proton/proactor.h>
#include <proton/sasl.h>
#include <proton/session.h>
#include <proton/transport.h>

#include <getopt.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { STAMP_SIZE = 16, CHUNK_SIZE = 65536 };

typedef struct {
    const char *address;
    uint64_t count;
    int credit;
    pn_millis_t timeout;

    pn_proactor_t *proactor;
    pn_connection_t *connection;
    char chunk[CHUNK_SIZE];
    char tail[STAMP_SIZE]; /* last bytes so far of the message being received */
    size_t length;         /* bytes so far of that message */

    unsigned char *seen; /* bit per sequence number */
    uint64_t *latency;   /* nanoseconds, per distinct message */
    uint64_t received, distinct, duplicates, reordered, foreign, aborted, bytes;
    uint64_t highest; /* highest sequence number so far, plus one */
    uint64_t progress_seen;
    uint64_t begin, end;
    bool closing;
    char error[256];
} receiver_t;

static uint64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void finish(receiver_t *r, const char *error)
{
    if (r->closing) return;
    r->closing = true;
    if (error) snprintf(r->error, sizeof r->error, "%s", error);
    pn_proactor_cancel_timeout(r->proactor);
    pn_connection_close(r->connection);
}

static void finish_condition(receiver_t *r, pn_condition_t *condition, const char *what)
{
    char text[256];
    if (pn_condition_is_set(condition)) {
        const char *detail = pn_condition_get_description(condition);
        snprintf(text, sizeof text, "%s: %s", pn_condition_get_name(condition), detail ? detail : "");
    } else {
        snprintf(text, sizeof text, "%s", what);
    }
    finish(r, text);
}

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
    r->end = now_ns();
    if (!r->begin) r->begin = r->end;
    r->received++;
    r->bytes += r->length;
    if (r->length < STAMP_SIZE || stamp[0] >= r->count) {
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
    r->latency[r->distinct++] = r->end - stamp[1];
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
    if (r->distinct == r->count) {
        finish(r, NULL);
    } else if (pn_link_credit(link) <= r->credit / 2) {
        pn_link_flow(link, r->credit - pn_link_credit(link));
    }
}

/* Returns false when the connection is gone. */
static bool handle(receiver_t *r, pn_event_t *event)
{
    switch (pn_event_type(event)) {
    case PN_CONNECTION_INIT: {
        pn_connection_open(r->connection);
        pn_session_t *session = pn_session(r->connection);
        pn_session_open(session);
        pn_link_t *link = pn_receiver(session, "bench-recv");
        pn_terminus_set_address(pn_link_source(link), r->address);
        pn_link_open(link);
        pn_link_flow(link, r->credit);
        break;
    }
    case PN_LINK_REMOTE_OPEN:
        fputs("attached\n", stderr);
        break;
    case PN_DELIVERY: {
        pn_delivery_t *delivery = pn_event_delivery(event);
        if (!r->closing && (pn_delivery_readable(delivery) || pn_delivery_aborted(delivery))) on_delivery(r, delivery);
        break;
    }
    case PN_PROACTOR_TIMEOUT:
        if (r->received == r->progress_seen) {
            finish(r, "no progress");
        } else {
            r->progress_seen = r->received;
            pn_proactor_set_timeout(r->proactor, r->timeout);
        }
        break;
    case PN_LINK_REMOTE_CLOSE:
        finish_condition(r, pn_link_remote_condition(pn_event_link(event)), "link closed by peer");
        break;
    case PN_SESSION_REMOTE_CLOSE:
        finish_condition(r, pn_session_remote_condition(pn_event_session(event)), "session closed by peer");
        break;
    case PN_CONNECTION_REMOTE_CLOSE:
        finish_condition(r, pn_connection_remote_condition(r->connection), "connection closed by peer");
        break;
    case PN_TRANSPORT_CLOSED:
        finish_condition(r, pn_transport_condition(pn_event_transport(event)), "connection lost");
        return false;
    default:
        break;
    }
    return true;
}

static void run(receiver_t *r, const char *endpoint)
{
    r->proactor = pn_proactor();
    r->connection = pn_connection();
    pn_connection_set_container(r->connection, "bench-recv");
    pn_transport_t *transport = pn_transport();
    pn_sasl_allowed_mechs(pn_sasl(transport), "ANONYMOUS");
    pn_proactor_set_timeout(r->proactor, r->timeout);
    pn_proactor_connect2(r->proactor, r->connection, transport, endpoint);
    for (bool open = true; open;) {
        pn_event_batch_t *events = pn_proactor_wait(r->proactor);
        for (pn_event_t *event; open && (event = pn_event_batch_next(events));) open = handle(r, event);
        pn_proactor_done(r->proactor, events);
    }
    pn_proactor_free(r->proactor);
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
    double seconds = (double)(r->end - r->begin) / 1e9;
    bool ok = !r->error[0] && r->distinct == r->count;
    qsort(r->latency, r->distinct, sizeof *r->latency, by_value);
    printf("{\"client\": \"recv\", \"ok\": %s, \"messages\": %" PRIu64 ", \"received\": %" PRIu64
           ", \"missing\": %" PRIu64 ", \"duplicates\": %" PRIu64 ", \"reordered\": %" PRIu64 ", \"foreign\": %" PRIu64
           ", \"aborted\": %" PRIu64 ", \"bytes\": %" PRIu64 ", \"seconds\": %.6f, \"messages_per_second\": %.1f, "
           "\"latency_us\": {\"p50\": %.1f, \"p99\": %.1f, \"max\": %.1f}, \"error\": ",
           ok ? "true" : "false", r->count, r->received, r->count - r->distinct, r->duplicates, r->reordered,
           r->foreign, r->aborted, r->bytes, seconds, seconds > 0 ? (double)r->received / seconds : 0.0,
           latency_us(r, 0.5), latency_us(r, 0.99), latency_us(r, 1));
    if (r->error[0]) {
        putchar('"');
        for (const char *c = r->error; *c; c++) {
            if (*c == '"' || *c == '\\') putchar('\\');
            putchar((unsigned char)*c < 0x20 ? ' ' : *c);
        }
        puts("\"}");
    } else {
        puts("null}");
    }
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
    static receiver_t r = {.credit = 1000, .timeout = 10000};
    for (int option; (option = getopt_long(argc, argv, "", options, NULL)) != -1;) {
        switch (option) {
        case 'c': r.credit = atoi(optarg); break;
        case 't': r.timeout = (pn_millis_t)(atof(optarg) * 1000); break;
        default: return usage();
        }
    }
    if (argc - optind != 3) return usage();
    r.address = argv[optind + 1];
    r.count = strtoull(argv[optind + 2], NULL, 10);
    if (!r.count || r.credit < 1 || !r.timeout) return usage();

    r.seen = calloc(r.count / 8 + 1, 1);
    r.latency = malloc(r.count * sizeof *r.latency);
    run(&r, argv[optind]);
    int status = report(&r);
    free(r.seen);
    free(r.latency);
    return status;
}
