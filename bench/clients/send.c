/* Load sender: COUNT messages of SIZE body bytes to ADDRESS, as fast as credit allows.
 *
 *   send HOST:PORT ADDRESS COUNT SIZE [--presettled] [--rate N] [--window N] [--times FILE] [--links N]
 *        [--connections N] [--tls] [--hold] [--timeout SECONDS]
 *
 * A message is one data section. The last 16 bytes of its body are the sequence number and the sending time
 * (CLOCK_MONOTONIC, nanoseconds), both in host byte order, for recv on the same machine to check.
 * A released message is sent again; a rejected or modified one is not. Without --presettled the run ends when
 * every message is settled. It fails when nothing has moved for SECONDS (default 10). SIGTERM: no more is sent, and
 * the run ends when what was sent is settled.
 *
 * With --rate N messages a second are due, evenly, or in bursts every 100 us when there are more than 10,000. The stamp
 * is the time a message was due, also of one that had to wait for credit or for this process, so that its wait counts
 * (no coordinated omission); `behind_us` of the report tells how late messages were sent.
 * With --window no more than N messages are under way at a time on a link. With --times FILE gets two 64-bit numbers in host
 * byte order for each settled message: when it was sent and when its outcome came (CLOCK_MONOTONIC, nanoseconds).
 * With --links there are N links, and link I has the address ADDRESS/I; --connections spreads them over N connections.
 * --tls encrypts, and believes any certificate.
 * Prints the line "attached" to standard error once the peer has answered every attach. With --hold it then waits for
 * SIGUSR1 before it sends, at the end prints "done" instead of closing its connections, and waits for SIGTERM.
 *
 * Prints one JSON line; exit status 0 if all messages were accepted (or, presettled, sent), 1 if not, 2 on
 * wrong arguments.
 */
#include "client.h"

#include <proton/delivery.h>
#include <proton/link.h>

#include <getopt.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <time.h>

enum { TICK_NS = 100000 };

typedef struct {
    client_t client;
    size_t size;
    bool presettled;
    uint64_t window; /* messages under way at most, on a link */
    FILE *times;

    char *message; /* one encoded message, the stamp overwritten for each sending */
    size_t message_size;

    uint64_t sent; /* distinct messages */
    uint64_t tag;  /* deliveries, repeats included */
    uint64_t *again; /* sequence numbers of released messages, waiting for credit */
    uint64_t again_size;
    uint64_t accepted, rejected, released, modified;
    uint64_t *sent_at; /* by sequence number, if there are `times` */

    double rate; /* messages a second; 0: as fast as possible */
    uint64_t burst;
    uint64_t *behind; /* nanoseconds between due and sent, by sequence number */
    pthread_t pacer;
    pn_connection_t **woken; /* by the pacer, which keeps them from being freed */
    volatile bool paced; /* the pacer runs, and is to go on */
} sender_t;

static void finish_if_done(sender_t *s)
{
    if ((s->sent < s->client.count && !s->client.stopping) || s->again_size) return;
    if (s->presettled || s->accepted + s->rejected + s->modified == s->sent) {
        if (!s->client.done) s->client.end = now_ns();
        client_done(&s->client);
    }
}

static uint64_t due_at(const sender_t *s, uint64_t sequence)
{
    return s->client.begin + (uint64_t)((double)(sequence / s->burst * s->burst) * 1e9 / s->rate);
}

/* Wakes all connections whenever messages are due. */
static void *pace(void *context)
{
    sender_t *s = context;
    prctl(PR_SET_TIMERSLACK, 1);
    for (uint64_t due = s->burst; s->paced && due < s->client.count; due += s->burst) {
        uint64_t at = due_at(s, due), now = now_ns();
        if (at > now) {
            struct timespec until = {.tv_sec = (time_t)(at / 1000000000u), .tv_nsec = (long)(at % 1000000000u)};
            clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL);
        } else {
            due = (uint64_t)((double)(now - s->client.begin) * s->rate / 1e9) / s->burst * s->burst;
        }
        for (int i = 0; s->paced && i < s->client.connections; i++) pn_connection_wake(s->woken[i]);
    }
    return NULL;
}

static void begin_pacing(sender_t *s)
{
    s->client.begin = now_ns();
    s->burst = (uint64_t)(s->rate * TICK_NS / 1e9);
    if (!s->burst) s->burst = 1;
    s->woken = calloc((size_t)s->client.connections, sizeof *s->woken);
    for (int i = 0; i < s->client.connections; i++) pn_incref(s->woken[i] = s->client.connection[i]);
    s->paced = true;
    pthread_create(&s->pacer, NULL, pace, s);
}

static void end_pacing(client_t *client)
{
    sender_t *s = (sender_t *)client;
    if (!s->paced) return;
    s->paced = false;
    pthread_join(s->pacer, NULL);
    for (int i = 0; i < client->connections; i++) pn_decref(s->woken[i]);
    free(s->woken);
}

static void send_one(sender_t *s, pn_link_t *link, uint64_t sequence, uint64_t now)
{
    uint64_t due = s->rate ? due_at(s, sequence) : now;
    stamp(s->message, s->message_size, sequence, due);
    pn_delivery_t *delivery = pn_delivery(link, pn_dtag((const char *)&s->tag, sizeof s->tag));
    s->tag++;
    s->client.progress++;
    pn_delivery_set_context(delivery, (void *)(uintptr_t)sequence);
    pn_link_send(link, s->message, s->message_size);
    if (s->presettled) pn_delivery_settle(delivery);
    if (s->times) s->sent_at[sequence] = now;
    if (s->behind) s->behind[sequence] = now - due;
    pn_link_advance(link);
}

