#define _GNU_SOURCE /* accept4 */
#include "server.h"

#include <proton/connection.h>
#include <proton/connection_driver.h>
#include <proton/sasl.h>
#include <proton/transport.h>

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { READY_AT_ONCE = 512, TICK_MS = 1000 };

typedef struct connection connection_t;

struct connection {
    int fd;
    bool want_write;
    bool busy; /* in `busy` */
    connection_t *before, *after; /* in `connections` */
    pn_connection_driver_t driver;
};

static const server_t *served;
static connection_t *connections; /* all */
static connection_t **busy;       /* with something to read or write in this turn */
static int busy_count, busy_room;
static int epoll_fd;
static bool stopped;
static volatile sig_atomic_t told_to_stop, told_more;

static void touch(connection_t *c)
{
    if (c->busy) return;
    c->busy = true;
    if (busy_count == busy_room) busy = realloc(busy, (size_t)(busy_room = busy_room * 2 + 64) * sizeof *busy);
    busy[busy_count++] = c;
}

void server_touch(pn_connection_t *connection)
{
    touch(pn_connection_get_context(connection));
}

void server_stop(void)
{
    stopped = true;
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
    if (fd < 0) return;
    connection_t *c = calloc(1, sizeof *c);
    if (!c || pn_connection_driver_init(&c->driver, NULL, NULL)) {
        free(c);
        close(fd);
        return;
    }
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
    c->fd = fd;
    c->after = connections;
    if (connections) connections->before = c;
    connections = c;
    pn_connection_set_context(c->driver.connection, c);
    if (served->container) pn_connection_set_container(c->driver.connection, served->container);
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
            for (pn_event_t *event; (event = pn_connection_driver_next_event(driver)); again = true) {
                served->on_event(event);
            }
        }
    }
}

static void reap(connection_t *c)
{
    if (!pn_connection_driver_finished(&c->driver)) return;
    served->on_gone(c->driver.connection);
    pn_connection_driver_destroy(&c->driver);
    close(c->fd);
    if (c->after) c->after->before = c->before;
    if (c->before) c->before->after = c->after;
    else connections = c->after;
    free(c);
}

/* Heartbeats, for peers that ask for them. */
static void tick(int64_t now)
{
    for (connection_t *c = connections; c; c = c->after) {
        if (!pn_transport_get_remote_idle_timeout(c->driver.transport)) continue;
        pn_transport_tick(c->driver.transport, now);
        touch(c);
    }
}

static int64_t now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

static void on_signal(int number)
{
    if (number == SIGTERM) told_to_stop = 1;
    else told_more = 1;
}

static void tell_signals(void)
{
    if (told_more) served->on_signal(SIGUSR1);
    if (told_to_stop) served->on_signal(SIGTERM);
    told_more = told_to_stop = 0;
}

static int listen_at(int port)
{
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), yes = 1;
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    if (!bind(listener, (struct sockaddr *)&address, sizeof address) && !listen(listener, SOMAXCONN)) return listener;
    perror("listen");
    return -1;
}

int server_run(const server_t *server, int port)
{
    struct rlimit files;
    sigset_t all, none;
    int listener = listen_at(port);
    if (listener < 0) return 1;
    served = server;
    if (!getrlimit(RLIMIT_NOFILE, &files)) {
        files.rlim_cur = files.rlim_max;
        setrlimit(RLIMIT_NOFILE, &files);
    }
    sigfillset(&all);
    sigprocmask(SIG_SETMASK, NULL, &none);
    if (server->on_signal) { /* taken while waiting only, so that none comes just before a wait */
        struct sigaction action = {.sa_handler = on_signal};
        sigaction(SIGTERM, &action, NULL);
        sigaction(SIGUSR1, &action, NULL);
        sigprocmask(SIG_SETMASK, &all, NULL);
    }
    fputs("listening\n", stderr);
    epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = NULL};
    epoll_ctl(epoll_fd, EPOLL_CTL_ADD, listener, &event);
    for (int64_t ticked = now_ms(), now; !stopped;) {
        struct epoll_event ready[READY_AT_ONCE];
        int count = epoll_pwait(epoll_fd, ready, READY_AT_ONCE, TICK_MS, &none);
        if (server->on_signal) tell_signals();
        for (int i = 0; i < count; i++) {
            connection_t *c = ready[i].data.ptr;
            if (!c) {
                accept_connection(listener);
                continue;
            }
            touch(c);
            if (ready[i].events & ~(unsigned)EPOLLOUT) read_socket(c);
        }
        if ((now = now_ms()) >= ticked + TICK_MS) {
            ticked = now;
            tick(now);
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
    return 0;
}
