/* Load sender: COUNT messages of SIZE body bytes to ADDRESS over one link, as fast as credit allows.
 *
 *   send HOST:PORT ADDRESS COUNT SIZE [--presettled] [--window N] [--times FILE] [--timeout SECONDS]
 *
 * A message is one data section. The last 16 bytes of its body are the sequence number and the sending time
 * (CLOCK_MONOTONIC, nanoseconds), both in host byte order, for recv on the same machine to check.
 * A released message is sent again; a rejected or modified one is not. Without --presettled the run ends when
 * every message is settled. It fails when nothing has moved for SECONDS (default 10). SIGTERM: no more is sent, and
 * the run ends when what was sent is settled.
 *
 * With --window no more than N messages are under way at a time. With --times FILE gets two 64-bit numbers in host
 * byte order for each settled message: when it was sent and when its outcome came (CLOCK_MONOTONIC, nanoseconds).
 *
 * Prints one JSON line; exit status 0 if all messages were accepted (or, presettled, sent), 1 if not, 2 on
 * wrong arguments.
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

enum { SECTION_HEAD_MAX = 8 };

typedef struct {
    client_t client;
    size_t size;
    bool presettled;
    uint64_t window; /* messages under way at most */
    FILE *times;

    char *message; /* one encoded message, the stamp overwritten for each sending */
    size_t message_size;

    uint64_t sent; /* distinct messages */
    uint64_t tag;  /* deliveries, repeats included */
    uint64_t *again; /* sequence numbers of released messages, waiting for credit */
    uint64_t again_size;
    uint64_t accepted, rejected, released, modified;
    uint64_t settled; /* deliveries */
    uint64_t *sent_at; /* by sequence number, if there are `times` */
} sender_t;

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

static void finish_if_done(sender_t *s)
{
    if ((s->sent < s->client.count && !s->client.stopping) || s->again_size) return;
    if (s->presettled || s->accepted + s->rejected + s->modified == s->sent) {
        s->client.end = now_ns();
        client_finish(&s->client, NULL);
    }
}

static void send_while_credit(sender_t *s, pn_link_t *link)
{
    while (!s->client.closing && pn_link_credit(link) > 0 && s->tag - s->settled < s->window
           && (s->again_size || (s->sent < s->client.count && !s->client.stopping))) {
        uint64_t sequence = s->again_size ? s->again[--s->again_size] : s->sent++;
        uint64_t stamp[2] = {sequence, now_ns()};
        if (!s->client.begin) s->client.begin = stamp[1];
        memcpy(s->message + s->message_size - STAMP_SIZE, stamp, STAMP_SIZE);

        pn_delivery_t *delivery = pn_delivery(link, pn_dtag((const char *)&s->tag, sizeof s->tag));
        s->tag++;
        s->client.progress++;
        pn_delivery_set_context(delivery, (void *)(uintptr_t)sequence);
        pn_link_send(link, s->message, s->message_size);
        if (s->presettled) {
            s->settled++;
            pn_delivery_settle(delivery);
        }
        if (s->times) s->sent_at[sequence] = stamp[1];
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
    s->client.progress++;
    s->settled++;
    if (s->times) {
        uint64_t times[2] = {s->sent_at[(uint64_t)(uintptr_t)pn_delivery_get_context(delivery)], now_ns()};
        fwrite(times, sizeof times, 1, s->times);
    }
    pn_link_t *link = pn_delivery_link(delivery);
    pn_delivery_settle(delivery);
    send_while_credit(s, link);
}

static void on_event(client_t *client, pn_event_t *event)
{
    sender_t *s = (sender_t *)client;
    switch (pn_event_type(event)) {
    case PN_CONNECTION_INIT: {
        pn_connection_open(client->connection);
        pn_session_t *session = pn_session(client->connection);
        pn_session_open(session);
        pn_link_t *link = pn_sender(session, "bench-send");
        pn_terminus_set_address(pn_link_target(link), client->address);
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
    case PN_PROACTOR_INTERRUPT:
        finish_if_done(s);
        break;
    default:
        break;
    }
}

static int report(const sender_t *s)
{
    bool ok = !s->client.error[0] && (s->client.stopping || s->sent == s->client.count)
              && (s->presettled || s->accepted == s->sent);
    printf("{\"client\": \"send\", \"ok\": %s, \"messages\": %" PRIu64 ", \"size\": %zu, \"presettled\": %s, "
           "\"sent\": %" PRIu64 ", \"accepted\": %" PRIu64 ", \"rejected\": %" PRIu64 ", \"released\": %" PRIu64
           ", \"modified\": %" PRIu64 ", ",
           ok ? "true" : "false", s->client.count, s->size, s->presettled ? "true" : "false", s->sent, s->accepted,
           s->rejected, s->released, s->modified);
    client_report_end(&s->client, s->sent);
    return ok ? 0 : 1;
}

static int usage(void)
{
    fputs("usage: send HOST:PORT ADDRESS COUNT SIZE [--presettled] [--window N] [--times FILE] [--timeout SECONDS]\n",
          stderr);
    return 2;
}

int main(int argc, char **argv)
{
    static const struct option options[] = {
        {"presettled", no_argument, NULL, 'p'}, {"timeout", required_argument, NULL, 't'},
        {"times", required_argument, NULL, 'f'}, {"window", required_argument, NULL, 'w'}, {NULL, 0, NULL, 0}};
    sender_t s = {.client = {.name = "bench-send", .timeout = 10000, .on_event = on_event}, .window = UINT64_MAX};
    const char *times = NULL;
    for (int option; (option = getopt_long(argc, argv, "", options, NULL)) != -1;) {
        switch (option) {
        case 'p': s.presettled = true; break;
        case 't': s.client.timeout = client_timeout(optarg); break;
        case 'f': times = optarg; break;
        case 'w': s.window = strtoull(optarg, NULL, 10); break;
        default: return usage();
        }
    }
    if (argc - optind != 4) return usage();
    s.client.address = argv[optind + 1];
    s.client.count = strtoull(argv[optind + 2], NULL, 10);
    s.size = strtoull(argv[optind + 3], NULL, 10);
    if (!s.client.count || s.size < STAMP_SIZE || s.size > UINT32_MAX || !s.client.timeout || !s.window) return usage();

    s.again = malloc(s.client.count * sizeof *s.again);
    if (times) {
        s.times = fopen(times, "wb");
        if (!s.times) {
            perror(times);
            return 2;
        }
        s.sent_at = malloc(s.client.count * sizeof *s.sent_at);
    }
    encode_message(&s);
    client_run(&s.client, argv[optind]);
    int status = report(&s);
    free(s.message);
    free(s.again);
    free(s.sent_at);
    if (s.times && fclose(s.times) != 0) return 1;
    return status;
}
