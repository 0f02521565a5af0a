/* What listening programs are: the proton engine over one level-triggered epoll, in one thread. */
#ifndef SERVER_H
#define SERVER_H

#include <proton/event.h>
#include <proton/types.h>

#include <stdint.h>

typedef struct {
    const char *container; /* its id, sent to every peer; NULL: none */
    void (*on_event)(pn_event_t *);
    void (*on_gone)(pn_connection_t *);      /* a connection is over, and about to be freed */
    void (*on_signal)(int number);           /* SIGTERM, SIGUSR1; NULL: left as they are */
} server_t;

/* Listens on 127.0.0.1 and serves for ever, or until `server_stop`; returns 1 if it cannot listen. */
int server_run(const server_t *server, int port);

void server_stop(void);

/* The connection has something to write although nothing came on it. */
void server_touch(pn_connection_t *connection);

#endif
