/* Load sender: COUNT messages of SIZE body bytes to ADDRESS over one link, as fast as credit allows.
 *
 *   send HOST:PORT ADDRESS COUNT SIZE [--presettled] [--timeout SECONDS]
 *
 * A message is one data section. The last 16 bytes of its body are the sequence number and the sending time
 * (CLOCK_MONOTONIC, nanoseconds), both in host byte order, for recv on the same machine to check.
 * A released message is sent again; a rejected or modified one is not. Without --presettled the run ends when
 * every message is settled. It fails when nothing has moved for SECONDS (default 10).
 *
 * Prints one JSON line; exit status 0 if all messages were accepted (or, presettled, sent), 1 if not, 2 on
 * wrong arguments.
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

enum { STAMP_SIZE = 16, SECTION_HEAD_MAX = 8 };

typedef struct {
    const char *address;
    uint64_t count;
    size_t size;
    bool presettled;
    pn_millis_t timeout;

    pn_proactor_t *proactor;
    pn_connection_t *connection;
    char *message; /* one encoded message, the stamp overwritten for each sending */
    size_t message_size;

    uint64_t sent; /* distinct messages */
    uint64_t tag;  /* deliveries, repeats included */
    uint64_t *again; /* sequence numbers of released messages, waiting for credit */
    uint64_t again_size;
    uint64_t accepted, rejected, released, modified;
    uint64_t progress, progress_seen;
    uint64_t begin, end;
    bool closing;
    char error[256];
} sender_t;

static uint64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void encode_message(sender_t *s)
{
    s->message = calloc(1, SECTION_HEAD_MAX + s->size);
    char *p = s->message;
    *p++ = 0x00; /* described type, descriptor smallulong 0x75: data section */
    *p++ = 0x53;
    *p++ = 0x75;
    if (s->size < 256) {
        *p++ = (char)0xa0;
        *p++ = (char)s->size;
    } else {
        *p++ = (char)0xb0;
        for (int shift = 24; shift >= 0; shift -= 8) *p++ = (char)(s->size >> shift);
    }
    s->message_size = (size_t)(p - s->message) + s->size;
}

static void finish(sender_t *s, const char *error)
{
    if (s->closing) return;
    s->closing = true;
    s->end = now_ns();
    if (error) snprintf(s->error, sizeof s->error, "%s", error);
    pn_proactor_cancel_timeout(s->proactor);
    pn_connection_close(s->connection);
}

static void finish_condition(sender_t *s, pn_condition_t *condition, const char *what)
{
    char text[256];
    if (pn_condition_is_set(condition)) {
        const char *detail = pn_condition_get_description(condition);
        snprintf(text, sizeof text, "%s: %s", pn_condition_get_name(condition), detail ? detail : "");
    } else {
        snprintf(text, sizeof text, "%s", what);
    }
    finish(s, text);
}

static void finish_if_done(sender_t *s)
{
    if (s->sent < s->count || s->again_size) return;
    if (s->presettled || s->accepted + s->rejected + s->modified == s->count) finish(s, NULL);
}

static void send_while_credit(sender_t *s, pn_link_t *link)
{
    while (!s->closing && pn_link_credit(link) > 0 && (s->again_size || s->sent < s->count)) {
        uint64_t sequence = s->again_size ? s->again[--s->again_size] : s->sent++;
        uint64_t stamp[2] = {sequence, now_ns()};
        if (!s->begin) s->begin = stamp[1];
        memcpy(s->message + s->message_size - STAMP_SIZE, stamp, STAMP_SIZE);

        pn_delivery_t *delivery = pn_delivery(link, pn_dtag((const char *)&s->tag, sizeof s->tag));
        s->tag++;
        s->progress++;
        pn_delivery_set_context(delivery, (void *)(uintptr_t)sequence);
        pn_link_send(link, s->message, s->message_size);
        if (s->presettled) pn_delivery_settle(delivery);
        pn_link_advance(link);
    }
    finish_if_done(s);
}

static void on_outcome(sender_t *s, pn_delivery_t *delivery)
{
    uint64_t state = pn_delivery_remote_state(delivery);
    if (!pn_delivery_settled(delivery) && state <= PN_RECEIVED) return; /* not terminal yet */
    switch (state) {
    case PN_ACCEPTED: s->accepted++; break;
    case PN_REJECTED: s->rejected++; break;
    case PN_MODIFIED: s->modified++; break;
    default: /* released, or settled without an outcome */
        s->released++;
        s->again[s->again_size++] = (uint64_t)(uintptr_t)pn_delivery_get_context(delivery);
    }
    s->progress++;
    pn_link_t *link = pn_delivery_link(delivery);
    pn_delivery_settle(delivery);
    if (s->again_size) send_while_credit(s, link);
    finish_if_done(s);
}

