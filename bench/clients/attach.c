/* Attaches COUNT links, so many at a time, and measures how long each takes.
 *
 *   attach HOST:PORT ADDRESS COUNT [--receivers] [--detach] [--window N] [--addresses N] [--connections N] [--tls]
 *          [--hold] [--timeout SECONDS]
 *
 * Links of senders, with --receivers of receivers, which give no credit. On each connection --window (default 1) are
 * under way: when one is answered the next one follows. With --detach each is detached first, and the next one follows
 * when that is answered: COUNT attaches, and COUNT detaches. Without it all are there at the end.
 * A "%" in ADDRESS stands for the number of the link, modulo --addresses (default COUNT).
 *
 * With --hold it prints the line "connected" to standard error and waits for SIGUSR1, and at the end prints "done" and
 * stays with its links until SIGTERM. It fails when nothing has moved for SECONDS (default 10).
 *
 * Prints one JSON line: `attach_us` is from the attach to its answer, `credit_us` to the first credit of a link of a
 * sender, `detach_us` from the detach to its answer; `refused` counts links answered with a detach, which are none of
 * the `attached`, and `refusal` is the first one's error. Exit status 0 if all were attached, 1 if not, 2 on wrong
 * arguments.
 */
#include "client.h"

#include <proton/link.h>
#include <proton/session.h>

#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef enum { ASKED, REFUSED, ATTACHED, DETACHED } phase_t;

typedef struct {
    phase_t phase;
    bool credited;
    uint64_t since; /* of the attach, then of the detach */
} attempt_t;

typedef struct {
    uint64_t *each; /* nanoseconds */
    uint64_t count;
} times_t;

typedef struct {
    client_t client;
    bool receivers, detach;
    int window;
    uint64_t addresses;

    pn_session_t **session; /* by connection: the one that the next link gets */
    int connected;
    uint64_t begun, over, refused;
    times_t attached, credited, detached;
    char refusal[256];
} attacher_t;

static void note(times_t *times, uint64_t since)
{
    times->each[times->count++] = now_ns() - since;
}

static void attach_next(attacher_t *a, pn_session_t *session)
{
    char name[64], address[512];
    const char *given = a->client.address, *mark = strchr(given, '%');
    if (a->begun == a->client.count || a->client.stopping) return;
    uint64_t number = a->begun++;
    int before = mark ? (int)(mark - given) : (int)strlen(given);
    snprintf(address, sizeof address, "%.*s", before, given);
    if (mark) snprintf(address + before, sizeof address - (size_t)before, "%" PRIu64 "%s", number % a->addresses, mark + 1);
    snprintf(name, sizeof name, "attach-%" PRIu64, number);
    pn_link_t *link = a->receivers ? pn_receiver(session, name) : pn_sender(session, name);
    pn_terminus_set_address(a->receivers ? pn_link_source(link) : pn_link_target(link), address);
    attempt_t *attempt = calloc(1, sizeof *attempt);
    pn_link_set_context(link, attempt);
    pn_link_open(link);
    attempt->since = now_ns();
}

/* A session gets no more links than those of the other clients have. */
static pn_session_t *session_of(attacher_t *a, pn_connection_t *connection)
{
    pn_session_t **current = &a->session[(intptr_t)pn_connection_get_context(connection)];
    intptr_t links = *current ? (intptr_t)pn_session_get_context(*current) : LINKS_PER_SESSION;
    if (links == LINKS_PER_SESSION) {
        pn_session_open(*current = pn_session(connection));
        links = 0;
    }
    pn_session_set_context(*current, (void *)(links + 1));
    return *current;
}

static void begin(attacher_t *a, pn_connection_t *connection)
{
    if (!a->client.begin) a->client.begin = now_ns();
    for (int i = 0; i < a->window; i++) attach_next(a, session_of(a, connection));
}

static void go_on(attacher_t *a, pn_session_t *session)
{
    a->client.progress++;
    if (++a->over < a->client.count) {
        attach_next(a, session);
    } else {
        a->client.end = now_ns();
        client_done(&a->client);
    }
}

static void on_attached(attacher_t *a, pn_link_t *link, attempt_t *attempt)
{
    pn_terminus_t *answered = a->receivers ? pn_link_remote_source(link) : pn_link_remote_target(link);
    if (pn_terminus_get_type(answered) == PN_UNSPECIFIED) {
        attempt->phase = REFUSED; /* the reason follows */
        return;
    }
    note(&a->attached, attempt->since);
    attempt->phase = ATTACHED;
    if (a->detach) {
        attempt->phase = DETACHED;
        pn_link_close(link);
        attempt->since = now_ns();
    } else {
        go_on(a, session_of(a, pn_session_connection(pn_link_session(link))));
    }
}

