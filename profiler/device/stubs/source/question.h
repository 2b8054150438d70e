/* question.h: questions to vprof about sizes that a library chooses. */
#ifndef QUESTION_H
#define QUESTION_H

#include "core.h"

/* The text of a question, one line; room is the allocated size. */
typedef struct { char *text; size_t n, room; } question;

void put(question *q, const char *format, ...) __attribute__((format(printf, 2, 3)));
const char *type_name(int type); /* name of a cudnnDataType_t */
uint64_t reply(question *q);     /* sends the question, frees it and returns the answer in bytes; 0 if there is none */

#endif