/* Returns false when the connection is gone. */
static bool handle(sender_t *s, pn_event_t *event)
{
    switch (pn_event_type(event)) {
    case PN_CONNECTION_INIT: {
        pn_connection_open(s->connection);
        pn_session_t *session = pn_session(s->connection);
        pn_session_open(session);
        pn_link_t *link = pn_sender(session, "bench-send");
        pn_terminus_set_address(pn_link_target(link), s->address);
        pn_link_set_snd_settle_mode(link, s->presettled ? PN_SND_SETTLED : PN_SND_UNSETTLED);
        pn_link_open(link);
        break;
    }
    case PN_LINK_FLOW:
        send_while_credit(s, pn_event_link(event));
        break;
    case PN_DELIVERY:
        if (!s->presettled && pn_delivery_updated(pn_event_delivery(event))) on_outcome(s, pn_event_delivery(event));
        break;
    case PN_PROACTOR_TIMEOUT:
        if (s->progress == s->progress_seen) {
            finish(s, "no progress");
        } else {
            s->progress_seen = s->progress;
            pn_proactor_set_timeout(s->proactor, s->timeout);
        }
        break;
    case PN_LINK_REMOTE_CLOSE:
        finish_condition(s, pn_link_remote_condition(pn_event_link(event)), "link closed by peer");
        break;
    case PN_SESSION_REMOTE_CLOSE:
        finish_condition(s, pn_session_remote_condition(pn_event_session(event)), "session closed by peer");
        break;
    case PN_CONNECTION_REMOTE_CLOSE:
        finish_condition(s, pn_connection_remote_condition(s->connection), "connection closed by peer");
        break;
    case PN_TRANSPORT_CLOSED:
        finish_condition(s, pn_transport_condition(pn_event_transport(event)), "connection lost");
        return false;
    default:
        break;
    }
    return true;
}

static void run(sender_t *s, const char *endpoint)
{
    s->proactor = pn_proactor();
    s->connection = pn_connection();
    pn_connection_set_container(s->connection, "bench-send");
    pn_transport_t *transport = pn_transport();
    pn_sasl_allowed_mechs(pn_sasl(transport), "ANONYMOUS");
    pn_proactor_set_timeout(s->proactor, s->timeout);
    pn_proactor_connect2(s->proactor, s->connection, transport, endpoint);
    for (bool open = true; open;) {
        pn_event_batch_t *events = pn_proactor_wait(s->proactor);
        for (pn_event_t *event; open && (event = pn_event_batch_next(events));) open = handle(s, event);
        pn_proactor_done(s->proactor, events);
    }
    pn_proactor_free(s->proactor);
}

static int report(const sender_t *s)
{
    double seconds = s->begin ? (double)(s->end - s->begin) / 1e9 : 0;
    bool ok = !s->error[0] && s->sent == s->count && (s->presettled || s->accepted == s->count);
    printf("{\"client\": \"send\", \"ok\": %s, \"messages\": %" PRIu64 ", \"size\": %zu, \"presettled\": %s, "
           "\"sent\": %" PRIu64 ", \"accepted\": %" PRIu64 ", \"rejected\": %" PRIu64 ", \"released\": %" PRIu64
           ", \"modified\": %" PRIu64 ", \"seconds\": %.6f, \"messages_per_second\": %.1f, \"error\": ",
           ok ? "true" : "false", s->count, s->size, s->presettled ? "true" : "false", s->sent, s->accepted,
           s->rejected, s->released, s->modified, seconds, seconds > 0 ? (double)s->sent / seconds : 0.0);
    if (s->error[0]) {
        putchar('"');
        for (const char *c = s->error; *c; c++) {
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
    fputs("usage: send HOST:PORT ADDRESS COUNT SIZE [--presettled] [--timeout SECONDS]\n", stderr);
    return 2;
}

int main(int argc, char **argv)
{
    static const struct option options[] = {
        {"presettled", no_argument, NULL, 'p'}, {"timeout", required_argument, NULL, 't'}, {NULL, 0, NULL, 0}};
    sender_t s = {.timeout = 10000};
    for (int option; (option = getopt_long(argc, argv, "", options, NULL)) != -1;) {
        switch (option) {
        case 'p': s.presettled = true; break;
        case 't': s.timeout = (pn_millis_t)(atof(optarg) * 1000); break;
        default: return usage();
        }
    }
    if (argc - optind != 4) return usage();
    s.address = argv[optind + 1];
    s.count = strtoull(argv[optind + 2], NULL, 10);
    s.size = strtoull(argv[optind + 3], NULL, 10);
    if (!s.count || s.size < STAMP_SIZE || s.size > UINT32_MAX || !s.timeout) return usage();

    s.again = malloc(s.count * sizeof *s.again);
    encode_message(&s);
    run(&s, argv[optind]);
    int status = report(&s);
    free(s.message);
    free(s.again);
    return status;
}
