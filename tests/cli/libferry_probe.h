/* What the files of the probe share: its session, and what every scene does. */
#ifndef LIBFERRY_PROBE_H
#define LIBFERRY_PROBE_H

#include <ferry.h>

extern struct ferry_session *session;
extern struct ferry_error error;

/* A line of this rank: "rank R: ...". */
void say(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* What a call came to. */
void report(const char *what, enum ferry_status status);
double seconds(void);

struct ferry_group *group_named(const char *name);
/* Zeros. */
struct ferry_tensor *floats(uint64_t count);
/* A sum in place, waited for. */
enum ferry_status sum(struct ferry_group *group, uint64_t count);
/* A give_back or a release that counts, in an int. */
void give_back(void *context);
/* Whatever this rank calls next ends with the session's cause, and how long that takes. */
void after_failure(void);

void scene_operations(void);
void scene_mistakes(void);
void scene_executors(void);
void scene_torn(void);
void scene_odd(void);
void scene_lingering(void);

#endif
