/* question.h: questions to vprof about sizes that libraries decide, in words. */
#ifndef QUESTION_H
#define QUESTION_H

#include "core.h"

/* A line that grows. */
typedef struct { char *text; size_t n, room; } question;

void put(question *q, const char *format, ...) __attribute__((format(printf, 2, 3)));
const char *type_name(int type); /* of cudnnDataType_t */
uint64_t reply(question *q);     /* the answer in bytes, 0 if there is none; the question is gone then */

#endif
