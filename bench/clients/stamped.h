/* Messages whose way is measured: one data section that ends in a number and a time, for a receiver on the same machine. */
#ifndef STAMPED_H
#define STAMPED_H

#include <stddef.h>
#include <stdint.h>

enum { STAMP_SIZE = 16 };

/* CLOCK_MONOTONIC, nanoseconds. */
uint64_t now_ns(void);

/* One encoded message with `body` bytes (STAMP_SIZE at least) in its data section, to be freed; `size` is of all of it. */
char *stamped_message(size_t body, size_t *size);

/* Writes both, in host byte order, into the last STAMP_SIZE bytes of the message. */
void stamp(char *message, size_t size, uint64_t sequence, uint64_t time_ns);

#endif