static void on_detached(attacher_t *a, pn_link_t *link, attempt_t *attempt)
{
    pn_session_t *session = pn_link_session(link);
    if (attempt->phase == DETACHED) {
        note(&a->detached, attempt->since);
    } else {
        pn_condition_t *error = pn_link_remote_condition(link);
        const char *name = pn_condition_get_name(error), *detail = pn_condition_get_description(error);
        if (!a->refused++) snprintf(a->refusal, sizeof a->refusal, "%s: %s", name ? name : "", detail ? detail : "");
        pn_link_close(link);
    }
    pn_link_free(link);
    go_on(a, session);
}

/* What the other clients take for an error, or have done for them. */
static bool take(client_t *client, pn_event_t *event)
{
    attacher_t *a = (attacher_t *)client;
    pn_link_t *link = pn_event_link(event);
    attempt_t *attempt = link ? pn_link_get_context(link) : NULL;
    switch (pn_event_type(event)) {
    case PN_CONNECTION_INIT:
        pn_connection_open(pn_event_connection(event));
        return true;
    case PN_LINK_REMOTE_OPEN:
        on_attached(a, link, attempt);
        return true;
    case PN_LINK_REMOTE_CLOSE:
        if (attempt->phase == ATTACHED) return false;
        on_detached(a, link, attempt);
        return true;
    default:
        return false;
    }
}

static void on_event(client_t *client, pn_event_t *event)
{
    attacher_t *a = (attacher_t *)client;
    pn_link_t *link = pn_event_link(event);
    attempt_t *attempt = link ? pn_link_get_context(link) : NULL;
    switch (pn_event_type(event)) {
    case PN_CONNECTION_REMOTE_OPEN:
        a->connected++;
        if (!client->hold) begin(a, pn_event_connection(event));
        else if (a->connected == client->connections) fputs("connected\n", stderr);
        break;
    case PN_CONNECTION_WAKE:
        if (client->started && !a->session[(intptr_t)pn_connection_get_context(pn_event_connection(event))]) {
            begin(a, pn_event_connection(event));
        }
        break;
    case PN_LINK_FLOW:
        if (a->receivers || attempt->credited || attempt->phase == DETACHED || pn_link_credit(link) <= 0) break;
        attempt->credited = true;
        note(&a->credited, attempt->since);
        break;
    case PN_LINK_FINAL:
        free(attempt);
        break;
    case PN_PROACTOR_INTERRUPT:
        client_finish(client, NULL);
        break;
    default:
        break;
    }
}

static void print_times(const char *name, times_t *times)
{
    printf("\"%s\": ", name);
    client_print_quantiles(times->each, times->count);
    printf(", ");
}

static int report(attacher_t *a)
{
    bool ok = !a->client.error[0] && a->attached.count == a->client.count;
    printf("{\"client\": \"attach\", \"ok\": %s, \"attached\": %" PRIu64 ", \"detached\": %" PRIu64
           ", \"refused\": %" PRIu64 ", \"refusal\": ",
           ok ? "true" : "false", a->attached.count, a->detached.count, a->refused);
    client_print_text(a->refusal);
    printf(", ");
    print_times("attach_us", &a->attached);
    print_times("credit_us", &a->credited);
    print_times("detach_us", &a->detached);
    client_report_end(&a->client, a->attached.count);
    return ok ? 0 : 1;
}

static int usage(void)
{
    fputs("usage: attach HOST:PORT ADDRESS COUNT [--receivers] [--detach] [--window N] [--addresses N] [--connections N]"
          " [--tls] [--hold] [--timeout SECONDS]\n", stderr);
    return 2;
}

int main(int argc, char **argv)
{
    static const struct option options[] = {
        {"receivers", no_argument, NULL, 'r'}, {"detach", no_argument, NULL, 'd'},
        {"window", required_argument, NULL, 'w'}, {"addresses", required_argument, NULL, 'm'}, CLIENT_OPTIONS,
        {NULL, 0, NULL, 0}};
    attacher_t a = {
        .client = {.name = "bench-attach", .timeout = 10000, .links = 1, .connections = 1, .take = take,
                   .on_event = on_event},
        .window = 1};
    for (int option; (option = getopt_long(argc, argv, "", options, NULL)) != -1;) {
        switch (option) {
        case 'r': a.receivers = true; break;
        case 'd': a.detach = true; break;
        case 'w': a.window = atoi(optarg); break;
        case 'm': a.addresses = strtoull(optarg, NULL, 10); break;
        default: if (!client_option(&a.client, option, optarg)) return usage();
        }
    }
    if (argc - optind != 3) return usage();
    a.client.address = argv[optind + 1];
    a.client.count = strtoull(argv[optind + 2], NULL, 10);
    if (!a.addresses) a.addresses = a.client.count;
    if (!a.client.count || a.window < 1) return usage();

    for (times_t *times[] = {&a.attached, &a.credited, &a.detached}, **t = times; t < times + 3; t++) {
        (*t)->each = malloc(a.client.count * sizeof *(*t)->each);
    }
    a.session = calloc((size_t)a.client.connections, sizeof *a.session);
    client_run(&a.client, argv[optind]);
    return report(&a);
}
