#include "client.h"

#include <proton/link.h>
#include <proton/sasl.h>
#include <proton/session.h>
#include <proton/ssl.h>
#include <proton/transport.h>

#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

bool client_option(client_t *client, int option, const char *value)
{
    switch (option) {
    case 't': return (client->timeout = (pn_millis_t)(atof(value) * 1000)) > 0;
    case 'l': return (client->links = atoi(value)) > 0;
    case 'n': return (client->connections = atoi(value)) > 0;
    case 'a': return client->shared = true;
    case 's': return client->tls = true;
    case 'h': return client->hold = true;
    default: return false;
    }
}

void client_finish(client_t *client, const char *error)
{
    if (client->closing) return;
    client->closing = true;
    if (error) snprintf(client->error, sizeof client->error, "%s", error);
    pn_proactor_cancel_timeout(client->proactor);
    for (int i = 0; i < client->connections; i++) {
        if (!client->connection[i]) continue;
        pn_connection_close(client->connection[i]);
        pn_connection_wake(client->connection[i]);
    }
}

void client_done(client_t *client)
{
    if (client->done) return;
    client->done = true;
    if (client->hold && !client->stopping) fputs("done\n", stderr);
    else client_finish(client, NULL);
}

static void open_links(client_t *client, pn_connection_t *connection)
{
    int each = (client->links + client->connections - 1) / client->connections;
    int first = each * (int)(intptr_t)pn_connection_get_context(connection);
    pn_session_t *session = NULL;
    pn_connection_open(connection);
    for (int i = first; i < first + each && i < client->links; i++) {
        char name[64], address[512];
        if ((i - first) % LINKS_PER_SESSION == 0) pn_session_open(session = pn_session(connection));
        snprintf(name, sizeof name, "%s-%d", client->name, i);
        snprintf(address, sizeof address, client->links > 1 && !client->shared ? "%s/%d" : "%s", client->address, i);
        pn_link_open(client->make_link(client, session, name, address));
    }
}

static void finish_condition(client_t *client, pn_condition_t *condition, const char *what)
{
    char text[256];
    if (pn_condition_is_set(condition)) {
        const char *detail = pn_condition_get_description(condition);
        snprintf(text, sizeof text, "%s: %s", pn_condition_get_name(condition), detail ? detail : "");
    } else {
        snprintf(text, sizeof text, "%s", what);
    }
    client_finish(client, text);
}

static pn_proactor_t *volatile signalled;
static volatile sig_atomic_t told_to_start, told_to_stop;

static void on_signal(int number)
{
    if (number == SIGTERM) told_to_stop = 1;
    else told_to_start = 1;
    pn_proactor_interrupt(signalled); /* may be called from a signal handler */
}

/* Returns false when the event's connection is gone. */
static bool handle(client_t *client, pn_event_t *event)
{
    if (client->take && client->take(client, event)) return true;
    switch (pn_event_type(event)) {
    case PN_PROACTOR_TIMEOUT:
        if (client->progress == client->progress_seen && !client->done) {
            client_finish(client, "no progress");
        } else {
            client->progress_seen = client->progress;
            pn_proactor_set_timeout(client->proactor, client->timeout);
        }
        break;
    case PN_PROACTOR_INTERRUPT:
        if (told_to_start && !client->started) {
            client->started = true;
            for (int i = 0; i < client->connections; i++) pn_connection_wake(client->connection[i]);
        }
        if (!told_to_stop) break;
        client->stopping = true;
        if (client->done) client_finish(client, NULL);
        client->on_event(client, event);
        break;
    case PN_CONNECTION_INIT:
        open_links(client, pn_event_connection(event));
        break;
    case PN_LINK_REMOTE_OPEN:
        client->progress++;
        if (++client->attached == client->links) fputs("attached\n", stderr);
        client->on_event(client, event);
        break;
    case PN_LINK_REMOTE_CLOSE:
        finish_condition(client, pn_link_remote_condition(pn_event_link(event)), "link closed by peer");
        break;
    case PN_SESSION_REMOTE_CLOSE:
        finish_condition(client, pn_session_remote_condition(pn_event_session(event)), "session closed by peer");
        break;
    case PN_CONNECTION_REMOTE_CLOSE:
        finish_condition(client, pn_connection_remote_condition(pn_event_connection(event)), "connection closed by peer");
        break;
    case PN_TRANSPORT_CLOSED:
        client->connection[(intptr_t)pn_transport_get_context(pn_event_transport(event))] = NULL;
        finish_condition(client, pn_transport_condition(pn_event_transport(event)), "connection lost");
        return false;
    default:
        client->on_event(client, event);
    }
    return true;
}

