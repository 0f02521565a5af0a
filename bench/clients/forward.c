/* Engine floor: forwards messages between the links of one address with the proton engine and no routing at all.
 *
 *   forward CONFIG
 *
 * Listens on 127.0.0.1 at the first "port:" of CONFIG, so that cpu_per_message.py can start it in place of a router
 * (topology single). One sender and one receiver for an address at a time; the receiver's credit is passed on to the
 * sender and the outcome passed back, so nothing is ever queued here.
 */
#include "server.h"

#include <proton/connection.h>
#include <proton/delivery.h>
#include <proton/link.h>
#include <proton/session.h>

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

enum { MAX_ADDRESSES = 16384, CHUNK_SIZE = 65536 };

typedef struct {
    char name[256];
    pn_link_t *in, *out;
} route_t;

static route_t routes[MAX_ADDRESSES];

static void touch_link(pn_link_t *link)
{
    server_touch(pn_session_connection(pn_link_session(link)));
}

static route_t *find_route(const char *address)
{
    for (route_t *r = routes; r < routes + MAX_ADDRESSES; r++) {
        if (!r->name[0]) snprintf(r->name, sizeof r->name, "%s", address);
        if (!strcmp(r->name, address)) return r;
    }
    return NULL;
}

static void pass_credit(const route_t *r)
{
    if (!r->in || !r->out) return;
    int more = pn_link_credit(r->out) - pn_link_credit(r->in);
    if (more <= 0) return;
    pn_link_flow(r->in, more);
    touch_link(r->in);
}

static void attach(pn_link_t *link)
{
    bool incoming = pn_link_is_receiver(link);
    const char *address = pn_terminus_get_address(incoming ? pn_link_remote_target(link) : pn_link_remote_source(link));
    route_t *r = address ? find_route(address) : NULL;
    pn_terminus_copy(pn_link_source(link), pn_link_remote_source(link));
    pn_terminus_copy(pn_link_target(link), pn_link_remote_target(link));
    pn_link_open(link);
    if (!r || (incoming ? r->in : r->out)) {
        pn_link_close(link);
        return;
    }
    if (incoming) r->in = link;
    else r->out = link;
    pn_link_set_context(link, r);
    pass_credit(r);
}

static void detach(pn_link_t *link)
{
    route_t *r = pn_link_get_context(link);
    if (r) {
        if (r->in == link) r->in = NULL;
        if (r->out == link) r->out = NULL;
        pn_link_set_context(link, NULL);
    }
    for (pn_delivery_t *d = pn_unsettled_head(link), *next; d; d = next) {
        next = pn_unsettled_next(d);
        pn_delivery_t *peer = pn_delivery_get_context(d);
        if (!peer) continue;
        pn_delivery_set_context(peer, NULL);
        touch_link(pn_delivery_link(peer));
        if (pn_link_is_receiver(pn_delivery_link(peer))) pn_delivery_update(peer, PN_RELEASED);
        pn_delivery_settle(peer);
        pn_delivery_settle(d);
    }
}

static void forward(pn_delivery_t *in)
{
    static char chunk[CHUNK_SIZE];
    pn_link_t *link = pn_delivery_link(in);
    route_t *r = pn_link_get_context(link);
    pn_delivery_t *out = pn_delivery_get_context(in);
    if (!out && r && r->out) {
        pn_delivery_tag_t tag = pn_delivery_tag(in);
        out = pn_delivery(r->out, tag);
        pn_delivery_set_context(in, out);
        pn_delivery_set_context(out, in);
    }
    if (out) touch_link(r->out);
    ssize_t got;
    while ((got = pn_link_recv(link, chunk, sizeof chunk)) > 0) {
        if (out) pn_link_send(pn_delivery_link(out), chunk, (size_t)got);
    }
    if (pn_delivery_partial(in)) return;
    pn_link_advance(link);
    if (!out) {
        pn_delivery_update(in, PN_RELEASED);
        pn_delivery_settle(in);
        return;
    }
    pn_link_advance(pn_delivery_link(out));
    if (pn_delivery_settled(in)) {
        pn_delivery_settle(out);
        pn_delivery_settle(in);
    }
}

static void pass_outcome(pn_delivery_t *out)
{
    pn_delivery_t *in = pn_delivery_get_context(out);
    if (!pn_delivery_settled(out) && pn_delivery_remote_state(out) <= PN_RECEIVED) return;
    if (in) {
        touch_link(pn_delivery_link(in));
        pn_delivery_update(in, pn_delivery_remote_state(out));
        pn_delivery_settle(in);
    }
    pn_delivery_settle(out);
}

static void detach_all(pn_connection_t *connection)
{
    for (pn_link_t *link = pn_link_head(connection, 0); link; link = pn_link_next(link, 0)) detach(link);
}

static void handle(pn_event_t *event)
{
    switch (pn_event_type(event)) {
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
        if (pn_link_get_context(pn_event_link(event))) pass_credit(pn_link_get_context(pn_event_link(event)));
        break;
    case PN_DELIVERY: {
        pn_delivery_t *delivery = pn_event_delivery(event);
        if (pn_link_is_sender(pn_delivery_link(delivery))) {
            if (pn_delivery_updated(delivery)) pass_outcome(delivery);
        } else if (pn_delivery_readable(delivery)) {
            forward(delivery);
        }
        break;
    }
    case PN_LINK_REMOTE_CLOSE:
        detach(pn_event_link(event));
        pn_link_close(pn_event_link(event));
        break;
    case PN_CONNECTION_REMOTE_CLOSE:
        detach_all(pn_event_connection(event));
        pn_connection_close(pn_event_connection(event));
        break;
    default:
        break;
    }
}

static int configured_port(const char *path)
{
    char line[512];
    int port = 0;
    FILE *file = fopen(path, "r");
    while (file && !port && fgets(line, sizeof line, file)) sscanf(line, " port: %d", &port);
    if (file) fclose(file);
    return port;
}

int main(int argc, char **argv)
{
    static const server_t server = {.on_event = handle, .on_gone = detach_all};
    int port = argc == 2 ? configured_port(argv[1]) : 0;
    if (!port) {
        fputs("usage: forward CONFIG (with a listener's port)\n", stderr);
        return 2;
    }
    return server_run(&server, port);
}
