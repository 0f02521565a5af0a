#include "stamped.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { SECTION_HEAD_MAX = 8 };

uint64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

char *stamped_message(size_t body, size_t *size)
{
    char *message = calloc(1, SECTION_HEAD_MAX + body), *p = message;
    *p++ = 0x00; /* described type, descriptor smallulong 0x75: data section */
    *p++ = 0x53;
    *p++ = 0x75;
    if (body < 256) {
        *p++ = (char)0xa0;
        *p++ = (char)body;
    } else {
        *p++ = (char)0xb0;
        for (int shift = 24; shift >= 0; shift -= 8) *p++ = (char)(body >> shift);
    }
    *size = (size_t)(p - message) + body;
    return message;
}

void stamp(char *message, size_t size, uint64_t sequence, uint64_t time_ns)
{
    uint64_t both[2] = {sequence, time_ns};
    memcpy(message + size - STAMP_SIZE, both, STAMP_SIZE);
}
