/* Engine floor: forwards messages between the links of one address with the proton engine and no routing at all.
 *
 *   forward CONFIG
 *
 * Listens on 127.0.0.1 at the first "port:" of CONFIG, so that cpu_per_message.py can start it in place of a router
 * (topology single). One sender and one receiver for an address at a time; the receiver's credit is passed on to the
 * sender and the outcome passed back, so nothing is ever queued here. One thread, level-triggered epoll.
 */
#define _GNU_SOURCE /* accept4 */
#include <proton/connection.h>
#include <proton/connection_driver.h>
#include <proton/delivery.h>
#include <proton/link.h>
#include <proton/sasl.h>
#include <proton/session.h>
#include <proton/transport.h>

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

enum { MAX_CONNECTIONS = 4200, MAX_ADDRESSES = 16384, CHUNK_SIZE = 65536 };

typedef struct {
    int fd; /* -1: slot free */
    bool want_write;
    bool busy; /* in `busy` */
    pn_connection_driver_t driver;
} connection_t;

typedef struct {
    char name[256];
    pn_link_t *in, *out;
} route_t;

static connection_t connections[MAX_CONNECTIONS];
static connection_t *busy[MAX_CONNECTIONS]; /* with something to read or write in this turn */
static int busy_count;
static route_t routes[MAX_ADDRESSES];
static int epoll_fd;

static void touch(connection_t *c)
{
    if (!c->busy) busy[busy_count++] = c;
    c->busy = true;
}

static void touch_link(pn_link_t *link)
{
    touch(pn_connection_get_context(pn_session_connection(pn_link_session(link))));
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

static void watch(connection_t *c, int operation, bool want_write)
{
    struct epoll_event event = {.events = EPOLLIN | (want_write ? EPOLLOUT : 0u), .data.ptr = c};
    c->want_write = want_write;
    epoll_ctl(epoll_fd, operation, c->fd, &event);
}

static void accept_connection(int listener)
{
    int fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC), yes = 1;
    connection_t *c = connections;
    while (c < connections + MAX_CONNECTIONS && c->fd >= 0) c++;
    if (fd < 0) return;
    if (c == connections + MAX_CONNECTIONS || pn_connection_driver_init(&c->driver, NULL, NULL)) {
        close(fd);
        return;
    }
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
    c->fd = fd;
    c->busy = false;
    pn_connection_set_context(c->driver.connection, c);
    pn_transport_set_server(c->driver.transport);
    pn_sasl_allowed_mechs(pn_sasl(c->driver.transport), "ANONYMOUS");
    pn_transport_require_auth(c->driver.transport, false);
    watch(c, EPOLL_CTL_ADD, false);
}

static void read_socket(connection_t *c)
{
    pn_rwbytes_t room = pn_connection_driver_read_buffer(&c->driver);
    if (!room.size) return;
    ssize_t got = recv(c->fd, room.start, room.size, 0);
    if (got > 0) pn_connection_driver_read_done(&c->driver, (size_t)got);
    else if (got == 0 || (errno != EAGAIN && errno != EINTR)) pn_connection_driver_close(&c->driver);
}

static void write_socket(connection_t *c)
{
    bool blocked = false;
    for (pn_bytes_t data; !blocked && (data = pn_connection_driver_write_buffer(&c->driver)).size;) {
        ssize_t put = send(c->fd, data.start, data.size, MSG_NOSIGNAL);
        if (put > 0) pn_connection_driver_write_done(&c->driver, (size_t)put);
        else if (errno == EAGAIN) blocked = true;
        else if (errno != EINTR) pn_connection_driver_close(&c->driver);
    }
    if (blocked != c->want_write) watch(c, EPOLL_CTL_MOD, blocked);
}

/* Events of one connection make work for another, which is appended: repeat until all collectors are empty. */
static void handle_events(void)
{
    for (bool again = true; again;) {
        again = false;
        for (int i = 0; i < busy_count; i++) {
            pn_connection_driver_t *driver = &busy[i]->driver;
            for (pn_event_t *event; (event = pn_connection_driver_next_event(driver)); again = true) handle(event);
        }
    }
}

static void reap(connection_t *c)
{
    if (!pn_connection_driver_finished(&c->driver)) return;
    detach_all(c->driver.connection);
    pn_connection_driver_destroy(&c->driver);
    close(c->fd);
    c->fd = -1;
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
    int port = argc == 2 ? configured_port(argv[1]) : 0, yes = 1;
    if (!port) {
        fputs("usage: forward CONFIG (with a listener's port)\n", stderr);
        return 2;
    }
    for (int i = 0; i < MAX_CONNECTIONS; i++) connections[i].fd = -1;
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    if (bind(listener, (struct sockaddr *)&address, sizeof address) || listen(listener, SOMAXCONN)) {
        perror("listen");
        return 1;
    }
    epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = NULL};
    epoll_ctl(epoll_fd, EPOLL_CTL_ADD, listener, &event);
    for (;;) {
        struct epoll_event ready[MAX_CONNECTIONS];
        int count = epoll_wait(epoll_fd, ready, MAX_CONNECTIONS, -1);
        for (int i = 0; i < count; i++) {
            connection_t *c = ready[i].data.ptr;
            if (!c) {
                accept_connection(listener);
                continue;
            }
            touch(c);
            if (ready[i].events & ~(unsigned)EPOLLOUT) read_socket(c);
        }
        handle_events();
        for (int i = 0; i < busy_count; i++) write_socket(busy[i]);
        handle_events(); /* writing may have closed a transport */
        for (int i = 0; i < busy_count; i++) {
            busy[i]->busy = false;
            reap(busy[i]);
        }
        busy_count = 0;
    }
}