void client_run(client_t *client, const char *endpoint)
{
    pn_ssl_domain_t *domain = NULL;
    if (client->tls) {
        domain = pn_ssl_domain(PN_SSL_MODE_CLIENT);
        pn_ssl_domain_set_peer_authentication(domain, PN_SSL_ANONYMOUS_PEER, NULL);
    }
    client->proactor = signalled = pn_proactor();
    signal(SIGTERM, on_signal);
    signal(SIGUSR1, on_signal);
    client->connection = calloc((size_t)client->connections, sizeof *client->connection);
    pn_proactor_set_timeout(client->proactor, client->timeout);
    for (int i = 0; i < client->connections; i++) {
        pn_connection_t *connection = client->connection[i] = pn_connection();
        char container[64];
        snprintf(container, sizeof container, "%s-%d-%d", client->name, (int)getpid(), i);
        pn_connection_set_container(connection, container);
        pn_connection_set_context(connection, (void *)(intptr_t)i);
        pn_transport_t *transport = pn_transport();
        pn_transport_set_context(transport, (void *)(intptr_t)i);
        pn_sasl_allowed_mechs(pn_sasl(transport), "ANONYMOUS");
        if (domain) pn_ssl_init(pn_ssl(transport), domain, NULL);
        pn_proactor_connect2(client->proactor, connection, transport, endpoint);
    }
    for (int open = client->connections; open;) {
        pn_event_batch_t *events = pn_proactor_wait(client->proactor);
        bool there = true;
        for (pn_event_t *event; there && (event = pn_event_batch_next(events));) there = handle(client, event);
        if (!there) open--;
        pn_proactor_done(client->proactor, events);
    }
    signal(SIGTERM, SIG_IGN);
    signal(SIGUSR1, SIG_IGN);
    if (client->on_end) client->on_end(client);
    pn_proactor_free(client->proactor);
    if (domain) pn_ssl_domain_free(domain);
    free(client->connection);
}

static int by_value(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

void client_print_quantiles(uint64_t *times, uint64_t count)
{
    static const struct { const char *name; double quantile; } shown[] = {
        {"p50", 0.5}, {"p99", 0.99}, {"p999", 0.999}, {"max", 1}};
    qsort(times, count, sizeof *times, by_value);
    for (size_t i = 0; i < sizeof shown / sizeof *shown; i++) {
        double found = count ? (double)times[(uint64_t)(shown[i].quantile * (double)(count - 1))] / 1e3 : 0;
        printf("%s\"%s\": %.1f", i ? ", " : "{", shown[i].name, found);
    }
    putchar('}');
}

void client_print_text(const char *text)
{
    if (!text[0]) {
        printf("null");
        return;
    }
    putchar('"');
    for (const char *c = text; *c; c++) {
        if (*c == '"' || *c == '\\') putchar('\\');
        putchar((unsigned char)*c < 0x20 ? ' ' : *c);
    }
    putchar('"');
}

void client_report_end(const client_t *client, uint64_t messages)
{
    double seconds = client->begin && client->end > client->begin ? (double)(client->end - client->begin) / 1e9 : 0;
    printf("\"begin_ns\": %" PRIu64 ", \"end_ns\": %" PRIu64 ", ", client->begin, client->end);
    printf("\"seconds\": %.6f, \"messages_per_second\": %.1f, \"error\": ", seconds,
           seconds > 0 ? (double)messages / seconds : 0.0);
    client_print_text(client->error);
    puts("}");
}
