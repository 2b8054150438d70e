/* question.c: builds questions to vprof. */
#include "question.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

void put(question *q, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    int n = vsnprintf(NULL, 0, format, args);
    va_end(args);
    if (n < 0)
        return;
    if (q->n + (size_t)n + 1 > q->room)
        q->text = realloc(q->text, q->room = 2 * (q->n + (size_t)n) + 256);
    va_start(args, format);
    q->n += (size_t)vsnprintf(q->text + q->n, q->room - q->n, format, args);
    va_end(args);
}

const char *type_name(int type)
{
    switch (type) {
    case 0: return "float";
    case 1: return "double";
    case 2: return "half";
    case 9: return "bfloat16";
    default: return "other";
    }
}

uint64_t reply(question *q)
{
    uint64_t bytes = ask(q->text);
    free(q->text);
    *q = (question){0};
    return bytes;
}
