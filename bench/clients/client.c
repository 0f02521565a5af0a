#include "client.h"

#include <proton/link.h>
#include <proton/sasl.h>
#include <proton/session.h>
#include <proton/transport.h>

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

uint64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

pn_millis_t client_timeout(const char *seconds)
{
    return (pn_millis_t)(atof(seconds) * 1000);
}

void client_finish(client_t *client, const char *error)
{
    if (client->closing) return;
    client->closing = true;
    if (error) snprintf(client->error, sizeof client->error, "%s", error);
    pn_proactor_cancel_timeout(client->proactor);
    pn_connection_close(client->connection);
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

static pn_proactor_t *volatile stoppable;

static void on_sigterm(int number)
{
    (void)number;
    pn_proactor_interrupt(stoppable); /* may be called from a signal handler */
}

/* Returns false when the connection is gone. */
static bool handle(client_t *client, pn_event_t *event)
{
    switch (pn_event_type(event)) {
    case PN_PROACTOR_TIMEOUT:
        if (client->progress == client->progress_seen) {
            client_finish(client, "no progress");
        } else {
            client->progress_seen = client->progress;
            pn_proactor_set_timeout(client->proactor, client->timeout);
        }
        break;
    case PN_PROACTOR_INTERRUPT:
        client->stopping = true;
        client->on_event(client, event);
        break;
    case PN_LINK_REMOTE_CLOSE:
        finish_condition(client, pn_link_remote_condition(pn_event_link(event)), "link closed by peer");
        break;
    case PN_SESSION_REMOTE_CLOSE:
        finish_condition(client, pn_session_remote_condition(pn_event_session(event)), "session closed by peer");
        break;
    case PN_CONNECTION_REMOTE_CLOSE:
        finish_condition(client, pn_connection_remote_condition(client->connection), "connection closed by peer");
        break;
    case PN_TRANSPORT_CLOSED:
        finish_condition(client, pn_transport_condition(pn_event_transport(event)), "connection lost");
        return false;
    default:
        client->on_event(client, event);
    }
    return true;
}

void client_run(client_t *client, const char *endpoint)
{
    client->proactor = stoppable = pn_proactor();
    signal(SIGTERM, on_sigterm);
    client->connection = pn_connection();
    pn_connection_set_container(client->connection, client->name);
    pn_transport_t *transport = pn_transport();
    pn_sasl_allowed_mechs(pn_sasl(transport), "ANONYMOUS");
    pn_proactor_set_timeout(client->proactor, client->timeout);
    pn_proactor_connect2(client->proactor, client->connection, transport, endpoint);
    for (bool open = true; open;) {
        pn_event_batch_t *events = pn_proactor_wait(client->proactor);
        for (pn_event_t *event; open && (event = pn_event_batch_next(events));) open = handle(client, event);
        pn_proactor_done(client->proactor, events);
    }
    signal(SIGTERM, SIG_IGN);
    pn_proactor_free(client->proactor);
}

void client_report_end(const client_t *client, uint64_t messages)
{
    double seconds = client->begin && client->end > client->begin ? (double)(client->end - client->begin) / 1e9 : 0;
    printf("\"seconds\": %.6f, \"messages_per_second\": %.1f, \"error\": ", seconds,
           seconds > 0 ? (double)messages / seconds : 0.0);
    if (client->error[0]) {
        putchar('"');
        for (const char *c = client->error; *c; c++) {
            if (*c == '"' || *c == '\\') putchar('\\');
            putchar((unsigned char)*c < 0x20 ? ' ' : *c);
        }
        puts("\"}");
    } else {
        puts("null}");
    }
}