static void send_while_credit(sender_t *s, pn_link_t *link)
{
    if (s->client.hold && !s->client.started) return;
    while (!s->client.closing && pn_link_credit(link) > 0 && (uint64_t)pn_link_unsettled(link) < s->window
           && (s->again_size || (s->sent < s->client.count && !s->client.stopping))) {
        uint64_t now = now_ns();
        if (!s->client.begin) {
            s->client.begin = now;
            if (s->rate) begin_pacing(s);
        }
        if (!s->again_size && s->rate && due_at(s, s->sent) > now) break;
        send_one(s, link, s->again_size ? s->again[--s->again_size] : s->sent++, now);
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
    if (s->times) {
        uint64_t times[2] = {s->sent_at[(uint64_t)(uintptr_t)pn_delivery_get_context(delivery)], now_ns()};
        fwrite(times, sizeof times, 1, s->times);
    }
    pn_link_t *link = pn_delivery_link(delivery);
    pn_delivery_settle(delivery);
    send_while_credit(s, link);
}

static pn_link_t *make_link(client_t *client, pn_session_t *session, const char *name, const char *address)
{
    pn_link_t *link = pn_sender(session, name);
    pn_terminus_set_address(pn_link_target(link), address);
    pn_link_set_snd_settle_mode(link, ((sender_t *)client)->presettled ? PN_SND_SETTLED : PN_SND_UNSETTLED);
    return link;
}

static void on_event(client_t *client, pn_event_t *event)
{
    sender_t *s = (sender_t *)client;
    switch (pn_event_type(event)) {
    case PN_CONNECTION_WAKE: {
        pn_connection_t *connection = pn_event_connection(event);
        for (pn_link_t *link = pn_link_head(connection, 0); link; link = pn_link_next(link, 0)) send_while_credit(s, link);
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

static int report(sender_t *s)
{
    bool ok = !s->client.error[0] && (s->client.stopping || s->sent == s->client.count)
              && (s->presettled || s->accepted == s->sent);
    printf("{\"client\": \"send\", \"ok\": %s, \"messages\": %" PRIu64 ", \"size\": %zu, \"presettled\": %s, "
           "\"sent\": %" PRIu64 ", \"accepted\": %" PRIu64 ", \"rejected\": %" PRIu64 ", \"released\": %" PRIu64
           ", \"modified\": %" PRIu64 ", ",
           ok ? "true" : "false", s->client.count, s->size, s->presettled ? "true" : "false", s->sent, s->accepted,
           s->rejected, s->released, s->modified);
    if (s->behind) {
        printf("\"behind_us\": ");
        client_print_quantiles(s->behind, s->sent);
        printf(", ");
    }
    client_report_end(&s->client, s->sent);
    return ok ? 0 : 1;
}

static int usage(void)
{
    fputs("usage: send HOST:PORT ADDRESS COUNT SIZE [--presettled] [--rate N] [--window N] [--times FILE] [--links N]"
          " [--connections N] [--tls] [--hold] [--timeout SECONDS]\n", stderr);
    return 2;
}

int main(int argc, char **argv)
{
    static const struct option options[] = {
        {"presettled", no_argument, NULL, 'p'}, {"rate", required_argument, NULL, 'r'},
        {"times", required_argument, NULL, 'f'}, {"window", required_argument, NULL, 'w'}, CLIENT_OPTIONS, {NULL, 0, NULL, 0}};
    sender_t s = {
        .client = {.name = "bench-send", .timeout = 10000, .links = 1, .connections = 1, .make_link = make_link,
                   .on_event = on_event, .on_end = end_pacing},
        .window = UINT64_MAX};
    const char *times = NULL;
    for (int option; (option = getopt_long(argc, argv, "", options, NULL)) != -1;) {
        switch (option) {
        case 'p': s.presettled = true; break;
        case 'r': s.rate = atof(optarg); break;
        case 'f': times = optarg; break;
        case 'w': s.window = strtoull(optarg, NULL, 10); break;
        default: if (!client_option(&s.client, option, optarg)) return usage();
        }
    }
    if (argc - optind != 4) return usage();
    s.client.address = argv[optind + 1];
    s.client.count = strtoull(argv[optind + 2], NULL, 10);
    s.size = strtoull(argv[optind + 3], NULL, 10);
    if (!s.client.count || s.size < STAMP_SIZE || s.size > UINT32_MAX || !s.window || s.rate < 0
        || s.client.links < s.client.connections) return usage();

    s.again = malloc(s.client.count * sizeof *s.again);
    if (times) {
        s.times = fopen(times, "wb");
        if (!s.times) {
            perror(times);
            return 2;
        }
        s.sent_at = malloc(s.client.count * sizeof *s.sent_at);
    }
    if (s.rate) s.behind = malloc(s.client.count * sizeof *s.behind);
    s.message = stamped_message(s.size, &s.message_size);
    client_run(&s.client, argv[optind]);
    int status = report(&s);
    free(s.message);
    free(s.again);
    free(s.sent_at);
    free(s.behind);
    if (s.times && fclose(s.times) != 0) return 1;
    return status;
}
